"""Faults as counted facts: the only writer of Fault and FaultEvent. What is to be done about one is decided in the same
transaction by the health policy (ledger.health).

The caller is inside a transaction that holds the node's lock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Final

from django.db.models import Exists, F, OuterRef, Q

from ledger import audit, health
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Card, Case, Fault, FaultEvent, Node
from ledger.vocabulary import STATE_FAULTS, FaultKind

LONGEST_MESSAGE: Final = 500


def count_inside(
    *,
    node: Node,
    card: Card | None,
    kind: FaultKind,
    code: int | None = None,
    message: str = "",
    now: dt.datetime,
    event_id: str = "",
    at: dt.datetime | None = None,
) -> Fault | None:
    """One more of this kind and code. None when an event of this id was counted before."""
    if event_id and FaultEvent.objects.filter(node=node, event_id=event_id).exists():
        return None
    fault = _one_more(node, card, kind, code, message[:LONGEST_MESSAGE], now)
    if event_id:
        FaultEvent.objects.create(fault=fault, node=node, event_id=event_id, at=min(at or now, now))
    health.respond(node=node, card=card, fault=fault, now=now)
    return fault


def set_state_inside(
    *, node: Node, card: Card | None, kind: FaultKind, on: bool, message: str = "", now: dt.datetime
) -> Fault | None:
    """The state is on or off now: opened, kept or cleared. Returns the fault when that changed something."""
    fault = Fault.objects.filter(node=node, card=card, kind=kind, code=None, cleared_at=None).first()
    if on and fault is None:
        return count_inside(node=node, card=card, kind=kind, message=message, now=now)
    if on and fault is not None:
        Fault.objects.filter(pk=fault.pk).update(last_seen=now)
        return None
    if fault is None:
        return None
    return _clear(fault, now)


def clear_inside(*, fault: Fault, act: Act) -> Fault:
    """A person, or a test that passed, says that it is dealt with."""
    audit.record(verb="fault.cleared", target=fault, before={"kind": fault.kind, "code": fault.code}, **act.said())
    return _clear(fault, database_now())


def clear_standing_inside(*, node: Node, card: Card | None, now: dt.datetime, kinds: Collection[str] = ()) -> int:
    """What was counted on this card (or on the node itself) is dealt with; states end by themselves."""
    place = Q(node=node, card=None) if card is None else Q(card=card)  # wherever the card sat
    standing = Fault.objects.filter(place, cleared_at=None)
    wanted = standing.filter(kind__in=kinds) if kinds else standing.exclude(kind__in=STATE_FAULTS)
    return wanted.update(cleared_at=now)


def clear_on_cards_inside(*, node: Node, now: dt.datetime) -> int:
    """The whole node is dealt with, and with it what was counted on its cards that have no case of their own."""
    own = Case.objects.filter(card=OuterRef("card"), ended_at=None)
    standing = Fault.objects.filter(~Exists(own), node=node, card__isnull=False, cleared_at=None)
    return standing.exclude(kind__in=STATE_FAULTS).update(cleared_at=now)


def _one_more(
    node: Node, card: Card | None, kind: FaultKind, code: int | None, message: str, now: dt.datetime
) -> Fault:
    fault = Fault.objects.filter(node=node, card=card, kind=kind, code=code, cleared_at=None).first()
    if fault is None:
        return Fault.objects.create(
            node=node, card=card, kind=kind, code=code, message=message, first_seen=now, last_seen=now
        )
    Fault.objects.filter(pk=fault.pk).update(count=F("count") + 1, last_seen=now, message=message)
    fault.refresh_from_db(fields=["count", "last_seen", "message"])
    return fault


def _clear(fault: Fault, now: dt.datetime) -> Fault:
    fault.cleared_at = now
    fault.save(update_fields=["cleared_at"])
    return fault
