"""Remembers, for each shape, which rows may take it and how good they are; after a change only the rows that changed
are looked at again.

A fork starts from its fleet's answers, so work done in one tick serves the next. Answers are a memory, not a state:
with all of them forgotten the plan is the same.
"""

from __future__ import annotations

import numpy as np

from scheduler.engine import feasible, score
from scheduler.engine.fleet import ANSWERS_KEPT, Answer, Fleet, Floats, Some
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
        changed = np.unique(np.array(fleet.log[found.seen :], dtype=np.intp))
        found.codes[changed], found.scores[changed] = _work_out(fleet, shape, rule, changed)
        found.seen = len(fleet.log)
    return found


def _first(fleet: Fleet, shape: Shape, rule: str) -> Answer:
    if fleet.base is not None:
        known = answer(fleet.base, shape, rule)
        return Answer(known.codes.copy(), known.scores.copy(), 0)
    codes, scores = _work_out(fleet, shape, rule, slice(None))
    return Answer(codes, scores, len(fleet.log))


def _work_out(fleet: Fleet, shape: Shape, rule: str, rows: Some) -> tuple[feasible.Codes, Floats]:
    look = Lens(fleet, shape, rows)
    return feasible.codes(look), score.scores(look, rule)
