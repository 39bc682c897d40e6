"""What may still be taken out of each reserved (zone, model) cell, followed through one plan.

Free memory of a cell is what is free on cards not held, on nodes up and not held; real and simulated nodes are two
cells. Key work may enter the reserve, so it is not asked here, but what it takes counts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Final

import numpy as np

from ledger.vocabulary import Form
from scheduler.engine.arrays import Bools, Ints, Rows
from scheduler.engine.cards import Takes, choose, takes_of
from scheduler.engine.fleet import Fleet
from scheduler.engine.lens import Lens
from scheduler.engine.shape import Shape
from scheduler.engine.types import MemberPlan, Reserve

UNLIMITED: Final = 2**60


class Headroom:
    """`spare[model code][cell]` is free memory minus the reserve in MiB; below 0 the reserve is already eaten into."""

    def __init__(self, fleet: Fleet, reserves: Iterable[Reserve]) -> None:
        self.fleet = fleet
        self.spare: dict[int, Ints] = {}
        kept: dict[tuple[int, int], int] = {}
        for reserve in reserves:
            zone, model = fleet.zones.get(reserve.zone_id), fleet.models.get(reserve.model)
            if zone is not None and model is not None and reserve.mib > 0:
                kept[zone, model] = max(reserve.mib, kept.get((zone, model), 0))
        for (zone, model), mib in kept.items():
            cells = self.spare.setdefault(model, np.full(2 * len(fleet.zones) + 2, UNLIMITED, dtype=np.int64))
            for simulated in (False, True):
                cells[2 * zone + 2 + simulated] = self._free(zone, model, simulated) - mib
        self.cell = 2 * fleet.fixed.zone + 2 + fleet.fixed.simulated  # of each row; 0 and 1 = in no zone

    def _free(self, zone: int, model: int, simulated: bool) -> int:
        fixed = self.fleet.fixed
        nodes = fixed.up & ~fixed.held & (fixed.zone == zone) & (fixed.simulated == simulated)
        cards = nodes & fixed.present & ~fixed.card_held & (fixed.model == model)
        return int(self.fleet.now.memory[cards].sum())

    @property
    def reserved(self) -> bool:
        return bool(self.spare)

    def copy(self) -> Headroom:
        """For trying out a gang: only the amounts are its own."""
        twin = copy.copy(self)
        twin.spare = {model: cells.copy() for model, cells in self.spare.items()}
        return twin

    def of(self, row: int) -> Takes:
        """What may be taken on this row, by model code; models without a reserve are left out."""
        cell = self.cell[row]
        return {model: int(cells[cell]) for model, cells in self.spare.items() if cells[cell] < UNLIMITED}

    def after(self, row: int, member: MemberPlan) -> None:
        """Book what a member takes."""
        for model, mib in takes_of(self.fleet, row, member).items():
            cells = self.spare.get(model)
            if cells is not None and cells[self.cell[row]] < UNLIMITED:
                cells[self.cell[row]] -= mib

    def refused(self, shape: Shape, rows: Rows) -> Bools:
        """Of rows that pass all filters: those where the shape would eat into a reserve."""
        out = np.zeros(len(rows), dtype=np.bool_)
        if not self.spare or (shape.cards == 0 and shape.form is not Form.WHOLE):
            return out
        tight = self._may_be_short(shape, rows)
        if not tight.any():
            return out
        look = Lens(self.fleet, shape, rows[tight])
        if look.is_whole:
            out[tight] = self._whole_refused(look, rows[tight])
        elif look.is_container:
            out[tight] = self._container_refused(look, rows[tight])
        else:
            out[tight] = [choose(self.fleet, int(row), shape, self.of(int(row))) is None for row in rows[tight]]
        return out

    def _may_be_short(self, shape: Shape, rows: Rows) -> Bools:
        """A quick look that clears most rows: even the greatest possible take leaves every reserve alone."""
        card, machine, _ = self.fleet.yardsticks
        most = machine if shape.form is Form.WHOLE else shape.cards * (card if shape.full_cards else shape.memory_mib)
        short = np.zeros(len(rows), dtype=np.bool_)
        for cells in self.spare.values():
            short |= cells[self.cell[rows]] < most
        return short

    def _whole_refused(self, look: Lens, rows: Rows) -> Bools:
        refused = np.zeros(look.size, dtype=np.bool_)
        for model, cells in self.spare.items():
            taken = np.where(look.fixed.model[:, rows] == model, look.memory, 0).sum(axis=0)
            refused |= (taken > 0) & (taken > cells[self.cell[rows]])
        return refused

    def _container_refused(self, look: Lens, rows: Rows) -> Bools:
        """Cards are had model by model, the smallest takes first; are there enough within every limit?"""
        limited = np.zeros_like(look.fit)
        had = np.zeros(len(rows), dtype=np.int64)
        take = look.memory if look.full_cards else np.full_like(look.memory, look.shape.memory_mib)
        for model, cells in self.spare.items():
            mine = look.fit & (look.fixed.model[:, rows] == model)
            limited |= mine
            rising = np.sort(np.where(mine, take, UNLIMITED), axis=0)
            within = np.cumsum(np.minimum(rising, UNLIMITED >> 20), axis=0) <= cells[self.cell[rows]]
            had += (within & (rising < UNLIMITED)).sum(axis=0)
        had += (look.fit & ~limited).sum(axis=0)
        return had < look.shape.cards
