"""Prefers nodes that likely have a job's data in their own cache, among those that are about as good as the best one.

Only changes the order in which nodes are tried: what may be placed without it may be placed with it, and a job that
names no warm nodes is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.engine.answers import ranked
from scheduler.engine.arrays import Codes, Ints, Rows
from scheduler.engine.fleet import Fleet
from scheduler.engine.score import LEAST_LOSS, POINTS
from scheduler.engine.types import Warmth


@dataclass(frozen=True, slots=True)
class WarmPolicy:
    """`allowance` by scoring rule: the score of a warm node may be so much less than the best. The name changes
    whenever what it does changes."""

    name: str
    allowance: Mapping[str, float]


# Of the rule that goes by prices the unit is a card: a tenth of one may be lost so that data need not be fetched.
WARM_POLICY: Final = WarmPolicy("warm-data/1", {LEAST_LOSS: 0.1, "pack-keep-whole/1": 0.5, "pack-keep-whole/2": 0.5})


NO_ROWS: Final[Rows] = np.empty(0, dtype=np.intp)


def nearly_as_good(fleet: Fleet, codes: Codes, points: Ints, first: Rows, warm: frozenset[int], rule: str) -> Rows:
    """The warm rows that may take the shape and whose points are within the allowance of the best row, best first.
    `first` are the best rows, `warm` the ids of nodes."""
    if not warm or not len(first):
        return NO_ROWS
    rows = np.array([fleet.row_of[node_id] for node_id in warm if node_id in fleet.row_of], dtype=np.intp)
    least = points[first[0]] - round(WARM_POLICY.allowance[rule] * POINTS)
    return ranked(fleet, rows[(codes[rows] == 0) & (points[rows] >= least)], points)


def put_first(rows: Rows, warm: Rows) -> Rows:
    """`rows` with the warm ones in front."""
    return np.concatenate([warm, rows[~np.isin(rows, warm)]]) if len(warm) else rows


def warmth(fleet: Fleet, members: Sequence[int], warm: Rows, points: Ints, best: Rows) -> Warmth | None:
    """Which of these members' rows came first for being warm; `best` is the row that would have been the first."""
    chosen = sorted({*members} & {*warm.tolist()})
    if not chosen:
        return None
    gave_up = int(points[best[0]]) - min(int(points[row]) for row in chosen)
    return Warmth(WARM_POLICY.name, tuple(int(fleet.fixed.ids[row]) for row in chosen), gave_up / POINTS)
