"""Demand becomes arrays by world, and a first guess stands in for what isn't known yet."""

from __future__ import annotations

import numpy as np
import pytest

from ledger.vocabulary import AskForm
from scheduler.engine.demand import GUESSED, guessed, workloads
from scheduler.engine.fleet import Fleet
from scheduler.engine.prices import Stock
from scheduler.engine.types import Demand
from tests.scheduler.engine.fleets import node


def asked(count: float, memory_mib: int = 8, simulated: bool = False) -> Demand:
    return Demand(simulated, AskForm.CONTAINER, 1, memory_mib, 1000, 2000, count)


def test_each_world_has_its_own_arrays() -> None:
    found = workloads([asked(2), asked(3, 4), asked(5, simulated=True)])
    assert sorted(found) == [False, True]
    assert found[False].memory_mib.tolist() == [8, 4]
    assert found[False].count.tolist() == [2, 3]
    assert found[True].count.tolist() == [5]
    assert found[True].cpu_milli.tolist() == [1000]
    assert found[True].host_memory_mib.tolist() == [2000]
    assert workloads([]) == {}


def test_the_guess_counts_as_so_many_requests_and_fits_the_fleet() -> None:
    stock = Stock(np.array([16, 32]), np.array([3, 1]), 40_000, 80_000)
    guess = list(guessed(stock, simulated=True))
    assert sum(shape.count for shape in guess) == pytest.approx(GUESSED)
    assert {shape.simulated for shape in guess} == {True}
    assert all(shape.cards == 1 and shape.memory_mib <= 32 for shape in guess)
    assert max(shape.cpu_milli for shape in guess) <= 40_000 / 4


def test_nothing_is_guessed_for_a_fleet_without_cards() -> None:
    assert list(guessed(Stock(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 8000, 8000), False)) == []


def test_a_fleet_is_priced_by_what_was_asked_for() -> None:
    """Nobody can use a quarter of a card when all ask for halves; with quarters about it is worth something."""
    halves, quarters = [Fleet([node(1, 4)], workloads([asked(100, size)])).prices(False).piece[0] for size in (8, 4)]
    assert halves[25] == 0
    assert quarters[25] == pytest.approx(0.25)
    assert halves[50] == pytest.approx(0.5)
