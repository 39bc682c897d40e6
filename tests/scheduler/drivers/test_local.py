"""The local driver against the conformance suite, as this machine allows it and in its plainest mode."""

from __future__ import annotations

from typing import ClassVar

import pytest

from scheduler.drivers import cgroups
from scheduler.drivers.base import Phase
from scheduler.drivers.local import LocalDriver
from tests.scheduler.drivers.conformance import DriverConformance
from tests.scheduler.drivers.local_machine import WHY_NOT, LocalCase


@pytest.mark.skipif("bubblewrap" in WHY_NOT, reason=WHY_NOT.get("bubblewrap", ""))
@pytest.mark.skipif("cgroups" in WHY_NOT, reason=WHY_NOT.get("cgroups", ""))
class TestWithEverything(LocalCase, DriverConformance):
    """Cgroups and bubblewrap: how a node should be."""

    def test_both_are_in_use(self, driver: LocalDriver) -> None:
        assert driver.limits_mode in (cgroups.CGROUP1, cgroups.CGROUP2)
        assert driver.machine.bubblewrap is not None


class TestWithoutAnything(LocalCase, DriverConformance):
    """Neither cgroups nor bubblewrap: rlimits, and the user id as the only wall."""

    options: ClassVar[dict[str, bool]] = {"use_bubblewrap": False, "use_cgroups": False}

    def test_it_says_that_limits_are_weak(self, driver: LocalDriver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        running = self.wait_for(driver, spec.key, Phase.RUNNING)
        assert driver.limits_mode == cgroups.RLIMITS
        assert "rlimits" in running.message
        assert "CPU time is not limited" in running.message
