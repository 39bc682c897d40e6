"""The figures before and since a change of quota: each counts what it says, in its span."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger import quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Job, Project
from ledger.quota import Terms
from ledger.vocabulary import Outcome, Resource, SiteRole
from scheduler import placing
from scheduler.ending import end_attempt
from scheduler.quota_effect import effect, spent
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
HOUR = dt.timedelta(hours=1)
CARD = {"form": "container", "memory_mib": 0}


def test_each_figure_counts_what_it_says() -> None:
    flow.world(cards=4)
    project = Project.objects.get(slug="vision")
    first = flow.long_job(asks=[CARD])
    Job.objects.filter(pk=first.pk).update(queued_at=database_now() - dt.timedelta(minutes=10))
    flow.start(first)
    changed = database_now()
    terms = Terms(Resource.CARD_MILLI, 3000)
    quota.set_grant(project=project, terms=terms, act=Act(factories.user("admin", SiteRole.ADMIN), "test", "more"))
    second, third, waiting = (flow.long_job(asks=[CARD]) for _ in range(3))
    flow.start(second, third)
    end_attempt(attempt_id=flow.attempt_of(third).pk, outcome=Outcome.PREEMPTED)
    placing.place_queued()
    before, after = effect([project.pk], changed, changed + HOUR)
    assert (before.starts_at, before.ends_at, after.ends_at) == (changed - HOUR, changed, changed + HOUR)
    assert (before.placed, after.placed) == (1, 2)
    assert 600 <= before.mean_wait_s < 660
    assert before.mean_wait_s == before.p90_wait_s
    assert 0 <= after.mean_wait_s < 60
    assert (before.refused, after.refused) == (0, 1)
    assert (before.preempted, after.preempted) == (0, 1)
    assert 1000 <= before.used < 60_000  # one card for some seconds
    assert 3000 <= after.used < 180_000  # three cards, each second begun is counted
    assert Job.objects.get(pk=waiting.pk).state == "queued"


def test_what_was_spent_is_cut_at_the_boundaries_and_told_by_model() -> None:
    flow.world(cards=2)
    job = flow.long_job(asks=[CARD])
    flow.start(job)
    [held] = flow.open_allocations(job)
    at = held.period.lower
    windows = [(at, at + HOUR), (at - HOUR, at)]
    [now, before] = spent(job.project_id, "", windows)
    assert (before.starts_at, before.ends_at, before.used) == (at - HOUR, at, 0)
    assert 1000 <= now.used < 60_000
    assert [one.used for one in spent(job.project_id, "T4", windows)] == [0, 0]
    assert spent(job.project_id, "A100", windows)[0].used >= now.used
    assert spent(job.project_id, "", []) == []
    half = at + dt.timedelta(milliseconds=500)
    assert [one.used for one in spent(job.project_id, "", [(at, half)])] == [1000]  # each second begun counts


def test_nothing_happened() -> None:
    flow.world()
    now = database_now()
    for span in effect([Project.objects.get(slug="vision").pk], now - HOUR, now):
        assert (span.used, span.placed, span.mean_wait_s, span.p90_wait_s, span.refused, span.preempted) == (0,) * 6


def test_a_job_that_ran_through_the_change_counts_on_both_sides() -> None:
    flow.world(cards=1)
    flow.start(flow.long_job(asks=[CARD]))
    begun = database_now()
    before, after = effect([Project.objects.get(slug="vision").pk], begun, begun + HOUR)
    assert before.used > 0
    assert after.used > 0
