"""What projects may count on, read from the rows: nothing while nobody is guaranteed anything."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest
from django.db import connection

from ledger import quarters
from ledger.clock import database_now
from ledger.models import Job, Project, QuotaGrant, RollUp, UsageQuarter
from ledger.vocabulary import Account, Form, Resource
from scheduler import snapshot, standings
from scheduler.models import Preemption
from scheduler.placing import FEWEST, LONG, MOST, WHOLE_EVERY_S, _Looked
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
CARD = {"form": "container", "memory_mib": 0}


def _grant(guaranteed: int = 0, weight: int = 1) -> Project:
    project = Project.objects.get(slug="vision")
    grant = factories.grant(project, Resource.CARD_MILLI, 4_000)
    grant.guaranteed, grant.weight = guaranteed, weight
    grant.save(update_fields=["guaranteed", "weight"])
    return project


def test_grants_without_guarantee_or_weight_leave_the_queue_as_it_is() -> None:
    flow.world()
    _grant()
    assert standings.read() == ()


@pytest.mark.parametrize(("guaranteed", "weight"), [(1_000, 1), (0, 3)])
def test_a_guarantee_or_a_weight_counts_and_what_is_held_by_world(guaranteed: int, weight: int) -> None:
    flow.world()
    project = _grant(guaranteed, weight)
    flow.start(flow.long_job(asks=[{**CARD, "cards_per_node": 2}]), flow.long_job(asks=[{**CARD, "memory_mib": 8_001}]))
    real, simulated = standings.read()
    assert (real.project_id, real.simulated, real.held) == (project.pk, False, 0)
    assert (simulated.simulated, simulated.held, simulated.limit) == (True, 2_501, 4_000)
    assert (simulated.guaranteed, simulated.weight) == (guaranteed, weight)


def test_what_inference_holds_is_told_apart() -> None:
    flow.world()
    _grant(1_000)
    flow.start(flow.long_job(asks=[CARD], kind="inference"), flow.long_job(asks=[CARD], kind="training"))
    _, simulated = standings.read()
    assert (simulated.held, simulated.serving) == (2_000, 1_000)


@pytest.mark.breaks_books  # quarters of what never ran
def test_usage_counts_half_after_its_half_life(settings: Any) -> None:
    settings.FAIR_SHARE_HALF_LIFE_HOURS = 24.0
    flow.world()
    project, edge = Project.objects.get(), quarters.floor(database_now())
    RollUp.objects.create(pk=1, since=edge - dt.timedelta(days=9), until=edge)
    for days in (0, 1, 2):
        UsageQuarter.objects.create(
            starts_at=edge - dt.timedelta(days=days, minutes=15),
            simulated=True,
            model="A100",
            card_memory_mib=16_000,
            account=Account.USED,
            project=project,
            form=Form.CONTAINER,
            mib_seconds=16_000 * 900,  # a card for a quarter
        )
    found = standings.usage()[project.pk, True]
    assert found == pytest.approx(900_000 * (1 + 0.5 + 0.25), rel=0.03)


def test_what_is_not_rolled_up_yet_counts_from_the_book() -> None:
    flow.world()
    project = Project.objects.get()
    flow.start(flow.long_job(asks=[{**CARD, "cards_per_node": 2}]))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.2)")
    snapshot.forget()
    assert 300 < standings.usage()[project.pk, True] < 2_000 * 60


def test_of_a_long_queue_the_first_of_each_kind_are_read() -> None:
    flow.world(nodes=1)
    firsts = []
    for ask in (CARD, {**CARD, "cards_per_node": 2}):
        for priority in (0, 1):
            jobs = [flow.long_job(asks=[ask], priority=priority) for _ in range(4)]
            firsts += [job.pk for job in jobs[:2]]
    found = [job.pk for job in snapshot.queued_jobs(heads=2)]
    assert sorted(found) == sorted(firsts)
    assert len(snapshot.queued_jobs()) == 16
    assert found == [job.pk for job in snapshot.queued_jobs() if job.pk in found]


def test_a_grant_of_one_model_is_no_guarantee_of_all_cards() -> None:
    project = factories.project("vision")
    for model, amount, guaranteed in (("", 64_000, 32_000), ("H200", 8_000, 0)):
        grant = factories.grant(project, Resource.CARD_MILLI, amount, model=model)
        QuotaGrant.objects.filter(pk=grant.pk).update(guaranteed=guaranteed)
    assert {one.guaranteed for one in standings.read()} == {32_000}


def _keep_for(job: Job, seconds: int) -> None:
    now = database_now()
    kept = {"kept_until": now + dt.timedelta(seconds=seconds), "rule": "test", "cause": "tier", "ask_index": 0}
    Preemption.objects.create(job=job, made_at=now, form="container", nodes=[1], grace_s=60, inputs={}, **kept)


def test_in_a_short_look_at_a_long_queue_are_those_that_cards_are_kept_for() -> None:
    flow.world(nodes=1)
    jobs = [flow.long_job(asks=[CARD]) for _ in range(4)]
    _keep_for(jobs[3], 1)
    assert [job.pk for job in snapshot.queued_jobs(heads=2)] == [jobs[n].pk for n in (0, 1, 3)]
    time.sleep(1.1)
    assert [job.pk for job in snapshot.queued_jobs(heads=2)] == [jobs[n].pk for n in (0, 1)]


@pytest.mark.parametrize("heads", [None, 2])
def test_who_cards_are_kept_for_is_looked_at_however_long_the_queue_is(heads: int | None) -> None:
    flow.world()
    jobs = [flow.long_job(asks=[{**CARD, "memory_mib": n}]) for n in range(4)]
    _keep_for(jobs[3], 60)
    assert [job.pk for job in snapshot.queued_jobs(2, heads)] == [jobs[n].pk for n in (0, 1, 3)]
    _keep_for(jobs[0], 60)
    assert sorted(job.pk for job in snapshot.queued_jobs(2, heads)) == [jobs[n].pk for n in range(4)]


def test_a_long_queue_is_looked_at_wholly_now_and_then() -> None:
    assert _Looked().heads(0.0) is None
    assert _Looked(ended=0.0, took_s=0.1, jobs=LONG).heads(0.1) is None  # it is not long
    long = _Looked(ended=0.0, took_s=1.0, jobs=LONG + 1)
    assert [long.heads(at) for at in (WHOLE_EVERY_S, 33.2, 33.4)] == [FEWEST, FEWEST, None]
    assert long.learn(FEWEST, FEWEST)  # all of a kind found room: more of it may
    assert long.heads(0.1) == 8
    assert long.learn(8, 8)
    assert long.heads(0.1) == 16
    assert not long.learn(16, 11)
    assert long.heads(0.1) == 17
    assert not long.learn(17, 0)
    assert long.heads(0.1) == 8
    assert [long.learn(*seen) or long.enough for seen in ((8, 0), (4, 0), (2, 0))] == [4, 2, FEWEST]
    assert long.learn(60, 60)
    assert long.enough == MOST
