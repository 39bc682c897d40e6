"""What it costs others that an untouched node is opened: chances against a known distribution, prices by hand, rows
against one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from ledger.vocabulary import Form
from scheduler.engine.answers import answer
from scheduler.engine.fleet import Fleet
from scheduler.engine.lens import Lens
from scheduler.engine.opening import FOR_BLOCKS, IDLE_BLOCK, OPENING, RESERVE, at_least, block_loss, running_out
from scheduler.engine.priced import opening
from scheduler.engine.prices import Workload
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.shape import FORMS, shapes_of
from scheduler.engine.types import Ask, NodeView
from tests.bench import loss
from tests.scheduler.engine.fleets import block, blocks_node, container, job, node, whole

C, B, W = (FORMS.index(form) for form in (Form.CONTAINER, Form.BLOCK, Form.WHOLE))
ALL = slice(None)


def workload(*rows: tuple[Form, float, float, int, float]) -> Workload:
    """form, milli-cores, MiB, cards, count; whole cards."""
    form, cpu, memory, cards, count = zip(*rows, strict=True)
    floats = [np.array(column, dtype=np.float64) for column in (cpu, memory, count)]
    numbers = np.array(cards, dtype=np.int64)
    return Workload(*floats[:2], numbers, 0 * numbers, floats[2], np.array([FORMS.index(each) for each in form]))


def fleet(nodes: list[NodeView], *rows: tuple[Form, float, float, int, float], simulated: bool = False) -> Fleet:
    return Fleet(nodes, {simulated: workload(*rows)} if rows else {})


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(st.integers(0, 3_000), st.floats(0, 3_000))
def test_the_chance_that_so_many_come(number: int, mean: float) -> None:
    assert at_least(number, mean) == pytest.approx(poisson.sf(number - 1, mean), abs=1e-9)


def test_those_without_another_place_count_in_and_the_others_do_not() -> None:
    able = np.array([[True, False], [True, True], [False, False]])
    chance = running_out(able, np.array([[3, 0], [3, 5], [9, 9]]), np.array([2.0, 4.0, 100.0]))
    assert chance[:2] == pytest.approx([poisson.sf(2, 2.0), poisson.sf(7, 6.0)])
    assert chance[2] == 1.0  # no place at all is too few


class TestPrices:
    def test_where_nobody_asks_for_machines_or_blocks_only_equals_are_parted(self) -> None:
        nodes = [node(1), blocks_node(2, (2, 2)), blocks_node(3, (2, 2), zone_forms=frozenset({Form.CONTAINER}))]
        for made in (fleet(nodes), fleet(nodes, (Form.CONTAINER, 1_000, 1_000, 1, 9))):
            found = made.openings(False).row_price
            assert found.tolist() == [[OPENING, OPENING, 0], [OPENING, OPENING, 0], [0, 0, 0]]

    def test_machines_that_whole_machine_work_would_run_out_of_cost_it_by_the_chance(self) -> None:
        """4 of 7 machines have the CPU; half of all cards are asked for as such machines, so 3.5 stand on a full fleet."""
        nodes = [*(node(n, cpu_milli=16_000) for n in range(4)), *(node(n) for n in range(4, 7))]
        made = fleet(nodes, (Form.WHOLE, 12_000, 0, 4, 5), (Form.CONTAINER, 1_000, 0, 1, 20))
        price = RESERVE * 4 * poisson.sf(3, 3.5)
        found = made.openings(False).row_price
        for form, small in ((C, OPENING), (B, OPENING), (W, 0)):
            assert found[form] - small == pytest.approx([price] * 4 + [0.0] * 3)

    def test_a_zone_or_a_driver_without_the_form_keeps_nothing_for_it(self) -> None:
        only = {"zone_forms": frozenset({Form.CONTAINER})}
        nodes = [node(1), node(2, **only), node(3, managers={Form.CONTAINER.value: "x"}), node(4, simulated=True)]
        found = fleet(nodes, (Form.WHOLE, 0, 0, 4, 5)).openings(False).row_price
        assert (found > 0).all(axis=0).tolist() == [True, False, False, False]

    def test_a_place_for_blocks_is_kept_where_its_rest_is_of_use(self) -> None:
        """A block of 2 with 6 cores leaves the other half of a node with 8 idle, but not of one with 12; and in a node of
        2 cards it leaves nothing."""
        nodes = [blocks_node(1, (2, 2)), blocks_node(2, (2, 2), cpu_milli=12_000), blocks_node(3, (2,)), node(4)]
        made = fleet(nodes, (Form.BLOCK, 6_000, 0, 2, 1))
        full = 14 / 2  # blocks that 14 cards hold
        kept = IDLE_BLOCK * 2 * poisson.sf(2, full)  # there is room for three
        found = made.openings(False)
        assert found.row_price[W] == pytest.approx([0, 2 * kept, kept, 0])
        assert found.row_price[C] == pytest.approx(found.row_price[W] + OPENING)
        assert found.paid(B, 2, slice(0, 3)) == pytest.approx(OPENING + FOR_BLOCKS * np.array([0.5, 0.5, 1]))

    def test_prices_are_those_of_the_larger_cards(self) -> None:
        small = node(1, (node(1).cards[0],))
        big = node(2, tuple(each.__class__(**{**_fields(each), "memory_mib": 32}) for each in node(2).cards[:1]))
        made = fleet([small, big], (Form.WHOLE, 0, 0, 1, 50))
        assert made.openings(False).row_price[W, 0] == pytest.approx(made.openings(False).row_price[W, 1] / 2)

    def test_odd_blocks_and_requests_of_no_cards_are_lawful(self) -> None:
        nodes = [blocks_node(1, (1, 3)), blocks_node(2, (2, 2)), node(3, 0)]
        rows = ((Form.BLOCK, 0, 0, 3, 9), (Form.BLOCK, 0, 0, 0, 9), (Form.WHOLE, 0, 0, 0, 9), (Form.BLOCK, 0, 0, 9, 9))
        found = fleet(nodes, *rows).openings(False)
        assert found.blocks.shapes.cards.tolist() == [3, 9]
        assert np.isfinite(found.row_price).all()
        assert found.row_price[W, 2] == 0


def _fields(card: Any) -> dict[str, Any]:
    return {name: getattr(card, name) for name in card.__slots__}


class TestRows:
    def test_only_an_untouched_node_has_to_be_opened(self) -> None:
        rows = ((Form.WHOLE, 0, 0, 4, 9),)
        nodes = [node(1), node(2, used_form=Form.CONTAINER, allocations=1), node(3, used_form=Form.CONTAINER)]
        made = fleet(nodes, *rows)
        for ask in (container(), block(2), whole()):
            look = _look(made, ask)
            paid = opening(look)
            assert paid[0] == made.openings(False).paid(look.form, 2, [0])[0] > 1
            assert paid[1:].tolist() == [0, 0]

    @settings(derandomize=True, deadline=None, max_examples=100, database=None)
    @given(st.integers(0, 8), st.integers(-100, 30_000), st.integers(-100, 30_000), st.integers(0, 2))
    def test_what_blocks_lose_on_rows_is_what_they_lose_on_one_node(
        self, cards: int, cpu: int, memory: int, kind: int
    ) -> None:
        sizes = ((2, 2), (2, 2, 2, 2), (4,))
        nodes = [blocks_node(n, size, cpu_milli=24_000, host_memory_mib=9_000) for n, size in enumerate(sizes)]
        made = fleet(nodes, (Form.BLOCK, 6_000, 0, 2, 5), (Form.BLOCK, 10_000, 4_000, 4, 5)).openings(False)
        shapes, spared = made.blocks.shapes, made.spared(2, 6_000, 0)
        row, of = made.kinds.of_row[[kind]], [np.array([each]) for each in (cards, cpu, memory)]
        asked = np.stack([shapes.cards, shapes.cpu_milli, shapes.host_memory_mib], axis=1).astype(float)
        kept = np.where(spared, 0.0, made.blocks.kept[:, row[0]])
        one = loss.block_loss(cards, cpu, memory, asked, IDLE_BLOCK * made.blocks.share, kept)
        assert block_loss(made, row, *of, spared)[0] == pytest.approx(one)

    def test_a_request_pays_for_places_that_it_could_do_without(self) -> None:
        """The large one finds a good place on the second node alone; the small one on both."""
        nodes = [blocks_node(1, (2, 2)), blocks_node(2, (2, 2), cpu_milli=24_000)]
        made = fleet(nodes, (Form.BLOCK, 4_000, 0, 2, 5), (Form.BLOCK, 12_000, 0, 2, 5)).openings(False)
        assert made.blocks.good.tolist() == [[True, True], [False, True]]
        assert made.spared(2, 4_000, 0).tolist() == [True, False]
        assert made.spared(2, 12_000, 0).tolist() == [True, True]
        assert made.spared(2, 11_000, 500).tolist() == [
            True,
            True,
        ]  # never asked for so far, as choosy as the large one
        assert made.spared(2, 99_000, 0).tolist() == [False, False]  # has no place at all
        assert made.blocks.kept[1, 1] > 0


class TestFleet:
    def test_prices_stand_until_the_stock_changes_and_go_with_every_answer(self) -> None:
        made = fleet([node(1), node(2)], (Form.WHOLE, 0, 0, 4, 9))
        for change in (
            {"zone_forms": frozenset({Form.CONTAINER})},
            {"managers": {Form.CONTAINER.value: "x"}},
            {"cards": blocks_node(1, (2, 2)).cards},
            {"cpu_milli": 9_000},
        ):
            answer(made, shapes_of(job(1), container())[0], LEAST_LOSS)
            before = made.openings(False)
            made.replace_nodes([node(1, used_form=Form.CONTAINER, allocations=1)])
            assert made.openings(False) is before
            assert made.fork().openings(False) is before
            assert made.answers
            made.replace_nodes([node(1, **change)])
            assert made.openings(False) is not before
            assert not made.answers
            made.replace_nodes([node(1)])


def _look(made: Fleet, ask: Ask) -> Lens:
    return Lens(made, shapes_of(job(1), ask)[0], ALL)
