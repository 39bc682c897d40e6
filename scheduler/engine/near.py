"""In which order the nodes of a gang are tried, so that its members stand near each other.

Gets rows that may each take a member, best first, and only reorders and groups them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Final

import numpy as np

from ledger.vocabulary import Distance, Span
from scheduler.engine.arrays import Ints, Rows
from scheduler.engine.fleet import UNKNOWN, Fleet
from scheduler.engine.ties import name_tie
from scheduler.engine.topology import LEVELS
from scheduler.engine.types import Likeness

Layer = tuple[Ints, Sequence[tuple[str, ...]]]  # of each row where it belongs, by number; the names of these

# The level, numbered as in LEVELS, that all members must share.
REQUIRED: Final[dict[Distance, int]] = {
    Distance.SAME_LEAF: 0,
    Distance.SAME_RACK: 1,
    Distance.SAME_ROOM: 2,
    Distance.SAME_SITE: 3,
}


def groups(
    fleet: Fleet, rows: Rows, points: Ints, nodes: int, distance: Distance, seed: int, *, alike: bool = False
) -> Iterator[Rows]:
    """Groups of at least `nodes` rows, the one to be tried first at the front.

    Leaves come first, then racks, rooms and sites. A required level ends that, and all groups lie inside one place of
    it; without one everything comes at last. At one level the tightest group that has room comes first, so that large
    gaps stay whole for large gangs. A node whose place isn't known is near nobody. `alike`: all nodes of a group are of
    one class of hardware.
    """
    if nodes == 1:
        yield rows
        return
    kinds = [_kinds(fleet, rows)] if alike else []
    for levels in _steps(distance):
        layers = [*(_places(fleet, rows, level) for level in levels), *kinds]
        for numbers in _tightest_first(layers, points, nodes, seed):
            group = rows[numbers]
            as_they_are = distance is Distance.ANY or 0 in levels
            yield group if as_they_are else _few_leaves(fleet, group, seed)


def required(fleet: Fleet, nodes: int, distance: Distance, like: Likeness | None, *, alike: bool) -> Iterator[Rows]:
    """Groups of rows of which a gang must take one: all rows, or those of each place that it may not leave, or of each
    class of hardware."""
    every = np.arange(len(fleet))
    if nodes == 1:
        yield every
        return
    level = REQUIRED.get(distance)
    if like is not None and like.span in LEVELS:
        level = LEVELS.index(like.span)
    layers = [] if level is None else [_places(fleet, every, level)]
    layers += [_kinds(fleet, every)] if alike else []
    for numbers in _tightest_first(layers, np.zeros(len(fleet), dtype=np.int64), nodes, 0):
        yield every[numbers]


def _steps(distance: Distance) -> list[tuple[int, ...]]:
    """The levels that must be shared, as a list of attempts. A leaf may span several racks: a nearer level counts
    inside one place of the required one alone."""
    if distance is Distance.ANY:
        return [()]
    if distance in REQUIRED:
        level = REQUIRED[distance]
        return [*((nearer, level) for nearer in range(level)), (level,)]
    return [*((level,) for level in range(len(LEVELS))), ()]


def groups_like(fleet: Fleet, rows: Rows, points: Ints, nodes: int, like: Likeness, seed: int) -> Iterator[Rows]:
    """Groups whose first `nodes` rows are as near to each other as `like` says, neither nearer nor farther; none where
    it is about another number of nodes."""
    if nodes != like.nodes or (nodes == 1) != (like.span is Span.NODE):
        return
    if like.span is Span.NODE:
        yield rows
        return
    level = LEVELS.index(like.span) if like.span is not Span.APART else len(LEVELS)
    around = [_places(fleet, rows, level)] if level < len(LEVELS) else []
    for numbers in _tightest_first(around, points, nodes, seed):
        group = rows[numbers]
        if level == 0:
            yield group
        else:
            yield from _spread(fleet.fixed.places[:level, group], group, nodes)


def _spread(places: Ints, rows: Rows, nodes: int) -> Iterator[Rows]:
    """So many rows that share none of these levels, places (levels, rows): with each row in turn the best others."""
    levels = 1 << np.arange(len(places))[:, None]
    for first in range(len(rows)):
        apart = (places != places[:, [first]]) | (places == UNKNOWN)
        masks = (apart * levels).sum(axis=0)
        masks[first] = 0
        others = _cover(masks, int(levels.sum()), nodes - 1)
        if others is not None:
            chosen = [first, *others]
            rest = [n for n in range(len(rows)) if n not in chosen]
            yield rows[np.array((chosen + rest)[:nodes])]


def _cover(masks: Ints, every: int, most: int) -> tuple[int, ...] | None:
    """The first few places, at most so many, whose masks have all bits together."""
    known, at = np.unique(masks, return_index=True)
    useful = sorted(zip(at.tolist(), known.tolist(), strict=True))
    for size in range(1, most + 1):
        for chosen in combinations(useful, size):
            if reduce(or_, (mask for _, mask in chosen)) == every:
                return tuple(n for n, _ in chosen)
    return None


def _places(fleet: Fleet, rows: Rows, level: int) -> Layer:
    return fleet.fixed.places[level, rows], list(fleet.places)


def _kinds(fleet: Fleet, rows: Rows) -> Layer:
    codes = fleet.hardware_codes()[rows]
    return codes, [(name,) for name in fleet.hardwares]


def _tightest_first(layers: Sequence[Layer], points: Ints, nodes: int, seed: int) -> list[Ints]:
    """Numbers of the rows that are together in every layer."""
    known = np.arange(len(points))
    for codes, _ in layers:
        known = known[codes[known] != UNKNOWN]
    together = np.zeros(len(known), dtype=np.int64)
    for codes, names in layers:
        together = together * len(names) + codes[known]
    keyed = []
    for code, count in zip(*np.unique(together, return_counts=True), strict=True):
        if count >= nodes:
            numbers = known[together == code]
            name = tuple(word for codes, names in layers for word in names[int(codes[numbers[0]])])
            keyed.append((int(count), -int(points[numbers[:nodes]].sum()), name_tie(seed, name), name, numbers))
    return [key[-1] for key in sorted(keyed, key=lambda key: key[:-1])]


def _few_leaves(fleet: Fleet, rows: Rows, seed: int) -> Rows:
    """Rows of well-filled leaves first, so that a wide gang still touches few leaves."""
    leaves = fleet.fixed.places[0, rows]
    names = list(fleet.places)
    known, counts = np.unique(leaves, return_counts=True)
    key_of = {
        int(leaf): (1 if leaf == UNKNOWN else 0, -int(count), name_tie(seed, names[int(leaf)]), names[int(leaf)])
        for leaf, count in zip(known, counts, strict=True)
    }
    order = sorted(range(len(rows)), key=lambda n: (key_of[int(leaves[n])], n))
    return rows[np.array(order, dtype=np.intp)]
