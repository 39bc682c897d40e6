"""Quotas at commit: what is counted before the database is asked again is what the database counts."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.models import Project
from ledger.vocabulary import Refusal, Resource
from scheduler import queue, quota, snapshot
from scheduler.commit import _Work, commit_plan
from scheduler.engine.plan import plan
from scheduler.engine.types import Plan, Snapshot
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
CARD = {"form": "container", "memory_mib": 0}
LIMIT = 10**9


def _plan() -> tuple[Snapshot, Plan]:
    snap = snapshot.read(snapshot.queued_jobs())
    return snap, plan(snap)


@pytest.mark.parametrize(
    "ask",
    [
        {"form": "container", "memory_mib": 333},
        {"form": "container", "memory_mib": 5_001, "cards_per_node": 3, "nodes": 2},
        {"form": "container", "cards_per_node": 0},
        {"form": "block", "cards_per_node": 2},
        {"form": "whole", "nodes": 2},
    ],
)
def test_a_placement_takes_what_it_is_said_to_take(ask: dict[str, object]) -> None:
    flow.world(nodes=3, block=2)
    project = Project.objects.get()
    for resource in Resource:
        factories.grant(project, resource, LIMIT)
    job = flow.long_job(asks=[ask], cpu_milli=700, host_memory_mib=900)
    snap, proposal = _plan()
    [order] = [_Work(snap).order(placement) for placement in proposal.placements]
    assert commit_plan(snap, proposal).placed == 1
    taken = Counter({Resource(limit.resource): LIMIT - limit.left for limit in quota.Limits([project.pk]).all})
    assert +taken == +Counter(quota.taken_by(order, job.walltime_s))
    assert taken[Resource.CPU_MILLI] >= 700 * len(order.members)


def test_a_quota_that_is_used_up_is_counted_and_not_tried_out_job_by_job() -> None:
    flow.world(nodes=4, cards=8)
    jobs = [flow.long_job(asks=[CARD]) for _ in range(30)]
    snap, proposal = _plan()
    factories.grant(Project.objects.get(), Resource.CARD_MILLI, 5_000)
    with CaptureQueriesContext(connection) as seen:
        done = commit_plan(snap, proposal)
    assert (done.placed, dict(done.refused)) == (5, {Refusal.QUOTA: 25})
    assert [len(flow.open_allocations(job)) for job in jobs] == [1] * 5 + [0] * 25
    tries = [query for query in seen if query["sql"].startswith('INSERT INTO "ledger_cardshare"')]
    assert len(tries) == 2  # all of them, and those that fit


def test_what_gives_way_leaves_its_quota_to_the_next() -> None:
    flow.world(nodes=2, cards=4)
    jobs = [flow.long_job(asks=[CARD]) for _ in range(4)]
    snap, proposal = _plan()
    factories.grant(Project.objects.get(), Resource.CARD_MILLI, 2_000)
    queue.cancel(job_id=jobs[0].pk, actor=jobs[0].by, reason="", via="test")
    done = commit_plan(snap, proposal)
    assert dict(done.refused) == {Refusal.LOST_RACE: 1, Refusal.QUOTA: 1}
    assert done.refused_jobs == {jobs[3].pk: Refusal.QUOTA}
    assert [len(flow.open_allocations(job)) for job in jobs] == [0, 1, 1, 0]


def test_a_project_over_a_lowered_quota_takes_nothing_more_of_it() -> None:
    flow.world(cards=4)
    flow.long_job(asks=[CARD], cpu_milli=100)
    snap, proposal = _plan()
    commit_plan(snap, proposal)
    factories.grant(Project.objects.get(), Resource.CARD_MILLI, 500)
    job = flow.long_job(asks=[{**CARD, "memory_mib": 1}])
    assert quota.over_quota(snapshot.queued_jobs()) == {job.pk: {(0, ""): Refusal.QUOTA}}
    snap, proposal = _plan()  # as if nothing were known of the quota
    assert commit_plan(snap, proposal).refused_jobs == {job.pk: Refusal.QUOTA}


def test_a_use_that_is_surely_small_enough_is_not_summed() -> None:
    flow.world(cards=4)
    flow.long_job(asks=[CARD])
    factories.grant(Project.objects.get(), Resource.CARD_MILLI, 4_000)
    snap, proposal = _plan()
    assert commit_plan(snap, proposal).placed == 1
    small, large = (flow.long_job(asks=[{**CARD, "cards_per_node": cards}]) for cards in (3, 4))
    with CaptureQueriesContext(connection) as seen:
        assert quota.over_quota([small]) == {}
    assert len(seen) == 1
    with CaptureQueriesContext(connection) as seen:
        assert quota.over_quota([small, large]) == {large.pk: {(0, ""): Refusal.QUOTA}}
    assert len(seen) == 2
