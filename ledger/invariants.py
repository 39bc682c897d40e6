"""One query an invariant: each returns the rows that break it, so an empty answer is proof for that instant.

Run by `manage.py check_books`, after tests, and by beat every minute. Numbers are those of the reliability notes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.db import connection, transaction

from ledger import quarters, quota_invariants
from ledger.clock import database_now

INVARIANTS: Final[dict[str, tuple[str, str]]] = {
    "I1-card-once": (
        "no two shares of a card overlap in memory and time",
        "SELECT a.id, b.id, a.card_id FROM ledger_cardshare a JOIN ledger_cardshare b ON a.card_id = b.card_id "
        "AND a.id < b.id AND a.memory && b.memory AND a.period && b.period "
        "WHERE upper_inf(a.period) OR upper(a.period) > now() - interval '2 days'",
    ),
    "I2-one-form": (
        "a node never holds two forms at once",
        "SELECT a.id, b.id, a.node_id FROM ledger_allocation a JOIN ledger_allocation b ON a.node_id = b.node_id "
        "AND a.id < b.id AND a.period && b.period AND (a.form <> b.form OR a.form = 'whole') "
        "WHERE upper_inf(a.period) OR upper(a.period) > now() - interval '2 days'",
    ),
    "I3-whole-is-whole": (
        "a live whole allocation holds every card that sat in its node when it began, fully",
        "SELECT a.id, s.card_id FROM ledger_allocation a JOIN ledger_cardseat s ON s.node_id = a.node_id "
        "AND s.period @> lower(a.period) JOIN ledger_card c ON c.id = s.card_id "
        "WHERE a.form = 'whole' AND upper_inf(a.period) AND NOT EXISTS (SELECT 1 FROM ledger_cardshare x "
        "WHERE x.allocation_id = a.id AND x.card_id = s.card_id AND x.memory_mib = c.memory_mib)",
    ),
    "I5-shares-fit": (
        "the live shares of a card sum to at most its memory",
        "SELECT s.card_id, sum(s.memory_mib), max(c.memory_mib) FROM ledger_cardshare s JOIN ledger_card c "
        "ON c.id = s.card_id WHERE upper_inf(s.period) GROUP BY s.card_id HAVING sum(s.memory_mib) > max(c.memory_mib)",
    ),
    "I5-node-fits": (
        "the live allocations of a node fit its CPU and memory",
        "SELECT n.hostname, sum(a.cpu_milli), n.cpu_milli, sum(a.host_memory_mib), n.host_memory_mib "
        "FROM ledger_allocation a JOIN ledger_node n ON n.id = a.node_id WHERE upper_inf(a.period) GROUP BY n.id "
        "HAVING sum(a.cpu_milli) > n.cpu_milli OR sum(a.host_memory_mib) > n.host_memory_mib",
    ),
    "I6-held-gets-nothing": (
        "no allocation began on a node or card while it was held, by its links alone: but for work on that one card",
        "SELECT a.id, h.id FROM ledger_allocation a JOIN ledger_hold h ON h.node_id = a.node_id "
        "AND h.period @> lower(a.period) AND lower(h.period) < lower(a.period) "
        "UNION ALL SELECT s.allocation_id, h.id FROM ledger_cardshare s JOIN ledger_hold h ON h.card_id = s.card_id "
        "AND h.period @> lower(s.period) AND lower(h.period) < lower(s.period) "
        "JOIN ledger_allocation b ON b.id = s.allocation_id WHERE h.kind <> 'link' OR b.form <> 'container' "
        "OR 1 < (SELECT count(*) FROM ledger_cardshare y JOIN ledger_allocation z ON z.id = y.allocation_id "
        "WHERE z.attempt_id = b.attempt_id)",
    ),
    "I7-gang-whole": (
        "the members of a live attempt are all open or all closing; none is closed while a sibling runs",
        "SELECT attempt_id, array_agg(DISTINCT state) FROM ledger_allocation WHERE attempt_id IN "
        "(SELECT id FROM ledger_attempt WHERE state <> 'ended') GROUP BY attempt_id "
        "HAVING bool_or(state IN ('closing', 'closed')) AND bool_or(state IN ('opening', 'active'))",
    ),
    "I8-one-live-attempt": (
        "a job has at most one live attempt, and exactly one while it starts, runs or stops",
        "SELECT j.id, j.state, count(a.id) FROM ledger_job j LEFT JOIN ledger_attempt a ON a.job_id = j.id "
        "AND a.state <> 'ended' WHERE j.state IN ('starting', 'running', 'stopping', 'queued') GROUP BY j.id "
        "HAVING count(a.id) <> (j.state <> 'queued')::int",
    ),
    "I9-ended-is-ended": (
        "an ended job has no live attempt and says when it ended",
        "SELECT j.id, j.state FROM ledger_job j WHERE j.state IN ('succeeded', 'failed', 'cancelled', 'preempted') "
        "AND (j.ended_at IS NULL OR EXISTS (SELECT 1 FROM ledger_attempt a WHERE a.job_id = j.id "
        "AND a.state <> 'ended'))",
    ),
    "I9-attempt-and-members": (
        "an ended attempt has only closed allocations, and a live one has an open allocation",
        "SELECT t.id, t.state FROM ledger_attempt t WHERE (t.state = 'ended') = EXISTS (SELECT 1 "
        "FROM ledger_allocation a WHERE a.attempt_id = t.id AND upper_inf(a.period))",
    ),
    "I12-share-follows": (
        "every share has the period and node of its allocation",
        "SELECT s.id FROM ledger_cardshare s JOIN ledger_allocation a ON a.id = s.allocation_id "
        "WHERE s.period <> a.period OR s.node_id <> a.node_id",
    ),
    **quota_invariants.INVARIANTS,
    "I15-seats": (
        "every card sits in at most one seat now, and every share's card sat in its seat all the while",
        "SELECT s.id FROM ledger_cardshare s JOIN ledger_cardseat t ON t.id = s.seat_id WHERE NOT t.period @> s.period",
    ),
    "I17-times": (
        "closing lies inside the allocation's period, and activity before closing",
        "SELECT id FROM ledger_allocation WHERE closing_at < lower(period) OR closing_at > upper(period) "
        "OR active_at < lower(period) OR active_at > closing_at",
    ),
    "I18-audited": (
        "every job has the audit row of its submission",
        "SELECT j.id FROM ledger_job j WHERE NOT EXISTS (SELECT 1 FROM ledger_auditevent e WHERE e.target_type = 'job' "
        "AND e.target_id = j.id::text AND e.verb = 'job.submitted')",
    ),
    "I21-outbox": (
        "every live member has its command: a start, and a stop once it closes",
        "SELECT a.id, a.state FROM ledger_allocation a WHERE upper_inf(a.period) AND NOT EXISTS (SELECT 1 FROM "
        "scheduler_command c WHERE c.allocation_id = a.id AND c.verb = CASE a.state WHEN 'closing' THEN 'stop' "
        "ELSE 'start' END)",
    ),
    "worlds-apart": (
        "real jobs never stand on simulated nodes, nor simulated jobs on real ones",
        "SELECT a.id FROM ledger_allocation a JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j "
        "ON j.id = t.job_id JOIN ledger_node n ON n.id = a.node_id WHERE n.simulated <> j.simulated",
    ),
    "ended-holds-nothing": (
        "no project that has ended holds anything: no allocation, no grant, no job in the queue for over a minute",
        "SELECT p.slug, 'allocation', a.id FROM ledger_project p JOIN ledger_allocation a ON a.project_id = p.id "
        "WHERE p.state = 'ended' AND upper_inf(a.period) UNION ALL SELECT p.slug, 'grant', g.id FROM ledger_project p "
        "JOIN ledger_quotagrant g ON g.project_id = p.id JOIN ledger_receipt r ON r.project_id = p.id "
        "WHERE g.period @> now() AND p.state = 'ended' UNION ALL SELECT p.slug, 'job', j.id FROM ledger_project p "
        "JOIN ledger_job j ON j.project_id = p.id WHERE p.state = 'ended' AND j.state = 'queued' "
        "AND j.queued_at < now() - interval '1 minute'",
    ),
    "ends-in-time": (
        "no project holds anything an hour after its grace",
        "SELECT p.slug, a.id FROM ledger_project p JOIN ledger_allocation a ON a.project_id = p.id "
        "WHERE p.state = 'ending' AND upper_inf(a.period) AND now() - interval '1 hour' > coalesce(p.end_ordered_at, "
        "(p.ends_on + 1)::timestamp AT TIME ZONE 'UTC' + make_interval(days => p.grace_days))",
    ),
    "guardian-orphans": (
        "no permission of somebody who left the project",
        "SELECT p.id FROM ledger_projectuserpermission p WHERE NOT EXISTS (SELECT 1 FROM ledger_membership m "
        "WHERE m.project_id = p.content_object_id AND m.user_id = p.user_id)",
    ),
    "odd-grants-end": (
        "no permission of a zone or a department without an odd grant, an hour after its end at the latest",
        "SELECT 'zone', p.id FROM ledger_zoneuserpermission p WHERE NOT EXISTS (SELECT 1 FROM ledger_oddgrant g "
        "WHERE g.user_id = p.user_id AND g.zone_id = p.content_object_id AND upper(g.period) > now() - interval "
        "'1 hour') UNION ALL SELECT 'department', p.id FROM ledger_departmentuserpermission p WHERE NOT EXISTS "
        "(SELECT 1 FROM ledger_oddgrant g WHERE g.user_id = p.user_id AND g.department_id = p.content_object_id "
        "AND upper(g.period) > now() - interval '1 hour')",
    ),
}

ROLL_UP: Final = "roll-up"
ROLL_UP_MEANING: Final = "every rolled-up quarter looked at is what the book says"
NAMES: Final = (*INVARIANTS, ROLL_UP)


@dataclass(frozen=True)
class Finding:
    name: str
    meaning: str
    rows: list[tuple[Any, ...]]


def check(limit: int = 20) -> list[Finding]:
    """Every broken invariant with up to `limit` offending rows; [] when the books are clean. One snapshot."""
    findings = []
    with transaction.atomic(), connection.cursor() as cursor:
        if len(connection.savepoint_ids) == 0:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name, (meaning, query) in INVARIANTS.items():
            cursor.execute(f"SELECT * FROM ({query}) AS broken LIMIT %s", [limit])  # noqa: S608  constants above
            rows = cursor.fetchall()
            if rows:
                findings.append(Finding(name, meaning, rows))
        if wrong := quarters.differences(quarters.to_check(database_now()), limit):
            findings.append(Finding(ROLL_UP, ROLL_UP_MEANING, wrong))
    return findings
