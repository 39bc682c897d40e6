"""The checker must see each kind of broken plan: every case takes a lawful plan and breaks one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.vocabulary import Distance, Form, Interconnect, Refusal
from scheduler.engine.check import check_plan
from scheduler.engine.plan import plan
from scheduler.engine.types import MemberPlan, Placement, Plan, Reserve, SharePlan, Snapshot, Waiting
from tests.scheduler.engine.fleets import block, blocks_node, container, job, node, snapshot, whole

SPREAD = [node(1), node(2, leaf="l2"), blocks_node(3, (2, 2))]


def placed(snapshot_: Snapshot) -> tuple[Snapshot, Plan]:
    made = plan(snapshot_)
    assert check_plan(snapshot_, made) == []
    assert made.placements
    return snapshot_, made


def with_member(made: Plan, **changes: Any) -> Plan:
    """The plan with its first member changed."""
    first = made.placements[0]
    members = (replace(first.members[0], **changes), *first.members[1:])
    return replace(made, placements=(replace(first, members=members), *made.placements[1:]))


def with_share(made: Plan, **changes: Any) -> Plan:
    shares = made.placements[0].members[0].shares
    return with_member(made, shares=(replace(shares[0], **changes), *shares[1:]))


ONE = snapshot([node(1), node(2, held=True)], job(1, container(2, 4, compute_milli=100)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"form": Form.WHOLE}, "was not asked for"),
        ({"form": Form.BLOCK}, "was not asked for"),
        ({"driver": "other"}, "driver"),
        ({"node_id": 2}, "held"),
        ({"node_id": 77}, "not in the snapshot"),
        ({"cpu_milli": 999}, "what was asked for"),
        ({"host_memory_mib": 9000}, "host memory is overbooked"),
        ({"shares": ()}, "number of cards"),
    ],
)
def test_a_changed_member_is_seen(changes: dict[str, Any], problem: str) -> None:
    given, made = placed(ONE)
    assert any(problem in line for line in check_plan(given, with_member(made, **changes)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"card_id": 101}, "given twice"),
        ({"card_id": 999}, "not in this node"),
        ({"seat_id": 1}, "wrong seat"),
        ({"block_id": 1}, "wrong seat or block"),
        ({"memory": ()}, "memory is empty"),
        ({"memory": ((0, 2), (1, 3))}, "double-booked"),
        ({"memory": ((14, 18),)}, "outside the card"),
        ({"memory": ((0, 5),)}, "not the memory"),
        ({"compute": ((0, 99),)}, "not the compute"),
        ({"compute": ((950, 1050),)}, "compute is outside"),
    ],
)
def test_a_changed_share_is_seen(changes: dict[str, Any], problem: str) -> None:
    given, made = placed(ONE)
    assert any(problem in line for line in check_plan(given, with_share(made, **changes)))


@pytest.mark.parametrize(
    ("node_changes", "problem"),
    [
        ({"simulated": True}, "simulated"),
        ({"up": False}, "down"),
        ({"held": True}, "held"),
        ({"interconnect": Interconnect.PCIE}, "interconnect"),
        ({"labels": frozenset()}, "labels"),
        ({"zone_id": 5}, "zone is not open"),
        ({"zone_id": None}, "zone is not open"),
        ({"zone_forms": frozenset({Form.WHOLE})}, "zone does not take"),
        ({"managers": {}}, "driver"),
        ({"used_form": Form.BLOCK, "allocations": 1}, "in use as block"),
        ({"cpu_milli_used": 7500}, "CPU is overbooked"),
    ],
)
def test_a_node_that_changed_meanwhile_is_seen(node_changes: dict[str, Any], problem: str) -> None:
    before = node(1, labels=frozenset({"x"}))
    wanted = job(1, labels=frozenset({"x"}), zones=frozenset({4, 9}), interconnect=Interconnect.NVLINK)
    given, made = placed(snapshot([before], wanted))
    lines = check_plan(replace(given, nodes=(replace(before, **node_changes),)), made)
    assert any(problem in line for line in lines)


def test_two_jobs_on_the_same_memory_are_seen() -> None:
    given, made = placed(snapshot([node(1, 1)], job(1), job(2)))
    share = made.placements[0].members[0].shares[0]
    second = made.placements[1]
    twice = replace(second, members=(replace(second.members[0], shares=(share,)),))
    assert any(
        "double-booked" in line for line in check_plan(given, replace(made, placements=(made.placements[0], twice)))
    )


def test_a_whole_machine_beside_a_container_is_seen() -> None:
    given, made = placed(snapshot([node(1), node(2)], job(1), job(2, whole())))
    other = made.placements[0].members[0].node_id
    shares = tuple(
        SharePlan(c.id, c.seat_id, None, ((0, 16),), ((0, 1000),))
        for n in given.nodes
        if n.id == other
        for c in n.cards
    )
    moved = replace(made.placements[1], members=(replace(made.placements[1].members[0], node_id=other, shares=shares),))
    lines = check_plan(given, replace(made, placements=(made.placements[0], moved)))
    assert any("in use" in line for line in lines)
    assert any("double-booked" in line for line in lines)


def test_a_whole_machine_without_one_of_its_cards_is_seen() -> None:
    given, made = placed(snapshot([node(1)], job(1, whole())))
    shares = made.placements[0].members[0].shares
    assert any("every card" in line for line in check_plan(given, with_member(made, shares=shares[1:])))
    assert any("in full" in line for line in check_plan(given, with_share(made, memory=((0, 8),))))


def test_half_blocks_are_seen() -> None:
    given, made = placed(snapshot([blocks_node(1, (2, 2))], job(1, block(2))))
    cards = given.nodes[0].cards
    mixed = tuple(SharePlan(c.id, c.seat_id, c.block_id, ((0, 16),), ((0, 1000),)) for c in (cards[1], cards[2]))
    assert any("whole blocks" in line for line in check_plan(given, with_member(made, shares=mixed)))


def test_a_held_card_is_seen() -> None:
    given, made = placed(snapshot([node(1, 1)], job(1)))
    held = replace(given.nodes[0], cards=(replace(given.nodes[0].cards[0], held=True),))
    assert any("is held" in line for line in check_plan(replace(given, nodes=(held,)), made))


def test_a_part_of_a_gang_or_two_members_on_a_node_are_seen() -> None:
    given, made = placed(snapshot(SPREAD, job(1, container(nodes=2))))
    first, second = made.placements[0].members
    part = replace(made, placements=(replace(made.placements[0], members=(first,)),))
    assert any("1 members instead of 2" in line for line in check_plan(given, part))
    assert any(
        "two members on one node" in line for line in check_plan(given, with_member(made, node_id=second.node_id))
    )


@pytest.mark.parametrize("level", ["leaf", "rack", "room", "site"])
def test_a_gang_in_two_places_of_the_required_level_is_seen(level: str) -> None:
    for other in ("elsewhere", ""):
        given, made = placed(snapshot([node(1), node(2, **{level: other})], job(1, whole(nodes=2))))
        strict = replace(given, jobs=(replace(given.jobs[0], distance=Distance(f"same_{level}")),))
        assert check_plan(given, made) == []
        assert [line for line in check_plan(strict, made) if f"one {level}" in line]


def test_eaten_headroom_is_seen_unless_it_is_key_work() -> None:
    given, made = placed(snapshot([node(1, 1)], job(1)))
    reserved = replace(given, reserves=(Reserve(4, "A", 13),))
    assert any("are reserved" in line for line in check_plan(reserved, made))
    assert check_plan(replace(reserved, jobs=(replace(given.jobs[0], key_work=True),)), made) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"over_quota": True}, "over quota"),
        ({"no_room": frozenset({(0, "")})}, "over quota"),
        ({"no_room": frozenset({(0, "A")})}, "over quota for cards of that model"),
        ({"asks": (container(after_s=5000),)}, "does not count yet"),
    ],
)
def test_a_job_that_may_not_start_is_seen(changes: dict[str, Any], problem: str) -> None:
    given, made = placed(snapshot([node(1)], job(1)))
    changed = replace(given, jobs=(replace(given.jobs[0], **changes),))
    assert any(problem in line for line in check_plan(changed, made))


def test_wrong_order_forgotten_jobs_and_wrong_counts_are_seen() -> None:
    given, made = placed(snapshot([node(1)], job(1), job(2), job(3, container(9))))
    assert check_plan(given, replace(made, placements=made.placements[::-1])) == ["placements are not in queue order"]
    assert check_plan(given, replace(made, waiting=())) == ["not every job is decided exactly once"]
    short = replace(made, waiting=(Waiting(3, ({Refusal.CPU: 2},)),))
    assert check_plan(given, short) == ["job 3: refusals don't add up to the number of nodes"]
    assert check_plan(given, replace(made, waiting=(Waiting(3, ()),))) == ["job 3: refusals not for every ask"]


def test_an_ask_that_is_not_there_is_seen() -> None:
    given, made = placed(snapshot([node(1)], job(1)))
    member: MemberPlan = made.placements[0].members[0]
    wrong = replace(made, placements=(Placement(1, 3, (member,)),))
    assert any("no such ask" in line for line in check_plan(given, wrong))
