"""The cast with tokens, one small simulated fleet, and the steps of the scheduler run by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Job, User
from scheduler import commands, observing, placing, snapshot
from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from tests import factories
from tests.portal.api.client import Api, api


@pytest.fixture
def people(db: None) -> dict[str, User]:
    snapshot.forget()
    return factories.cast()


@pytest.fixture
def researcher(people: dict[str, User]) -> Api:
    return api(people["researcher"])


@pytest.fixture
def spec() -> Callable[..., dict[str, Any]]:
    """A body that POST /jobs/ takes, with changes."""

    def make(**values: Any) -> dict[str, Any]:
        return {
            "project": "vision",
            "name": "train",
            "asks": [{"form": "container", "memory_mib": 1024}],
            "command": ["simulate", "--seconds", "60"],
            "simulated": True,
        } | values

    return make


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """One turn of the scheduler: place, tell drivers, look. Make-believe machines start jobs at once."""
    monkeypatch.setattr(driver("simulated"), "world", World(start_delay_s=(0.0, 0.0)))

    def run() -> None:
        placing.place_queued()
        commands.run_due()
        observing.observe_all()

    return run


@pytest.fixture
def running(people: dict[str, User], turn: Callable[[], None]) -> Job:
    """A job of `researcher` that holds a card of n1."""
    factories.node("n1", cards=2, memory_mib=16_000)
    job = factories.job(people["researcher"], command=["simulate", "--seconds", "3600"])
    turn()
    return Job.objects.get(pk=job.pk)
