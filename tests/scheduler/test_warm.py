"""Which nodes likely hold a job's data is learnt from the ledger and followed; it steers the next job with that data."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.clock import database_now
from ledger.models import Allocation, Job, Node
from scheduler import placing, snapshot, warm
from scheduler.models import Decision
from scheduler.warm import KEPT_A_NODE, NODES_TOLD, Warm
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
CARD = [{"form": "container", "memory_mib": 0}]


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    flow.world(3, cards=2)
    snapshot.forget()


def worked(*paths: str, **values: Any) -> Job:
    """A job with this data that runs."""
    job = flow.long_job(asks=CARD, data_paths=list(paths), **values)
    flow.start(job)
    return job


def node_of(job: Job) -> Node:
    return Allocation.objects.filter(attempt__job=job).latest("pk").node


def told(*paths: str, image: str = "") -> set[int]:
    return set(warm.warm_nodes([(list(paths), image)])[0])


def test_the_next_job_with_the_data_goes_where_it_is_and_its_decision_says_so() -> None:
    first = worked("/data/a")
    flow.finish(first)
    second, third = (flow.long_job(asks=CARD, data_paths=["/data/a/"]) for _ in range(2))
    other = flow.long_job(asks=CARD)
    placing.place_queued()
    assert node_of(second) == node_of(third) == node_of(first)
    decision = Decision.objects.get(job=second, attempt__isnull=False)
    assert decision.warm == {"policy": "warm-data/1", "nodes": [node_of(first).hostname], "gave_up": 0.0}
    assert Decision.objects.get(job=other, attempt__isnull=False).warm is None


def test_what_runs_counts_what_never_began_does_not() -> None:
    assert told("/data/a") == set()
    job = flow.long_job(asks=CARD, data_paths=["/data/a"])
    placing.place_queued()
    assert told("/data/a") == set()
    flow.start(job)
    assert told("/data/a") == {node_of(job).pk}
    assert told("/data/b") == set()


def test_the_nodes_that_hold_most_of_the_data_are_told_an_image_counts_like_a_path() -> None:
    one = worked("/data/a", image="team/train:1")
    Node.objects.filter(pk=node_of(one).pk).update(state="offline")
    other = worked("/data/a", "/data/b")
    here, there = node_of(one).pk, node_of(other).pk
    assert here != there
    assert told("/data/a") == {here, there}
    assert told("/data/a", "/data/b") == {there}
    assert told("/data/a", image="team/train:1") == {here}
    assert told("/data/x", image="team/train:1") == {here}
    assert warm.warm_nodes([([], "team/train:1")]) == [frozenset()]


def test_what_is_older_than_a_week_is_forgotten() -> None:
    job = worked("/data/a", walltime_s=60)
    assert told("/data/a") == {node_of(job).pk}
    later = database_now() + dt.timedelta(days=7, minutes=2)
    with mock.patch("scheduler.warm.database_now", return_value=later):
        assert told("/data/a") == set()
        snapshot.forget()
        assert told("/data/a") == set()


def test_jobs_without_data_ask_nothing_of_it() -> None:
    flow.long_job(asks=CARD)
    with CaptureQueriesContext(connection) as seen:
        assert [job.view.warm for job in snapshot.queued_jobs()] == [frozenset()]
    assert len(seen) == 1


def test_what_is_kept_is_bounded() -> None:
    kept = Warm(now=1_000.0)
    for number in range(KEPT_A_NODE + 3):
        kept.take(1, f"/{number}", 1_000.0 + number)
    assert len(kept.used[1]) == KEPT_A_NODE
    assert "/0" not in kept.nodes_of
    for node_id in range(NODES_TOLD + 5):
        kept.take(node_id, "/all", 1_000.0 + node_id)
    found = kept.look(["/all"])
    assert len(found) == NODES_TOLD
    assert 0 not in found
    assert NODES_TOLD + 4 in found
