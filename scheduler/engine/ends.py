"""When rows are expected to have room for a shape: what is on them now ends one by one, as its Stay has it.

An estimate of time, not of place: what a row can give is counted by cards, memory, cores, and whole blocks in all,
and the filters (feasible.py) have the last word when the time has come. Rows that the plan itself has placed on are
left out: what is there is known at the next look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine import feasible
from scheduler.engine.arrays import Bools, Codes, Floats, Ints
from scheduler.engine.fleet import FORM_CODE, UNKNOWN, Fleet
from scheduler.engine.intervals import Intervals
from scheduler.engine.lens import Lens
from scheduler.engine.shape import Shape
from scheduler.engine.types import Stay

NEVER: Final = float("inf")
ALWAYS: Final = float("-inf")


class StayTable:
    """The stays of a fleet by row and end. `of` (4, m): row, job, milli-cores, MiB of host memory, and `ends` (m,); one
    a stay. `parts` (3, k): cell (row and column in one number), MiB, milli-compute, and `part_ends` (k,); one a card.

    Rows are those of the fleet as it is built: once it `fits` no more, make a new table."""

    def __init__(self, fleet: Fleet, stays: Iterable[Stay] = ()) -> None:
        """Stays on nodes that the fleet doesn't have are left out."""
        self.row_of, self.width = fleet.row_of, len(fleet.fixed.present)
        self.cards = fleet.cards
        self.of: Ints = np.zeros((4, 0), dtype=np.int64)
        self.ends: Floats = np.zeros(0)
        self.parts: Ints = np.zeros((3, 0), dtype=np.int64)
        self.part_ends: Floats = np.zeros(0)
        self._put(stays)

    def fits(self, fleet: Fleet) -> bool:
        return self.row_of is fleet.row_of

    def replace(self, stays: Mapping[int, Iterable[Stay]]) -> None:
        """These are now the stays of these nodes, by id."""
        rows = [self.row_of[node_id] for node_id in stays if node_id in self.row_of]
        gone = np.zeros(len(self.row_of), dtype=np.bool_)
        gone[rows] = True
        left = ~gone[self.of[0]]
        self.of, self.ends = self.of[:, left], self.ends[left]
        left = ~gone[self.parts[0] // self.width]
        self.parts, self.part_ends = self.parts[:, left], self.part_ends[left]
        self._put(stay for node_id in stays for stay in stays[node_id])

    def on(self, row: int, until: float = NEVER) -> tuple[Ints, Ints, Ints]:
        """Job, milli-cores and MiB of what is on a row and ends by then, the first to end first."""
        first, last = np.searchsorted(self.of[0], (row, row + 1))
        last = first + int(np.searchsorted(self.ends[first:last], until, side="right"))
        job, cpu, memory = self.of[1:, first:last]
        return job, cpu, memory

    def _put(self, stays: Iterable[Stay]) -> None:
        known = [(self.row_of[stay.node_id], stay) for stay in stays if stay.node_id in self.row_of]
        of = np.array([(row, s.job_id, s.cpu_milli, s.host_memory_mib) for row, s in known], dtype=np.int64)
        ends = np.array([stay.ends_at for _, stay in known], dtype=np.float64)
        self.of = np.hstack([self.of, of.reshape(-1, 4).T])
        self.ends = np.concatenate([self.ends, ends])
        order = np.lexsort((self.of[1], self.ends, self.of[0]))
        self.of, self.ends = self.of[:, order], self.ends[order]
        parts = list(self._parts(known))
        self.parts = np.hstack([self.parts, np.array([part[:3] for part in parts], dtype=np.int64).reshape(-1, 3).T])
        self.part_ends = np.concatenate([self.part_ends, np.array([part[3] for part in parts], dtype=np.float64)])
        order = np.lexsort((self.part_ends, self.parts[0]))
        self.parts, self.part_ends = self.parts[:, order], self.part_ends[order]

    def _parts(self, known: Iterable[tuple[int, Stay]]) -> Iterator[tuple[int, int, int, float]]:
        column_of: dict[int, int] = {}
        last = -1
        for row, stay in known:
            if row != last:
                column_of, last = {card.id: column for column, card in enumerate(self.cards[row])}, row
            for card, memory, compute in stay.cards:
                if card in column_of:  # else it was taken out of the node meanwhile
                    yield row * self.width + column_of[card], _length(memory), _length(compute), stay.ends_at


class Ends:
    """What a table of stays means for a fork of its fleet."""

    def __init__(self, fleet: Fleet, table: StayTable) -> None:
        self.fleet, self.table = fleet, table
        self.last: Floats = np.full(len(fleet), ALWAYS)  # when the row is wholly free; ALWAYS where nothing is known
        np.maximum.at(self.last, table.of[0], table.ends)
        self._known: dict[Shape, Floats] = {}
        self._cards: tuple[Shape, Floats] | None = None  # the last answer of cards_at

    def room_at(self, shape: Shape, codes: Codes, now: float) -> Floats:
        """(n,): when each row is expected to have room for the shape. `codes` (n,) of the filters say where it has now,
        and where it can't come free. What has outlived its expected end is due now."""
        when = np.where(codes == 0, now, NEVER)
        rows = np.flatnonzero((codes > feasible.STANDING) & (self.fleet.log.log.last < 0))
        if len(rows):
            if shape not in self._known:
                self._known[shape] = self._freed(shape)
            when[rows] = np.maximum(self._known[shape][rows], now)
        return when

    def cards_at(self, shape: Shape) -> Floats:
        """(c, n): when each card is expected to have what the shape wants of one; for blocks, of all their cards. Not
        to be changed by the caller, and not true of rows that the plan has placed on."""
        if self._cards is None or self._cards[0] != shape:
            self._cards = shape, self._cards_at(shape)
        return self._cards[1]

    def _cards_at(self, shape: Shape) -> Floats:
        fixed, now = self.fleet.fixed, self.fleet.now
        usable = Lens(self.fleet, shape, slice(None)).usable
        need = fixed.memory if shape.full_cards else np.full_like(fixed.memory, shape.memory_mib)
        when = self._card_at(need - now.memory, self.table.parts[1])
        compute = COMPUTE_UNITS if shape.full_cards else shape.compute_milli
        if compute:
            when = np.maximum(when, self._card_at(compute - now.compute, self.table.parts[2]))
        when[~usable] = NEVER
        return self._blocks(when) if shape.form is Form.BLOCK else when

    def _freed(self, shape: Shape) -> Floats:
        """(n,): when what is on each row leaves enough, whoever else wants it."""
        last = np.where(self.last == ALWAYS, NEVER, self.last)
        if shape.form is Form.WHOLE:
            return last
        now, rows, table = self.fleet.now, len(self.fleet), self.table
        when = self._kth(self.cards_at(shape), shape.cards)
        cpu = _reached(table.of[0], table.ends, table.of[2], shape.cpu_milli - now.cpu, rows)
        memory = _reached(table.of[0], table.ends, table.of[3], shape.host_memory_mib - now.host_memory, rows)
        when = np.maximum(when, np.maximum(cpu, memory))
        other = (now.used_form != 0) & (now.used_form != FORM_CODE[shape.form])
        return np.where(other, np.maximum(when, last), when)

    def _card_at(self, missing: Ints, freed: Ints) -> Floats:
        """(c, n): when the missing (c, n) is free on each card."""
        width, rows = missing.shape
        cells = missing.T.reshape(-1)
        return _reached(self.table.parts[0], self.table.part_ends, freed, cells, width * rows).reshape(rows, width).T

    def _blocks(self, when: Floats) -> Floats:
        block = self.fleet.fixed.block
        out = np.full(when.shape, NEVER)
        for number in range(len(self.fleet.fixed.block_size)):
            mine: Bools = block == number
            whole = np.where(mine, when, ALWAYS).max(axis=0, initial=ALWAYS)
            out = np.where(mine, whole, out)
        out[block == UNKNOWN] = NEVER
        return out

    def _kth(self, when: Floats, cards: int) -> Floats:
        if cards == 0:
            return np.full(when.shape[1], ALWAYS)
        if cards > len(when):
            return np.full(when.shape[1], NEVER)
        found: Floats = np.partition(when, cards - 1, axis=0)[cards - 1]
        return found


def _reached(group: Ints, ends: Floats, freed: Ints, missing: Ints, groups: int) -> Floats:
    """(groups,): the end by which what ends in each group has freed what is missing there: ALWAYS where nothing is,
    NEVER where it is not enough. Entries are sorted by group and end."""
    when = np.where(missing > 0, NEVER, ALWAYS)
    if len(group):
        total = np.cumsum(freed)
        first = np.flatnonzero(np.diff(group, prepend=-1))  # entry that each group begins with
        before = np.repeat(total[first] - freed[first], np.diff(first, append=len(group)))
        lacking = missing[group]
        enough = np.flatnonzero((total - before >= lacking) & (lacking > 0))[::-1]  # the first has the last word
        when[group[enough]] = ends[enough]
    return when


def _length(intervals: Intervals) -> int:
    """As intervals.length; most have one piece."""
    return intervals[0][1] - intervals[0][0] if len(intervals) == 1 else sum(hi - lo for lo, hi in intervals)
