"""Cards that are held get nothing; those whose links are not to be trusted only work on themselves."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from ledger.vocabulary import AskForm, Form, Refusal
from scheduler.engine.check import check_plan
from scheduler.engine.fleet import Fleet
from scheduler.engine.plan import Desk, plan
from scheduler.engine.score import RULES
from scheduler.engine.types import DEFAULT_RULE, Ask, NodeView, Snapshot
from scheduler.offers import offers
from tests.scheduler.engine.fleets import block, blocks_node, container, job, node, snapshot, whole

PLACEMENTS: Final = 100_000
NODES: Final = 250


def with_marks(view: NodeView, **marks: dict[int, bool]) -> NodeView:
    """Cards by slot."""
    cards = (replace(c, **{name: by.get(c.slot, False) for name, by in marks.items()}) for c in view.cards)
    return replace(view, cards=tuple(cards))


def alone(view: NodeView, *slots: int) -> NodeView:
    return with_marks(view, alone=dict.fromkeys(slots, True))


ONE_OF_TWO = alone(node(1, 2), 0)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize(
    ("ask", "nodes", "takes"),
    [
        (container(1, 4), [ONE_OF_TWO], True),
        (container(1, 0), [alone(node(1, 1), 0)], True),
        (container(2, 4), [ONE_OF_TWO], False),
        (container(2, 4), [alone(node(1, 3), 0)], True),
        (container(0, 0), [alone(node(1, 1), 0)], True),
        (container(1, 4, nodes=2), [alone(node(1, 1), 0), node(2, 1)], False),
        (container(1, 4, nodes=2), [alone(node(1, 2), 0), node(2, 1)], True),
        (whole(), [ONE_OF_TWO], False),
        (whole(), [alone(node(1, 1), 0)], False),
        (block(2), [alone(blocks_node(1, (2,)), 0)], False),
        (block(2), [alone(blocks_node(1, (2, 2)), 0)], True),
    ],
)
def test_a_card_without_links_takes_work_on_itself_alone(
    rule: str, ask: Ask, nodes: list[NodeView], takes: bool
) -> None:
    given = replace(snapshot(nodes, job(1, ask)), rule=rule)
    made = plan(given)
    assert check_plan(given, made) == []
    assert bool(made.placements) is takes
    if not takes:
        assert Refusal.CARD_HELD in made.waiting[0].by_ask[0]


def test_what_is_free_now_leaves_such_cards_to_single_cards() -> None:
    given = alone(blocks_node(1, (2, 2)), 0)
    [offer] = offers([given])
    assert (offer.free_cards, offer.blocks, offer.machines) == (4, 1, 0)


def test_a_checker_sees_a_gang_on_a_card_that_is_for_single_work() -> None:
    given = snapshot([node(1, 2)], job(1, container(2, 4)))
    made = plan(given)
    marked = replace(given, nodes=(alone(given.nodes[0], 0),))
    assert [line for line in check_plan(marked, made) if "only for work on itself" in line]


def some_asks(dice: Random) -> tuple[Ask, ...]:
    shapes = (
        container(dice.choice((1, 1, 1, 1, 2)), dice.choice((1, 4, 8, 16))),
        container(dice.choice((1, 2)), 0),
        container(1, 4, nodes=2),
        block(2),
        whole(),
        Ask(AskForm.AUTO, memory_mib=4),
    )
    return (shapes[dice.choice((0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5))],)


def some_fleet(dice: Random) -> list[NodeView]:
    views = []
    for number in range(1, NODES + 1):
        view = blocks_node(number, (2, 2)) if dice.random() < 0.5 else node(number, 4)
        held, single = ({slot: dice.random() < 0.15 for slot in range(4)} for _ in range(2))
        made = with_marks(replace(view, cpu_milli=10**6, host_memory_mib=10**6), held=held, alone=single)
        views.append(replace(made, held=dice.random() < 0.05))
    return views


def test_in_many_random_placements_none_is_on_a_held_card() -> None:
    """Through real plans on fleets whose holds change between them, as ticks do: the fleet is kept, nodes replaced."""
    placed, gangs, machines, dice = 0, 0, 0, Random(6)
    while placed < PLACEMENTS:
        views = some_fleet(dice)
        kept = Fleet(views)
        for _ in range(4):
            queue = [job(n, *some_asks(dice), cpu_milli=1, host_memory_mib=1) for n in range(1, 1500)]
            found = Desk(kept, (), at=0.0, seed=1, rule=DEFAULT_RULE).decide_all(queue)
            counts = on_held(snapshot(views, *queue), found.placements)
            placed, gangs, machines = placed + counts[0], gangs + counts[1], machines + counts[2]
            changed = some_fleet(dice)[: NODES // 3]
            views = changed + views[len(changed) :]
            kept.replace_nodes(changed)
    assert gangs > 1000
    assert machines > 100


def on_held(given: Snapshot, placements: Any) -> tuple[int, int, int]:
    """Members, those with several cards, whole machines; an AssertionError for one on what is held."""
    nodes = {view.id: view for view in given.nodes}
    asks = {one.id: one.asks for one in given.jobs}
    many = machines = members = 0
    for placement in placements:
        single = asks[placement.job_id][placement.ask_index].nodes == 1
        for member in placement.members:
            view, ids = nodes[member.node_id], {share.card_id for share in member.shares}
            assert not view.held
            assert not any(c.held for c in view.cards if c.id in ids)
            if not (single and len(ids) == 1 and member.form is Form.CONTAINER):
                assert not any(c.alone for c in view.cards if c.id in ids)
            members, many, machines = members + 1, many + (len(ids) > 1), machines + (member.form is Form.WHOLE)
            if member.form is Form.WHOLE:
                assert ids == {c.id for c in view.cards}
    return members, many, machines
