"""The balance: capacity = used + cleaning + held + headroom + idle, in MiB-seconds, derived from the book by one
query (ledger/balance.sql); windows over a day read their whole quarters from the roll-up. Reads only.

Units: `exact` is integer MiB-seconds of card memory; the top level is card-seconds (each card's MiB-seconds divided by
its memory), rounded by largest remainder so that both sides still agree.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from ledger import quarters
from ledger.balance import Cut, Window, lines
from ledger.models import Project, User
from ledger.vocabulary import Account

ACCOUNTS: Final = tuple(account.value for account in Account)
OTHERS: Final = "(others)"
LONG: Final = dt.timedelta(days=1)  # above it the roll-up pays; below it the book itself answers as fast
Row = tuple[str, str, str, int, int]  # account, project slug, form, card memory MiB, MiB-seconds
Sums = Counter[tuple[str, str, str, int]]


def _derived(windows: Sequence[Window], cut: Cut) -> list[Sums]:
    """The accounts of each window, from the book."""
    sums: list[Sums] = [Counter() for _ in windows]
    for line in lines(windows, cut):
        sums[line.window][line.account, line.slug, line.form, line.size] += line.amount
    return sums


def _sums(windows: Sequence[Window], cut: Cut, *, long: bool) -> list[Sums]:
    """The accounts of each window: in a long report whole quarters come from the roll-up, the rest from the book."""
    parts = [quarters.rolled_part(*window) if long else None for window in windows]
    sums = [Counter() if part is None else quarters.rows(part, cut) for part in parts]
    edges: list[tuple[int, Window]] = []
    for n, ((start, end), part) in enumerate(zip(windows, parts, strict=True)):
        ends = [(start, end)] if part is None else [(start, part[0]), (part[1], end)]
        edges += [(n, edge) for edge in ends if edge[0] < edge[1]]
    for (n, _), found in zip(edges, _derived([edge for _, edge in edges], cut), strict=True):
        sums[n].update(found)
    return sums


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
    cut = Cut(zone=zone, project=project, model=model, simulated=simulated)
    (sums,) = _sums([(start, end)], cut, long=end - start > LONG)
    return [(*key, amount) for key, amount in sorted(sums.items()) if amount]


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
    cut = Cut(zone=zone, project=project, model=model, simulated=simulated)
    (sums,) = _sums([(start, end)], cut, long=end - start > LONG)
    return _answer((start, end), sums, cut, _visible(viewer))


def _visible(viewer: User | None) -> set[str] | None:
    return None if viewer is None else set(Project.objects.visible_to(viewer).values_list("slug", flat=True))


def _answer(window: Window, sums: Sums, cut: Cut, visible: set[str] | None) -> dict[str, Any]:
    exact: dict[tuple[str, str, str], int] = defaultdict(int)
    display: dict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    for (account, slug, form, size), amount in sums.items():
        shown = slug if visible is None or slug in visible or not slug else OTHERS
        exact[account, shown, form] += amount
        display[account, shown, form] += Fraction(amount, size)
    return {
        "from": window[0].isoformat(),
        "to": window[1].isoformat(),
        "time_zone": "UTC",
        "simulated": cut.simulated,
        "unit": "card_seconds",
        **_shape(_rounded(display)),
        "exact": {"unit": "mib_seconds", **_shape(exact)},
    }


def balance_series(
    start: dt.datetime, end: dt.datetime, buckets: int, *, viewer: User | None = None, **cut: Any
) -> list[dict[str, Any]]:
    """One balance for each of `buckets` about equal parts of the window, cut at whole seconds; parts of a long window
    are cut at quarters of an hour, where the roll-up can serve them."""
    total = int((end - start).total_seconds())
    inner = [start + dt.timedelta(seconds=total * i // buckets) for i in range(1, buckets)]
    long = end - start > LONG
    edges = [start, *(quarters.floor(edge) if long else edge for edge in inner), end]
    windows = [(a, b) for a, b in pairwise(edges) if b > a]
    chosen, visible = Cut(**cut), _visible(viewer)
    sums = _sums(windows, chosen, long=long)
    return [_answer(window, found, chosen, visible) for window, found in zip(windows, sums, strict=True)]


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
