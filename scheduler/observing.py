"""Levels, not edges: compare what the book says of live attempts with what drivers see, and act on the difference."""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

from django.db.models import Count

from ledger.book import Ending
from ledger.clock import database_now
from ledger.models import Allocation, Attempt, Job
from ledger.vocabulary import AllocationState, AttemptState, CommandState, CommandVerb, JobState, Outcome
from scheduler.drivers.base import DriverError, EndReason, Observation, Phase, ReplyLost
from scheduler.drivers.registry import driver, names
from scheduler.ending import confirm_running, end_attempt, end_attempts, live_allocations, note_unknown
from scheduler.models import Command

log = logging.getLogger(__name__)
T = TypeVar("T")
ABSENT_FOR = dt.timedelta(seconds=5)  # a member that was started but that its driver does not know
OUTCOMES = {
    EndReason.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    EndReason.START_FAILED: Outcome.START_FAILED,
    EndReason.LOST: Outcome.LOST,
    EndReason.STOPPED: Outcome.CANCELLED,
}


def observe_all() -> dict[str, int]:
    """Look at every live attempt of every driver once. Returns counts for the task's record."""
    counts = {"running": 0, "ended": 0, "unknown": 0, "over_walltime": 0}
    for name in names():
        _observe(name, counts)
    counts["over_walltime"] = _end_over_walltime()
    return counts


def _observe(name: str, counts: dict[str, int]) -> None:
    allocations = [a for a in live_allocations(name) if a.state != AllocationState.CLOSING]
    if not allocations:
        return
    started = set(
        Command.objects.filter(
            allocation__in=[a.pk for a in allocations], verb=CommandVerb.START, state=CommandState.DONE
        ).values_list("allocation_id", flat=True)
    )
    known = [a for a in allocations if a.pk in started]
    try:
        seen = driver(name).inspect([a.key for a in known])
    except (ReplyLost, DriverError, OSError) as error:
        log.warning("driver %s does not answer: %s", name, error)
        for allocation in known:
            counts["unknown"] += note_unknown(allocation_id=allocation.pk, message=f"{name} does not answer: {error}")
        return
    by_attempt: dict[int, list[Allocation]] = defaultdict(list)
    for allocation in known:
        by_attempt[allocation.attempt_id].append(allocation)
    running = [a.pk for a in known if _awaited(a) and seen[a.key].phase in (Phase.RUNNING, Phase.EXITED)]
    for chunk in _chunks(running):
        counts["running"] += len(confirm_running(chunk))
    sizes = dict(
        Allocation.objects.filter(attempt__in=list(by_attempt)).values_list("attempt_id").annotate(n=Count("pk"))
    )
    now = database_now()
    endings = [
        ending
        for attempt_id, members in by_attempt.items()
        if (ending := _verdict(members, [seen[a.key] for a in members], sizes[attempt_id], now)) is not None
    ]
    for part in _chunks(endings):
        counts["ended"] += end_attempts(part)


def _awaited(allocation: Allocation) -> bool:
    return allocation.state == AllocationState.OPENING or allocation.attempt.state == AttemptState.UNKNOWN


def _chunks(items: Sequence[T], size: int = 200) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _verdict(
    members: Sequence[Allocation], observations: Sequence[Observation], size: int, now: dt.datetime
) -> Ending | None:
    """How the attempt ended, or None while it goes on: all its `size` members ended well, or one of them did not."""
    attempt = members[0].attempt
    if any(o.phase == Phase.ABSENT for o in observations):
        if now - attempt.opened_at < ABSENT_FOR:
            return None
        return Ending(attempt.pk, Outcome.LOST, None, "the driver does not know it any more")
    ended = [o for o in observations if o.phase == Phase.EXITED]
    for o in ended:
        if o.exit_code != 0 or o.end_reason != EndReason.EXIT:
            outcome = OUTCOMES.get(o.end_reason or EndReason.EXIT, Outcome.FAILED)
            return Ending(attempt.pk, outcome, o.exit_code, o.message)
    return Ending(attempt.pk, Outcome.SUCCEEDED, 0) if len(ended) == size else None


def _end_over_walltime() -> int:
    now, ended = database_now(), 0
    for job in Job.objects.filter(state=JobState.RUNNING, started_at__isnull=False).only(
        "pk", "started_at", "walltime_s"
    ):
        if job.started_at is not None and now - job.started_at > dt.timedelta(seconds=job.walltime_s):
            attempt = Attempt.objects.filter(job=job).exclude(state=AttemptState.ENDED).first()
            if attempt is not None:
                message = f"ended after its walltime of {job.walltime_s} s"
                ended += end_attempt(attempt_id=attempt.pk, outcome=Outcome.OVER_WALLTIME, message=message)
    return ended
