"""What a placement makes worse on one node, in cards, less is better: scheduler.engine.priced for one node at a time, in
plain loops that a compiler can take as they are. A test compares the two on a whole run.
"""

from __future__ import annotations

from typing import Any, Final

NOWHERE: Final = -1


def shortage(cpu: float, memory: float, need: float, hinges: Any, host: Any) -> float:
    """Cards that what is left of CPU (milli) and host memory (MiB) can't serve, weighted (scheduler.engine.prices)."""
    lost = 0.0
    for hinge in range(hinges.shape[0]):
        without = need - cpu * hinges[hinge, 0]
        if without > 0:
            lost += hinges[hinge, 1] * without
    without = need - memory * host[0]
    if without > 0:
        lost += host[1] * without
    return lost


def cheapest_card(free: Any, unit: int, part: int, worth: Any) -> tuple[float, int]:
    """For a share of `part`: what its card loses and which it is, the first of equals; NOWHERE when it fits on none.

    `free` holds what is left of each card in the units of `part`, of which `unit` make a hundredth of a card.
    """
    least, chosen = 0.0, NOWHERE
    for card in range(len(free)):
        if free[card] >= part:
            lost = worth[free[card] // unit] - worth[(free[card] - part) // unit]
            if chosen == NOWHERE or lost < least:
                least, chosen = lost, card
    return least, chosen


def idle_cards(free: Any, whole: int) -> int:
    """How many cards of the node have no tenant."""
    count = 0
    for card in range(len(free)):
        if free[card] == whole:
            count += 1
    return count


def block_loss(cards: int, cpu: float, memory: float, asked: Any, unused: Any, kept: Any) -> float:
    """scheduler.engine.opening.block_loss on one node. `cards`: in wholly idle blocks; `asked` (w, 3): cards, CPU and
    host memory of each shape; `unused` (w,): what an idle card costs that the shape can't use; `kept` (w,): what a place
    for it is worth to others than the one that is placed."""
    lost = 0.0
    if cards > 0:
        for shape in range(len(unused)):
            slots = min(cards // asked[shape, 0], cpu // max(asked[shape, 1], 1.0), memory // max(asked[shape, 2], 1.0))
            if slots <= 0:
                lost += unused[shape] * cards
            else:
                lost -= kept[shape] * slots
    return lost
