"""How long things are expected to go on, learnt from what has ended, and what that makes of the queue."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger.clock import database_now
from ledger.models import Allocation, Job
from ledger.vocabulary import AllocationState, Form, JobState, Outcome, ProjectRole, Refusal
from scheduler import ending, placing, snapshot
from scheduler.durations import SOONEST_S, USUAL_LAG_S, Durations, kin
from scheduler.engine.types import Stay
from scheduler.models import Decision
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
CARD = {"form": "container", "memory_mib": 0}
WHOLE = {"form": "whole"}
RUNS = 24


@pytest.fixture(autouse=True)
def fresh() -> None:
    snapshot.forget()


def now() -> float:
    return database_now().timestamp()


def stays() -> list[Stay]:
    snapshot.node_views()
    return sorted(snapshot.stays_at(now()), key=lambda stay: stay.job_id)


def ended(count: int) -> None:
    """So many jobs that ran for a moment."""
    flow.finish(*(flow.long_job(asks=[CARD], name=f"sweep-{n}") for n in range(count)))


class TestDurations:
    def test_a_job_is_expected_to_run_as_jobs_like_it_did(self) -> None:
        flow.world(cards=RUNS)
        factories.project("speech", member=ProjectRole.MEMBER)
        known = Durations()
        mine = kin(True, factories.user("researcher").pk, "other", "sweep-99", 1, 1)
        other_name = mine._replace(name="train")
        other = mine._replace(who=factories.user("member").pk, name="train")
        real = mine._replace(simulated=False)
        known.read()
        before = {like: known.expected(like, 10**6) for like in (mine, other_name, other, real)}
        assert len(set(before.values())) == 1
        ended(RUNS)
        assert Job.objects.filter(state=JobState.SUCCEEDED).count() == RUNS
        known.read()
        after = {like: known.expected(like, 10**6) for like in (mine, other_name, other, real)}
        assert after[mine][0] < after[other_name][0] < after[other][0] < before[mine][0]
        assert after[real] == before[real]

    def test_never_beyond_the_time_limit(self) -> None:
        known = Durations()
        like = kin(True, 1, "other", "x", 1, 1)
        expected, surely = known.expected(like, 100)
        assert expected <= surely == 100
        assert known.left(like, 100, 99.0, 0.5) <= 1

    def test_jobs_of_one_name_with_numbers_are_alike(self) -> None:
        assert kin(True, 1, "other", "run-17", 1, 1) == kin(True, 1, "other", "run 18", 1, 1)
        assert kin(True, 1, "other", "run-17", 1, 0) == kin(True, 1, "other", "run-17", 1, 1)

    def test_cleaning_takes_as_long_as_it_did(self) -> None:
        flow.world(cards=RUNS)
        known = Durations()
        known.read()
        assert known.lag("simulated") == USUAL_LAG_S
        ended(2)
        known.read()
        assert 0 <= known.lag("simulated") < USUAL_LAG_S
        assert known.lag("other") == USUAL_LAG_S

    def test_what_is_known_is_read_again_when_it_is_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known = Durations()
        known.follow()
        first = known.histories
        known.follow()
        assert known.histories is first
        monkeypatch.setattr("scheduler.durations.GOOD_FOR_S", -1.0)
        known.follow()
        assert known.histories is not first


class TestStays:
    def test_they_are_what_is_on_the_nodes(self) -> None:
        flow.world(cards=4)
        assert stays() == []
        first = flow.long_job(asks=[{**CARD, "cards_per_node": 2}], walltime_s=600)
        second = flow.long_job(asks=[{**CARD, "memory_mib": 4000}], walltime_s=90_000)
        placing.place_queued()
        one, two = stays()
        members = {a.attempt.job_id: a for a in Allocation.objects.select_related("attempt")}
        assert (one.job_id, two.job_id) == (first.pk, second.pk)
        assert (one.form, one.node_id, one.cpu_milli) == (
            Form.CONTAINER, members[first.pk].node_id, members[first.pk].cpu_milli)  # fmt: skip
        assert [sum(hi - lo for lo, hi in memory) for _, memory, _ in two.cards] == [4000]
        since = members[first.pk].period.lower.timestamp()
        assert one.ends_at == pytest.approx(since + 600 + USUAL_LAG_S, abs=1)  # nothing is known but the limit
        assert two.ends_at < since + 90_000

    def test_what_is_told_to_end_is_gone_when_its_node_is_clean(self) -> None:
        flow.world(cards=4)
        job = flow.long_job(asks=[CARD])
        placing.place_queued()
        flow.start(job)
        [before] = stays()
        ending.end_attempt(attempt_id=flow.attempt_of(job).pk, outcome=Outcome.CANCELLED)
        [closing] = stays()
        assert Allocation.objects.get().state == AllocationState.CLOSING
        assert closing.ends_at < before.ends_at
        assert closing.ends_at == pytest.approx(now() + USUAL_LAG_S, abs=5)
        late = snapshot.stays_at(now() + 2 * USUAL_LAG_S)
        assert late[0].ends_at == pytest.approx(now() + 2 * USUAL_LAG_S + SOONEST_S, abs=5)
        ending.confirm_closed([Allocation.objects.get().pk])
        assert stays() == []

    def test_they_are_expected_anew_as_time_passes(self) -> None:
        flow.world(cards=4)
        flow.long_job(asks=[CARD], walltime_s=10**6)
        placing.place_queued()
        [early] = stays()
        [same] = snapshot.stays_at(now() + 30)
        assert same == early
        [later] = snapshot.stays_at(early.ends_at + 3600)
        assert later.ends_at > early.ends_at + 3600


class TestKept:
    def test_the_first_machine_to_come_free_is_kept_for_a_job_that_needs_one(self) -> None:
        flow.world(nodes=2, cards=2)
        two = {**CARD, "cards_per_node": 2}
        short, _long = (flow.long_job(asks=[two], walltime_s=seconds) for seconds in (600, 3600))
        placing.place_queued()
        there = {a.attempt.job_id: a.node.hostname for a in Allocation.objects.select_related("attempt", "node")}
        machine = flow.long_job(asks=[WHOLE])
        placing.place_queued()
        row = Decision.objects.get(job=machine, attempt=None)
        assert row.kept == {"nodes": [there[short.pk]], "ask": 0, "awaits": [short.pk]}
        assert row.begins_at is not None
        due = database_now() + dt.timedelta(seconds=600 + USUAL_LAG_S)
        assert abs(row.begins_at - due) < dt.timedelta(seconds=70)
        assert row.begins_at.second == 0
        assert row.policy == "small-first/1"
        assert row.expected_s is not None

    def test_others_run_there_meanwhile_if_they_will_have_ended(self) -> None:
        flow.world(cards=2)
        flow.long_job(asks=[CARD], walltime_s=3600)
        placing.place_queued()
        flow.long_job(asks=[WHOLE], priority=5)
        quick, slow = (flow.long_job(asks=[{**CARD, "memory_mib": 4000}], walltime_s=s) for s in (60, 90_000))
        placing.place_queued()
        quick.refresh_from_db()
        slow.refresh_from_db()
        assert (quick.state, slow.state) == (JobState.STARTING, JobState.QUEUED)
        assert Decision.objects.get(job=slow, attempt=None).reasons == [{str(Refusal.RESERVED): 1}]

    def test_nothing_is_kept_once_it_has_started(self) -> None:
        flow.world(cards=2)
        first = flow.long_job(asks=[CARD], walltime_s=600)
        placing.place_queued()
        machine = flow.long_job(asks=[WHOLE])
        placing.place_queued()
        assert Decision.objects.get(job=machine, attempt=None).kept
        ending.end_attempt(attempt_id=flow.attempt_of(first).pk, outcome=Outcome.CANCELLED)
        ending.confirm_closed([Allocation.objects.get().pk])
        placing.place_queued()
        placed = Decision.objects.get(job=machine, attempt__isnull=False)
        assert (placed.kept, placed.begins_at, placed.policy) == (None, None, "small-first/1")
