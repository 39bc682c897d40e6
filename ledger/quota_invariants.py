"""The invariants of grants, ceilings and limits, as those of ledger.invariants: each query returns what breaks it.

What is held at commit may be above what was granted later, by a cut or by a smaller grant that came back: then nothing
more that takes of it is placed. Nothing but the names here goes into the queries.
"""

from __future__ import annotations

from typing import Final

GRANT_USE: Final = (
    "CROSS JOIN LATERAL (SELECT ledger_projects_use(ARRAY[g.project_id], g.resource, g.model, "
    "ledger_counted_since(g.counted_from, g.period, g.renews)) AS use) AS u"
)
CEILING_USE: Final = (
    "CROSS JOIN LATERAL (SELECT ledger_projects_use(ledger_department_projects(g.department_id), g.resource, g.model, "
    "ledger_counted_since(g.counted_from, g.period, g.renews)) AS use) AS u"
)
TAKES_OF: Final = (  # whether an allocation takes of what is limited
    "CASE g.resource WHEN 'whole_nodes' THEN a.form = 'whole' WHEN 'cpu_milli' THEN a.cpu_milli > 0 "
    "WHEN 'host_memory_mib' THEN a.host_memory_mib > 0 ELSE EXISTS (SELECT 1 FROM ledger_cardshare s "
    "JOIN ledger_card c ON c.id = s.card_id WHERE s.allocation_id = a.id AND g.model IN ('', c.model)) END"
)
TAKES: Final = f"upper_inf(a.period) AND lower(a.period) > lower(g.period) AND {TAKES_OF}"
TAKES_OF_LIMIT: Final = TAKES_OF.replace("g.model", "''").replace("g.resource", "l.resource")
ABOVE: Final = "g.period @> clock_timestamp() AND u.use > g.amount AND g.drain_at IS NULL"
UNBOUND: Final = (
    "g.period @> clock_timestamp() AND g.used_at_most < u.use "
    "AND (g.bound_until IS NULL OR g.bound_until > clock_timestamp())"
)
INVARIANTS: Final[dict[str, tuple[str, str]]] = {
    "I14-quota": (
        "no project holds more than its grant, unless it drains or the grant came later than what it holds",
        f"SELECT g.project_id, g.resource, g.model, g.amount, u.use FROM ledger_quotagrant g {GRANT_USE} "  # noqa: S608
        f"WHERE {ABOVE} AND g.resource <> 'card_milli_s' "
        f"AND EXISTS (SELECT 1 FROM ledger_allocation a WHERE a.project_id = g.project_id AND {TAKES})",
    ),
    "I14-budget": (
        "no project set more aside than its budget, unless it drains or the budget came later",
        "SELECT g.project_id, g.model, g.amount, u.use FROM ledger_quotagrant g CROSS JOIN LATERAL (SELECT "  # noqa: S608
        "ledger_counted_since(g.counted_from, g.period, g.renews) AS since) AS f CROSS JOIN LATERAL (SELECT "
        "coalesce(sum((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1) / s.card_memory_mib * greatest(0, "
        "ceil(extract(epoch FROM CASE WHEN a.closing_at IS NULL OR upper_inf(a.period) "
        "THEN lower(a.period) + j.walltime_s * interval '1 second' "
        "ELSE least(lower(a.period) + j.walltime_s * interval '1 second', a.closing_at) END "
        "- greatest(lower(a.period), f.since))))), 0) AS use FROM ledger_allocation a "
        "JOIN ledger_cardshare s ON s.allocation_id = a.id JOIN ledger_card c ON c.id = s.card_id "
        "JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id "
        "WHERE a.project_id = g.project_id AND g.model IN ('', c.model) "
        "AND NOT EXISTS (SELECT 1 FROM ledger_refund r WHERE r.attempt_id = a.attempt_id) "
        "AND a.period && tstzrange(f.since, NULL)) AS u "
        f"WHERE {ABOVE} AND g.resource = 'card_milli_s' "
        f"AND EXISTS (SELECT 1 FROM ledger_allocation a WHERE a.project_id = g.project_id AND {TAKES})",
    ),
    "I14-quota-bound": (
        "no grant takes more to be free than is",
        f"SELECT g.project_id, g.resource, g.used_at_most, u.use FROM ledger_quotagrant g {GRANT_USE} "  # noqa: S608
        f"WHERE {UNBOUND}",
    ),
    "I14-ceiling": (
        "no department's projects hold more than its ceiling, unless they drain or the ceiling came later",
        f"SELECT g.department_id, g.resource, g.amount, u.use FROM ledger_departmentceiling g {CEILING_USE} "  # noqa: S608
        f"WHERE {ABOVE} AND g.resource <> 'card_milli_s' "
        "AND EXISTS (SELECT 1 FROM ledger_allocation a WHERE a.project_id = "
        f"ANY (ledger_department_projects(g.department_id)) AND {TAKES})",
    ),
    "I14-ceiling-bound": (
        "no ceiling takes more to be free than is",
        f"SELECT g.department_id, g.resource, g.used_at_most, u.use FROM ledger_departmentceiling g {CEILING_USE} "  # noqa: S608
        f"WHERE {UNBOUND}",
    ),
    "I14-member-limit": (
        "no person holds more in a project than their limit, unless the limit came later; and its bound holds",
        "SELECT l.project_id, l.user_id, l.resource, l.amount, l.used_at_most, u.use FROM ledger_memberlimit l "  # noqa: S608
        "CROSS JOIN LATERAL (SELECT ledger_member_used(l.project_id, l.user_id, l.resource) AS use) AS u "
        "WHERE l.used_at_most < u.use OR (u.use > l.amount AND EXISTS (SELECT 1 FROM ledger_allocation a "
        "JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id "
        "WHERE a.project_id = l.project_id AND j.by_id = l.user_id AND upper_inf(a.period) "
        f"AND lower(a.period) > l.since AND {TAKES_OF_LIMIT}))",
    ),
    "departments-are-a-tree": (
        "every department stands under a top one",
        "SELECT d.id FROM ledger_department d WHERE d.id NOT IN (WITH RECURSIVE down AS (SELECT id "
        "FROM ledger_department WHERE parent_id IS NULL UNION SELECT c.id FROM down JOIN ledger_department c "
        "ON c.parent_id = down.id) SELECT id FROM down)",
    ),
}
