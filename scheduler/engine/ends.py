"""When rows are expected to have room for a shape: what is on them now ends one by one, as its Stay has it.

An estimate of time, not of place: what a row can give is counted by cards, memory, cores, and whole blocks in all,
and the filters (feasible.py) have the last word when the time has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine import feasible
from scheduler.engine.arrays import Bools, Codes, Floats, Ints
from scheduler.engine.fleet import FORM_CODE, UNKNOWN, Fleet
from scheduler.engine.intervals import length
from scheduler.engine.lens import Lens
from scheduler.engine.shape import Shape
from scheduler.engine.types import Stay

NEVER: Final = float("inf")
ALWAYS: Final = float("-inf")


class Ends:
    """The stays of a fleet by row and end: `row`, `ends`, `cpu` and `memory` (m,) one a stay; `cell` (row and column in
    one number), `card_ends`, `mib` and `compute` (k,) one a card of a stay."""

    def __init__(self, fleet: Fleet, stays: Iterable[Stay]) -> None:
        """Stays on nodes that the fleet doesn't have are left out."""
        self.fleet = fleet
        known = sorted((s for s in stays if s.node_id in fleet.row_of), key=lambda s: (s.ends_at, s.job_id))
        self.row: Ints = np.array([fleet.row_of[stay.node_id] for stay in known], dtype=np.int64)
        order = np.argsort(self.row, kind="stable")
        self.stays = [known[n] for n in order.tolist()]
        self.row = self.row[order]
        self.ends: Floats = np.array([stay.ends_at for stay in self.stays], dtype=np.float64)
        self.cpu = _ints(stay.cpu_milli for stay in self.stays)
        self.memory = _ints(stay.host_memory_mib for stay in self.stays)
        self._take_cards()
        self.last: Floats = np.full(len(fleet), ALWAYS)  # when the row is wholly free; ALWAYS where nothing is known
        np.maximum.at(self.last, self.row, self.ends)

    def _take_cards(self) -> None:
        fleet, width = self.fleet, len(self.fleet.fixed.present)
        column_of = {card.id: n for row in set(self.row.tolist()) for n, card in enumerate(fleet.cards[row])}
        parts = [
            (row * width + column_of[card], stay.ends_at, length(memory), length(compute))
            for row, stay in zip(self.row.tolist(), self.stays, strict=True)
            for card, memory, compute in stay.cards
            if card in column_of
        ]
        parts.sort()
        self.cell = _ints(part[0] for part in parts)
        self.card_ends: Floats = np.array([part[1] for part in parts], dtype=np.float64)
        self.mib = _ints(part[2] for part in parts)
        self.compute = _ints(part[3] for part in parts)

    def on(self, row: int) -> list[Stay]:
        """What is on a row, the first to end first."""
        first, last = np.searchsorted(self.row, (row, row + 1))
        return self.stays[first:last]

    def room_at(self, shape: Shape, codes: Codes, now: float) -> Floats:
        """(n,): when each row is expected to have room for the shape. `codes` (n,) of the filters say where it has now,
        and where it can't come free. What has outlived its expected end is due now."""
        when = np.where(codes == 0, now, NEVER)
        rows = np.flatnonzero(codes > feasible.STANDING)
        if len(rows):
            when[rows] = np.maximum(self._freed(shape)[rows], now)
        return when

    def cards_at(self, shape: Shape) -> Floats:
        """(c, n): when each card is expected to have what the shape wants of one; for blocks, of all their cards."""
        fixed, now = self.fleet.fixed, self.fleet.now
        usable = Lens(self.fleet, shape, slice(None)).usable
        need = fixed.memory if shape.full_cards else np.full_like(fixed.memory, shape.memory_mib)
        compute = np.full_like(now.compute, COMPUTE_UNITS if shape.full_cards else shape.compute_milli)
        when = self._card_at(need - now.memory, self.mib)
        when = np.maximum(when, self._card_at(compute - now.compute, self.compute))
        when[~usable] = NEVER
        return self._blocks(when) if shape.form is Form.BLOCK else when

    def _freed(self, shape: Shape) -> Floats:
        """(n,): when what is on each row leaves enough, whoever else wants it."""
        last = np.where(self.last == ALWAYS, NEVER, self.last)
        if shape.form is Form.WHOLE:
            return last
        now, rows = self.fleet.now, len(self.fleet)
        when = self._kth(self.cards_at(shape), shape.cards)
        cpu = _reached(self.row, self.ends, self.cpu, shape.cpu_milli - now.cpu, rows)
        memory = _reached(self.row, self.ends, self.memory, shape.host_memory_mib - now.host_memory, rows)
        when = np.maximum(when, np.maximum(cpu, memory))
        other = (now.used_form != 0) & (now.used_form != FORM_CODE[shape.form])
        return np.where(other, np.maximum(when, last), when)

    def _card_at(self, missing: Ints, freed: Ints) -> Floats:
        """(c, n): when the missing (c, n) is free on each card."""
        width, rows = missing.shape
        return _reached(self.cell, self.card_ends, freed, missing.T.reshape(-1), width * rows).reshape(rows, width).T

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
        found: Floats = np.sort(when, axis=0)[cards - 1]
        return found


def _reached(group: Ints, ends: Floats, freed: Ints, missing: Ints, groups: int) -> Floats:
    """(groups,): the end by which what ends in each group has freed what is missing there: ALWAYS where nothing is,
    NEVER where it is not enough. Entries are sorted by group and end."""
    when = np.where(missing > 0, NEVER, ALWAYS)
    if len(group):
        total = np.cumsum(freed)
        first = np.searchsorted(group, group)
        total = total - np.where(first > 0, total[first - 1], 0)
        enough = (total >= missing[group]) & (missing[group] > 0)
        np.minimum.at(when, group[enough], ends[enough])
    return when


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)
