"""Faults that are states: what the newest report says is so becomes a fault when it begins and is cleared when it ends.
What a card does not tell changes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ledger import faults
from ledger.models import Card, Fault, Node
from ledger.vocabulary import FaultKind

REPORTED: Final = (
    FaultKind.REMAP_PENDING,
    FaultKind.REMAP_FAILED,
    FaultKind.RESET_REQUIRED,
    FaultKind.THERMAL,
    FaultKind.POWER,
    FaultKind.MISSING,
    FaultKind.STORAGE,
)
REFRESHED_EVERY: Final = dt.timedelta(minutes=1)  # so often is "last seen" of a state that stands written
State = tuple[int | None, FaultKind, bool, str]  # card, kind, whether it is so, in words


def stands(node: Node, kind: FaultKind) -> bool:
    """Whether the node itself has this fault open."""
    return Fault.objects.filter(node=node, card=None, kind=kind, cleared_at=None).exists()


def follow_inside(
    node: Node,
    facts: Mapping[str, Any],
    cards: Sequence[tuple[int, Mapping[str, Any]]],
    listed: int,
    now: dt.datetime,
) -> None:
    """`listed`: how many cards the report names. The caller holds the node's lock."""
    open_faults = {
        (fault.card_id, fault.kind): fault
        for fault in Fault.objects.filter(node=node, cleared_at=None, code=None, kind__in=REPORTED)
    }
    for card_id, kind, on, message in _told(facts, cards, listed):
        fault = open_faults.get((card_id, kind))
        if on == (fault is not None) and (fault is None or now - fault.last_seen < REFRESHED_EVERY):
            continue
        card = None if card_id is None else Card.objects.get(pk=card_id)
        faults.set_state_inside(node=node, card=card, kind=kind, on=on, message=message, now=now)


def _told(facts: Mapping[str, Any], cards: Sequence[tuple[int, Mapping[str, Any]]], listed: int) -> Iterator[State]:
    for card_id, card in cards:
        yield from _of_card(card_id, card)
    on_bus = facts.get("pci_cards")
    if on_bus is not None:
        yield None, FaultKind.MISSING, on_bus > listed, f"{listed} of the {on_bus} cards on its bus are listed"
    probes = facts.get("storage")
    if probes is not None:
        bad = [f"{probe.get('path')}: {probe.get('error')}" for probe in probes if not probe.get("ok")]
        yield None, FaultKind.STORAGE, bool(bad), "; ".join(bad)


def _of_card(card_id: int, card: Mapping[str, Any]) -> Iterator[State]:
    ecc = card.get("ecc") or {}
    flags = (
        (FaultKind.REMAP_PENDING, ecc.get("remapped_pending"), "rows are to be remapped at the next reset"),
        (FaultKind.REMAP_FAILED, ecc.get("remapped_failure"), "a row could not be remapped"),
        (FaultKind.RESET_REQUIRED, card.get("reset_required"), "the driver asks for a reset"),
    )
    for kind, flag, message in flags:
        if isinstance(flag, bool):
            yield card_id, kind, flag, message
    slowdown = card.get("slowdown")
    if slowdown is not None:
        yield card_id, FaultKind.THERMAL, "thermal" in slowdown, "clocks are held down: too hot"
        yield card_id, FaultKind.POWER, "power" in slowdown, "clocks are held down: power"
