"""The command runner: repeated, late, lost and broken calls never run a member twice and never strand an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from ledger.models import Allocation, Attempt, AuditEvent
from ledger.vocabulary import AllocationState, AttemptState, CommandState, CommandVerb, JobState, Outcome
from scheduler import commands, observing, placing, queue
from scheduler.drivers.base import Driver, LogChunk, MemberSpec, NodeFacts, Observation, Phase
from scheduler.drivers.batch import StopOrder
from scheduler.drivers.simulated import SimulatedDriver, World
from scheduler.models import Command, SimulatedMember
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
AT_ONCE = {"start_delay_s": (0.0, 0.0)}


class Counting(SimulatedDriver):
    """Counts the members that a start call truly brought into being."""

    def __init__(self, world: World | None = None) -> None:
        super().__init__(world or World(**AT_ONCE))
        self.born: list[str] = []

    def _new(self, spec: MemberSpec, now: Any) -> SimulatedMember:
        member = super()._new(spec, now)
        self.born.append(spec.key)
        return member


class Brittle(Counting):
    """A driver whose batches fall over when one of their members is broken."""

    def __init__(self, broken: Iterable[str]) -> None:
        super().__init__()
        self.broken = set(broken)

    def start_many(self, specs: Sequence[MemberSpec]) -> dict[str, Observation | Exception]:
        if self.broken & {spec.key for spec in specs}:
            raise RuntimeError("a bug of the driver")
        return super().start_many(specs)

    def stop_many(self, orders: Sequence[StopOrder]) -> dict[str, bool | Exception]:
        if self.broken & {order.key for order in orders}:
            raise RuntimeError("a bug of the driver")
        return super().stop_many(orders)

    def stop(self, *, key: str, job_id: int, fence: int, grace_s: int) -> Observation:
        if key in self.broken:
            raise RuntimeError("a bug of the driver")
        return super().stop(key=key, job_id=job_id, fence=fence, grace_s=grace_s)


class OneByOne:
    """A driver without batch calls, as real ones are; `broken` keys make it fall over."""

    name, simulated = "simulated", True

    def __init__(self, broken: Iterable[str] = (), dirty: int = 0) -> None:
        self.inner, self.broken, self.dirty = SimulatedDriver(World(**AT_ONCE)), set(broken), dirty
        self.prepare, self.inspect, self.list_members = self.inner.prepare, self.inner.inspect, self.inner.list_members

    def start(self, spec: MemberSpec) -> Observation:
        if spec.key in self.broken:
            raise RuntimeError("a bug of the driver")
        return self.inner.start(spec)

    def stop(self, *, key: str, job_id: int, fence: int, grace_s: int) -> Observation:
        if key in self.broken:
            raise RuntimeError("a bug of the driver")
        return self.inner.stop(key=key, job_id=job_id, fence=fence, grace_s=grace_s)

    def logs(self, key: str, cursor: int = 0, limit: int = 65_536) -> LogChunk:
        return self.inner.logs(key, cursor, limit)

    def clean(self, *, key: str, node: str, whole: bool) -> bool:
        self.dirty -= 1
        return self.dirty < 0 and self.inner.clean(key=key, node=node, whole=whole)

    def inventory(self) -> list[NodeFacts]:
        return self.inner.inventory()


@pytest.mark.parametrize("seed", [1, 2])
def test_lost_replies_end_in_one_run_of_each_member(seed: int) -> None:
    flow.world(nodes=3)
    jobs = [flow.long_job(asks=[{"form": "container", "nodes": 1 + n % 2}]) for n in range(4)]
    driver = Counting(World(seed=seed, lost_reply_rate=0.6, **AT_ONCE))
    with flow.simulated_by(driver):
        flow.finish(*jobs)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert len(driver.born) == len(set(driver.born)) == Allocation.objects.count() == 6
    assert not Attempt.objects.filter(n__gt=1).exists()
    assert AuditEvent.objects.filter(verb="attempt.unknown").exists()


def test_a_lost_reply_is_unknown_and_keeps_its_cards_until_there_is_evidence() -> None:
    flow.world()
    job = flow.long_job()
    driver = SimulatedDriver(World(lost_reply_rate=1.0, **AT_ONCE))
    with flow.simulated_by(driver):
        placing.place_queued()
        commands.run_due()
        attempt = flow.attempt_of(job)
        assert attempt.state == AttemptState.UNKNOWN
        assert attempt.unknown_since is not None
        assert [a.state for a in flow.open_allocations(job)] == [AllocationState.OPENING]
        assert Command.objects.get().state == CommandState.PENDING
        assert commands.run_due()["start"] == 0  # it backs off
        driver.world = World(**AT_ONCE)
        flow.make_due()
        commands.run_due()
    job.refresh_from_db()
    attempt.refresh_from_db()
    assert (job.state, attempt.state, attempt.unknown_since) == (JobState.RUNNING, AttemptState.RUNNING, None)


def test_waiting_times_grow_and_have_an_end() -> None:
    pauses = [commands._back_off(Command(tries=n)) for n in range(1, 40)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 2
    assert pauses[-1] == commands.LONGEST_BACK_OFF_S


def test_a_failed_start_ends_the_job_and_frees_its_cards() -> None:
    flow.world()
    job = flow.long_job()
    with flow.simulated_by(SimulatedDriver(World(start_fail_rate=1.0))):
        flow.finish(job)
    attempt = flow.attempt_of(job)
    assert (job.state, attempt.outcome, attempt.n) == (JobState.FAILED, Outcome.START_FAILED, 1)
    assert "refused to start" in job.message
    assert not SimulatedMember.objects.exists()


def test_a_runner_killed_while_it_notes_a_failed_start_leaves_work_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow.world()
    job = flow.long_job()

    def killed(**_: Any) -> bool:
        raise KeyboardInterrupt

    with flow.simulated_by(SimulatedDriver(World(start_fail_rate=1.0))):
        placing.place_queued()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(commands, "end_attempt", killed)
            commands.run_due()
        flow.finish(job)
    assert job.state == JobState.FAILED


@pytest.mark.parametrize("kind", [OneByOne, Brittle])
def test_a_driver_that_falls_over_one_member_serves_the_others(kind: type[Any]) -> None:
    flow.world()
    jobs = [flow.long_job() for _ in range(3)]
    placing.place_queued()
    broken = flow.open_allocations(jobs[0])[0].key
    with flow.simulated_by(kind(broken=[broken])):
        commands.run_due()
        observing.observe_all()
        states = {job.pk: flow.attempt_of(job).state for job in jobs}
        assert states == {
            jobs[0].pk: AttemptState.UNKNOWN, jobs[1].pk: AttemptState.RUNNING, jobs[2].pk: AttemptState.RUNNING
        }  # fmt: skip
        for job in jobs:
            queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        commands.run_due()
        assert [len(flow.open_allocations(job)) for job in jobs] == [1, 0, 0]


def test_a_card_is_free_only_when_its_driver_has_cleaned() -> None:
    flow.world()
    job = flow.long_job(asks=[{"form": "whole"}])
    with flow.simulated_by(OneByOne(dirty=2)):
        flow.start(job)
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        for left in (1, 1, 0):
            flow.make_due()
            commands.run_due()
            assert len(flow.open_allocations(job)) == left
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED


def test_a_start_that_comes_after_the_stop_does_not_run() -> None:
    flow.world()
    job = flow.long_job()
    driver: Driver = Counting()
    with flow.simulated_by(driver):
        placing.place_queued()
        late = commands._claim(10)
        queue.cancel(job_id=job.pk, actor=job.by, reason="never mind", via="test")
        flow.make_due()
        commands.run_due()
        assert commands._start(driver, late) == 0
    job.refresh_from_db()
    assert (job.state, job.cancel_reason) == (JobState.CANCELLED, "never mind")
    assert not SimulatedMember.objects.exists()
    assert Command.objects.get(verb=CommandVerb.START).state == CommandState.REFUSED
    assert flow.attempt_of(job).outcome == Outcome.CANCELLED


def test_a_start_in_flight_while_the_job_is_cancelled_is_stopped() -> None:
    flow.world()
    job = flow.long_job()
    driver = Counting()
    with flow.simulated_by(driver):
        placing.place_queued()
        late = commands._claim(10)
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        assert commands._start(driver, late) == 1
        flow.make_due()
        commands.run_due()
        member = SimulatedMember.objects.get()
        assert driver.inspect([member.key])[member.key].phase == Phase.EXITED
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED
    assert Command.objects.get(verb=CommandVerb.START).state == CommandState.REFUSED


def test_a_killed_runners_commands_come_up_again_and_run_once() -> None:
    flow.world()
    jobs = [flow.long_job() for _ in range(3)]
    driver = Counting()
    with flow.simulated_by(driver):
        placing.place_queued()
        assert len(commands._claim(10)) == 3  # killed before it acts
        assert commands.run_due() == {"start": 0, "stop": 0, "failed": 0}  # its lease stands
        flow.make_due()
        half_done = commands._claim(10)
        driver.start_many(list(commands.member_specs([c.allocation_id for c in half_done]).values()))  # and after
        flow.make_due()
        assert commands.run_due()["start"] == 3
    assert len(driver.born) == 3
    assert {flow.attempt_of(job).state for job in jobs} == {AttemptState.RUNNING}


def test_stops_of_an_ended_attempt_change_nothing() -> None:
    flow.world()
    job = flow.long_job()
    driver = Counting()
    with flow.simulated_by(driver):
        flow.start(job)
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        first, _ = commands._claim(10), flow.make_due()
        second = commands._claim(10)
        assert [c.pk for c in first] == [c.pk for c in second]
        assert commands._stop(driver, first) == 1
        closed = Allocation.objects.get()
        assert commands._stop(driver, second) == 1
    again = Allocation.objects.get()
    assert (closed.period, closed.closing_at) == (again.period, again.closing_at)
    assert AuditEvent.objects.filter(verb="job.cancelled").count() == 1


def test_a_member_is_told_all_that_was_granted() -> None:
    flow.world(nodes=2)
    job = factories.job(
        asks=[{"form": "container", "nodes": 2, "cards_per_node": 2, "memory_mib": 1000, "compute_milli": 250}],
        environment={"A": "b"}, cpu_milli=700, host_memory_mib=900, walltime_s=77, checkpoint="SIGUSR1",
    )  # fmt: skip
    placing.place_queued()
    first, second = (commands.member_specs([a.pk])[a.pk] for a in flow.open_allocations(job))
    assert (first.job_id, first.rank, second.rank, first.members) == (job.pk, 0, 1, 2)
    assert list(first.member_nodes) == list(second.member_nodes) == [first.node, second.node]
    assert [(c.memory_mib, c.compute_milli) for c in first.cards] == [(1000, 250)] * 2
    assert (first.cpu_milli, first.host_memory_mib, first.walltime_s) == (700, 900, 77)
    assert (first.environment, first.checkpoint_signal) == ({"A": "b"}, "SIGUSR1")
    assert first.fence == second.fence == flow.attempt_of(job).fence
    assert first.key != second.key
