"""Rows that are kept for waiting jobs, in one plan: from when on, and who may use them until then or beside them."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Final

import numpy as np

from ledger.vocabulary import Form
from scheduler.engine.arrays import Bools, Floats, Ints, Rows
from scheduler.engine.ends import NEVER, Ends
from scheduler.engine.fleet import FORM_CODE, Fleet
from scheduler.engine.shape import Shape
from scheduler.engine.types import MemberPlan

CONTAINER: Final = FORM_CODE[Form.CONTAINER]


@dataclass(frozen=True, slots=True)
class Bar:
    """What keeps a job out of rows. Of the reservations, in the order of their time, so many begin before the job has
    surely ended; and where untouched nodes are kept for whole machines, those that jobs of this priority must spare."""

    late: int = 0
    spared: int | None = None


class Kept:
    """`since` (n,): when a row's reservation begins, NEVER where there is none. `spare` (3, n): cards, milli-cores and
    MiB that a container will find on a kept row beside its reservation, cards counted whole."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.since: Floats = np.full(len(fleet), NEVER)
        self.spare: Ints = np.zeros((3, len(fleet)), dtype=np.int64)
        self.begins: list[float] = []  # of all reservations, ascending
        self.spared: dict[int, Bools] = {}  # by priority (n,): rows that whole machines wait for

    @property
    def rows(self) -> Bools:
        """(n,): the kept ones."""
        kept: Bools = self.since < NEVER
        return kept

    def bar(self, surely_ended: float, spared: int | None) -> Bar:
        """For a job that has all but surely ended by then."""
        return Bar(bisect_left(self.begins, surely_ended), spared)

    def shut(self, bar: Bar, shape: Shape, rows: Rows) -> Bools:
        """Of these rows, those that the bar keeps the shape out of."""
        out = np.zeros(len(rows), dtype=np.bool_)
        if bar.late:
            out |= self.since[rows] <= self.begins[bar.late - 1]
            out &= ~self._beside(shape, rows)
        if bar.spared is not None:
            now = self.fleet.now
            out |= self.spared[bar.spared][rows] & (now.used_form[rows] == 0) & (now.allocations[rows] == 0)
        return out

    def keep(self, rows: Rows, begins: float, shape: Shape, ends: Ends) -> None:
        """From then on, for a job that takes the shape on each of these rows."""
        self.since[rows] = begins
        insort(self.begins, begins)
        self.spare[:, rows] = -1
        if shape.form is not Form.CONTAINER:
            return
        able = (ends.cards_at(shape)[:, rows] <= begins).sum(axis=0) - shape.cards
        now = self.fleet.now
        for number, row in enumerate(rows.tolist()):
            _, cpu, memory = (column.sum() for column in ends.table.on(row, until=begins))
            spare = now.cpu[row] + cpu - shape.cpu_milli, now.host_memory[row] + memory - shape.host_memory_mib
            self.spare[:, row] = (able[number], *spare)

    def take(self, row: int, member: MemberPlan, surely_ended: float) -> None:
        """A member was given room on a row, for so long."""
        if self.since[row] < surely_ended:
            self.spare[:, row] -= (len(member.shares), member.cpu_milli, member.host_memory_mib)

    def _beside(self, shape: Shape, rows: Rows) -> Bools:
        """Of these rows, those where the shape stands in no reservation's way however long it lasts."""
        cards, cpu, memory = self.spare[:, rows]
        fits: Bools = (cards >= shape.cards) & (cpu >= shape.cpu_milli) & (memory >= shape.host_memory_mib)
        fits &= self.fleet.now.used_form[rows] == CONTAINER
        return fits if shape.form is Form.CONTAINER else np.zeros_like(fits)
