"""Batches are committed while the next is decided: what goes wrong in either stops both, and loses nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError

from ledger import opening
from ledger.models import Job
from ledger.vocabulary import JobState
from scheduler import commit, placing, snapshot
from scheduler.commit import commit_as_decided
from scheduler.engine.plan import plan
from scheduler.engine.types import Placement, Snapshot
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
PATIENCE_S = 20.0


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Three that find room, each a batch."""
    monkeypatch.setattr(commit, "BATCH", 1)
    flow.world(nodes=3)
    return [flow.long_job(asks=[{"form": "whole"}]) for _ in range(3)]


def _planned() -> tuple[Snapshot, tuple[Placement, ...]]:
    snap = snapshot.read(snapshot.queued_jobs())
    return snap, plan(snap).placements


def _states(jobs: list[Job]) -> list[str]:
    return [Job.objects.get(pk=job.pk).state for job in jobs]


def _deciding() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("decide")]


def test_a_batch_is_decided_while_the_one_before_it_is_committed(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    snap, placements = _planned()
    decided = [threading.Event() for _ in placements]
    here, elsewhere = threading.current_thread(), set[threading.Thread]()
    committed: list[int] = []
    open_attempts = opening.open_attempts

    def decisions() -> Iterator[Placement]:
        for event, placement in zip(decided, placements, strict=True):
            elsewhere.add(threading.current_thread())
            event.set()
            yield placement

    def while_committing(*args: Any, **values: Any) -> Any:
        if len(committed) < 2:  # in the transaction of the first, the second is decided; and so on
            assert decided[len(committed) + 1].wait(PATIENCE_S)
        committed.append(len(committed))
        return open_attempts(*args, **values)

    monkeypatch.setattr(opening, "open_attempts", while_committing)
    assert commit_as_decided(snap, decisions()).placed == 3
    assert len(elsewhere) == 1
    assert here not in elsewhere
    assert _states(jobs) == [JobState.STARTING] * 3
    assert _deciding() == []


def test_what_was_decided_before_an_error_is_written(jobs: list[Job]) -> None:
    snap, placements = _planned()

    def decisions() -> Iterator[Placement]:
        yield from placements[:2]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        commit_as_decided(snap, decisions())
    assert sorted(_states(jobs)) == [JobState.QUEUED, JobState.STARTING, JobState.STARTING]
    assert _deciding() == []


def test_an_error_of_the_database_ends_the_deciding(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    snap, placements = _planned()
    open_attempts = opening.open_attempts
    calls: list[int] = []

    def second_fails(*args: Any, **values: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise OperationalError("the server went away")
        return open_attempts(*args, **values)

    monkeypatch.setattr(opening, "open_attempts", second_fails)
    with pytest.raises(OperationalError):
        commit_as_decided(snap, iter(placements))
    assert len(calls) == 2
    first, *others = placements
    assert Job.objects.get(pk=first.job_id).state == JobState.STARTING
    assert {Job.objects.get(pk=one.job_id).state for one in others} == {JobState.QUEUED}
    assert _deciding() == []
    monkeypatch.undo()
    assert placing.place_queued()["placed"] == 2  # the next round takes them up


def test_a_round_is_not_collected_and_leaves_the_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def look(**_: Any) -> list[Any]:
        seen.append(gc.isenabled())
        raise ZeroDivisionError

    monkeypatch.setattr(snapshot, "queued_jobs", look)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        placing.place_queued()
    assert seen == [False]
    assert gc.isenabled()
