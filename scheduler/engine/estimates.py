"""How long a job will go on, learned from what jobs like it took that have ended. Pure; knows no job and no clock.

Jobs alike by a template (who ran them, what kind they are, how many cards they take: Smith, Foster and Taylor,
"Predicting application run times using historical information", 1998) share a histogram of durations. The histogram and
not one figure is kept (Nissimov and Feitelson, "Probabilistic backfilling", 2007): with it a job that outlives what was
expected of it is expected anew, as Tsafrir, Etsion and Feitelson do ("Backfilling using system-generated predictions
rather than user runtime estimates", 2007). What is expected is never a limit: nothing is ended for outliving it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from scheduler.engine.arrays import Floats

SHORTEST_S: Final = 60.0  # durations below it count as it
LONGEST_S: Final = 60.0 * 2**15  # 23 days; durations above it count as it
PER_OCTAVE: Final = 2  # bins of the histogram for each doubling of the duration
EDGES: Final[Floats] = np.geomspace(SHORTEST_S, LONGEST_S, 15 * PER_OCTAVE + 1)
LOG_EDGES: Final[Floats] = np.log(EDGES)
LOG_WIDTH: Final = np.log(2) / PER_OCTAVE
WEIGHT: Final = 16.0  # jobs of its own at which a group counts as much as the wider group around it
PRIOR_S: Final = 600.0  # while nothing is known: P(longer than t) = PRIOR_S / t from here on

Group = Hashable
Groups = Sequence[Group]  # from the widest to the narrowest; everything is around them


def groups_of(who: Hashable, kind: Hashable, cards: int) -> tuple[Group, ...]:
    """The groups a job belongs to: those of its size, of its owner at that size, and of its kind among those."""
    return ("cards", cards), ("who", who, cards), ("kind", who, kind, cards)


def even_odds(jobs: int) -> float:
    """The share with which each of so many jobs must have ended for all of them to have ended at even odds."""
    return float(0.5 ** (1 / jobs))


class History:
    """Durations of jobs that have ended, by group.

    Only jobs that have ended are known, so a young history leans to short jobs; the prior (process lifetimes fall as
    1/t: Harchol-Balter and Downey, "Exploiting process lifetime distributions for dynamic load balancing", 1997) and
    the wider groups hold against it."""

    def __init__(self) -> None:
        self._everything = np.zeros(len(EDGES) - 1)
        self._counts: dict[Group, Floats] = {}

    def ended(self, groups: Groups, seconds: float) -> None:
        """A job of these groups has ended after so many seconds. ValueError for a duration that is not one."""
        if not seconds >= 0:
            raise ValueError(f"a job can't have taken {seconds} seconds")
        found = int(np.searchsorted(EDGES, seconds, side="right")) - 1
        place = min(max(found, 0), len(EDGES) - 2)
        self._everything[place] += 1
        for group in groups:
            self._counts.setdefault(group, np.zeros(len(EDGES) - 1))[place] += 1

    def expected_left(self, groups: Groups, elapsed: float = 0.0, limit: float | None = None) -> float:
        """Mean of the seconds that a job is still to go on after `elapsed`, and 0 when it has reached its `limit`."""
        weight, middle = self._left(groups, elapsed)
        if limit is not None:
            middle = np.minimum(middle, limit)
        return max(float(weight @ middle) - elapsed, 0.0)

    def left_at(self, share: float, groups: Groups, elapsed: float = 0.0, limit: float | None = None) -> float:
        """Seconds within which so large a share (0 ... 1) of such jobs end. ValueError for another share."""
        if not 0 <= share <= 1:
            raise ValueError(f"{share} is not a share of jobs")
        weight, middle = self._left(groups, elapsed)
        place = int(np.searchsorted(np.cumsum(weight), share * (1 - 1e-9)))
        left = float(middle[min(place, len(middle) - 1)])
        return max((left if limit is None else min(left, limit)) - elapsed, 0.0)

    def _left(self, groups: Groups, elapsed: float) -> tuple[Floats, Floats]:
        """Weights, together 1, and durations of what jobs of these groups can still take that have run so long."""
        chance = self._blend(groups)
        if elapsed > SHORTEST_S:
            chance = chance * _survives(elapsed)
        if chance.sum() <= 0:  # longer than anything: as long again (the median of 1/t)
            return np.ones(1), np.array([2 * elapsed])
        low = np.maximum(EDGES[:-1], np.minimum(elapsed, EDGES[1:]))
        return chance / chance.sum(), np.sqrt(low * EDGES[1:])

    def _blend(self, groups: Groups) -> Floats:
        """Each group's own durations, with those of the wider group around it counted as WEIGHT jobs."""
        blend: Floats = (self._everything + WEIGHT * PRIOR) / (self._everything.sum() + WEIGHT)
        for group in groups:
            own = self._counts.get(group)
            if own is not None:
                blend = (own + WEIGHT * blend) / (own.sum() + WEIGHT)
        return blend


def _survives(elapsed: float) -> Floats:
    """(bins,): the part of each bin that lies beyond `elapsed`, durations in a bin being even in their logarithm."""
    part: Floats = np.clip((LOG_EDGES[1:] - math.log(max(elapsed, SHORTEST_S))) / LOG_WIDTH, 0.0, 1.0)
    return part


def _prior() -> Floats:
    longer = np.minimum(1.0, PRIOR_S / EDGES)
    longer[-1] = 0.0
    ends: Floats = -np.diff(longer)
    return ends


PRIOR: Final[Floats] = _prior()
