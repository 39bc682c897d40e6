"""What a job counts for at the least, told before it is known where it goes, is never more than it then counts for."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given

from ledger.vocabulary import AskForm, Form, Interconnect
from scheduler.engine.claims import milli_in
from scheduler.engine.fairness import Shares
from scheduler.engine.fleet import Fleet
from scheduler.engine.plan import Desk
from scheduler.engine.types import DEFAULT_RULE, Ask, NodeView, Placement, Standing
from tests.scheduler.engine import bruteforce, fleets
from tests.scheduler.engine.fleets import SEEDS, container, whole

SMALL = fleets.node(1, fleets.cards_of(1, [16, 16], model="A"))
LARGE = fleets.node(2, fleets.cards_of(2, [80, 80, 80, 80], model="B"), labels=frozenset({"x"}))
MIXED = fleets.node(3, fleets.cards_of(3, [16, 32, 32], model="C"))
FAR = fleets.node(4, fleets.cards_of(4, [320] * 8, model="D"), simulated=True)


@pytest.mark.parametrize(
    ("nodes", "ask", "more", "milli"),
    [
        ([SMALL, LARGE], whole(), {}, 2000),
        ([SMALL, LARGE], whole(3), {}, 4000),
        ([SMALL, LARGE], whole(model="B"), {}, 4000),
        ([SMALL, LARGE], whole(nodes=2), {}, 6000),
        ([SMALL, LARGE], whole(nodes=3), {}, 0),
        ([SMALL, LARGE], container(1, 8), {}, 100),
        ([SMALL, LARGE], container(1, 8, model="A"), {}, 500),
        ([SMALL, LARGE], container(1, 8), {"cpu_milli": 8001}, 0),
        ([SMALL, replace(LARGE, up=False)], container(1, 8), {}, 500),
        ([SMALL, replace(LARGE, held=True)], container(1, 8), {}, 500),
        ([SMALL, replace(LARGE, zone_forms=frozenset({Form.WHOLE}))], container(1, 8), {}, 500),
        ([SMALL, replace(LARGE, managers={})], container(1, 8), {}, 500),
        ([SMALL, FAR], container(1, 8), {}, 500),
        ([SMALL, FAR], container(1, 8), {"simulated": True}, 25),
        ([SMALL, LARGE], container(1, 8), {"labels": frozenset({"x"})}, 100),
        ([SMALL, replace(LARGE, zone_id=9)], container(1, 8), {"zones": frozenset({SMALL.zone_id})}, 500),
        ([SMALL, replace(LARGE, zone_id=9)], container(1, 8), {"zones": frozenset({9})}, 100),
        ([SMALL, LARGE], container(2, 17), {}, 2 * 213),
        ([SMALL, LARGE], container(1, 81), {}, 0),
        ([SMALL, LARGE], container(2, 0, nodes=2), {}, 4000),
        ([MIXED], container(3, 16), {}, 1000 + 2 * 500),
        ([MIXED], container(2, 16), {}, 2 * 500),
        ([SMALL, LARGE], Ask(AskForm.AUTO, cards_per_node=2, memory_mib=8), {}, 200),
        ([SMALL, LARGE], container(0), {}, 0),
        ([fleets.blocks_node(1, [1, 2])], fleets.block(3), {}, 3000),
        ([fleets.blocks_node(1, [2, 2])], fleets.block(3), {}, 0),
        ([replace(SMALL, interconnect=Interconnect.PCIE)], whole(), {"interconnect": Interconnect.NVLINK}, 0),
    ],
)
def test_the_least_of_every_place(nodes: list[NodeView], ask: Ask, more: dict[str, Any], milli: int) -> None:
    """As for the projects of another fleet, the largest card and machine say nothing of where the job can run."""
    desk = Desk(Fleet(nodes), (), at=0.0, seed=1, rule=DEFAULT_RULE)
    assert desk.pending([fleets.job(1, ask, **more)])[0].milli == milli


def test_a_wish_counts_once_its_time_has_come() -> None:
    job = fleets.job(1, whole(3), replace(whole(), after_s=60))
    for at, milli in ((0.0, 4000), (60.0, 2000)):
        desk = Desk(Fleet([SMALL, LARGE]), (), at=at, seed=1, rule=DEFAULT_RULE)
        assert desk.pending([job])[0].milli == milli


def test_small_machines_are_within_a_guarantee_that_the_largest_is_not() -> None:
    """And a share on the only cards that it may have counts for what the book will count."""
    shares = Shares([Standing(1, False, 2000)], {False: 6000})
    desk = Desk(Fleet([SMALL, LARGE]), (), at=0.0, seed=1, rule=DEFAULT_RULE)
    asked = [whole(), whole(model="B"), container(4, 8, model="A"), container(2, 8, model="A")]
    jobs = [fleets.job(number, ask) for number, ask in enumerate(asked, start=1)]
    assert [shares.covers(one) for one in desk.pending(jobs)] == [True, False, False, True]


@given(SEEDS)
def test_no_placement_counts_for_less(seed: int) -> None:
    dice = Random(seed)
    nodes = [fleets.some_node(dice, number) for number in range(1, 5)]
    job = replace(fleets.some_job(dice, 1), over_quota=False, no_room=frozenset())
    job = replace(job, asks=tuple(replace(ask, after_s=0) for ask in job.asks[:1]))
    fleet = Fleet(nodes)
    least = fleet.makes.least(job, job.asks[0])
    for gone in (False, True):  # as it is, and with nothing on it
        views = [_without_work(view) for view in nodes] if gone else nodes
        desk = Desk(Fleet(views), (), at=5000.0, seed=1, rule=DEFAULT_RULE)
        found = desk.decide(job)
        if isinstance(found, Placement):
            assert least <= milli_in(desk.fleet, found)
        elif gone:
            placeable = bruteforce.placeable(fleets.snapshot(views, job), job, 0)
            assert not (placeable and job.asks[0].cards_per_node) or least


@given(SEEDS)
def test_on_one_node_of_equal_cards_it_is_exact(seed: int) -> None:
    dice = Random(seed)
    node = _without_work(fleets.some_node(dice, 1))
    memory = node.cards[0].memory_mib if node.cards else 0
    node = replace(node, cards=tuple(replace(card, memory_mib=memory) for card in node.cards))
    job = replace(fleets.some_job(dice, 1), over_quota=False, no_room=frozenset())
    form = dice.choice([form for form in AskForm if form is not AskForm.AUTO])
    job = replace(job, asks=(replace(job.asks[0], after_s=0, form=form),))
    desk = Desk(Fleet([node]), (), at=5000.0, seed=1, rule=DEFAULT_RULE)
    found = desk.decide(job)
    counts = milli_in(desk.fleet, found) if isinstance(found, Placement) else 0
    assert desk.fleet.makes.least(job, job.asks[0]) == counts


@given(SEEDS)
def test_makes_are_kept_up_as_nodes_change(seed: int) -> None:
    dice = Random(seed)
    before = [fleets.some_node(dice, number) for number in range(1, 6)]
    fleet = Fleet(before)
    job = fleets.some_job(dice, 1)
    fleet.makes.least(job, job.asks[0])
    changed = {number: fleets.some_node(dice, number) for number in dice.sample(range(1, 6), 2)}
    fleet.replace_nodes(changed.values())
    fresh = Fleet([changed.get(view.id, view) for view in before])
    assert fleet.makes.count == fresh.makes.count
    assert [fleet.makes.least(job, ask) for ask in job.asks] == [fresh.makes.least(job, ask) for ask in job.asks]


def _without_work(view: NodeView) -> NodeView:
    cards = tuple(replace(card, busy=(), compute_busy=()) for card in view.cards)
    return replace(view, cards=cards, used_form=None, allocations=0, cpu_milli_used=0, host_memory_mib_used=0)
