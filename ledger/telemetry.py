"""Agents' reports become the latest values, boots and counted faults. Late, repeated and reordered ones change nothing.

It never moves work or cards: inventory sync and reconcile do, on what stands here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from ledger.clock import database_now
from ledger.models import Card, CardStatus, Fault, FaultEvent, Node, NodeBoot, NodeReport
from ledger.vocabulary import FaultKind

CLOCK_SLACK = dt.timedelta(minutes=5)


@dataclass(frozen=True)
class Receipt:
    accepted: bool  # False: older than what is known; its faults were counted all the same
    faults: int  # newly counted
    note: str = ""


def ingest(node: Node, report: Mapping[str, Any]) -> Receipt:
    """Store one validated report of this node's agent. Repeatable."""
    with transaction.atomic(durable=True):
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        now = database_now()
        faults = _count_faults(node, report["faults"], now)
        note = ""
        if report["sent_at"] > now + CLOCK_SLACK:
            ahead = int((report["sent_at"] - now).total_seconds())
            _count(node, None, FaultKind.CLOCK, None, f"the node's clock is {ahead} s ahead", now)
            note = "your clock is ahead; the portal's clock counts"
        boot, newest = _boot(node, report["boot_id"], now)
        if not _newer(node, boot, newest, report):
            return Receipt(False, faults, "older than what is known")
        _store(node, boot, report, now)
        Node.objects.filter(pk=node.pk).update(seen_at=now)
    return Receipt(True, faults, note)


def _boot(node: Node, boot_id: str, now: dt.datetime) -> tuple[NodeBoot, bool]:
    """The boot, and whether it is the newest one that the portal has heard of."""
    boot, _ = NodeBoot.objects.get_or_create(node=node, boot_id=boot_id, defaults={"first_seen": now})
    return boot, not NodeBoot.objects.filter(node=node, pk__gt=boot.pk).exists()


def _newer(node: Node, boot: NodeBoot, newest: bool, report: Mapping[str, Any]) -> bool:
    last = NodeReport.objects.filter(node=node).first()
    if last is None:
        return True
    if last.boot_id == boot.pk:
        return bool(report["sequence"] > last.sequence)
    # A late report of a boot never heard of before looks like a new boot; the node's next own report puts it right.
    return newest or bool(report["sent_at"] > last.sent_at)


def _store(node: Node, boot: NodeBoot, report: Mapping[str, Any], now: dt.datetime) -> None:
    NodeReport.objects.update_or_create(
        node=node,
        defaults={
            "boot": boot,
            "sequence": report["sequence"],
            "sent_at": report["sent_at"],
            "received_at": now,
            "virtual": report["virtual"],
            "facts": {"node": report["node"], "cards": report["cards"], "links": report["links"]},
        },
    )
    known = dict(Card.objects.filter(uuid__in=[c["uuid"] for c in report["cards"]]).values_list("uuid", "pk"))
    CardStatus.objects.bulk_create(
        [_status(known[c["uuid"]], boot, report["sequence"], c, now) for c in report["cards"] if c["uuid"] in known],
        update_conflicts=True,
        unique_fields=["card"],
        update_fields=[
            "boot",
            "sequence",
            "received_at",
            "temperature_c",
            "utilisation_pct",
            "power_mw",
            "memory_used_mib",
            "ecc",
            "processes",
            "lost",
        ],
    )


def _status(card_id: int, boot: NodeBoot, sequence: int, card: Mapping[str, Any], now: dt.datetime) -> CardStatus:
    return CardStatus(
        card_id=card_id,
        boot=boot,
        sequence=sequence,
        received_at=now,
        temperature_c=card.get("temperature_c"),
        utilisation_pct=card.get("utilisation_pct"),
        power_mw=card.get("power_mw"),
        memory_used_mib=card.get("memory_used_mib"),
        ecc=card.get("ecc") or {},
        processes=card.get("processes"),
        lost=bool(card.get("lost")),
    )


def _count_faults(node: Node, events: Sequence[Mapping[str, Any]], now: dt.datetime) -> int:
    known = set(
        FaultEvent.objects.filter(node=node, event_id__in=[e["id"] for e in events]).values_list("event_id", flat=True)
    )
    cards = {
        c.uuid: c
        for c in Card.objects.filter(
            uuid__in=[e["card_uuid"] for e in events if e.get("card_uuid")],
            seats__node=node,
            seats__period__upper_inf=True,
        )
    }
    counted = 0
    for event in events:
        if event["id"] in known:
            continue
        known.add(event["id"])
        card = cards.get(event.get("card_uuid") or "")
        fault = _count(node, card, FaultKind(event["kind"]), event.get("code"), event.get("message", ""), now)
        try:
            with transaction.atomic():
                FaultEvent.objects.create(fault=fault, node=node, event_id=event["id"], at=min(event["at"], now))
        except IntegrityError:
            continue
        counted += 1
    return counted


def _count(node: Node, card: Card | None, kind: FaultKind, code: int | None, message: str, now: dt.datetime) -> Fault:
    fault = Fault.objects.filter(node=node, card=card, kind=kind, code=code, cleared_at=None).first()
    if fault is None:
        return Fault.objects.create(
            node=node, card=card, kind=kind, code=code, message=message[:500], first_seen=now, last_seen=now
        )
    Fault.objects.filter(pk=fault.pk).update(count=F("count") + 1, last_seen=now, message=message[:500])
    return fault
