"""Blocks: groups of cards of one node, cut once."""

from __future__ import annotations

from django.db import transaction

from ledger import audit
from ledger.inventory import lock_node
from ledger.models import Block, CardSeat, Node


def block_size(cards: int) -> int:
    """How many cards a block has by default: half of an 8- or 4-card machine, else no blocks (0)."""
    return cards // 2 if cards in (4, 8, 16) else 0


def cut_into_blocks(*, node: Node, size: int) -> int:
    """Group the node's seats into blocks of `size` cards by slot, when no seat is in a block yet. Returns how many."""
    with transaction.atomic(durable=True):
        lock_node(node.pk)
        seats = list(CardSeat.objects.filter(node=node, period__upper_inf=True, block=None).order_by("slot"))
        if size < 1 or len(seats) < size or Block.objects.filter(node=node).exists():
            return 0
        count = len(seats) // size
        blocks = Block.objects.bulk_create(Block(node=node, n=n) for n in range(count))
        for n, block in enumerate(blocks):
            members = [seat.pk for seat in seats[n * size : (n + 1) * size]]
            CardSeat.objects.filter(pk__in=members).update(block=block)
        audit.record(
            actor=None, via="command", verb="node.blocks.cut", target=node, after={"blocks": count, "size": size}
        )
    return count
