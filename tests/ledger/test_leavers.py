"""What still stands in the name of people who have left."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import leavers, projects
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import ApiToken, Project, User
from ledger.people import create_token
from ledger.vocabulary import ProjectRole, ProjectState
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


def told(user: User) -> dict[str, list[Any]]:
    found = leavers.standing_in_name_of(user)
    return {
        "projects": [project.slug for project in found.projects],
        "running": [job.name for job in found.running],
        "queued": [job.name for job in found.queued],
        "tokens": [token.label for token in found.tokens],
    }


def gone(name: str) -> User:
    User.objects.filter(username=name).update(is_active=False)
    return User.objects.get(username=name)


def test_projects_jobs_and_tokens_are_listed_until_they_are_over() -> None:
    flow.world(cards=2)
    second = factories.project("second", researcher=ProjectRole.MEMBER)
    projects.hand_over(project=second, to=factories.user("researcher"), act=Act(None, "test"))
    over = flow.long_job(name="over")
    flow.start(over)
    flow.finish(over)
    flow.start(flow.long_job(name="runs"))
    flow.long_job(name="waits", asks=[{"form": "container", "cards_per_node": 2, "memory_mib": 0}])
    user = factories.user("researcher")
    for label in ("live", "revoked", "expired"):
        create_token(user=user, label=label, days=1, actor=user, via="test")
    ApiToken.objects.filter(label="revoked").update(revoked_at=database_now())
    ApiToken.objects.filter(label="expired").update(expires_at=database_now() - dt.timedelta(seconds=1))
    expected = {"projects": ["second"], "running": ["runs"], "queued": ["waits"], "tokens": ["live"]}
    assert told(user) == expected
    assert leavers.leavers() == []
    assert told(gone("researcher")) == expected
    assert [standing.user.username for standing in leavers.leavers()] == ["researcher"]


def test_a_project_that_has_ended_needs_nobody_any_more() -> None:
    project = factories.project("vision")
    user = gone("owner")
    assert [standing.user for standing in leavers.leavers()] == [user]
    Project.objects.filter(pk=project.pk).update(state=ProjectState.ENDED)
    assert leavers.leavers() == []


def test_who_left_nothing_is_not_listed() -> None:
    factories.cast()
    gone("auditor")
    assert leavers.leavers() == []


def test_many_leavers_take_no_more_queries() -> None:
    counts = []
    for n in range(4):
        factories.project(f"p{n}", **{f"gone-{n}": ProjectRole.MEMBER})
        create_token(user=factories.user(f"gone-{n}"), label="x", days=1, actor=None, via="test")
        gone(f"gone-{n}")
        with CaptureQueriesContext(connection) as asked:
            assert len(leavers.leavers()) == n + 1
        counts.append(len(asked))
    assert len(set(counts)) == 1
