"""People signed in to the pages, a small simulated fleet and the turns of the scheduler, run by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from ledger.models import Job, User
from scheduler import commands, observing, placing, snapshot
from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from tests import factories

ClientAs = Callable[[str], Client]


@pytest.fixture(autouse=True)
def cheap_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def people(db: None) -> dict[str, User]:
    snapshot.forget()
    return factories.cast()


@pytest.fixture
def client_as(people: dict[str, User]) -> ClientAs:
    """A browser in which this person of the cast is signed in. It raises what a view raises."""

    def make(name: str) -> Client:
        client = Client()
        client.force_login(people[name])
        return client

    return make


@pytest.fixture
def admin(client_as: ClientAs) -> Client:
    return client_as("admin")


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
def queued(people: dict[str, User], turn: Callable[[], None]) -> Job:
    """A job of `researcher` that no node of the fleet can take: it wants more cards than there are."""
    factories.node("n1", cards=2, memory_mib=16_000)
    job = factories.any_job(people["researcher"], name="too wide", asks=[{"form": "container", "cards_per_node": 4}])
    turn()
    return Job.objects.get(pk=job.pk)


@pytest.fixture
def running(people: dict[str, User], turn: Callable[[], None]) -> Job:
    """A job of `researcher` that holds 1 GiB of a card of n1."""
    factories.node("n1", cards=2, memory_mib=16_000)
    job = factories.job(people["researcher"], name="steady", command=["simulate", "--seconds", "3600"])
    turn()
    return Job.objects.get(pk=job.pk)
