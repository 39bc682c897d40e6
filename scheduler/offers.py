"""What is free now in each form, from the engine's own view of the nodes. Pure; decides nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.vocabulary import Form
from scheduler.engine.types import CardView, NodeView


@dataclass(slots=True)
class Offer:
    """Of one world and card model: cards that a container may still get (wholly free, and partly), free blocks by
    size, and empty machines by number of cards. What is kept as headroom is counted as free."""

    simulated: bool
    model: str
    cards: int = 0
    free_cards: int = 0
    shared_cards: int = 0  # partly taken by containers, with room left
    largest_share_mib: int = 0
    blocks: int = 0
    machines: int = 0


def offers(views: Iterable[NodeView]) -> list[Offer]:
    found: dict[tuple[bool, str], Offer] = {}
    for view in views:
        for model in sorted({card.model for card in view.cards}):
            offer = found.setdefault((view.simulated, model), Offer(view.simulated, model))
            _count(offer, view, [card for card in view.cards if card.model == model])
    return [found[key] for key in sorted(found)]


def _count(offer: Offer, view: NodeView, cards: list[CardView]) -> None:
    offer.cards += len(cards)
    if not view.up or view.held:
        return
    if _takes(view, Form.CONTAINER):
        for card in cards:
            free = 0 if card.held else card.memory_mib - sum(hi - lo for lo, hi in card.busy)
            offer.free_cards += bool(free) and not card.busy
            offer.shared_cards += bool(free) and bool(card.busy)
            offer.largest_share_mib = max(offer.largest_share_mib, free)
    if _takes(view, Form.BLOCK):
        offer.blocks += _free_blocks(cards)
    if _takes(view, Form.WHOLE) and not view.allocations and not any(card.held or card.alone for card in view.cards):
        offer.machines += 1


def _takes(view: NodeView, form: Form) -> bool:
    return form in view.zone_forms and bool(view.managers.get(form)) and view.used_form in (None, form)


def _free_blocks(cards: Iterable[CardView]) -> int:
    blocks: dict[int, bool] = defaultdict(lambda: True)
    for card in cards:
        if card.block_id is not None:
            blocks[card.block_id] &= not card.busy and not card.held and not card.alone
    return sum(blocks.values())
