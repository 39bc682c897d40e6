"""Database → engine.Snapshot. The inventory is kept in the process and read again only when its version moved;
what is taken and held is read at each tick, and only nodes that changed get a new view."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection

from ledger.clock import database_now
from ledger.fields import as_intervals
from ledger.models import (
    CardSeat,
    HeadroomReserve,
    InventoryVersion,
    Job,
    Link,
    Node,
    NodeZone,
)
from ledger.vocabulary import Distance, Form, Interconnect, JobState, NodeState, ProjectState
from scheduler.engine.fleet import Fleet
from scheduler.engine.types import Ask, CardView, JobView, NodeView, Reserve, Snapshot

QUEUE_LIMIT = 2_000  # jobs looked at in one tick


@dataclass
class Inventory:
    """Node views without any work on them, by node id, as of one version."""

    version: int = -1
    empty: dict[int, NodeView] = field(default_factory=dict)
    views: dict[int, tuple[Any, NodeView]] = field(default_factory=dict)  # node id → (signature, view)
    fleet: Fleet | None = None  # the engine's arrays of the same views, kept between ticks
    stale: set[int] = field(default_factory=set)  # nodes whose view is newer than the fleet's


_kept = Inventory()


def inventory() -> Inventory:
    version = InventoryVersion.objects.values_list("version", flat=True).get(pk=1)
    if version != _kept.version:
        _kept.empty = _read_inventory()
        _kept.views, _kept.fleet, _kept.stale = {}, None, set()
        _kept.version = version
    return _kept


def forget() -> None:
    """Drop what is kept (tests, a new database)."""
    _kept.version = -1


def _read_inventory() -> dict[int, NodeView]:
    zones = {
        m.node_id: m.zone for m in NodeZone.objects.filter(period__upper_inf=True).select_related("zone").order_by("pk")
    }
    cards: dict[int, list[CardView]] = defaultdict(list)
    node_of_card: dict[int, int] = {}
    seats = CardSeat.objects.filter(period__upper_inf=True).select_related("card").order_by("node_id", "slot")
    for seat in seats.iterator(chunk_size=5_000):
        node_of_card[seat.card_id] = seat.node_id
        cards[seat.node_id].append(
            CardView(
                id=seat.card_id,
                seat_id=seat.pk,
                uuid=seat.card.uuid,
                slot=seat.slot,
                block_id=seat.block_id,
                model=seat.card.model,
                memory_mib=seat.card.memory_mib,
            )
        )
    links: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for a, b, gbps in Link.objects.values_list("card_a_id", "card_b_id", "gbps"):
        if a in node_of_card:
            links[node_of_card[a]].append((a, b, gbps))
    views = {}
    for node in Node.objects.exclude(state=NodeState.RETIRED).order_by("pk"):
        zone = zones.get(node.pk)
        views[node.pk] = NodeView(
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
            cards=tuple(cards[node.pk]),
            links=tuple(links[node.pk]),
        )
    return views


LIVE = """
SELECT a.id, a.node_id, a.form, a.cpu_milli, a.host_memory_mib FROM ledger_allocation a WHERE upper_inf(a.period)
"""
SHARES = """
SELECT s.allocation_id, s.card_id, s.memory, s.compute FROM ledger_allocation a
JOIN ledger_cardshare s ON s.allocation_id = a.id WHERE upper_inf(a.period)
"""
HOLDS = "SELECT node_id, card_id FROM ledger_hold WHERE period @> clock_timestamp()"


def node_views() -> tuple[NodeView, ...]:
    """Every node that has not left the fleet, with what is taken and held on it now."""
    kept = inventory()
    live: dict[int, dict[int, tuple[str, int, int]]] = defaultdict(dict)
    with connection.cursor() as cursor:
        cursor.execute(HOLDS)
        holds = cursor.fetchall()
        cursor.execute(LIVE)
        for pk, node_id, form, cpu, memory in cursor.fetchall():
            live[node_id][pk] = (form, cpu, memory)
        held_nodes = {node for node, _ in holds if node}
        held_cards = {card for _, card in holds if card}
        signatures = {
            node_id: (
                tuple(sorted(live.get(node_id, ()))),
                node_id in held_nodes,
                tuple(c.id for c in view.cards if c.id in held_cards) if held_cards else (),
            )
            for node_id, view in kept.empty.items()
        }
        changed = {n for n, s in signatures.items() if n not in kept.views or kept.views[n][0] != s}
        if changed:
            cursor.execute(SHARES)
            shares = cursor.fetchall()
            taken = by_card(shares)
            for node_id in changed:
                view = filled(kept.empty[node_id], live.get(node_id, {}), taken, node_id in held_nodes, held_cards)
                kept.views[node_id] = (signatures[node_id], view)
            kept.stale |= changed
    return tuple(kept.views[node_id][1] for node_id in kept.empty)


def fleet_of(nodes: Sequence[NodeView]) -> Fleet:
    """The engine's fleet of the views that node_views() just gave, with only the changed nodes filled anew."""
    if _kept.fleet is None:
        _kept.fleet = Fleet(nodes)
    elif _kept.stale:
        _kept.fleet.replace_nodes([_kept.views[node_id][1] for node_id in sorted(_kept.stale)])
    _kept.stale = set()
    return _kept.fleet


def live_shares() -> list[tuple[Any, ...]]:
    """(allocation, card, memory, compute) of every open share."""
    with connection.cursor() as cursor:
        cursor.execute(SHARES)
        return list(cursor.fetchall())


Taken = dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]]


def by_card(shares: Iterable[tuple[int, int, Any, Any]]) -> Taken:
    taken: Taken = defaultdict(lambda: ([], []))
    for _, card_id, memory, compute in shares:
        taken[card_id][0].extend(as_intervals(memory))
        taken[card_id][1].extend(as_intervals(compute))
    return taken


def filled(
    view: NodeView,
    live: Mapping[int, tuple[str, int, int]],
    taken: Taken,
    held: bool,
    held_cards: set[int],
) -> NodeView:
    cards = tuple(
        replace(
            card,
            held=card.id in held_cards,
            busy=tuple(sorted(taken[card.id][0])) if card.id in taken else (),
            compute_busy=tuple(sorted(taken[card.id][1])) if card.id in taken else (),
        )
        for card in view.cards
    )
    forms = [form for form, _, _ in live.values()]
    return replace(
        view,
        held=held,
        cards=cards,
        used_form=Form(forms[0]) if forms else None,
        allocations=len(live),
        cpu_milli_used=sum(cpu for _, cpu, _ in live.values()),
        host_memory_mib_used=sum(memory for _, _, memory in live.values()),
    )


def job_view(job: Job, over_quota: bool = False) -> JobView:
    return JobView(
        id=job.pk,
        project_id=job.project_id,
        asks=tuple(Ask(**ask) for ask in job.asks),
        cpu_milli=job.cpu_milli,
        host_memory_mib=job.host_memory_mib,
        interconnect=Interconnect(job.interconnect),
        distance=Distance(job.distance),
        labels=frozenset(job.labels),
        priority=job.priority,
        submitted_at=job.submitted_at.timestamp(),
        simulated=job.simulated,
        key_work=job.key_work,
        over_quota=over_quota,
    )


def queued_jobs(limit: int = QUEUE_LIMIT) -> list[Job]:
    """Queued jobs that nobody holds back, of projects that take work, first come first served inside a priority."""
    waiting = Job.objects.filter(state=JobState.QUEUED, held_at=None, project__state=ProjectState.ACTIVE)
    return list(waiting.order_by("-priority", "queued_at", "pk")[:limit])


def read(jobs: Iterable[Job], over_quota: frozenset[int] = frozenset()) -> Snapshot:
    now = database_now()
    reserves = HeadroomReserve.objects.filter(period__contains=now)
    return Snapshot(
        at=now.timestamp(),
        seed=1,
        nodes=node_views(),
        jobs=tuple(job_view(job, job.pk in over_quota) for job in jobs),
        reserves=tuple(Reserve(zone_id=r.zone_id, model=r.model, mib=r.mib) for r in reserves),
    )
