"""Which cards of a chosen node a member gets, and which intervals of them.

Reads the fleet and builds a MemberPlan; the caller books it. `spare` limits what may be taken by model (headroom).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import comb
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine.fleet import Fleet
from scheduler.engine.intervals import Intervals, best_fit, gaps, length, lowest_fit
from scheduler.engine.lens import Lens
from scheduler.engine.prices import Prices, parts
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.shape import Shape
from scheduler.engine.topology import CardTopology, Group
from scheduler.engine.types import MemberPlan, SharePlan

Columns = tuple[int, ...]
Takes = Mapping[int, int]  # model code -> MiB

SETS_TRIED: Final = 500  # above this many possible sets of cards, sets are grown card by card instead
BLOCK_SETS_TRIED: Final = 2_000
FRESH_CARD: Final = 1.0  # the price of putting the first tenant on a card
FRESH_GROUP: Final = 0.5  # of breaking a block or island that is wholly free
IN_PIECES: Final = 0.25  # of memory in several intervals
OF_LOSS: Final = 0.04  # the last two count that much beside a loss by prices


def choose(fleet: Fleet, row: int, shape: Shape, spare: Takes) -> Columns | None:
    """The best set of cards for a shape that passes all filters on this row; None when every set is over `spare`."""
    look = Lens(fleet, shape, np.array([row], dtype=np.intp))
    if shape.form is Form.WHOLE:
        columns = tuple(range(len(fleet.cards[row])))
        return columns if _within(fleet, row, shape, columns, spare) else None
    idle = frozenset(np.flatnonzero(look.idle[:, 0]).tolist())
    if shape.form is Form.BLOCK:
        return _choose_blocks(fleet, row, shape, idle, spare)
    return _CardChoice(fleet, row, shape, idle, spare).best(tuple(np.flatnonzero(look.fit[:, 0]).tolist()))


def build(fleet: Fleet, row: int, shape: Shape, columns: Columns, score: float) -> MemberPlan:
    """The member as it will stand in the book."""
    node = fleet.views[row]
    whole = shape.form is Form.WHOLE
    return MemberPlan(
        node_id=node.id,
        form=shape.form,
        driver=node.managers[shape.form],
        cpu_milli=node.cpu_milli if whole else shape.cpu_milli,
        host_memory_mib=node.host_memory_mib if whole else shape.host_memory_mib,
        shares=tuple(_share(fleet, row, shape, column) for column in columns),
        score=score,
    )


def takes_of(fleet: Fleet, row: int, member: MemberPlan) -> dict[int, int]:
    """MiB that a member takes, by model code."""
    taken = {share.card_id: length(share.memory) for share in member.shares}
    out: dict[int, int] = {}
    for card in fleet.cards[row]:
        if card.id in taken:
            model = fleet.models[card.model]
            out[model] = out.get(model, 0) + taken[card.id]
    return out


def _share(fleet: Fleet, row: int, shape: Shape, column: int) -> SharePlan:
    card = fleet.cards[row][column]
    memory: Intervals = ((0, card.memory_mib),)
    compute: Intervals = ((0, COMPUTE_UNITS),)
    if shape.form is Form.CONTAINER:
        memory_busy, compute_busy = fleet.busy_of(row, column)
        if shape.memory_mib:
            memory = best_fit(gaps(memory_busy, card.memory_mib), shape.memory_mib)
        compute = lowest_fit(gaps(compute_busy, COMPUTE_UNITS), shape.compute_milli)
    return SharePlan(card.id, card.seat_id, card.block_id, memory, compute)


def _taken_of_card(fleet: Fleet, row: int, shape: Shape, column: int) -> int:
    return fleet.cards[row][column].memory_mib if shape.full_cards else shape.memory_mib


def _within(fleet: Fleet, row: int, shape: Shape, columns: Sequence[int], spare: Takes) -> bool:
    if not spare:
        return True
    left = dict(spare)
    for column in columns:
        model = fleet.models[fleet.cards[row][column].model]
        if model in left:
            left[model] -= _taken_of_card(fleet, row, shape, column)
            if left[model] < 0:
                return False
    return True


class _CardChoice:
    """Choosing `shape.cards` cards for a container."""

    def __init__(self, fleet: Fleet, row: int, shape: Shape, idle: Group, spare: Takes) -> None:
        self.fleet, self.row, self.shape, self.spare = fleet, row, shape, spare
        self.topology: CardTopology = fleet.topology(row)
        self.fresh_groups = [g for g in self.topology.groups if len(g) > 1 and g <= idle]
        self.most = max((card.memory_mib for card in fleet.cards[row]), default=1)
        self.prices = fleet.prices(shape.simulated) if fleet.rule == LEAST_LOSS else None
        self.fresh_group, self.in_pieces = FRESH_GROUP, IN_PIECES
        if self.prices is not None:
            self.fresh_group, self.in_pieces = OF_LOSS * FRESH_GROUP, OF_LOSS * IN_PIECES

    def best(self, fit: Columns) -> Columns | None:
        wanted = self.shape.cards
        if wanted == 0:
            return ()
        price = {column: self._price(column) for column in fit}
        if comb(len(fit), wanted) <= SETS_TRIED:
            sets: Iterator[Columns] = combinations(fit, wanted)
        else:
            sets = iter((*self._grown(fit, price), self._smallest(fit)))
        allowed = (s for s in sets if len(s) == wanted and self._allowed(s))
        return min(allowed, key=lambda s: (self._cost(s, price), s), default=None)

    def _allowed(self, columns: Columns) -> bool:
        return _within(self.fleet, self.row, self.shape, columns, self.spare)

    def _price(self, column: int) -> float:
        """Of one card: how much would be left of it, and what taking it would break."""
        card = self.fleet.cards[self.row][column]
        if self.shape.full_cards:
            return card.memory_mib / self.most if self.prices is None else self._loss(column, self.prices)
        memory_busy, _ = self.fleet.busy_of(self.row, column)
        free = gaps(memory_busy, card.memory_mib)
        if self.prices is not None:
            price = self._loss(column, self.prices)
        else:
            price = (length(free) - self.shape.memory_mib) / self.most
            if not memory_busy and self.shape.memory_mib < card.memory_mib:
                price += FRESH_CARD
        if all(hi - lo < self.shape.memory_mib for lo, hi in free):
            price += self.in_pieces
        return price

    def _loss(self, column: int, prices: Prices) -> float:
        """What the card loses of its worth."""
        now, shape, at = self.fleet.now, self.shape, (column, self.row)
        free, compute, size = now.memory[at], now.compute[at], self.fleet.fixed.memory[at]
        used = (free, compute) if shape.full_cards else (shape.memory_mib, shape.compute_milli)
        levels = parts(np.array([free, free - used[0]]), np.array([compute, compute - used[1]]), size)
        before, after = prices.worth[np.searchsorted(prices.sizes, size)][levels]
        return float(before - after)

    def _cost(self, columns: Columns, price: Mapping[int, float]) -> float:
        chosen = frozenset(columns)
        broken = sum(1 for group in self.fresh_groups if group & chosen and not self._uses_up(group, chosen))
        cost = sum(price[column] for column in columns) + self.fresh_group * broken
        return round(cost - self.topology.closeness(columns), 6)

    def _uses_up(self, group: Group, chosen: Group) -> bool:
        return self.shape.full_cards and group <= chosen

    def _grown(self, fit: Columns, price: Mapping[int, float]) -> Iterator[Columns]:
        """From every card: add the partner that makes the cheapest set, until there are enough."""
        for start in fit:
            chosen: Columns = (start,)
            while len(chosen) < self.shape.cards:
                partners = [tuple(sorted((*chosen, c))) for c in fit if c not in chosen]
                partners = [p for p in partners if self._allowed(p)]
                if not partners:
                    break
                chosen = min(partners, key=lambda s: (self._cost(s, price), s))
            yield chosen

    def _smallest(self, fit: Columns) -> Columns:
        """The smallest takes that the limits allow: if any set is allowed, this one is."""
        chosen: Columns = ()
        for column in sorted(fit, key=lambda c: (_taken_of_card(self.fleet, self.row, self.shape, c), c)):
            if len(chosen) < self.shape.cards and self._allowed((*chosen, column)):
                chosen = (*chosen, column)
        return tuple(sorted(chosen))


def _choose_blocks(fleet: Fleet, row: int, shape: Shape, idle: Group, spare: Takes) -> Columns | None:
    """Whole blocks with exactly the cards asked for: the best-connected set, then the fewest and lowest blocks."""
    topology = fleet.topology(row)
    blocks = [tuple(sorted(group)) for group in topology.blocks.values() if group <= idle]
    best: tuple[tuple[float, int, Columns], Columns] | None = None
    for chosen in islice(_block_sets(sorted(blocks), shape.cards), BLOCK_SETS_TRIED):
        columns = tuple(sorted(column for block in chosen for column in block))
        if _within(fleet, row, shape, columns, spare):
            key = (-round(topology.closeness(columns), 6), len(chosen), columns)
            if best is None or key < best[0]:
                best = (key, columns)
    return None if best is None else best[1]


def _block_sets(blocks: list[Columns], wanted: int) -> Iterator[tuple[Columns, ...]]:
    """Sets of blocks that add up to `wanted` cards, never following a branch that can't."""
    reach = [1]  # reach[-1 - i]: bit s = the blocks from i on can give s cards
    for block in reversed(blocks):
        reach.append(reach[-1] | reach[-1] << len(block))
    reach.reverse()

    def follow(at: int, left: int) -> Iterator[tuple[Columns, ...]]:
        if left == 0:
            yield ()
        elif left > 0 and at < len(blocks) and reach[at] >> left & 1:
            for rest in follow(at + 1, left - len(blocks[at])):
                yield (blocks[at], *rest)
            yield from follow(at + 1, left)

    return follow(0, wanted)
