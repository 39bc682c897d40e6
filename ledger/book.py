"""The only writer of attempts, allocations and shares: open, activate, mark_unknown, begin_close, close.

Each function is one step inside a durable transaction that its caller in scheduler opens, so that the outbox row and
the book change together. It must not talk to drivers. Lock order: projects, nodes by id, then the job.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Q

from ledger import audit
from ledger.clock import database_now
from ledger.errors import Conflict
from ledger.fields import Interval
from ledger.models import Allocation, Attempt, CardShare, Job, Node, Project, User
from ledger.vocabulary import AllocationState, AttemptState, Form, JobState, Outcome

MAX_ATTEMPTS = 3
RETRIED = frozenset({Outcome.HARDWARE, Outcome.LOST})
FINAL_STATE = {
    Outcome.SUCCEEDED: JobState.SUCCEEDED,
    Outcome.CANCELLED: JobState.CANCELLED,
    Outcome.PREEMPTED: JobState.PREEMPTED,
}


@dataclass(frozen=True, slots=True)
class ShareOrder:
    """A part of one card: `memory` in MiB intervals, `compute` in intervals of 0..1000 (empty = best effort)."""

    seat_id: int
    card_id: int
    card_memory_mib: int
    block_id: int | None
    memory: Sequence[Interval]
    compute: Sequence[Interval] = ()


@dataclass(frozen=True, slots=True)
class MemberOrder:
    node_id: int
    form: Form
    driver: str
    zone_id: int | None
    cpu_milli: int
    host_memory_mib: int
    shares: Sequence[ShareOrder]


def lock_for_opening(project_ids: Iterable[int], node_ids: Iterable[int]) -> dt.datetime:
    """Lock what will be consumed, in the house order, and return the instant from which periods may start."""
    list(Project.objects.filter(pk__in=set(project_ids)).order_by("pk").select_for_update(no_key=True).values_list("pk"))
    list(Node.objects.filter(pk__in=set(node_ids)).order_by("pk").select_for_update(no_key=True).values_list("pk"))
    return database_now()


def open_attempt(
    *, job_id: int, project_id: int, members: Sequence[MemberOrder], now: dt.datetime, via: str, reason: str
) -> tuple[Attempt, list[Allocation]]:
    """Open one attempt of a queued job on all its nodes, or raise: Conflict when the job is no longer queued,
    django.db.IntegrityError when the database refuses the placement. Run it inside a savepoint."""
    _inside_transaction()
    moved = Job.objects.filter(pk=job_id, state=JobState.QUEUED).update(state=JobState.STARTING, placed_at=now, message="")
    if not moved:
        raise Conflict(f"job {job_id} is no longer queued", code="lost_race")
    attempt = _new_attempt(job_id, now)
    allocations = Allocation.objects.bulk_create(
        Allocation(
            attempt=attempt,
            project_id=project_id,
            node_id=member.node_id,
            rank=rank,
            form=member.form,
            driver=member.driver,
            zone_then_id=member.zone_id,
            cpu_milli=member.cpu_milli,
            host_memory_mib=member.host_memory_mib,
            period=(now, None),
        )
        for rank, member in enumerate(members)
    )
    CardShare.objects.bulk_create(
        CardShare(
            allocation=allocation,
            node_id=member.node_id,
            seat_id=share.seat_id,
            card_id=share.card_id,
            block_id=share.block_id,
            card_memory_mib=share.card_memory_mib,
            memory=tuple(share.memory),
            compute=tuple(share.compute),
            memory_mib=sum(hi - lo for lo, hi in share.memory),
            period=(now, None),
        )
        for allocation, member in zip(allocations, members, strict=True)
        for share in member.shares
    )
    audit.record(
        actor=None,
        via=via,
        verb="job.placed",
        target=attempt.job,
        project=project_id,
        before={"state": JobState.QUEUED},
        after={"state": JobState.STARTING, "attempt": attempt.n, "nodes": [m.node_id for m in members]},
        reason=reason,
        at=now,
    )
    return attempt, allocations


def _new_attempt(job_id: int, now: dt.datetime) -> Attempt:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(max(n), 0) + 1, nextval('ledger_fence') FROM ledger_attempt WHERE job_id = %s", [job_id]
        )
        n, fence = cursor.fetchone()
    return Attempt.objects.create(job_id=job_id, n=n, fence=fence, state=AttemptState.STARTING, opened_at=now)


def activate(*, allocation_id: int) -> bool:
    """The driver says that this member runs. The attempt and its job run once all members do. Repeatable."""
    job, attempt = _locked(allocation_id)
    now = database_now()
    Allocation.objects.filter(pk=allocation_id, state=AllocationState.OPENING).update(
        state=AllocationState.ACTIVE, active_at=now
    )
    if attempt.state not in (AttemptState.STARTING, AttemptState.UNKNOWN):
        return False
    if Allocation.objects.filter(attempt=attempt).exclude(state=AllocationState.ACTIVE).exists():
        if attempt.state == AttemptState.UNKNOWN:
            _set_attempt(attempt, AttemptState.STARTING, unknown_since=None)
        return False
    _set_attempt(attempt, AttemptState.RUNNING, unknown_since=None)
    if job.state == JobState.STARTING:
        _set_job(job, JobState.RUNNING, "job.started", started_at=now)
    return True


def mark_unknown(*, allocation_id: int, message: str) -> bool:
    """No answer came from the driver. The cards stay taken until there is evidence either way."""
    job, attempt = _locked(allocation_id)
    if attempt.state not in (AttemptState.STARTING, AttemptState.RUNNING):
        return False
    _set_attempt(attempt, AttemptState.UNKNOWN, unknown_since=database_now(), message=message[:500])
    _note(job, "attempt.unknown", {"attempt": attempt.n}, message)
    return True


def begin_close(
    *,
    job: Job,
    attempt: Attempt,
    outcome: Outcome,
    exit_code: int | None = None,
    message: str = "",
    actor: User | None = None,
    via: str = "task",
    request_id: str = "",
) -> list[Allocation]:
    """Use ends now for every member of the attempt; the cards stay taken until the driver confirms. The caller holds
    the job's lock (`lock_job`). Returns the allocations that were closed by this call; none when already closing."""
    _inside_transaction()
    if attempt.state in (AttemptState.STOPPING, AttemptState.ENDED):
        return []
    now = database_now()
    before = job.state
    _set_attempt(attempt, AttemptState.STOPPING, outcome=outcome, exit_code=exit_code, message=message[:500])
    Allocation.objects.filter(
        attempt=attempt, state__in=[AllocationState.OPENING, AllocationState.ACTIVE]
    ).update(state=AllocationState.CLOSING, closing_at=now)
    if job.state in (JobState.STARTING, JobState.RUNNING):
        job.state = JobState.STOPPING
        job.message = message[:500]
        job.save(update_fields=["state", "message"])
    audit.record(
        actor=actor,
        via=via,
        verb="job.stopping",
        target=job,
        project=job.project_id,
        before={"state": before},
        after={"state": job.state, "outcome": outcome, "exit_code": exit_code, "attempt": attempt.n},
        reason=message,
        request_id=request_id,
        at=now,
    )
    return list(Allocation.objects.filter(attempt=attempt, state=AllocationState.CLOSING))


def close(*, allocation_id: int) -> bool:
    """The driver confirmed that nothing runs and all is clean: the cards are free from now on. Repeatable. Ends the
    attempt and moves its job when this was the last member."""
    job, attempt = _locked(allocation_id)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_allocation SET state = 'closed', period = tstzrange(lower(period), "
            "greatest(lower(period) + interval '1 microsecond', closing_at, clock_timestamp())) "
            "WHERE id = %s AND state = 'closing'",
            [allocation_id],
        )
        if cursor.rowcount == 0:
            return False
    if Allocation.objects.filter(attempt=attempt).exclude(state=AllocationState.CLOSED).exists():
        return True
    now = database_now()
    _set_attempt(attempt, AttemptState.ENDED, ended_at=now)
    _end_job(job, attempt, now)
    return True


def _end_job(job: Job, attempt: Attempt, now: dt.datetime) -> None:
    outcome = Outcome(attempt.outcome)
    if outcome in RETRIED and attempt.n < MAX_ATTEMPTS and not job.cancel_reason:
        _set_job(job, JobState.QUEUED, "job.requeued", queued_at=now, started_at=None, placed_at=None)
        return
    final = JobState.CANCELLED if job.cancel_reason else FINAL_STATE.get(outcome, JobState.FAILED)
    closing_at = Allocation.objects.filter(attempt=attempt).order_by("-closing_at").values_list("closing_at", flat=True)[0]
    _set_job(job, final, f"job.{final}", ended_at=closing_at)


def lock_job(job_id: int) -> tuple[Job, Attempt | None]:
    """The job under its lock, with its live attempt."""
    _inside_transaction()
    job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
    return job, Attempt.objects.filter(~Q(state=AttemptState.ENDED), job=job).first()


def _locked(allocation_id: int) -> tuple[Job, Attempt]:
    _inside_transaction()
    job_id = Attempt.objects.values_list("job_id", flat=True).get(allocations=allocation_id)
    job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
    return job, Attempt.objects.get(allocations=allocation_id)


def _set_attempt(attempt: Attempt, state: AttemptState, **values: object) -> None:
    attempt.state = state
    for name, value in values.items():
        setattr(attempt, name, value)
    attempt.save(update_fields=["state", *values])


def _set_job(job: Job, state: JobState, verb: str, **values: object) -> None:
    before = job.state
    job.state = state
    for name, value in values.items():
        setattr(job, name, value)
    job.save(update_fields=["state", *values])
    audit.record(
        actor=None,
        via="task",
        verb=verb,
        target=job,
        project=job.project_id,
        before={"state": before},
        after={"state": state},
    )


def _note(job: Job, verb: str, after: dict[str, object], reason: str) -> None:
    audit.record(actor=None, via="task", verb=verb, target=job, project=job.project_id, after=after, reason=reason)


def _inside_transaction() -> None:
    if not connection.in_atomic_block:
        raise RuntimeError("the book is written inside a durable transaction of its caller")
