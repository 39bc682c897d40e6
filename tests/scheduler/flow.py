"""Small tools for tests that drive jobs through placing, the outbox and the drivers without waiting for clocks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.models import F

from ledger.clock import database_now
from ledger.models import Allocation, Attempt, Job
from ledger.vocabulary import END_JOB_STATES, DriverName, ProjectRole
from scheduler import commands, observing, placing
from scheduler.drivers import registry
from scheduler.drivers.base import Driver
from scheduler.models import Command, SimulatedMember
from tests import factories


def world(nodes: int = 1, **values: Any) -> None:
    """The project `vision` with its researcher, and simulated nodes n1, n2 and so on."""
    factories.project("vision", researcher=ProjectRole.MEMBER)
    for number in range(1, nodes + 1):
        factories.node(f"n{number}", **values)


@contextmanager
def simulated_by(driver: Driver) -> Iterator[Driver]:
    """Simulated work goes to this driver object."""
    before = registry.FACTORIES[DriverName.SIMULATED]
    registry.FACTORIES[DriverName.SIMULATED] = lambda: driver
    registry.driver.cache_clear()
    try:
        yield driver
    finally:
        registry.FACTORIES[DriverName.SIMULATED] = before
        registry.driver.cache_clear()


def make_due() -> None:
    """Time passes for the outbox: every back-off and lease is over."""
    Command.objects.update(due_at=database_now())


def grow_old(seconds: float = 60.0) -> None:
    """Time passes for attempts, members and jobs."""
    back = dt.timedelta(seconds=seconds)
    Attempt.objects.update(opened_at=F("opened_at") - back)
    Job.objects.filter(started_at__isnull=False).update(started_at=F("started_at") - back)


def run_on() -> None:
    """What runs has run its time."""
    SimulatedMember.objects.update(runs_at=database_now(), ends_at=database_now())


def start(*jobs: Job) -> None:
    """Place what waits, start it and see it run."""
    placing.place_queued()
    make_due()
    commands.run_due()
    SimulatedMember.objects.update(runs_at=database_now())
    observing.observe_all()
    for job in jobs:
        job.refresh_from_db()


def turn() -> None:
    """One round of every task, with all waiting times over."""
    placing.place_queued()
    make_due()
    commands.run_due()
    observing.observe_all()


def finish(*jobs: Job, turns: int = 60) -> None:
    """Rounds until these jobs have ended."""
    for _ in range(turns):
        turn()
        run_on()
        for job in jobs:
            job.refresh_from_db()
        if all(job.state in END_JOB_STATES for job in jobs):
            return
    raise AssertionError([job.state for job in jobs])


def long_job(**values: Any) -> Job:
    return factories.job(**{"command": ["simulate", "--seconds", "3600"]} | values)


def attempt_of(job: Job) -> Attempt:
    return Attempt.objects.filter(job=job).latest("n")


def open_allocations(job: Job) -> list[Allocation]:
    return list(Allocation.objects.filter(attempt__job=job, period__upper_inf=True).order_by("rank"))


def quota_used(project_id: int, resource: str) -> int:
    """What the open allocations of a project hold of a resource now: derived, never a counter."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_quota_used(%s, %s)", [project_id, resource])
        return int(cursor.fetchone()[0])
