"""What projects may count on, who might be stopped for others, and what is kept for whom: the database's rows as the
engine wants them. Reads only.

Usage is read from the roll-up and, for what is not rolled up yet, from the book; it changes slowly against its
half-life and is kept in the process for a while."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from django.conf import settings
from django.db import connection

from ledger.vocabulary import Form, JobKind
from scheduler.engine.fairness import tier
from scheduler.engine.types import Claim, Standing, Tenant

GOOD_FOR_S: Final = 60.0
HALF_LIVES: Final = 8  # what is older counts for less than 0.4 %
MOST_DOUBLINGS: Final = 10
GRANTS: Final = """
SELECT project_id, guaranteed, amount, weight FROM ledger_quotagrant
WHERE resource = 'card_milli' AND model = '' AND period @> clock_timestamp()
  AND EXISTS (SELECT 1 FROM ledger_quotagrant
      WHERE resource = 'card_milli' AND model = '' AND period @> clock_timestamp() AND (guaranteed > 0 OR weight > 1))
"""
MILLI: Final = "((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1) / s.card_memory_mib)"
HELD: Final = f"""
WITH each AS (
    SELECT a.attempt_id, a.node_id, a.project_id, sum({MILLI})::bigint AS milli
    FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id
    WHERE upper_inf(a.period) AND upper_inf(s.period) AND a.state <> 'closing' GROUP BY 1, 2, 3
)
SELECT e.project_id, n.simulated, sum(e.milli)::bigint,
    coalesce(sum(e.milli) FILTER (WHERE j.kind = ANY (%(serving)s::text[])), 0)::bigint
FROM each e JOIN ledger_node n ON n.id = e.node_id JOIN ledger_attempt t ON t.id = e.attempt_id
    JOIN ledger_job j ON j.id = t.job_id GROUP BY 1, 2
"""  # noqa: S608
USAGE: Final = f"""
WITH at AS (SELECT clock_timestamp() AS now, make_interval(secs => %(half)s * {HALF_LIVES}) AS far),
rolled AS (SELECT coalesce((SELECT until FROM ledger_rollup), '-infinity') AS until),
parts AS (
    SELECT q.project_id, q.simulated, q.mib_seconds * 1000.0 / q.card_memory_mib AS milli_s, q.starts_at AS since
    FROM ledger_usagequarter q, at WHERE q.account = 'used' AND q.starts_at > at.now - at.far
    UNION ALL  -- less what was refunded of these quarters
    SELECT f.project_id, n.simulated, -s.memory_mib * 1000.0 / s.card_memory_mib * extract(epoch FROM
        least(a.closing_at, q.at + interval '15 min') - greatest(lower(a.period), q.at)), q.at
    FROM at, rolled, ledger_refund f JOIN ledger_allocation a ON a.attempt_id = f.attempt_id
        JOIN ledger_cardshare s ON s.allocation_id = a.id JOIN ledger_node n ON n.id = a.node_id
        CROSS JOIN LATERAL generate_series(date_bin('15 min', greatest(lower(a.period), at.now - at.far
            + interval '15 min'), 'epoch'), least(a.closing_at, rolled.until - interval '1 us'), '15 min') AS q (at)
    WHERE f.at > at.now - at.far AND a.closing_at > lower(a.period) AND isfinite(rolled.until)
    UNION ALL
    SELECT a.project_id, n.simulated, greatest(0, {MILLI} * extract(epoch FROM
        least(a.closing_at, at.now) - greatest(lower(a.period), rolled.until, at.now - at.far))), lower(a.period)
    FROM at, rolled, ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id
        JOIN ledger_node n ON n.id = a.node_id
    WHERE a.period && tstzrange(greatest(rolled.until, at.now - at.far), NULL)
        AND NOT EXISTS (SELECT FROM ledger_refund f WHERE f.attempt_id = a.attempt_id)
)
SELECT project_id, simulated, greatest(0, sum(milli_s
    * power(0.5::float8, extract(epoch FROM at.now - since)::float8 / %(half)s)))::bigint
FROM parts, at GROUP BY 1, 2
"""  # noqa: S608
TENANTS: Final = """
SELECT t.id, t.job_id, j.project_id, j.simulated, j.kind, j.priority, j.preemptible, b.began,
    b.began + least(%(longest)s, %(run)s * power(2, least(%(most)s, (SELECT count(*) FROM ledger_attempt o
        WHERE o.job_id = t.job_id AND o.n < t.n AND o.outcome = 'preempted')))), t.state = 'stopping'
FROM ledger_attempt t JOIN ledger_job j ON j.id = t.job_id
    CROSS JOIN LATERAL (SELECT extract(epoch FROM coalesce(j.started_at, t.opened_at))::float8 AS began) b
WHERE t.state IN ('starting', 'running', 'stopping') AND (
    (t.state = 'stopping' AND EXISTS (SELECT 1 FROM ledger_allocation a WHERE a.attempt_id = t.id
        AND upper_inf(a.period) AND a.closing_at > clock_timestamp() - make_interval(secs => %(stops)s)))
    OR (t.state <> 'stopping' AND (j.preemptible OR j.project_id = ANY (%(borrowers)s::bigint[]))
        AND (%(young)s OR b.began + %(run)s <= extract(epoch FROM clock_timestamp()))))
    AND (%(project)s::bigint IS NULL OR j.project_id = %(project)s)
"""
CLAIMS: Final = """
SELECT p.job_id, p.ask_index, p.form, p.nodes, extract(epoch FROM p.made_at)::float8 + p.grace_s,
    extract(epoch FROM p.kept_until)::float8,
    ARRAY(SELECT t.job_id FROM scheduler_preemptionvictim v JOIN ledger_attempt t ON t.id = v.attempt_id
        WHERE v.preemption_id = p.id AND t.state <> 'ended' ORDER BY 1)
FROM scheduler_preemption p JOIN ledger_job j ON j.id = p.job_id
WHERE p.kept_until > clock_timestamp() AND j.state = 'queued' AND j.queued_at <= p.made_at ORDER BY p.id
"""
World = tuple[int, bool]  # a project and whether simulated


@dataclass
class _Usage:
    by: dict[World, int]
    read_at: float


_kept: _Usage | None = None


def forget() -> None:
    """Drop what is kept (tests, a new database)."""
    global _kept
    _kept = None


def read() -> tuple[Standing, ...]:
    """Of every project with a grant of cards or that holds any; nothing while nobody has a guarantee or a weight."""
    with connection.cursor() as cursor:
        cursor.execute(GRANTS)
        grants = {project: rest for project, *rest in cursor.fetchall()}
        if not grants:
            return ()
        cursor.execute(HELD, {"serving": [kind for kind in JobKind if tier(kind)]})
        held: dict[World, tuple[int, int]] = {(project, world): both for project, world, *both in cursor.fetchall()}
    used = usage()
    keys = {(project, world) for project in grants for world in (False, True)} | held.keys() | used.keys()
    standings = []
    for project, world in sorted(keys):
        guaranteed, limit, weight = grants.get(project, (0, None, 1))
        key = project, world
        holds, serving = held.get(key, (0, 0))
        standings.append(Standing(*key, guaranteed, limit, weight, holds, used.get(key, 0), serving))
    return tuple(standings)


def usage() -> dict[World, int]:
    """Milli-card-seconds by project and world; after FAIR_SHARE_HALF_LIFE_HOURS they count half."""
    global _kept
    if _kept is None or monotonic() - _kept.read_at > GOOD_FOR_S:
        with connection.cursor() as cursor:
            cursor.execute(USAGE, {"half": max(settings.FAIR_SHARE_HALF_LIFE_HOURS * 3600.0, 1.0)})
            rows = cursor.fetchall()
        _kept = _Usage({(project, world): milli_s for project, world, milli_s in rows if project}, monotonic())
    return _kept.by


def tenants(borrowers: Collection[int], *, project: int | None = None, young: bool = False) -> list[Tenant]:
    """Live attempts that are being stopped, but for those whose stop hangs, and those past their minimum run time
    that say they may be stopped or are of these projects; with `young` those before it too. The minimum doubles each
    time that a job was stopped for others, so that it always gets on, up to PREEMPT_MOST_RUN_S: no longer does an owner
    wait for what was borrowed. `project`: of this one alone."""
    values: dict[str, Any] = {
        "run": settings.PREEMPT_MIN_RUN_S,
        "longest": max(settings.PREEMPT_MOST_RUN_S, settings.PREEMPT_MIN_RUN_S),
        "stops": settings.PREEMPT_GRACE_S + settings.PREEMPT_KEPT_S,
        "most": MOST_DOUBLINGS,
        "borrowers": list(borrowers),
        "project": project,
        "young": young,
    }
    with connection.cursor() as cursor:
        cursor.execute(TENANTS, values)
        return [
            Tenant(pk, job, project, world, JobKind(kind), priority, may, began, safe_until, closing)
            for pk, job, project, world, kind, priority, may, began, safe_until, closing in cursor.fetchall()
        ]


def claims() -> tuple[Claim, ...]:
    """What is kept for waiting jobs, the oldest first. A claim is over when its time is, or when its job was placed."""
    with connection.cursor() as cursor:
        cursor.execute(CLAIMS)
        rows = cursor.fetchall()
    return tuple(
        Claim(job, ask, Form(form), _ids(nodes), begins, until, tuple(awaits))
        for job, ask, form, nodes, begins, until, awaits in rows
    )


def _ids(nodes: str | list[int]) -> tuple[int, ...]:
    return tuple(map(int, nodes if isinstance(nodes, list) else nodes.strip("[]").split(",")))
