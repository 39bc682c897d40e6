"""What pages show of nodes and cards, read with a fixed number of queries. Reads only; decides nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from ledger.fields import Interval
from ledger.models import Allocation, Card, CardSeat, CardShare, Fault, Hold, Job, Node, NodeZone, User, Zone
from ledger.vocabulary import HoldKind, NodeState

NOW = Q(period__upper_inf=True)  # a period that still goes on
BAD_HOLDS = (HoldKind.FAULT, HoldKind.LOST)  # out of the pool for a fault

TINTS = 3  # of static/css/machines.css


OF_SHARE = ("card_id", "memory_mib", "memory", "allocation__state", "allocation__form", "allocation__attempt__job_id")
OF_JOB = ("name", "project__slug", "by__username")


class _Share(NamedTuple):
    """What OF_SHARE reads."""

    card_id: int
    memory_mib: int
    memory: Sequence[Interval]
    state: str
    form: str
    job_id: int


@dataclass(slots=True)
class Tenant:
    """A share of a card. `job` is None for people who may not see it."""

    memory_mib: int
    state: str
    form: str
    job: Job | None
    intervals: Sequence[Interval] = ()  # where on the card, [lo, hi) MiB
    tint: int = 0  # the same for all shares of a job; tells neighbours apart

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where on the card: (start, size) in MiB."""
        return [(lo, hi - lo) for lo, hi in self.intervals]


@dataclass(slots=True)
class CardRow:
    seat: CardSeat
    holds: list[Hold] = field(default_factory=list)
    tenants: list[Tenant] = field(default_factory=list)
    faults: int = 0  # open ones
    node_held: bool = False

    @property
    def card(self) -> Card:
        return self.seat.card

    @property
    def alone(self) -> list[CardRow]:
        """For the drawing of one card."""
        return [self]

    @property
    def hold(self) -> Hold | None:
        """The newest."""
        return self.holds[-1] if self.holds else None

    @property
    def taken_mib(self) -> int:
        return sum(tenant.memory_mib for tenant in self.tenants)

    @property
    def free_mib(self) -> int:
        return self.card.memory_mib - self.taken_mib

    @property
    def status(self) -> Any:
        return getattr(self.card, "status", None)


@dataclass(slots=True)
class NodeRow:
    node: Node
    zone: Zone | None
    form: str
    holds: list[Hold]
    cards: list[CardRow]

    @property
    def hold(self) -> Hold | None:
        """The newest."""
        return self.holds[-1] if self.holds else None

    @property
    def offered(self) -> bool:
        """Offline is unknown and held is out of the pool: neither counts as free."""
        return self.node.state == NodeState.UP and not self.holds

    @property
    def free_cards(self) -> int:
        return sum(self.offered and not row.holds and not row.tenants for row in self.cards)

    @property
    def free_mib(self) -> int:
        return sum(row.free_mib for row in self.cards if self.offered and not row.holds)

    @property
    def taken_mib(self) -> int:
        return sum(row.taken_mib for row in self.cards)

    @property
    def faults(self) -> int:
        return sum(row.faults for row in self.cards)

    @property
    def virtual(self) -> bool:
        return any(row.card.virtual for row in self.cards)

    @property
    def models(self) -> list[str]:
        return sorted({row.card.model for row in self.cards})


def node_rows(nodes: Sequence[Node], viewer: User) -> list[NodeRow]:
    """The rows of these nodes, in their order: zone, form in use, holds, cards and who holds them."""
    ids = [node.pk for node in nodes]
    zones = {z.node_id: z.zone for z in NodeZone.objects.filter(NOW, node__in=ids).select_related("zone")}
    forms = dict(Allocation.objects.filter(NOW, node__in=ids).values_list("node_id", "form"))
    seats = CardSeat.objects.filter(NOW, node__in=ids).select_related("card", "card__status", "block").order_by("slot")
    cards: dict[int, list[CardRow]] = defaultdict(list)
    holds: dict[int | None, list[Hold]] = defaultdict(list)
    for hold in Hold.objects.filter(NOW, node__in=ids).select_related("by").order_by("pk"):
        holds[hold.node_id].append(hold)
    for row in _card_rows(list(seats), viewer):
        cards[row.seat.node_id].append(row)
        row.node_held = row.seat.node_id in holds
    return [NodeRow(node, zones.get(node.pk), forms.get(node.pk, ""), holds[node.pk], cards[node.pk]) for node in nodes]


def seat_rows(seats: Sequence[CardSeat], viewer: User) -> list[CardRow]:
    """The rows of these seats, in their order. Seats come with card, status and node."""
    rows = _card_rows(seats, viewer)
    nodes = {seat.node_id for seat in seats}
    held = set(Hold.objects.filter(NOW, node__in=nodes).values_list("node_id", flat=True))
    for row in rows:
        row.node_held = row.seat.node_id in held
    return rows


def _card_rows(seats: Sequence[CardSeat], viewer: User) -> list[CardRow]:
    rows = {seat.card_id: CardRow(seat) for seat in seats}
    for hold in Hold.objects.filter(NOW, card__in=rows).select_related("by").order_by("pk"):
        if hold.card_id is not None:
            rows[hold.card_id].holds.append(hold)
    faults = Fault.objects.filter(card__in=rows, cleared_at=None).order_by().values_list("card").annotate(Count("pk"))
    for card_id, count in faults:
        rows[card_id].faults = count
    held = CardShare.objects.filter(NOW, card__in=rows).order_by("pk").values_list(*OF_SHARE)
    shares = [_Share(*values) for values in held]
    jobs = _jobs({share.job_id for share in shares}, viewer)
    for share in shares:
        job = jobs.get(share.job_id)
        tenant = Tenant(share.memory_mib, share.state, share.form, job, share.memory, share.job_id % TINTS)
        rows[share.card_id].tenants.append(tenant)
    return list(rows.values())


def _jobs(ids: Iterable[int], viewer: User) -> dict[int, Job]:
    """Those that the viewer may see, with no more of them than lists show."""
    return Job.objects.visible_to(viewer).select_related("project", "by").only(*OF_JOB).in_bulk(ids)


def filtered_nodes(chosen: dict[str, Any], *, simulated: bool) -> QuerySet[Node]:
    """Nodes under the filter of the page (portal.forms.NodeFilter), sortable by zone, form, model, cards and free."""
    nodes = Node.objects.filter(simulated=simulated)
    live = Allocation.objects.filter(NOW, node=OuterRef("pk"))
    if text := chosen.get("q"):
        nodes = nodes.filter(Q(hostname__icontains=text) | Q(rack__icontains=text) | Q(leaf__icontains=text))
    if zone := chosen.get("zone"):
        nodes = nodes.filter(Exists(NodeZone.objects.filter(NOW, node=OuterRef("pk"), zone__slug=zone)))
    if form := chosen.get("form"):
        nodes = nodes.filter(~Exists(live) if form == "none" else Exists(live.filter(form=form)))
    if model := chosen.get("model"):
        nodes = nodes.filter(Exists(CardSeat.objects.filter(NOW, node=OuterRef("pk"), card__model=model)))
    if (state := chosen.get("state")) == "held":
        nodes = nodes.filter(Exists(Hold.objects.filter(NOW, node=OuterRef("pk"))))
    elif state:
        nodes = nodes.filter(state=state)
    seats = CardSeat.objects.filter(NOW, node=OuterRef("pk")).order_by()
    nodes = nodes.alias(
        zone_title=Subquery(NodeZone.objects.filter(NOW, node=OuterRef("pk")).values("zone__title")[:1]),
        form_now=Subquery(live.values("form")[:1]),
        model_now=Subquery(seats.values("card__model")[:1]),
        card_count=_counted(seats),
        free=_counted(free_seats().filter(node=OuterRef("pk")).order_by()),
    )
    if free := chosen.get("free"):
        nodes = nodes.filter(free__gte=free)
    return nodes


def _counted(seats: QuerySet[CardSeat]) -> Coalesce:
    return Coalesce(Subquery(seats.values("node").annotate(n=Count("pk")).values("n")), 0)


def free_seats() -> QuerySet[CardSeat]:
    """Seats whose card nobody holds any part of, on nodes that are up and not held. What is taken and held is read
    once, also where each node asks."""
    taken = CardShare.objects.filter(NOW).order_by().values("card")
    held = Hold.objects.filter(NOW).order_by()
    cards, nodes = held.filter(card__isnull=False).values("card"), held.filter(node__isnull=False).values("node")
    free = ~Q(card__in=taken) & ~Q(card__in=cards) & ~Q(node__in=nodes)
    return CardSeat.objects.filter(NOW, free, node__state=NodeState.UP)


def filtered_seats(chosen: dict[str, Any], *, simulated: bool) -> QuerySet[CardSeat]:
    """Cards where they sit now, under the filter of the page (portal.zone_forms.CardFilter); `taken` sorts."""
    seats = CardSeat.objects.filter(NOW, node__simulated=simulated).select_related("card", "card__status", "node")
    shares = CardShare.objects.filter(NOW, card=OuterRef("card"))
    holds = Exists(Hold.objects.filter(NOW).filter(Q(card=OuterRef("card")) | Q(node=OuterRef("node"))))
    faults = Exists(Fault.objects.filter(card=OuterRef("card"), cleared_at=None))
    if text := chosen.get("q"):
        seats = seats.filter(Q(card__uuid__icontains=text) | Q(node__hostname__icontains=text))
    if zone := chosen.get("zone"):
        seats = seats.filter(Exists(NodeZone.objects.filter(NOW, node=OuterRef("node"), zone__slug=zone)))
    if model := chosen.get("model"):
        seats = seats.filter(card__model=model)
    if (least := chosen.get("temperature")) is not None:
        seats = seats.filter(card__status__temperature_c__gte=least)
    conditions = {"taken": Exists(shares), "held": holds, "faulty": faults}
    if (state := chosen.get("state")) == "free":
        seats = seats.filter(pk__in=free_seats().values("pk"))
    elif state:
        seats = seats.filter(conditions[state])
    total = shares.order_by().values("card").annotate(n=Sum("memory_mib")).values("n")
    return seats.alias(taken_mib=Coalesce(Subquery(total), Value(0)))


def zone_rows(zones: Iterable[Zone], *, simulated: bool) -> list[dict[str, Any]]:
    """One row a zone: nodes, cards, forms in use, free cards, held and draining nodes of one world."""
    members = NodeZone.objects.filter(NOW, node__simulated=simulated).exclude(node__state=NodeState.RETIRED)
    zone_of = dict(members.values_list("node_id", "zone_id"))
    world: dict[str, Any] = {"node__simulated": simulated}
    forms = dict(Allocation.objects.filter(NOW, **world).values_list("node_id", "form"))
    holds: dict[int | None, set[str]] = defaultdict(set)
    for node_id, kind in Hold.objects.filter(NOW, **world).values_list("node_id", "kind"):
        holds[node_id].add(kind)
    cards = _by_node(CardSeat.objects.filter(NOW, **world))
    free = _by_node(free_seats().filter(**world))
    tallies: dict[int, Counter[str]] = defaultdict(Counter)
    for node_id, zone_id in zone_of.items():
        tally = tallies[zone_id]
        tally["nodes"] += 1
        tally[forms.get(node_id, "none")] += 1
        tally["cards"] += cards.get(node_id, 0)
        tally["free"] += free.get(node_id, 0)
        tally["held"] += node_id in holds
        tally["draining"] += "drain" in holds.get(node_id, ())
    return [{"zone": zone, "counts": tallies[zone.pk]} for zone in zones]


def _by_node(seats: QuerySet[CardSeat]) -> dict[int, int]:
    return dict(seats.order_by().values_list("node_id").annotate(n=Count("pk")))
