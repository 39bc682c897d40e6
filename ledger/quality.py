"""What was wrong with telemetry itself, counted by node, card, kind and day: the only writer of QualityCount."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection, transaction

from ledger.clock import database_now
from ledger.vocabulary import QualityKind

LONGEST_DETAIL: Final = 200
Key = tuple[int | None, int | None, QualityKind]  # node, card, kind
UPSERT: Final = """
INSERT INTO ledger_qualitycount AS q (day, node_id, card_id, kind, count, detail, first_seen, last_seen)
SELECT (%(now)s AT TIME ZONE 'UTC')::date, x.node, x.card, x.kind, x.n, x.detail, %(now)s, %(now)s
FROM unnest(%(nodes)s::bigint[], %(cards)s::bigint[], %(kinds)s::text[], %(counts)s::bigint[], %(details)s::text[])
  AS x(node, card, kind, n, detail)
ON CONFLICT (day, node_id, card_id, kind) DO UPDATE
  SET count = q.count + excluded.count, last_seen = excluded.last_seen, detail = excluded.detail
"""


@dataclass
class Tally:
    """What one report brought, before it is written."""

    counts: dict[Key, tuple[int, str]] = field(default_factory=dict)

    def add(self, node: int | None, card: int | None, kind: QualityKind, detail: str = "", n: int = 1) -> None:
        before = self.counts.get((node, card, kind), (0, ""))[0]
        self.counts[node, card, kind] = before + n, detail[:LONGEST_DETAIL]


def write_inside(tally: Tally, now: dt.datetime) -> None:
    if not tally.counts:
        return
    # in one order, so that two who count the same rows don't wait for each other
    rows = sorted(tally.counts.items(), key=lambda item: tuple(str(part or "") for part in item[0]))
    with connection.cursor() as cursor:
        cursor.execute(UPSERT, _columns(rows) | {"now": now})


def _columns(rows: list[tuple[Key, tuple[int, str]]]) -> dict[str, Any]:
    return {
        "nodes": [key[0] for key, _ in rows],
        "cards": [key[1] for key, _ in rows],
        "kinds": [str(key[2]) for key, _ in rows],
        "counts": [count for _, (count, _) in rows],
        "details": [detail for _, (_, detail) in rows],
    }


def count(node: int | None, kind: QualityKind, detail: str = "") -> None:
    """One more, on its own: what came was refused as a whole."""
    tally = Tally()
    tally.add(node, None, kind, detail)
    with transaction.atomic(durable=True):
        write_inside(tally, database_now())
