"""Faults that are states: what the newest report says is so becomes a fault when it begins and is cleared when it ends.
What a card does not tell changes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from django.db import connection

from ledger import faults
from ledger.models import Card, Node
from ledger.vocabulary import FaultKind

REPORTED: Final = (
    FaultKind.REMAP_PENDING,
    FaultKind.REMAP_FAILED,
    FaultKind.RESET_REQUIRED,
    FaultKind.THERMAL,
    FaultKind.POWER,
    FaultKind.MISSING,
    FaultKind.STORAGE,
    FaultKind.CLOCK,
)
REFRESHED_EVERY: Final = dt.timedelta(minutes=1)  # so often is "last seen" of a state that stands written
State = tuple[int | None, FaultKind, bool, str]  # card, kind, whether it is so, in words


def open_inside(node: Node) -> dict[tuple[int | None, str], dt.datetime]:
    """The faults of these kinds that stand on the node and its cards: when each was last seen."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT card_id, kind, last_seen FROM ledger_fault"
            " WHERE node_id = %s AND cleared_at IS NULL AND code IS NULL AND kind = ANY(%s)",
            [node.pk, [str(kind) for kind in REPORTED]],
        )
        return {(card, kind): seen for card, kind, seen in cursor.fetchall()}


def follow_inside(node: Node, told: Iterable[State], now: dt.datetime) -> None:
    """The caller holds the node's lock."""
    standing = open_inside(node)
    for card_id, kind, on, message in told:
        seen = standing.get((card_id, kind))
        if on == (seen is not None) and (seen is None or now - seen < REFRESHED_EVERY):
            continue
        card = None if card_id is None else Card.objects.get(pk=card_id)
        faults.set_state_inside(node=node, card=card, kind=kind, on=on, message=message, now=now)


def told(facts: Mapping[str, Any], cards: Sequence[tuple[int, Mapping[str, Any]]], listed: int) -> Iterator[State]:
    """What a report says of the node and of these cards, by id. `listed`: how many cards it names."""
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
