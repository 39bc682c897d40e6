"""The queue: who is looked at first, who holds cards for later, and that nobody waits for ever."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.arrays import Bools
from scheduler.engine.queueing import Agenda, Outlook, Pending, QueuePolicy, Running, Start, forecast, in_order, look
from tests.scheduler.engine.test_properties import every, some

POLICY = QueuePolicy(patience=1.0, bound_s=1000.0, keep_whole_after_s=0.0)
CARDS = 4  # of a row


def waiting(number: int, cards: int = 1, nodes: int = 1, runs: float = 10, **other: Any) -> Pending:
    standard: dict[str, Any] = {"priority": 0, "submitted_at": 0.0, "whole": cards == CARDS, "surely_s": runs}
    return Pending(**{**standard, "id": number, "nodes": nodes, "cards": cards, "expected_s": runs, **other})


def outlook(free: Sequence[int], running: Iterable[Running] = (), at: float = 0.0) -> Outlook:
    return Outlook(at, np.full(len(free), CARDS), np.array(free, dtype=np.int64), running, tightest)


def tightest(rows: Outlook, job: Pending, rooms: Bools) -> list[int]:
    return sorted(np.flatnonzero(rooms).tolist(), key=lambda row: (rows.free[row], row))[: job.nodes]


def looked(jobs: Iterable[Pending], rows: Outlook, policy: QueuePolicy = POLICY) -> Agenda:
    return look(jobs, rows, policy)


def starts(agenda: Agenda) -> dict[int, tuple[int, ...]]:
    return {start.job: start.rows for start in agenda.started}


ORDERS: dict[str, tuple[Pending, Pending]] = {
    "priority goes before everything": (
        waiting(1, CARDS, 2, 500, priority=2, submitted_at=1999),
        waiting(2, priority=1),
    ),
    "less work goes first": (waiting(1, runs=5, submitted_at=1501), waiting(2, runs=50, submitted_at=1500)),
    "fewer cards are less work": (waiting(1, submitted_at=1501), waiting(2, 2, submitted_at=1500)),
    "fewer nodes are less work": (waiting(1, submitted_at=1501), waiting(2, nodes=2, submitted_at=1500)),
    "what came after its turn does not pass": (waiting(1, runs=50, submitted_at=1500), waiting(2, submitted_at=1545)),
    "who is overdue goes before less work": (waiting(1, runs=9999, submitted_at=1000), waiting(2, submitted_at=1001)),
    "the overdue go by submission": (waiting(1, runs=9999, submitted_at=10), waiting(2, submitted_at=11)),
    "equals go by submission": (waiting(2, runs=0, submitted_at=1500), waiting(1, runs=0, submitted_at=1501)),
    "and then by number": (waiting(1), waiting(2)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_the_queue(name: str) -> None:
    first, second = ORDERS[name]
    for jobs in ((first, second), (second, first)):
        assert in_order(jobs, 2000.0, POLICY) == [first, second]


def test_what_fits_starts_and_the_overdue_hold_what_comes_free_first() -> None:
    running = [Running(9, 0, 4, 50), Running(8, 1, 4, 30), Running(7, 2, 3, 70)]
    late = {"submitted_at": -2000.0}
    agenda = looked([waiting(1, CARDS, runs=99, **late), waiting(2, 2, runs=99, **late), waiting(3, runs=40)],
                    outlook([0, 0, 1], running))  # fmt: skip
    assert agenda.order == (1, 2, 3)
    assert starts(agenda) == {3: (2,)}
    assert agenda.reservations == (Start(1, 30.0, (1,), (8,)), Start(2, 50.0, (0,), (9,)))


def test_a_gang_waits_for_the_last_of_its_rows() -> None:
    running = [Running(9, 0, 4, 50), Running(8, 1, 2, 30), Running(7, 1, 1, 20), Running(6, 2, 4, 70)]
    agenda = looked([waiting(1, CARDS, 2)], outlook([0, 1, 0], running))
    assert agenda.reservations == (Start(1, 50.0, (0, 1), (7, 8, 9)),)


BESIDE: dict[str, tuple[Pending, bool]] = {
    "it ends before": (waiting(2, runs=30), True),
    "it may not end before": (waiting(2, runs=20, surely_s=31), False),
    "it lasts longer": (waiting(2, runs=31), False),
}


@pytest.mark.parametrize("name", BESIDE)
def test_who_may_run_on_cards_that_are_held(name: str) -> None:
    other, runs = BESIDE[name]
    agenda = looked([waiting(1, CARDS, runs=0), other], outlook([1], [Running(9, 0, 3, 30)]))
    assert (2 in starts(agenda)) == runs


def test_cards_that_a_reservation_leaves_over_are_free_for_all_until_they_are_gone() -> None:
    wide = waiting(1, 3, submitted_at=-2000.0)  # overdue, so it holds row 0 from 30 on, where 4 will be free
    jobs = [wide, waiting(2, runs=99), waiting(3, runs=99)]
    agenda = looked(jobs, outlook([2], [Running(9, 0, 2, 30)]))
    assert agenda.reservations == (Start(1, 30.0, (0,), (9,)),)
    assert starts(agenda) == {2: (0,)}


def test_an_untouched_node_is_left_to_whom_needs_it_whole() -> None:
    small, gang = waiting(1), waiting(2, CARDS, 2, 500)
    assert starts(looked([small], outlook([CARDS]))) == {1: (0,)}
    assert starts(looked([small, gang], outlook([CARDS]))) == {}
    assert starts(looked([small, gang], outlook([CARDS, 1]))) == {1: (1,)}
    assert starts(looked([replace(small, submitted_at=-1000.0), gang], outlook([CARDS]))) == {1: (0,)}
    assert starts(looked([replace(small, priority=1), gang], outlook([CARDS]))) == {1: (0,)}
    assert starts(looked([small, replace(gang, priority=1)], outlook([CARDS]))) == {}
    patient = replace(POLICY, keep_whole_after_s=100.0)
    for waited, kept in ((99.0, False), (100.0, True)):
        since = replace(gang, submitted_at=-waited)
        assert (starts(looked([small, since], outlook([CARDS]), patient)) == {}) == kept


def test_no_more_reservations_than_the_policy_allows() -> None:
    jobs = [waiting(n, CARDS, submitted_at=-2000.0) for n in range(5)]
    busy = [Running(100 + row, row, CARDS, 10.0 + row) for row in range(5)]
    for many in (0, 2, 9):
        held = looked(jobs, outlook([0] * 5, busy), replace(POLICY, reservations=many)).reservations
        assert [(one.job, one.rows) for one in held] == [(n, (n,)) for n in range(min(many, 5))]


def test_what_no_row_can_hold_is_passed_over() -> None:
    late = {"submitted_at": -2000.0}
    jobs = [waiting(1, 9, **late), waiting(2, CARDS, 3, **late), waiting(3, 0), waiting(4, 2)]
    agenda = looked(jobs, outlook([1, 2]))
    assert starts(agenda) == {3: (0,), 4: (1,)}
    assert agenda.reservations == ()
    assert looked(jobs, outlook([])) == Agenda((1, 2, 3, 4), (), ())
    assert looked([], outlook([4])) == Agenda((), (), ())
    no_cards = Outlook(0.0, np.array([0]), np.array([0]), (), tightest)
    assert starts(looked([waiting(1, 0), waiting(2, CARDS)], no_cards)) == {1: (0,)}


def test_a_job_that_outlived_its_estimate_is_due_now() -> None:
    agenda = looked([waiting(1, CARDS)], outlook([0], [Running(9, 0, 4, 30)], at=100.0))
    assert agenda.reservations == (Start(1, 100.0, (0,), (9,)),)


JOB = st.builds(
    lambda cards, nodes, runs, priority, submitted: waiting(
        0, cards, nodes if cards == CARDS else 1, runs, priority=priority, submitted_at=submitted
    ),
    st.integers(0, CARDS),
    st.integers(1, 3),
    st.integers(1, 60).map(float),
    st.integers(0, 2),
    st.integers(-2000, 0).map(float),
)
JOBS = st.lists(JOB, max_size=12).map(lambda jobs: [replace(job, id=n) for n, job in enumerate(jobs)])
ROWS = st.lists(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 90)), max_size=2), max_size=5)


def busy(rows: list[list[tuple[int, int]]]) -> tuple[list[int], list[Running]]:
    """Free cards by row and what runs there."""
    taken = [Running(1000 + 10 * n + k, n, *one) for n, row in enumerate(rows) for k, one in enumerate(row)]
    return [CARDS - sum(cards for cards, _ in row) for row in rows], taken


@every
@given(JOBS, ROWS, st.integers(0, 9))
def test_the_order_of_what_is_given_in_means_nothing_and_nothing_of_it_is_changed(
    jobs: list[Pending], rows: list[list[tuple[int, int]]], seed: int
) -> None:
    free, running = busy(rows)
    before = copy.deepcopy((jobs, free, running))
    agenda = looked(jobs, outlook(free, running))
    mixed, mixed_running = jobs.copy(), running.copy()
    random.Random(seed).shuffle(mixed)
    random.Random(seed).shuffle(mixed_running)
    given_in = np.array(free, dtype=np.int64)
    rows_again = Outlook(0.0, np.full(len(free), CARDS), given_in, mixed_running, tightest)
    assert look(mixed, rows_again, POLICY) == agenda
    assert (jobs, free, running) == before
    assert given_in.tolist() == free
    assert sorted(mixed_running, key=lambda one: one.job) == running


@every
@given(JOBS, ROWS)
def test_gangs_start_whole_on_cards_that_are_free(jobs: list[Pending], rows: list[list[tuple[int, int]]]) -> None:
    free, running = busy(rows)
    for start in looked(jobs, outlook(free, running)).started:
        job = jobs[start.job]
        assert len(set(start.rows)) == len(start.rows) == job.nodes
        for row in start.rows:
            free[row] -= job.cards
    assert min(free, default=0) >= 0


@every
@given(JOBS, ROWS)
def test_no_reservation_is_delayed_by_those_that_keep_to_their_estimate(
    jobs: list[Pending], rows: list[list[tuple[int, int]]]
) -> None:
    """At its time each has its cards on its rows, whatever else was started or reserved."""
    free, running = busy(rows)
    then = outlook(free, running)
    for held in looked(jobs, then).reservations:
        still = [one for row in held.rows for one in then.on[row] if one.ends_at > held.at]
        for row in held.rows:
            taken = sum(one.cards for one in still if one.row == row)
            assert CARDS - taken >= jobs[held.job].cards


def played(jobs: Sequence[Pending], rows: int, policy: QueuePolicy) -> tuple[dict[int, float], dict[int, float]]:
    """Start of each job when all run as long as was expected, and the first time promised to those with reservations."""
    began: dict[int, float] = {}
    promised: dict[int, float] = {}
    running: list[Running] = []
    times = sorted({job.submitted_at for job in jobs})
    while times:
        at = times.pop(0)
        running = [one for one in running if one.ends_at > at]
        free = [CARDS - sum(one.cards for one in running if one.row == row) for row in range(rows)]
        queue = [job for job in jobs if job.submitted_at <= at and job.id not in began]
        now = outlook(free, running, at)
        agenda = looked(queue, now, policy)
        for start in agenda.started:
            began[start.job] = at
        for held in agenda.reservations:
            promised.setdefault(held.job, held.at)
        running = [one for row in now.on for one in row]
        times = sorted({*times, *(one.ends_at for one in running if one.ends_at > at)})
    return began, promised


@some
@given(st.integers(1, 3), st.integers(1, 4), st.integers(5, 30), st.integers(0, 99))
def test_a_stream_of_short_jobs_does_not_hold_up_a_wide_one_beyond_the_bound(
    nodes: int, spare_rows: int, longest: int, seed: int
) -> None:
    """More short work comes than the rows can take; the wide job starts once what runs when it is overdue has ended."""
    dice, rows = random.Random(seed), nodes + spare_rows - 1
    policy = QueuePolicy(patience=100.0, bound_s=60.0)
    stream = [
        waiting(n, dice.randint(1, 2), runs=dice.randint(1, longest), submitted_at=float(dice.randint(0, 200)))
        for n in range(1, 30 * rows)
    ]
    wide = waiting(0, CARDS, nodes, runs=500, submitted_at=5.0)
    began, _ = played([wide, *(job for job in stream)], rows, policy)
    assert began[0] <= wide.submitted_at + policy.bound_s + longest + 1
    assert len(began) == 1 + len(stream)


@some
@given(st.lists(JOB, min_size=5, max_size=25), st.integers(3, 5))
def test_the_overdue_start_no_later_than_they_were_told(jobs: list[Pending], rows: int) -> None:
    """First come, first served, and what comes later only fills what they leave: with exact estimates promises hold."""
    queue = [replace(job, id=n, priority=0) for n, job in enumerate(jobs)]
    began, promised = played(queue, rows, QueuePolicy(bound_s=0.0))
    assert len(began) == len(queue)
    for job, at in promised.items():
        assert began[job] <= at


@some
@given(JOBS, ROWS.filter(lambda rows: len(rows) >= 3))
def test_a_forecast_is_what_comes_true_when_estimates_are_exact_and_nobody_else_comes(
    jobs: list[Pending], rows: list[list[tuple[int, int]]]
) -> None:
    free, running = busy(rows)
    now = outlook(free, running)

    told = forecast(jobs, now, POLICY)
    assert set(told) == {job.id for job in jobs}
    first = looked(jobs, outlook(free, running))
    assert {job: start.rows for job, start in told.items() if start.at == 0} == starts(first)
    for start in told.values():
        assert start.at > 0 or start.awaits == ()
        assert set(start.awaits) <= {one.job for one in running} | set(told)


def test_a_forecast_goes_as_far_as_it_is_asked_to() -> None:
    jobs = [waiting(n, CARDS) for n in (1, 2, 3)]
    now = outlook([0], [Running(9, 0, 4, 30)])
    told = forecast(jobs, now, POLICY, steps=2)
    assert told == {1: Start(1, 30.0, (0,), (9,)), 2: Start(2, 40.0, (0,), (1,))}
