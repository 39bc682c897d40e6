"""Which zone a node is in, as periods without a gap: the only writer of zone membership after registration.

Steps inside a caller's transaction that holds the nodes' locks. It chooses no nodes and makes no plans:
scheduler.zones does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db import connection

from ledger import audit
from ledger.clock import database_now
from ledger.errors import Conflict
from ledger.models import Allocation, Node, NodeZone, User, Zone


def lock_nodes(node_ids: Collection[int]) -> list[Node]:
    """These nodes under their locks, in the house order."""
    return list(Node.objects.filter(pk__in=node_ids).order_by("pk").select_for_update(no_key=True))


def busy_nodes(node_ids: Collection[int]) -> set[int]:
    """Those of them with a live allocation, even a closing one."""
    live = Allocation.objects.filter(node__in=node_ids, period__upper_inf=True)
    return set(live.values_list("node_id", flat=True))


def zones_of(node_ids: Collection[int]) -> dict[int, Zone]:
    """The zone of each node now; nodes in no zone are left out."""
    members = NodeZone.objects.filter(node__in=node_ids, period__upper_inf=True).select_related("zone")
    return {member.node_id: member.zone for member in members}


def in_zones(node_ids: Collection[int], zones: Collection[int]) -> bool:
    """Whether every one of these nodes is in one of these zones now."""
    inside = NodeZone.objects.filter(node__in=node_ids, zone__in=zones, period__upper_inf=True)
    return inside.count() == len(set(node_ids))


def move_nodes_inside(
    nodes: Collection[Node], to: Mapping[int, Zone], *, actor: User | None, via: str, reason: str, request_id: str = ""
) -> None:
    """Put these locked, empty nodes into their new zones at one instant each: the old period ends where the new one
    begins. Conflict when one of them has a live allocation; then nothing is written."""
    ids = [node.pk for node in nodes]
    if busy_nodes(ids):
        raise Conflict("a node with live allocations stays in its zone", code="node_busy")
    before = zones_of(ids)
    left = _leave(ids)
    now = database_now()
    NodeZone.objects.bulk_create(
        NodeZone(node=node, zone=to[node.pk], period=(left.get(node.pk, now), None)) for node in nodes
    )
    added = _deliver_also(nodes, to)
    audit.record_many(
        audit.row(
            actor=actor,
            via=via,
            verb="node.zone.moved",
            target=node,
            before={"zone": before[node.pk].slug if node.pk in before else None},
            after={"zone": to[node.pk].slug} | ({"managers": added[node.pk]} if added[node.pk] else {}),
            reason=reason,
            request_id=request_id,
            at=now,
        )
        for node in nodes
    )


def _leave(node_ids: Collection[int]) -> dict[int, object]:
    """End the open periods; the instant at which each node left its zone."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_nodezone SET period = tstzrange(lower(period), "
            "greatest(lower(period) + interval '1 microsecond', clock_timestamp())) "
            "WHERE node_id = ANY (%s) AND upper_inf(period) RETURNING node_id, upper(period)",
            [list(node_ids)],
        )
        return dict(cursor.fetchall())


def _deliver_also(nodes: Collection[Node], to: Mapping[int, Zone]) -> dict[int, dict[str, str]]:
    """Give the forms of the new zone to the driver that delivers all others on a node, if there is just one: a node
    registered for one form would else be moved where nothing can use it. Returns what was added, by node."""
    added = {node.pk: missing_managers(node.managers, to[node.pk]) for node in nodes}
    for node in nodes:
        node.managers = {**node.managers, **added[node.pk]}
    Node.objects.bulk_update([node for node in nodes if added[node.pk]], ["managers"])
    return added


def missing_managers(managers: Mapping[str, str], zone: Zone) -> dict[str, str]:
    """form → driver that a node with these managers gets when it enters the zone."""
    drivers = set(managers.values())
    if len(drivers) != 1:
        return {}
    only = next(iter(drivers))
    return {form: only for form in zone.forms if form not in managers}
