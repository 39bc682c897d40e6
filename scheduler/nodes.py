"""The inventory as views of nodes without any work on them: all of them or some, and which have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet

from ledger.models import CardSeat, Link, Node, NodeZone
from ledger.vocabulary import Form, Interconnect, NodeState
from scheduler.changes import BETWEEN
from scheduler.engine.types import CardView, NodeView

CHANGED: Final = " UNION ".join(
    f"SELECT {node} FROM {table} WHERE {BETWEEN}"  # noqa: S608  constants
    for table, node in (("ledger_node", "id"), ("ledger_nodezone", "node_id"), ("ledger_cardseat", "node_id"))
)
Links = dict[int, list[tuple[int, int, int]]]


def changed_nodes(window: tuple[int, int]) -> set[int]:
    """Nodes whose own row, zone or seats changed between two transactions."""
    with connection.cursor() as cursor:
        cursor.execute(CHANGED, window * 3)
        return {node_id for (node_id,) in cursor.fetchall()}


def read_nodes(node_ids: Collection[int] | None = None) -> dict[int, NodeView]:
    """By id, in its order; without `node_ids` every node that has not left the fleet."""

    def of_these(rows: QuerySet[Any], column: str) -> QuerySet[Any]:
        return rows if node_ids is None else rows.filter(**{f"{column}__in": node_ids})

    zones = {
        m.node_id: m.zone
        for m in of_these(NodeZone.objects.filter(period__upper_inf=True), "node").select_related("zone").order_by("pk")
    }
    cards: dict[int, list[CardView]] = defaultdict(list)
    seats = of_these(CardSeat.objects.filter(period__upper_inf=True), "node").order_by("node_id", "slot")
    columns = ("node_id", "card_id", "pk", "card__uuid", "slot", "block_id", "card__model", "card__memory_mib")
    for node_id, *card in seats.values_list(*columns).iterator(chunk_size=5_000):
        cards[node_id].append(CardView(*card))
    node_of = {card.id: node_id for node_id, seated in cards.items() for card in seated}
    links = _links(node_of, few=node_ids is not None)
    return {
        node.pk: _view(node, zones.get(node.pk), tuple(cards[node.pk]), tuple(links[node.pk]))
        for node in of_these(Node.objects.exclude(state=NodeState.RETIRED), "pk").order_by("pk")
    }


def _links(node_of: dict[int, int], *, few: bool) -> Links:
    """By the node of the first card."""
    rows = Link.objects.filter(card_a__in=list(node_of)) if few else Link.objects.all()
    found: Links = defaultdict(list)
    for a, b, gbps in rows.order_by("pk").values_list("card_a_id", "card_b_id", "gbps"):
        if a in node_of:
            found[node_of[a]].append((a, b, gbps))
    return found


def _view(node: Node, zone: Any, cards: tuple[CardView, ...], links: tuple[tuple[int, int, int], ...]) -> NodeView:
    return NodeView(
        id=node.pk,
        hostname=node.hostname,
        simulated=node.simulated,
        up=node.state == NodeState.UP,
        held=False,
        zone_id=zone.pk if zone else None,
        zone_forms=frozenset(Form(f) for f in zone.forms) if zone else frozenset(),
        managers=dict(node.managers),
        site=node.site,
        room=node.room,
        rack=node.rack,
        leaf=node.leaf,
        interconnect=Interconnect(node.interconnect),
        labels=frozenset(node.labels),
        cpu_milli=node.cpu_milli,
        host_memory_mib=node.host_memory_mib,
        cpu_milli_used=0,
        host_memory_mib_used=0,
        used_form=None,
        allocations=0,
        cards=cards,
        links=links,
    )
