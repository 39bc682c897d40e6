"""In which order the nodes of a gang are tried, so that its members stand near each other.

Gets rows that may each take a member, best first, and only reorders and groups them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ledger.vocabulary import Distance
from scheduler.engine.arrays import Bools, Ints, Rows
from scheduler.engine.fleet import LEVELS, UNKNOWN, Fleet
from scheduler.engine.ties import name_tie

# The level, numbered as in LEVELS, that all members must share.
REQUIRED: Final[dict[Distance, int]] = {
    Distance.SAME_LEAF: 0,
    Distance.SAME_RACK: 1,
    Distance.SAME_ROOM: 2,
    Distance.SAME_SITE: 3,
}


def groups(fleet: Fleet, rows: Rows, points: Ints, *, nodes: int, distance: Distance, seed: int) -> Iterator[Rows]:
    """Groups of at least `nodes` rows, the one to be tried first at the front.

    Leaves come first, then racks, rooms and sites. A required level ends that, and all groups lie inside one place of
    it; without one everything comes at last. At one level the tightest group that has room comes first, so that large
    gaps stay whole for large gangs. A node whose place isn't known is near nobody.
    """
    if nodes == 1 or distance is Distance.ANY:
        yield rows
        return
    required = REQUIRED.get(distance)
    for level in range(len(LEVELS) if required is None else required + 1):
        # a leaf may span several racks: what lies in different places of the required level stands apart
        levels = sorted({level, level if required is None else required})
        for numbers in _tightest_first(fleet, [fleet.fixed.places[each, rows] for each in levels], points, nodes, seed):
            group = rows[numbers]
            yield group if level == 0 else _few_leaves(fleet, group, seed)
    if required is None:
        yield _few_leaves(fleet, rows, seed)


def in_one_place(fleet: Fleet, able: Bools, distance: Distance) -> int:
    """How many of these nodes stand together at most, as near as is required."""
    if distance not in REQUIRED:
        return int(able.sum())
    places = fleet.fixed.places[REQUIRED[distance], able]
    return int(np.bincount(places[places != UNKNOWN], minlength=1).max())


def _tightest_first(fleet: Fleet, layers: Sequence[Ints], points: Ints, nodes: int, seed: int) -> list[Ints]:
    """Which rows stand together in every layer, by number; a layer says in which place each row is."""
    names = list(fleet.places)
    known = np.flatnonzero((np.array(layers) != UNKNOWN).all(axis=0))
    codes = np.zeros(len(known), dtype=np.int64)
    for places in layers:
        codes = codes * len(names) + places[known]
    keyed = []
    for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
        if count >= nodes:
            numbers = known[codes == code]
            name = tuple(word for places in layers for word in names[int(places[numbers[0]])])
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
