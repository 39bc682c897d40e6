"""Work is stopped for jobs that are owed its cards: through the ordinary end, told to both sides, and never in a loop."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest
from django.db.models import F

from ledger.clock import database_now
from ledger.models import Attempt, AuditEvent, Job, MemberLimit, Project, QuotaGrant
from ledger.vocabulary import JobState, Outcome, ProjectRole, Resource
from scheduler import commands, placing, preempt_preview, preempting, snapshot, standings, whatif
from scheduler.ending import end_attempt
from scheduler.models import Command, Decision, Preemption, PreemptionVictim
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db(transaction=True)
CARD = {"form": "container", "memory_mib": 0}


@pytest.fixture(autouse=True)
def quick(settings: Any) -> None:
    settings.PREEMPT_MIN_RUN_S, settings.PREEMPT_GRACE_S, settings.PREEMPT_KEPT_S = 30, 20, 300


def _two_halves(nodes: int = 2, cards: int = 4) -> tuple[Project, Project]:
    """Two projects with half of the pool guaranteed to each; either may borrow all of it."""
    flow.world(nodes=nodes, cards=cards)
    ours, theirs = Project.objects.get(slug="vision"), factories.project("audio", researcher=ProjectRole.MEMBER)
    for project in (ours, theirs):
        grant = factories.grant(project, Resource.CARD_MILLI, 1000 * nodes * cards)
        grant.guaranteed = 500 * nodes * cards
        grant.save(update_fields=["guaranteed"])
    return ours, theirs


def _fill(count: int, **values: Any) -> list[Job]:
    jobs = [flow.long_job(**{"project": "audio", "asks": [CARD], **values}) for _ in range(count)]
    flow.start(*jobs)
    assert {job.state for job in jobs} == {JobState.RUNNING}
    return jobs


def _states(jobs: list[Job]) -> list[str]:
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk").values_list("state", flat=True))


def _held(project: Project) -> int:
    return flow.quota_used(project.pk, Resource.CARD_MILLI)


def test_who_comes_back_has_its_half_with_the_fewest_stopped() -> None:
    ours, theirs = _two_halves()
    filling = _fill(8)
    flow.grow_old()
    back = [flow.long_job(asks=[{**CARD, "cards_per_node": 2}]) for _ in range(3)]
    assert placing.place_queued()["stopped"] == 4  # for the two that the guarantee covers
    assert _states(filling).count(JobState.STOPPING) == 4
    flow.turn()
    flow.start(*back)
    assert [job.state for job in back] == [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED]
    assert (_held(ours), _held(theirs)) == (4000, 4000)
    assert sorted(_states(filling)) == [JobState.QUEUED] * 4 + [JobState.RUNNING] * 4
    assert Attempt.objects.filter(outcome=Outcome.PREEMPTED).count() == 4
    flow.grow_old(3600)
    flow.turn()  # nothing is borrowed any more: nobody else goes
    assert Attempt.objects.filter(outcome=Outcome.PREEMPTED).count() == 4


def test_the_stop_is_an_ordinary_one_and_both_sides_are_told() -> None:
    _two_halves(nodes=1)
    filling = _fill(4, checkpoint="SIGUSR1")
    flow.grow_old()
    job = flow.long_job(asks=[CARD])
    result = placing.place_queued()
    assert result["stopped"] == 1
    [row] = Preemption.objects.all()
    assert (row.job_id, row.cause, row.rule, row.grace_s) == (job.pk, "guarantee", "fewest-victims/2", 20)
    assert row.inputs["guaranteed"] == 2000
    assert row.inputs["searched_wholly"]
    assert row.kept_until - row.made_at == dt.timedelta(seconds=320)
    victim = PreemptionVictim.objects.select_related("attempt__job").get()
    assert victim.borrowed
    assert victim.ran_s >= 60
    stopped = victim.attempt.job
    assert stopped in filling
    assert "guaranteed" in stopped.message
    assert "vision" not in stopped.message  # its people need not know whose
    command = Command.objects.get(attempt=victim.attempt, verb="stop")
    assert command.grace_s == 20
    verbs = AuditEvent.objects.filter(verb__in=["job.claimed", "job.stopping"]).order_by("pk")
    assert [(event.verb, event.target_id) for event in verbs] == [
        ("job.claimed", str(job.pk)),
        ("job.stopping", str(stopped.pk)),
    ]
    assert verbs[0].after["stops"] == [victim.attempt_id]
    placing.place_queued()  # the next round tells the waiting job what is kept for it
    kept = Decision.objects.get(job=job, attempt=None).kept
    assert (kept["nodes"], kept["awaits"]) == (["n1"], [stopped.pk])


def test_nobody_is_stopped_before_its_time_nor_twice_for_one_job() -> None:
    _two_halves(nodes=1)
    _fill(4)
    flow.long_job(asks=[CARD])
    assert placing.place_queued()["stopped"] == 0
    flow.grow_old()
    assert [placing.place_queued()["stopped"] for _ in range(3)] == [1, 0, 0]


@pytest.mark.parametrize(("most", "safe_s"), [(14_400, 60), (45, 45), (0, 30)])
def test_a_stopped_job_is_tried_again_and_each_time_left_alone_for_twice_as_long(
    most: int, safe_s: int, settings: Any
) -> None:
    """But never for longer than an owner is to wait for its cards."""
    settings.PREEMPT_MOST_RUN_S = most
    _two_halves(nodes=1)
    _fill(4)
    flow.grow_old()
    mine = flow.long_job(asks=[CARD])
    flow.turn()
    flow.start(mine)
    again = Job.objects.get(attempts__outcome=Outcome.PREEMPTED)
    assert again.state == JobState.QUEUED
    flow.finish(mine)
    flow.start(again)
    assert again.state == JobState.RUNNING
    for ran, safe in ((safe_s - 2, True), (safe_s + 1, False)):
        Job.objects.filter(pk=again.pk).update(started_at=database_now() - dt.timedelta(seconds=ran))
        known = standings.tenants([again.project_id], young=True)
        [tenant] = [one for one in known if one.job_id == again.pk]
        assert (tenant.safe_until > database_now().timestamp()) is safe


def test_freed_cards_are_kept_for_the_gang_for_a_limited_time(settings: Any) -> None:
    """What others want meanwhile waits; once the time is over they come."""
    _two_halves(nodes=2)
    _fill(8)
    flow.grow_old()
    gang = flow.long_job(asks=[{**CARD, "cards_per_node": 2, "nodes": 2}])
    placing.place_queued()
    row = Preemption.objects.get()
    assert len(row.nodes) == 2
    greedy = [flow.long_job(asks=[CARD], project="audio", priority=5) for _ in range(4)]
    first, *_rest = Command.objects.filter(verb="stop").order_by("pk")
    Command.objects.filter(verb="stop").exclude(pk=first.pk).update(due_at=database_now() + dt.timedelta(hours=1))
    Command.objects.filter(pk=first.pk).update(due_at=database_now())
    commands.run_due()  # one card of the gang's four is free
    placing.place_queued()
    assert set(_states([gang, *greedy])) == {JobState.QUEUED}
    Preemption.objects.update(made_at=F("made_at") - dt.timedelta(hours=1), kept_until=database_now())
    placing.place_queued()
    assert _states(greedy).count(JobState.STARTING) == 1


def test_the_gang_starts_once_all_is_free() -> None:
    _two_halves(nodes=2)
    _fill(8)
    flow.grow_old()
    gang = flow.long_job(asks=[{**CARD, "cards_per_node": 2, "nodes": 2}])
    placing.place_queued()
    greedy = [flow.long_job(asks=[CARD], project="audio", priority=5) for _ in range(4)]
    flow.turn()
    flow.start(gang)
    assert gang.state == JobState.RUNNING
    assert set(_states(greedy)) == {JobState.QUEUED}


def test_a_scheduler_that_dies_between_stop_and_start_leaves_nothing_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    _two_halves(nodes=1)
    filling = _fill(4)
    flow.grow_old()
    job = flow.long_job(asks=[CARD])
    with monkeypatch.context() as patch:
        patch.setattr("scheduler.preempting.close_inside", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            placing.place_queued()
    assert not Preemption.objects.exists()
    assert _states(filling) == [JobState.RUNNING] * 4
    placing.place_queued()
    snapshot.forget()  # another process goes on
    flow.turn()
    flow.start(job)
    assert job.state == JobState.RUNNING
    assert Attempt.objects.filter(outcome=Outcome.PREEMPTED).count() == 1


def test_a_second_scheduler_with_the_same_choice_stops_nobody() -> None:
    _two_halves(nodes=1)
    _fill(4)
    flow.grow_old()
    job = flow.long_job(asks=[CARD])
    [choice], *_ = preempt_preview.choices_now(job)
    proposal, tenants = choice.proposal, choice.tenants
    assert not Preemption.objects.exists()
    done = [preempting.make_preemption(proposal=proposal, tenants=tenants, inputs={}) for _ in range(2)]
    assert done == [True, False]
    assert PreemptionVictim.objects.count() == 1


def test_a_victim_that_ends_by_itself_meanwhile_saves_the_others() -> None:
    _two_halves(nodes=1)
    _fill(4)
    flow.grow_old()
    [choice], *_ = preempt_preview.choices_now(flow.long_job(asks=[{**CARD, "cards_per_node": 2}]))
    proposal, tenants = choice.proposal, choice.tenants
    end_attempt(attempt_id=proposal.victims[0], outcome=Outcome.SUCCEEDED)
    assert not preempting.make_preemption(proposal=proposal, tenants=tenants, inputs={})
    assert Attempt.objects.filter(outcome=Outcome.PREEMPTED).count() == 0


def test_inference_has_training_stopped_that_may_be_and_never_the_reverse() -> None:
    flow.world(nodes=1)
    firm = [flow.long_job(asks=[CARD], kind="training") for _ in range(2)]
    loose = [flow.long_job(asks=[CARD], kind="training", preemptible=True) for _ in range(2)]
    flow.start(*firm, *loose)
    flow.grow_old()
    serving = [flow.long_job(asks=[CARD], kind="inference") for _ in range(3)]
    for _ in range(3):
        flow.turn()
    flow.start(*serving)
    assert _states(serving).count(JobState.RUNNING) == 2
    assert _states(firm) == [JobState.RUNNING] * 2
    assert _states(loose) == [JobState.QUEUED] * 2
    assert {row.cause for row in Preemption.objects.all()} == {"tier"}
    flow.grow_old(3600)
    assert placing.place_queued()["stopped"] == 0


def test_a_guaranteed_owner_gets_its_half_back_from_inference_too_but_from_training_first() -> None:
    ours, theirs = _two_halves()
    serving = _fill(7, kind="inference")
    training = _fill(1, kind="training")
    flow.grow_old()
    mine = [flow.long_job(asks=[CARD], kind="training") for _ in range(4)]
    for _ in range(3):
        flow.turn()
    flow.start(*mine)
    assert (_held(ours), _held(theirs)) == (4000, 4000)
    assert _states(training) == [JobState.QUEUED]
    assert sorted(_states(serving)) == [JobState.QUEUED] * 3 + [JobState.RUNNING] * 4
    flow.grow_old(36_000)
    flow.long_job(asks=[CARD], kind="training")
    assert placing.place_queued()["stopped"] == 0  # what serves now is within the guarantee


def test_inference_that_no_borrowed_card_helps_still_comes_before_work_that_may_be_stopped() -> None:
    _two_halves(nodes=1)
    _fill(2, kind="training")
    own = _fill(2, kind="training", project="vision", preemptible=True)
    flow.grow_old()
    grant = Project.objects.get(slug="vision").quota_grants.get()
    grant.guaranteed = 3000
    grant.save(update_fields=["guaranteed"])
    flow.long_job(asks=[CARD], kind="inference")  # within our guarantee, and nothing is borrowed
    assert placing.place_queued()["stopped"] == 1
    assert Preemption.objects.get().cause == "tier"
    assert _states(own).count(JobState.STOPPING) == 1


@pytest.mark.parametrize(("large", "stopped"), [(False, 0), (True, 1)])
def test_a_share_counts_for_what_the_book_will_count_on_the_card_where_it_can_be(large: bool, stopped: int) -> None:
    """A quarter of a large card is a whole small one, and our guarantee is half a card."""
    flow.world(nodes=1, cards=2)
    factories.node("large", cards=2, memory_mib=64_000)
    other = factories.project("audio", researcher=ProjectRole.MEMBER)
    grant = factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 8000)
    grant.guaranteed = 500
    grant.save(update_fields=["guaranteed"])
    flow.start(*(flow.long_job(asks=[CARD], project=other.slug) for _ in range(4)))
    flow.grow_old()
    if not large:  # what is on the large cards has only just begun
        Job.objects.filter(attempts__allocations__node__hostname="large").update(started_at=database_now())
    flow.long_job(asks=[{**CARD, "memory_mib": 16_000}])
    assert placing.place_queued()["stopped"] == stopped
    for row in Preemption.objects.all():
        assert (row.inputs["takes"], row.inputs["guaranteed"]) == (250, 500)


def test_a_small_machine_is_within_a_guarantee_that_the_largest_is_not() -> None:
    flow.world(nodes=1, cards=2)
    factories.node("large", cards=4)
    other = factories.project("audio", researcher=ProjectRole.MEMBER)
    grant = factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 8000)
    grant.guaranteed = 2000
    grant.save(update_fields=["guaranteed"])
    flow.start(*(flow.long_job(asks=[CARD], project=other.slug) for _ in range(6)))
    flow.grow_old()
    mine = flow.long_job(asks=[{"form": "whole"}])
    assert placing.place_queued()["stopped"] == 2
    flow.turn()
    flow.start(mine)
    assert [row.node.hostname for row in flow.open_allocations(mine)] == ["n1"]


def test_nobody_is_stopped_for_a_job_that_no_limit_would_let_start() -> None:
    """Each alone has room in what is left; all together have not."""
    flow.world(nodes=1)
    other = factories.project("audio", researcher=ProjectRole.MEMBER)
    loose = [flow.long_job(asks=[CARD], kind="training", preemptible=True, project=other.slug) for _ in range(4)]
    flow.start(*loose)
    flow.grow_old()
    factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 1000)
    for n in range(4):
        flow.long_job(asks=[{**CARD, "memory_mib": 0}], kind="inference", name=f"serves {n}", priority=n)
    for _ in range(3):
        placing.place_queued()
    assert Preemption.objects.count() == 1
    assert _states(loose).count(JobState.STOPPING) == 1


def test_one_persons_limit_does_not_hide_the_jobs_of_others() -> None:
    ours, _ = _two_halves(nodes=2, cards=4)
    _fill(8)
    flow.grow_old()
    first = factories.user("researcher")
    MemberLimit.objects.create(
        project=ours, user=first, resource=Resource.CARD_MILLI, amount=1000, reason="a test", by=first,
        since=database_now(),
    )  # fmt: skip
    mine, above, theirs = (flow.long_job(asks=[CARD]) for _ in range(3))
    Job.objects.filter(pk=theirs.pk).update(by=factories.user("other"))
    placing.place_queued()
    assert sorted(Preemption.objects.values_list("job_id", flat=True)) == [mine.pk, theirs.pk], above.pk


def test_who_others_were_stopped_for_gets_what_they_were_stopped_for_and_no_more() -> None:
    """Its first wish fits as well once they are gone, and is above its guarantee."""
    ours, theirs = _two_halves(nodes=1, cards=2)
    QuotaGrant.objects.filter(project=theirs).update(guaranteed=0)
    _fill(1, asks=[{**CARD, "cards_per_node": 2}])
    flow.grow_old()
    mine = flow.long_job(asks=[{"form": "whole", "cards_per_node": 0}, CARD])
    placing.place_queued()
    assert Preemption.objects.get().ask_index == 1
    flow.turn()
    flow.start(mine)
    assert (mine.state, _held(ours)) == (JobState.RUNNING, 1000)


def test_what_is_kept_of_the_quota_is_not_lost_to_another_job_of_the_project() -> None:
    ours, theirs = _two_halves(nodes=1, cards=2)
    QuotaGrant.objects.filter(project=theirs).update(guaranteed=0)
    QuotaGrant.objects.filter(project=ours).update(guaranteed=2000, amount=2000)
    _fill(1, asks=[{**CARD, "cards_per_node": 2}])
    flow.grow_old()
    mine = flow.long_job(asks=[{**CARD, "cards_per_node": 2}])
    assert placing.place_queued()["stopped"] == 1
    factories.node("n9", cards=1)
    later = flow.long_job(asks=[CARD])
    assert whatif.outlook(later).by_ask == ({"quota": 2},)
    placing.place_queued()
    assert Decision.objects.get(job=later, attempt=None).reasons == [{"quota": 2}]
    flow.turn()
    flow.start(mine)
    assert (mine.state, _held(ours)) == (JobState.RUNNING, 2000)


def test_a_stop_that_hangs_does_not_stand_in_the_way_of_others(settings: Any) -> None:
    flow.world(nodes=1)
    loose = [flow.long_job(asks=[CARD], kind="training", preemptible=True) for _ in range(4)]
    flow.start(*loose)
    flow.grow_old()
    end_attempt(attempt_id=_attempt(loose[0]).pk, outcome=Outcome.FAILED, message="test", grace_s=0)
    flow.long_job(asks=[CARD], kind="inference")
    assert placing.place_queued()["stopped"] == 0  # what is being stopped is enough
    settings.PREEMPT_GRACE_S, settings.PREEMPT_KEPT_S = 0, 1
    time.sleep(1.1)  # it has been for longer than a stop takes
    assert placing.place_queued()["stopped"] == 1


def _attempt(job: Job) -> Attempt:
    return Attempt.objects.get(job=job)


def test_nothing_is_ever_stopped_where_that_is_switched_off(settings: Any) -> None:
    settings.PREEMPT_MOST_VICTIMS = 0
    _two_halves(nodes=1)
    _fill(4)
    flow.grow_old()
    flow.long_job(asks=[CARD])
    assert placing.place_queued()["stopped"] == 0
