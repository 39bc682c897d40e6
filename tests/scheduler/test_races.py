"""Races on a real PostgreSQL, with real threads and real commits: what is sold is what there is, and nothing deadlocks."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection

from ledger import invariants, inventory
from ledger.book import Ending
from ledger.errors import Conflict
from ledger.inventory import SeenCard, SeenNode
from ledger.models import Allocation, AuditEvent, CardShare, Hold, Job, Node, Project
from ledger.vocabulary import END_JOB_STATES, AllocationState, Form, HoldKind, JobState, Outcome, Resource
from scheduler import commands, ending, observing, placing, queue, snapshot, whatif
from scheduler.commit import Committed, commit_plan
from scheduler.drivers.simulated import World
from scheduler.engine.plan import plan
from scheduler.engine.types import Plan, Snapshot
from scheduler.models import Command, Promise, SimulatedMember
from tests import factories
from tests.factories import job_data
from tests.scheduler import flow
from tests.scheduler.test_commands import Counting

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 8
CARD = {"form": "container", "memory_mib": 0}
Proposal = tuple[Snapshot, Plan]


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run these in threads that start together, each on its own connection; results or exceptions in order."""
    barrier, answers = threading.Barrier(len(works)), [None] * len(works)

    def run(number: int) -> None:
        barrier.wait()
        try:
            answers[number] = works[number]()
        except Exception as error:
            answers[number] = error  # type: ignore[call-overload]
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _alone(job: Job) -> Proposal:
    """A plan that knows of this job only."""
    snap = snapshot.read([job])
    return snap, plan(snap)


def _each_apart(jobs: Sequence[Job]) -> list[Proposal]:
    """One plan for all jobs, cut into one a job: no two want the same card."""
    snap = snapshot.read(jobs)
    whole = plan(snap)
    assert len(whole.placements) == len(jobs)
    return [(snap, dataclasses.replace(whole, placements=(p,), waiting=())) for p in whole.placements]


def _commit_all(proposals: Sequence[Proposal]) -> list[Committed]:
    answers = at_once([lambda p=p: commit_plan(*p) for p in proposals])
    assert all(isinstance(answer, Committed) for answer in answers), answers
    return answers


def test_one_card_is_sold_once_to_eight_at_a_time() -> None:
    flow.world(cards=3)
    jobs = [flow.long_job(asks=[CARD]) for _ in range(THREADS)]
    for sold in range(1, 5):
        waiting = [job for job in jobs if not flow.open_allocations(job)]
        done = _commit_all([_alone(job) for job in waiting])
        assert sum(d.placed for d in done) == (1 if sold <= 3 else 0)
    assert CardShare.objects.values("card").distinct().count() == CardShare.objects.count() == 3


@pytest.mark.parametrize(
    ("resource", "amount"),
    [(Resource.CARD_MILLI, 5000), (Resource.CARD_MEMORY_MIB, 5 * 16_000), (Resource.CPU_MILLI, 2500)],
)
def test_eight_at_a_time_sell_exactly_the_quota(resource: Resource, amount: int) -> None:
    flow.world(nodes=4, cards=2)
    jobs = [flow.long_job(asks=[CARD], cpu_milli=500) for _ in range(THREADS)]
    factories.grant(Project.objects.get(), resource, amount)
    done = _commit_all(_each_apart(jobs))
    assert sum(d.placed for d in done) == 5
    assert sum((Counter(d.refused) for d in done), Counter()) == {"quota": 3}
    assert flow.quota_used(Project.objects.get().pk, resource) == amount


def test_eight_at_a_time_sell_exactly_the_cpu_of_a_node() -> None:
    flow.world(cards=8, cpu_milli=5000)
    jobs = [flow.long_job(asks=[CARD], cpu_milli=1000) for _ in range(5)]
    proposals = _each_apart(jobs) + [
        _alone(flow.long_job(asks=[{**CARD, "cards_per_node": 0}], cpu_milli=1000)) for _ in "abc"
    ]
    done = _commit_all(proposals)
    assert sum(d.placed for d in done) == 5


@pytest.mark.parametrize("seed", [1, 2])
def test_forms_race_for_one_node_and_never_mix(seed: int) -> None:
    flow.world(cards=4, block=2)
    forms = [Form.WHOLE, Form.CONTAINER, Form.BLOCK, Form.CONTAINER, Form.WHOLE, Form.BLOCK, Form.CONTAINER, Form.WHOLE]
    random.Random(seed).shuffle(forms)
    jobs = [flow.long_job(asks=[{"form": form, "cards_per_node": 2}]) for form in forms]
    done = _commit_all([_alone(job) for job in jobs])
    live = list(Allocation.objects.values_list("form", flat=True))
    assert len(set(live)) == 1
    assert sum(d.placed for d in done) == len(live)
    assert live.count(Form.WHOLE) <= 1


def test_from_the_commit_of_a_hold_nothing_is_placed() -> None:
    flow.world(nodes=4)
    for node in Node.objects.order_by("pk"):
        jobs = [flow.long_job() for _ in range(4)]
        snap = snapshot.read(jobs)
        proposals = [(snap, plan(dataclasses.replace(snap, jobs=(view,)))) for view in snap.jobs]
        holds = [lambda n=node: inventory.place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", node=n)]
        answers = at_once([*holds, *(lambda p=p: commit_plan(*p) for p in proposals)])
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        hold = Hold.objects.get(node=node)
        later = Allocation.objects.filter(node=node, period__startswith__gt=hold.period.lower)
        assert not later.exists()


def test_nothing_begins_inside_a_hold_that_ends_at_that_moment() -> None:
    flow.world()
    node = Node.objects.get()
    for _ in range(12):
        hold = inventory.place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", node=node)
        job = flow.long_job()
        snap = snapshot.read([job])
        free = dataclasses.replace(snap, nodes=tuple(dataclasses.replace(view, held=False) for view in snap.nodes))
        proposal = free, plan(free)
        end = {"hold_id": hold.pk, "reason": "y", "actor": None, "via": "test"}
        answers = at_once([lambda p=proposal: commit_plan(*p), lambda e=end: inventory.end_hold(**e)])
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        assert invariants.check() == []
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        flow.turn()


def test_a_card_that_moves_while_it_is_placed_is_either_placed_or_moved() -> None:
    flow.world(cards=1)
    factories.node("spare", cards=0)
    for _ in range(12):
        job = flow.long_job(asks=[CARD])
        proposal = _alone(job)
        node = Node.objects.get(pk=proposal[1].placements[0].members[0].node_id)
        move = SeenNode("n1" if node.hostname == "spare" else "spare", [SeenCard("n1-card-0", 0, "A100", 16_000)])
        answers = at_once([lambda p=proposal: commit_plan(*p), lambda m=move: inventory.sync_node(m)])
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        placed, moved = answers[0].placed, node.seats.filter(period__upper_inf=True).count() == 0
        assert placed + moved == 1
        assert invariants.check() == []
        queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
        flow.turn()


def _contrary_steps(job: Job, attempt: int, members: list[int]) -> list[Callable[[], Any]]:
    return [
        lambda: queue.cancel(job_id=job.pk, actor=job.by, reason="x", via="test"),
        lambda: ending.confirm_running(members),
        lambda: ending.confirm_running(members[:1]),
        lambda: ending.end_attempts([Ending(attempt, Outcome.SUCCEEDED, 0)]),
        lambda: ending.note_unknown(allocation_id=members[1], message="?"),
        lambda: ending.confirm_closed(members),
        lambda: ending.confirm_closed(members[::-1]),
        commands.run_due,
    ]


def test_cancel_end_start_and_stop_in_any_order_leave_one_story() -> None:
    flow.world(nodes=2)
    for number in range(8):
        job = flow.long_job(asks=[{"form": "container", "nodes": 2}])
        placing.place_queued()
        attempt, members = flow.attempt_of(job), [a.pk for a in flow.open_allocations(job)]
        works = _contrary_steps(job, attempt.pk, members)
        random.Random(number).shuffle(works)
        answers = at_once(works)
        assert all(not isinstance(a, Exception) or isinstance(a, Conflict) for a in answers), answers
        flow.finish(job)
        attempt.refresh_from_db()
        expected = JobState.CANCELLED if job.cancel_reason else JobState.SUCCEEDED
        assert (job.state, attempt.n) == (expected, 1)
        for verb in ("job.stopping", f"job.{job.state}"):
            assert AuditEvent.objects.filter(target_type="job", target_id=str(job.pk), verb=verb).count() == 1
        assert Command.objects.filter(attempt=attempt).count() == 4
    assert not Allocation.objects.exclude(state=AllocationState.CLOSED).exists()


def test_two_ticks_and_two_of_every_task_change_nothing_but_the_pace() -> None:
    flow.world(nodes=2)
    driver = Counting()
    jobs = [flow.long_job(asks=[CARD]) for _ in range(8)]
    with flow.simulated_by(driver):
        at_once([placing.place_queued] * 4)
        placing.place_queued()  # all four may have found the lock taken by one that had read before the last job
        assert Allocation.objects.count() == 8
        counts = at_once([commands.run_due] * 4)
        assert sum(count["start"] for count in counts) == 8
        assert sorted(driver.born) == sorted(a.key for job in jobs for a in flow.open_allocations(job))
        at_once([observing.observe_all] * 4)
        flow.run_on()
        at_once([observing.observe_all] * 4)
        flow.make_due()
        stops = at_once([commands.run_due] * 4)
        assert sum(count["stop"] for count in stops) == 8
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.SUCCEEDED}
    assert SimulatedMember.objects.count() == len(set(driver.born)) == 8
    assert AuditEvent.objects.filter(verb="job.succeeded").count() == 8


def test_one_key_from_eight_clients_at_once_is_one_job() -> None:
    flow.world()
    actor = factories.user("researcher")
    data = job_data(actor)
    told = whatif.outlook(whatif.candidate(data, Project.objects.get(slug="vision")))
    for key in ("a", "b", "c"):
        step = partial(queue.submit, data=data, actor=actor, via="test", client_key=key, outlook=told)
        answers = at_once([step] * THREADS)
        assert all(isinstance(answer, Job) for answer in answers), answers
        assert len({job.pk for job in answers}) == 1
    assert Job.objects.count() == 3
    assert AuditEvent.objects.filter(verb="job.submitted").count() == 3
    assert Promise.objects.count() == 3  # one a job, in its transaction


def _shuffled(proposal: Proposal, draw: random.Random) -> Proposal:
    """The members in any order: who locks in the order of the plan will meet another who does."""
    snap, whole = proposal
    placements = tuple(
        dataclasses.replace(p, members=tuple(draw.sample(p.members, len(p.members)))) for p in whole.placements
    )
    return snap, dataclasses.replace(whole, placements=placements)


def _any_step(draw: random.Random, nodes: Sequence[Node], proposals: list[Proposal], jobs: Sequence[Job]) -> None:
    """One of the writers that take several locks, on something drawn."""
    match draw.randrange(5):
        case 0 | 1:
            if proposals:
                commit_plan(*proposals.pop())
        case 2:
            queue.cancel(job_id=draw.choice(jobs).pk, actor=jobs[0].by, reason="", via="test")
        case 3:
            hold = inventory.place_hold(
                kind=draw.choice([HoldKind.DRILL, HoldKind.FAULT]),
                reason="",
                actor=None,
                via="t",
                node=draw.choice(nodes),
            )
            inventory.end_hold(hold_id=hold.pk, reason="", actor=None, via="t")
        case _:
            commands.run_due(limit=5)


def test_sixty_rounds_of_everything_at_once_have_no_deadlock() -> None:
    flow.world(nodes=6, cards=2)
    nodes = list(Node.objects.order_by("pk"))
    found: list[Exception] = []
    with flow.simulated_by(Counting(World(lost_reply_rate=0.1, start_delay_s=(0, 0)))):
        for epoch in range(2):
            jobs = [flow.long_job(asks=[{**CARD, "nodes": 1 + n % 4}]) for n in range(48)]
            draw = random.Random(epoch)
            proposals = [_shuffled(_alone(job), draw) for job in jobs]
            draw.shuffle(proposals)
            parts = [proposals[n::THREADS] for n in range(THREADS)]

            def work(
                number: int, parts: list[list[Proposal]] = parts, jobs: list[Job] = jobs, epoch: int = epoch
            ) -> None:
                mine = random.Random(f"{epoch} {number}")
                for _ in range(30):
                    try:
                        _any_step(mine, nodes, parts[number], jobs)
                    except Conflict:
                        continue  # the job or hold has ended already
                    except DatabaseError as error:
                        found.append(error)

            at_once([lambda n=n: work(n) for n in range(THREADS)])
            for job in Job.objects.exclude(state__in=END_JOB_STATES):
                queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
            for _ in range(10):
                flow.turn()
    assert [error for error in found if not isinstance(error, IntegrityError)] == []
    assert not Job.objects.exclude(state__in=END_JOB_STATES).exists()
