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
