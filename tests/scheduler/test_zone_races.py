"""Zone plans against placements, other plans and themselves: real threads, real commits. No job lands in a zone that
its node has left, one of two admins wins, and nothing deadlocks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError

from ledger import invariants
from ledger.errors import Conflict, Refused
from ledger.models import Allocation, Hold, Node, NodeZone, User, Zone
from ledger.vocabulary import END_JOB_STATES, SiteRole
from scheduler import placing, queue, snapshot, zones
from scheduler.commit import Committed, commit_plan
from scheduler.engine.plan import plan
from scheduler.models import PlanState, ZoneMove, ZonePlan
from scheduler.zone_proposals import Proposal, propose_list
from tests import factories
from tests.scheduler import flow
from tests.scheduler.test_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin() -> User:
    return factories.user("admin", SiteRole.ADMIN)


def pair() -> tuple[Zone, Zone]:
    """Two zones that take all forms."""
    return factories.zone("a"), factories.zone("b")


def making(proposal: Proposal, admin: User, **values: Any) -> Callable[[], ZonePlan]:
    return lambda: zones.make_plan(proposal=proposal, reason="race", actor=admin, via="test", **values)


def _zones_fit() -> None:
    """Every allocation lies in one membership of its node, which is the zone that it names."""
    for allocation in Allocation.objects.all():
        around = NodeZone.objects.filter(node=allocation.node, period__overlap=allocation.period)
        assert [membership.zone_id for membership in around] == [allocation.zone_then_id]
    assert invariants.check() == []


def test_of_two_admins_at_once_exactly_one_wins(admin: User) -> None:
    first, second = pair()
    flow.world(nodes=8, in_zone=first)
    other = factories.user("admin2", SiteRole.ADMIN)
    for number in range(4):
        names = (f"n{2 * number + 1}", f"n{2 * number + 2}")
        proposals = [propose_list(hostnames=[name], to_zone=second) for name in names]
        override = {"override_reason": "a deadline"} if number else {}
        answers = at_once([making(proposals[0], admin, **override), making(proposals[1], other, **override)])
        assert sorted(type(answer) for answer in answers if isinstance(answer, Exception)) == [Conflict], answers
        assert ZonePlan.objects.count() == number + 1
    assert not ZonePlan.objects.exclude(state=PlanState.DONE).exists()


def test_a_job_placed_while_its_node_moves_is_in_the_zone_that_it_names(admin: User) -> None:
    home, away = pair()
    flow.world(in_zone=home)
    outcomes = set()
    for number in range(14):
        job = flow.long_job()
        snap = snapshot.read([job])
        proposal = snap, plan(snap)
        where = propose_list(hostnames=["n1"], to_zone=(away, home)[number % 2])
        answers = at_once([lambda p=proposal: commit_plan(*p), making(where, admin, override_reason="x")])
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        assert isinstance(answers[0], Committed)
        moved = ZonePlan.objects.latest("pk").state == PlanState.DONE
        assert answers[0].placed + moved == 1
        outcomes.add(moved)
        _zones_fit()
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        flow.turn()
        zones.advance_all()
        assert not ZonePlan.objects.filter(state=PlanState.RUNNING).exists()
    assert outcomes <= {True, False}


def test_two_of_every_task_move_each_node_once(admin: User) -> None:
    home, away = pair()
    flow.world(nodes=6, in_zone=home)
    jobs = [flow.long_job(asks=[{"form": "whole"}]) for _ in range(3)]
    placing.place_queued()
    zones.make_plan(
        proposal=propose_list(hostnames=[f"n{n}" for n in range(1, 7)], to_zone=away),
        reason="race",
        actor=admin,
        via="test",
    )
    for job in jobs:
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
    flow.turn()
    answers = at_once([zones.advance_all] * 4)
    assert sum(answer.get("moved", 0) for answer in answers) == 3
    assert NodeZone.objects.count() == 12
    assert ZonePlan.objects.get().state == PlanState.DONE
    assert not Hold.objects.filter(period__upper_inf=True).exists()


def _any_step(draw: random.Random, made: tuple[Zone, Zone], jobs: list[Any], admin: User) -> None:
    match draw.randrange(6):
        case 0 | 1:
            names = draw.sample([f"n{n}" for n in range(1, 7)], draw.randint(1, 4))
            making(propose_list(hostnames=names, to_zone=draw.choice(made)), admin, override_reason="x")()
        case 2:
            running = ZonePlan.objects.filter(state=PlanState.RUNNING).first()
            if running is not None:
                zones.cancel_plan(plan_id=running.pk, reason="x", actor=admin, via="test")
        case 3:
            placing.place_queued()
        case 4:
            queue.cancel(job_id=draw.choice(jobs).pk, actor=jobs[0].by, reason="", via="test")
        case _:
            zones.advance_all()


def test_everything_at_once_has_no_deadlock_and_leaves_clean_books(admin: User) -> None:
    made = pair()
    flow.world(nodes=6, cards=2, in_zone=made[0])
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": 0, "nodes": 1 + n % 3}]) for n in range(40)]
    found: list[Exception] = []

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(15):
            try:
                _any_step(draw, made, jobs, admin)
            except Refused:
                continue  # somebody else was first
            except DatabaseError as error:
                found.append(error)

    at_once([lambda n=n: work(n) for n in range(6)])
    assert [error for error in found if not isinstance(error, IntegrityError)] == []
    assert found == []
    _zones_fit()
    for job in jobs:
        job.refresh_from_db()
        if job.state not in END_JOB_STATES:
            queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
    for _ in range(10):
        flow.turn()
        zones.advance_all()
    assert not ZoneMove.objects.filter(state__in=["planned", "draining"]).exists()
    assert not Hold.objects.filter(period__upper_inf=True).exists()
    assert Node.objects.filter(zone_periods__period__upper_inf=True).count() == 6
    _zones_fit()
