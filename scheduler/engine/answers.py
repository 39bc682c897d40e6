"""Remembers, for each shape, which rows may take it and how good they are; after a change only the rows that changed
are looked at again.

A fork starts from its fleet's answers, so work done in one tick serves the next. Answers are a memory, not a state:
with all of them forgotten the plan is the same.
"""

from __future__ import annotations

import numpy as np

from scheduler.engine import feasible, score
from scheduler.engine.arrays import Codes, Ints
from scheduler.engine.fleet import ANSWERS_KEPT, Answer, Fleet
from scheduler.engine.lens import Lens
from scheduler.engine.shape import Shape


def answer(fleet: Fleet, shape: Shape, rule: str) -> Answer:
    """Codes and scores of all rows as the fleet is now. Not to be changed by the caller."""
    found = fleet.answers.get((shape, rule))
    if found is None:
        found = _first(fleet, shape, rule)
        if len(fleet.answers) >= ANSWERS_KEPT:
            del fleet.answers[next(iter(fleet.answers))]
        fleet.answers[shape, rule] = found
    if found.seen < len(fleet.log):
        changed = np.array(sorted(set(fleet.log[found.seen :])), dtype=np.intp)
        found.seen = len(fleet.log)
        after = 0
        if fleet.base is not None:  # a plan only takes: what else refused these rows refuses them still
            changed = changed[(found.codes[changed] == 0) | (found.codes[changed] > feasible.STANDING)]
            after = feasible.STANDING
        if len(changed):
            look = Lens(fleet, shape, changed)
            found.codes[changed], found.points[changed] = _work_out(look, rule, after)
    return found


def _first(fleet: Fleet, shape: Shape, rule: str) -> Answer:
    if fleet.base is not None:
        known = answer(fleet.base, shape, rule)
        return Answer(known.codes.copy(), known.points.copy(), 0)
    return Answer(*_work_out(Lens(fleet, shape, slice(None)), rule, 0), len(fleet.log))


def _work_out(look: Lens, rule: str, after: int) -> tuple[Codes, Ints]:
    codes = feasible.codes(look, after)
    points = np.zeros(look.size, dtype=np.int64)
    able = np.flatnonzero(codes == 0)
    if len(able) == look.size:
        points = score.points(look, rule)
    elif len(able):
        rows = able if isinstance(look.rows, slice) else look.rows[able]
        points[able] = score.points(Lens(look.fleet, look.shape, rows), rule)
    return codes, points
