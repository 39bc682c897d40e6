"""The open allocations and their shares, kept in the process and corrected by what changed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection

from ledger.fields import Interval
from scheduler.changes import BETWEEN, Stand, news

ALLOCATIONS: Final = (
    "SELECT id, node_id, form, cpu_milli, host_memory_mib, upper_inf(period) FROM ledger_allocation WHERE "
)
# written in the transaction of their allocation and never changed, so that they can be read after it
SHARES: Final = (
    "SELECT allocation_id, card_id, memory::text, compute::text FROM ledger_cardshare WHERE allocation_id = ANY (%s)"
)
RANGE: Final = re.compile(r"\[(\d+),(\d+)\)")  # of a multirange as text: read many times faster than psycopg reads it

Use = tuple[str, int, int]  # form, milli-cores, MiB of host memory
Share = tuple[int, int, tuple[Interval, ...], tuple[Interval, ...]]  # allocation, card, memory, compute


@dataclass
class Live:
    """By node and allocation what is used of the node; by allocation its shares."""

    uses: dict[int, dict[int, Use]] = field(default_factory=dict)
    shares: dict[int, list[Share]] = field(default_factory=dict)
    stand: Stand | None = None
    reloads: int = 0

    def follow(self) -> set[int]:
        """Take what changed since the last time, or all where that can't be told. The nodes where something is another
        than before."""
        told = news(
            "ledger_allocation", self.stand, whole=ALLOCATIONS + "upper_inf(period)", since=ALLOCATIONS + BETWEEN
        )
        opened = [row[0] for row in told.rows if row[5] and (told.whole or row[0] not in self.uses.get(row[1], ()))]
        shares = _read_shares(opened)  # from here on nothing can fail half-way
        touched: set[int] = set()
        if told.whole:
            touched.update(self.uses)
            self.uses, self.shares, self.reloads = {}, {}, self.reloads + 1
        touched |= self._take(told.rows)
        self.shares.update(shares)
        self.stand = told.stand
        return touched

    def _take(self, rows: Iterable[Sequence[Any]]) -> set[int]:
        touched = set()
        for pk, node_id, form, cpu, memory, is_open in rows:
            here = self.uses.setdefault(node_id, {})
            if is_open == (pk in here):
                continue
            touched.add(node_id)
            if is_open:
                here[pk] = (form, cpu, memory)
            else:
                del here[pk]
                self.shares.pop(pk, None)
        return touched

    def on(self, node_id: int) -> tuple[dict[int, Use], list[Share]]:
        """What is used of a node, and the shares of its cards."""
        here = self.uses.get(node_id, {})
        return here, [share for pk in here for share in self.shares.get(pk, ())]


def _read_shares(allocation_ids: Sequence[int]) -> dict[int, list[Share]]:
    found: dict[int, list[Share]] = defaultdict(list)
    if allocation_ids:
        with connection.cursor() as cursor:
            cursor.execute(SHARES, [list(allocation_ids)])
            for pk, card, memory, compute in cursor.fetchall():
                found[pk].append((pk, card, _intervals(memory), _intervals(compute)))
    return found


def _intervals(multirange: str) -> tuple[Interval, ...]:
    return tuple((int(lo), int(hi)) for lo, hi in RANGE.findall(multirange))
