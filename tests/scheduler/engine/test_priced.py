"""The rule that goes by prices: what it costs a node to take a job, and which of two nodes it prefers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.vocabulary import Form, Interconnect
from scheduler.engine import feasible, opening, priced
from scheduler.engine.arrays import Floats
from scheduler.engine.fleet import Fleet
from scheduler.engine.intervals import length
from scheduler.engine.lens import Lens
from scheduler.engine.plan import plan
from scheduler.engine.priced import shortage
from scheduler.engine.prices import PARTS, Workload
from scheduler.engine.score import LEAST_LOSS, POINTS, points
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.types import CardView, JobView, MemberPlan, NodeView
from tests.bench import loss
from tests.scheduler.engine.fleets import block, blocks_node, card, container, job, node, snapshot, snapshots, whole

C, B, W = Form.CONTAINER, Form.BLOCK, Form.WHOLE
RICH: dict[str, Any] = {"cpu_milli": 64_000, "host_memory_mib": 64_000}  # nobody lacks CPU or memory there
HALF = ((0, 8),)


def zone(*forms: Form) -> dict[str, Any]:
    return {"zone_forms": frozenset(forms), **RICH}


def used(*forms: Form) -> dict[str, Any]:
    return {"used_form": C, "allocations": 1, **zone(*forms)}


CASES: dict[str, tuple[JobView, NodeView, NodeView]] = {
    "a share completes a card that has one": (
        job(1, container(1, 8)),
        node(1, (card(100, busy=HALF),), **used(C)),
        node(2, (card(200),), **used(C)),
    ),
    "an untouched machine is kept for those who need one whole": (job(1), node(1, **zone(C, B)), node(2, **zone(C, W))),
    "a zone of this form alone": (job(1, whole()), node(1, **zone(W)), node(2, **zone(C, W))),
    "a whole machine that is no larger than it need be": (job(1, whole(2)), node(1, 2, **RICH), node(2, 4, **RICH)),
    "blocks stay whole": (job(1), node(1, **zone(C, B)), blocks_node(2, (2, 2), **zone(C, B))),
    "cards whose CPU is gone are of no use to others": (
        job(1, container(1, 16), cpu_milli=0),
        node(1, 4, **{**used(C), "cpu_milli": 4_000, "cpu_milli_used": 4_000}),
        node(2, 4, **used(C)),
    ),
    "work without cards takes CPU that no card lacks": (
        job(1, container(0), cpu_milli=6_000),
        node(1, 1, **{**zone(C), "cpu_milli": 16_000}),
        node(2, 4, **{**zone(C), "cpu_milli": 16_000}),
    ),
    "slow links for one card": (
        job(1, container(1, 16)),
        node(1, interconnect=Interconnect.PCIE, **zone(C)),
        node(2, interconnect=Interconnect.NVLINK, **zone(C)),
    ),
}


def placed(wanted: JobView, *nodes: NodeView, seed: int = 0) -> MemberPlan:
    return plan(snapshot(nodes, wanted, seed=seed, rule=LEAST_LOSS)).placements[0].members[0]


@pytest.mark.parametrize("name", CASES)
def test_the_node_that_loses_less_is_chosen(name: str) -> None:
    wanted, better, worse = CASES[name]
    for seed in range(6):
        assert placed(wanted, better, worse, seed=seed).node_id == better.id


def test_a_share_takes_the_card_on_which_least_is_lost() -> None:
    cards = (card(1, 0), card(2, 1, busy=HALF), card(3, 2, busy=((0, 4),)))
    assert placed(job(1, container(1, 8)), node(1, cards, **used(C))).shares[0].card_id == 2


def test_a_piece_of_a_card_is_as_large_as_what_is_left_of_its_compute() -> None:
    """Half the memory of both is free, but of the first no compute: nobody misses the rest of it."""
    cards = (card(1, 0, busy=HALF, compute_busy=((0, 1_000),)), card(2, 1, busy=HALF))
    assert placed(job(1, container(1, 8)), node(1, cards, **used(C))).shares[0].card_id == 1


def test_what_history_asks_for_decides_which_rest_is_worth_something() -> None:
    """Where everybody asks for 12 of 16, a rest of 4 is worth nothing; where many ask for 4 as well, it is."""
    nodes = (node(1, (card(100, busy=((0, 4),)),), **used(C)), node(2, (card(200, busy=((0, 8),)),), **used(C)))
    taken = {}
    for name, sizes in (("large", (12, 12)), ("small too", (12, 4))):
        cpu = np.array([100.0, 100.0])
        history = Workload(cpu, cpu, np.array([1, 1]), np.array(sizes), np.array([5.0, 50.0]))
        fleet = Fleet(nodes, {False: history})
        shape = shapes_of(job(1), container(1, 4))[0]
        first, second = points(Lens(fleet, shape, slice(None)), LEAST_LOSS) / POINTS
        taken[name] = second - first
    assert taken["large"] > 0.5
    assert taken["small too"] == pytest.approx(0, abs=0.01)


def test_a_block_and_a_whole_machine_lose_what_they_take() -> None:
    """And the first block on a node half of what it costs to open it, because a second one will find room."""
    fleet = Fleet([blocks_node(1, (2, 2), **zone(B))])
    two, all_four = (
        points(Lens(fleet, shapes_of(job(1), ask)[0], slice(None)), LEAST_LOSS)[0] / POINTS
        for ask in (block(2), whole())
    )
    assert (two, all_four) == pytest.approx((-2 - opening.FOR_BLOCKS / 2, -4), abs=0.03)


@settings(derandomize=True, deadline=None, max_examples=200, database=None)
@given(st.integers(0, 9_000), st.integers(0, 9_000), st.floats(0, 8))
def test_shortage_of_rows_is_that_of_one_node(cpu: int, memory: int, need: float) -> None:
    prices = Fleet([node(1), node(2, 2)]).prices(False)
    many = shortage(prices, np.array([cpu, 0]), np.array([memory, 0]), np.array([need, 0.0]))
    assert many[0] == loss.shortage(cpu, memory, need, prices.hinges, prices.host)
    assert many[1] == 0


class Reading:
    """What the cards of one node are worth and need, card by card from its view."""

    def __init__(self, fleet: Fleet, row: int, shape: Shape) -> None:
        self.view, self.shape, self.prices = fleet.views[row], shape, fleet.prices(shape.simulated)
        self.cards = [card for card in self.view.cards if not card.held]

    def free(self, one: CardView) -> tuple[int, int]:
        return one.memory_mib - length(one.busy), 1_000 - length(one.compute_busy)

    def left(self, one: CardView) -> tuple[int, int]:
        memory, compute = self.free(one)
        return (memory - self.shape.memory_mib, compute - self.shape.compute_milli) if self.shape.memory_mib else (0, 0)

    def of(self, table: Floats, one: CardView, free: tuple[int, int]) -> float:
        level = min(free[0] * 100 // one.memory_mib, free[1] * 100 // 1_000)
        return float(table[self.prices.sizes.tolist().index(one.memory_mib), level])

    def falls(self, table: Floats, one: CardView) -> float:
        return self.of(table, one, self.free(one)) - self.of(table, one, self.left(one))

    def takes(self, one: CardView) -> bool:
        whole = self.free(one) == (one.memory_mib, 1_000)
        model = self.shape.model in ("", one.model) and not (one.alone and self.shape.cards > 1)
        return model and (min(self.left(one)) >= 0 if self.shape.memory_mib else whole)

    def lost(self) -> float:
        view, prices = self.view, self.prices
        takers = sorted((c for c in self.cards if self.takes(c)), key=lambda c: (self.falls(prices.worth, c), c.slot))
        takers = takers[: self.shape.cards]
        cpu, memory = view.cpu_milli - view.cpu_milli_used, view.host_memory_mib - view.host_memory_mib_used
        need = sum(self.of(prices.need, c, self.free(c)) for c in self.cards)
        rest = need - sum(self.falls(prices.need, c) for c in takers)
        shape, lacks = self.shape, (prices.hinges, prices.host)
        lost = sum(self.falls(prices.worth, c) for c in takers)
        lost += loss.shortage(cpu - shape.cpu_milli, memory - shape.host_memory_mib, rest, *lacks)
        return lost - loss.shortage(cpu, memory, need, *lacks)


@settings(derandomize=True, deadline=None, max_examples=300, database=None)
@given(snapshots(), st.integers(0, 2), st.integers(0, 20), st.sampled_from((0, 400)))
def test_a_score_is_what_the_cards_lose_and_what_the_rest_lacks(made: Any, cards: int, mib: int, compute: int) -> None:
    """Where no preference speaks, to the millionth that scores are rounded to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "OPENING", 0.0)
        fleet = Fleet(made.nodes)
        assert not any(fleet.openings(world).price.any() for world in (False, True))
    shape = shapes_of(job(1, cpu_milli=500), container(cards, mib, compute_milli=compute))[0]
    look = Lens(fleet, shape, slice(None))
    with pytest.MonkeyPatch.context() as patch:
        for preference in ("FLEXIBLE", "BREAKING", "WRONG_LINKS", "CARDS_WITHOUT_CPU"):
            patch.setattr(priced, preference, 0.0)
        scores = points(look, LEAST_LOSS)
    for row in np.flatnonzero(feasible.codes(look) == 0).tolist():
        assert -scores[row] / POINTS == pytest.approx(Reading(fleet, row, shape).lost(), abs=1e-6)


def test_new_nodes_change_the_prices_and_with_them_every_answer() -> None:
    fleet = Fleet([node(1, (card(100, 0, 16),), **RICH)])
    before = fleet.prices(False)
    assert before.sizes.tolist() == [16]
    fleet.replace_nodes([node(1, (card(100, 0, 16, busy=HALF),), **RICH)])
    assert fleet.prices(False) is before  # work on it is no reason
    fleet.replace_nodes([node(1, (card(100, 0, 24),), **RICH)])
    after = fleet.prices(False)
    assert after.sizes.tolist() == [24]
    assert after.worth[0, PARTS] == pytest.approx(1)
    assert not fleet.answers
