"""The balance once more, the slow and obvious way: ask at every whole second of the window, card by card, who has what.

Also makes random histories. A history is laid out in the database and here at once; what the database refuses (two
shares of the same memory, two forms on a node) is left out here too.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from django.db import IntegrityError, transaction

from tests import factories
from tests.ledger.raw import Sql, insert, job, run

START = dt.datetime(2026, 3, 29, 0, 59, 0, tzinfo=dt.UTC)  # clocks in Europe change in the middle of it
LENGTH_S = 120
FOREVER = 10.0**9
MODELS = {"A": (4, 6), "B": (6,)}  # card sizes in MiB by model
Key = tuple[str, str, str, int]


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(microseconds=round(seconds * 1_000_000))


@dataclass(frozen=True)
class Span:
    """[lo, hi) in seconds since START."""

    lo: float
    hi: float

    def __contains__(self, t: float) -> bool:
        return self.lo <= t < self.hi

    @property
    def sql(self) -> Sql:
        upper = "NULL" if self.hi >= FOREVER else f"'{at(self.hi).isoformat()}'"
        return Sql(f"tstzrange('{at(self.lo).isoformat()}', {upper})")


@dataclass(frozen=True)
class Seat:
    pk: int
    card: int
    node: int
    model: str
    mib: int
    span: Span


@dataclass(frozen=True)
class Share:
    card: int
    node: int
    project: str
    form: str
    mib: int
    span: Span
    closing: float


@dataclass
class History:
    simulated: dict[int, bool] = field(default_factory=dict)  # node → is it
    seats: list[Seat] = field(default_factory=list)
    zones: list[tuple[int, str, Span]] = field(default_factory=list)  # node, zone
    shares: list[Share] = field(default_factory=list)
    bonds: list[tuple[int, Span]] = field(default_factory=list)  # node given out as blocks or whole
    holds: list[tuple[str, int, Span]] = field(default_factory=list)  # "node" or "card", its id
    reserves: list[tuple[str, str, int, Span]] = field(default_factory=list)  # zone, model, MiB


# -- the reference ----------------------------------------------------------------------------------------------------


def accounts(
    history: History,
    start: float,
    end: float,
    *,
    zone: str | None = None,
    project: str | None = None,
    model: str | None = None,
    simulated: bool = False,
) -> Counter[Key]:
    """What reports.rows must say about [start, end), in seconds since START."""
    total: Counter[Key] = Counter()
    for t in range(_ceil(start), _ceil(end)):
        total.update(_moment(history, t, zone, model, simulated))
    if project is not None:
        total = Counter({key: n for key, n in total.items() if key[1] == project})
    return Counter({key: n for key, n in total.items() if n})


def _ceil(value: float) -> int:
    return int(-(-value // 1))


def _moment(  # noqa: C901  one straight walk through the precedence of accounts
    history: History, t: int, zone: str | None, model: str | None, simulated: bool
) -> Counter[Key]:
    found: Counter[Key] = Counter()
    idle: dict[tuple[str | None, str], Counter[tuple[str, int]]] = {}  # (zone, model) → (free or stranded, size) → MiB
    for seat in history.seats:
        where = next((z for node, z, span in history.zones if node == seat.node and t in span), None)
        if t not in seat.span or history.simulated[seat.node] != simulated:
            continue
        if (zone is not None and where != zone) or (model is not None and seat.model != model):
            continue
        taken = 0
        for share in history.shares:
            if share.card == seat.card and share.node == seat.node and t in share.span:
                account = "used" if t < share.closing else "cleaning"
                found[account, share.project, share.form, seat.mib] += share.mib
                taken += share.mib
        rest = seat.mib - taken
        if any(t in s and pk == (seat.node if kind == "node" else seat.card) for kind, pk, s in history.holds):
            found["held", "", "", seat.mib] += rest
            continue
        bound = any(node == seat.node and t in span for node, span in history.bonds)
        cell = idle.setdefault((where, seat.model), Counter())
        cell["stranded" if taken or bound else "free", seat.mib] += rest
    for (where, name), cell in idle.items():
        wanted = sum(mib for z, m, mib, span in history.reserves if z == where and m == name and t in span)
        for account in ("free", "stranded"):
            for (kind, size), mib in sorted(cell.items()):
                if kind == account:
                    kept = min(mib, wanted)
                    wanted -= kept
                    found["headroom", "", "", size] += kept
                    found[account, "", "", size] += mib - kept
    return found


# -- random histories -------------------------------------------------------------------------------------------------


class Author:
    """Writes one random history into the database, past the book."""

    def __init__(self, draw: random.Random, nodes: list[int], zones: dict[str, int], projects: dict[str, int]) -> None:
        self.draw, self.nodes, self.zones, self.projects = draw, nodes, zones, projects
        self.history = History()
        self.attempts: Iterator[int] = iter(())

    def write(self, simulated: Iterable[bool], attempts: Iterable[int]) -> History:
        self.attempts = iter(attempts)
        self.history.simulated = dict(zip(self.nodes, simulated, strict=True))
        for node in self.nodes:
            for span in self.chain(3):
                name = self.draw.choice(list(self.zones))
                if self.taken("ledger_nodezone", node_id=node, zone_id=self.zones[name], period=span.sql):
                    self.history.zones.append((node, name, span))
        for number in range(7):
            self.card(number)
        for _ in range(40):
            self.allocation()
        for _ in range(6):
            self.hold()
        for _ in range(6):
            self.reserve()
        return self.history

    def moment(self) -> float:
        """Whole, quarter or odd seconds, inside and around the window."""
        whole = self.draw.randrange(-20, LENGTH_S + 20)
        return whole + self.draw.choice([0.0, 0.0, 0.25, 0.5, self.draw.randrange(1_000_000) / 1_000_000])

    def span(self, inside: Span = Span(-FOREVER, FOREVER), shortest: float = 0.000001) -> Span | None:
        lo, hi = sorted((self.moment(), self.moment()))
        if self.draw.random() < 0.2:
            hi = lo + self.draw.randrange(1, 900_000) / 1_000_000  # less than a second
        lo = max(lo, inside.lo)
        hi = inside.hi if self.draw.random() < 0.2 else min(hi, inside.hi)
        return Span(lo, hi) if hi - lo >= shortest else None

    def chain(self, most: int) -> list[Span]:
        """Periods one after the other, some with gaps, some open at the end."""
        cuts = sorted({self.moment() for _ in range(self.draw.randrange(1, 2 * most))})
        spans = [Span(-1000.0, cuts[0])] if self.draw.random() < 0.7 else []
        spans += [Span(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if self.draw.random() < 0.7]
        return spans + ([Span(cuts[-1], FOREVER)] if self.draw.random() < 0.8 else [])

    def taken(self, table: str, **values: object) -> int | None:
        try:
            with transaction.atomic():
                return insert(table, **values)
        except IntegrityError:
            return None

    def card(self, number: int) -> None:
        model = self.draw.choice(list(MODELS))
        mib = self.draw.choice(MODELS[model])
        pk = insert(
            "ledger_card", uuid=f"card-{number}", model=model, memory_mib=mib, memory_assumed=False, virtual=False,
            mig_layout=[],
        )  # fmt: skip
        for span in self.chain(2):
            node = self.draw.choice(self.nodes)
            seat = self.taken("ledger_cardseat", card_id=pk, node_id=node, slot=number, period=span.sql)
            if seat is not None:
                self.history.seats.append(Seat(seat, pk, node, model, mib, span))

    def allocation(self) -> None:
        if not self.history.seats:
            return
        home = self.draw.choice(self.history.seats)
        span = self.span(home.span)
        if span is None:
            return
        form = self.draw.choice(["container", "container", "block", "whole"])
        project = self.draw.choice(list(self.projects))
        state, closing = self.ending(span)
        owner = self.taken(
            "ledger_allocation", attempt_id=next(self.attempts), project_id=self.projects[project], node_id=home.node,
            rank=0, form=form, driver="simulated", cpu_milli=1, host_memory_mib=1, state=state, period=span.sql,
            closing_at=None if closing is None else at(closing),
        )  # fmt: skip
        if owner is None:
            return
        if form != "container":
            self.history.bonds.append((home.node, span))
        for seat in self.history.seats:
            inside = seat.span.lo <= span.lo and span.hi <= seat.span.hi
            if seat.node == home.node and inside and (form == "whole" or seat is home or self.draw.random() < 0.5):
                self.share(owner, seat, span, form, project, FOREVER if closing is None else closing)

    def ending(self, span: Span) -> tuple[str, float | None]:
        """A state that fits the period, and when use ended: perhaps long after the window."""
        if span.hi < FOREVER:
            inside = span.lo + (span.hi - span.lo) * self.draw.choice([0.0, 0.3, 1.0, self.draw.random()])
            return "closed", inside
        if self.draw.random() < 0.5:
            return self.draw.choice(["opening", "active"]), None
        return "closing", span.lo + self.draw.choice([0.0, 10.5, 1_000_000.0])

    def share(self, owner: int, seat: Seat, span: Span, form: str, project: str, closing: float) -> None:
        lo = 0 if form != "container" else self.draw.randrange(seat.mib)
        hi = seat.mib if form != "container" else self.draw.randrange(lo + 1, seat.mib + 1)
        pk = self.taken(
            "ledger_cardshare", allocation_id=owner, seat_id=seat.pk, node_id=seat.node, card_id=seat.card,
            card_memory_mib=seat.mib, memory=f"{{[{lo},{hi})}}", compute="{}", memory_mib=hi - lo, mig_mode=False,
            period=span.sql,
        )  # fmt: skip
        if pk is not None:
            self.history.shares.append(Share(seat.card, seat.node, project, form, hi - lo, span, closing))

    def hold(self) -> None:
        span = self.span()
        kind = self.draw.choice(["node", "card"])
        cards = sorted({seat.card for seat in self.history.seats})
        pk = self.draw.choice(self.nodes if kind == "node" else cards or self.nodes)
        if span is None or (kind == "card" and not cards):
            return
        why = self.draw.choice(["fault", "drill", "maintenance"])
        if self.taken("ledger_hold", **{f"{kind}_id": pk}, kind=why, period=span.sql, reason="", rule=""):
            self.history.holds.append((kind, pk, span))

    def reserve(self) -> None:
        span, zone, model = self.span(), self.draw.choice(list(self.zones)), self.draw.choice(list(MODELS))
        mib = self.draw.randrange(0, 16)
        if span and self.taken(
            "ledger_headroomreserve", zone_id=self.zones[zone], model=model, mib=mib, period=span.sql
        ):  # fmt: skip
            self.history.reserves.append((zone, model, mib, span))


def lift_guards() -> None:
    """Let histories be written: the guards look at the present. Undone with the test's transaction."""
    run("SET CONSTRAINTS ALL IMMEDIATE")
    for table in ("ledger_allocation", "ledger_cardshare", "ledger_hold"):
        run(f"ALTER TABLE {table} DISABLE TRIGGER USER")


def lay_out(seed: int) -> History:
    """A random history of three nodes (the last simulated), two zones and two projects."""
    draw = random.Random(seed)
    projects = {slug: factories.project(slug) for slug in ("vision", "speech")}
    nodes = [factories.node(f"n{n}", cards=0, simulated=n == 2).pk for n in range(3)]
    run("DELETE FROM ledger_nodezone")
    zones = {slug: factories.zone(slug).pk for slug in ("z1", "z2")}
    owner = next(iter(projects.values()))
    work = job(owner.pk, owner.owner_id)
    columns = "job_id, n, fence, state, outcome, message, opened_at, ended_at"
    attempts = [
        pk
        for (pk,) in run(
            f"INSERT INTO ledger_attempt ({columns}) SELECT %s, n, nextval('ledger_fence'), 'ended', 'lost', '', now(), "
            "now() FROM generate_series(1, 60) AS n RETURNING id",
            work,
        )
    ]
    lift_guards()
    author = Author(draw, nodes, zones, {slug: project.pk for slug, project in projects.items()})
    return author.write([False, False, True], attempts)
