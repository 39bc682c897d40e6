"""The masks that filters and scores share: which cards of some rows suit a shape. Worked out at most once a look.

Reads the fleet, changes nothing. Every value depends on its own row alone, so that a look at one row gives exactly
what a look at all rows gives for it.
"""

# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine.fleet import Bools, Fleet, Ints, Some
from scheduler.engine.shape import FORMS, Shape

WORD_BITS = 64


class Lens:
    def __init__(self, fleet: Fleet, shape: Shape, rows: Some) -> None:
        self.fleet = fleet
        self.fixed = fleet.fixed
        self.now = fleet.now
        self.shape = shape
        self.rows = rows
        self.form = FORMS.index(shape.form)

    @cached_property
    def present(self) -> Bools:
        return self.fixed.present[self.rows]

    @cached_property
    def memory(self) -> Ints:
        return self.fixed.memory[self.rows]

    @cached_property
    def free(self) -> Ints:
        return self.now.memory[self.rows]

    @cached_property
    def match(self) -> Bools:
        """Cards of the model asked for."""
        if not self.shape.model:
            return self.present
        return self.present & (self.fixed.model[self.rows] == self.fleet.models.get(self.shape.model, -2))

    @cached_property
    def big(self) -> Bools:
        """Of these, cards that have the memory asked for at all."""
        return self.match & (self.memory >= self.shape.memory_mib)

    @cached_property
    def usable(self) -> Bools:
        return self.big & ~self.fixed.card_held[self.rows]

    @cached_property
    def idle(self) -> Bools:
        """Usable cards without any tenant."""
        return self.usable & (self.free == self.memory) & (self.now.compute[self.rows] == COMPUTE_UNITS)

    @cached_property
    def open(self) -> Bools:
        """Usable cards with anything left on them for this shape."""
        if self.shape.full_cards:
            return self.idle
        return self.usable & (self.free > 0) & (self.now.compute[self.rows] >= self.shape.compute_milli)

    @cached_property
    def fit(self) -> Bools:
        """Cards that can be given."""
        if self.shape.full_cards:
            return self.idle
        return self.open & (self.free >= self.shape.memory_mib)

    @cached_property
    def whole_blocks(self) -> list[Bools]:
        """By block column: every card of it suits and none has a tenant."""
        return [self._complete(self.idle, n) for n in range(self.fixed.block_size.shape[1])]

    def _complete(self, cards: Bools, block: int) -> Bools:
        size = self.fixed.block_size[self.rows][:, block]
        inside: Bools = (cards & (self.fixed.block[self.rows] == block)).sum(axis=1) == size
        return inside & (size > 0)

    def blocks_reach(self, cards: Bools) -> Bools:
        """Whether some set of blocks, complete within `cards`, has exactly the number of cards asked for.

        Subset sums as bits: bit s of a row's word says that s cards can be had.
        """
        wanted = self.shape.cards
        sizes = self.fixed.block_size[self.rows]
        if wanted == 0:
            return np.zeros(len(sizes), dtype=np.bool_)
        words: npt.NDArray[Any] = np.ones(len(sizes), dtype=np.uint64 if wanted < WORD_BITS else np.object_)
        for n in range(sizes.shape[1]):
            shift = np.where(self._complete(cards, n) & (sizes[:, n] <= wanted), sizes[:, n], 0)
            words = words | (words << shift.astype(words.dtype))
        bit = words.dtype.type(wanted) if wanted < WORD_BITS else wanted
        return ((words >> bit) & words.dtype.type(1)).astype(np.bool_)

    @property
    def is_container(self) -> bool:
        return self.shape.form is Form.CONTAINER

    @property
    def is_whole(self) -> bool:
        return self.shape.form is Form.WHOLE

    def nothing(self) -> Bools:
        return np.zeros(len(self.fixed.ids[self.rows]), dtype=np.bool_)
