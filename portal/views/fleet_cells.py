"""The cards of one kind of hardware as the fleet map shows them, in columns, read with a fixed number of queries.

Whose a card is, is told only of projects that the viewer may see. Reads only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from django.db.models import BooleanField, Count, ExpressionWrapper, Q
from django.db.models.functions import Now

from ledger.models import Allocation, CardSeat, CardShare, Fault, Hold, Node, NodeZone, Project, User
from ledger.vocabulary import AllocationState, FaultKind, Form, HoldKind, NodeState
from portal.health_words import Health, health_of
from portal.views.fleet_rows import BAD_HOLDS, NOW
from scheduler.reconcile import SILENT_AFTER

Place = tuple[str, str, str]  # site, room, rack
OTHERS, SEVERAL, NOBODY = -1, -2, -3  # owners that are not an index into the projects


class CardState(IntEnum):
    """One word a card, the most urgent first: out of reach, out of the pool, on its way back, then how full it is."""

    OFFLINE = 0
    HELD = 1
    HELD_IN_USE = 2  # held, but its tenants are not gone yet
    CLEANING = 3
    USED = 4
    PARTLY = 5
    STRANDED = 6  # free, but its node is in use as blocks or whole
    FREE = 7


@dataclass
class Cells:
    """Columns of equal length: nodes in the order of their place, cards in the order of their nodes and slots."""

    places: list[Place]
    projects: list[str]
    models: list[str]
    zones: list[str]
    nodes: dict[str, list[Any]]
    cards: dict[str, list[Any]]


NODE_COLUMNS: Final = ("name", "place", "state", "form", "zone", "hold", "faults", "cards")
CARD_COLUMNS: Final = (
    "slot",
    "model",
    "mib",
    "given",
    "state",
    "owner",
    "tenants",
    "hold",
    "faults",
    "temperature",
    "used",
    "load",
    "health",
)


def places(*, simulated: bool) -> list[Place]:
    """The racks that have nodes, in order."""
    nodes = Node.objects.filter(simulated=simulated).exclude(state=NodeState.RETIRED)
    return list(nodes.order_by("site", "room", "rack").values_list("site", "room", "rack").distinct())


def place_name(place: Place) -> str:
    return " / ".join(part for part in place if part)


@dataclass
class _Taken:
    """What is given out of one card."""

    mib: int = 0
    tenants: int = 0
    closing: int = 0
    projects: set[int] = field(default_factory=set)


class _Reader:
    """The rows that hang on cards and nodes, by their id."""

    def __init__(self, viewer: User, simulated: bool) -> None:
        of_these = {"node__simulated": simulated}
        self.zones = dict(NodeZone.objects.filter(NOW, **of_these).values_list("node_id", "zone__title"))
        self.forms = dict(Allocation.objects.filter(NOW, **of_these).values_list("node_id", "form"))
        self.node_holds: dict[int, str] = {}
        self.card_holds: dict[int, str] = {}
        self.kinds: dict[tuple[str, int], set[str]] = defaultdict(set)  # of holds, by ("node" | "card", id)
        for node_id, card_id, kind in Hold.objects.filter(NOW).order_by("pk").values_list("node", "card", "kind"):
            if node_id is not None:
                self.node_holds[node_id] = kind
                self.kinds["node", node_id].add(kind)
            elif card_id is not None:
                self.card_holds[card_id] = kind
                self.kinds["card", card_id].add(kind)
        self.taken: dict[int, _Taken] = defaultdict(_Taken)
        shares = CardShare.objects.filter(NOW, **of_these)
        for card_id, mib, state, project_id in shares.values_list(
            "card_id", "memory_mib", "allocation__state", "allocation__project_id"
        ):
            taken = self.taken[card_id]
            taken.mib += mib
            taken.tenants += 1
            taken.closing += state == AllocationState.CLOSING
            taken.projects.add(project_id)
        seen = list(Project.objects.visible_to(viewer).order_by("slug").values_list("pk", "slug"))
        self.projects = {pk: i for i, (pk, _slug) in enumerate(seen)}
        self.slugs = [slug for _pk, slug in seen]
        self.faults: Counter[tuple[int, int | None]] = Counter()
        open_faults = Fault.objects.filter(cleared_at=None, **of_these).order_by().values_list("node_id", "card_id")
        self.silent: set[int] = set()
        silent = Count("pk", filter=Q(kind=FaultKind.SILENT, card=None))
        for node_id, card_id, n, mute in open_faults.annotate(Count("pk"), mute=silent):
            self.faults[node_id, card_id] = n
            if mute:
                self.silent.add(node_id)

    def owner(self, card_id: int) -> int:
        taken = self.taken.get(card_id)
        if taken is None:
            return NOBODY
        if len(taken.projects) > 1:
            return SEVERAL
        return self.projects.get(next(iter(taken.projects)), OTHERS)

    def health(self, node_id: int, node_state: str, card_id: int, old: bool | None) -> Health:
        """`old`: whether its reading is; None when it never told."""
        kinds = self.kinds.get(("node", node_id), set()) | self.kinds.get(("card", card_id), set())
        return health_of(
            silent=node_state == NodeState.OFFLINE or node_id in self.silent or bool(old),
            bad=not kinds.isdisjoint(BAD_HOLDS),
            held=bool(kinds - {HoldKind.LINK}),
            faults=self.faults[node_id, card_id] + self.faults[node_id, None],
            linked=HoldKind.LINK in kinds,
            heard=old is not None,
        )

    def state(self, node_id: int, node_state: str, card_id: int, mib: int) -> CardState:
        taken = self.taken.get(card_id)
        if node_state == NodeState.OFFLINE:
            return CardState.OFFLINE
        if node_id in self.node_holds or card_id in self.card_holds:
            return CardState.HELD if taken is None else CardState.HELD_IN_USE
        if taken is None:
            bound = self.forms.get(node_id) in (Form.BLOCK, Form.WHOLE)
            return CardState.STRANDED if bound else CardState.FREE
        if taken.closing == taken.tenants:
            return CardState.CLEANING
        return CardState.USED if taken.mib >= mib else CardState.PARTLY


class _Index:
    """Words as small numbers, in the order in which they come."""

    def __init__(self) -> None:
        self.words: list[Any] = []
        self._of: dict[Any, int] = {}

    def __call__(self, word: Any) -> int:
        if word not in self._of:
            self._of[word] = len(self.words)
            self.words.append(word)
        return self._of[word]


def read_cells(viewer: User, *, simulated: bool, place: Place | None = None) -> Cells:
    reader = _Reader(viewer, simulated)
    nodes = Node.objects.filter(simulated=simulated).exclude(state=NodeState.RETIRED)
    if place is not None:
        nodes = nodes.filter(site=place[0], room=place[1], rack=place[2])
    rows = nodes.order_by("site", "room", "rack", "hostname").values_list(
        "pk", "hostname", "site", "room", "rack", "state"
    )
    seats = _seats(simulated)
    racks, models, zones = _Index(), _Index(), _Index()
    node_rows: list[tuple[Any, ...]] = []
    card_rows: list[tuple[Any, ...]] = []
    for pk, hostname, site, room, rack, state in rows:
        zone = reader.zones.get(pk)
        node_rows.append(
            (
                hostname,
                racks((site, room, rack)),
                state,
                reader.forms.get(pk, ""),
                -1 if zone is None else zones(zone),
                reader.node_holds.get(pk, ""),
                reader.faults.get((pk, None), 0),
                len(seats[pk]),
            )
        )
        card_rows += [_card(reader, pk, state, seat, models) for seat in seats[pk]]
    columns = _columns(NODE_COLUMNS, node_rows), _columns(CARD_COLUMNS, card_rows)
    return Cells(racks.words, reader.slugs, models.words, zones.words, *columns)


def _columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    if not rows:
        return {name: [] for name in names}
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


Seat = tuple[int, int, int, str, int, int | None, int | None, int | None, bool | None]


def _seats(simulated: bool) -> dict[int, list[Seat]]:
    found: dict[int, list[Seat]] = defaultdict(list)
    seats = CardSeat.objects.filter(NOW, node__simulated=simulated).order_by("node_id", "slot")
    old = ExpressionWrapper(Q(card__status__received_at__lt=Now() - SILENT_AFTER), BooleanField(null=True))
    for seat in seats.annotate(old=old).values_list(
        "node_id",
        "slot",
        "card_id",
        "card__model",
        "card__memory_mib",
        "card__status__temperature_c",
        "card__status__memory_used_mib",
        "card__status__utilisation_pct",
        "old",
    ):
        found[seat[0]].append(seat)
    return found


def _card(reader: _Reader, node_id: int, node_state: str, seat: Seat, models: _Index) -> tuple[Any, ...]:
    _node, slot, card_id, model, mib, temperature, used, load, old = seat
    taken = reader.taken.get(card_id)
    return (
        slot,
        models(model),
        mib,
        taken.mib if taken else 0,
        int(reader.state(node_id, node_state, card_id, mib)),
        reader.owner(card_id),
        taken.tenants if taken else 0,
        reader.card_holds.get(card_id, ""),
        reader.faults.get((node_id, card_id), 0),
        temperature,
        used,
        load,
        int(reader.health(node_id, node_state, card_id, old)),
    )


@dataclass
class RackLine:
    """One rack in the table beside the map."""

    place: Place
    nodes: int = 0
    cards: int = 0
    faults: int = 0
    states: Counter[int] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return place_name(self.place)


def rack_lines(cells: Cells) -> list[RackLine]:
    lines = [RackLine(place) for place in cells.places]
    card = 0
    for place, count, faults in zip(cells.nodes["place"], cells.nodes["cards"], cells.nodes["faults"], strict=True):
        line = lines[place]
        line.nodes += 1
        line.cards += count
        line.states.update(cells.cards["state"][card : card + count])
        line.faults += faults + sum(cells.cards["faults"][card : card + count])
        card += count
    return lines
