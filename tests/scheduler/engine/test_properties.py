"""What a plan says of itself, for every small fleet and queue: refusals, explanations, the order of asks. What plans must
never do is tried in test_stories.py."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.vocabulary import Distance, Refusal
from scheduler.engine import plan as planning
from scheduler.engine.check import check_plan
from scheduler.engine.fingerprint import fingerprint, likeness
from scheduler.engine.types import Placement, Snapshot, Waiting
from scheduler.engine.warmth import WARM_POLICY
from tests.scheduler.engine import bruteforce, fleets
from tests.scheduler.engine.fleets import SEEDS, snapshots, some_place, some_twins

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
every = settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=QUIET, database=None)
some = settings(every, max_examples=40)


@every
@given(st.lists(SEEDS, min_size=5, max_size=7), st.integers(2, 3), st.sampled_from(tuple(Distance)))
def test_a_gang_stands_as_near_as_it_can(seeds: list[int], nodes: int, distance: Distance) -> None:
    alone = fleets.snapshot(
        [some_place(random.Random(seed), n) for n, seed in enumerate(seeds, start=1)],
        fleets.job(1, fleets.whole(nodes=nodes), distance=distance),
    )
    plan = planning.plan(alone)
    assert check_plan(alone, plan) == []
    for placement in plan.placements:
        chosen = {member.node_id for member in placement.members}
        near = bruteforce.together([view for view in alone.nodes if view.id in chosen])
        assert distance is Distance.ANY or near == bruteforce.nearest(alone, alone.jobs[0])
    for waiting in plan.waiting:
        assert not bruteforce.placeable(alone, alone.jobs[0], 0)
        assert waiting.never


@every
@given(st.lists(SEEDS, min_size=5, max_size=7), SEEDS, st.sampled_from(tuple(Distance)))
def test_a_reproducible_job_stands_as_it_must_if_any_nodes_allow_it(
    seeds: list[int], seed: int, distance: Distance
) -> None:
    dice = random.Random(seed)
    nodes = [some_twins(random.Random(seed), n) for n, seed in enumerate(seeds, start=1)]
    wanted = fleets.as_comparison(dice, nodes, fleets.job(1, distance=distance))
    alone = fleets.snapshot(nodes, wanted)
    plan = planning.plan(alone)
    assert check_plan(alone, plan) == []
    assert bool(plan.placements) == bruteforce.placeable(alone, wanted, 0)
    assert all(waiting.never for waiting in plan.waiting)
    for placement in plan.placements:
        views = {view.id: view for view in nodes}
        members = [(views[member.node_id], member) for member in placement.members]
        found = likeness(fingerprint(members, False).parts)
        assert found is not None
        assert wanted.like in (None, found)


@every
@given(snapshots(max_jobs=1), st.sets(st.integers(1, 6), min_size=1))
def test_warm_nodes_change_the_order_alone(snapshot: Snapshot, warm: set[int]) -> None:
    cold = replace(snapshot, jobs=tuple(replace(job, warm=frozenset()) for job in snapshot.jobs))
    heated = replace(snapshot, jobs=tuple(replace(job, warm=frozenset(warm)) for job in snapshot.jobs))
    before, after = planning.plan(cold), planning.plan(heated)
    assert before.waiting == after.waiting
    assert check_plan(heated, after) == []
    for one, other in zip(before.placements, after.placements, strict=True):
        assert (one.ask_index, one.refusals, one.warm) == (other.ask_index, other.refusals, None)
        nodes = {member.node_id for member in other.members}
        if other.warm is None:
            assert one.members == other.members
        else:
            assert {*other.warm.nodes} <= nodes & warm
            assert 0 <= other.warm.gave_up <= WARM_POLICY.allowance[snapshot.rule]


@some
@given(snapshots())
def test_an_earlier_ask_that_has_room_is_not_passed_over(snapshot: Snapshot) -> None:
    jobs = {job.id: job for job in snapshot.jobs}
    for placement in planning.plan(snapshot).placements:
        job = jobs[placement.job_id]
        for number in range(placement.ask_index):
            shut = frozenset((0, model) for model in job.shut(job.asks[number]))
            alone = replace(job, asks=(job.asks[number],), no_room=shut)
            ordered = planning.queue_order(snapshot)
            queue = [alone if other.id == job.id else other for other in ordered]
            upto = tuple(queue[: queue.index(alone) + 1])
            assert isinstance(planning.explain(replace(snapshot, jobs=upto), job.id), Waiting)


@some
@given(snapshots())
def test_every_node_is_feasible_or_refused_once_for_each_ask(snapshot: Snapshot) -> None:
    plan = planning.plan(snapshot)
    by_job = {d.job_id: d for d in (*plan.placements, *plan.waiting)}
    for job in snapshot.jobs:
        decided = by_job[job.id]
        assert planning.explain(snapshot, job.id) == decided
        lines = planning.explain_nodes(snapshot, job.id)
        assert len(lines) == len(job.asks) * len(snapshot.nodes)
        counted = [
            (decided.ask_index, decided.refusals)
            if isinstance(decided, Placement)
            else (number, decided.by_ask[number])
            for number in ([0] if isinstance(decided, Placement) else range(len(job.asks)))
        ]
        for number, counts in counted:
            refused = [line[2] for line in lines if line[1] == number and line[2] is not None]
            assert {reason: refused.count(reason) for reason in set(refused)} == {
                reason: n for reason, n in counts.items() if n
            }
            open_nodes = [line for line in lines if line[1] == number and line[2] is None]
            assert sum(counts.values()) + len(open_nodes) == len(snapshot.nodes)
            assert all(line[3] is not None for line in open_nodes)
            assert isinstance(decided, Placement) or not open_nodes


@some
@given(snapshots())
def test_work_over_quota_and_asks_to_come_are_never_placed(snapshot: Snapshot) -> None:
    jobs = {job.id: job for job in snapshot.jobs}
    plan = planning.plan(snapshot)
    for waiting in plan.waiting:
        job = jobs[waiting.job_id]
        later = [job.submitted_at + a.after_s - snapshot.at for a in job.asks]
        assert waiting.next_ask_in_s == min((s for s in later if s > 0), default=None)
        for ask, counts, wait in zip(job.asks, waiting.by_ask, later, strict=True):
            if snapshot.nodes and job.is_over(ask):
                assert dict(counts) == {Refusal.QUOTA: len(snapshot.nodes)}
            elif snapshot.nodes and wait > 0:
                assert dict(counts) == {Refusal.ASK_LATER: len(snapshot.nodes)}
