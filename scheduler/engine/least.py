"""The least that a job can count for, in milli-cards, wherever it could run once nothing else is there: that says
whether a project's guarantee covers it. A share counts for more on a small card, a whole machine for all its cards.

Pure. Goes by what nodes are and by what people or faults withhold, never by what is taken. Nodes that are alike are
looked at once, and what an ask comes to is remembered until a node is another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ledger.vocabulary import Form
from scheduler.engine.arrays import Bools
from scheduler.engine.shape import INTERCONNECT_RANK, Shape, shapes_of
from scheduler.engine.types import Ask, JobView, NodeView

if TYPE_CHECKING:
    from scheduler.engine.fleet import Fleet

CARD: Final = 1000  # milli-cards
KNOWN: Final = 5_000  # asks that are remembered
TooDear = dict[tuple[Shape, int], Bools]  # by shape and number of nodes: rows (n,)


class Piece(NamedTuple):
    """A card. `block` is the number of its block in the node, -1 = in none."""

    model: str
    memory_mib: int
    block: int
    held: bool
    alone: bool


class Make(NamedTuple):
    """What bears on whether and as how much a job counts on a node."""

    simulated: bool
    zone: int | None
    forms: frozenset[str]  # that it may take now
    labels: frozenset[str]
    interconnect: int
    cpu_milli: int
    host_memory_mib: int
    cards: tuple[Piece, ...]


Raw = tuple[object, ...]


def _raw(node: NodeView) -> Raw:
    """Equal for nodes of one make; quickly told."""
    cards = tuple((card.model, card.memory_mib, card.block_id, card.held, card.alone) for card in node.cards)
    usable = node.up and not node.held
    managers = tuple(node.managers.items())
    rest = node.labels, node.interconnect, node.cpu_milli, node.host_memory_mib
    return node.simulated, usable, node.zone_id, node.zone_forms, managers, *rest, cards


def make_of(node: NodeView) -> Make:
    numbers: dict[int | None, int] = {None: -1}
    cards = tuple(
        Piece(card.model, card.memory_mib, numbers.setdefault(card.block_id, len(numbers) - 1), card.held, card.alone)
        for card in node.cards
    )
    usable = node.up and not node.held
    forms = frozenset(form.value for form in node.zone_forms if usable and node.managers.get(form))
    rank = INTERCONNECT_RANK[node.interconnect]
    return Make(node.simulated, node.zone_id, forms, node.labels, rank, node.cpu_milli, node.host_memory_mib, cards)


class Makes:
    """The nodes of a fleet by make."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.count: Counter[Make] = Counter()
        alike: dict[Raw, list[NodeView]] = defaultdict(list)
        for node in nodes:
            alike[_raw(node)].append(node)
        for some in alike.values():
            self.count[make_of(some[0])] += len(some)
        self.known: dict[tuple[object, ...], int] = {}
        self.same: dict[tuple[object, ...], tuple[Ask, int]] = {}  # by the very object, which is quicker, and kept

    def change(self, before: NodeView, after: NodeView) -> None:
        if _raw(before) == _raw(after):
            return
        old, new = make_of(before), make_of(after)
        self.count[new] += 1
        self.count[old] -= 1
        if not self.count[old]:
            del self.count[old]
        self.known, self.same = {}, {}

    def least(self, job: JobView, ask: Ask) -> int:
        """On all nodes of the ask together; 0 where it can run nowhere or takes no card."""
        rest = (job.cpu_milli, job.host_memory_mib, job.interconnect, job.labels, job.zones, job.simulated)
        same = self.same.get((id(ask), *rest))
        if same is not None:
            return same[1]
        found = self.known.get((ask, *rest))
        if found is None:
            sums = (self._least(shape, ask.nodes) for shape in shapes_of(job, ask))
            found = self.known[(ask, *rest)] = min((one for one in sums if one is not None), default=0)
        if len(self.same) >= KNOWN:
            self.known, self.same = {}, {}
        self.same[(id(ask), *rest)] = ask, found
        return found

    def _least(self, shape: Shape, nodes: int) -> int | None:
        total = 0
        for milli, count in self.counts(shape):
            taken = min(count, nodes)
            total, nodes = total + taken * milli, nodes - taken
            if not nodes:
                return total
        return None

    def counts(self, shape: Shape) -> Iterator[tuple[int, int]]:
        """For how much the shape counts on a node and on how many nodes it does, the least first."""
        found: Counter[int] = Counter()
        for make, count in self.count.items():
            milli = counts_for(make, shape)
            if milli is not None:
                found[milli] += count
        yield from sorted(found.items())

    def too_dear(self, fleet: Fleet, job: JobView, at: float, within: int) -> TooDear:
        """Where the job's part alone takes it over so many milli-cards, whatever its other nodes are."""
        out: TooDear = {}
        for ask in job.asks:
            for shape in shapes_of(job, ask) if job.counts(ask, at) else ():
                others = self._least(shape, ask.nodes - 1) or 0
                dear = {m for m in self.count if (counts_for(m, shape) or 0) > within - others}
                if dear:
                    rows = [make_of(view) in dear for view in fleet.views]
                    out[shape, ask.nodes] = np.array(rows, dtype=np.bool_)
        return out


def counts_for(make: Make, shape: Shape) -> int | None:
    """Milli-cards of the shape on an empty node of that make, each share rounded up as in the book, on the cards where
    it counts least; None where it could not be."""
    if make.simulated != shape.simulated or shape.form not in make.forms or not shape.labels <= make.labels:
        return None
    if make.cpu_milli < shape.cpu_milli or make.host_memory_mib < shape.host_memory_mib:
        return None
    if make.interconnect < shape.interconnect or (shape.zones and make.zone not in shape.zones):
        return None
    fitting = [card for card in make.cards if shape.model in ("", card.model) and card.memory_mib >= shape.memory_mib]
    return {Form.WHOLE: _whole, Form.BLOCK: _block, Form.CONTAINER: _container}[shape.form](make, shape, fitting)


def _whole(make: Make, shape: Shape, fitting: list[Piece]) -> int | None:
    matching = all(shape.model in ("", card.model) for card in make.cards)
    enough = len(make.cards) >= shape.cards and len(fitting) >= shape.cards_of_size
    held = any(card.held or card.alone for card in make.cards)
    return CARD * len(make.cards) if make.cards and matching and enough and not held else None


def _block(make: Make, shape: Shape, fitting: list[Piece]) -> int | None:
    sizes = Counter(card.block for card in make.cards if card.block >= 0)
    usable = Counter(card.block for card in fitting if not card.held and not card.alone)
    sums = {0}
    for block, size in sizes.items():
        if usable[block] == size:
            sums |= {one + size for one in sums}
    return CARD * shape.cards if shape.cards in sums - {0} else None


def _container(make: Make, shape: Shape, fitting: list[Piece]) -> int | None:
    sizes = sorted(
        (card.memory_mib for card in fitting if not card.held and not (card.alone and shape.linked)), reverse=True
    )[: shape.cards]
    if len(sizes) < shape.cards or not shape.compute_possible:
        return None
    return sum(-(-shape.memory_mib * CARD // size) if shape.memory_mib else CARD for size in sizes)
