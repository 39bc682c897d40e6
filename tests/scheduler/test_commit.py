"""Committing a plan that the world has overtaken: the refused placement waits, the others of the batch are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import inventory
from ledger.inventory import SeenCard, SeenNode
from ledger.models import Allocation, CardSeat, CardShare, Job, Node, Project, Zone
from ledger.vocabulary import HoldKind, JobState, NodeState, ProjectRole, ProjectState, Refusal, Resource
from scheduler import commit, queue, snapshot
from scheduler.commit import commit_plan
from scheduler.engine.plan import plan
from scheduler.engine.types import Plan, Snapshot
from scheduler.models import Command, Decision
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
WHOLE = [{"form": "whole"}]


def _plan() -> tuple[Snapshot, Plan]:
    snap = snapshot.read(snapshot.queued_jobs())
    return snap, plan(snap)


def _node_of(proposal: Plan, job: Job) -> Node:
    placement = next(p for p in proposal.placements if p.job_id == job.pk)
    return Node.objects.get(pk=placement.members[0].node_id)


def _hold_node(job: Job, node: Node) -> None:
    inventory.place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", node=node)


def _hold_card(job: Job, node: Node) -> None:
    card = CardSeat.objects.filter(node=node).first().card
    inventory.place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", card=card)


def _take_down(job: Job, node: Node) -> None:
    Node.objects.filter(pk=node.pk).update(state=NodeState.OFFLINE)


def _add_card(job: Job, node: Node) -> None:
    seats = CardSeat.objects.filter(node=node).select_related("card")
    cards = [SeenCard(s.card.uuid, s.slot, s.card.model, s.card.memory_mib) for s in seats]
    inventory.sync_node(SeenNode(node.hostname, [*cards, SeenCard("new", 9, "A100", 16_000)]))


def _close_zone(job: Job, node: Node) -> None:
    Zone.objects.update(forms=["container"])


def _move_card(job: Job, node: Node) -> None:
    elsewhere = factories.node("elsewhere", cards=0)
    uuid = CardSeat.objects.filter(node=node).first().card.uuid
    inventory.sync_node(SeenNode(elsewhere.hostname, [SeenCard(uuid, 0, "A100", 16_000)]))


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (_hold_node, Refusal.NODE_HELD),
        (_hold_card, Refusal.CARD_HELD),
        (_take_down, Refusal.NODE_DOWN),
        (_add_card, Refusal.LOST_RACE),
        (_move_card, Refusal.LOST_RACE),
    ],
)
def test_a_stale_placement_is_refused_alone(meanwhile: Callable[[Job, Node], None], reason: Refusal) -> None:
    flow.world(nodes=2)
    jobs = [flow.long_job(asks=WHOLE), flow.long_job(asks=WHOLE)]
    snap, proposal = _plan()
    assert len(proposal.placements) == 2
    meanwhile(jobs[0], _node_of(proposal, jobs[0]))
    done = commit_plan(snap, proposal)
    assert (done.placed, dict(done.refused), done.refused_jobs) == (1, {reason: 1}, {jobs[0].pk: reason})
    assert [len(flow.open_allocations(job)) for job in jobs] == [0, 1]
    assert [Job.objects.get(pk=job.pk).state for job in jobs] == [JobState.QUEUED, JobState.STARTING]
    assert not Decision.objects.filter(job=jobs[0]).exists()
    assert not Command.objects.filter(attempt__job=jobs[0]).exists()


def test_a_job_cancelled_meanwhile_is_not_placed() -> None:
    flow.world()
    job = flow.long_job()
    snap, proposal = _plan()
    queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
    done = commit_plan(snap, proposal)
    assert (done.placed, dict(done.refused)) == (0, {Refusal.LOST_RACE: 1})
    assert not Allocation.objects.exists()


def test_a_plan_committed_twice_places_once() -> None:
    flow.world(nodes=2)
    flow.long_job()
    snap, proposal = _plan()
    assert commit_plan(snap, proposal).placed == 1
    assert commit_plan(snap, proposal).placed == 0
    assert Allocation.objects.count() == 1


def test_a_project_that_ended_meanwhile_takes_nothing() -> None:
    flow.world()
    job = flow.long_job()
    snap, proposal = _plan()
    Project.objects.update(state=ProjectState.ENDED)
    assert commit_plan(snap, proposal).refused_jobs == {job.pk: Refusal.PROJECT_ENDED}


def test_a_batch_takes_no_more_than_the_quota() -> None:
    flow.world(nodes=3)
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": 0}]) for _ in range(8)]
    factories.grant(Project.objects.get(), Resource.CARD_MILLI, 5000)
    snap, proposal = _plan()
    done = commit_plan(snap, proposal)
    assert (done.placed, dict(done.refused)) == (5, {Refusal.QUOTA: 3})
    assert sum(len(flow.open_allocations(job)) for job in jobs) == 5


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    flow.world(nodes=3)
    job = flow.long_job(asks=[{"form": "container", "nodes": 3}])
    snap, proposal = _plan()
    last = proposal.placements[0].members[-1].node_id
    Node.objects.filter(pk=last).update(state=NodeState.OFFLINE)
    assert commit_plan(snap, proposal).placed == 0
    assert not Allocation.objects.exists()
    assert not CardShare.objects.exists()
    job.refresh_from_db()
    assert job.state == JobState.QUEUED


def test_a_zone_that_gave_up_a_form_takes_none_of_it() -> None:
    flow.world()
    job = flow.long_job(asks=WHOLE)
    snap, proposal = _plan()
    _close_zone(job, Node.objects.get())
    assert commit_plan(snap, proposal).placed == 0
    assert flow.open_allocations(job) == []


@pytest.mark.parametrize("batch", [1, 3, 200])
def test_what_is_refused_does_not_depend_on_the_size_of_batches(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "BATCH", batch)
    flow.world(nodes=5)
    factories.project("speech", researcher=ProjectRole.MEMBER)
    whole = [flow.long_job(asks=WHOLE) for _ in range(4)]
    cards = [flow.long_job(project="speech", asks=[{"form": "container", "memory_mib": 0}]) for _ in range(4)]
    snap, proposal = _plan()
    assert len(proposal.placements) == 8
    factories.grant(Project.objects.get(slug="speech"), Resource.CARD_MILLI, 2500)
    queue.cancel(job_id=cards[0].pk, actor=cards[0].by, reason="", via="test")
    _hold_node(whole[1], _node_of(proposal, whole[1]))
    _take_down(whole[2], _node_of(proposal, whole[2]))
    done = commit_plan(snap, proposal)
    assert done.placed == 4
    assert dict(done.refused) == {
        Refusal.NODE_HELD: 1,
        Refusal.NODE_DOWN: 1,
        Refusal.QUOTA: 1,
        Refusal.LOST_RACE: 1,
    }
    assert done.refused_jobs == {
        whole[1].pk: Refusal.NODE_HELD,
        whole[2].pk: Refusal.NODE_DOWN,
        cards[3].pk: Refusal.QUOTA,
    }
    assert [len(flow.open_allocations(job)) for job in (*whole, *cards)] == [1, 0, 0, 1, 0, 1, 1, 0]


def test_more_placements_take_no_more_statements() -> None:
    flow.world(nodes=4)
    counts = []
    for jobs in (2, 12):
        for number in range(jobs):
            flow.long_job(asks=[{"form": "container", "memory_mib": 1000 + number}])
        snap, proposal = _plan()
        with CaptureQueriesContext(connection) as seen:
            assert commit_plan(snap, proposal).placed == jobs
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_many_nodes_that_are_down_cost_one_more_try() -> None:
    flow.world(nodes=6)
    jobs = [flow.long_job(asks=WHOLE) for _ in range(6)]
    snap, proposal = _plan()
    for job in jobs[:4]:
        _take_down(job, _node_of(proposal, job))
    with CaptureQueriesContext(connection) as seen:
        done = commit_plan(snap, proposal)
    assert (done.placed, done.refused_jobs) == (2, dict.fromkeys((job.pk for job in jobs[:4]), Refusal.NODE_DOWN))
    tries = [query for query in seen if query["sql"].startswith('INSERT INTO "ledger_allocation"')]
    assert len(tries) == 2


def test_two_that_are_too_much_for_a_node_are_told_apart() -> None:
    """Neither is refused alone: the first of them is placed."""
    flow.world(cpu_milli=3_000)
    jobs = [flow.long_job(cpu_milli=1_500) for _ in range(2)]
    snap, proposal = _plan()
    assert len(proposal.placements) == 2
    Node.objects.update(cpu_milli=2_000)
    assert commit_plan(snap, proposal).refused_jobs == {jobs[1].pk: Refusal.LOST_RACE}
    assert [len(flow.open_allocations(job)) for job in jobs] == [1, 0]
