"""The balance: capacity = used + cleaning + held + headroom + idle, in MiB-seconds, derived from the book by one
query (ledger/balance.sql). Reads only.

Units: `exact` is integer MiB-seconds of card memory; the top level is card-seconds (each card's MiB-seconds divided by
its memory), rounded by largest remainder so that both sides still agree.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from django.db import connection

from ledger.models import Project, User

ACCOUNTS: Final = ("used", "cleaning", "held", "headroom", "free", "stranded")
OTHERS: Final = "(others)"
Row = tuple[str, str, str, int, int]  # account, project slug, form, card memory MiB, MiB-seconds


@cache
def _sql() -> str:
    return (Path(__file__).parent / "balance.sql").read_text()


def rows(
    start: dt.datetime,
    end: dt.datetime,
    *,
    zone: str | None = None,
    project: str | None = None,
    model: str | None = None,
    simulated: bool = False,
) -> list[Row]:
    """The accounts of the cut, one row for each (account, project, form, card size)."""
    parameters = {"start": start, "end": end, "zone": zone, "project": project, "model": model, "simulated": simulated}
    with connection.cursor() as cursor:
        cursor.execute(_sql(), parameters)
        found = cursor.fetchall()
    return [(account, slug or "", form or "", int(size), int(amount)) for account, slug, form, size, amount in found]


def balance(
    start: dt.datetime,
    end: dt.datetime,
    *,
    zone: str | None = None,
    project: str | None = None,
    model: str | None = None,
    simulated: bool = False,
    viewer: User | None = None,
) -> dict[str, Any]:
    """The balance of [start, end). Projects that `viewer` may not see stand together under "(others)".

    With `project` the cut is what that project held: capacity = used + cleaning."""
    cut = rows(start, end, zone=zone, project=project, model=model, simulated=simulated)
    visible = None if viewer is None else set(Project.objects.visible_to(viewer).values_list("slug", flat=True))
    exact: dict[tuple[str, str, str], int] = defaultdict(int)
    display: dict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    for account, slug, form, size, amount in cut:
        shown = slug if visible is None or slug in visible or not slug else OTHERS
        exact[account, shown, form] += amount
        display[account, shown, form] += Fraction(amount, size)
    return {
        "from": start.isoformat(),
        "to": end.isoformat(),
        "time_zone": "UTC",
        "simulated": simulated,
        "unit": "card_seconds",
        **_shape(_rounded(display)),
        "exact": {"unit": "mib_seconds", **_shape(exact)},
    }


def balance_series(start: dt.datetime, end: dt.datetime, buckets: int, **cut: Any) -> list[dict[str, Any]]:
    """One balance for each of `buckets` equal parts of the window, cut at whole seconds."""
    total = int((end - start).total_seconds())
    edges = [start + dt.timedelta(seconds=total * i // buckets) for i in range(buckets)] + [end]
    return [balance(a, b, **cut) for a, b in pairwise(edges) if b > a]


def _rounded(values: Mapping[tuple[str, str, str], Fraction]) -> dict[tuple[str, str, str], int]:
    """Whole numbers whose sum is the rounded sum: largest remainder, ties by name."""
    floors = {key: int(value) for key, value in values.items()}
    missing = round(sum(values.values(), Fraction(0))) - sum(floors.values())
    order = sorted(values, key=lambda key: (floors[key] - values[key], key))
    for key in order[:missing]:
        floors[key] += 1
    return floors


def _shape(values: Mapping[tuple[str, str, str], int]) -> dict[str, Any]:
    totals = {name: _sum(v for (account, _, _), v in values.items() if account == name) for name in ACCOUNTS}
    used = {key: v for key, v in values.items() if key[0] == "used" and v}
    return {
        "capacity": sum(totals.values()),
        "used": {
            "total": totals["used"],
            "by_project": _group(used, 1),
            "by_form": _group(used, 2),
        },
        "cleaning": totals["cleaning"],
        "held": totals["held"],
        "headroom": totals["headroom"],
        "idle": {
            "free": totals["free"],
            "stranded": totals["stranded"],
            "total": totals["free"] + totals["stranded"],
        },
    }


def _sum(values: Iterable[int]) -> int:
    return sum(values)


def _group(values: Mapping[tuple[str, str, str], int], part: int) -> dict[str, int]:
    grouped: dict[str, int] = defaultdict(int)
    for key, value in sorted(values.items()):
        grouped[key[part]] += value
    return dict(grouped)
