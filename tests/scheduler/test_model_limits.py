"""Limits by card model: what one model has no room for goes to another, by another wish or by the same."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db.models import F

from ledger.clock import database_now
from ledger.models import Department, DepartmentCeiling, Job, Project
from ledger.vocabulary import JobState, ProjectRole, Refusal, Resource
from scheduler import placing, quota, snapshot, whatif
from scheduler.durations import Durations
from scheduler.models import Decision, Preemption
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db(transaction=True)
CARD = {"form": "container", "memory_mib": 0}
OTHER = {"A100": "H100", "H100": "A100"}


def _two_models(**values: Any) -> None:
    factories.project("vision", researcher=ProjectRole.MEMBER)
    for number, model in enumerate(OTHER, start=1):
        factories.node(f"n{number}", model=model, **{"cards": 1} | values)
    snapshot.forget()


def _ceiling(model: str, amount: int) -> None:
    DepartmentCeiling.objects.create(
        department=Project.objects.get(slug="vision").department,
        resource=Resource.CARD_MILLI,
        model=model,
        amount=amount,
        period=(database_now(), None),
        reason="a test",
        by=factories.user("researcher"),
    )


def _placed_on(job: Job) -> list[str]:
    """Models of the nodes that one round gives it."""
    placing.place_queued()
    names = {"n1": "A100", "n2": "H100"}
    return [names[one.node.hostname] for one in flow.open_allocations(job)]


@pytest.mark.parametrize("first", OTHER)
def test_the_second_wish_is_taken_where_the_first_is_above_a_limit(first: str) -> None:
    _two_models()
    _ceiling(first, 0)
    job = flow.long_job(asks=[{**CARD, "model": first}, {**CARD, "model": OTHER[first]}])
    found = whatif.outlook(Job.objects.get(pk=job.pk))
    assert (found.verdict, found.ask_index, found.by_ask[0]) == ("now", 1, {"ceiling": 2})
    assert _placed_on(job) == [OTHER[first]]


def test_a_wish_above_a_limit_says_so_while_the_other_waits_for_room() -> None:
    _two_models()
    flow.start(flow.long_job(asks=[{**CARD, "model": "H100"}]))
    _ceiling("A100", 0)
    job = flow.long_job(asks=[{**CARD, "model": "A100"}, {**CARD, "model": "H100"}])
    result = placing.place_queued()
    reasons = Decision.objects.get(job=job, attempt=None).reasons
    assert (result["refused"], reasons[0]) == ({}, {"ceiling": 2})
    assert "ceiling" not in reasons[1]
    assert [str(one) for one in reasons[0]] == list(whatif.outlook(Job.objects.get(pk=job.pk)).by_ask[0])


@pytest.mark.parametrize("by", ["ceiling", "grant"])
@pytest.mark.parametrize("model", OTHER)
def test_work_for_any_card_goes_to_the_model_that_has_room(by: str, model: str) -> None:
    _two_models()
    if by == "ceiling":
        _ceiling(model, 0)
    else:
        factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 0, model)
    assert _placed_on(flow.long_job(asks=[CARD])) == [OTHER[model]]


def test_a_card_of_any_model_waits_where_all_have_a_limit() -> None:
    _two_models()
    for model in OTHER:
        _ceiling(model, 0)
    job = flow.long_job(asks=[CARD])
    assert placing.place_queued()["refused"] == {}
    assert Decision.objects.get(job=job, attempt=None).reasons == [{"ceiling": 2}]


def test_a_part_of_a_card_counts_for_what_the_largest_card_makes_of_it() -> None:
    """A quarter of a card is above what is left of the one model, though a thousandth is not."""
    _two_models(memory_mib=1000)
    _ceiling("A100", 200)
    part = {"form": "container", "memory_mib": 250}
    snapshot.node_views()
    job = flow.long_job(asks=[{**part, "model": "A100"}, {**part, "model": "H100"}])
    assert quota.over_quota(snapshot.queued_jobs()) == {job.pk: {(0, ""): Refusal.CEILING}}
    assert _placed_on(job) == ["H100"]


def test_a_wish_that_takes_more_than_could_be_told_before_gives_way_to_the_next() -> None:
    """A whole machine has two cards, which the limit has no room for; it asks for one at least."""
    _two_models(cards=2)
    _ceiling("A100", 1000)
    whole = {"form": "whole", "cards_per_node": 1, "memory_mib": 0}
    job = flow.long_job(asks=[{**whole, "model": "A100"}, {**CARD, "model": "H100"}])
    assert _placed_on(job) == ["H100"]
    only = flow.long_job(asks=[{**whole, "model": "A100"}])
    assert (_placed_on(only), Decision.objects.get(job=only, attempt=None).reasons) == ([], [{"ceiling": 1}])


def test_a_slice_is_cut_from_the_model_that_has_room() -> None:
    factories.project("vision", researcher=ProjectRole.MEMBER)
    factories.node("n1", cards=1, model="NVIDIA A100-SXM4-80GB", memory_mib=81_920)
    factories.node("n2", cards=1, model="NVIDIA H100 80GB HBM3", memory_mib=81_559)
    snapshot.forget()
    job = flow.long_job(asks=[{"form": "container", "profile": "1g.10gb"}])
    _ceiling(job.asks[0]["model"], 0)
    placing.place_queued()
    job.refresh_from_db()
    assert job.state == JobState.STARTING


def _guarantees(vision: int, audio: int = 0) -> None:
    factories.project("audio", researcher=ProjectRole.MEMBER)
    Project.objects.filter(slug="audio").update(department=Department.objects.create(slug="x", title="X"))
    for slug, guaranteed in (("vision", vision), ("audio", audio)):
        grant = factories.grant(Project.objects.get(slug=slug), Resource.CARD_MILLI, 64_000)
        grant.guaranteed = guaranteed
        grant.save(update_fields=["guaranteed"])


def _fill(*models: str, **values: Any) -> list[Job]:
    filling = [flow.long_job(**{"project": "audio", "asks": [{**CARD, "model": one}], **values}) for one in models]
    flow.start(*filling)
    flow.grow_old()
    return filling


def test_nobody_is_stopped_for_cards_of_a_model_above_its_limit(settings: Any) -> None:
    settings.PREEMPT_MIN_RUN_S = 30
    _two_models()
    _guarantees(vision=1000)
    filling = _fill("A100", "H100")
    _ceiling("A100", 0)
    job = flow.long_job(asks=[{**CARD, "model": "A100"}, {**CARD, "model": "H100"}])
    placing.place_queued()
    made = Preemption.objects.get()
    assert (made.job_id, made.ask_index) == (job.pk, 1)
    assert list(made.victims.values_list("attempt__job", flat=True)) == [filling[1].pk]
    flow.turn()
    flow.start(job)
    assert job.state == JobState.RUNNING


def test_the_next_job_is_given_what_the_limit_of_a_model_leaves_it(settings: Any) -> None:
    """Each alone has room for a card of the first model, both together have not."""
    settings.PREEMPT_MIN_RUN_S = 30
    _two_models(cards=2)
    _guarantees(vision=2000)
    _fill("A100", "A100", "H100", "H100")
    _ceiling("A100", 1000)
    jobs = [flow.long_job(asks=[{**CARD, "model": "A100"}, {**CARD, "model": "H100"}]) for _ in range(2)]
    placing.place_queued()
    made = Preemption.objects.order_by("job").values_list("job", "ask_index")
    assert list(made) == [(jobs[0].pk, 0), (jobs[1].pk, 1)]


def test_a_wish_that_counts_later_does_not_hide_a_like_job_of_which_it_counts_now(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter is looked at first: its first wish is for what its own project holds, its second does not count
    yet."""
    settings.PREEMPT_MIN_RUN_S = 30
    monkeypatch.setattr(Durations, "expected", lambda self, like, limit: (float(limit), None))
    _two_models()
    _guarantees(vision=2000)
    _fill("H100", project="vision")
    _fill("A100")
    asks = [{**CARD, "model": "H100"}, {**CARD, "model": "A100", "after_s": 600}]
    old, young = (flow.long_job(asks=asks, walltime_s=walltime_s) for walltime_s in (90_000, 60))
    Job.objects.filter(pk=old.pk).update(submitted_at=F("submitted_at") - dt.timedelta(seconds=700))
    placing.place_queued()
    assert list(Preemption.objects.values_list("job_id", flat=True)) == [old.pk], young.pk
