"""Book ↔ driver ↔ agent: inventory sync, and every mismatch as a Drift row with its age and a proposed fix."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from ledger import faults, inventory
from ledger.clock import database_now
from ledger.inventory import Changes, SeenCard, SeenNode
from ledger.models import Allocation, Attempt, Card, CardSeat, Fault, Hold, Node, NodeReport
from ledger.vocabulary import AllocationState, AttemptState, DriverName, FaultKind, HoldKind, NodeState
from scheduler.drivers.base import DriverError, NodeFacts, Phase, ReplyLost
from scheduler.drivers.registry import driver, names
from scheduler.models import Drift

log = logging.getLogger(__name__)
SILENT_AFTER = dt.timedelta(seconds=60)
GRACE = dt.timedelta(seconds=15)  # a difference younger than this is work in progress


@dataclass(frozen=True)
class Mismatch:
    kind: str
    subject: str
    detail: str
    fix: str
    driver: str = ""
    job_id: int | None = None
    simulated: bool = False


def sync_inventory() -> dict[str, Any]:
    """Bring the ledger's nodes and cards in line with agents and drivers; only nodes that differ are written."""
    changes = Changes()
    for seen in [*_from_agents(), *_from_simulation()]:
        if _differs(seen):
            found = inventory.sync_node(seen)
            changes.events += found.events
            changes.conflicts += found.conflicts
    _record(
        {"inventory"},
        [Mismatch("inventory", subject, detail, fix) for subject, detail, fix in changes.conflicts],
    )
    count_missing()
    return {"events": changes.events[:50], "changed": len(changes.events), "conflicts": len(changes.conflicts)}


def count_missing() -> int:
    """A real card that the sync holds as lost has a fault that says so, whoever noticed it; so has a silent node."""
    held = Hold.objects.filter(rule=inventory.SYNC_RULE, period__upper_inf=True)
    lost = Card.objects.filter(holds__in=held.filter(kind=HoldKind.LOST)).exclude(faults__in=_open(FaultKind.LOST))
    counted = 0
    for seat in CardSeat.objects.filter(card__in=lost, period__upper_inf=True, node__simulated=False):
        counted += _set_fault(seat.node_id, seat.card, FaultKind.LOST, True, "the node no longer reports the card")
    offline = held.filter(kind=HoldKind.OFFLINE, node__simulated=False).values("node")
    for pk in (
        Node.objects.filter(pk__in=offline).exclude(faults__in=_open(FaultKind.SILENT)).values_list("pk", flat=True)
    ):
        counted += _set_fault(pk, None, FaultKind.SILENT, True, "no report of its agent")
    for pk in _open(FaultKind.SILENT).exclude(node__in=offline).values_list("node", flat=True):
        counted += _set_fault(pk, None, FaultKind.SILENT, False)
    return counted


def _open(kind: FaultKind) -> QuerySet[Fault]:
    return Fault.objects.filter(kind=kind, cleared_at=None)


def _set_fault(node_id: int, card: Card | None, kind: FaultKind, on: bool, message: str = "") -> bool:
    with transaction.atomic(durable=True):
        node, now = inventory.lock_node(node_id), database_now()
        return faults.set_state_inside(node=node, card=card, kind=kind, on=on, message=message, now=now) is not None


def _from_agents() -> Iterable[SeenNode]:
    now = database_now()
    reports = {r.node_id: r for r in NodeReport.objects.all()}
    nodes = Node.objects.filter(simulated=False).exclude(agent_digest="", dcgm_url="").exclude(state=NodeState.RETIRED)
    for node in nodes:
        report = reports.get(node.pk)
        if report is None:
            continue
        yield seen_by_agent(node.hostname, report.facts, online=now - report.received_at < SILENT_AFTER)


def seen_by_agent(hostname: str, facts: dict[str, Any], online: bool = True) -> SeenNode:
    """An agent's report as inventory facts. A MIG slice is not a card of its own here."""
    return SeenNode(
        hostname=hostname,
        online=online,
        cpu_milli=facts["node"]["cpu_milli"],
        host_memory_mib=None,  # what is for sale is set at registration, not the machine's whole memory
        cards=tuple(
            SeenCard(
                uuid=c["uuid"],
                slot=c["slot"],
                model=c["model"],
                memory_mib=c["memory_mib"],
                virtual=c["uuid"].startswith("VIRT-"),
                lost=bool(c.get("lost")),
            )
            for c in facts["cards"]
            if c["memory_mib"]  # a card that does not tell its memory can't be sold by memory
        ),
        links=tuple((x["a"], x["b"], x["kind"], x.get("gbps") or 0) for x in facts.get("links", ())),
    )


def _from_simulation() -> Iterable[SeenNode]:
    for facts in driver(DriverName.SIMULATED).inventory():
        yield _seen(facts)


def _seen(facts: NodeFacts) -> SeenNode:
    return SeenNode(
        hostname=facts.hostname,
        online=facts.online,
        cpu_milli=facts.cpu_milli,
        host_memory_mib=facts.host_memory_mib,
        cards=tuple(SeenCard(c.uuid, c.slot, c.model, c.memory_mib, c.virtual, c.memory_assumed) for c in facts.cards),
    )


def _differs(seen: SeenNode) -> bool:
    """A cheap look without locks; the writer looks again under the node's lock."""
    node = _known_nodes().get(seen.hostname)
    if node is None:
        return True
    state, cpu, memory, cards, held = node
    wanted = NodeState.UP if seen.online else NodeState.OFFLINE
    reported = {c.uuid: c.slot for c in seen.cards if not c.lost}
    same_size = seen.cpu_milli in (None, cpu) and seen.host_memory_mib in (None, memory)
    return state != wanted or (seen.online and (reported != cards or held or not same_size or bool(seen.links)))


_nodes: dict[str, Any] = {"at": None, "rows": {}}


def _known_nodes() -> dict[str, tuple[str, int, int, dict[str, int], bool]]:
    """hostname → (state, cpu, memory, {uuid: slot}, whether a card of it is held as lost); read once a second."""
    now = database_now()
    if _nodes["at"] is None or now - _nodes["at"] > dt.timedelta(seconds=1):
        cards: dict[int, dict[str, int]] = {}
        lost: set[int] = set()
        seats = CardSeat.objects.filter(period__upper_inf=True).values_list("node_id", "card__uuid", "slot")
        for node_id, uuid, slot in seats:
            cards.setdefault(node_id, {})[uuid] = slot
        held = CardSeat.objects.filter(
            period__upper_inf=True, card__holds__kind="lost", card__holds__period__upper_inf=True
        ).values_list("node_id", flat=True)
        lost.update(held)
        _nodes["rows"] = {
            hostname: (state, cpu, memory, cards.get(pk, {}), pk in lost)
            for pk, hostname, state, cpu, memory in Node.objects.values_list(
                "pk", "hostname", "state", "cpu_milli", "host_memory_mib"
            )
        }
        _nodes["at"] = now
    rows: dict[str, tuple[str, int, int, dict[str, int], bool]] = _nodes["rows"]
    return rows


def reconcile() -> dict[str, Any]:
    """List every mismatch between the book and what drivers and agents see."""
    found: list[Mismatch] = [*_unknown_attempts(), *_silent_agents()]
    for name in names():
        try:
            found += _against_driver(name)
        except (ReplyLost, DriverError, OSError) as error:
            found.append(Mismatch("driver_silent", name, str(error)[:300], "check the driver's server", name))
    kinds = {"attempt_unknown", "agent_silent", "driver_silent", "orphan_member", "member_missing"}
    _record(kinds, found)
    return {"open": len(found), "kinds": sorted({m.kind for m in found})}


def _unknown_attempts() -> Iterable[Mismatch]:
    for attempt in Attempt.objects.filter(state=AttemptState.UNKNOWN).select_related("job"):
        yield Mismatch(
            "attempt_unknown",
            f"job {attempt.job_id} attempt {attempt.n}",
            attempt.message,
            "wait for the driver; its cards stay taken until there is evidence",
            job_id=attempt.job_id,
            simulated=attempt.job.simulated,
        )


def _silent_agents() -> Iterable[Mismatch]:
    now = database_now()
    for node in (
        Node.objects.filter(simulated=False).exclude(agent_digest="", dcgm_url="").exclude(state=NodeState.RETIRED)
    ):
        if node.seen_at is None or now - node.seen_at > SILENT_AFTER:
            last = node.seen_at.isoformat() if node.seen_at else "never"
            yield Mismatch(
                "agent_silent",
                node.hostname,
                f"last report: {last}",
                "start the agent; the node gets no new work until then",
            )


def _against_driver(name: str) -> Iterable[Mismatch]:
    target = driver(name)
    now = database_now()
    book = {
        a.key: a
        for a in Allocation.objects.filter(driver=name, period__upper_inf=True).select_related("attempt__job", "node")
    }
    for seen in target.list_members():
        if seen.key not in book and seen.phase != Phase.EXITED and not _just_closed(seen.key):
            yield Mismatch(
                "orphan_member",
                seen.key,
                "the driver runs it, the book has no live allocation",
                "stop it",
                name,
                None,
                target.simulated,
            )
    overdue = [
        a for a in book.values() if a.state == AllocationState.ACTIVE and a.active_at and now - a.active_at > GRACE
    ]
    views = target.inspect([a.key for a in overdue])
    for allocation in overdue:
        if views[allocation.key].phase == Phase.ABSENT:
            yield Mismatch(
                "member_missing",
                allocation.key,
                f"the book holds {allocation.node.hostname}, the driver does not know it",
                "the attempt is closed as lost and tried again",
                name,
                allocation.attempt.job_id,
                target.simulated,
            )


def _just_closed(key: str) -> bool:
    """Whether the book closed it so recently that the driver's list may be older."""
    now = database_now()
    number = key[1:]
    return number.isdigit() and Allocation.objects.filter(pk=int(number), period__endswith__gt=now - GRACE).exists()


def _record(kinds: set[str], found: list[Mismatch]) -> None:
    """Open, refresh and resolve Drift rows of these kinds."""
    with transaction.atomic(durable=True):
        now = database_now()
        standing = {(d.kind, d.subject): d for d in Drift.objects.filter(kind__in=kinds, resolved_at=None)}
        for mismatch in found:
            row = standing.pop((mismatch.kind, mismatch.subject), None)
            if row is None:
                Drift.objects.create(
                    kind=mismatch.kind,
                    subject=mismatch.subject[:200],
                    driver=mismatch.driver,
                    detail=mismatch.detail[:500],
                    fix=mismatch.fix,
                    job_id=mismatch.job_id,
                    simulated=mismatch.simulated,
                    first_seen=now,
                    last_seen=now,
                )
            else:
                Drift.objects.filter(pk=row.pk).update(last_seen=now, detail=mismatch.detail[:500])
        Drift.objects.filter(pk__in=[row.pk for row in standing.values()]).update(resolved_at=now)
