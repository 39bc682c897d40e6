"""The balance: capacity = used + cleaning + held + headroom + idle, in MiB-seconds, derived from the book by one
query (ledger/balance.sql); windows over two hours read their whole quarters from the roll-up. Reads only.

Units: `exact` is integer MiB-seconds of card memory; the top level is card-seconds (each card's MiB-seconds divided by
its memory), rounded by largest remainder so that both sides and every split of them still agree.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeVar

from ledger import quarters
from ledger.balance import OTHERS, Cell, Cut, Sums, Window, card_seconds, lines
from ledger.models import Project, User
from ledger.vocabulary import Account

ACCOUNTS: Final = tuple(account.value for account in Account)
LONG: Final = dt.timedelta(hours=2)  # above it the roll-up pays; below it the book itself answers as fast
Row = tuple[str, str, str, int, int]  # account, project slug, form, card memory MiB, MiB-seconds
Key = TypeVar("Key", str, tuple[str, str, str])
Sizes = Mapping[str, Counter[int]]  # name → card memory MiB → MiB-seconds
# how the used account is split in an answer → the part of a cell that names the members
SPLITS: Final[Mapping[str, str]] = {"by_project": "slug", "by_form": "form", "by_zone": "zone", "by_model": "model"}


def _sums(windows: Sequence[Window], cut: Cut, *, long: bool) -> list[Sums]:
    """The accounts of each window: in a long report whole quarters come from the roll-up, the rest from the book.
    Windows are in order and apart from each other."""
    parts = quarters.rolled_parts(windows) if long else [None for _ in windows]
    rolled = iter(quarters.rows([part for part in parts if part is not None], cut))
    sums: list[Sums] = [Counter() if part is None else next(rolled) for part in parts]
    edges: list[tuple[int, Window]] = []
    for n, ((start, end), part) in enumerate(zip(windows, parts, strict=True)):
        ends = [(start, end)] if part is None else [(start, part[0]), (part[1], end)]
        edges += [(n, edge) for edge in ends if edge[0] < edge[1]]
    for line in lines([edge for _, edge in edges], cut):
        sums[edges[line.window][0]][line.cell] += line.amount
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
    found: Counter[tuple[str, str, str, int]] = Counter()
    for cell, amount in sums.items():
        found[cell.account, cell.slug, cell.form, cell.size] += amount
    return [(*key, amount) for key, amount in sorted(found.items()) if amount]


def cells(start: dt.datetime, end: dt.datetime, cut: Cut, viewer: User | None = None) -> Sums:
    """The accounts of the cut by cell; projects that `viewer` may not see are all named "(others)"."""
    (sums,) = _sums([(start, end)], cut, long=end - start > LONG)
    return _masked(sums, visible_slugs(viewer))


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
    cut = {"zone": zone, "project": project, "model": model, "simulated": simulated}
    return balances([(start, end)], viewer=viewer, **cut)[0]


def balances(windows: Sequence[Window], *, viewer: User | None = None, **cut: Any) -> list[dict[str, Any]]:
    """One balance for each window, all from the same few queries. Windows are in order and apart from each other."""
    chosen, visible = Cut(**cut), visible_slugs(viewer)
    sums = _sums(windows, chosen, long=any(end - start > LONG for start, end in windows))
    return [_answer(window, found, chosen, visible) for window, found in zip(windows, sums, strict=True)]


def balance_series(edges: Sequence[dt.datetime], *, viewer: User | None = None, **cut: Any) -> list[dict[str, Any]]:
    """One balance for each stretch between neighbouring edges. A long series reads the roll-up, which pays
    when its inner edges lie on quarters of an hour."""
    chosen, visible = Cut(**cut), visible_slugs(viewer)
    windows = list(pairwise(edges))
    sums = _sums(windows, chosen, long=edges[-1] - edges[0] > LONG)
    return [_answer(window, found, chosen, visible) for window, found in zip(windows, sums, strict=True)]


def visible_slugs(viewer: User | None) -> set[str] | None:
    """The projects whose names `viewer` may read; None: all of them."""
    if viewer is None or viewer.sees_everything:
        return None
    return set(Project.objects.visible_to(viewer).values_list("slug", flat=True))


def _masked(sums: Sums, visible: set[str] | None) -> Sums:
    if visible is None:
        return sums
    shown: Sums = Counter()
    for cell, amount in sums.items():
        shown[cell._replace(slug=OTHERS) if cell.slug and cell.slug not in visible else cell] += amount
    return shown


def _answer(window: Window, sums: Sums, cut: Cut, visible: set[str] | None) -> dict[str, Any]:
    masked = _masked(sums, visible)
    totals = _sizes(masked, "account")
    used: Sums = Counter({cell: amount for cell, amount in masked.items() if cell.account == Account.USED and amount})
    splits = {name: _sizes(used, part) for name, part in SPLITS.items()}
    cards = _rounded(_cards(totals))
    total = cards.get(Account.USED, 0)
    return {
        "from": window[0].isoformat(),
        "to": window[1].isoformat(),
        "time_zone": "UTC",
        "simulated": cut.simulated,
        "unit": "card_seconds",
        **_shape(cards, {name: _rounded(_cards(split), total) for name, split in splits.items()}),
        "exact": {
            "unit": "mib_seconds",
            **_shape(_exact(totals), {name: _exact(split) for name, split in splits.items()}),
        },
    }


def _sizes(sums: Sums, part: str) -> Sizes:
    """The amounts by one part of their cells, still apart by card size."""
    place = Cell._fields.index(part)
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for cell, amount in sorted(sums.items()):
        found[str(cell[place])][cell.size] += amount
    return found


def _exact(groups: Sizes) -> dict[str, int]:
    return {name: sum(sizes.values()) for name, sizes in groups.items()}


def _cards(groups: Sizes) -> dict[str, Fraction]:
    return {name: card_seconds(sizes) for name, sizes in groups.items()}


def _rounded(values: Mapping[Key, Fraction], total: int | None = None) -> dict[Key, int]:
    """Whole numbers whose sum is `total` (default: the rounded sum): largest remainder, ties by name."""
    floors = {key: int(value) for key, value in values.items()}
    whole = round(sum(values.values(), Fraction(0))) if total is None else total
    missing = whole - sum(floors.values())
    order = sorted(values, key=lambda key: (floors[key] - values[key], key))
    for key in order[:missing]:
        floors[key] += 1
    return floors


def _shape(totals: Mapping[str, int], splits: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    of = {name: totals.get(name, 0) for name in ACCOUNTS}
    return {
        "capacity": sum(of.values()),
        "used": {"total": of["used"], **{name: dict(sorted(split.items())) for name, split in splits.items()}},
        "cleaning": of["cleaning"],
        "held": of["held"],
        "headroom": of["headroom"],
        "idle": {"free": of["free"], "stranded": of["stranded"], "total": of["free"] + of["stranded"]},
    }
