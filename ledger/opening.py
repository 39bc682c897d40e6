"""How attempts begin: many at once, each of a queued job, with their allocations and shares, or none where the database
refuses one. With ledger.book the only writer of these rows.

A step inside a durable transaction that its caller in scheduler opens, as those of ledger.book. Lock order: departments
from the root down, projects, nodes by id, then the jobs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.db import connection

from ledger import audit, rows
from ledger.book import require_transaction
from ledger.clock import database_now
from ledger.errors import Conflict
from ledger.fields import Interval
from ledger.models import Allocation, Attempt, CardShare, Job
from ledger.vocabulary import Form, JobState

# keys come as one array each: a placeholder for every key costs more than what is done with it
# only those that have a ceiling, from the root down: most projects stand under none
ANY_CEILING = "SELECT EXISTS (SELECT FROM ledger_departmentceiling WHERE period @> clock_timestamp())"
LOCK_DEPARTMENTS = """
WITH capped AS (SELECT DISTINCT department_id FROM ledger_departmentceiling WHERE period @> clock_timestamp()),
above AS (SELECT ledger_department_chain(department_id) AS ids FROM ledger_project WHERE id = ANY (%s::bigint[]))
SELECT FROM ledger_department d
WHERE d.id IN (SELECT department_id FROM capped) AND d.id IN (SELECT unnest(ids) FROM above)
ORDER BY cardinality(ledger_department_chain(d.id)), d.id FOR NO KEY UPDATE OF d
"""
LOCK_PROJECTS = "SELECT FROM ledger_project WHERE id = ANY (%s::bigint[]) ORDER BY id FOR NO KEY UPDATE"
LOCK_NODES = "SELECT FROM ledger_node WHERE id = ANY (%s::bigint[]) ORDER BY id FOR NO KEY UPDATE"
START_JOBS = """
WITH queued AS (
    SELECT id FROM ledger_job WHERE id = ANY (%(jobs)s::bigint[]) AND state = 'queued' ORDER BY id FOR NO KEY UPDATE
)
UPDATE ledger_job j SET state = 'starting', placed_at = %(now)s, message = '' FROM queued WHERE j.id = queued.id
RETURNING j.id
"""
NEXT_NUMBERS = """
SELECT coalesce((SELECT max(n) FROM ledger_attempt a WHERE a.job_id = j.job_id), 0) + 1, nextval('ledger_fence')
FROM unnest(%s::bigint[]) AS j (job_id)
"""


# fields of Allocation and CardShare that an order writes out; the rest is known only when it is carried out
OF_MEMBER: Final = ("node_id", "form", "driver", "zone_then_id", "cpu_milli", "host_memory_mib")
OF_SHARE: Final = ("seat_id", "card_id", "block_id", "card_memory_mib", "memory", "compute", "memory_mib")


@dataclass(frozen=True, slots=True)
class ShareOrder:
    """A part of one card: `memory` in MiB intervals, `compute` in intervals of 0..1000 (empty = best effort)."""

    seat_id: int
    card_id: int
    card_memory_mib: int
    block_id: int | None
    memory: Sequence[Interval]
    compute: Sequence[Interval] = ()
    row: str = field(init=False, repr=False, compare=False)  # its values of OF_SHARE

    def __post_init__(self) -> None:
        values = (
            self.seat_id,
            self.card_id,
            self.block_id,
            self.card_memory_mib,
            _multirange(self.memory),
            _multirange(self.compute),
            self.memory_mib,
        )
        object.__setattr__(self, "row", rows.text(dict(zip(OF_SHARE, values, strict=True))))

    @property
    def memory_mib(self) -> int:
        return sum(hi - lo for lo, hi in self.memory)


@dataclass(frozen=True, slots=True)
class MemberOrder:
    node_id: int
    form: Form
    driver: str
    zone_id: int | None
    cpu_milli: int
    host_memory_mib: int
    shares: Sequence[ShareOrder]
    row: str = field(init=False, repr=False, compare=False)  # its values of OF_MEMBER

    def __post_init__(self) -> None:
        values = (self.node_id, self.form, self.driver, self.zone_id, self.cpu_milli, self.host_memory_mib)
        object.__setattr__(self, "row", rows.text(dict(zip(OF_MEMBER, values, strict=True))))


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """The next attempt of a queued job: on all these nodes or not at all."""

    job_id: int
    project_id: int
    members: Sequence[MemberOrder]


@dataclass(frozen=True, slots=True)
class OpenedMember:
    allocation_id: int
    node_id: int
    driver: str


@dataclass(frozen=True, slots=True)
class OpenedAttempt:
    attempt_id: int
    job_id: int
    project_id: int
    n: int
    members: Sequence[OpenedMember]


def lock_for_opening(project_ids: Iterable[int], node_ids: Iterable[int]) -> dt.datetime:
    """Lock what will be consumed, in the house order, and return the instant from which periods may start."""
    projects = sorted(set(project_ids))
    with connection.cursor() as cursor:
        cursor.execute(ANY_CEILING)
        if cursor.fetchone()[0]:
            cursor.execute(LOCK_DEPARTMENTS, [projects])
        cursor.execute(LOCK_PROJECTS, [projects])
        cursor.execute(LOCK_NODES, [sorted(set(node_ids))])
    return database_now()


def open_attempt(order: AttemptOrder, *, now: dt.datetime) -> OpenedAttempt:
    """Open one attempt; see open_attempts. Conflict when its job is no longer queued."""
    opened = open_attempts([order], now=now)
    if not opened:
        raise Conflict(f"job {order.job_id} is no longer queued", code="lost_race")
    return opened[0]


def open_attempts(orders: Sequence[AttemptOrder], *, now: dt.datetime) -> list[OpenedAttempt]:
    """Open these attempts, one a job, in a few statements whatever their number. Jobs that are no longer queued are
    left out. django.db.IntegrityError when the database refuses any of them: run it inside a savepoint, which takes
    them all back. The caller gives all that it opened to record_opened before its transaction ends."""
    require_transaction()
    queued = _start_jobs([order.job_id for order in orders], now)
    orders = [order for order in orders if order.job_id in queued]
    numbers = _next_numbers([order.job_id for order in orders])
    attempt_ids = rows.insert(
        Attempt,
        [{"job_id": order.job_id, "n": n, "fence": fence} for order, (n, fence) in zip(orders, numbers, strict=True)],
        opened_at=now,
    )
    ids = iter(_insert_members(attempt_ids, orders, now))
    return [
        OpenedAttempt(
            attempt_id=attempt_id,
            job_id=order.job_id,
            project_id=order.project_id,
            n=n,
            members=[OpenedMember(next(ids), member.node_id, member.driver) for member in order.members],
        )
        for attempt_id, order, (n, _) in zip(attempt_ids, orders, numbers, strict=True)
    ]


def _insert_members(attempt_ids: Sequence[int], orders: Sequence[AttemptOrder], now: dt.datetime) -> list[int]:
    """The allocations of all members with their shares; their keys, attempt by attempt."""
    members = [
        (attempt_id, order.project_id, rank, member)
        for attempt_id, order in zip(attempt_ids, orders, strict=True)
        for rank, member in enumerate(order.members)
    ]
    period = (now, None)
    allocation_ids = rows.insert(
        Allocation,
        [member.row for *_, member in members],
        names=OF_MEMBER,
        columns={name: [each[n] for each in members] for n, name in enumerate(("attempt_id", "project_id", "rank"))},
        period=period,
    )
    shares = [
        (allocation_id, member.node_id, share.row)
        for allocation_id, (*_, member) in zip(allocation_ids, members, strict=True)
        for share in member.shares
    ]
    rows.insert(
        CardShare,
        [row for *_, row in shares],
        names=OF_SHARE,
        columns={name: [each[n] for each in shares] for n, name in enumerate(("allocation_id", "node_id"))},
        period=period,
    )
    if any(member.form != Form.CONTAINER for *_, member in members):
        _check_cover_now()
    return allocation_ids


def _start_jobs(job_ids: Sequence[int], now: dt.datetime) -> set[int]:
    """Move those of these jobs that are still queued; they are locked in order."""
    with connection.cursor() as cursor:
        cursor.execute(START_JOBS, {"jobs": list(job_ids), "now": now})
        return {job_id for (job_id,) in cursor.fetchall()}


def _next_numbers(job_ids: Sequence[int]) -> list[tuple[int, int]]:
    """The number of the next attempt of each of these jobs, and its fence."""
    with connection.cursor() as cursor:
        cursor.execute(NEXT_NUMBERS, [list(job_ids)])
        return list(cursor.fetchall())


def _multirange(intervals: Sequence[Interval]) -> str:
    return "{" + ",".join(f"[{lo},{hi})" for lo, hi in intervals) + "}"


def record_opened(opened: Sequence[OpenedAttempt], *, now: dt.datetime, via: str, reason: str) -> None:
    """The audit rows of attempts that open_attempts opened, in the same transaction."""
    audit.record_alike(
        [
            {
                "target_id": one.job_id,
                "project_id": one.project_id,
                "after": {
                    "state": JobState.STARTING,
                    "attempt": one.n,
                    "nodes": [member.node_id for member in one.members],
                },
            }
            for one in opened
        ],
        target=Job,
        verb="job.placed",
        before={"state": JobState.QUEUED},
        via=via,
        reason=reason,
        at=now,
    )


def _check_cover_now() -> None:
    """A whole machine or block left uncovered must fail in the caller's savepoint, not at the commit of a batch."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SET CONSTRAINTS form_covers_its_cards IMMEDIATE; SET CONSTRAINTS form_covers_its_cards DEFERRED"
        )
