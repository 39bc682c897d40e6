"""How attempts end: the book's begin_close and the outbox's stop commands in one transaction, for every cause."""

from __future__ import annotations

from django.db import transaction

from ledger import book
from ledger.clock import database_now
from ledger.models import Allocation, Attempt, Job, User
from ledger.vocabulary import AllocationState, CommandState, CommandVerb, Outcome
from scheduler.models import Command
from scheduler.wake import wake_after_commit

DEFAULT_GRACE_S = 10


def end_attempt(
    *,
    attempt_id: int,
    outcome: Outcome,
    exit_code: int | None = None,
    message: str = "",
    actor: User | None = None,
    via: str = "task",
    request_id: str = "",
    grace_s: int = DEFAULT_GRACE_S,
) -> bool:
    """Close every member of the attempt (losing one gang member loses all). False when it was already closing."""
    with transaction.atomic(durable=True):
        job, attempt = book.lock_job(Attempt.objects.values_list("job_id", flat=True).get(pk=attempt_id))
        if attempt is None or attempt.pk != attempt_id:
            return False
        return close_members(
            job,
            attempt,
            outcome,
            exit_code=exit_code,
            message=message,
            actor=actor,
            via=via,
            request_id=request_id,
            grace_s=grace_s,
        )


def close_members(
    job: Job,
    attempt: Attempt,
    outcome: Outcome,
    *,
    exit_code: int | None = None,
    message: str = "",
    actor: User | None = None,
    via: str = "task",
    request_id: str = "",
    grace_s: int = DEFAULT_GRACE_S,
) -> bool:
    """The inner step: the caller holds the job's lock in a durable transaction."""
    allocations = book.begin_close(
        job=job,
        attempt=attempt,
        outcome=outcome,
        exit_code=exit_code,
        message=message,
        actor=actor,
        via=via,
        request_id=request_id,
    )
    if not allocations:
        return False
    now = database_now()
    Command.objects.filter(attempt=attempt, verb=CommandVerb.START, state=CommandState.PENDING).update(
        state=CommandState.REFUSED, done_at=now, last_error="the attempt was closed before it started"
    )
    Command.objects.bulk_create(
        [
            Command(
                allocation=allocation,
                attempt=attempt,
                driver=allocation.driver,
                verb=CommandVerb.STOP,
                grace_s=grace_s,
                due_at=now,
                created_at=now,
            )
            for allocation in allocations
        ],
        ignore_conflicts=True,
    )
    wake_after_commit("scheduler.run_commands")
    return True


def confirm_closed(*, allocation_id: int, command_id: int) -> bool:
    """The driver confirmed that nothing runs and all is clean: free the cards and finish the stop command."""
    with transaction.atomic(durable=True):
        closed = book.close(allocation_id=allocation_id)
        Command.objects.filter(pk=command_id, state=CommandState.PENDING).update(
            state=CommandState.DONE, done_at=database_now()
        )
        wake_after_commit("scheduler.tick")
    return closed


def confirm_running(*, allocation_id: int) -> bool:
    with transaction.atomic(durable=True):
        return book.activate(allocation_id=allocation_id)


def note_unknown(*, allocation_id: int, message: str) -> bool:
    with transaction.atomic(durable=True):
        return book.mark_unknown(allocation_id=allocation_id, message=message)


def live_allocations(driver: str) -> list[Allocation]:
    """Allocations of a driver that are not closed, with attempt and job."""
    return list(
        Allocation.objects.filter(driver=driver, period__upper_inf=True)
        .exclude(state=AllocationState.CLOSED)
        .select_related("attempt__job", "node")
        .order_by("pk")
    )
