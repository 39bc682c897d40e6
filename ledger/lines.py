"""The ledger lines behind a number of the balance: shares, holds and idle cells, clipped to the window. Reads only.

One query (lines.sql on top of the shared part of balance.sql) finds, counts, sums and pages them; their MiB-seconds
add up to the number in the balance, exactly. A line of a project that the viewer may not see names neither it nor
its job: the query itself leaves them out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, NamedTuple, overload

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from ledger.balance import ANSWER, NOWHERE, OTHERS, Cell, Cut, Sums, sql
from ledger.models import Project, User

FIRST: Final = 50  # lines of the page that a count brings along
CHUNK: Final = 2_000
# what lines can be put in order by; the order of ties never changes
ORDERS: Final = ("account", "project", "node", "card", "zone", "model", "form", "mib", "lo", "hi", "amount",
                 "card_seconds")  # fmt: skip
TIES: Final = "page.account, page.id, page.lo, page.model, page.size"


class LedgerLine(NamedTuple):
    """One line. What does not apply to its account, or may not be seen, is None or ""."""

    account: str
    project: str  # a slug, or balance.OTHERS
    job_id: int | None
    job: str
    node: str
    card: str
    zone: str  # a slug, balance.NOWHERE, or "" when a hold was in several
    model: str
    form: str
    hold: str  # its kind
    reason: str  # of the hold
    size: int | None  # MiB of the card
    mib: int | None  # of the card that the share took
    cards: int | None
    since: dt.datetime
    until: dt.datetime
    amount: int  # MiB-seconds
    card_seconds: Decimal


@dataclass(frozen=True)
class Chosen:
    """Which lines: a window, a cut, and what a number of the balance stands for. None means all.

    With `project`, `form` or `split` only shares are meant. `split` with `but` means all members of a split (zone,
    model, form or project) but these."""

    start: dt.datetime
    end: dt.datetime
    cut: Cut
    account: str | None = None
    form: str | None = None
    split: str | None = None
    but: tuple[str, ...] = ()

    def amount(self, cells: Sums) -> int:
        """What the balance says about these lines, given its cells (reports.cells, asked without the project)."""
        return sum(amount for cell, amount in cells.items() if self._means(cell))

    def _means(self, cell: Cell) -> bool:
        if self.shares_only and not cell.form:
            return False
        wanted = ((self.account, cell.account), (self.cut.project, cell.slug), (self.form, cell.form))
        if any(asked is not None and asked != had for asked, had in wanted):
            return False
        name = "slug" if self.split == "project" else self.split
        return name is None or getattr(cell, name) not in self.but

    @property
    def shares_only(self) -> bool:
        return self.cut.project is not None or self.form is not None or self.split is not None


@dataclass(frozen=True)
class _Part:
    """Some lines from an offset on, and what all of them come to."""

    offset: int
    lines: list[LedgerLine]
    count: int = 0
    amount: int = 0
    card_seconds: Decimal = Decimal(0)


@dataclass
class LineSet:
    """The lines of a choice as a list that the database keeps: counted, ordered and sliced there."""

    chosen: Chosen
    viewer: User | None = None
    order: tuple[str, ...] = ("-lo",)
    _parts: list[_Part] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def ordered(self) -> bool:
        return True

    def order_by(self, *names: str) -> LineSet:
        """Names of ORDERS, a "-" before one for downwards; others are refused."""
        for name in names:
            if name.removeprefix("-") not in ORDERS:
                raise ValueError(name)
        return replace(self, order=names or self.order)

    def count(self) -> int:
        return self._totals().count

    @property
    def amount(self) -> int:
        """MiB-seconds of all lines."""
        return self._totals().amount

    @property
    def card_seconds(self) -> Decimal:
        return self._totals().card_seconds

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return self.count() > 0

    @overload
    def __getitem__(self, place: int) -> LedgerLine: ...
    @overload
    def __getitem__(self, place: slice) -> list[LedgerLine]: ...
    def __getitem__(self, place: int | slice) -> LedgerLine | list[LedgerLine]:
        if isinstance(place, int):
            return self[place : place + 1][0]
        start = place.start or 0
        stop = self.count() if place.stop is None else place.stop
        for part in self._parts:
            reached = part.offset + len(part.lines)
            if part.offset <= start and (stop <= reached or reached == part.count):
                return part.lines[start - part.offset : stop - part.offset]
        return self._fetch(start, stop - start).lines

    def iterator(self, most: int) -> Iterator[LedgerLine]:
        """Up to `most` lines in order, from one query, a few at a time: all of one moment, whatever is written."""
        with connection.chunked_cursor() as cursor:
            self._execute(cursor, 0, most)
            while found := cursor.fetchmany(CHUNK):
                yield from (_line(row) for row in found)

    def _totals(self) -> _Part:
        known = next((part for part in self._parts if part.lines or part.offset == 0), None)
        return known or self._fetch(0, FIRST)

    def _fetch(self, offset: int, limit: int) -> _Part:
        with connection.cursor() as cursor:
            self._execute(cursor, offset, limit)
            found = cursor.fetchall()
        totals = (int(found[0][0]), int(found[0][1]), found[0][2]) if found else ()
        part = _Part(offset, [_line(row) for row in found], *totals)
        self._parts.append(part)
        return part

    def _execute(self, cursor: CursorWrapper, offset: int, limit: int) -> None:
        shared = sql("balance").partition(ANSWER)[0].rstrip()
        text = shared + sql("lines").replace("{order}", _order(self.order))
        cursor.execute(text, self._values() | {"offset": offset, "limit": limit})

    def _values(self) -> dict[str, Any]:
        chosen, cut = self.chosen, self.chosen.cut
        return {
            "starts": [chosen.start],
            "ends": [chosen.end],
            "zone": cut.zone,
            "model": cut.model,
            "simulated": cut.simulated,
            "project": None,
            "owner": cut.project,
            "visible": _visible_ids(self.viewer),
            "account": chosen.account,
            "form": chosen.form,
            "split": chosen.split,
            "but": list(chosen.but),
            "others": OTHERS,
            "nowhere": NOWHERE,
            "shares_only": chosen.shares_only,
        }


def _visible_ids(viewer: User | None) -> list[int] | None:
    if viewer is None or viewer.sees_everything:
        return None
    return list(Project.objects.visible_to(viewer).values_list("pk", flat=True))


def _order(names: Sequence[str]) -> str:
    parts = [f"page.{name.removeprefix('-')} {'DESC' if name.startswith('-') else 'ASC'} NULLS LAST" for name in names]
    return ", ".join([*parts, TIES])


def _line(row: tuple[Any, ...]) -> LedgerLine:
    _, _, _, account, project, job_id, *texts, size, mib, cards, lo, hi, amount, card_seconds = row
    job, node, card, zone, model, form, hold, reason = (text or "" for text in texts)
    return LedgerLine(
        account=account,
        project=project or "",
        job_id=job_id,
        job=job,
        node=node,
        card=card,
        zone=zone,
        model=model,
        form=form,
        hold=hold,
        reason=reason,
        size=None if size is None else int(size),
        mib=None if mib is None else int(mib),
        cards=cards,
        since=dt.datetime.fromtimestamp(int(lo), dt.UTC),
        until=dt.datetime.fromtimestamp(int(hi), dt.UTC),
        amount=int(amount),
        card_seconds=Decimal(card_seconds),
    )


@contextmanager
def one_moment() -> Iterator[None]:
    """What is read inside is of one moment, so that lines and the balance beside them can't differ by what is written
    in between. A transaction that is open already keeps its own ways."""
    with transaction.atomic():
        if not connection.savepoint_ids:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield
