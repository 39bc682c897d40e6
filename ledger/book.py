"""With ledger.opening the only writer of attempts, allocations and shares: activate, mark_unknown, begin_close, close.

Each function is one step inside a durable transaction that its caller in scheduler opens, so that the outbox row and
the book change together. It must not talk to drivers. Lock order: projects, nodes by id, then the job.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection, models
from django.db.models import Q

from ledger import audit, rows
from ledger.clock import database_now
from ledger.models import Allocation, Attempt, Job, User
from ledger.vocabulary import AllocationState, AttemptState, JobState, Outcome

OF_JOB = ("project", "state", "message", "cancel_reason")  # what is read of it, and of its attempts, as it ends
OF_ATTEMPT = ("job", "n", "state", "outcome")
MAX_ATTEMPTS = 3  # that a machine has failed; what was stopped for others is no failure
RETRIED = frozenset({Outcome.HARDWARE, Outcome.LOST, Outcome.PREEMPTED})
MOST_PREEMPTED = 50  # times; each time it runs longer before it can be stopped again, so that none comes near it
Move = tuple[Job, str, str, str]  # from one state to another, and the verb that tells of it
FINAL_STATE = {
    Outcome.SUCCEEDED: JobState.SUCCEEDED,
    Outcome.CANCELLED: JobState.CANCELLED,
    Outcome.PREEMPTED: JobState.PREEMPTED,
    Outcome.PROJECT_ENDED: JobState.CANCELLED,
}


def activate(*, allocation_id: int) -> bool:
    """One member runs; see activate_many. True when its attempt runs from now on."""
    return bool(activate_many([allocation_id]))


def activate_many(allocation_ids: Sequence[int]) -> list[int]:
    """Drivers say that these members run. An attempt and its job run once all members do. Repeatable. Returns the
    attempts that began to run (or were found again after being unknown)."""
    jobs, attempts = _lock_for(allocation_ids)
    now = database_now()
    Allocation.objects.filter(pk__in=allocation_ids, state=AllocationState.OPENING).update(
        state=AllocationState.ACTIVE, active_at=now
    )
    waiting = [a for a in attempts if a.state in (AttemptState.STARTING, AttemptState.UNKNOWN)]
    incomplete = set(
        Allocation.objects.filter(attempt__in=waiting)
        .exclude(state=AllocationState.ACTIVE)
        .values_list("attempt_id", flat=True)
    )
    complete = [a.pk for a in waiting if a.pk not in incomplete]
    back = [a.pk for a in waiting if a.pk in incomplete and a.state == AttemptState.UNKNOWN]
    Attempt.objects.filter(pk__in=complete).update(state=AttemptState.RUNNING, unknown_since=None)
    Attempt.objects.filter(pk__in=back).update(state=AttemptState.STARTING, unknown_since=None)
    ready = {a.job_id for a in waiting if a.pk in set(complete)}
    started = [job for job in jobs if job.pk in ready and job.state == JobState.STARTING]
    Job.objects.filter(pk__in=[job.pk for job in started]).update(state=JobState.RUNNING, started_at=now)
    _audit_moves([(job, JobState.STARTING, JobState.RUNNING, "job.started") for job in started], now)
    return complete


def mark_unknown(*, allocation_id: int, message: str) -> bool:
    """No answer came from the driver. The cards stay taken until there is evidence either way."""
    jobs, attempts = _lock_for([allocation_id])
    job, attempt = jobs[0], attempts[0]
    if attempt.state not in (AttemptState.STARTING, AttemptState.RUNNING):
        return False
    now = database_now()
    Attempt.objects.filter(pk=attempt.pk).update(state=AttemptState.UNKNOWN, unknown_since=now, message=message[:500])
    audit.record(
        actor=None,
        via="task",
        verb="attempt.unknown",
        target=job,
        project=job.project_id,
        after={"attempt": attempt.n},
        reason=message,
        at=now,
    )
    return True


@dataclass(frozen=True, slots=True)
class Ending:
    """Why and how one attempt ends."""

    attempt_id: int
    outcome: Outcome
    exit_code: int | None = None
    message: str = ""


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
    """One attempt ends; see begin_close_many."""
    ending = Ending(attempt.pk, outcome, exit_code, message)
    closed = begin_close_many([ending], actor=actor, via=via, request_id=request_id)
    job.refresh_from_db(fields=["state", "message"])
    return closed


def begin_close_many(
    endings: Sequence[Ending], *, actor: User | None = None, via: str = "task", request_id: str = ""
) -> list[Allocation]:
    """Use ends now for every member of these attempts; the cards stay taken until the drivers confirm. Attempts that
    are closing already are passed over. Returns the allocations that this call began to close."""
    require_transaction()
    wanted = {ending.attempt_id: ending for ending in endings}
    job_ids = Attempt.objects.filter(pk__in=wanted).values("job_id")
    jobs = {job.pk: job for job in _locked(Job.objects.filter(pk__in=job_ids))}
    live = Attempt.objects.filter(pk__in=wanted).exclude(state__in=[AttemptState.STOPPING, AttemptState.ENDED])
    attempts = list(live.only(*OF_ATTEMPT))
    now = database_now()
    moves = []
    for attempt in attempts:
        ending, job = wanted[attempt.pk], jobs[attempt.job_id]
        attempt.state, attempt.outcome = AttemptState.STOPPING, ending.outcome
        attempt.exit_code, attempt.message = ending.exit_code, ending.message[:500]
        moves.append((job, job.state, attempt, ending))
        if job.state in (JobState.STARTING, JobState.RUNNING):
            job.state, job.message = JobState.STOPPING, ending.message[:500]
    _write(attempts, ("state", "outcome", "exit_code", "message"))
    _write([job for job, *_ in moves], ("state", "message"))
    Allocation.objects.filter(attempt__in=attempts, state__in=[AllocationState.OPENING, AllocationState.ACTIVE]).update(
        state=AllocationState.CLOSING, closing_at=now
    )
    audit.record_alike(
        [
            {
                "target_id": job.pk,
                "project_id": job.project_id,
                "before": {"state": before},
                "after": {"state": job.state, "outcome": e.outcome, "exit_code": e.exit_code, "attempt": attempt.n},
                "reason": e.message[:500],
            }
            for job, before, attempt, e in moves
        ],
        target=Job,
        verb="job.stopping",
        actor_id=actor.pk if actor else None,
        via=via,
        request_id=request_id,
        at=now,
    )
    closing = Allocation.objects.filter(attempt__in=attempts, state=AllocationState.CLOSING)
    return list(closing.only("attempt_id", "driver", "state").order_by("pk"))


def close(*, allocation_id: int) -> bool:
    """One member is gone and clean; see close_many. True when this call freed it."""
    return allocation_id in close_many([allocation_id])


def close_many(allocation_ids: Sequence[int]) -> list[int]:
    """Drivers confirmed that nothing runs and all is clean: the cards are free from now on. Repeatable. Ends attempts
    whose last member this was and moves their jobs. Returns the allocations that this call closed."""
    jobs, attempts = _lock_for(allocation_ids)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_allocation SET state = 'closed', period = tstzrange(lower(period), "
            "greatest(lower(period) + interval '1 microsecond', closing_at, clock_timestamp())) "
            "WHERE id = ANY (%s) AND state = 'closing' RETURNING id",
            [list(allocation_ids)],
        )
        closed = [row[0] for row in cursor.fetchall()]
    open_still = set(
        Allocation.objects.filter(attempt__in=attempts)
        .exclude(state=AllocationState.CLOSED)
        .values_list("attempt_id", flat=True)
    )
    done = [a for a in attempts if a.state == AttemptState.STOPPING and a.pk not in open_still]
    now = database_now()
    Attempt.objects.filter(pk__in=[a.pk for a in done]).update(state=AttemptState.ENDED, ended_at=now)
    by_id = {job.pk: job for job in jobs}
    _end_jobs([(by_id[a.job_id], a) for a in done], now)
    return closed


def _end_jobs(ended: Sequence[tuple[Job, Attempt]], now: dt.datetime) -> None:
    """Jobs whose attempt ended: queued again after a fault of the machine or when others needed the cards, else in
    their final state."""
    closing = dict(
        Allocation.objects.filter(attempt__in=[a.pk for _, a in ended])
        .values_list("attempt_id", "closing_at")
        .order_by("closing_at")
    )
    again = _tried_again([(job, attempt) for job, attempt in ended if not job.cancel_reason])
    moves: list[Move] = []
    for job, attempt in ended:
        before = job.state
        if job.pk in again:
            job.state, job.queued_at, job.started_at, job.placed_at = JobState.QUEUED, now, None, None
            moves.append((job, before, job.state, "job.requeued"))
        else:
            outcome = Outcome(attempt.outcome)
            job.state = JobState.CANCELLED if job.cancel_reason else FINAL_STATE.get(outcome, JobState.FAILED)
            job.ended_at = closing[attempt.pk]
            moves.append((job, before, job.state, f"job.{job.state}"))
    _write([job for job, _ in ended if job.pk in again], ("state", "queued_at", "started_at", "placed_at"))
    _write([job for job, _ in ended if job.pk not in again], ("state", "ended_at"))
    _audit_moves(moves, now)


def _write(changed: Sequence[Job] | Sequence[Attempt], names: Sequence[str]) -> None:
    """These columns of these rows, in one statement."""
    if changed:
        columns = {name: [getattr(one, name) for one in changed] for name in names}
        rows.update(type(changed[0]), [one.pk for one in changed], columns)


def _tried_again(ended: Sequence[tuple[Job, Attempt]]) -> set[int]:
    """Jobs that have attempts left, of those that a machine failed or that were stopped for others."""
    retried = {job.pk: attempt.outcome for job, attempt in ended if attempt.outcome in RETRIED}
    if not retried:
        return set()
    counted = Attempt.objects.filter(job__in=retried, outcome__in=RETRIED).values_list("job_id", "outcome")
    tries = Counter((job_id, outcome == Outcome.PREEMPTED) for job_id, outcome in counted)
    return {
        job_id
        for job_id, outcome in retried.items()
        if tries[job_id, outcome == Outcome.PREEMPTED]
        < (MOST_PREEMPTED if outcome == Outcome.PREEMPTED else MAX_ATTEMPTS)
    }


def _audit_moves(moves: Sequence[Move], now: dt.datetime) -> None:
    audit.record_alike(
        [
            {
                "target_id": job.pk,
                "project_id": job.project_id,
                "verb": verb,
                "before": {"state": before},
                "after": {"state": after},
            }
            for job, before, after, verb in moves
        ],
        target=Job,
        via="task",
        at=now,
    )


def _lock_for(allocation_ids: Sequence[int]) -> tuple[list[Job], list[Attempt]]:
    """The jobs of these allocations under their locks, in order, and the attempts as they are now."""
    require_transaction()
    attempt_ids = set(Allocation.objects.filter(pk__in=allocation_ids).values_list("attempt_id", flat=True))
    job_ids = Attempt.objects.filter(pk__in=attempt_ids).values("job_id")
    jobs = _locked(Job.objects.filter(pk__in=job_ids))
    return jobs, list(Attempt.objects.filter(pk__in=attempt_ids).only(*OF_ATTEMPT).order_by("pk"))


def _locked(jobs: models.QuerySet[Job]) -> list[Job]:
    """Under their locks, in order."""
    return list(jobs.only(*OF_JOB).order_by("pk").select_for_update(no_key=True))


def lock_job(job_id: int) -> tuple[Job, Attempt | None]:
    """The job under its lock, with its live attempt."""
    require_transaction()
    job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
    return job, Attempt.objects.filter(~Q(state=AttemptState.ENDED), job=job).first()


def require_transaction() -> None:
    if not connection.in_atomic_block:
        raise RuntimeError("the book is written inside a durable transaction of its caller")
