"""Nodes that likely hold a job's data come first where they are about as good as the best, and nowhere else."""

from __future__ import annotations

import pytest

from ledger.vocabulary import Distance, Form
from scheduler.engine import plan as planning
from scheduler.engine.score import LEAST_LOSS, RULES
from scheduler.engine.serialise import from_json, to_json
from scheduler.engine.types import JobView, NodeView, Placement, Warmth
from scheduler.engine.warmth import WARM_POLICY
from tests.scheduler.engine.fleets import card, container, job, node, snapshot, whole

NODES = [node(1), node(2), node(3)]


def placed(nodes: list[NodeView], wanted: JobView, seed: int = 7, rule: str = LEAST_LOSS) -> Placement:
    (placement,) = planning.plan(snapshot(nodes, wanted, seed=seed, rule=rule)).placements
    return placement


def on(placement: Placement) -> list[int]:
    return sorted(member.node_id for member in placement.members)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_of_equal_nodes_the_warm_one_is_taken_whatever_the_seed(rule: str) -> None:
    for warm in (1, 2, 3):
        found = {tuple(on(placed(NODES, job(1, warm=frozenset({warm})), seed, rule))) for seed in range(4)}
        assert found == {(warm,)}


def test_the_decision_says_so_and_what_was_given_up() -> None:
    assert placed(NODES, job(1, warm=frozenset({2}))).warm == Warmth(WARM_POLICY.name, (2,), 0.0)
    assert placed(NODES, job(1)).warm is None
    assert placed(NODES, job(1, warm=frozenset({9}))).warm is None


def test_a_warm_node_that_is_much_worse_is_not_taken() -> None:
    """On n1 the share fills a card up; to open n2 for it costs more than fetching the data does."""
    cards = (card(100, busy=((0, 12),)),)
    nodes = [node(1, cards, used_form=Form.CONTAINER, allocations=1, cpu_milli_used=1000), node(2, 8)]
    wanted = job(1, container(memory_mib=4), warm=frozenset({2}))
    lines = {host: score for host, _, _, score in planning.explain_nodes(snapshot(nodes, wanted), 1)}
    best, warm = lines["n1"], lines["n2"]
    assert best is not None
    assert warm is not None
    assert best - warm > WARM_POLICY.allowance[LEAST_LOSS]
    assert (on(placed(nodes, wanted)), placed(nodes, wanted).warm) == ([1], None)


def test_a_gang_takes_what_is_warm_and_stays_near() -> None:
    nodes = [node(1, leaf="a"), node(2, leaf="b"), node(3, leaf="b"), node(4, leaf="b"), node(5, leaf="c")]
    near = job(1, whole(nodes=2), distance=Distance.NEAR, warm=frozenset({1, 4}))
    for seed in range(4):
        placement = placed(nodes, near, seed)
        assert 4 in on(placement)
        assert set(on(placement)) < {2, 3, 4}
        assert placement.warm is not None
        assert placement.warm.nodes == (4,)


def test_nothing_waits_and_nothing_is_refused_for_it() -> None:
    held = [node(1, held=True), node(2)]
    assert on(placed(held, job(1, warm=frozenset({1})))) == [2]


def test_it_goes_through_a_file() -> None:
    given = snapshot(NODES, job(1, warm=frozenset({3, 1})))
    assert from_json(to_json(given)) == given
