"""The accounts at this instant, in MiB of card memory: the balance of the books without a window, quick enough to be
asked every few seconds. The same precedence as balance.sql (a test compares the two). Reads only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from django.db import connection

from ledger.vocabulary import Account

QUERY: Final = """
WITH held AS (
  SELECT node_id, card_id FROM ledger_hold WHERE period @> clock_timestamp() AND kind <> 'link'
),
taken AS (
  SELECT s.card_id, s.node_id, sum(s.memory_mib) FILTER (WHERE a.closing_at IS NULL) AS used,
         sum(s.memory_mib) FILTER (WHERE a.closing_at IS NOT NULL) AS cleaning
  FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id WHERE upper_inf(a.period) GROUP BY 1, 2
),
bound AS (
  SELECT DISTINCT node_id FROM ledger_allocation WHERE upper_inf(period) AND form IN ('block', 'whole')
),
card AS (
  SELECT z.zone_id, c.model, c.memory_mib AS size, coalesce(t.used, 0) AS used, coalesce(t.cleaning, 0) AS cleaning,
         CASE WHEN s.card_id IN (SELECT card_id FROM held WHERE card_id IS NOT NULL)
                OR s.node_id IN (SELECT node_id FROM held WHERE node_id IS NOT NULL) THEN 'held'
              WHEN t.card_id IS NOT NULL OR s.node_id IN (SELECT node_id FROM bound) THEN 'stranded'
              ELSE 'free' END AS rest
  FROM ledger_cardseat s JOIN ledger_card c ON c.id = s.card_id JOIN ledger_node n ON n.id = s.node_id
  LEFT JOIN ledger_nodezone z ON z.node_id = s.node_id AND upper_inf(z.period)
  LEFT JOIN taken t ON t.card_id = s.card_id AND t.node_id = s.node_id
  WHERE upper_inf(s.period) AND n.simulated = %s
)
SELECT zone_id, model, size, rest, sum(used)::bigint, sum(cleaning)::bigint, sum(size - used - cleaning)::bigint
FROM card GROUP BY 1, 2, 3, 4
"""

RESERVES: Final = "SELECT zone_id, model, mib FROM ledger_headroomreserve WHERE period @> clock_timestamp()"


class Cell(NamedTuple):
    """Cards that are alike. A reserve is kept in all sizes of a (zone, model)."""

    zone_id: int | None
    model: str
    size: int


def accounts(*, simulated: bool) -> dict[tuple[str, int], int]:
    """MiB by (account, card size), zero amounts left out."""
    cells: dict[Cell, Counter[str]] = defaultdict(Counter)
    with connection.cursor() as cursor:
        cursor.execute(QUERY, [simulated])
        for zone_id, model, size, rest, used, cleaning, left in cursor.fetchall():
            cells[Cell(zone_id, model, size)].update({Account.USED: used, Account.CLEANING: cleaning, rest: left})
        cursor.execute(RESERVES)
        _keep_headroom(cells, cursor.fetchall())
    found: Counter[tuple[str, int]] = Counter()
    for cell, amounts in cells.items():
        for account, mib in amounts.items():
            found[str(account), cell.size] += mib
    return {key: mib for key, mib in found.items() if mib}


def _keep_headroom(cells: Mapping[Cell, Counter[str]], reserves: Sequence[tuple[int, str, int]]) -> None:
    """Fill each reserve from free memory of all sizes, the smallest first, then from stranded memory."""
    for zone_id, model, mib in reserves:
        sizes = sorted(cell for cell in cells if cell.zone_id == zone_id and cell.model == model)
        for source in (Account.FREE, Account.STRANDED):
            for cell in sizes:
                part = min(mib, cells[cell][source])
                cells[cell][source] -= part
                cells[cell][Account.HEADROOM] += part
                mib -= part
