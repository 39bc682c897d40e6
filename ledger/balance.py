"""The one query (balance.sql) that derives the accounts of any windows of time from the book. Reads only.

Units: MiB-seconds of card memory, integers. A period counts ceil(upper) - ceil(lower) whole seconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.db import connection

Window = tuple[dt.datetime, dt.datetime]


@dataclass(frozen=True)
class Cut:
    """Which part of the pool is meant; None means all of it. Simulated and real cards never share a cut."""

    zone: str | None = None
    project: str | None = None
    model: str | None = None
    simulated: bool = False


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


@cache
def _sql() -> str:
    return (Path(__file__).parent / "balance.sql").read_text()


def lines(windows: Sequence[Window], cut: Cut) -> list[Line]:
    """The accounts of every window [start, end), from the book itself."""
    starts, ends = [start for start, _ in windows], [end for _, end in windows]
    with connection.cursor() as cursor:
        cursor.execute(_sql(), {"starts": starts, "ends": ends, **asdict(cut)})
        found = cursor.fetchall()
    return [
        Line(n - 1, zone_id, model, account, project_id, slug or "", form or "", int(size), int(amount))
        for n, zone_id, model, account, project_id, slug, form, size, amount in found
    ]
