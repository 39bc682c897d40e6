"""When the pool is used: used memory and capacity in each hour of the days on a reader's clock. Reads only.

Whole quarters of an hour come from the roll-up in one query, the rest from the book, as in ledger.reports, so that the
hours of a window add up to its balance. Units: MiB-seconds of card memory, still apart by card size.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from django.db import connection

from ledger import balance, quarters
from ledger.balance import NOWHERE, Cut, Window
from ledger.vocabulary import Account

# Card-windows that may be read from the book at once: a roll-up that is hours late in a large fleet is not made up for.
MOST_FROM_THE_BOOK: Final = 24_000


@dataclass
class Hour:
    """What is known of an hour on the clock. It is two hours long when the clock goes back over it, and shorter where
    the window begins or ends in it. The amounts are by card memory (MiB)."""

    day: dt.date
    hour: int
    start: dt.datetime
    end: dt.datetime
    used: Counter[int] = field(default_factory=Counter)
    capacity: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Usage:
    """The hours of a window, in order, and whether all of them are known; else the roll-up has to catch up."""

    hours: list[Hour]
    whole: bool
    rolled_until: dt.datetime | None  # the end of what is known, when that is not all


def usage(start: dt.datetime, end: dt.datetime, clock: dt.tzinfo, cut: Cut) -> Usage:
    """The hours of [start, end) on a clock. With a project in the cut, `used` is that project's part of a capacity
    that stays the one of everybody."""
    spans = _spans(start, end, clock)
    windows = [window for _, _, window in spans]
    parts = quarters.rolled_parts(windows)
    edges, whole = _from_the_book(windows, parts)
    found: dict[tuple[dt.date, int], Hour] = {}
    hours = [
        _hour(found, day, hour, window if whole or part is None else part)
        for (day, hour, window), part in zip(spans, parts, strict=True)
    ]
    rolled = [(hour, part) for hour, part in zip(hours, parts, strict=True) if part is not None]
    _add_rolled_up(rolled, cut)
    _add_from_the_book([(hours[n], edge) for n, edge in edges], cut)
    return Usage(list(found.values()), whole, rolled[-1][1][1] if rolled and not whole else None)


def _spans(start: dt.datetime, end: dt.datetime, clock: dt.tzinfo) -> list[tuple[dt.date, int, Window]]:
    """[start, end) cut where the hour on the clock changes, in order and without gaps. Offsets of clocks are whole
    quarters of an hour."""
    cut: list[tuple[dt.date, int, Window]] = []
    edge = start
    while edge < end:
        wall = edge.astimezone(clock)
        after = min(quarters.floor(edge) + quarters.QUARTER, end)
        if cut and cut[-1][:2] == (wall.date(), wall.hour):
            cut[-1] = (*cut[-1][:2], (cut[-1][2][0], after))
        else:
            cut.append((wall.date(), wall.hour, (edge, after)))
        edge = after
    return cut


def _hour(found: dict[tuple[dt.date, int], Hour], day: dt.date, hour: int, window: Window) -> Hour:
    """The hour of this day and number; a clock that was put back at an odd minute comes to the same one twice."""
    one = found.setdefault((day, hour), Hour(day, hour, *window))
    one.end = max(one.end, window[1])
    return one


def _from_the_book(windows: Sequence[Window], parts: Sequence[Window | None]) -> tuple[list[tuple[int, Window]], bool]:
    """What the roll-up does not have of each window, numbered, and whether that is all that is missing: nothing is
    read where it would take too long, nor before the first card."""
    edges: list[tuple[int, Window]] = []
    for n, ((start, end), part) in enumerate(zip(windows, parts, strict=True)):
        ends = [(start, end)] if part is None else [(start, part[0]), (part[1], end)]
        edges += [(n, edge) for edge in ends if edge[0] < edge[1]]
    if not edges:
        return [], True
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(lower(period)), count(*) FROM ledger_cardseat")
        first, cards = cursor.fetchone()
    edges = [(n, edge) for n, edge in edges if first is not None and edge[1] > first]
    return (edges, True) if len(edges) * cards <= MOST_FROM_THE_BOOK else ([], False)


ROWS: Final = """
SELECT width_bucket(q.starts_at, %(edges)s::timestamptz[]), q.size, sum(q.used)::bigint, sum(q.capacity)::bigint FROM (
  SELECT starts_at, card_memory_mib AS size, sum(mib_seconds) AS capacity,
         coalesce(sum(mib_seconds) FILTER (WHERE account = %(used)s AND (%(project)s::text IS NULL OR
           project_id = (SELECT id FROM ledger_project WHERE slug = %(project)s))), 0) AS used
  FROM ledger_usagequarter
  WHERE -- in cut
  GROUP BY 1, 2
) AS q GROUP BY 1, 2
""".replace("-- in cut", quarters.IN_CUT)


def _add_rolled_up(rolled: Sequence[tuple[Hour, Window]], cut: Cut) -> None:
    """Add what the roll-up has of each part, in one query. Parts follow each other without gaps."""
    if not rolled:
        return
    edges = [part[0] for _, part in rolled]
    values = {**asdict(cut), "edges": edges, "first": edges[0], "last": rolled[-1][1][1]}
    with connection.cursor() as cursor:
        cursor.execute(ROWS, values | {"used": Account.USED.value, "nowhere": NOWHERE})
        for bucket, size, used, capacity in cursor.fetchall():
            one = rolled[bucket - 1][0]
            one.capacity[size] += capacity
            if used:
                one.used[size] += used


def _add_from_the_book(booked: Sequence[tuple[Hour, Window]], cut: Cut) -> None:
    for line in balance.lines([edge for _, edge in booked], replace(cut, project=None)):
        one = booked[line.window][0]
        one.capacity[line.size] += line.amount
        if line.account == Account.USED and cut.project in (None, line.slug):
            one.used[line.size] += line.amount
