"""Cuts of quota that have a date: from then on jobs are ended until what runs fits, and wait in the queue anew. Nothing
else ends work for a quota.

Each look is worked out anew from the rows, so that it may be cut off or run twice anywhere: what is closing already
counts as gone. As few jobs as possible are ended, and among those the ones that lose least. A grant or ceiling that
fails does not stop the others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import DatabaseError, connection

from ledger import limits
from ledger.clock import database_now
from ledger.limits import Timed
from ledger.models import DepartmentCeiling, QuotaGrant
from ledger.vocabulary import Outcome, Resource
from scheduler.ending import end_attempt

log = logging.getLogger(__name__)
GRACE_S: Final = 120  # after the job's checkpoint signal
# What each open attempt would give back, and what it would lose: milli-card-seconds since it began. Of a budget, what
# is set aside beyond the time that has passed.
HOLDING: Final = """
WITH held AS (
  SELECT a.attempt_id, bool_or(a.closing_at IS NOT NULL) AS closing, min(lower(a.period)) AS since,
    sum(CASE WHEN a.form = 'whole' THEN 1 ELSE 0 END) AS whole_nodes, sum(a.cpu_milli) AS cpu_milli,
    sum(a.host_memory_mib) AS host_memory_mib, sum(s.card_milli) AS card_milli,
    sum(s.all_milli) AS all_milli, sum(s.card_memory_mib) AS card_memory_mib
  FROM ledger_allocation a CROSS JOIN LATERAL (SELECT
      coalesce(sum((x.memory_mib::bigint * 1000 + x.card_memory_mib - 1) / x.card_memory_mib), 0) AS all_milli,
      coalesce(sum((x.memory_mib::bigint * 1000 + x.card_memory_mib - 1) / x.card_memory_mib)
        FILTER (WHERE %(model)s IN ('', c.model)), 0) AS card_milli,
      coalesce(sum(x.memory_mib) FILTER (WHERE %(model)s IN ('', c.model)), 0) AS card_memory_mib
    FROM ledger_cardshare x JOIN ledger_card c ON c.id = x.card_id WHERE x.allocation_id = a.id) AS s
  WHERE a.project_id = ANY (%(projects)s::bigint[]) AND upper_inf(a.period) GROUP BY a.attempt_id
)
SELECT h.attempt_id, h.closing, CASE %(resource)s
    WHEN 'card_milli' THEN h.card_milli WHEN 'card_memory_mib' THEN h.card_memory_mib
    WHEN 'whole_nodes' THEN h.whole_nodes WHEN 'cpu_milli' THEN h.cpu_milli
    WHEN 'host_memory_mib' THEN h.host_memory_mib ELSE h.card_milli * greatest(0,
      j.walltime_s - ledger_seconds(clock_timestamp() - h.since)) END::bigint,
  (greatest(h.all_milli, 1) * ledger_seconds(clock_timestamp() - h.since))::bigint, j.id, j.name
FROM held h JOIN ledger_attempt t ON t.id = h.attempt_id JOIN ledger_job j ON j.id = t.job_id ORDER BY h.attempt_id
"""


@dataclass(frozen=True, slots=True)
class Holding:
    """An open attempt. `gives`: what ending it gives back of the resource; `loses`: milli-card-seconds of work."""

    attempt_id: int
    closing: bool
    gives: int
    loses: int
    job_id: int
    name: str


def holdings(row: Timed) -> list[Holding]:
    """What is open under a grant or a ceiling."""
    values: dict[str, Any] = {"projects": _projects(row), "resource": row.resource, "model": row.model}
    with connection.cursor() as cursor:
        cursor.execute(HOLDING, values)
        return [Holding(*found) for found in cursor.fetchall()]


def victims(open_now: Sequence[Holding], excess: int) -> list[Holding]:
    """Those to end so that at least `excess` is given back: as few as can be, of these one by one the one that loses
    least of those that still let the rest suffice. All, when all together do not suffice."""
    excess -= sum(one.gives for one in open_now if one.closing)
    left = sorted((one for one in open_now if not one.closing and one.gives > 0), key=lambda one: -one.gives)
    count = _fewest(left, excess)
    chosen: list[Holding] = []
    while excess > 0 and left:
        rest = count - len(chosen) - 1
        able = [one for one in left if one.gives + _most(left, rest, one) >= excess] or left
        least = min(able, key=lambda one: (one.loses, -one.attempt_id))
        chosen.append(least)
        left.remove(least)
        excess -= least.gives
    return chosen


def _fewest(largest_first: Sequence[Holding], excess: int) -> int:
    count, given = 0, 0
    while given < excess and count < len(largest_first):
        given += largest_first[count].gives
        count += 1
    return count


def _most(largest_first: Sequence[Holding], count: int, without: Holding) -> int:
    """What so many of the others give back at most."""
    others = [one.gives for one in largest_first[: count + 1] if one is not without]
    return sum(others[: max(0, count)])


def over(row: Timed) -> int:
    """How much more is used than may be; 0 or less when it fits."""
    return limits.used(_projects(row), row.resource, row.model, limits.since_of(row, database_now())) - row.amount


def _projects(row: Timed) -> list[int]:
    return [row.project_id] if isinstance(row, QuotaGrant) else limits.projects_below(row.department_id)


def drain_all() -> dict[str, Any]:
    """One look at every grant and ceiling whose date has come, for the periodic task."""
    now, counts = database_now(), Counter[str]()
    due = {"period__contains": now, "drain_at__lte": now}
    rows: list[Timed] = [
        *DepartmentCeiling.objects.filter(**due).select_related("department").order_by("pk"),
        *QuotaGrant.objects.filter(**due).select_related("project").order_by("pk"),
    ]
    for row in rows:
        counts["looked_at"] += 1
        try:
            counts["ended"] += drain(row)
        except DatabaseError:
            log.exception("what is over %s can't be ended", row)
            counts["failed"] += 1
    return dict(counts)


def drain(row: Timed) -> int:
    """End what is over one grant or ceiling. Returns how many jobs this call began to end."""
    held = holdings(row)  # first: what closes between the two is missing in the excess, and not the other way round
    excess = over(row)
    if excess <= 0:
        return 0
    ended = 0
    for one in victims(held, excess):
        if not _is_due(row):
            break
        ended += end_attempt(attempt_id=one.attempt_id, outcome=Outcome.PREEMPTED, message=_why(row), grace_s=GRACE_S)
    return ended


def _is_due(row: Timed) -> bool:
    """Whether nobody has given it another amount or date meanwhile."""
    now = database_now()
    return type(row).objects.filter(pk=row.pk, period__contains=now, drain_at__lte=now).exists()


def _why(row: Timed) -> str:
    whose = f"project {row.project.slug}" if isinstance(row, QuotaGrant) else f"department {row.department.slug}"
    at = row.drain_at.isoformat(timespec="minutes") if row.drain_at else "now"
    return f"the quota of {whose} was cut to {row.amount} {Resource(row.resource)} with effect from {at}"
