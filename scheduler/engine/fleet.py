"""The fleet as arrays: one row a node (sorted by id), cards by slot, so that a filter is a few vector operations.
Card arrays are (c, n), card first: adding up the cards of each node is then adding up c long vectors.
Built once, corrected by `replace_nodes`, forked for every plan so that a plan changes nothing.

Decides nothing. Codes (model, zone, place, hardware) are only names for strings: no choice may depend on their order.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine.arrays import Bools, Codes, Ints, Rows
from scheduler.engine.hardware import hardware_of
from scheduler.engine.intervals import Intervals, gaps, length, merged
from scheduler.engine.kernel import Board, Log, Moving, Slate
from scheduler.engine.least import Makes
from scheduler.engine.opening import Kinds, Openings, kinds_of, openings
from scheduler.engine.prices import Prices, Stock, Workload, first_guess, prices
from scheduler.engine.shape import FORMS, INTERCONNECT_RANK, Shape
from scheduler.engine.topology import LEVELS, CardTopology, place_keys
from scheduler.engine.types import CardView, MemberPlan, NodeView

StockKey = tuple[tuple[int, ...], tuple[int, ...], int, int]  # sizes, cards of each, milli-cores, MiB

FORM_CODE: Final[dict[Form | None, int]] = {None: 0, Form.CONTAINER: 1, Form.BLOCK: 2, Form.WHOLE: 3}
UNKNOWN: Final = -1
ANSWERS_KEPT: Final = 1_000
LOG_KEPT: Final = 100_000
LOG_BEGINS: Final = 1_000  # entries that there is room for


@dataclass(slots=True)
class Fixed:
    """What a plan doesn't change. (n,) unless said; c = most cards of a node, b = most blocks of a node."""

    ids: Ints
    simulated: Bools
    up: Bools
    held: Bools
    zone: Ints  # code, UNKNOWN = in no zone
    zone_forms: Bools  # (3, n)
    drivers: Bools  # (3, n)
    places: Ints  # (4, n) codes by level, UNKNOWN = not known
    interconnect: Ints
    cpu: Ints
    host_memory: Ints
    cards: Ints
    present: Bools  # (c, n)
    model: Ints  # (c, n)
    memory: Ints  # (c, n)
    card_held: Bools  # (c, n)
    card_alone: Bools  # (c, n) CardView.alone
    block: Ints  # (c, n) number of the block within the node, UNKNOWN = in none
    block_size: Ints  # (b, n), 0 = no such block


@dataclass(slots=True)
class Answer:
    """For one shape, by row: number of the first filter that refuses (0 = none) and, where none does, the score in
    millionths. `seen` counts the entries of the fleet's log that are already worked in. `board` is there where the
    compiled loops keep these arrays."""

    codes: Codes
    points: Ints
    seen: int
    board: Board | None = None


@dataclass(slots=True)
class Drawn:
    """A slate of one world with the prices that it was drawn by. `seen` as in Answer."""

    slate: Slate
    prices: Prices
    seen: int


class Changes:
    """Rows that changed, in order; how many is the fleet's version."""

    def __init__(self, rows: int) -> None:
        none = np.full(rows, -1)
        self.log = Log(np.empty(LOG_BEGINS, dtype=np.int64), np.zeros(1, dtype=np.int64), none, none.copy())

    def __len__(self) -> int:
        return int(self.log.length[0])

    def append(self, row: int) -> None:
        self.make_room(1)
        at = len(self)
        self.log.rows[at], self.log.last[row], self.log.length[0] = row, at, at + 1

    def make_room(self, entries: int) -> None:
        """For so many entries that compiled loops write."""
        needed = len(self) + entries
        if needed > len(self.log.rows):
            self.log = self.log._replace(rows=np.resize(self.log.rows, 2 * needed))

    def since(self, seen: int) -> Rows:
        """The rows that changed after that many changes, each once, ascending."""
        return np.array(sorted({*self.log.rows[seen : len(self)].tolist()}), dtype=np.int64)


class Fleet:
    """See the module docstring."""

    def __init__(self, nodes: Iterable[NodeView], workloads: Mapping[bool, Workload] | None = None) -> None:
        """`workloads` by simulated: what came so far, for prices; without one there is a first guess."""
        self.workloads = dict(workloads or {})
        self.models: dict[str, int] = {}
        self.hardwares: dict[str, int] = {}
        self.zones: dict[int, int] = {}
        self.places: dict[tuple[str, ...], int] = {}
        self._build(nodes)

    def _build(self, nodes: Iterable[NodeView]) -> None:
        self.views: list[NodeView] = sorted(nodes, key=lambda node: node.id)
        self.row_of: dict[int, int] = {node.id: row for row, node in enumerate(self.views)}
        if len(self.row_of) != len(self.views):
            raise ValueError("two nodes have the same id")
        self.cards: list[tuple[CardView, ...]] = [() for _ in self.views]
        self.busy: dict[tuple[int, int], tuple[Intervals, Intervals]] = {}  # (row, column) -> memory, compute
        self.labels: dict[str, Bools] = {}
        self.topologies: dict[int, CardTopology] = {}
        self.hardware: Ints | None = None  # see hardware_codes
        self.log = Changes(len(self.views))
        self.answers: dict[tuple[Shape, str], Answer] = {}
        self.slates: dict[bool, Drawn] = {}  # by simulated (slate.py)
        self.base: Fleet | None = None
        self.ranks: Ints = np.arange(len(self.views))
        self.by_rank: Ints = self.ranks  # rows
        self.rule = ""  # of the plan that a fork belongs to
        self.restock = True  # what there is in all may have changed
        self.stocks: dict[bool, StockKey] = {}
        self.priced: dict[bool, Prices] = {}
        self.by_make: Makes | None = None
        self.kinds: Kinds
        self.opened: dict[bool, Openings] = {}
        width = max((len(node.cards) for node in self.views), default=0)
        blocks = max((len(_block_ids(node)) for node in self.views), default=0)
        self.fixed, self.now = _empty(len(self.views), max(width, 1), max(blocks, 1))
        for row, node in enumerate(self.views):
            self._fill(row, node)
        self._measure()

    def __len__(self) -> int:
        return len(self.views)

    def _measure(self) -> None:
        """The fleet's largest card, machine and so on: the yardsticks of the scores."""
        memory = self.fixed.memory
        yardsticks = (
            max(int(memory.max(initial=0)), 1),
            max(int(memory.sum(axis=0).max(initial=0)), 1),
            max(int(self.fixed.cards.max(initial=0)), 1),
        )
        if getattr(self, "yardsticks", None) != yardsticks:
            self.answers.clear()
            self.slates.clear()
        self.yardsticks: tuple[int, int, int] = yardsticks
        if self.restock:
            self._take_stock()
            self.restock = False

    def prices(self, simulated: bool) -> Prices:
        """What is worth what in one of the two worlds; worked out when first asked for."""
        found = self.priced.get(simulated)
        if found is None:
            stock = self.stock(simulated)
            found = self.priced[simulated] = prices(self.workloads.get(simulated) or first_guess(stock), stock)
        return found

    def openings(self, simulated: bool) -> Openings:
        """What it costs others in one of the two worlds that an untouched node is opened; worked out when first asked
        for. Prices and this go together."""
        found = self.opened.get(simulated)
        if found is None:
            workload, stock = self.workloads.get(simulated), self.stock(simulated)
            found = self.opened[simulated] = openings(workload or first_guess(stock), self.kinds, stock, simulated)
        return found

    def stock(self, simulated: bool) -> Stock:
        sizes, cards, cpu, memory = self.stocks[simulated]
        return Stock(np.array(sizes or (1,)), np.array(cards or (0,)), cpu, memory)  # no table is empty

    def capacity(self) -> dict[bool, int]:
        """Milli-cards in all that work may use, by simulated: of nodes that are up and not held, without held cards."""
        usable = self.fixed.present & ~self.fixed.card_held & self.fixed.up & ~self.fixed.held
        cards = usable.sum(axis=0)
        return {world: 1000 * int(cards[self.fixed.simulated == world].sum()) for world in (False, True)}

    @property
    def makes(self) -> Makes:
        """Its nodes by make; worked out when first asked for, and then kept up."""
        home = self.base or self
        if home.by_make is None:
            home.by_make = Makes(home.views)
        return home.by_make

    def _take_stock(self) -> None:
        """What there is in all; prices and answers go when that has changed."""
        stocks = {simulated: self._stock(simulated) for simulated in (False, True)}
        kinds = kinds_of(self.fixed)
        if self.stocks != stocks or not kinds.same(self.kinds):
            self.stocks, self.kinds = stocks, kinds
            self.priced, self.opened = {}, {}
            self.answers.clear()

    def _stock(self, simulated: bool) -> StockKey:
        rows = self.fixed.simulated == simulated
        memory = self.fixed.memory[:, rows]
        sizes, cards = np.unique(memory[memory > 0], return_counts=True)
        cpu, host_memory = int(self.fixed.cpu[rows].sum()), int(self.fixed.host_memory[rows].sum())
        return tuple(sizes.tolist()), tuple(cards.tolist()), cpu, host_memory

    def replace_nodes(self, changed: Iterable[NodeView]) -> None:
        """Take the new views of these nodes; a node not seen before is added (that rebuilds everything)."""
        if self.base is not None:
            raise ValueError("a fork belongs to one plan and is never corrected")
        new = {node.id: node for node in changed}
        fixed = self.fixed
        fits = all(
            id_ in self.row_of
            and len(node.cards) <= len(fixed.present)
            and len(_block_ids(node)) <= len(fixed.block_size)
            for id_, node in new.items()
        )
        if not fits or len(self.log) > LOG_KEPT:
            self._build({**{node.id: node for node in self.views}, **new}.values())
            return
        for id_, node in new.items():
            row = self.row_of[id_]
            self.restock |= _has(self.views[row]) != _has(node)
            if self.by_make is not None:
                self.by_make.change(self.views[row], node)
            self.views[row] = node
            self._fill(row, node)
            self.log.append(row)
        self._measure()

    def fork(self, rule: str = "", ranks: Ints | None = None) -> Fleet:
        """A working copy for a plan by this rule: shares what a plan can't change, owns what it uses up. `ranks` (n,),
        0 to n - 1, part rows that are equally good; without them the lowest id wins."""
        twin = copy.copy(self)
        twin.now = Moving(*(array.copy() for array in self.now))
        twin.busy = {}
        twin.log = Changes(len(self))
        twin.answers = {}
        twin.slates = {}
        twin.base = self
        twin.rule = rule
        if ranks is not None:
            twin.ranks, twin.by_rank = ranks, np.argsort(ranks)
        return twin

    def _fill(self, row: int, node: NodeView) -> None:
        fixed, now = self.fixed, self.now
        fixed.ids[row] = node.id
        fixed.simulated[row] = node.simulated
        fixed.up[row] = node.up
        fixed.held[row] = node.held
        fixed.zone[row] = UNKNOWN if node.zone_id is None else self.zones.setdefault(node.zone_id, len(self.zones))
        fixed.zone_forms[:, row] = [form in node.zone_forms for form in FORMS]
        fixed.drivers[:, row] = [bool(node.managers.get(form)) for form in FORMS]
        fixed.places[:, row] = [self._place(key) for key in place_keys(node)]
        fixed.interconnect[row] = INTERCONNECT_RANK[node.interconnect]
        fixed.cpu[row] = node.cpu_milli
        fixed.host_memory[row] = node.host_memory_mib
        now.used_form[row] = FORM_CODE[node.used_form]
        now.allocations[row] = node.allocations
        now.cpu[row] = node.cpu_milli - node.cpu_milli_used
        now.host_memory[row] = node.host_memory_mib - node.host_memory_mib_used
        for label in node.labels:
            self.labels.setdefault(label, np.zeros(len(self.views), dtype=np.bool_))
        for label, has in self.labels.items():
            has[row] = label in node.labels
        self.topologies.pop(row, None)
        if self.hardware is not None:
            self.hardware[row] = self._hardware_code(node)
        self._fill_cards(row, node)

    def _fill_cards(self, row: int, node: NodeView) -> None:
        fixed, now = self.fixed, self.now
        cards = tuple(sorted(node.cards, key=lambda card: (card.slot, card.id)))
        self.cards[row] = cards
        fixed.cards[row] = len(cards)
        held = fixed.card_held, fixed.card_alone
        for columns in (fixed.present, fixed.model, fixed.memory, *held, now.memory, now.compute, now.gap):
            columns[:, row] = 0
        fixed.block[:, row] = UNKNOWN
        fixed.block_size[:, row] = 0
        block_of = {block: n for n, block in enumerate(_block_ids(node))}
        for n, card in enumerate(cards):
            fixed.present[n, row] = True
            fixed.model[n, row] = self.models.setdefault(card.model, len(self.models))
            fixed.memory[n, row] = card.memory_mib
            fixed.card_held[n, row], fixed.card_alone[n, row] = card.held, card.alone
            now.memory[n, row] = card.memory_mib - length(card.busy)
            now.compute[n, row] = COMPUTE_UNITS - length(card.compute_busy)
            now.gap[n, row] = _largest_gap(card.busy, card.memory_mib)
            if card.block_id is not None:
                fixed.block[n, row] = block_of[card.block_id]
                fixed.block_size[block_of[card.block_id], row] += 1

    def hardware_codes(self) -> Ints:
        """(n,): the class of each node as hardware; worked out when first asked for."""
        home = self.base or self
        if home.hardware is None:
            home.hardware = np.array([home._hardware_code(view) for view in home.views], dtype=np.int64)
        return home.hardware

    def _hardware_code(self, node: NodeView) -> int:
        return self.hardwares.setdefault(hardware_of(node).code, len(self.hardwares))

    def _place(self, key: tuple[str, ...]) -> int:
        return self.places.setdefault(key, len(self.places)) if key[-1] else UNKNOWN

    def topology(self, row: int) -> CardTopology:
        found = self.topologies.get(row)
        if found is None:
            found = self.topologies[row] = CardTopology(self.cards[row], self.views[row].links)
        return found

    def busy_of(self, row: int, column: int) -> tuple[Intervals, Intervals]:
        """Taken memory and compute intervals of a card, this plan's own included."""
        found = self.busy.get((row, column))
        if found is None:
            card = self.cards[row][column]
            found = (card.busy, card.compute_busy)
        return found

    def take(self, row: int, member: MemberPlan) -> None:
        """Use up what a member was given."""
        now = self.now
        now.used_form[row] = FORM_CODE[member.form]
        now.allocations[row] += 1
        now.cpu[row] -= member.cpu_milli
        now.host_memory[row] -= member.host_memory_mib
        column_of = {card.id: n for n, card in enumerate(self.cards[row])}
        for share in member.shares:
            column = column_of[share.card_id]
            memory, compute = self.busy_of(row, column)
            self.busy[row, column] = (merged(memory + share.memory), merged(compute + share.compute))
            now.memory[column, row] -= length(share.memory)
            now.compute[column, row] -= length(share.compute)
            now.gap[column, row] = _largest_gap(self.busy[row, column][0], self.cards[row][column].memory_mib)
        self.log.append(row)


def _has(node: NodeView) -> tuple[object, ...]:
    """What a node adds to the stock."""
    blocks = Counter(card.block_id for card in node.cards if card.block_id is not None)
    forms = [form for form in FORMS if form in node.zone_forms and node.managers.get(form)]
    cards = sorted(card.memory_mib for card in node.cards)
    return node.simulated, node.cpu_milli, node.host_memory_mib, cards, sorted(blocks.values()), forms


def _largest_gap(busy: Intervals, memory_mib: int) -> int:
    return max((hi - lo for lo, hi in gaps(busy, memory_mib)), default=0) if busy else memory_mib


def _block_ids(node: NodeView) -> list[int]:
    return sorted({card.block_id for card in node.cards if card.block_id is not None})


def _empty(n: int, c: int, b: int) -> tuple[Fixed, Moving]:
    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    def bools(*shape: int) -> Bools:
        return np.zeros(shape, dtype=np.bool_)

    fixed = Fixed(
        ids=ints(n), simulated=bools(n), up=bools(n), held=bools(n), zone=ints(n),
        zone_forms=bools(3, n), drivers=bools(3, n), places=ints(len(LEVELS), n), interconnect=ints(n),
        cpu=ints(n), host_memory=ints(n), cards=ints(n), present=bools(c, n), model=ints(c, n),
        memory=ints(c, n), card_held=bools(c, n), card_alone=bools(c, n), block=ints(c, n), block_size=ints(b, n),
    )  # fmt: skip
    return fixed, Moving(ints(n), ints(n), ints(n), ints(n), ints(c, n), ints(c, n), ints(c, n))
