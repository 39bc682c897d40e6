"""Operators hold, release, bump and cancel jobs that wait: audited, all in one transaction, and never against a round
of the scheduler that is at work."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connection, transaction

from ledger.errors import Forbidden, Refused
from ledger.models import AuditEvent, Job, User
from ledger.vocabulary import JobState, Refusal, SiteRole
from scheduler import placing, queue_control, snapshot
from scheduler.commit import commit_plan
from scheduler.engine.plan import plan
from scheduler.engine.types import Plan, Waiting
from scheduler.models import Decision
from scheduler.queue_control import Acted, Order
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
NOWHERE = 999_999_999


@pytest.fixture
def operator() -> User:
    flow.world(nodes=1, cards=1)
    return factories.user("operator", SiteRole.OPERATOR)


def order(actor: User, reason: str = "maintenance of the storage") -> Order:
    return Order(actor=actor, reason=reason, via="test", request_id="r-1")


def hold(actor: User, *jobs: Job) -> Acted:
    return queue_control.hold_jobs(job_ids=[job.pk for job in jobs], order=order(actor))


def release(actor: User, *jobs: Job) -> Acted:
    return queue_control.release_jobs(job_ids=[job.pk for job in jobs], order=order(actor, "storage is back"))


def events(job: Job) -> list[tuple[str, object, object, str, str]]:
    rows = AuditEvent.objects.filter(target_type="job", target_id=str(job.pk)).exclude(verb="job.submitted")
    return [(e.verb, e.before, e.after, e.reason, e.actor.username if e.actor else "") for e in rows.order_by("pk")]


def test_a_held_job_is_not_placed_until_it_is_released(operator: User) -> None:
    job = factories.job()
    assert hold(operator, job) == Acted(done=[job.pk])
    placing.place_queued()
    job.refresh_from_db()
    assert (job.state, job.held_by, job.held_reason) == (JobState.QUEUED, operator, "maintenance of the storage")
    assert job.held_at is not None
    assert release(operator, job) == Acted(done=[job.pk])
    placing.place_queued()
    job.refresh_from_db()
    assert (job.state, job.held_at, job.held_by, job.held_reason) == (JobState.STARTING, None, None, "")


def test_the_job_says_that_an_operator_holds_it_and_after_its_release_nothing_until_the_next_round(
    operator: User,
) -> None:
    job = factories.any_job(asks=[{"form": "container", "cards_per_node": 4}])
    placing.place_queued()
    assert Decision.objects.get(job=job).position == 1
    hold(operator, job)
    placing.place_queued()
    held = Decision.objects.get(job=job, attempt=None)
    assert (held.reasons, held.position, held.never) == ([{"held_by_operator": 1}], None, False)
    release(operator, job)
    assert Decision.objects.get(job=job, attempt=None).reasons == []
    placing.place_queued()
    assert Decision.objects.get(job=job, attempt=None).position == 1


def test_every_act_has_its_audit_row(operator: User) -> None:
    job = factories.job()
    hold(operator, job)
    release(operator, job)
    queue_control.bump_jobs(job_ids=[job.pk], priority=7, order=order(operator, "deadline"))
    queue_control.cancel_jobs(job_ids=[job.pk], order=order(operator, "asked to"))
    found = events(job)
    assert [e[0] for e in found] == ["job.held", "job.released", "job.bumped", "job.cancelled"]
    assert found[0][1:] == ({"held": False}, {"held": True}, "maintenance of the storage", "operator")
    assert found[2][1:] == ({"priority": 0}, {"priority": 7}, "deadline", "operator")
    assert found[3][1:] == ({"state": "queued"}, {"state": "cancelled"}, "asked to", "operator")
    assert set(
        AuditEvent.objects.exclude(verb__in=["job.submitted"])
        .filter(target_type="job")
        .values_list("via", "request_id", "project__slug")
    ) == {("test", "r-1", "vision")}


def test_a_plan_made_before_the_hold_is_refused_by_the_database(operator: User) -> None:
    job, other = factories.job(), factories.job()
    snap = snapshot.read(snapshot.queued_jobs())
    proposal = plan(snap)
    assert {p.job_id for p in proposal.placements} == {job.pk, other.pk}
    hold(operator, job)
    done = commit_plan(snap, proposal)
    states = dict(Job.objects.values_list("pk", "state"))
    assert (done.placed, states) == (1, {job.pk: JobState.QUEUED, other.pk: JobState.STARTING})


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING, JobState.STOPPING])
def test_the_database_holds_no_job_that_is_under_way(operator: User, state: JobState) -> None:
    job = factories.job()
    hold(operator, job)
    with pytest.raises(IntegrityError, match="held_job_is_not_placed"), transaction.atomic():
        Job.objects.create(**_copy(job), state=state)


def _copy(job: Job) -> dict[str, object]:
    names = [f.attname for f in Job._meta.concrete_fields if f.attname not in ("id", "state", "client_key")]
    return {name: getattr(Job.objects.get(pk=job.pk), name) for name in names}


def test_nobody_is_held_by_nobody(operator: User) -> None:
    job = factories.job()
    with pytest.raises(IntegrityError, match="job_held_by_somebody"), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(held_at=job.queued_at)


def test_a_higher_priority_goes_first(operator: User) -> None:
    first, second = factories.job(), factories.job()
    assert [j.pk for j in snapshot.queued_jobs()] == [first.pk, second.pk]
    queue_control.bump_jobs(job_ids=[second.pk], priority=100, order=order(operator))
    assert [j.pk for j in snapshot.queued_jobs()] == [second.pk, first.pk]


@pytest.mark.parametrize("priority", [-101, 101, 10**6])
def test_a_priority_out_of_bounds_is_refused(operator: User, priority: int) -> None:
    job = factories.job()
    with pytest.raises(Refused) as refusal:
        queue_control.bump_jobs(job_ids=[job.pk], priority=priority, order=order(operator))
    assert (refusal.value.field, refusal.value.code) == ("priority", "out_of_bounds")
    assert events(job) == []


def test_a_held_job_can_be_bumped_and_cancelled(operator: User) -> None:
    job = factories.job()
    hold(operator, job)
    assert queue_control.bump_jobs(job_ids=[job.pk], priority=5, order=order(operator)).done == [job.pk]
    assert queue_control.cancel_jobs(job_ids=[job.pk], order=order(operator, "no use")).done == [job.pk]
    job.refresh_from_db()
    assert (job.state, job.cancel_reason, job.priority) == (JobState.CANCELLED, "no use", 5)


def test_a_job_that_runs_is_left_alone_by_every_act(operator: User) -> None:
    job = flow.long_job()
    flow.start(job)
    assert job.state == JobState.RUNNING
    for acted in (
        hold(operator, job),
        release(operator, job),
        queue_control.bump_jobs(job_ids=[job.pk], priority=9, order=order(operator)),
        queue_control.cancel_jobs(job_ids=[job.pk], order=order(operator)),
    ):
        assert acted == Acted(left={job.pk: "it waits no more"})
    job.refresh_from_db()
    assert (job.state, job.priority, job.held_at) == (JobState.RUNNING, 0, None)


def test_many_at_once_change_what_they_can_and_name_the_rest(operator: User) -> None:
    jobs = [factories.job() for _ in range(3)]
    hold(operator, jobs[1])
    acted = queue_control.hold_jobs(job_ids=[*(j.pk for j in jobs), NOWHERE, jobs[0].pk], order=order(operator))
    assert acted.done == [jobs[0].pk, jobs[2].pk]
    assert acted.left == {jobs[1].pk: "it is held already", NOWHERE: "there is no such job"}
    assert release(operator, *jobs).done == [j.pk for j in jobs]
    assert release(operator, jobs[0]).left == {jobs[0].pk: "it is not held"}
    assert queue_control.bump_jobs(job_ids=[jobs[0].pk], priority=0, order=order(operator)).left == {
        jobs[0].pk: "it has this priority already"
    }


@pytest.mark.parametrize("name", ["researcher", "owner", "manager", "auditor"])
def test_only_operators_and_admins_act(operator: User, name: str) -> None:
    job = factories.job()
    roles = {"manager": SiteRole.MANAGER, "auditor": SiteRole.AUDITOR}
    with pytest.raises(Forbidden):
        hold(factories.user(name, roles.get(name, SiteRole.RESEARCHER)), job)
    job.refresh_from_db()
    assert (job.held_at, events(job)) == (None, [])


@pytest.mark.parametrize(
    ("ids", "reason", "field", "code"),
    [
        (1, "", "reason", "reason"),
        (1, "  \t", "reason", "reason"),
        (1, "x" * 501, "reason", "reason"),
        (0, "why", "key", "required"),
        (201, "why", "key", "too_many"),
    ],
)
def test_what_is_missing_or_too_much_is_named(operator: User, ids: int, reason: str, field: str, code: str) -> None:
    job = factories.job()
    with pytest.raises(Refused) as refusal:
        queue_control.hold_jobs(job_ids=[job.pk + i for i in range(ids)], order=order(operator, reason))
    assert (refusal.value.field, refusal.value.code) == (field, code)
    job.refresh_from_db()
    assert job.held_at is None


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_being_placed_is_not_waited_for() -> None:
    factories.constant_rows()
    flow.world(nodes=1)
    operator = factories.user("operator", SiteRole.OPERATOR)
    job, other = factories.job(), factories.job()
    locked, done = threading.Event(), threading.Event()

    def place() -> None:
        with transaction.atomic():
            Job.objects.select_for_update(no_key=True).get(pk=job.pk)
            locked.set()
            done.wait(20)
        connection.close()

    thread = threading.Thread(target=place)
    thread.start()
    assert locked.wait(20)
    try:
        acted = hold(operator, job, other)
    finally:
        done.set()
        thread.join()
    assert acted == Acted(done=[other.pk], left={job.pk: "it is being placed at this moment"})


def test_a_round_under_way_does_not_write_over_the_hold(operator: User) -> None:
    """The round read the queue before the hold and writes its reasons after it."""
    job = factories.any_job(asks=[{"form": "container", "cards_per_node": 9}])
    before = snapshot.queued_jobs()
    hold(operator, job)
    waiting = Waiting(job_id=job.pk, by_ask=({Refusal.CPU: 1},))
    placing._record_waiting(before, Plan(rule="r", placements=(), waiting=(waiting,)), {})
    assert Decision.objects.get(job=job).reasons == [{"held_by_operator": 1}]
