"""How attempts end: the book's begin_close and the outbox's stop commands in one transaction, for every cause."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from ledger import book, rows
from ledger.book import Ending
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


def end_attempts(endings: Sequence[Ending]) -> int:
    """Several attempts that ended by themselves, in one transaction. Returns how many began to close."""
    with transaction.atomic(durable=True):
        return len(close_inside(endings, grace_s=DEFAULT_GRACE_S))


def close_inside(endings: Sequence[Ending], *, grace_s: int) -> set[int]:
    """The inner step for several attempts: the caller holds a durable transaction. Returns the attempts that this call
    began to close."""
    allocations = book.begin_close_many(endings)
    _order_stops(allocations, grace_s)
    return {allocation.attempt_id for allocation in allocations}


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
    _order_stops(allocations, grace_s)
    return bool(allocations)


def _order_stops(allocations: Sequence[Allocation], grace_s: int) -> None:
    """Take back starts that were not made yet and put the stop of each member into the outbox."""
    if not allocations:
        return
    now = database_now()
    attempts = {allocation.attempt_id for allocation in allocations}
    Command.objects.filter(attempt__in=attempts, verb=CommandVerb.START, state=CommandState.PENDING).update(
        state=CommandState.REFUSED, done_at=now, last_error="the attempt was closed before it started"
    )
    rows.insert(
        Command,
        columns={
            "allocation_id": [allocation.pk for allocation in allocations],
            "attempt_id": [allocation.attempt_id for allocation in allocations],
            "driver": [allocation.driver for allocation in allocations],
        },
        verb=CommandVerb.STOP,
        grace_s=grace_s,
        due_at=now,
        created_at=now,
    )
    wake_after_commit("scheduler.run_commands")


def confirm_closed(allocation_ids: Sequence[int]) -> list[int]:
    """Drivers confirmed that nothing of these runs and all is clean: free the cards, finish the stop commands."""
    with transaction.atomic(durable=True):
        closed = book.close_many(allocation_ids)
        Command.objects.filter(allocation__in=allocation_ids, verb=CommandVerb.STOP, state=CommandState.PENDING).update(
            state=CommandState.DONE, done_at=database_now()
        )
        wake_after_commit("scheduler.tick")
    return closed


def confirm_running(allocation_ids: Sequence[int]) -> list[int]:
    """Drivers say that these members run. Returns the attempts that began to run."""
    with transaction.atomic(durable=True):
        return book.activate_many(allocation_ids)


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
