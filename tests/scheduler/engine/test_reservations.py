"""The queue on a real fleet: small work first, nodes kept for those that wait, and who may use them meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.vocabulary import AskForm, Distance, Form, Refusal
from scheduler.engine import plan as planning
from scheduler.engine.answers import answer
from scheduler.engine.check import check_plan
from scheduler.engine.ends import NEVER, Ends, StayTable
from scheduler.engine.fleet import Fleet
from scheduler.engine.future import Future, World, with_stays, without
from scheduler.engine.queueing import POLICIES, forecast
from scheduler.engine.shape import shapes_of
from scheduler.engine.types import (
    DEFAULT_POLICY,
    DEFAULT_RULE,
    Ask,
    JobView,
    NodeView,
    Plan,
    Reservation,
    Reserve,
    Snapshot,
    Stay,
    Waiting,
)
from tests.scheduler.engine.fleets import (
    block,
    blocks_node,
    cards_of,
    container,
    job,
    node,
    snapshot,
    snapshots,
    some_stays,
    whole,
)
from tests.scheduler.engine.test_properties import every, some

AT = 1000.0
HOUR = 3600.0
POLICY = POLICIES[DEFAULT_POLICY]
LATE: dict[str, Any] = {"submitted_at": AT - POLICY.bound_s}
SURE: dict[str, Any] = {"expected_s": 60.0, "surely_s": 60.0}


def stay(
    number: int, node_id: int, ends_at: float, cards: int = 4, mib: int = 16, first: int = 0, low: int = 0, **more: Any
) -> Stay:
    """Of a job on the first cards of a node made by fleets.node, `mib` of each from `low` on."""
    taken = tuple((node_id * 100 + slot, ((low, low + mib),), ()) for slot in range(first, first + cards))
    standard: dict[str, Any] = {"form": Form.CONTAINER, "cpu_milli": 1000, "host_memory_mib": 1000}
    return Stay(job_id=number, node_id=node_id, ends_at=ends_at, cards=taken, **{**standard, **more})


def fleet(nodes: int, *stays: Stay, cards: int = 4) -> Snapshot:
    """Nodes with these stays on them."""
    views = {n: node(n, cards) for n in range(1, nodes + 1)}
    for one in stays:
        views[one.node_id] = with_stays(views[one.node_id], [one])
    return snapshot(tuple(views.values()), at=AT, stays=stays)


def planned(taken: Snapshot, *jobs: JobView) -> Plan:
    asked = replace(taken, jobs=jobs)
    made = planning.plan(asked)
    assert check_plan(asked, made) == []
    return made


def placed(made: Plan) -> dict[int, tuple[int, ...]]:
    return {one.job_id: tuple(member.node_id for member in one.members) for one in made.placements}


def reasons(made: Plan) -> dict[int, tuple[dict[Refusal, int], ...]]:
    return {one.job_id: tuple(dict(counts) for counts in one.by_ask) for one in made.waiting}


def test_small_work_goes_first_and_equal_work_by_submission() -> None:
    jobs = [
        job(1, container(1, 0), submitted_at=900.0, expected_s=HOUR),
        job(2, container(1, 0), submitted_at=990.0, expected_s=60.0),
        job(3, container(1, 4), submitted_at=990.0, expected_s=60.0),  # a quarter of a card
        job(4, container(1, 0), submitted_at=980.0, expected_s=60.0),
        job(5, container(1, 0), submitted_at=990.0, expected_s=60.0, priority=1),
    ]
    assert planned(fleet(2), *jobs).order == (5, 3, 4, 2, 1)
    assert [one.id for one in planning.queue_order(replace(fleet(2), jobs=tuple(jobs)))] == [5, 3, 4, 2, 1]


def test_jobs_of_which_nothing_is_known_go_by_submission() -> None:
    jobs = [job(n, container(n, 0), submitted_at=1000.0 - n) for n in (1, 2, 3, 4)]
    assert planned(fleet(4), *jobs).order == (4, 3, 2, 1)


def test_a_whole_machine_is_kept_the_node_that_comes_free_first() -> None:
    taken = fleet(2, stay(8, 1, AT + 300, 1), stay(9, 2, AT + 100, 1), stay(7, 2, AT + 50, 1, first=1))
    made = planned(taken, job(1, whole(), **SURE))
    assert made.reservations == (Reservation(1, 0, AT + 100, (2,), (7, 9)),)
    assert reasons(made) == {1: ({Refusal.OTHER_FORM: 2},)}


KEPT_UNTIL = AT + 100
BESIDE: dict[str, tuple[dict[str, Any], bool]] = {
    "it will have ended": ({"expected_s": 50.0, "surely_s": 100.0}, True),
    "it may last longer": ({"expected_s": 50.0, "surely_s": 101.0}, False),
    "nothing is known of it": ({}, False),
}


@pytest.mark.parametrize("name", BESIDE)
def test_who_may_run_on_a_kept_node_meanwhile(name: str) -> None:
    lasts, runs = BESIDE[name]
    taken = fleet(1, stay(9, 1, KEPT_UNTIL, 1))
    small = job(2, container(1, 4), submitted_at=AT, **lasts)
    made = planned(taken, job(1, whole(), priority=1, **SURE), small)
    assert (2 in placed(made)) is runs
    if not runs:
        assert reasons(made)[2] == ({Refusal.RESERVED: 1},)
    assert 2 in placed(planned(taken, small))  # nothing else keeps it out


def test_another_node_is_taken_instead() -> None:
    taken = fleet(2, stay(9, 1, KEPT_UNTIL, 1), stay(8, 2, AT + 900, 3))
    alone = planned(taken, job(2, container(1, 4)))
    made = planned(taken, job(1, whole(), priority=1, **SURE), job(2, container(1, 4)))
    assert placed(made) == {2: (2,)}
    assert made.placements[0].refusals == {Refusal.RESERVED: 1}
    assert placed(alone)


def test_beside_a_container_there_is_room_for_as_long_as_it_leaves() -> None:
    """Node 1 has 4 cards, 3 are taken until then; an overdue job wants 2 full ones, so that 2 more are to spare."""
    taken = fleet(1, stay(9, 1, KEPT_UNTIL, 3))
    late = job(1, container(2, 0), **LATE, **SURE)
    long = [job(n, container(1, 4), submitted_at=AT - 10 + n) for n in range(2, 8)]
    made = planned(taken, late, *long)
    assert made.reservations == (Reservation(1, 0, KEPT_UNTIL, (1,), (9,)),)
    assert set(placed(made)) == {2, 3}
    assert {reasons(made)[n][0].get(Refusal.RESERVED) for n in (4, 5, 6, 7)} == {1}


def test_cores_beside_a_container_are_counted_too() -> None:
    taken = fleet(1, stay(9, 1, KEPT_UNTIL, 3))
    late = job(1, container(2, 0), cpu_milli=6000, **LATE, **SURE)
    greedy, modest = (job(n, container(1, 4), cpu_milli=n * 1000, submitted_at=AT) for n in (3, 2))
    made = planned(taken, late, greedy, modest)
    assert set(placed(made)) == {2}


def test_a_gang_is_kept_all_its_nodes_from_the_last_end_on() -> None:
    taken = fleet(3, stay(7, 1, AT + 300), stay(8, 2, AT + 100), stay(9, 3, AT + 200))
    made = planned(taken, job(1, container(4, 0, nodes=2), **SURE))
    assert made.reservations == (Reservation(1, 0, AT + 200, (2, 3), (8, 9)),)


def test_a_gang_that_must_share_a_leaf_is_kept_one() -> None:
    stays = (stay(7, 1, AT + 10), stay(8, 2, AT + 20), stay(9, 3, AT + 400), stay(6, 4, AT + 100))
    views = {
        n: with_stays(node(n, leaf=leaf), [one])
        for n, leaf, one in ((1, "a", stays[0]), (2, "b", stays[1]), (3, "a", stays[2]), (4, "b", stays[3]))
    }
    taken = snapshot(tuple(views.values()), at=AT, stays=stays)
    gang = job(1, container(4, 0, nodes=2), distance=Distance.SAME_LEAF, **SURE)
    assert planned(taken, gang).reservations == (Reservation(1, 0, AT + 100, (2, 4), (6, 8)),)
    assert planned(taken, replace(gang, distance=Distance.NEAR)).reservations[0].node_ids == (1, 2)


def test_a_wish_that_counts_later_is_kept_nodes_for_when_it_is_sooner() -> None:
    """The machine comes free in an hour, but a share would do from ten minutes on."""
    taken = fleet(1, stay(8, 1, AT + HOUR, 2), stay(9, 1, AT + 300, 2, first=2))
    fallback = job(1, whole(), container(1, 0, after_s=600), submitted_at=AT, **SURE)
    made = planned(taken, fallback)
    assert made.reservations == (Reservation(1, 1, AT + 600, (1,), (9,)),)


def test_one_wide_job_of_a_pool_is_kept_nodes_and_each_pool_has_its_own() -> None:
    views = [with_stays(node(n, cards_of(n, [16] * 4, model=model)), [stay(50 + n, n, AT + 100 + n)])
             for n, model in ((1, "A"), (2, "A"), (3, "B"), (4, "B"))]  # fmt: skip
    stays = tuple(stay(50 + n, n, AT + 100 + n) for n in (1, 2, 3, 4))
    taken = snapshot(views, at=AT, stays=stays)
    jobs = [job(n, whole(model=model), submitted_at=900.0 + n, **SURE) for n, model in enumerate("AABB", 1)]
    made = planned(taken, *jobs)
    assert {one.job_id: one.node_ids for one in made.reservations} == {1: (1,), 3: (3,)}
    overdue = [replace(one, **LATE) for one in jobs]
    made = planned(taken, *overdue)
    assert {one.job_id: one.node_ids for one in made.reservations} == {1: (1,), 2: (2,), 3: (3,), 4: (4,)}


def test_an_untouched_node_is_left_to_a_machine_that_has_waited_long() -> None:
    since: dict[str, Any] = {"submitted_at": AT - POLICY.keep_whole_after_s}
    taken = fleet(2, stay(9, 1, AT + 100, 1))
    gang, small = job(1, whole(nodes=2), **since, **SURE), job(2, container(3, 0), submitted_at=AT, **SURE)
    made = planned(taken, gang, small)
    assert placed(made) == {2: (1,)}
    taken = fleet(2, stay(9, 1, AT + 100, 2))
    made = planned(taken, gang, small)
    assert reasons(made)[2] == ({Refusal.CARDS_FREE: 1, Refusal.RESERVED: 1},)
    assert placed(planned(taken, replace(gang, submitted_at=AT - 60), small)) == {2: (2,)}
    assert placed(planned(taken, gang, replace(small, priority=1))) == {2: (2,)}


@pytest.mark.parametrize(
    "idle",
    [
        {"over_quota": True},
        {"asks": (whole(nodes=3),)},  # never
        {"asks": (whole(nodes=2, model="Z"),)},  # never
    ],
)
def test_nothing_is_kept_for_whom_waiting_does_not_help(idle: dict[str, Any]) -> None:
    since: dict[str, Any] = {"submitted_at": AT - POLICY.bound_s}
    taken = fleet(2, stay(9, 1, AT + 100, 1))
    made = planned(taken, replace(job(1, whole(nodes=2), **since, **SURE), **idle), job(2, container(4, 0)))
    assert made.reservations == ()
    assert placed(made) == {2: (2,)}


def test_nothing_is_kept_where_room_is_not_what_is_missing() -> None:
    """All cards are free, but they are headroom: waiting for an end would be of no use."""
    taken = replace(fleet(1), reserves=(Reserve(4, "A", 64),))
    made = planned(taken, job(1, whole(), **LATE, **SURE))
    assert made.reservations == ()
    assert reasons(made) == {1: ({Refusal.HEADROOM: 1},)}


def test_what_is_not_known_to_end_is_not_waited_for() -> None:
    taken = fleet(1, stay(9, 1, AT + 100, 1))
    made = planned(replace(taken, stays=()), job(1, whole(), **LATE, **SURE), job(2, container(1, 4)))
    assert made.reservations == ()
    assert placed(made) == {2: (1,)}


def test_nothing_is_kept_where_the_plan_itself_has_placed_something() -> None:
    """When that ends is known at the next look."""
    first, second = job(1, whole(), priority=1, expected_s=500.0), job(2, whole(), **SURE)
    made = planned(fleet(1), first, second)
    assert placed(made) == {1: (1,)}
    assert made.reservations == ()
    made = planned(fleet(2, stay(9, 2, AT + 900)), first, second)
    assert made.reservations == (Reservation(2, 0, AT + 900, (2,), (9,)),)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="policy 'x' is not known"):
        planning.plan(replace(fleet(1), policy="x"))


def test_explaining_a_job_tells_what_is_kept_from_it() -> None:
    taken = replace(
        fleet(1, stay(9, 1, KEPT_UNTIL, 1)),
        jobs=(job(1, whole(), priority=1, **SURE), job(2, container(1, 4))),
    )
    assert planning.explain(taken, 2) == Waiting(2, ({Refusal.RESERVED: 1},))
    [(hostname, ask, why, score)] = planning.explain_nodes(taken, 2)
    assert (hostname, ask, why) == ("n1", 0, Refusal.RESERVED)
    assert score is not None


# -- when ------------------------------------------------------------------------------------------------------------


def room(taken: Snapshot, ask: Ask, **more: Any) -> list[float]:
    """When each node is expected to have room."""
    here = Fleet(taken.nodes).fork(DEFAULT_RULE)
    [shape] = shapes_of(job(1, ask, **more), ask)
    when = Ends(here, StayTable(here, taken.stays)).room_at(shape, answer(here, shape, DEFAULT_RULE).codes, AT)
    return list(np.where(when == NEVER, -1.0, when))


ROOMS: dict[str, tuple[Snapshot, Ask, list[float]]] = {
    "it is free": (fleet(1), container(4, 0), [AT]),
    "its cards come free one by one": (
        fleet(1, *(stay(n, 1, AT + n, 1, first=n) for n in range(4))), container(3, 0), [AT + 2]),
    "memory of one card adds up": (
        fleet(1, stay(1, 1, AT + 1, 4, 6), stay(2, 1, AT + 2, 4, 6, low=6)), container(1, 10), [AT + 1]),
    "a full card needs all of it": (
        fleet(1, stay(1, 1, AT + 1, 4, 6), stay(2, 1, AT + 2, 4, 6, low=6)), container(1, 0), [AT + 2]),
    "a machine needs all to end": (fleet(1, stay(1, 1, AT + 1, 1), stay(2, 1, AT + 9, 1, first=1)), whole(), [AT + 9]),
    "another form needs all to end": (
        fleet(1, stay(1, 1, AT + 5, 1, form=Form.WHOLE)), container(1, 4), [AT + 5]),
    "cores come free": (
        fleet(1, stay(1, 1, AT + 3, 1, cpu_milli=4000), stay(2, 1, AT + 9, 1, cpu_milli=4000, first=1)),
        container(1, 4), [AT + 3]),
    "what is overdue is due now": (fleet(1, stay(1, 1, AT - 50)), container(1, 0), [AT]),
    "it never has so many": (fleet(1, stay(1, 1, AT + 5)), container(5, 0), [-1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROOMS)
def test_when_a_node_has_room(name: str) -> None:
    taken, ask, when = ROOMS[name]
    assert room(taken, ask) == when


def test_when_a_block_is_free() -> None:
    cut = blocks_node(1, (2, 2))
    stays = tuple(stay(n, 1, AT + n, 1, first=n - 1, form=Form.BLOCK) for n in (1, 2, 3, 4))
    taken = snapshot([with_stays(cut, stays)], at=AT, stays=stays)
    assert room(taken, block(2)) == [AT + 2]
    assert room(taken, block(4)) == [AT + 4]
    assert room(taken, block(3)) == [-1.0]


@every
@given(snapshots(), st.data())
def test_a_node_has_room_at_its_time_and_not_before(taken: Snapshot, data: st.DataObject) -> None:
    """Where everything that is on a node is known to end: after the ends up to its time the filters let the shape pass,
    and an end earlier they don't. Blocks of several sizes are counted by cards alone, so they are left out."""
    dice = data.draw(st.randoms(use_true_random=False))
    stays = some_stays(dice, taken.nodes)
    asked = dice.choice(taken.jobs) if taken.jobs else job(1)
    here = Fleet(taken.nodes).fork(DEFAULT_RULE)
    for ask in asked.asks:
        for shape in shapes_of(asked, ask):
            if shape.form is Form.BLOCK:
                continue
            when = Ends(here, StayTable(here, stays)).room_at(shape, answer(here, shape, DEFAULT_RULE).codes, AT)
            for row, view in enumerate(here.views):
                if AT < when[row] < NEVER:
                    mine = [one for one in stays if one.node_id == view.id]
                    assert passes(view, [s for s in mine if s.ends_at <= when[row]], shape)
                    assert not passes(view, [s for s in mine if s.ends_at < when[row]], shape)


def passes(view: NodeView, gone: list[Stay], shape: Any) -> bool:
    after = Fleet([without(view, gone)]).fork(DEFAULT_RULE)
    return int(answer(after, shape, DEFAULT_RULE).codes[0]) == 0


# -- the future ------------------------------------------------------------------------------------------------------


def told(taken: Snapshot, *jobs: JobView, steps: int = 50) -> dict[int, tuple[float, tuple[int, ...]]]:
    world = World(taken)
    future = Future(world, AT)
    found = forecast(future.pending(jobs), future, POLICY, steps=steps)
    return {one: (start.at, tuple(world.snapshot.nodes[row].id for row in start.rows)) for one, start in found.items()}


def test_the_future_starts_jobs_as_room_comes_free() -> None:
    taken = fleet(2, stay(8, 1, AT + 100), stay(9, 2, AT + 500))
    jobs = [job(n, whole(), submitted_at=900.0 + n, expected_s=1000.0, surely_s=1000.0) for n in (1, 2, 3)]
    assert told(taken, *jobs) == {1: (AT + 100, (1,)), 2: (AT + 500, (2,)), 3: (AT + 1100, (1,))}
    assert told(taken, *jobs, steps=1) == {1: (AT + 100, (1,))}


def test_ends_that_are_close_make_one_step() -> None:
    stays = [stay(n, n, AT + 100 + n) for n in range(1, 7)]
    world = World(fleet(6, *stays))
    step = world.go_on(AT, [])
    assert step == (AT + 106, {n - 1: n for n in range(1, 7)})
    assert world.go_on(AT, []) is None
    assert {view.used_form for view in world.views.values()} == {None}


@some
@given(snapshots(max_nodes=4))
def test_what_has_come_and_gone_leaves_a_node_as_it_was(taken: Snapshot) -> None:
    made = planning.plan(taken)
    views = {view.id: view for view in taken.nodes}
    for placement in made.placements:
        for member in placement.members:
            before = views[member.node_id]
            cards = tuple((share.card_id, share.memory, share.compute) for share in member.shares)
            one = Stay(
                placement.job_id, member.node_id, member.form, AT, member.cpu_milli, member.host_memory_mib, cards
            )
            after = without(with_stays(before, [one]), [one])
            assert Fleet([after]).now.memory.tolist() == Fleet([before]).now.memory.tolist()
            assert (after.allocations, after.cpu_milli_used, after.host_memory_mib_used) == (
                before.allocations,
                before.cpu_milli_used,
                before.host_memory_mib_used,
            )


def test_the_form_of_an_automatic_job_is_kept_where_it_is_first() -> None:
    taken = fleet(1, stay(8, 1, AT + 100, 2), stay(9, 1, AT + 900, 2, first=2))
    wide = job(1, Ask(AskForm.AUTO, cards_per_node=2, memory_mib=0), **LATE, **SURE)
    assert planned(taken, wide).reservations == (Reservation(1, 0, AT + 100, (1,), (8,)),)
