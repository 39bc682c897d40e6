"""Decides many requests at once, or one after another at little cost: containers of known shapes, each for one node,
without headroom. The nodes and cards are those that a Desk (plan.py) gives the same requests in the same order.

Uses up a fork of a fleet. The intervals on its cards are written only where a later choice of cards reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form, Interconnect
from scheduler.engine import kernel
from scheduler.engine.answers import answer, best, board_of, columns_of
from scheduler.engine.arrays import Ints
from scheduler.engine.cards import build, choose
from scheduler.engine.fleet import Fleet
from scheduler.engine.intervals import best_fit, gaps, length, lowest_fit, merged
from scheduler.engine.kernel import MOST_CARDS
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.shape import FORMS, Shape
from scheduler.engine.slate import applies, slate_of
from scheduler.engine.types import CardView, NodeView


class Decided(NamedTuple):
    """By request: the row, -1 = refused; its cards' columns as bits; its points as in Answer."""

    rows: Ints
    columns: Ints
    points: Ints


class Batch:
    """`shapes` are what may be asked for, by number. Where rows are equally good, the fork's ranks decide.

    ValueError for a fleet that is no fork or has too many cards in a node, and for shapes that are no containers or not
    of one world.
    """

    def __init__(self, fleet: Fleet, shapes: Sequence[Shape]) -> None:
        if fleet.base is None:
            raise ValueError("a batch uses up its fleet: give it a fork")
        if len(fleet.fixed.present) > MOST_CARDS:
            raise ValueError(f"a batch names cards by bits: at most {MOST_CARDS} in a node")
        if {shape.form for shape in shapes} - {Form.CONTAINER} or len({shape.simulated for shape in shapes}) > 1:
            raise ValueError("a batch is for containers, all of them simulated or none")
        self.fleet, self.shapes = fleet, tuple(shapes)
        self.fast = len(fleet) > 0 and all(applies(fleet, shape, fleet.rule) for shape in shapes)
        if self.fast and shapes:
            self.slate = slate_of(fleet, shapes[0].simulated)
            self.board = board_of(fleet, self.shapes, why=False)

    def decide(self, wanted: Ints) -> Decided:
        """Decide requests for these shapes, given by number (m,), each before the next. IndexError for a number without
        a shape; requests before it are decided."""
        wanted = np.ascontiguousarray(wanted, dtype=np.int64)
        found = Decided(*np.empty((3, len(wanted)), dtype=np.int64))
        if not self.fast:
            for number, shape in enumerate(wanted.tolist()):
                found.rows[number], found.columns[number], found.points[number] = self._decide(self.shapes[shape])
            return found
        self.fleet.log.make_room(len(wanted))
        asked = (self.slate, self.fleet.now, self.fleet.log.log, self.board, wanted, False)
        number = 0
        while (number := kernel.place(*asked, number, *found)) < len(wanted):
            found.columns[number] = self.choose(int(wanted[number]), int(found.rows[number]))
            number += 1
        return found

    def look(self) -> None:
        """Work in for every shape what has changed, which else is done when it is next asked for."""
        for number in range(len(self.shapes) if self.fast else 0):
            kernel.catch_up(self.slate, self.fleet.log.log, self.board, number)

    def choose(self, shape: int, row: int) -> int:
        """The cards of a row that the loops leave to cards.choose, for the shape of that number."""
        self._write_intervals(row)
        columns = self._give(self.shapes[shape], row)
        kernel.bring(self.slate, self.fleet.now, np.array([row]))
        return columns

    def _write_intervals(self, row: int) -> None:
        """What the loops took of this row, as the low end of each card's free memory, which is in one piece."""
        fleet, now = self.fleet, self.fleet.now
        for column, card in enumerate(fleet.cards[row]):
            memory, compute = fleet.busy_of(row, column)
            taken = card.memory_mib - length(memory) - int(now.memory[column, row])
            taken_compute = COMPUTE_UNITS - length(compute) - int(now.compute[column, row])
            fleet.busy[row, column] = (
                merged(memory + best_fit(gaps(memory, card.memory_mib), taken)),
                merged(compute + lowest_fit(gaps(compute, COMPUTE_UNITS), taken_compute)),
            )

    def _give(self, shape: Shape, row: int) -> int:
        columns = choose(self.fleet, row, shape, {}) or ()
        self.fleet.take(row, build(self.fleet, row, shape, columns, 0.0))
        return sum(1 << column for column in columns)

    def _decide(self, shape: Shape) -> tuple[int, int, int]:
        """One request without the loops."""
        found = answer(self.fleet, shape, self.fleet.rule)
        for row in best(self.fleet, found, 1).tolist():
            points = int(found.points[row])
            return row, self._give(shape, row), points
        return -1, 0, 0


def warm() -> None:
    """Have the loops compiled, which takes seconds where no compiled code is kept on disk yet."""
    card = CardView(1, 1, "", 0, None, "", 2)
    machine = NodeView(
        id=1, hostname="", simulated=False, up=True, held=False, zone_id=1, zone_forms=frozenset(FORMS),
        managers={form: "" for form in FORMS}, site="", room="", rack="", leaf="", interconnect=Interconnect.ANY,
        labels=frozenset(), cpu_milli=1, host_memory_mib=1, cpu_milli_used=0, host_memory_mib_used=0, used_form=None,
        allocations=0, cards=(card,),
    )  # fmt: skip
    fleet = Fleet([machine]).fork(LEAST_LOSS)
    shape = Shape(Form.CONTAINER, 1, 1, 0, "", 0, 0, 0, frozenset(), False)
    Batch(fleet, [shape]).decide(np.zeros(1, dtype=np.int64))
    best(fleet, answer(fleet, shape, LEAST_LOSS), 1)
    columns_of(fleet, 0, shape, {})
