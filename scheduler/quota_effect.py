"""What a change of quota did: the same figures for two spans of equal length, before it and since. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

from scheduler.quota import REFUSALS

USED: Final = """
SELECT coalesce(sum((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1) / s.card_memory_mib * ledger_seconds(
    least(coalesce(a.closing_at, clock_timestamp()), %(end)s) - greatest(lower(a.period), %(start)s))), 0)::bigint
FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id
WHERE a.project_id = ANY (%(projects)s::bigint[])
  AND a.period && tstzrange(%(start)s, %(end)s) AND coalesce(a.closing_at, 'infinity') > %(start)s
"""
WAITS: Final = """
SELECT count(*), coalesce(avg(wait), 0)::float8, coalesce(percentile_cont(0.9) WITHIN GROUP (ORDER BY wait), 0)::float8
FROM (SELECT extract(epoch FROM placed_at - queued_at) AS wait FROM ledger_job
  WHERE project_id = ANY (%(projects)s::bigint[]) AND placed_at >= %(start)s AND placed_at < %(end)s) AS placed
"""
REFUSED: Final = """
SELECT count(*) FROM scheduler_decision d JOIN ledger_job j ON j.id = d.job_id
WHERE j.project_id = ANY (%(projects)s::bigint[]) AND d.attempt_id IS NULL AND d.first_at < %(end)s
  AND d.at >= %(start)s AND EXISTS (SELECT 1 FROM jsonb_array_elements(d.reasons) AS ask WHERE ask ?| %(words)s)
"""
PREEMPTED: Final = """
SELECT count(DISTINCT t.id) FROM ledger_attempt t JOIN ledger_allocation a ON a.attempt_id = t.id
WHERE a.project_id = ANY (%(projects)s::bigint[]) AND t.outcome = 'preempted'
  AND a.closing_at >= %(start)s AND a.closing_at < %(end)s
"""

SPENT: Final = """
SELECT w.starts_at, w.ends_at, coalesce(sum((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1) / s.card_memory_mib
  * ledger_seconds(
    least(coalesce(a.closing_at, clock_timestamp()), w.ends_at) - greatest(lower(a.period), w.starts_at)))
  FILTER (WHERE %(model)s IN ('', c.model)), 0)::bigint
FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) AS w (starts_at, ends_at)
LEFT JOIN (ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id JOIN ledger_card c ON c.id = s.card_id)
  ON a.project_id = %(project)s AND a.period && tstzrange(w.starts_at, w.ends_at)
  AND coalesce(a.closing_at, 'infinity') > w.starts_at
GROUP BY 1, 2 ORDER BY 1 DESC
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """Milli-card-seconds of a project between two instants."""

    starts_at: dt.datetime
    ends_at: dt.datetime
    used: int


@dataclass(frozen=True, slots=True)
class Span:
    """`used`: milli-card-seconds. Waits: of jobs placed in it, from when they were last queued. `refused`: jobs whose
    last reason to wait was quota, ceiling or limit. `preempted`: attempts that were stopped for other work or a cut."""

    starts_at: dt.datetime
    ends_at: dt.datetime
    used: int
    placed: int
    mean_wait_s: float
    p90_wait_s: float
    refused: int
    preempted: int


def effect(projects: Sequence[int], changed_at: dt.datetime, now: dt.datetime) -> tuple[Span, Span]:
    """Of these projects together, before and since the change, for as long as it has stood."""
    length = now - changed_at
    return _span(projects, changed_at - length, changed_at), _span(projects, changed_at, now)


def spent(project_id: int, model: str, windows: Sequence[tuple[dt.datetime, dt.datetime]]) -> list[Spent]:
    """What a project used of cards, or of cards of one model, in each of these times, the newest first."""
    values: dict[str, Any] = {
        "project": project_id,
        "model": model,
        "starts": [start for start, _ in windows],
        "ends": [end for _, end in windows],
    }
    with connection.cursor() as cursor:
        cursor.execute(SPENT, values)
        return [Spent(*row) for row in cursor.fetchall()]


def _span(projects: Sequence[int], start: dt.datetime, end: dt.datetime) -> Span:
    values: dict[str, Any] = {
        "projects": list(projects),
        "start": start,
        "end": end,
        "words": [str(word) for word in REFUSALS],
    }
    with connection.cursor() as cursor:
        answers = []
        for query in (USED, WAITS, REFUSED, PREEMPTED):
            cursor.execute(query, values)
            answers.append(cursor.fetchone())
    (used,), (placed, mean, p90), (refused,), (preempted,) = answers
    return Span(start, end, used, placed, mean, p90, refused, preempted)
