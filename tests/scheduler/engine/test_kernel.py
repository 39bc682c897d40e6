"""The compiled loops against NumPy: the same codes, points, nodes and cards, to the last bit, after any history.

Plain loops over seeds, not hypothesis: one fleet is good for hundreds of comparisons, and how many there were is counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ledger.vocabulary import AskForm, Form
from scheduler.engine import answers, compiling, feasible, kernel, score
from scheduler.engine.arrays import Codes, Ints
from scheduler.engine.batch import Batch, warm
from scheduler.engine.cards import build, choose
from scheduler.engine.demand import workloads
from scheduler.engine.fleet import Fleet
from scheduler.engine.lens import Lens
from scheduler.engine.plan import plan
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.shape import Shape
from scheduler.engine.ties import node_ranks
from scheduler.engine.types import Demand, NodeView, Snapshot
from tests.scheduler.engine.fleets import (
    MEMORIES,
    blocks_node,
    card,
    container,
    job,
    node,
    snapshots,
    some_busy,
    some_node,
)
from tests.scheduler.engine.fleets import snapshot as snapshot_of

SHAPES = 10
FORMS = (AskForm.CONTAINER, AskForm.CONTAINER, AskForm.BLOCK, AskForm.WHOLE)
EXAMPLES = 8_000  # at least


def some_plain_node(dice: Random, number: int) -> NodeView:
    """Large enough for several takes, without links or blocks: the loops need no help with it as a rule."""
    memory = dice.choice((None, *MEMORIES, 1000))
    used = dice.choice((None, Form.CONTAINER))
    cards = []
    for slot in range(dice.choice((0, 1, 2, 8, 9))):
        size = memory or dice.choice(MEMORIES)
        busy = some_busy(dice, used, size) if dice.random() < 0.3 else ()
        mark = dice.random()
        marks: dict[str, Any] = {"held": mark < 0.05, "alone": 0.05 <= mark < 0.15}
        cards.append(card(number * 100 + slot, slot, size, **marks, busy=busy, model=dice.choice("AAB")))
    amounts = {"cpu_milli": dice.choice((4_000, 20_000)), "host_memory_mib": dice.choice((3_000, 50_000))}
    return node(number, tuple(cards), used_form=used, allocations=int(used is not None), **amounts)


def some_fleet(dice: Random) -> Fleet:
    odd = [some_node(dice, n) for n in range(1, dice.randint(1, 5))]
    cut = [blocks_node(5, (2, 2, 4))] * dice.randint(0, 1)
    plain = [some_plain_node(dice, n) for n in range(6, 6 + dice.randint(1, 6))]
    asked = [
        Demand(False, form, dice.randint(0, 4), dice.choice((0, 3, 8)), 500, 50, dice.randint(1, 9)) for form in FORMS
    ]
    return Fleet([*odd, *cut, *plain], workloads(asked) if dice.random() < 0.7 else None)


def some_shape(dice: Random) -> Shape:
    cards = dice.choice((0, 1, 1, 1, 2, 3, 8))
    return Shape(
        form=Form.CONTAINER,
        cards=cards,
        memory_mib=dice.choice((0, 1, 3, 8, 12, 20, 400)),
        compute_milli=dice.choice((0, 0, 0, 250, 1000)),
        model=dice.choice(("", "", "", "A", "C")),
        cpu_milli=dice.choice((0, 500, 1000, 3000)),
        host_memory_mib=dice.choice((0, 100, 2000)),
        interconnect=dice.choice((0, 0, 0, 1, 2)),
        labels=dice.choice((frozenset(), frozenset(), frozenset("x"))),
        simulated=False,
        zones=dice.choice((frozenset(), frozenset(), frozenset({4, 1}))),
        gang=cards == 1 and dice.random() < 0.3,
    )


def some_forks(seed: int, forks: int) -> tuple[Random, list[Fleet], list[Shape]]:
    dice = Random(seed)
    fleet = some_fleet(dice)
    ranks = node_ranks(dice.randint(0, 9), fleet.fixed.ids)
    return dice, [fleet.fork(LEAST_LOSS, ranks) for _ in range(forks)], [some_shape(dice) for _ in range(SHAPES)]


def some_requests(dice: Random) -> Iterator[Ints]:
    for _ in range(3):
        yield np.array([dice.randrange(SHAPES) for _ in range(8)])


def rescored(fleet: Fleet, shape: Shape) -> tuple[Codes, Ints]:
    """All rows by NumPy alone, nothing remembered."""
    look = Lens(fleet, shape, slice(None))
    codes = feasible.codes(look)
    return codes, np.where(codes == 0, score.points(look, LEAST_LOSS), 0)


def same(ours: Any, theirs: Any) -> bool:
    return len(ours) == len(theirs) and all(a.tolist() == b.tolist() for a, b in zip(ours, theirs, strict=True))


def test_a_batch_decides_as_numpy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row, cards and points of every request, and what is left of every card afterwards."""
    decided, placed = 0, 0
    left_to_python: list[int] = []
    by_python = Batch.choose

    def noted(batch: Batch, shape: int, row: int) -> int:
        left_to_python.append(row)
        return by_python(batch, shape, row)

    monkeypatch.setattr(Batch, "choose", noted)
    for seed in range(50):
        dice, forks, shapes = some_forks(seed, 2)
        ours, theirs = (Batch(fork, shapes) for fork in forks)
        assert ours.fast
        theirs.fast = False
        for wanted in some_requests(dice):
            found = ours.decide(wanted)
            assert same(found, theirs.decide(wanted)), seed
            assert same(forks[0].now, forks[1].now), seed
            decided += len(wanted)
            placed += int((found.rows >= 0).sum())
    assert placed > decided / 3
    assert decided / 30 < len(left_to_python) < placed / 2


def test_what_a_batch_knows_after_any_history_is_what_full_rescoring_finds() -> None:
    compared = 0
    for seed in range(60):
        dice, (fork,), shapes = some_forks(1_000 + seed, 1)
        batch, rows = Batch(fork, shapes), len(fork)
        for wanted in some_requests(dice):
            batch.decide(wanted)
            batch.look()
            for number, shape in enumerate(shapes):
                codes, points = rescored(fork, shape)
                keys = np.where(codes == 0, fork.ranks - points * rows, kernel.NOTHING)
                tree = batch.board.trees[number]
                assert tree[:rows].tolist() == keys.tolist(), seed
                assert tree[-1] == keys.min()
                compared += rows
    assert compared >= EXAMPLES


def test_answers_of_the_loops_are_those_of_full_rescoring_after_any_history() -> None:
    """Codes and points of all rows, and the best of them in their order; takes are those of the engine."""
    compared = 0
    for seed in range(40):
        dice, (fork,), shapes = some_forks(2_000 + seed, 1)
        for _ in range(5):
            for shape in shapes:
                found = answers.answer(fork, shape, LEAST_LOSS)
                assert found.board is not None
                codes, points = rescored(fork, shape)
                assert (found.codes.tolist(), found.points.tolist()) == (codes.tolist(), points.tolist()), seed
                few = dice.randint(1, 4)
                able = np.flatnonzero(codes == 0)
                wanted = answers.ranked(fork, able, points)[:few]
                assert answers.best(fork, found, few).tolist() == wanted.tolist()
                compared += len(fork)
            taker = dice.choice(shapes)
            for row in answers.best(fork, answers.answer(fork, taker, LEAST_LOSS), 1).tolist():
                columns = choose(fork, row, taker, {})
                assert answers.columns_of(fork, row, taker, {}) == columns
                fork.take(row, build(fork, row, taker, columns or (), 0.0))
    assert compared >= EXAMPLES


@settings(derandomize=True, deadline=None, max_examples=40, database=None, suppress_health_check=[*HealthCheck])
@given(snapshots())
def test_a_plan_is_the_same_without_the_loops(made: Snapshot) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "COMPILED", False)
        without = plan(made)
    assert plan(made) == without


def test_a_fleet_corrected_between_plans_is_judged_as_a_new_one() -> None:
    for seed in range(20):
        dice, (fork,), shapes = some_forks(3_000 + seed, 1)
        fleet = fork.base
        assert fleet is not None
        for shape in shapes[:3]:
            answers.answer(fork, shape, LEAST_LOSS)
        fleet.replace_nodes([some_plain_node(dice, 6), some_node(dice, 1)])
        again = fleet.fork(LEAST_LOSS)
        for shape in shapes:
            found = answers.answer(again, shape, LEAST_LOSS)
            codes, points = rescored(again, shape)
            assert (found.codes.tolist(), found.points.tolist()) == (codes.tolist(), points.tolist()), seed


def test_warming_compiles_all_that_is_used_later() -> None:
    warm()
    compiled = {name: each for name, each in vars(kernel).items() if getattr(each, "signatures", None)}
    assert {"place", "catch_up", "best", "bring"} <= set(compiled)
    before = {name: len(each.signatures) for name, each in compiled.items()}
    _, forks, shapes = some_forks(1, 2)
    Batch(forks[0], shapes).decide(np.arange(SHAPES))
    plan(snapshot_of([node(1), blocks_node(2, (2, 2))], job(1, container(2)), rule=LEAST_LOSS))
    assert {name: len(each.signatures) for name, each in compiled.items()} == before


def test_without_numba_or_switched_off_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiling.compiler() is not None
    with monkeypatch.context() as patch:
        patch.setenv("GPU_COMMONS_NUMBA", "0")
        assert compiling.compiler() is None
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiling.compiler() is None


def test_what_the_loops_do_not_know_is_left_to_numpy() -> None:
    _, (fork,), (shape, *_) = some_forks(1, 1)
    assert answers.answer(fork, shape, "pack-keep-whole/2").board is None
    wide = Fleet([node(1, kernel.MOST_CARDS + 1)]).fork(LEAST_LOSS)
    assert answers.answer(wide, shape, LEAST_LOSS).board is None
    large = Fleet([node(1, (card(1, 0, kernel.MOST_MEMORY + 1),))]).fork(LEAST_LOSS)
    assert answers.answer(large, shape, LEAST_LOSS).board is None
    with pytest.raises(ValueError, match="give it a fork"):
        Batch(Fleet([node(1)]), [shape])
    with pytest.raises(ValueError, match="at most 62"):
        Batch(wide, [shape])
    with pytest.raises(IndexError):
        Batch(fork, [shape]).decide(np.array([0, 1]))
    with pytest.raises(ValueError, match="for containers"):
        Batch(fork, [Shape(Form.WHOLE, 0, 0, 0, "", 0, 0, 0, frozenset(), False)])
    assert Batch(Fleet([]).fork(LEAST_LOSS), [shape]).decide(np.zeros(2, dtype=np.int64)).rows.tolist() == [-1, -1]
