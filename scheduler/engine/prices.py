"""What a piece of a card, CPU and host memory are worth to the work that comes: constants of the score, worked out from
how often each shape of request came. Pure arrays in, pure arrays out; knows no node's state.

The price of a free piece of a card is its dual price in the linear program that packs all shares into the fewest cards
(cutting stock; Gilmore and Gomory, "A Linear Programming Approach to the Cutting-Stock Problem", 1961).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine.arrays import Bools, Floats, Ints
from scheduler.engine.shape import FORMS

PARTS: Final = 100  # a card is priced in hundredths
FRAGMENT: Final = 0.1  # what a piece costs for each request that is too large for it
CPU_HINGES: Final = ((0.6, 0.5), (1.0, 0.5))  # multiples of the mean CPU of a card's work, and what lacking it costs
SCARCE_HINGE: Final = (2.0, 0.05)  # one more where CPU is scarce
SCARCE: Final = (0.90, 0.98)  # use of CPU by use of cards, between which CPU becomes scarce
HOST_HINGE: Final = (0.6, 1.0)  # the same for host memory
EXACT: Final = 2.0**32
ROUNDS: Final = 10_000
CLOSE: Final = 1e-9
SPARE: Final = 0.9  # of what a fleet has for each card, what work is taken to ask for while nothing is known of it


@dataclass(frozen=True, slots=True)
class Workload:
    """Shapes of requests for one node, and how often each came. All (m,)."""

    cpu_milli: Floats
    host_memory_mib: Floats
    cards: Ints  # 0 = CPU only
    memory_mib: Ints  # of each card; 0 = the whole card
    count: Floats
    form: Ints | None = None  # index into FORMS; None = containers all of them

    def asks(self, form: Form) -> Bools:
        """(m,): which of the shapes ask for this form."""
        forms = np.zeros(len(self.count), dtype=np.int64) if self.form is None else self.form
        asked: Bools = (forms == FORMS.index(form)) & (self.count > 0)
        return asked


@dataclass(frozen=True, slots=True)
class Stock:
    """What a fleet has in all: cards by size (s,), and CPU and host memory."""

    sizes: Ints  # MiB, ascending, different
    cards: Ints
    cpu_milli: int
    host_memory_mib: int


@dataclass(frozen=True, slots=True)
class Prices:
    """For each size of card and by free hundredths of it, (s, 101), in cards of the largest size: `piece`, what a free
    piece is worth by the dual prices alone; `worth`, the same less what it is too small for; `need`, for how many cards
    its work will want CPU and host memory.

    `hinges` (h, 2): cards that a milli-core serves, and what one without costs; `host` (2,): the same of a MiB."""

    sizes: Ints
    piece: Floats
    worth: Floats
    need: Floats
    hinges: Floats
    host: Floats


def prices(workload: Workload, stock: Stock) -> Prices:
    """Prices for this workload on a fleet of this stock. Without any request for its cards those of `first_guess`."""
    part = _parts(workload, stock.sizes)
    with_cards = (workload.cards > 0) & (workload.count > 0) & (part <= PARTS).any(axis=0)
    if len(stock.sizes) and not with_cards.any():
        return prices(first_guess(stock), stock)
    part, count = part[:, with_cards], workload.count[with_cards]
    wanted = count * workload.cards[with_cards]
    weight = (stock.sizes / stock.sizes.max(initial=1))[:, None]
    piece, too_large = np.empty((2, len(stock.sizes), PARTS + 1))
    for size in range(len(stock.sizes)):
        demand = _by_part(part[size], wanted)
        piece[size] = piece_prices(demand) if demand[1:].any() else np.arange(PARTS + 1) / PARTS
        too_large[size] = 1 - np.cumsum(_by_part(part[size], count)) / count.sum()
    linear = np.arange(PARTS + 1) / PARTS
    use = _Use(part, wanted, stock.cards)
    cpu_use = workload.count @ workload.cpu_milli / max(stock.cpu_milli, 1)
    cards_use = use.of(weight * piece) / max(float(weight[:, 0] @ stock.cards), CLOSE)
    scarce = float(np.clip((cpu_use / max(cards_use, CLOSE) - SCARCE[0]) / (SCARCE[1] - SCARCE[0]), 0, 1))
    need = weight * (scarce * piece + (1 - scarce) * linear)
    taken = max(use.of(need), CLOSE)
    cpu = max(float(count @ workload.cpu_milli[with_cards]) / taken, 1.0)
    memory = max(float(count @ workload.host_memory_mib[with_cards]) / taken, 1.0)
    hinges = [*CPU_HINGES, (SCARCE_HINGE[0], SCARCE_HINGE[1] * scarce)]
    return Prices(
        sizes=stock.sizes,
        piece=weight * piece,
        worth=_exact(weight * (piece - FRAGMENT * linear * too_large)),
        need=_exact(need),
        hinges=np.array([(1 / (multiple * cpu), cost) for multiple, cost in hinges]),
        host=np.array([1 / (HOST_HINGE[0] * memory), HOST_HINGE[1]]),
    )


def _exact(table: Floats) -> Floats:
    """In 2^-32 of a card: sums over a node's cards come out the same in any order, so equal nodes score equally."""
    return np.rint(table * EXACT) / EXACT


def fillings(workload: Workload, stock: Stock) -> float:
    """How many times the cards of this stock hold all requests of the workload: times a count, it is how many requests
    of a shape stand on a fleet that is full of work as it came so far."""
    part = _parts(workload, stock.sizes)
    with_cards = (workload.cards > 0) & (workload.count > 0) & (part <= PARTS).any(axis=0)
    wanted = (workload.count * workload.cards)[with_cards]
    weight = (stock.sizes / stock.sizes.max(initial=1))[:, None]
    linear = weight * np.arange(PARTS + 1) / PARTS
    taken = _Use(part[:, with_cards], wanted, stock.cards).of(linear)
    return float(weight[:, 0] @ stock.cards) / taken if taken > 0 else 0.0


def parts(free: Ints, compute: Ints, memory: Ints) -> Ints:
    """Hundredths of cards that are free, rounded down: of their memory or their compute, whichever is less."""
    found: Ints = np.minimum(free * PARTS // np.maximum(memory, 1), compute * PARTS // COMPUTE_UNITS)
    return found


def first_guess(stock: Stock) -> Workload:
    """Half whole cards, the rest halves and quarters of the largest, with a little less CPU and memory than the fleet
    has for them."""
    share = np.array([1.0, 0.5, 0.25])
    each = SPARE * share / max(int(stock.cards.sum()), 1)
    largest = int(stock.sizes.max(initial=1))
    memory = np.array([0, largest // 2, largest // 4])
    cpu, host_memory = stock.cpu_milli * each, stock.host_memory_mib * each
    return Workload(cpu, host_memory, np.ones(3, dtype=np.int64), memory, np.array([0.5, 0.25, 0.25]))


def _parts(workload: Workload, sizes: Ints) -> Ints:
    """(s, m): hundredths of a card of each size that each request takes, PARTS + 1 where it does not fit."""
    asked = -(-workload.memory_mib * PARTS // sizes[:, None])
    parts: Ints = np.where(workload.memory_mib == 0, PARTS, np.minimum(asked, PARTS + 1))
    return parts


def _by_part(part: Ints, weight: Floats) -> Floats:
    """(101,): the weights added up by part; what does not fit is left out."""
    fits = part <= PARTS
    sums: Floats = np.bincount(part[fits], weight[fits], PARTS + 1).astype(np.float64)
    return sums


class _Use:
    """How many cards' worth all requests take, each measured on the cards that it may come to lie on."""

    def __init__(self, part: Ints, wanted: Floats, cards: Ints) -> None:
        self.part, self.wanted = np.minimum(part, PARTS), wanted
        self.chance = np.where(part <= PARTS, np.maximum(cards, CLOSE)[:, None], 0.0)  # (s, m)

    def of(self, table: Floats) -> float:
        """`table` (s, 101) by part."""
        taken = np.take_along_axis(table, self.part, axis=1)
        mean = (self.chance * taken).sum(axis=0) / self.chance.sum(axis=0)
        return float(self.wanted @ mean)


def piece_prices(demand: Floats) -> Floats:
    """(101,): what a free piece of x hundredths is worth, 1 = a card, when `demand` (101,) cards are asked for by part.

    Column generation with the revised simplex: a basis of as many patterns as there are sizes, a knapsack for the next.
    ValueError without any demand.
    """
    sizes = np.flatnonzero(demand[1:] > 0) + 1
    if not len(sizes):
        raise ValueError("nobody asks for a card")
    basis = np.diag(PARTS // sizes).astype(np.float64)  # one pattern a column, (sizes, sizes)
    cost = np.ones(len(sizes))  # 1 card a pattern, 0 for leaving out a share too many
    for _ in range(ROUNDS):
        price = np.linalg.solve(basis.T, cost)
        least = int(price.argmin())
        value, pattern = _dearest(sizes, np.maximum(price, 0))
        if price[least] < -CLOSE:
            column, new_cost = -np.eye(len(sizes))[least], 0.0
        elif value[PARTS] > 1 + CLOSE:
            column, new_cost = pattern, 1.0
        else:
            return value
        amount, step = np.linalg.solve(basis, np.column_stack([demand[sizes], column])).T
        able = step > CLOSE
        ratio = np.where(able, np.maximum(amount, 0) / np.where(able, step, 1), np.inf)
        leaves = int(ratio.argmin())
        basis[:, leaves], cost[leaves] = column, new_cost
    scaled: Floats = value / max(float(value[PARTS]), 1.0)  # of a programme that went round in circles: lawful prices
    return scaled


def _dearest(sizes: Ints, price: Floats) -> tuple[Floats, Floats]:
    """The dearest filling of each piece of 0..100 hundredths (101,), and that of a card as a pattern (sizes,)."""
    value = np.zeros(PARTS + 1)
    chosen = np.full(PARTS + 1, -1)
    for piece in range(1, PARTS + 1):
        value[piece] = value[piece - 1]
        fit = sizes <= piece
        if fit.any():
            filled = value[piece - sizes[fit]] + price[fit]
            best = int(filled.argmax())
            if filled[best] > value[piece] + CLOSE:
                value[piece], chosen[piece] = filled[best], best
    pattern = np.zeros(len(sizes))
    left = PARTS
    while left > 0:
        if chosen[left] < 0:
            left -= 1
        else:
            pattern[chosen[left]] += 1
            left -= int(sizes[chosen[left]])
    return value, pattern
