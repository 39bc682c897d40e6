"""The local driver against the conformance suite, as this machine allows it and in its plainer modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from scheduler.drivers import cgroups
from scheduler.drivers.base import Driver, Phase
from scheduler.drivers.local import LocalDriver
from tests.scheduler.drivers.conformance import DriverConformance
from tests.scheduler.drivers.local_machine import NODE, WHY_NOT, Box


class LocalCase(DriverConformance):
    """Hooks of the conformance suite for real processes. Members print `ran` once each time they run."""

    node = NODE
    options: ClassVar[dict[str, bool]] = {}

    @pytest.fixture(autouse=True)
    def _box(self, tmp_path: Path) -> Iterator[None]:
        self.box = Box(tmp_path / "data", self.options)
        yield
        self.box.close()

    def make_driver(self) -> LocalDriver:
        return self.box.driver()

    def command(self, *, seconds: float = 0.0, exit_code: int = 0) -> Sequence[str]:
        return ["sh", "-c", f"echo ran; sleep {seconds}; exit {exit_code}"]

    def runs(self, driver: Driver, key: str) -> int:
        return self.whole_log(driver, key).count(b"ran\n")

    def printing_command(self, lines: int) -> Sequence[str]:
        return ["sh", "-c", f"i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); done"]

    def signalled_command(self) -> Sequence[str]:
        return ["sh", "-c", "kill -TERM $$; sleep 60"]

    def polite_command(self) -> Sequence[str]:
        return ["sh", "-c", "trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]

    def stubborn_command(self) -> Sequence[str]:
        return ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]

    def greedy_command(self) -> Sequence[str]:
        # Several processes, each below the limit alone: what counts is the member as a whole.
        hog = "dd if=/dev/zero of=/dev/null bs=48M count=100000 2>/dev/null"
        return ["sh", "-c", f"{hog} & {hog} & {hog} & wait %1 && wait %2 && wait %3"]

    def lose_next_reply(self, driver: Driver) -> None:
        assert isinstance(driver, LocalDriver)
        driver.handshake_s = 0.0


@pytest.mark.skipif("bubblewrap" in WHY_NOT or "cgroups" in WHY_NOT, reason="; ".join(WHY_NOT.values()))
class TestWithEverything(LocalCase):
    """Cgroups and bubblewrap: how a node should be."""

    def test_both_are_in_use(self, driver: LocalDriver) -> None:
        assert driver.limits_mode in (cgroups.CGROUP1, cgroups.CGROUP2)
        assert driver.machine.bubblewrap is not None


class TestWithoutAnything(LocalCase):
    """Neither cgroups nor bubblewrap: rlimits, and the user id as the only wall."""

    options: ClassVar[dict[str, bool]] = {"use_bubblewrap": False, "use_cgroups": False}

    def test_it_says_that_limits_are_weak(self, driver: LocalDriver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        running = self.wait_for(driver, spec.key, Phase.RUNNING)
        assert driver.limits_mode == cgroups.RLIMITS
        assert "rlimits" in running.message
        assert "CPU time is not limited" in running.message
