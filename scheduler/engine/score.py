"""How good a node is for a shape that it may take: terms in 0 … 1, greater is better, weighted and added up.

The rule's name stands in every snapshot and plan, so that an old decision can be worked out again; a change of terms
or weights gets a new name. No term may look at another row.
"""

# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine.arrays import Bools, Floats, Ints
from scheduler.engine.lens import Lens
from scheduler.engine.priced import Wishes, loss
from scheduler.engine.shape import FORMS

Term = Callable[[Lens], Floats | float]  # one number when it is the same for every row
BLOCK: Final = FORMS.index(Form.BLOCK)
WHOLE: Final = FORMS.index(Form.WHOLE)
POINTS: Final = 1_000_000  # in a score of 1
FASTEST: Final = 2  # the greatest INTERCONNECT_RANK


def _ratio(part: Ints, whole: Ints) -> Floats:
    ratio: Floats = np.divide(part, np.maximum(whole, 1), dtype=np.float64)
    return ratio


def keep_whole(look: Lens) -> Floats | float:
    """Leave untouched machines to those who need one whole."""
    return 1.0 if look.is_whole else (~_could_be_whole(look)).astype(np.float64)


def _could_be_whole(look: Lens) -> Bools:
    """Nothing stands on the node, and a whole-machine job could have it."""
    fixed, now, rows = look.fixed, look.now, look.rows
    empty: Bools = (now.used_form[rows] == 0) & (now.allocations[rows] == 0)
    takes: Bools = fixed.zone_forms[WHOLE, rows] & fixed.drivers[WHOLE, rows]
    return empty & takes & ((fixed.card_held[:, rows] | fixed.card_alone[:, rows]).sum(axis=0) == 0)


def keep_blocks(look: Lens) -> Floats | float:
    """Containers first go where a block is already broken; the share of cards that need not break one."""
    k = look.shape.cards
    if not look.is_container or k == 0:
        return 1.0
    unbroken = np.zeros_like(look.present)
    for n, free in enumerate(look.whole_blocks):
        unbroken |= free & (look.block == n)
    unbroken &= look.fixed.zone_forms[BLOCK, look.rows]
    return np.minimum((look.fit & ~unbroken).sum(axis=0), k) / k


def right_zone(look: Lens) -> Floats | float:
    """A zone for this form alone before a flexible one."""
    return 1.0 / np.maximum(look.fixed.zone_forms[:, look.rows].sum(axis=0), 1)


def pack(look: Lens) -> Floats | float:
    """Fill what is already in use: of the cards' memory, or of the CPU when no card is asked for."""
    if look.shape.cards == 0:
        return 1.0 - _ratio(look.now.cpu[look.rows], look.fixed.cpu[look.rows])
    return 1.0 - _ratio(look.free.sum(axis=0), look.memory.sum(axis=0))


def fill_cards(look: Lens) -> Floats | float:
    """The share of the cards asked for that fit onto cards with a tenant."""
    k = look.shape.cards
    if look.full_cards or k == 0:
        return 1.0
    shared = look.fit & ((look.free < look.memory) | (look.compute < COMPUTE_UNITS))
    return np.minimum(shared.sum(axis=0), k) / k


def least_left(look: Lens) -> Floats | float:
    """Best fit: little memory left on the cards (a whole machine: in the machine) beyond what is asked for."""
    card, machine, _ = look.fleet.yardsticks
    k, asked = look.shape.cards, look.shape.memory_mib
    if look.is_whole:
        return 1.0 - np.clip(look.memory.sum(axis=0) - k * asked, 0, None) / machine
    if k == 0:
        return 1.0
    left = np.where(look.fit, look.free - (0 if look.full_cards else asked), card)
    return 1.0 - np.sort(left, axis=0)[:k].sum(axis=0) / (k * card)


def balance(look: Lens) -> Floats | float:
    """Cards without CPU, or CPU without cards, help nobody: what is left of both should be alike."""
    rows, shape = look.rows, look.shape
    cpu = look.fixed.cpu[rows]
    if look.is_whole:
        return np.minimum(_ratio(np.full_like(cpu, shape.cpu_milli), cpu), 1.0)
    cpu_left = _ratio(look.now.cpu[rows] - shape.cpu_milli, cpu)
    if shape.cards == 0:
        return 1.0 - cpu_left
    free = look.free.sum(axis=0)
    taken = shape.cards * (_smallest_fit(look) if look.full_cards else shape.memory_mib)
    return 1.0 - np.abs(cpu_left - _ratio(free - taken, look.memory.sum(axis=0)))


def _smallest_fit(look: Lens) -> Ints:
    card = look.fleet.yardsticks[0]
    return np.where(look.fit, look.memory, card).min(axis=0, initial=card)


def spare_cards(look: Lens) -> Floats | float:
    """Work without cards goes where the fewest cards would miss its CPU."""
    if look.shape.cards:
        return 1.0
    useful = look.present & ~look.fixed.card_held[:, look.rows] & (look.free > 0)
    return 1.0 - useful.sum(axis=0) / look.fleet.yardsticks[2]


def links(look: Lens) -> Floats | float:
    """Fast links to those who use several cards, the other machines to the rest."""
    fast = look.fixed.interconnect[look.rows] / FASTEST
    return fast if look.is_whole or look.shape.cards > 1 else 1.0 - fast


PACK_KEEP_WHOLE: Final[tuple[tuple[float, Term], ...]] = (
    (8.0, keep_whole),
    (8.0, spare_cards),
    (4.0, right_zone),
    (3.0, keep_blocks),
    (3.0, pack),
    (2.0, fill_cards),
    (2.0, least_left),
    (2.0, balance),
    (0.5, links),
)
LEAST_LOSS: Final = "least-loss/1"  # goes by prices instead of terms: the score is minus the loss in cards
RULES: Final = {"pack-keep-whole/1": PACK_KEEP_WHOLE, "pack-keep-whole/2": PACK_KEEP_WHOLE, LEAST_LOSS: ()}
# Of several forms that are ready, these rules take the one that takes the least card memory; the others go by score.
THRIFTY: Final = frozenset({"pack-keep-whole/2", LEAST_LOSS})


def points(look: Lens, rule: str) -> Ints:
    """The score of every row in millionths, as integers so that equal nodes are equal."""
    if rule == LEAST_LOSS:
        wishes = Wishes(right_zone(look), keep_blocks(look), links(look), spare_cards(look))
        return -np.rint(loss(look, wishes) * POINTS).astype(np.int64)
    total = np.zeros(look.size)
    for weight, term in RULES[rule]:
        total += weight * term(look)
    return np.rint(total * POINTS).astype(np.int64)
