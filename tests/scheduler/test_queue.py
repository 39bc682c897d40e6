"""Submitting: who may, once a key, and whatever the broker does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.errors import Refused
from ledger.models import AuditEvent, Job, Membership, Project, User
from ledger.vocabulary import JobState, ProjectRole, ProjectState
from scheduler import queue, wake
from scheduler.queue import KeyReused
from tests import factories
from tests.factories import job_data

pytestmark = pytest.mark.django_db
DAY = dt.timedelta(days=1)


@pytest.fixture
def people() -> dict[str, User]:
    return factories.cast()


def _submit(actor: User, key: str | None = None, **values: Any) -> Job:
    return queue.submit(data=job_data(actor, **values), actor=actor, via="test", client_key=key)


def test_a_job_is_queued_with_its_audit_row(people: dict[str, User]) -> None:
    job = _submit(people["member"])
    event = AuditEvent.objects.get(target_type="job", target_id=str(job.pk))
    assert job.state == JobState.QUEUED
    assert (event.verb, event.actor, event.project, event.via) == (
        "job.submitted",
        people["member"],
        job.project,
        "test",
    )
    assert event.at == job.submitted_at == job.queued_at


@pytest.mark.parametrize(
    ("name", "code"), [("outsider", "unknown_project"), ("manager", "role"), ("auditor", "role"), ("operator", "role")]
)
def test_others_do_not_submit_into_a_project(people: dict[str, User], name: str, code: str) -> None:
    with pytest.raises(Refused) as refusal:
        _submit(people[name])
    assert (refusal.value.code, refusal.value.field) == (code, "project")
    assert not Job.objects.exists()


def test_a_viewer_does_not_submit_and_an_admin_does(people: dict[str, User]) -> None:
    Membership.objects.filter(user=people["member"]).update(role=ProjectRole.VIEWER)
    with pytest.raises(Refused):
        _submit(people["member"])
    assert _submit(people["admin"]).state == JobState.QUEUED


@pytest.mark.parametrize(
    "change",
    [
        {"state": ProjectState.ENDING},
        {"state": ProjectState.ENDED},
        {"starts_on": dt.date(2020, 1, 1), "ends_on": dt.date(2020, 2, 2)},
        {"starts_on": dt.date(2200, 1, 1), "ends_on": None},
    ],
)
def test_a_project_out_of_its_time_takes_no_jobs(people: dict[str, User], change: dict[str, Any]) -> None:
    Project.objects.filter(slug="vision").update(**change)
    with pytest.raises(Refused) as refusal:
        _submit(people["member"])
    assert refusal.value.code == "project_ended"
    assert not Job.objects.exists()


def test_the_same_key_gives_the_same_job(people: dict[str, User]) -> None:
    first = _submit(people["member"], "k")
    assert _submit(people["member"], "k") == first
    assert _submit(people["researcher"], "k") != first  # keys are each person's own
    assert _submit(people["member"], "other") != first
    assert _submit(people["member"]) != _submit(people["member"])
    assert AuditEvent.objects.filter(target_id=str(first.pk), verb="job.submitted").count() == 1


def test_the_same_key_with_another_body_is_refused(people: dict[str, User]) -> None:
    _submit(people["member"], "k")
    with pytest.raises(KeyReused) as refusal:
        _submit(people["member"], "k", name="another")
    assert refusal.value.field == "Idempotency-Key"
    assert Job.objects.count() == 1


def test_a_key_of_a_project_that_was_left_is_refused_with_a_reason(people: dict[str, User]) -> None:
    _submit(people["member"], "k")
    factories.project("speech", member=ProjectRole.MEMBER)
    factories.leave(Project.objects.get(slug="vision"), people["member"])
    with pytest.raises(KeyReused):
        _submit(people["member"], "k", project="speech")
    with pytest.raises(Refused) as refusal:
        _submit(people["member"], "k")
    assert refusal.value.code == "unknown_project"
    assert Job.objects.count() == 1


def test_a_broker_that_is_away_does_not_fail_a_submission(
    people: dict[str, User], settings: Any, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(wake, "_redis", None)
    with django_capture_on_commit_callbacks(execute=True) as rings:
        job = _submit(people["member"])
    assert len(rings) == 1
    assert Job.objects.get().pk == job.pk
    wake.answered("scheduler.tick")  # nor the worker
