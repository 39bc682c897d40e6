"""The small parts: intervals, link topology, ties, the fleet's arrays and the public calls of plan.py."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.vocabulary import AskForm, Form, Refusal
from scheduler.engine import plan as planning
from scheduler.engine.fleet import Fleet
from scheduler.engine.intervals import best_fit, gaps, length, lowest_fit, merged
from scheduler.engine.ties import node_ranks, node_ties
from scheduler.engine.topology import CardTopology, aligned_blocks
from scheduler.engine.types import DEFAULT_RULE, Placement, Waiting
from tests.scheduler.engine.fleets import block, blocks_node, card, container, job, node, plan_fleet, snapshot, whole
from tests.scheduler.engine.test_properties import every

PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


def units(pieces: tuple[tuple[int, int], ...]) -> set[int]:
    return {n for lo, hi in pieces for n in range(lo, hi)}


@every
@given(PAIRS, st.integers(0, 40))
def test_gaps_are_what_is_left(busy: list[tuple[int, int]], size: int) -> None:
    free = gaps(busy, size)
    assert units(free) == set(range(size)) - units(tuple(busy))
    assert free == merged(free)


@every
@given(PAIRS, st.integers(0, 31))
def test_fits_take_exactly_the_amount_from_what_is_free(busy: list[tuple[int, int]], amount: int) -> None:
    free = gaps(busy, 31)
    for fit in (best_fit, lowest_fit):
        if amount > length(free):
            with pytest.raises(ValueError, match="than is free"):
                fit(free, amount)
            continue
        taken = fit(free, amount)
        assert length(taken) == amount
        assert units(taken) <= units(free)
        assert list(taken) == sorted(taken)
        fits_one = any(hi - lo >= amount for lo, hi in free)
        assert not fits_one or len(taken) == (1 if amount else 0)


def test_best_fit_takes_the_tightest_gap_and_few_pieces() -> None:
    free = ((0, 9), (10, 14), (20, 26))
    assert best_fit(free, 4) == ((10, 14),)
    assert best_fit(free, 5) == ((20, 25),)
    assert best_fit(free, 12) == ((0, 9), (20, 23))
    assert lowest_fit(free, 4) == ((0, 4),)
    assert lowest_fit(free, 12) == ((0, 9), (10, 13))


CARDS = [card(n, n) for n in range(8)]
PCIE = [(a, b, 64) for a, b in itertools.combinations(range(8), 2)]


def test_blocks_are_cut_along_the_strong_links() -> None:
    strong = [(a, b, 300) for quad in ((0, 2, 5, 7), (1, 3, 4, 6)) for a, b in itertools.combinations(quad, 2)]
    assert aligned_blocks(CARDS, PCIE + strong, 4) == ((0, 2, 5, 7), (1, 3, 4, 6))


def test_blocks_without_links_are_cut_in_slot_order() -> None:
    assert aligned_blocks(CARDS[::-1], [], 2) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert aligned_blocks(CARDS, [], 8) == (tuple(range(8)),)


@pytest.mark.parametrize("size", [0, 3, 9])
def test_a_size_that_does_not_divide_cuts_nothing(size: int) -> None:
    assert aligned_blocks(CARDS, [], size) == ()


def test_groups_are_blocks_or_else_what_the_strongest_links_join() -> None:
    assert CardTopology(blocks_node(1, (1, 2)).cards, ()).groups == (frozenset({0}), frozenset({1, 2}))
    joined = CardTopology(CARDS[:4], [(0, 2, 300), (1, 3, 300), (0, 1, 64), (9, 0, 900)])
    assert joined.groups == (frozenset({0, 2}), frozenset({1, 3}))
    assert joined.closeness((0, 2)) == 1.0
    assert joined.closeness((0, 3)) == 0.0
    assert joined.closeness((0,)) == 1.0


def test_ties_depend_on_seed_and_id_alone() -> None:
    ids = np.array([5, 1, 9], dtype=np.int64)
    assert node_ties(3, ids).tolist() == node_ties(3, ids[::-1])[::-1].tolist()
    assert node_ties(3, ids).tolist() != node_ties(4, ids).tolist()
    assert sorted(node_ranks(3, ids).tolist()) == [0, 1, 2]


def test_ties_fall_evenly_over_equal_nodes() -> None:
    nodes = [node(n) for n in range(1, 9)]
    chosen = [planning.plan(snapshot(nodes, job(1, whole()), seed=seed)).placements[0] for seed in range(160)]
    hits = [sum(1 for p in chosen if p.members[0].node_id == n.id) for n in nodes]
    assert min(hits) >= 8
    assert max(hits) <= 36


def test_two_nodes_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        Fleet([node(1), node(1)])


def test_a_working_copy_is_not_corrected() -> None:
    with pytest.raises(ValueError, match="fork"):
        Fleet([node(1)]).fork().replace_nodes([node(1)])


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="rule 'spread/9' is not known"):
        planning.plan(snapshot([node(1)], rule="spread/9"))


def test_explain_names_a_job_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="job 5 is not in the snapshot"):
        planning.explain(snapshot([node(1)]), 5)


def test_explain_stands_behind_the_jobs_ahead() -> None:
    given_snapshot = snapshot([node(1)], job(1, whole()), job(2, container(), whole(after_s=5000)))
    assert isinstance(planning.explain(given_snapshot, 1), Placement)
    waiting = planning.explain(given_snapshot, 2)
    assert isinstance(waiting, Waiting)
    assert planning.explain_nodes(given_snapshot, 2) == [
        ("n1", 0, Refusal.OTHER_FORM, None),
        ("n1", 1, Refusal.ASK_LATER, None),
    ]


def test_explain_gives_scores_to_feasible_nodes_and_to_a_gang_that_is_short() -> None:
    given_snapshot = snapshot([node(1), node(2, held=True)], job(1, whole(nodes=2)))
    lines = planning.explain_nodes(given_snapshot, 1)
    assert [line[:3] for line in lines] == [("n1", 0, Refusal.GANG), ("n2", 0, Refusal.NODE_HELD)]
    assert lines[0][3] is not None
    assert lines[1][3] is None


def test_the_best_scores_are_shown_best_first() -> None:
    nodes = [node(n, 4 if n % 2 else 8) for n in range(1, 10)]
    placement = planning.plan(snapshot(nodes, job(1, whole(4)))).placements[0]
    shown = [score for _, score in placement.scores]
    assert len(shown) == 5
    assert shown == sorted(shown, reverse=True)
    assert placement.scores[0] == (placement.members[0].node_id, placement.members[0].score)


def test_a_long_queue_of_equal_jobs_is_looked_at_once() -> None:
    fleet = Fleet([node(1, 2)])
    desk = planning.Desk(fleet, (), at=1000.0, seed=1, rule=DEFAULT_RULE)
    answers = list(desk.decisions([job(n, container(2, 0), cpu_milli=500) for n in range(1, 50)]))
    assert isinstance(answers[0], Placement)
    assert len(desk.known) == 1
    verdicts = {id(desk.known[question][1]) for question in desk.known}
    assert len(list(desk.decisions([job(99, container(2, 0), cpu_milli=500)]))) == 1
    assert {id(desk.known[question][1]) for question in desk.known} == verdicts


def test_blocks_of_more_than_sixty_four_cards() -> None:
    big = blocks_node(1, (40, 40, 1))
    made = planning.plan(snapshot([big], job(1, block(80)), job(2, block(41)), job(3, block(1))))
    assert [len(p.members[0].shares) for p in made.placements] == [80, 1]


def test_a_node_with_many_cards_still_gets_well_connected_ones() -> None:
    strong = tuple((100 + a, 100 + b, 300) for a, b in itertools.combinations((1, 4, 6, 9, 12, 15), 2))
    weak = tuple((100 + a, 100 + b, 64) for a, b in itertools.combinations(range(16), 2))
    given_snapshot = snapshot([node(1, 16, links=weak + strong)], job(1, container(6, 0)))
    shares = planning.plan(given_snapshot).placements[0].members[0].shares
    assert [share.card_id - 100 for share in shares] == [1, 4, 6, 9, 12, 15]


def test_a_kept_fleet_forgets_nodes_that_are_replaced() -> None:
    fleet = Fleet([node(1), node(2)])
    everywhere = {"at": 1000.0, "seed": 1}
    wanted = job(1, container(), labels=frozenset({"new"}))
    assert not plan_fleet(fleet, [wanted], **everywhere).placements
    fleet.replace_nodes([replace(node(2), labels=frozenset({"new"}))])
    assert plan_fleet(fleet, [wanted], **everywhere).placements[0].members[0].node_id == 2
    fleet.replace_nodes([node(2, held=True, labels=frozenset({"new"})), node(3, 9, labels=frozenset({"new"}))])
    assert plan_fleet(fleet, [wanted], **everywhere).placements[0].members[0].node_id == 3


def test_a_job_stays_inside_the_zones_that_are_open_to_it_and_says_why() -> None:
    nodes = [node(1, zone_id=1), node(2, zone_id=4), node(3, zone_id=None)]
    there = planning.plan(snapshot(nodes, job(1, container(), zones=frozenset({4, 7})))).placements[0]
    assert (there.members[0].node_id, there.refusals) == (2, {Refusal.ZONE: 2})
    nowhere = planning.plan(snapshot(nodes, job(1, container(), zones=frozenset({7})))).waiting[0]
    assert (nowhere.by_ask, nowhere.never) == (({Refusal.ZONE: 3},), True)


def test_a_kept_fleet_follows_a_node_into_another_zone() -> None:
    fleet = Fleet([node(1, zone_id=1), node(2, zone_id=1)])
    wanted, everywhere = job(1, container(), zones=frozenset({7})), {"at": 1000.0, "seed": 1}
    assert not plan_fleet(fleet, [wanted], **everywhere).placements
    fleet.replace_nodes([node(2, zone_id=7)])
    assert plan_fleet(fleet, [wanted], **everywhere).placements[0].members[0].node_id == 2
    fleet.replace_nodes([node(2, zone_id=1)])
    assert not plan_fleet(fleet, [wanted], **everywhere).placements


def test_forms_of_one_ask_are_compared_by_score_not_by_order() -> None:
    zones = [node(1, 1, zone_id=3, zone_forms=frozenset({Form.WHOLE})), node(2, 1)]
    placement = planning.plan(snapshot(zones, job(1, replace(container(1, 0), form=AskForm.AUTO)))).placements[0]
    assert placement.members[0].form is Form.WHOLE


def test_a_small_automatic_job_does_not_get_a_whole_machine() -> None:
    machine = node(1, 4)  # takes all forms
    wish = replace(container(1, 0), form=AskForm.AUTO)
    member = planning.plan(snapshot([machine], job(1, wish))).placements[0].members[0]
    assert (member.form, len(member.shares)) == (Form.CONTAINER, 1)
    old = replace(snapshot([machine], job(1, wish)), rule="pack-keep-whole/1")  # old decisions can be worked out again
    assert planning.plan(old).placements[0].members[0].form is Form.WHOLE
    only_whole = node(2, 4, zone_forms=frozenset({Form.WHOLE}))
    assert planning.plan(snapshot([only_whole], job(1, wish))).placements[0].members[0].form is Form.WHOLE


def test_a_kept_fleet_takes_new_links() -> None:
    def linked(a: int, b: int) -> tuple[tuple[int, int, int], ...]:
        return ((100 + a, 100 + b, 300),)

    fleet = Fleet([node(1, 4, links=linked(0, 1))])
    pair = job(1, container(2, 0))
    first = plan_fleet(fleet, [pair], at=1000.0, seed=1).placements[0].members[0]
    fleet.replace_nodes([node(1, 4, links=linked(2, 3))])
    second = plan_fleet(fleet, [pair], at=1000.0, seed=1).placements[0].members[0]
    assert [share.card_id for share in first.shares] == [100, 101]
    assert [share.card_id for share in second.shares] == [102, 103]


def test_scores_of_a_kept_fleet_follow_its_largest_card() -> None:
    small, large = node(1, 2), node(2, (card(200, 0, 16), card(201, 1, 64)))
    fleet = Fleet([small, node(2, 2)])
    plan_fleet(fleet, [job(1)], at=1000.0, seed=1)
    fleet.replace_nodes([large])
    fresh = planning.plan(snapshot([small, large], job(1), seed=1))
    assert plan_fleet(fleet, [job(1)], at=1000.0, seed=1) == fresh
