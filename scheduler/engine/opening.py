"""What it costs others that an untouched node is opened for a form, and what blocks lose on a node that carries them.

A place that few nodes offer is worth what is lost when it runs out: Littlewood's rule, by which the last places are
kept for the dearer request as long as its value times the chance that it comes is more than the cheaper one's
(Littlewood, "Forecasting and Control of Passenger Bookings", AGIFORS 1972; Talluri and van Ryzin, "The Theory and
Practice of Revenue Management", 2004, chapter 2). Pure arrays in, pure arrays out; knows no node's state.
"""

# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from ledger.vocabulary import Form
from scheduler.engine.arrays import Bools, Floats, Ints, Some
from scheduler.engine.prices import Stock, Workload, fillings
from scheduler.engine.shape import FORMS

if TYPE_CHECKING:
    from scheduler.engine.fleet import Fixed

BLOCK: Final = FORMS.index(Form.BLOCK)
WHOLE: Final = FORMS.index(Form.WHOLE)
OPENING: Final = 0.02  # of a machine that could be given whole, although there are enough: between equals only
RESERVE: Final = 1.5  # of the cards of a machine that whole-machine work would run out of
IDLE_BLOCK: Final = 0.3  # of an idle card in blocks that work for blocks can't use or would run out of
FOR_BLOCKS: Final = 1.0  # of opening a node for blocks, shared by as many of a size as it has room for
TOO_DEAR: Final = 1.0  # cards that whole-machine work would miss, from which on a machine is no place for blocks
SHAPES: Final = 32  # of requests that are told apart, the most frequent ones
SPARED_KEPT: Final = 1_000
NO_CARD: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kinds of node: nodes alike in what work finds on them when they are empty. (t,) unless said."""

    of_row: Ints  # (n,) kind of each row of the fleet
    nodes: Ints  # how many there are
    simulated: Ints  # 0 or 1
    cards: Ints
    smallest_mib: Ints  # memory of the smallest card
    all_mib: Ints  # memory of all cards
    cpu_milli: Ints
    host_memory_mib: Ints
    in_blocks: Ints  # cards that belong to a block
    grain: Ints  # the greatest number of cards of which all its blocks are multiples; 0 = it is not cut
    forms: Bools  # (3, t): which forms its zone takes and its drivers can start

    def same(self, other: Kinds) -> bool:
        return all(np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))


def kinds_of(fixed: Fixed) -> Kinds:
    """The kinds of node of a fleet."""
    smallest = np.where(fixed.present, fixed.memory, NO_CARD).min(axis=0)
    blocks, forms = fixed.block_size, fixed.zone_forms & fixed.drivers
    numbers = {
        "simulated": fixed.simulated.astype(np.int64),
        "cards": fixed.cards,
        "smallest_mib": np.where(fixed.cards > 0, smallest, 0),
        "all_mib": fixed.memory.sum(axis=0),
        "cpu_milli": fixed.cpu,
        "host_memory_mib": fixed.host_memory,
        "in_blocks": blocks.sum(axis=0),
        "grain": np.gcd.reduce(blocks, axis=0),
    }
    of_row = np.zeros(len(fixed.ids), dtype=np.int64)
    for column in (*numbers.values(), *forms):  # one by one, which is far quicker than sorting all of them at once
        values, number = np.unique(column, return_inverse=True)
        _, first, of_row, nodes = np.unique(of_row * len(values) + number, True, True, True)
    kinds: dict[str, Ints] = {name: column[first] for name, column in numbers.items()}
    return Kinds(of_row=of_row, nodes=nodes, forms=forms[:, first], **kinds)


@dataclass(frozen=True, slots=True)
class BlockWork:
    """Requests for blocks, the most frequent shapes. (w,) unless said."""

    shapes: Workload
    share: Floats  # of all requests for blocks
    open_to: Bools  # (t,): kinds that blocks may be placed on without harm to others
    good: Bools  # (w, t): a place for the shape that leaves no block without use
    kept: Floats  # (w, t): what a good place for it is worth, in cards; 0 = there are enough
    known: dict[tuple[int, int, int], Bools] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Openings:
    """`price` (3, t) of opening an untouched node of each kind for each of FORMS, in cards of the largest size, and
    `row_price` (3, n), the same by row of the fleet. `blocks`: what `block_loss` goes by."""

    price: Floats
    row_price: Floats
    kinds: Kinds
    blocks: BlockWork

    def spared(self, cards: int, cpu_milli: int, host_memory_mib: int) -> Bools:
        """(w,): whose places a request for blocks need not leave alone: no place is good for it that isn't for them,
        so it counts among those that they are kept for."""
        work, shape = self.blocks, (cards, cpu_milli, host_memory_mib)
        found = work.known.get(shape)
        if found is None:
            if len(work.known) >= SPARED_KEPT:
                work.known.clear()
            cpu, memory = (
                np.array([float(cpu_milli)]),
                np.array([float(host_memory_mib)]),
            )
            one = Workload(cpu, memory, np.array([cards]), np.array([0]), np.ones(1))
            good = work.open_to & _good(one, work.shapes, self.kinds)[0]
            found = work.known[shape] = good.any() & ~(good & ~work.good).any(axis=1)
        return found

    def paid(self, form: int, cards: int, rows: Some) -> Floats:
        """What a request of this form (index into FORMS) and so many cards pays for opening each of these rows."""
        price = self.row_price[form, rows]
        if form == BLOCK:
            price = price + FOR_BLOCKS * cards / np.maximum(self.kinds.in_blocks[self.kinds.of_row[rows]], 1)
        return price


def openings(workload: Workload, kinds: Kinds, stock: Stock, simulated: bool) -> Openings:
    """Prices for this workload on the nodes of one of the two worlds, whose stock is given. Where nobody asks for whole
    machines or blocks, or a kind does not take them, nothing is kept for them.

    How many requests of a shape there are to keep for is how many would stand on the fleet if it were full of work in
    the proportions of the workload: nothing of what is to come is known but those.
    """
    full = fillings(workload, stock)
    card = kinds.all_mib / np.maximum(kinds.cards, 1) / stock.sizes.max(initial=1)  # worth of one
    mine = kinds.simulated == simulated
    whole, block = (_of(workload, form) for form in (Form.WHOLE, Form.BLOCK))
    fits = mine & kinds.forms[WHOLE] & _fits(whole, kinds)
    out = running_out(fits, np.broadcast_to(kinds.nodes, fits.shape), full * whole.count)
    reserve = RESERVE * card * kinds.cards * np.where(fits, out[:, None], 0.0).max(axis=0, initial=0.0)
    open_to = mine & (reserve < RESERVE * TOO_DEAR)
    good = open_to & _good(block, block, kinds)
    slots = np.where(good, _slots(block, kinds), 0)
    out = running_out(good, kinds.nodes * slots, full * block.count)
    kept = np.where(good, IDLE_BLOCK * block.cards[:, None] * card * out[:, None], 0.0)
    share = block.count / max(float(block.count.sum()), 1.0)
    others = reserve + (kept * slots).sum(axis=0)
    small = OPENING * (mine & kinds.forms[WHOLE])
    price = np.stack([others + small, reserve + small, others])  # what blocks take from blocks is for block_loss
    return Openings(
        price,
        price[:, kinds.of_row],
        kinds,
        BlockWork(block, share, open_to, good, kept),
    )


def _of(workload: Workload, form: Form) -> Workload:
    """The most frequent shapes of this form."""
    asked = np.flatnonzero(workload.asks(form) & ((workload.cards > 0) | (form is Form.WHOLE)))
    asked = asked[np.argsort(-workload.count[asked], kind="stable")][:SHAPES]
    return Workload(
        cpu_milli=workload.cpu_milli[asked],
        host_memory_mib=workload.host_memory_mib[asked],
        cards=workload.cards[asked],
        memory_mib=workload.memory_mib[asked],
        count=workload.count[asked],
    )


def _fits(work: Workload, kinds: Kinds) -> Bools:
    """(w, t): on an empty node of this kind."""
    return (
        (work.cards[:, None] <= kinds.cards)
        & (work.memory_mib[:, None] <= kinds.smallest_mib)
        & (work.cpu_milli[:, None] <= kinds.cpu_milli)
        & (work.host_memory_mib[:, None] <= kinds.host_memory_mib)
    )


def _slots(block: Workload, kinds: Kinds) -> Ints:
    """(w, t): how many requests of a shape an empty node of a kind holds."""
    cut = kinds.forms[BLOCK] & (kinds.grain > 0) & (block.cards[:, None] % np.maximum(kinds.grain, 1) == 0)
    by_cards = kinds.in_blocks // np.maximum(block.cards, 1)[:, None]
    by_cpu = kinds.cpu_milli // np.maximum(block.cpu_milli, 1)[:, None]
    by_memory = kinds.host_memory_mib // np.maximum(block.host_memory_mib, 1)[:, None]
    slots = np.minimum(by_cards, np.minimum(by_cpu, by_memory))
    return np.where(cut & _fits(block, kinds), slots, 0).astype(np.int64)


def _good(block: Workload, others: Workload, kinds: Kinds) -> Bools:
    """(w, t): an empty node of the kind holds the shape, and then no block or one that one of the others can use."""
    left = kinds.in_blocks - block.cards[:, None]
    cpu = kinds.cpu_milli - block.cpu_milli[:, None]
    memory = kinds.host_memory_mib - block.host_memory_mib[:, None]
    useful = left == 0
    for other, slots in enumerate(_slots(others, kinds)):
        enough = (left >= others.cards[other]) & (cpu >= others.cpu_milli[other])
        useful |= (slots > 0) & enough & (memory >= others.host_memory_mib[other])
    return useful & (_slots(block, kinds) > 0)


def running_out(able: Bools, places: Ints, expected: Floats) -> Floats:
    """(w,): the chance that the places of a shape run out: that of its own requests, and of those that find no place
    elsewhere, as many come as there are places (Poisson).

    `able` (w, t): where it finds places; `places` (w, t): how many there are; `expected` (w,): requests of each shape.
    """
    elsewhere = able.astype(np.int64) @ ~able.T  # (w, w): kinds where the first finds a place and the second none
    among = (elsewhere == 0) & able.any(axis=1, keepdims=True)
    supply = np.where(able, places, 0).sum(axis=1)
    demand = expected @ among
    return np.array([at_least(int(n), float(d)) for n, d in zip(supply, demand, strict=True)])


def at_least(number: int, mean: float) -> float:
    """P(N >= number) of a Poisson N; in logarithms, because a large fleet's exp(-mean) is 0."""
    if number <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    few = np.arange(number)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(few[1:]))])
    return max(0.0, 1.0 - float(np.exp(few * np.log(mean) - mean - factorial).sum()))


def block_loss(found: Openings, kind: Ints, cards: Ints, cpu: Ints, memory: Ints, spared: Bools) -> Floats:
    """(n,): cards in wholly idle blocks that work for blocks can't use for lack of CPU or host memory, weighted, less
    the scarce places that are kept for others than `spared` (w,). `cards` (n,): in wholly idle blocks."""
    work, lost = found.blocks, np.zeros(len(cards))
    asked = zip(
        work.shapes.cards,
        work.shapes.cpu_milli,
        work.shapes.host_memory_mib,
        strict=True,
    )
    for shape, (each, each_cpu, each_memory) in enumerate(asked):
        by_cpu, by_memory = (
            np.maximum(cpu, 0) // max(each_cpu, 1.0),
            np.maximum(memory, 0) // max(each_memory, 1.0),
        )
        slots = np.minimum(cards // each, np.minimum(by_cpu, by_memory))
        lost += np.where(slots > 0, 0.0, IDLE_BLOCK * work.share[shape] * cards)
        if not spared[shape]:
            lost -= work.kept[shape, kind] * slots
    return np.where(cards > 0, lost, 0.0)
