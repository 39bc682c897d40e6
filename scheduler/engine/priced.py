"""What taking a shape costs each row: the fall of the node's worth in cards (prices.py), what others lose when it is
opened (opening.py), and small preferences between nodes that lose the same. Less is better. No term may look at another
row.

Worth of a node: what the free pieces of its cards are worth, less the cards that its CPU and host memory can't serve.
A piece of a card is as large as the scarcer of its memory and its compute. Held cards are worth nothing to anybody.
"""

# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler.engine.arrays import Floats, Ints
from scheduler.engine.lens import Lens
from scheduler.engine.opening import block_loss
from scheduler.engine.prices import PARTS, Prices, parts

FLEXIBLE: Final = 0.02  # of a zone that takes other forms too, by how many
BREAKING: Final = 0.05  # of blocks that are whole, by the part of the cards asked for that must
WRONG_LINKS: Final = 0.01
CARDS_WITHOUT_CPU: Final = 0.01  # of work without cards, where the most cards would miss its CPU


@dataclass(frozen=True, slots=True)
class Wishes:
    """Terms of score.py, 0 … 1, that decide between nodes that lose about the same."""

    right_zone: Floats | float
    keep_blocks: Floats | float
    links: Floats | float
    spare_cards: Floats | float

    @property
    def cost(self) -> Floats | float:
        """(n,) in cards."""
        return (
            FLEXIBLE * (1.0 - self.right_zone)
            + BREAKING * (1.0 - self.keep_blocks)
            + WRONG_LINKS * (1.0 - self.links)
            + CARDS_WITHOUT_CPU * (1.0 - self.spare_cards)
        )


def loss(look: Lens, wishes: Wishes) -> Floats:
    """(n,) in cards of the largest size."""
    prices, shape = look.fleet.prices(look.shape.simulated), look.shape
    counted = look.present & ~look.fixed.card_held[:, look.rows]
    size = np.searchsorted(prices.sizes, look.memory)
    size[~counted | (size == len(prices.sizes))] = 0  # rows of the other world may have larger cards; they are refused
    level = parts(look.free, look.compute, look.memory)
    worth = np.where(counted, _table(prices.worth, size, level), 0.0)
    if look.is_block:  # the node will have no containers, so that what these would lack is no loss
        return wishes.cost + _mean_idle(look, worth) + _blocks_lost(look) + opening(look)
    need = np.where(counted, _table(prices.need, size, level), 0.0)
    cpu, memory = look.now.cpu[look.rows], look.now.host_memory[look.rows]
    lost = wishes.cost - shortage(prices, cpu, memory, need.sum(axis=0))
    if look.is_whole:
        return lost + worth.sum(axis=0) + opening(look)
    if shape.cards == 0:
        taken, freed = np.zeros(look.size), np.zeros(look.size)
    else:
        taken, freed = _cheapest(look, prices, size, level)
    lost = (
        lost + taken + shortage(prices, cpu - shape.cpu_milli, memory - shape.host_memory_mib, need.sum(axis=0) - freed)
    )
    return lost + opening(look)


def opening(look: Lens) -> Floats:
    """(n,): what it costs others that an untouched node is opened for this form."""
    untouched = (look.now.used_form[look.rows] == 0) & (look.now.allocations[look.rows] == 0)
    found = look.fleet.openings(look.shape.simulated)
    return np.where(untouched, found.paid(look.form, look.shape.cards, look.rows), 0.0)


def _blocks_lost(look: Lens) -> Floats:
    """(n,): what blocks that may come lose by this one, besides its own cards."""
    found, shape = look.fleet.openings(look.shape.simulated), look.shape
    kind = found.kinds.of_row[look.rows]
    spared = found.spared(shape.cards, shape.cpu_milli, shape.host_memory_mib)
    cards, cpu, memory = _in_idle_blocks(look), look.now.cpu[look.rows], look.now.host_memory[look.rows]
    before = block_loss(found, kind, cards, cpu, memory, spared)
    left = (cards - shape.cards, cpu - shape.cpu_milli, memory - shape.host_memory_mib)
    return block_loss(found, kind, *left, spared) - before


def _in_idle_blocks(look: Lens) -> Ints:
    """(n,): cards in blocks without any tenant, of whatever model and memory."""
    every = Lens(look.fleet, replace(look.shape, model="", memory_mib=0), look.rows)
    return (every.block_size * np.stack(every.whole_blocks)).sum(axis=0)


def shortage(prices: Prices, cpu: Ints, memory: Ints, need: Floats) -> Floats:
    """(n,): cards that what is left of CPU and host memory can't serve, weighted."""
    lost = np.zeros(len(need))
    for each, cost in prices.hinges.tolist():
        lost += cost * np.maximum(need - cpu * each, 0.0)
    each, cost = prices.host.tolist()
    return lost + cost * np.maximum(need - memory * each, 0.0)


def _table(table: Floats, size: Ints, level: Ints) -> Floats:
    return table.ravel()[size * (PARTS + 1) + level]


def _mean_idle(look: Lens, amount: Floats) -> Floats:
    """Of as many idle cards as are asked for; the cards of a block are alike as a rule."""
    idle = look.idle.sum(axis=0)
    return look.shape.cards * np.where(look.idle, amount, 0.0).sum(axis=0) / np.maximum(idle, 1)


def _cheapest(look: Lens, prices: Prices, size: Ints, level: Ints) -> tuple[Floats, Floats]:
    """What the cards that lose least lose in worth and in need, together; rows that lack cards give anything."""
    shape = look.shape
    if look.full_cards:
        after = np.zeros_like(level)
    else:
        left = np.maximum(look.free - shape.memory_mib, 0)
        after = parts(left, np.maximum(look.compute - shape.compute_milli, 0), look.memory)
    lost = _table(prices.worth, size, level) - _table(prices.worth, size, after)
    freed = _table(prices.need, size, level) - _table(prices.need, size, after)
    order = np.argsort(np.where(look.fit, lost, np.inf), axis=0, kind="stable")[: shape.cards]
    return np.take_along_axis(lost, order, axis=0).sum(axis=0), np.take_along_axis(freed, order, axis=0).sum(axis=0)
