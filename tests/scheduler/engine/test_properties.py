"""What a plan says of itself, for every small fleet and queue: refusals, explanations, the order of asks. What plans must
never do is tried in test_stories.py."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from ledger.vocabulary import Refusal
from scheduler.engine import plan as planning
from scheduler.engine.types import Placement, Snapshot, Waiting
from tests.scheduler.engine.fleets import snapshots

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
every = settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=QUIET, database=None)
some = settings(every, max_examples=40)


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
