"""What jobs ask for is learnt from the ledger, by version, and is what placing goes by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.models import Job
from ledger.vocabulary import AskForm
from scheduler import placing, snapshot, tasks, workload
from scheduler.engine.demand import GUESSED
from scheduler.engine.types import Demand
from scheduler.models import Decision, TaskRun, Workload
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def world(db: None) -> None:
    flow.world(2)


def queued(count: int = 1, **ask: Any) -> list[Job]:
    return [flow.long_job(asks=[{"form": "container", "cards_per_node": 1, **ask}]) for _ in range(count)]


def learn() -> dict[str, Any]:
    return workload.learn(snapshot.fleet_of(snapshot.node_views()))


def of_jobs(demand: tuple[Demand, ...]) -> dict[tuple[AskForm, int, int], float]:
    """Counts by form, cards and memory, without the three shapes that were made up."""
    return {(d.form, d.cards, d.memory_mib): d.count for d in demand[:-3]}


def test_nothing_is_learnt_from_an_empty_ledger() -> None:
    assert learn() == {"version": None, "jobs": 0}
    assert workload.newest() == workload.Learnt()


def test_a_version_says_what_the_jobs_asked_for_first() -> None:
    queued(2, memory_mib=4096)
    queued(memory_mib=0, nodes=2)
    flow.long_job(asks=[{"form": "whole", "cards_per_node": 4}, {"form": "container", "cards_per_node": 4}])
    found = learn()
    assert (found["jobs"], found["learnt"]) == (4, True)
    learnt = workload.newest()
    assert learnt.version == found["version"]
    assert of_jobs(learnt.demand) == {
        (AskForm.CONTAINER, 1, 4096): 2,
        (AskForm.CONTAINER, 1, 0): 2,  # a gang counts once a node
        (AskForm.WHOLE, 4, 0): 1,
    }
    assert sum(d.count for d in learnt.demand[-3:]) == pytest.approx(GUESSED)
    assert {d.simulated for d in learnt.demand} == {True}


def test_a_new_version_is_written_only_when_the_jobs_have_changed() -> None:
    queued(20, memory_mib=4096)
    first = learn()["version"]
    queued(1, memory_mib=8192)
    assert learn() == {"version": first, "jobs": 21}
    queued(20, memory_mib=8192)
    second = learn()
    assert second["learnt"]
    assert second["version"] > first
    assert Workload.objects.count() == 2


def test_only_the_newest_jobs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    queued(3, memory_mib=4096)
    queued(2, memory_mib=8192)
    monkeypatch.setattr(workload, "LOOKED_AT", 2)
    assert learn()["jobs"] == 2
    assert of_jobs(workload.newest().demand) == {(AskForm.CONTAINER, 1, 8192): 2}


def test_placing_goes_by_the_newest_version_and_its_decision_says_so() -> None:
    job = queued(memory_mib=4096)[0]
    assert snapshot.read([]).workload is None
    version = learn()["version"]
    taken = snapshot.read([job])
    assert taken.workload == version
    assert taken.demand == workload.newest().demand
    assert snapshot.fleet_of(taken.nodes).workloads[True].count.tolist() == [d.count for d in taken.demand]
    placing.place_queued()
    assert Decision.objects.get(job=job).workload_id == version


@pytest.mark.django_db(transaction=True)  # tasks close old connections
def test_the_task_says_what_it_learnt() -> None:
    queued(memory_mib=4096)
    result = tasks.learn()
    assert result["learnt"]
    assert TaskRun.objects.get(name="scheduler.learn").result == result


class TestDifference:
    SHAPE = Demand(False, AskForm.CONTAINER, 1, 0, 1000, 1000, 9.0)

    def test_is_the_part_that_asks_for_something_else(self) -> None:
        other = replace(self.SHAPE, cards=2, count=1.0)
        assert workload.difference([self.SHAPE], [self.SHAPE]) == 0
        assert workload.difference([self.SHAPE], [replace(self.SHAPE, count=18.0)]) == 0
        assert workload.difference([self.SHAPE], [self.SHAPE, other]) == pytest.approx(0.1)
        assert workload.difference([self.SHAPE, other], [other]) == pytest.approx(0.9)

    def test_a_world_that_is_new_has_changed_wholly(self) -> None:
        assert workload.difference([self.SHAPE], [self.SHAPE, replace(self.SHAPE, simulated=True)]) == 1
        assert workload.difference([], [self.SHAPE]) == 1
        assert workload.difference([], []) == 0


def test_a_wish_that_leaves_fields_out_counts_with_what_the_engine_takes_for_them() -> None:
    Job.objects.filter(pk=queued()[0].pk).update(asks=[{"form": "container"}])
    learn()
    assert of_jobs(workload.newest().demand) == {(AskForm.CONTAINER, 1, 0): 1}
