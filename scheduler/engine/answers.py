"""Remembers, for each shape, which rows may take it and how good they are; after a change only the rows that changed
are looked at again.

A fork starts from its fleet's answers, so work done in one tick serves the next. Answers are a memory, not a state:
with all of them forgotten the plan is the same. Where the compiled loops know a shape (kernel.py), a fork leaves the
looking to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from scheduler.engine import feasible, kernel, score
from scheduler.engine.arrays import Codes, Ints, Rows
from scheduler.engine.cards import Columns, Takes, choose
from scheduler.engine.fleet import ANSWERS_KEPT, Answer, Fleet
from scheduler.engine.kernel import FAN, NOTHING, UNDECIDED, Board, Log
from scheduler.engine.lens import Lens
from scheduler.engine.shape import Shape
from scheduler.engine.slate import applies, ask_of, slate_of


def answer(fleet: Fleet, shape: Shape, rule: str) -> Answer:
    """Codes and scores of all rows as the fleet is now. Not to be changed by the caller."""
    found = fleet.answers.get((shape, rule))
    if found is None:
        found = _first(fleet, shape, rule)
        if len(fleet.answers) >= ANSWERS_KEPT:
            del fleet.answers[next(iter(fleet.answers))]
        fleet.answers[shape, rule] = found
    if found.seen < len(fleet.log):
        if found.board is not None:
            kernel.catch_up(slate_of(fleet, shape.simulated), fleet.log.log, found.board, 0)
        else:
            _refresh(fleet, shape, rule, found)
        found.seen = len(fleet.log)
    return found


def best(fleet: Fleet, found: Answer, few: int) -> Rows:
    """The few best rows, best first; rows with equal points by rank."""
    if found.board is not None:
        rows = np.empty(few, dtype=np.int64)
        return rows[: kernel.best(found.board, 0, rows)]
    return ranked(fleet, np.flatnonzero(found.codes == 0), found.points, few)


def columns_of(fleet: Fleet, row: int, shape: Shape, spare: Takes) -> Columns | None:
    """As cards.choose, by the loops where they can tell."""
    if fleet.base is not None and not spare and applies(fleet, shape, fleet.rule):
        chosen = kernel.choose(slate_of(fleet, shape.simulated), ask_of(fleet, shape), row)
        if chosen != UNDECIDED:
            return tuple(column for column in range(len(fleet.cards[row])) if chosen >> column & 1)
    return choose(fleet, row, shape, spare)


def ranked(fleet: Fleet, rows: Rows, points: Ints, few: int = 0) -> Rows:
    """These rows in that order; only the first few when that is given."""
    keys = fleet.ranks[rows] - points[rows] * len(fleet)  # the smaller, the better; no two are equal
    if 0 < few < len(rows):
        some = np.argpartition(keys, few)[:few]
        rows, keys = rows[some], keys[some]
    return rows[np.argsort(keys)]


def board_of(fleet: Fleet, shapes: Sequence[Shape], *, why: bool) -> Board:
    """What the fork's answers to these shapes say, for the compiled loops; `why` rows are refused only if asked for."""
    board, base = _bare_board(fleet, shapes, why=why), fleet if fleet.base is None else fleet.base
    for number, shape in enumerate(shapes):
        known = answer(base, shape, fleet.rule)
        if why:
            board.codes[number], board.points[number] = known.codes, known.points
        tree, levels = board.trees[number], board.levels.tolist()
        tree[: len(fleet)] = np.where(known.codes == 0, fleet.ranks - known.points * len(fleet), NOTHING)
        for below, level in pairwise(levels):
            least = tree[below:level].reshape(-1, FAN).min(axis=1)
            tree[level : level + len(least)] = least
    return board


def _bare_board(fleet: Fleet, shapes: Sequence[Shape], *, why: bool) -> Board:
    levels = _levels(len(fleet))
    return Board(
        asks=np.array([ask_of(fleet, shape) for shape in shapes], dtype=np.int64),
        codes=np.zeros((len(shapes), len(fleet) * why), dtype=np.int8),
        points=np.zeros((len(shapes), len(fleet) * why), dtype=np.int64),
        trees=np.full((len(shapes), levels[-1] + 1), NOTHING),
        levels=levels,
        seen=np.zeros(len(shapes), dtype=np.int64),
        by_rank=fleet.by_rank,
    )


def _levels(rows: int) -> Ints:
    """Where each level of a tree begins: the rows, then branch upon branch of FAN, filled up to whole branches."""
    starts, width = [0], rows
    while width > 1 or len(starts) == 1:
        width = -(-width // FAN)
        starts.append(starts[-1] + width * FAN)
    return np.array(starts)


def _first(fleet: Fleet, shape: Shape, rule: str) -> Answer:
    if not applies(fleet, shape, rule):
        if fleet.base is None:
            return Answer(*_work_out(Lens(fleet, shape, slice(None)), rule, 0), len(fleet.log))
        known = answer(fleet.base, shape, rule)
        return Answer(known.codes.copy(), known.points.copy(), 0)
    if fleet.base is not None:
        board = board_of(fleet, [shape], why=True)
        return Answer(board.codes[0], board.points[0], 0, board)
    board = _bare_board(fleet, [shape], why=True)
    board.codes[0] = feasible.codes(Lens(fleet, shape, slice(None)), upto=feasible.STANDING)
    every = np.arange(len(fleet))
    all_changed = Log(rows=every, length=np.array([len(fleet)]), last=every, work=every.copy())
    kernel.catch_up(slate_of(fleet, shape.simulated), all_changed, board, 0)
    return Answer(board.codes[0], board.points[0], len(fleet.log))


def _refresh(fleet: Fleet, shape: Shape, rule: str, found: Answer) -> None:
    changed = fleet.log.since(found.seen)
    after = 0
    if fleet.base is not None:  # a plan only takes: what else refused these rows refuses them still
        changed = changed[(found.codes[changed] == 0) | (found.codes[changed] > feasible.STANDING)]
        after = feasible.STANDING
    if len(changed):
        look = Lens(fleet, shape, changed)
        found.codes[changed], found.points[changed] = _work_out(look, rule, after)


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
