"""How busy cards were, by zone and by project, from the hours of cards: against what it was before the pool and what
is wanted. Reads only.

An hour counts for a project when a share of it lay on the card for that whole hour; the load is the card's, also where
others were on it. Cards that tell no load are counted apart, not as 0.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

BASELINE: Final = 30  # percent
TARGET: Final = 60

# Where cards were, and who held them, is worked out first: the hours then meet it by card alone.
OF_ZONES: Final = """
WITH place AS MATERIALIZED (
  SELECT s.card_id, z.slug, z.title, s.period * m.period AS period
  FROM ledger_cardseat s JOIN ledger_node n ON n.id = s.node_id AND n.simulated = %(simulated)s
    JOIN ledger_nodezone m ON m.node_id = s.node_id AND m.period && s.period
    JOIN ledger_zone z ON z.id = m.zone_id
  WHERE s.period && tstzrange(%(since)s, %(until)s) AND m.period && tstzrange(%(since)s, %(until)s)
)
SELECT p.slug, p.title, count(h.utilisation_pct), count(*) - count(h.utilisation_pct), avg(h.utilisation_pct[2])
FROM ledger_cardhour h JOIN place p ON p.card_id = h.card_id AND p.period @> h.hour
WHERE h.hour >= %(since)s AND h.hour < %(until)s GROUP BY 1, 2 ORDER BY 1
"""
OF_PROJECTS: Final = """
WITH share AS MATERIALIZED (
  SELECT s.card_id, s.period, s.memory_mib::float8 / s.card_memory_mib AS part, p.slug, p.title
  FROM ledger_cardshare s JOIN ledger_node n ON n.id = s.node_id AND n.simulated = %(simulated)s
    JOIN ledger_allocation a ON a.id = s.allocation_id JOIN ledger_project p ON p.id = a.project_id
  WHERE s.period && tstzrange(%(since)s, %(until)s) AND p.id = ANY(%(projects)s)
)
SELECT s.slug, s.title, count(h.utilisation_pct), count(*) - count(h.utilisation_pct),
  sum(h.utilisation_pct[2] * s.part) / sum(s.part) FILTER (WHERE h.utilisation_pct IS NOT NULL)
FROM ledger_cardhour h
  JOIN share s ON s.card_id = h.card_id AND s.period @> tstzrange(h.hour, h.hour + interval '1 hour')
WHERE h.hour >= %(since)s AND h.hour < %(until)s GROUP BY 1, 2 ORDER BY 1
"""


@dataclass(frozen=True)
class Use:
    """`hours` of cards that told their load, `quiet` of those that didn't; `load` is their mean in percent."""

    slug: str
    title: str
    hours: int
    quiet: int
    load: float | None


def by_zone(since: dt.datetime, until: dt.datetime, *, simulated: bool) -> list[Use]:
    return _read(OF_ZONES, {"since": since, "until": until, "simulated": simulated})


def by_project(since: dt.datetime, until: dt.datetime, *, simulated: bool, projects: list[int]) -> list[Use]:
    """Of these projects; a share counts by its part of the card."""
    return _read(OF_PROJECTS, {"since": since, "until": until, "simulated": simulated, "projects": projects})


def _read(text: str, values: dict[str, Any]) -> list[Use]:
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return [Use(*row) for row in cursor.fetchall()]
