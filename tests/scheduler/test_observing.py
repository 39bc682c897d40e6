"""Observing: what drivers see becomes the state of attempts, and silence is never taken for an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from django.db.models import F

from ledger.book import MAX_ATTEMPTS
from ledger.errors import Conflict, Refused
from ledger.models import Allocation, Attempt, Job
from ledger.vocabulary import AttemptState, JobState, Outcome
from scheduler import commands, observing, placing, queue
from scheduler.drivers.base import Observation, ReplyLost
from scheduler.drivers.simulated import SimulatedDriver, World
from scheduler.ending import end_attempt, note_unknown
from scheduler.models import SimulatedMember
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


class Silent(SimulatedDriver):
    """Answers starts, but no questions while `silent`."""

    silent = False

    def inspect(self, keys: Iterable[str]) -> dict[str, Observation]:
        if self.silent:
            raise ReplyLost("no route to host")
        return super().inspect(keys)


def _kill(job: Job, rank: int = 0) -> None:
    """The machine forgets a member, and the grace for that is over."""
    SimulatedMember.objects.filter(key=flow.open_allocations(job)[rank].key).delete()
    flow.grow_old()


@pytest.mark.parametrize(
    ("code", "state", "outcome"), [(0, JobState.SUCCEEDED, Outcome.SUCCEEDED), (3, JobState.FAILED, Outcome.FAILED)]
)
def test_a_job_ends_as_its_command_ends(code: int, state: JobState, outcome: Outcome) -> None:
    flow.world()
    job = factories.job(command=["simulate", "--seconds", "0", "--exit-code", str(code)])
    flow.finish(job)
    attempt = flow.attempt_of(job)
    assert (job.state, attempt.outcome, attempt.exit_code) == (state, outcome, code)
    assert job.started_at is not None
    assert job.started_at <= job.ended_at


def test_a_gang_succeeds_when_all_its_members_have() -> None:
    flow.world(nodes=3)
    job = flow.long_job(asks=[{"form": "container", "nodes": 3}])
    flow.start(job)
    SimulatedMember.objects.filter(key=flow.open_allocations(job)[0].key).update(ends_at=F("runs_at"))
    observing.observe_all()
    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    flow.finish(job)
    assert job.state == JobState.SUCCEEDED


def test_a_gang_runs_when_all_its_members_run() -> None:
    flow.world(nodes=2)
    job = flow.long_job(asks=[{"form": "container", "nodes": 2}])
    with flow.simulated_by(SimulatedDriver(World(start_delay_s=(3600, 3600)))):
        placing.place_queued()
        commands.run_due()
    first = flow.open_allocations(job)[0]
    SimulatedMember.objects.filter(key=first.key).update(runs_at=first.period.lower)
    observing.observe_all()
    job.refresh_from_db()
    assert (job.state, flow.attempt_of(job).state) == (JobState.STARTING, AttemptState.STARTING)
    SimulatedMember.objects.update(runs_at=first.period.lower)
    observing.observe_all()
    job.refresh_from_db()
    assert (job.state, flow.attempt_of(job).state) == (JobState.RUNNING, AttemptState.RUNNING)


@pytest.mark.parametrize("loss", ["failed", "forgotten"])
def test_losing_one_member_of_a_gang_closes_all(loss: str) -> None:
    flow.world(nodes=3)
    job = flow.long_job(asks=[{"form": "container", "nodes": 3}])
    flow.start(job)
    if loss == "failed":
        key = flow.open_allocations(job)[1].key
        SimulatedMember.objects.filter(key=key).update(ends_at=F("runs_at"), exit_code=9)
    else:
        _kill(job, rank=1)
    observing.observe_all()
    assert {a.state for a in flow.open_allocations(job)} == {"closing"}
    flow.make_due()
    commands.run_due()
    assert flow.open_allocations(job) == []
    assert not SimulatedMember.objects.filter(stopped_at=None, ends_at__gt=F("runs_at")).exists()
    job.refresh_from_db()
    assert job.state == (JobState.FAILED if loss == "failed" else JobState.QUEUED)


def test_a_lost_job_is_tried_again_three_times_in_all() -> None:
    flow.world()
    job = flow.long_job()
    fences = []
    for n in range(1, MAX_ATTEMPTS + 1):
        flow.start(job)
        assert (job.state, flow.attempt_of(job).n) == (JobState.RUNNING, n)
        fences.append(flow.attempt_of(job).fence)
        _kill(job)
        observing.observe_all()
        flow.make_due()
        commands.run_due()
        job.refresh_from_db()
        assert job.state == (JobState.QUEUED if n < MAX_ATTEMPTS else JobState.FAILED)
    assert fences == sorted(set(fences))
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {Outcome.LOST}
    assert Allocation.objects.filter(period__upper_inf=True).count() == 0


def test_a_member_just_started_is_not_lost_yet() -> None:
    flow.world()
    job = flow.long_job()
    flow.start(job)
    SimulatedMember.objects.all().delete()
    observing.observe_all()
    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_a_silent_driver_ends_nothing() -> None:
    flow.world(nodes=2)
    driver = Silent(World(start_delay_s=(0, 0)))
    with flow.simulated_by(driver):
        job = flow.long_job(asks=[{"form": "container", "nodes": 2}])
        flow.start(job)
        driver.silent = True
        flow.grow_old(3600)
        observing.observe_all()
        observing.observe_all()
        job.refresh_from_db()
        assert (job.state, flow.attempt_of(job).state) == (JobState.RUNNING, AttemptState.UNKNOWN)
        assert len(flow.open_allocations(job)) == 2
        driver.silent = False
        observing.observe_all()
        assert flow.attempt_of(job).state == AttemptState.RUNNING
        flow.finish(job)
    assert job.state == JobState.SUCCEEDED


def test_a_member_that_ended_before_its_start_was_confirmed_is_booked() -> None:
    flow.world()
    job = factories.job(command=["simulate", "--seconds", "0"])
    driver = SimulatedDriver(World(start_delay_s=(0, 0), lost_reply_rate=1.0))
    with flow.simulated_by(driver):
        placing.place_queued()
        commands.run_due()
        assert flow.attempt_of(job).state == AttemptState.UNKNOWN
        driver.world = World()
        flow.finish(job)
    assert (job.state, Attempt.objects.count()) == (JobState.SUCCEEDED, 1)


def test_a_job_over_its_walltime_is_ended() -> None:
    flow.world()
    job, other = flow.long_job(walltime_s=50), flow.long_job(walltime_s=500)
    flow.start(job, other)
    flow.grow_old(60)
    assert observing.observe_all()["over_walltime"] == 1
    flow.make_due()
    commands.run_due()
    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.state, flow.attempt_of(job).outcome) == (JobState.FAILED, Outcome.OVER_WALLTIME)
    assert "walltime" in job.message
    assert other.state == JobState.RUNNING


# -- cancelling -------------------------------------------------------------------------------------------------------


def _queued(job: Job) -> None:
    pass


def _starting(job: Job) -> None:
    placing.place_queued()


def _unknown(job: Job) -> None:
    _starting(job)
    note_unknown(allocation_id=flow.open_allocations(job)[0].pk, message="?")


def _stopping_as(outcome: Outcome) -> Callable[[Job], None]:
    def stopping(job: Job) -> None:
        flow.start(job)
        end_attempt(attempt_id=flow.attempt_of(job).pk, outcome=outcome)

    return stopping


@pytest.mark.parametrize(
    ("before", "final"),
    [
        (_queued, JobState.CANCELLED),
        (_starting, JobState.CANCELLED),
        (_unknown, JobState.CANCELLED),
        (flow.start, JobState.CANCELLED),
        (_stopping_as(Outcome.LOST), JobState.CANCELLED),  # it would have been tried again
        (_stopping_as(Outcome.SUCCEEDED), JobState.SUCCEEDED),
        (_stopping_as(Outcome.FAILED), JobState.FAILED),
    ],
)
def test_cancelling_works_in_every_live_state_and_twice(before: Callable[[Job], None], final: JobState) -> None:
    flow.world()
    job = flow.long_job()
    before(job)
    for _ in range(2):
        if Job.objects.get(pk=job.pk).state != JobState.CANCELLED:
            queue.cancel(job_id=job.pk, actor=job.by, reason="enough", via="test")
    flow.finish(job)
    assert job.state == final
    assert flow.open_allocations(job) == []
    with pytest.raises(Conflict):
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")


def test_only_those_who_may_cancel_do() -> None:
    people = factories.cast()
    job = factories.job(people["researcher"])
    for name in ("member", "outsider", "manager", "auditor"):
        assert not queue.may_cancel(job, people[name])
    with pytest.raises(Refused):
        queue.cancel(job_id=job.pk, actor=people["member"], reason="", via="test")
    for name in ("researcher", "owner", "operator", "admin"):
        assert queue.may_cancel(job, people[name])
    job.refresh_from_db()
    assert job.state == JobState.QUEUED
