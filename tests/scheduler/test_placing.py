"""Scheduling rounds: what is placed, what waits and why, and that nothing that can't be placed stops the others."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger import inventory
from ledger.models import Allocation, CardSeat, CardShare, Hold, Node, Project
from ledger.vocabulary import Form, HoldKind, JobState, ProjectRole, Refusal, Resource
from scheduler import placing, snapshot
from scheduler.models import Command, Decision, Preemption
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
CARD = {"form": "container", "memory_mib": 0}


def test_a_placement_has_its_decision_and_its_command() -> None:
    flow.world(nodes=2)
    job = flow.long_job()
    snapshot.forget()
    assert placing.place_queued() == {"placed": 1, "refused": {}, "looked_at": 1, "reloads": 2, "stopped": 0}
    job.refresh_from_db()
    decision, allocation = Decision.objects.get(job=job), Allocation.objects.get()
    assert (job.state, job.placed_at) == (JobState.STARTING, allocation.period.lower)
    assert (decision.attempt, decision.ask_index, decision.seed) == (flow.attempt_of(job), 0, 1)
    assert decision.rule
    assert allocation.node.hostname in [name for name, _ in decision.scores]
    assert Command.objects.get().allocation == allocation
    assert placing.place_queued()["looked_at"] == 0


def test_neighbours_are_stored_with_the_decision() -> None:
    flow.world()
    factories.project("speech", researcher=ProjectRole.MEMBER)
    flow.long_job(project="speech")
    placing.place_queued()
    job = flow.long_job()
    placing.place_queued()
    assert Decision.objects.get(job=job).neighbours == ["speech"]


def test_waiting_says_why_and_is_stamped_only_when_it_changes() -> None:
    flow.world(cards=1)
    flow.long_job(asks=[CARD])
    placing.place_queued()
    waiting, never = flow.long_job(asks=[CARD]), factories.any_job(asks=[{**CARD, "memory_mib": 999_999}])
    placing.place_queued()
    row = Decision.objects.get(job=waiting, attempt=None)
    assert Decision.objects.get(job=never).never
    assert (row.never, row.position, len(row.reasons)) == (False, 1, 1)
    placing.place_queued()
    assert Decision.objects.get(pk=row.pk).count == 1
    Decision.objects.update(at=row.at - dt.timedelta(minutes=5))
    placing.place_queued()
    assert Decision.objects.get(pk=row.pk).count == 2


def test_the_forms_never_share_a_node() -> None:
    flow.world(nodes=3, block=2)
    forms = [Form.CONTAINER, Form.BLOCK, Form.WHOLE]
    jobs = [flow.long_job(asks=[{"form": form, "cards_per_node": 2}]) for form in forms * 2]
    placing.place_queued()
    used: dict[int, set[str]] = {}
    for node, form in Allocation.objects.values_list("node", "form"):
        used.setdefault(node, set()).add(form)
    assert all(len(forms_) == 1 for forms_ in used.values())
    assert len(used) == 3
    placed = [job for job in jobs if flow.open_allocations(job)]
    assert {flow.open_allocations(job)[0].form for job in placed} == set(forms)


def test_a_whole_machine_is_given_with_all_its_cards() -> None:
    flow.world()
    job = flow.long_job(asks=[{"form": "whole"}])
    placing.place_queued()
    shares = CardShare.objects.filter(allocation__attempt__job=job)
    assert {s.card_id for s in shares} == set(CardSeat.objects.values_list("card_id", flat=True))
    assert all(s.memory == ((0, 16_000),) and s.compute == ((0, 1000),) for s in shares)


@pytest.mark.parametrize("hold", ["card", "node"])
def test_what_is_held_is_not_offered(hold: str) -> None:
    flow.world(cards=2)
    what = {"card": CardSeat.objects.first().card} if hold == "card" else {"node": Node.objects.get()}
    inventory.place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", **what)
    whole, container = flow.long_job(asks=[{"form": "whole"}]), flow.long_job(asks=[CARD])
    placing.place_queued()
    assert flow.open_allocations(whole) == []
    assert len(flow.open_allocations(container)) == (1 if hold == "card" else 0)
    hold_row = Hold.objects.get()
    inventory.end_hold(hold_id=hold_row.pk, reason="y", actor=None, via="test")
    placing.place_queued()
    assert len(flow.open_allocations(container)) == 1  # less work than the whole machine, so its turn is first


def test_a_job_over_its_quota_does_not_keep_the_next_from_the_card() -> None:
    flow.world(cards=1)
    factories.project("speech", researcher=ProjectRole.MEMBER)
    # 100 thousandths of a card: the plan's lower bound lets the job pass, the database does not
    factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 100)
    greedy = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}], priority=5)
    modest = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}], project="speech")
    placing.place_queued()
    assert flow.open_allocations(greedy) == []
    assert len(flow.open_allocations(modest)) == 1
    assert Decision.objects.get(job=greedy, attempt=None).reasons == [{Refusal.QUOTA: 1}]


def test_nobody_is_stopped_by_a_plan_that_the_database_refused(settings: Any) -> None:
    """On paper the greedy job has the free card, so that its project seems to borrow one and would lose its other job.
    The database refuses the greedy job: the project holds what it is guaranteed and no more."""
    settings.PREEMPT_MIN_RUN_S = 30
    flow.world(cards=2)
    speech = factories.project("speech", researcher=ProjectRole.MEMBER)
    for project, amount, guaranteed in ((Project.objects.get(slug="vision"), 2000, 2000), (speech, 1500, 1000)):
        grant = factories.grant(project, Resource.CARD_MILLI, amount)
        grant.guaranteed = guaranteed
        grant.save(update_fields=["guaranteed"])
    runs = flow.long_job(asks=[CARD], project="speech")
    flow.start(runs)
    flow.grow_old()
    # the plan's lower bound of its part of a card is within the quota, what the card counts for is not
    greedy = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}], project="speech", priority=5)
    flow.long_job(asks=[{**CARD, "cards_per_node": 2}])
    told = placing.place_queued()
    assert (told["stopped"], told["refused"]) == (0, {Refusal.QUOTA: 1})
    assert not Preemption.objects.exists()
    assert [len(flow.open_allocations(job)) for job in (runs, greedy)] == [1, 0]


def test_a_job_of_a_project_that_is_over_does_not_keep_the_next_from_the_card() -> None:
    flow.world(cards=1)
    factories.project("speech", researcher=ProjectRole.MEMBER)
    late = flow.long_job(asks=[CARD], priority=5)
    in_time = flow.long_job(asks=[CARD], project="speech")
    Project.objects.filter(slug="vision").update(starts_on=dt.date(2020, 1, 1), ends_on=dt.date(2020, 2, 2))
    placing.place_queued()
    assert flow.open_allocations(late) == []
    assert len(flow.open_allocations(in_time)) == 1
    assert Decision.objects.get(job=late, attempt=None).reasons == [{Refusal.PROJECT_ENDED: 1}]


def test_a_quota_that_is_used_up_is_named_and_freed_again() -> None:
    flow.world()
    factories.grant(Project.objects.get(), Resource.CARD_MILLI, 1000)
    first, second = flow.long_job(asks=[CARD]), flow.long_job(asks=[CARD])
    placing.place_queued()
    assert [len(flow.open_allocations(j)) for j in (first, second)] == [1, 0]
    assert Refusal.QUOTA in Decision.objects.get(job=second, attempt=None).reasons[0]
    assert flow.quota_used(Project.objects.get().pk, Resource.CARD_MILLI) == 1000
    flow.start(first)
    flow.finish(first)
    placing.place_queued()
    assert len(flow.open_allocations(second)) == 1


def test_the_queue_goes_by_priority_then_by_time() -> None:
    flow.world(cards=1)
    jobs = [flow.long_job(asks=[CARD], priority=p) for p in (0, 7, 7)]
    placing.place_queued()
    assert [len(flow.open_allocations(job)) for job in jobs] == [0, 1, 0]
    assert [job.pk for job in snapshot.queued_jobs()] == [jobs[2].pk, jobs[0].pk]


def test_real_jobs_wait_for_real_nodes() -> None:
    flow.world()
    job = flow.long_job(simulated=False)
    placing.place_queued()
    assert flow.open_allocations(job) == []
    factories.node("real", simulated=False, driver="local")
    placing.place_queued()
    assert [a.node.hostname for a in flow.open_allocations(job)] == ["real"]
