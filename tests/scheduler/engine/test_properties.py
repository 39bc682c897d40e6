"""What must hold for every small fleet and queue."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.vocabulary import Refusal
from scheduler.engine import plan as planning
from scheduler.engine.check import check_plan
from scheduler.engine.demand import workloads
from scheduler.engine.fleet import Fleet
from scheduler.engine.serialise import to_json
from scheduler.engine.types import Placement, Snapshot, Waiting
from tests.scheduler.engine import bruteforce
from tests.scheduler.engine.fleets import node_views, snapshots

T = TypeVar("T")
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
every = settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=QUIET, database=None)
some = settings(every, max_examples=40)
slow = settings(every, max_examples=60)


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    dice = random.Random(seed)

    def mixed(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(dice.sample(items, len(items)))

    nodes = tuple(replace(view, cards=mixed(view.cards), links=mixed(view.links)) for view in mixed(snapshot.nodes))
    return replace(snapshot, nodes=nodes, jobs=mixed(snapshot.jobs), reserves=mixed(snapshot.reserves))


@every
@given(snapshots())
def test_a_plan_breaks_no_rule(snapshot: Snapshot) -> None:
    assert check_plan(snapshot, planning.plan(snapshot)) == []


@every
@given(snapshots(), st.integers(0, 1000))
def test_the_order_of_nodes_cards_and_jobs_changes_nothing(snapshot: Snapshot, seed: int) -> None:
    assert planning.plan(shuffled(snapshot, seed)) == planning.plan(snapshot)


@some
@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan_and_is_left_as_it_was(snapshot: Snapshot) -> None:
    before = copy.deepcopy(to_json(snapshot))
    assert planning.plan(snapshot) == planning.plan(snapshot)
    assert to_json(snapshot) == before


@slow
@given(snapshots(max_nodes=4))
def test_no_single_node_job_waits_while_there_is_room(snapshot: Snapshot) -> None:
    plan = planning.plan(snapshot)
    left = bruteforce.after(snapshot, plan)
    jobs = {job.id: job for job in snapshot.jobs}
    for waiting in plan.waiting:
        job = jobs[waiting.job_id]
        for number, ask in enumerate(job.asks):
            counts = not job.over_quota and snapshot.at >= job.submitted_at + ask.after_s
            if counts and ask.nodes == 1:
                assert not bruteforce.placeable(left, job, number), f"job {job.id} ask {number}"


@slow
@given(snapshots(max_nodes=4, reserves=False))
def test_no_gang_waits_while_there_is_room(snapshot: Snapshot) -> None:
    plan = planning.plan(snapshot)
    left = bruteforce.after(snapshot, plan)
    jobs = {job.id: job for job in snapshot.jobs}
    for waiting in plan.waiting:
        job = jobs[waiting.job_id]
        for number, ask in enumerate(job.asks):
            if not job.over_quota and snapshot.at >= job.submitted_at + ask.after_s:
                assert not bruteforce.placeable(left, job, number), f"job {job.id} ask {number}"


@slow
@given(snapshots(max_nodes=4, max_jobs=3, reserves=False))
def test_never_means_that_not_even_the_empty_fleet_would_do(snapshot: Snapshot) -> None:
    best = bruteforce.emptied(snapshot)
    jobs = {job.id: job for job in snapshot.jobs}
    for waiting in planning.plan(snapshot).waiting:
        job = jobs[waiting.job_id]
        could = any(bruteforce.placeable(best, job, number) for number in range(len(job.asks)))
        assert waiting.never is not could


@some
@given(snapshots())
def test_an_earlier_ask_that_has_room_is_not_passed_over(snapshot: Snapshot) -> None:
    jobs = {job.id: job for job in snapshot.jobs}
    for placement in planning.plan(snapshot).placements:
        job = jobs[placement.job_id]
        for number in range(placement.ask_index):
            alone = replace(job, asks=(job.asks[number],))
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
@given(snapshots(), st.data())
def test_a_fleet_corrected_between_ticks_plans_like_a_new_one(snapshot: Snapshot, data: st.DataObject) -> None:
    rest = {"at": snapshot.at, "seed": snapshot.seed, "reserves": snapshot.reserves, "rule": snapshot.rule}
    fleet = Fleet(snapshot.nodes, workloads(snapshot.demand))
    first = planning.plan_fleet(fleet, snapshot.jobs, **rest)
    assert first == planning.plan(snapshot)
    assert planning.plan_fleet(fleet, snapshot.jobs, **rest) == first
    ids = data.draw(st.sets(st.integers(1, len(snapshot.nodes) + 1), max_size=3))
    changed = [data.draw(node_views(id_)) for id_ in sorted(ids)]
    fleet.replace_nodes(changed)
    nodes = {**{view.id: view for view in snapshot.nodes}, **{view.id: view for view in changed}}
    again = replace(snapshot, nodes=tuple(nodes.values()))
    assert planning.plan_fleet(fleet, snapshot.jobs, **rest) == planning.plan(again)


@some
@given(snapshots())
def test_work_over_quota_and_asks_to_come_are_never_placed(snapshot: Snapshot) -> None:
    jobs = {job.id: job for job in snapshot.jobs}
    plan = planning.plan(snapshot)
    for waiting in plan.waiting:
        job = jobs[waiting.job_id]
        later = [job.submitted_at + a.after_s - snapshot.at for a in job.asks]
        assert waiting.next_ask_in_s == min((s for s in later if s > 0), default=None)
        for counts, wait in zip(waiting.by_ask, later, strict=True):
            if snapshot.nodes and job.over_quota:
                assert dict(counts) == {Refusal.QUOTA: len(snapshot.nodes)}
            elif snapshot.nodes and wait > 0:
                assert dict(counts) == {Refusal.ASK_LATER: len(snapshot.nodes)}
