"""What it would cost, node by node, to make room for a job: an estimate that orders the search of preempt.py, by cards
alone. The engine has the last word on every set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from ledger.vocabulary import Form
from scheduler.engine import feasible
from scheduler.engine.answers import answer
from scheduler.engine.arrays import Bools, Ints
from scheduler.engine.fleet import Fleet
from scheduler.engine.least import TooDear
from scheduler.engine.near import required
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.types import JobView

if TYPE_CHECKING:
    from scheduler.engine.preempt import Candidate

ROWS: Final = 64  # of one group of nodes that are put in order, besides those that the job needs
Price = tuple[int, int]  # attempts, milli-card-seconds
TOO_DEAR: Final[Price] = (2**31, 0)


@dataclass
class Cost:
    """`able` (n,): rows where the job could be if nothing were on them; `ready` (n,): where it could be now."""

    fleet: Fleet
    job: JobView
    shapes: Sequence[Shape]
    able: Bools
    ready: Bools
    free: Ints  # (n,): cards that would do now, of each row
    by_row: dict[int, list[Candidate]] = field(default_factory=lambda: defaultdict(list))
    prices: dict[int, Price] = field(default_factory=dict)

    @property
    def rows(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.able).tolist())

    def on(self, row: int) -> list[Candidate]:
        return self.by_row.get(row, [])

    def orders(self, candidates: Sequence[Candidate], most: int) -> Iterator[list[int]]:
        """For some groups of nodes that stand together as the job wants it, their rows, the cheapest first; the
        cheapest group first."""
        self._set_out(candidates)
        ask, job = self.job.asks[0], self.job
        groups: list[tuple[int, int, int, list[int]]] = []
        for rows in required(self.fleet, ask.nodes, job.distance, job.like, alike=job.reproducible):
            open_rows = [row for row in rows.tolist() if self.able[row] and self.price(row) != TOO_DEAR]
            order = sorted(open_rows, key=lambda row: (self.price(row), row))[: ask.nodes + ROWS]
            if len(order) >= ask.nodes:
                first = [self.price(row) for row in order[: ask.nodes]]
                groups.append((sum(n for n, _ in first), sum(lost for _, lost in first), len(groups), order))
        yield from (order for *_, order in sorted(groups)[:most])

    def cheapest(self, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
        """The candidates of one row after the other, the cheapest row first."""
        for row in sorted(self.by_row, key=lambda row: (self.price(row), row)):
            yield from self.on(row)

    def price(self, row: int) -> Price:
        """The fewest of the candidates on a row that free enough cards there."""
        if row not in self.prices:
            self.prices[row] = (0, 0) if self.ready[row] else min(self._price(row, shape) for shape in self.shapes)
        return self.prices[row]

    def _price(self, row: int, shape: Shape) -> Price:
        here = self.on(row)
        if shape.form is Form.WHOLE:
            return (len(here), sum(one.lost for one in here)) if here else TOO_DEAR
        have, number, lost = int(self.free[row]), 0, 0
        for one in here:
            if have >= shape.cards and number:
                break
            have, number, lost = have + self._cards(one, row), number + 1, lost + one.lost
        return (number, lost) if have >= shape.cards and number else TOO_DEAR

    def _cards(self, one: Candidate, row: int) -> int:
        node_id = int(self.fleet.fixed.ids[row])
        return sum(len(stay.cards) for stay in one.stays if stay.node_id == node_id)

    def _set_out(self, candidates: Iterable[Candidate]) -> None:
        self.by_row.clear()
        self.prices.clear()
        for one in candidates:
            for row in {self.fleet.row_of[stay.node_id] for stay in one.stays}:
                if self.able[row]:
                    self.by_row[row].append(one)
        for row, here in self.by_row.items():
            here.sort(key=lambda one: (-self._cards(one, row), one.lost, one.tenant.attempt_id))


def costs(fleet: Fleet, rule: str, job: JobView, at: float, too_dear: TooDear) -> Cost:
    """Of the fleet as it is; asks that don't count now are left out, and rows that count for too much."""
    able, ready = np.zeros(len(fleet), dtype=np.bool_), np.zeros(len(fleet), dtype=np.bool_)
    free: Ints = np.zeros(len(fleet), dtype=np.int64)
    open_now = [ask for ask in job.asks if job.counts(ask, at)]
    shapes = [(shape, ask) for ask in open_now for shape in shapes_of(job, ask)]
    for shape, ask in shapes:
        codes = answer(fleet, shape, rule).codes
        closed = np.asarray(too_dear.get((shape, ask.nodes), False))
        if job.no_room:
            closed = closed | feasible.of_models(fleet, job.shut(ask))
        able |= feasible.could_come_free(codes) & ~closed
        ready |= (codes == 0) & ~closed
        memory = fleet.fixed.memory
        need = memory if shape.full_cards else np.full_like(memory, max(shape.memory_mib, 1))
        barred = fleet.fixed.card_held | (fleet.fixed.card_alone & shape.linked)
        enough = fleet.fixed.present & ~barred & (fleet.now.memory >= need)
        free = np.maximum(free, enough.sum(axis=0))
    return Cost(fleet, job, [shape for shape, _ in shapes], able, ready, free)
