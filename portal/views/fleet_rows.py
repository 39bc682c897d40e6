"""What pages show of nodes and cards, read with a fixed number of queries. Reads only; decides nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from ledger.models import Allocation, Card, CardSeat, CardShare, Hold, Job, Node, NodeZone, User, Zone
from ledger.vocabulary import NodeState

NOW = Q(period__upper_inf=True)  # a period that still goes on


@dataclass(slots=True)
class Tenant:
    """A share of a card. `job` and `project` are None for people who may not see them."""

    memory_mib: int
    state: str
    form: str
    job: Job | None


@dataclass(slots=True)
class CardRow:
    seat: CardSeat
    hold: Hold | None = None
    tenants: list[Tenant] = field(default_factory=list)

    @property
    def card(self) -> Card:
        return self.seat.card

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
    hold: Hold | None
    cards: list[CardRow]

    @property
    def offered(self) -> bool:
        """Offline is unknown and held is out of the pool: neither counts as free."""
        return self.node.state == NodeState.UP and self.hold is None

    @property
    def free_cards(self) -> int:
        return sum(self.offered and row.hold is None and not row.tenants for row in self.cards)

    @property
    def free_mib(self) -> int:
        return sum(row.free_mib for row in self.cards if self.offered and row.hold is None)

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
    node_holds = {hold.node_id: hold for hold in Hold.objects.filter(NOW, node__in=ids)}
    forms = dict(Allocation.objects.filter(NOW, node__in=ids).values_list("node_id", "form"))
    cards: dict[int, list[CardRow]] = defaultdict(list)
    for row in _card_rows(ids, viewer):
        cards[row.seat.node_id].append(row)
    return [
        NodeRow(node, zones.get(node.pk), forms.get(node.pk, ""), node_holds.get(node.pk), cards[node.pk])
        for node in nodes
    ]


def _card_rows(node_ids: Iterable[int], viewer: User) -> list[CardRow]:
    seats = (
        CardSeat.objects.filter(NOW, node__in=node_ids).select_related("card", "card__status", "block").order_by("slot")
    )
    rows = {seat.card_id: CardRow(seat) for seat in seats}
    for hold in Hold.objects.filter(NOW, card__in=rows):
        if hold.card_id is not None:
            rows[hold.card_id].hold = hold
    shares = list(CardShare.objects.filter(NOW, card__in=rows).select_related("allocation__attempt").order_by("pk"))
    job_ids = {share.allocation.attempt.job_id for share in shares}
    jobs = Job.objects.visible_to(viewer).select_related("project", "by").in_bulk(job_ids)
    for share in shares:
        held = share.allocation
        tenant = Tenant(share.memory_mib, held.state, held.form, jobs.get(held.attempt.job_id))
        rows[share.card_id].tenants.append(tenant)
    return list(rows.values())


def filtered_nodes(chosen: dict[str, Any], *, simulated: bool) -> QuerySet[Node]:
    """Nodes under the filter of the page (portal.forms.NodeFilter)."""
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
    if free := chosen.get("free"):
        count = free_seats().filter(node=OuterRef("pk")).order_by().values("node").annotate(n=Count("pk")).values("n")
        nodes = nodes.annotate(free=Coalesce(Subquery(count), 0)).filter(free__gte=free)
    return nodes.order_by("hostname")


def free_seats() -> QuerySet[CardSeat]:
    """Seats whose card nobody holds any part of, on nodes that are up and not held."""
    held = Hold.objects.filter(NOW).filter(Q(card=OuterRef("card")) | Q(node=OuterRef("node")))
    taken = CardShare.objects.filter(NOW, card=OuterRef("card"))
    return CardSeat.objects.filter(NOW, ~Exists(held), ~Exists(taken), node__state=NodeState.UP)


def free_now() -> list[dict[str, Any]]:
    """Cards and wholly free cards by (simulated, zone, model). Zones are joined here: quicker than once a seat."""
    zones = {z.node_id: z.zone for z in NodeZone.objects.filter(NOW).select_related("zone")}
    cells: dict[tuple[bool, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    every = CardSeat.objects.filter(NOW).exclude(node__state=NodeState.RETIRED)
    for place, seats in enumerate((every, free_seats())):
        for node_id, simulated, model, n in _counted(seats):
            zone = zones.get(node_id)
            cells[simulated, zone.title if zone else "", zone.slug if zone else "", model][place] += n
    names = ("simulated", "zone", "slug", "model", "cards", "free")
    return [dict(zip(names, (*cell, *counts), strict=True)) for cell, counts in sorted(cells.items())]


def _counted(seats: QuerySet[CardSeat]) -> Iterable[tuple[int, bool, str, int]]:
    rows = seats.order_by().values_list("node_id", "node__simulated", "card__model")
    return rows.annotate(n=Count("pk"))
