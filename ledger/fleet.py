"""Fleet files into the ledger: compare with what is registered, then import all of it or nothing.

Importing the same file again changes nothing. Reading the files is ledger.fleet_file's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from ledger import audit
from ledger.blocks import block_size
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.fleet_file import ASSUMED_MEMORY, Fleet, FleetNode, parse
from ledger.models import Block, Card, CardSeat, Node, NodeZone, User, Zone
from ledger.vocabulary import DriverName

__all__ = ["ASSUMED_MEMORY", "Diff", "Fleet", "FleetNode", "apply", "compare", "parse"]


@dataclass
class Diff:
    create: list[FleetNode] = field(default_factory=list)
    update: list[tuple[FleetNode, dict[str, tuple[Any, Any]]]] = field(default_factory=list)
    same: int = 0
    errors: list[str] = field(default_factory=list)


def compare(fleet: Fleet) -> Diff:
    """What importing would do. Cards of a node that is known already are not changed by import: agents report them."""
    diff = Diff(errors=list(fleet.errors))
    zones = set(Zone.objects.values_list("slug", flat=True)) | set(fleet.zones)
    known = {n.hostname: n for n in Node.objects.filter(hostname__in=[n.hostname for n in fleet.nodes])}
    zone_of = dict(
        NodeZone.objects.filter(node__in=known.values(), period__upper_inf=True).values_list(
            "node__hostname", "zone__slug"
        )
    )
    counts: dict[str, int] = {}
    for hostname in CardSeat.objects.filter(node__in=known.values(), period__upper_inf=True).values_list(
        "node__hostname", flat=True
    ):
        counts[hostname] = counts.get(hostname, 0) + 1
    for row in fleet.nodes:
        if row.zone not in zones:
            diff.errors.append(
                f"line {row.line}: zone: there is no zone {row.zone!r}; known are {', '.join(sorted(zones))}"
            )
        elif row.hostname not in known:
            diff.create.append(row)
        else:
            _compare_node(row, known[row.hostname], zone_of.get(row.hostname), counts.get(row.hostname, 0), diff)
    return diff


NODE_FIELDS = (
    "site",
    "room",
    "rack",
    "leaf",
    "cpu_milli",
    "host_memory_mib",
    "interconnect",
    "network",
    "supply",
    "dcgm_url",
)


def _compare_node(row: FleetNode, node: Node, zone: str | None, cards: int, diff: Diff) -> None:
    if node.simulated != row.simulated:
        diff.errors.append(f"line {row.line}: simulated: node {row.hostname} is registered the other way")
        return
    if cards != row.cards:
        diff.errors.append(
            f"line {row.line}: cards: node {row.hostname} has {cards} cards; agents report changes, files don't"
        )
        return
    changes = {
        name: (getattr(node, name), getattr(row, name))
        for name in NODE_FIELDS
        if getattr(node, name) != getattr(row, name)
    }
    if sorted(node.labels) != sorted(row.labels):
        changes["labels"] = (node.labels, list(row.labels))
    if zone != row.zone:
        diff.errors.append(
            f"line {row.line}: zone: node {row.hostname} is in {zone}; move it by a zone plan, not by importing"
        )
    elif changes:
        diff.update.append((row, changes))
    else:
        diff.same += 1


def apply(fleet: Fleet, *, actor: User | None, via: str) -> Diff:
    """Import all of it or, when anything is wrong, nothing (Refused with every error in its text)."""
    with transaction.atomic(durable=True):
        diff = compare(fleet)
        if diff.errors:
            raise Refused("\n".join(diff.errors), code="bad_fleet")
        zones = {zone.slug: zone for zone in Zone.objects.all()}
        for slug, (title, forms) in fleet.zones.items():
            if slug not in zones:
                zones[slug] = Zone.objects.create(slug=slug, title=title, forms=forms)
                audit.record(actor=actor, via=via, verb="zone.created", target=zones[slug], after={"forms": forms})
        _create(diff.create, zones, actor, via)
        for row, changes in diff.update:
            _update(row, changes, actor, via)
    return diff


def _create(rows: Iterable[FleetNode], zones: Mapping[str, Zone], actor: User | None, via: str) -> None:
    rows = list(rows)
    now = database_now()
    nodes = Node.objects.bulk_create([_node(row, zones[row.zone]) for row in rows])
    NodeZone.objects.bulk_create(
        NodeZone(node=node, zone=zones[row.zone], period=(now, None)) for row, node in zip(rows, nodes, strict=True)
    )
    pairs = [(row, node, slot) for row, node in zip(rows, nodes, strict=True) for slot in range(row.cards)]
    cards = Card.objects.bulk_create(
        [
            Card(
                uuid=row.card_uuid(slot),
                model=row.model,
                memory_mib=row.memory_mib,
                memory_assumed=row.memory_assumed,
            )
            for row, _, slot in pairs
        ]
    )
    sizes = {row.hostname: block_size(row.cards) if row.block_size < 0 else row.block_size for row in rows}
    blocks = Block.objects.bulk_create(
        [
            Block(node=node, n=n)
            for row, node in zip(rows, nodes, strict=True)
            for n in range(row.cards // sizes[row.hostname] if sizes[row.hostname] else 0)
        ]
    )
    by_node = {(block.node_id, block.n): block for block in blocks}
    CardSeat.objects.bulk_create(
        CardSeat(
            card=card,
            node=node,
            slot=slot,
            block=by_node.get((node.pk, slot // sizes[row.hostname])) if sizes[row.hostname] else None,
            period=(now, None),
        )
        for (row, node, slot), card in zip(pairs, cards, strict=True)
    )
    audit.record_many(
        audit.row(
            actor=actor,
            via=via,
            verb="node.registered",
            target=node,
            after={"hostname": row.hostname, "cards": row.cards, "model": row.model, "zone": row.zone},
            at=now,
        )
        for row, node in zip(rows, nodes, strict=True)
    )


def _node(row: FleetNode, zone: Zone) -> Node:
    driver = row.driver or (DriverName.SIMULATED if row.simulated else DriverName.LOCAL)
    return Node(
        hostname=row.hostname,
        site=row.site,
        room=row.room,
        rack=row.rack,
        leaf=row.leaf,
        cpu_milli=row.cpu_milli,
        host_memory_mib=row.host_memory_mib,
        interconnect=row.interconnect,
        network=row.network,
        labels=list(row.labels),
        supply=row.supply,
        dcgm_url=row.dcgm_url,
        managers={form: str(driver) for form in zone.forms},
        simulated=row.simulated,
    )


def _update(row: FleetNode, changes: Mapping[str, tuple[Any, Any]], actor: User | None, via: str) -> None:
    node = Node.objects.select_for_update(no_key=True).get(hostname=row.hostname)
    Node.objects.filter(pk=node.pk).update(**{name: new for name, (_, new) in changes.items()})
    audit.record(
        actor=actor,
        via=via,
        verb="node.updated",
        target=node,
        before={name: old for name, (old, _) in changes.items()},
        after={name: new for name, (_, new) in changes.items()},
    )
