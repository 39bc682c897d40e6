"""The one query (balance.sql) that derives the accounts of any windows of time from the book. Reads only.

Units: MiB-seconds of card memory, integers. A period counts ceil(upper) - ceil(lower) whole seconds.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from django.db import connection

Window = tuple[dt.datetime, dt.datetime]
NOWHERE: Final = "(none)"  # the zone of nodes that are in none; no slug has parentheses
OTHERS: Final = "(others)"  # projects that the viewer may not see, together; no slug has parentheses
ANSWER: Final = "-- answer\n"  # in balance.sql: above it what lines.sql shares


@dataclass(frozen=True)
class Cut:
    """Which part of the pool is meant; None means all of it. Simulated and real cards never share a cut."""

    zone: str | None = None  # a slug or NOWHERE
    project: str | None = None
    model: str | None = None
    simulated: bool = False


class Cell(NamedTuple):
    """What one amount of the balance belongs to. `slug` and `form` are set for used and cleaning, else ""."""

    account: str
    zone: str  # its slug or NOWHERE
    model: str
    slug: str  # of the project
    form: str
    size: int  # MiB of each card it was counted on


Sums = Counter[Cell]  # MiB-seconds


class Line(NamedTuple):
    """MiB-seconds of one account in one cell of one window. `project_id` and `form` are set for used and cleaning."""

    window: int  # index into the windows asked for
    zone_id: int | None
    model: str
    account: str
    project_id: int | None
    slug: str
    form: str
    size: int  # MiB of each card it was counted on
    amount: int
    zone: str

    @property
    def cell(self) -> Cell:
        return Cell(self.account, self.zone, self.model, self.slug, self.form, self.size)


def card_seconds(sizes: Mapping[int, int]) -> Fraction:
    """Amounts (MiB-seconds) by card memory (MiB) as card-seconds."""
    return sum((Fraction(amount, size) for size, amount in sizes.items()), Fraction(0))


@cache
def sql(name: str) -> str:
    """The text of a query that stands beside this module."""
    return (Path(__file__).parent / f"{name}.sql").read_text()


def lines(windows: Sequence[Window], cut: Cut) -> list[Line]:
    """The accounts of every window [start, end), from the book itself."""
    if not windows:
        return []
    starts, ends = [start for start, _ in windows], [end for _, end in windows]
    with connection.cursor() as cursor:
        cursor.execute(sql("balance"), {"starts": starts, "ends": ends, **asdict(cut)})
        found = cursor.fetchall()
    return [
        Line(n - 1, zone_id, model, account, of, slug or "", form or "", int(size), int(amount), zone or NOWHERE)
        for n, zone_id, model, account, of, slug, form, size, amount, zone in found
    ]
