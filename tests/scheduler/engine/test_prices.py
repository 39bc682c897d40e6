"""Prices of pieces of a card, against a linear programme solver and by hand; what a placement loses on its node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scheduler.engine.arrays import Floats
from scheduler.engine.prices import PARTS, Stock, Workload, first_guess, piece_prices, prices

FLEET = Stock(np.array([100]), np.array([8]), cpu_milli=80_000, host_memory_mib=800_000)
NOTHING = Stock(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 0, 0)
demands = st.dictionaries(st.integers(1, PARTS), st.integers(1, 500), min_size=1, max_size=12)


def demand_of(wanted: dict[int, int]) -> Floats:
    demand = np.zeros(PARTS + 1)
    for part, count in wanted.items():
        demand[part] = count
    return demand


def workload(*rows: tuple[float, float, int, int, float]) -> Workload:
    cpu, memory, cards, part, count = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(cpu.astype(float), memory.astype(float), cards, part, count.astype(float))  # a card has 100 MiB


def all_patterns(sizes: list[int], room: int = PARTS) -> list[list[int]]:
    """Every multiset of sizes that a card holds."""
    if not sizes:
        return [[]]
    first, *rest = sizes
    return [[n, *others] for n in range(room // first + 1) for others in all_patterns(rest, room - n * first)]


class TestPieces:
    def test_a_card_is_worth_one_and_a_rest_that_nothing_fits_into_nothing(self) -> None:
        value = piece_prices(demand_of({60: 3}))
        assert value[[0, 59, 60, 100]].tolist() == pytest.approx([0, 0, 1, 1])

    def test_halves_are_worth_half(self) -> None:
        value = piece_prices(demand_of({50: 3, 100: 9}))
        assert value[[49, 50, 99, 100]].tolist() == pytest.approx([0, 0.5, 0.5, 1])

    def test_what_fits_beside_the_large_is_free_while_the_large_are_many(self) -> None:
        many = piece_prices(demand_of({81: 10, 19: 5}))
        assert many[[19, 81]].tolist() == pytest.approx([0, 1])
        few = piece_prices(demand_of({81: 1, 19: 100}))
        assert few[19] == pytest.approx(0.2)
        assert few[81] == pytest.approx(0.8)

    def test_nobody_who_asks_is_told(self) -> None:
        with pytest.raises(ValueError, match="nobody asks"):
            piece_prices(np.zeros(PARTS + 1))

    @settings(derandomize=True, deadline=None, max_examples=150, database=None)
    @given(demands)
    def test_they_never_fall_and_never_make_a_card_worth_more(self, wanted: dict[int, int]) -> None:
        value = piece_prices(demand_of(wanted))
        assert (np.diff(value) >= -1e-9).all()
        assert value[0] == 0
        assert value[PARTS] == pytest.approx(1)

    @settings(derandomize=True, deadline=None, max_examples=60, database=None)
    @given(st.dictionaries(st.integers(20, PARTS), st.integers(1, 500), min_size=1, max_size=5))
    def test_what_all_requests_are_worth_is_the_least_number_of_cards(self, wanted: dict[int, int]) -> None:
        """Strong duality, against a solver that is given every pattern."""
        sizes = sorted(wanted)
        patterns = np.array([p for p in all_patterns(sizes) if any(p)]).T
        counts = [wanted[size] for size in sizes]
        solved = linprog(np.ones(patterns.shape[1]), A_ub=-patterns, b_ub=[-n for n in counts], method="highs")
        value = piece_prices(demand_of(wanted))
        assert value[sizes] @ counts == pytest.approx(solved.fun)


class TestPrices:
    def test_a_piece_costs_for_every_request_that_is_too_large_for_it(self) -> None:
        found = prices(workload((1_000, 1_000, 1, 100, 3), (1_000, 1_000, 1, 50, 1)), FLEET)
        assert found.piece[0, [50, 100]].tolist() == pytest.approx([0.5, 1])
        assert found.worth[0, [50, 100]].tolist() == pytest.approx([0.5 - 0.1 * 0.5 * 0.75, 1])

    def test_cpu_and_memory_are_those_of_the_work_on_cards(self) -> None:
        found = prices(workload((4_000, 10_000, 1, 100, 1), (8_000, 30_000, 2, 100, 1)), FLEET)
        assert (1 / found.hinges[:, 0]).tolist() == pytest.approx([0.6 * 4_000, 4_000, 2 * 4_000])
        assert 1 / found.host[0] == pytest.approx(0.6 * 40_000 / 3)

    def test_where_cpu_is_scarce_a_piece_wants_what_can_fill_it(self) -> None:
        plenty = prices(workload((1_000, 1_000, 1, 60, 5)), FLEET)
        assert plenty.hinges[2, 1] == 0
        assert plenty.need[0, 40] == pytest.approx(0.4)
        scarce = prices(workload((10_000, 1_000, 1, 60, 5), (50_000, 0, 0, 0, 5)), FLEET)
        assert scarce.hinges[2, 1] == pytest.approx(0.05)
        assert scarce.need[0, [40, 60]].tolist() == pytest.approx([0, 1])

    def test_without_history_and_with_cpu_work_alone_there_is_a_first_guess(self) -> None:
        guess = prices(first_guess(FLEET), FLEET)
        for known in (workload((1_000, 0, 0, 0, 9)), workload((1_000, 0, 1, 50, 0))):
            found = prices(known, FLEET)
            assert found.worth.tolist() == guess.worth.tolist()
            assert found.hinges.tolist() == guess.hinges.tolist()
        assert guess.piece[0, [25, 50, 100]].tolist() == pytest.approx([0.25, 0.5, 1])

    def test_a_fleet_of_nothing_and_work_that_asks_for_no_cpu_are_lawful(self) -> None:
        for fleet in (FLEET, NOTHING):
            found = prices(workload((0, 0, 1, 50, 1)), fleet)
            assert np.isfinite(found.hinges).all()
            assert np.isfinite(found.host).all()
