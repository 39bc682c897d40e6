# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

"""The masks that filters and scores share: which cards of some rows suit a shape. Worked out at most once a look.

Reads the fleet, changes nothing. Every value depends on its own row alone, so that a look at one row gives exactly
what a look at all rows gives for it. Masks of cards are (c, n), like the fleet's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine.arrays import Bools, Ints, Some
from scheduler.engine.fleet import Fleet
from scheduler.engine.shape import FORMS, Shape

WORD_BITS = 64
T = TypeVar("T")


class once(Generic[T]):
    """functools.cached_property without its lock, which on Python 3.11 costs more than most of these masks."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self.work_out = work_out
        self.name = work_out.__name__

    @overload
    def __get__(self, look: None, kind: type) -> once[T]: ...
    @overload
    def __get__(self, look: object, kind: type) -> T: ...
    def __get__(self, look: object | None, kind: type) -> once[T] | T:
        if look is None:
            return self
        value = look.__dict__[self.name] = self.work_out(look)
        return value


class Lens:
    def __init__(self, fleet: Fleet, shape: Shape, rows: Some) -> None:
        self.fleet = fleet
        self.fixed = fleet.fixed
        self.now = fleet.now
        self.shape = shape
        self.rows = rows
        self.form = FORMS.index(shape.form)
        self.is_container = shape.form is Form.CONTAINER
        self.is_block = shape.form is Form.BLOCK
        self.is_whole = shape.form is Form.WHOLE
        self.full_cards = shape.full_cards

    @once
    def size(self) -> int:
        """How many rows are looked at."""
        return len(self.fixed.ids[self.rows])

    @once
    def present(self) -> Bools:
        return self.fixed.present[:, self.rows]

    @once
    def memory(self) -> Ints:
        return self.fixed.memory[:, self.rows]

    @once
    def free(self) -> Ints:
        return self.now.memory[:, self.rows]

    @once
    def compute(self) -> Ints:
        return self.now.compute[:, self.rows]

    @once
    def block(self) -> Ints:
        return self.fixed.block[:, self.rows]

    @once
    def block_size(self) -> Ints:
        return self.fixed.block_size[:, self.rows]

    @once
    def match(self) -> Bools:
        """Cards of the model asked for."""
        if not self.shape.model:
            return self.present
        return self.present & (self.fixed.model[:, self.rows] == self.fleet.models.get(self.shape.model, -2))

    @once
    def big(self) -> Bools:
        """Of these, cards that have the memory asked for at all."""
        if not self.shape.memory_mib:
            return self.match
        return self.match & (self.memory >= self.shape.memory_mib)

    @once
    def usable(self) -> Bools:
        return self.big & ~self.barred

    @once
    def barred(self) -> Bools:
        """Cards that the shape may not have whatever is on them."""
        held = self.fixed.card_held[:, self.rows]
        return held | self.fixed.card_alone[:, self.rows] if self.shape.linked else held

    @once
    def idle(self) -> Bools:
        """Usable cards without any tenant."""
        return self.usable & (self.free == self.memory) & (self.compute == COMPUTE_UNITS)

    @once
    def open(self) -> Bools:
        """Usable cards with anything left on them for this shape."""
        if self.full_cards:
            return self.idle
        left = self.usable & (self.free > 0)
        return left & (self.compute >= self.shape.compute_milli) if self.shape.compute_milli else left

    @once
    def fit(self) -> Bools:
        """Cards that can be given."""
        if self.full_cards:
            return self.idle
        return self.open & (self.free >= self.shape.memory_mib)

    @once
    def whole_blocks(self) -> list[Bools]:
        """By block: every card of it suits and none has a tenant."""
        return [self._complete(self.idle, n) for n in range(len(self.block_size))]

    def _complete(self, cards: Bools, block: int) -> Bools:
        size = self.block_size[block]
        return ((cards & (self.block == block)).sum(axis=0) == size) & (size > 0)

    def blocks_reach(self, cards: Bools) -> Bools:
        """Whether some set of blocks, complete within `cards`, has exactly the number of cards asked for.

        Subset sums as bits: bit s of a row's word says that s cards can be had.
        """
        wanted = self.shape.cards
        if wanted == 0:
            return np.zeros(self.size, dtype=np.bool_)
        words: npt.NDArray[Any] = np.ones(self.size, dtype=np.uint64 if wanted < WORD_BITS else np.object_)
        for n, size in enumerate(self.block_size):
            shift = np.where(self._complete(cards, n) & (size <= wanted), size, 0)
            words |= words << shift.astype(words.dtype)
        bit = words.dtype.type(wanted) if wanted < WORD_BITS else wanted
        return ((words >> bit) & words.dtype.type(1)).astype(np.bool_)
