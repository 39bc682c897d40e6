"""Where in a node a card sits: the slots of the ledger, which do not change when a machine counts its cards anew.

A card keeps its slot as long as it is there. One that comes takes the slot that is reported for it; where another card
sits there already, the reports count differently by now, and it takes that of a card that is gone, or a new one.
Called by ledger.inventory alone, which holds the node's lock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connection

from ledger import audit
from ledger.models import Allocation, Block, CardSeat, Node

if TYPE_CHECKING:
    from ledger.inventory import Changes, SeenCard


@dataclass(frozen=True)
class Place:
    slot: int
    replaced: CardSeat | None = None  # the seat of the card that is gone and makes way

    def block_for(self, seen: SeenCard) -> Block | None:
        """A card like the one it replaces is also in its place in the block."""
        if self.replaced is None:
            return None
        old = self.replaced.card
        return self.replaced.block if (old.model, old.memory_mib) == (seen.model, seen.memory_mib) else None


def place_for(node: Node, seen: SeenCard, gone: Collection[int]) -> Place:
    """`gone`: the cards that sit in the node and that it does not have any more."""
    seats = CardSeat.objects.filter(node=node, period__upper_inf=True).select_related("card", "block", "node")
    by_slot = {seat.slot: seat for seat in seats.order_by("slot")}
    taken = by_slot.get(seen.slot)
    if taken is None:
        return Place(seen.slot)
    if taken.card_id in gone:
        return Place(seen.slot, taken)
    free = next((seat for seat in by_slot.values() if seat.card_id in gone and not _in_use(seat)), None)
    if free is not None:
        return Place(free.slot, free)
    return Place(next(slot for slot in range(len(by_slot) + 1) if slot not in by_slot))


def leave(seat: CardSeat, node: Node, changes: Changes, *, by: str = "") -> bool:
    """Close a seat, unless an allocation still holds the card there. `by`: the card that takes its place."""
    why = f"replaced by {by}" if by else f"moved to {node.hostname}"
    if _in_use(seat):
        text = f"{why} while allocated on {seat.node.hostname}"
        changes.conflicts.append((seat.card.uuid, text, "end that job first"))
        return False
    end_period("ledger_cardseat", seat.pk)
    audit.record(
        actor=None,
        via="task",
        verb="card.replaced" if by else "card.left",
        target=seat.card,
        before={"node": seat.node.hostname, "slot": seat.slot},
        after={"by": by} if by else None,
    )
    if by:
        changes.events.append(f"card.replaced {seat.card.uuid} in {seat.node.hostname} slot {seat.slot} by {by}")
    return True


def _in_use(seat: CardSeat) -> bool:
    return Allocation.objects.filter(shares__card=seat.card_id, shares__seat=seat, period__upper_inf=True).exists()


def end_period(table: str, pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {table} SET period = tstzrange(lower(period), "  # noqa: S608  a constant of the caller
            "greatest(lower(period) + interval '1 microsecond', clock_timestamp())) "
            "WHERE id = %s AND upper_inf(period)",
            [pk],
        )
