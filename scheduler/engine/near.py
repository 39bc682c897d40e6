"""In which order the nodes of a gang are tried, so that its members stand near each other.

Gets rows that may each take a member, best first, and only reorders and groups them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ledger.vocabulary import Distance
from scheduler.engine.arrays import Ints, Rows
from scheduler.engine.fleet import LEVELS, UNKNOWN, Fleet
from scheduler.engine.ties import name_tie

WIDER: Final[dict[Distance, tuple[int, ...]]] = {
    Distance.ANY: (),
    Distance.NEAR: tuple(range(len(LEVELS))),
    Distance.SAME_LEAF: (0,),
}


def groups(fleet: Fleet, rows: Rows, points: Ints, *, nodes: int, distance: Distance, seed: int) -> Iterator[Rows]:
    """Groups of at least `nodes` rows, the one to be tried first at the front.

    SAME_LEAF yields leaves only; NEAR goes on to racks, rooms, sites and at last everything. At one level the tightest
    group that has room comes first, so that large gaps stay whole for large gangs. A node whose place isn't known is
    near nobody.
    """
    if nodes == 1 or distance is Distance.ANY:
        yield rows
        return
    for level in WIDER[distance]:
        places = fleet.fixed.places[level, rows]
        for place in _tightest_first(fleet, places, points, nodes, seed):
            group = rows[places == place]
            yield group if level == 0 else _few_leaves(fleet, group, seed)
    if distance is Distance.NEAR:
        yield _few_leaves(fleet, rows, seed)


def required(fleet: Fleet, distance: Distance, nodes: int) -> Iterator[Rows]:
    """Groups of rows of which a gang must take one: all rows, or those of each place that it may not leave."""
    if distance is not Distance.SAME_LEAF or nodes == 1:
        yield np.arange(len(fleet))
        return
    leaves = fleet.fixed.places[0]
    for leaf in np.unique(leaves[leaves != UNKNOWN]):
        yield np.flatnonzero(leaves == leaf)


def _tightest_first(fleet: Fleet, places: Ints, points: Ints, nodes: int, seed: int) -> list[int]:
    names = list(fleet.places)
    keyed = []
    for place, count in zip(*np.unique(places[places != UNKNOWN], return_counts=True), strict=True):
        if count >= nodes:
            best = int(points[places == place][:nodes].sum())
            name = names[int(place)]
            keyed.append((int(count), -best, name_tie(seed, name), name, int(place)))
    return [key[-1] for key in sorted(keyed)]


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
