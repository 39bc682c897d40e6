"""What the health board shows: every card whatever its form, how it stands, and the same summed up by rack. A fixed
number of queries, whatever the size of the fleet. Reads only; decides nothing.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from django.db.models import (
    Case,
    Count,
    DateTimeField,
    Exists,
    F,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce, JSONObject

from ledger.models import Allocation, Card, CardSeat, CardShare, Fault, Hold, Job, NodeZone, Project, User, Zone
from ledger.vocabulary import FaultKind, HoldKind, NodeState
from portal.health_words import Health, codes, fault_name
from portal.views.fleet_rows import BAD_HOLDS, NOW
from scheduler.reconcile import SILENT_AFTER

Place = tuple[str, str, str]  # site, room, rack
STATUS: Final = "card__status__"
NEVER: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NOT_TOLD: Final = -1000  # sorts below everything that a card can tell


def health_case(now: dt.datetime) -> Case:
    """portal.health_words.health_of for a seat, as the database works it out. What is held and open is read once."""
    faults = Fault.objects.filter(cleared_at=None).order_by()
    of_nodes = faults.filter(card=None)
    holds = Hold.objects.filter(NOW).order_by()
    silent = Q(node__state=NodeState.OFFLINE) | Q(card__status__received_at__lt=now - SILENT_AFTER)
    return Case(
        When(
            silent | Q(node__in=of_nodes.filter(kind=FaultKind.SILENT).values("node")), then=Value(int(Health.SILENT))
        ),
        When(_held(holds.filter(kind__in=BAD_HOLDS)), then=Value(int(Health.FAULT))),
        When(_held(holds.exclude(kind=HoldKind.LINK)), then=Value(int(Health.HELD))),
        When(
            _held(holds.filter(kind=HoldKind.LINK))
            | Q(card__in=faults.filter(card__isnull=False).values("card"))
            | Q(node__in=of_nodes.values("node")),
            then=Value(int(Health.WATCH)),
        ),
        When(card__status__isnull=True, then=Value(int(Health.UNKNOWN))),
        default=Value(int(Health.OK)),
        output_field=IntegerField(),
    )


def _held(holds: QuerySet[Hold]) -> Q:
    cards = holds.filter(card__isnull=False).values("card")
    return Q(card__in=cards) | Q(node__in=holds.filter(node__isnull=False).values("node"))


def _seats(simulated: bool) -> QuerySet[CardSeat]:
    return CardSeat.objects.filter(NOW, node__simulated=simulated).exclude(node__state=NodeState.RETIRED)


# -- by rack -----------------------------------------------------------------------------------------------------------


@dataclass
class RackLine:
    """The cards of one rack. Means and parts are of those that tell; None when none does."""

    place: Place
    counts: Counter[int] = field(default_factory=Counter)  # by Health
    nodes: Counter[int] = field(default_factory=Counter)  # the same; a node counts in each that its cards have
    hottest: int | None = None
    newest: dt.datetime | None = None
    oldest: dt.datetime | None = None
    sums: Counter[str] = field(default_factory=Counter)
    faults: int = 0  # open ones, of cards and nodes
    times: int = 0  # how often they were counted

    @property
    def name(self) -> str:
        return " / ".join(part for part in self.place if part)

    @property
    def cards(self) -> int:
        return sum(self.counts.values())

    @property
    def by_health(self) -> list[int]:
        return [self.counts[health] for health in Health]

    @property
    def temperature(self) -> float | None:
        return _part(self.sums["heat"], self.sums["heats"])

    @property
    def load(self) -> float | None:
        return _part(self.sums["load"], self.sums["loads"])

    @property
    def memory(self) -> float | None:
        """Percent of the memory of those cards that tell how much is used."""
        return _part(100 * self.sums["used"], self.sums["of"])

    def add(self, row: Mapping[str, Any]) -> None:
        self.counts[row["health"]] += row["cards"]
        self.nodes[row["health"]] += row["nodes"]
        self.hottest = _most(self.hottest, row["hottest"])
        self.newest = _most(self.newest, row["newest"])
        if row["oldest"] is not None:
            self.oldest = row["oldest"] if self.oldest is None else min(self.oldest, row["oldest"])
        for name in SUMS:
            self.sums[name] += row[name] or 0


def _most(one: Any, other: Any) -> Any:
    return max((value for value in (one, other) if value is not None), default=None)


def _part(part: float, whole: float) -> float | None:
    return part / whole if whole else None


SUMS: Final[dict[str, Any]] = {
    "heat": Sum(f"{STATUS}temperature_c"),
    "heats": Count(f"{STATUS}temperature_c"),
    "load": Sum(f"{STATUS}utilisation_pct"),
    "loads": Count(f"{STATUS}utilisation_pct"),
    "used": Sum(f"{STATUS}memory_used_mib"),
    "of": Sum("card__memory_mib", filter=Q(card__status__memory_used_mib__isnull=False)),
}
PLACE: Final = ("node__site", "node__room", "node__rack")


def rack_lines(*, simulated: bool, now: dt.datetime) -> list[RackLine]:
    """One line a rack that has cards, in order. Two queries."""
    rows = _seats(simulated).annotate(health=health_case(now)).order_by(*PLACE).values(*PLACE, "health")
    lines: dict[Place, RackLine] = {}
    heard = {"newest": Max(f"{STATUS}received_at"), "oldest": Min(f"{STATUS}received_at")}
    counted = {"cards": Count("pk"), "nodes": Count("node", distinct=True), "hottest": Max(f"{STATUS}temperature_c")}
    for row in rows.annotate(**counted, **heard, **SUMS):
        place = (row["node__site"], row["node__room"], row["node__rack"])
        lines.setdefault(place, RackLine(place)).add(row)
    open_faults = Fault.objects.filter(cleared_at=None, node__simulated=simulated).order_by().values_list(*PLACE)
    for site, room, rack, faults, times in open_faults.annotate(Count("pk"), Sum("count")):
        if line := lines.get((site, room, rack)):
            line.faults, line.times = faults, times
    return list(lines.values())


def summed(lines: Iterable[RackLine]) -> RackLine:
    """All racks in one line."""
    total = RackLine(("", "", ""))
    for line in lines:
        total.counts.update(line.counts)
        total.nodes.update(line.nodes)
        total.sums.update(line.sums)
        total.hottest, total.newest = _most(total.hottest, line.hottest), _most(total.newest, line.newest)
        if line.oldest is not None:
            total.oldest = line.oldest if total.oldest is None else min(total.oldest, line.oldest)
        total.faults, total.times = total.faults + line.faults, total.times + line.times
    return total


def choices(*, simulated: bool) -> dict[str, list[tuple[str, str]]]:
    """Zones and card models to choose from. One query."""
    zones = Zone.objects.order_by().values_list("slug", "title", Value("zone"))
    models = Card.objects.filter(seats__period__upper_inf=True, seats__node__simulated=simulated).order_by()
    found: dict[str, list[tuple[str, str]]] = {"zone": [], "model": []}
    for key, title, kind in sorted(zones.union(models.values_list("model", "model", Value("model")))):
        found[kind].append((key, title))
    return found


# -- cards -------------------------------------------------------------------------------------------------------------


class Owner(NamedTuple):
    """Who holds a share of a card; empty words where the viewer may not see whose."""

    job: int | None
    name: str
    project: str
    by: str


@dataclass(slots=True)
class BoardRow:
    """A seat with what the board's query annotates on it."""

    seat: Any
    now: dt.datetime
    holds: list[Hold] = field(default_factory=list)  # of the card and its node
    owners: list[Owner] = field(default_factory=list)

    @property
    def card(self) -> Card:
        card: Card = self.seat.card
        return card

    @property
    def status(self) -> Any:
        return getattr(self.seat.card, "status", None)

    @property
    def health(self) -> Health:
        return Health(self.seat.health)

    @property
    def last_fault(self) -> dict[str, Any] | None:
        """The last fault that was counted: its name, its time, and whether it still stands."""
        found = self.seat.last_fault
        return found and {
            "name": fault_name(found["kind"], found["code"]),
            "at": found["at"],
            "open": found["cleared"] is None,
        }

    @property
    def age_s(self) -> int | None:
        return None if self.status is None else max(0, int((self.now - self.status.received_at).total_seconds()))

    @property
    def power_w(self) -> int | None:
        told = self.status and self.status.power_mw
        return None if told is None else round(told / 1000)


def filtered(chosen: Mapping[str, Any], user: User, *, simulated: bool, now: dt.datetime) -> QuerySet[CardSeat]:
    """Cards under the filter (portal.health_forms.HealthFilter; `rack` is a place), with what rows show."""
    seats = _seats(simulated).select_related("card", "card__status", "node").annotate(health=health_case(now))
    zone = NodeZone.objects.filter(NOW, node=OuterRef("node"))
    form = Allocation.objects.filter(NOW, node=OuterRef("node"))
    if text := chosen.get("q"):
        seats = seats.filter(Q(card__uuid__icontains=text) | Q(node__hostname__icontains=text))
    if slug := chosen.get("zone"):
        seats = seats.filter(Exists(zone.filter(zone__slug=slug)))
    if asked := chosen.get("form"):
        seats = seats.filter(~Exists(form) if asked == "none" else Exists(form.filter(form=asked)))
    if model := chosen.get("model"):
        seats = seats.filter(card__model=model)
    if place := chosen.get("rack"):
        seats = seats.filter(node__site=place[0], node__room=place[1], node__rack=place[2])
    if word := chosen.get("health"):
        seats = seats.filter(health=codes()[word])
    return seats.annotate(
        zone_title=Coalesce(Subquery(zone.values("zone__title")[:1]), Value("")),
        form_now=Coalesce(Subquery(form.values("form")[:1]), Value("")),
        **_faults(),
    ).alias(owner=Coalesce(Subquery(_owner(user)), Value("")), **_told())


def _faults() -> dict[str, Any]:
    of_card = Fault.objects.filter(card=OuterRef("card"))
    standing = of_card.filter(cleared_at=None).order_by().values("card")
    last = of_card.order_by("-last_seen")
    said = JSONObject(kind="kind", code="code", at="last_seen", cleared="cleared_at")
    return {
        "fault_count": Coalesce(Subquery(standing.annotate(n=Count("pk")).values("n")), 0),
        "fault_times": Coalesce(Subquery(standing.annotate(n=Sum("count")).values("n")), 0),
        "last_fault": Subquery(last.values(said=said)[:1]),
        "last_fault_at": Coalesce(Subquery(last.values("last_seen")[:1]), Value(NEVER), output_field=DateTimeField()),
    }


def _owner(user: User) -> QuerySet[Any]:
    """The first project of a card that the viewer may see: others' names are not even sorted by."""
    seen = Project.objects.visible_to(user).values("pk")
    shares = CardShare.objects.filter(NOW, card=OuterRef("card"), allocation__project__in=seen)
    return shares.order_by("allocation__project__slug").values("allocation__project__slug")[:1]


def _told() -> dict[str, Any]:
    """What cards tell, for sorting: those that don't come below all others."""
    names = ("temperature_c", "memory_used_mib", "utilisation_pct", "tensor_pct", "memory_busy_pct", "power_mw")
    told: dict[str, Any] = {
        name: Coalesce(F(f"{STATUS}{name}"), Value(NOT_TOLD), output_field=IntegerField()) for name in names
    }
    told["heard"] = Coalesce(F(f"{STATUS}received_at"), Value(NEVER), output_field=DateTimeField())
    return told


def board_rows(seats: Sequence[Any], user: User, now: dt.datetime) -> list[BoardRow]:
    """The rows of these seats, in their order. Two queries."""
    rows = {seat.card_id: BoardRow(seat, now) for seat in seats}
    of_node: dict[int, list[BoardRow]] = defaultdict(list)
    for row in rows.values():
        of_node[row.seat.node_id].append(row)
    for hold in Hold.objects.filter(NOW).filter(Q(card__in=rows) | Q(node__in=of_node)).order_by("pk"):
        places = [rows[hold.card_id]] if hold.card_id is not None else of_node[hold.node_id or 0]
        for row in places:
            row.holds.append(hold)
    seen = Exists(Job.objects.visible_to(user).filter(pk=OuterRef("allocation__attempt__job")))
    job = "allocation__attempt__job__"
    shares = CardShare.objects.filter(NOW, card__in=rows).order_by("pk").annotate(seen=seen)
    for card_id, shown, *words in shares.values_list(
        "card_id", "seen", f"{job}pk", f"{job}name", f"{job}project__slug", f"{job}by__username"
    ):
        rows[card_id].owners.append(Owner(*words) if shown else Owner(None, "", "", ""))
    return list(rows.values())
