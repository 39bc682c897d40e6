"""Metrics of applications by the API: who tells, what is taken, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Job, JobMetric, User
from scheduler.scrape_rows import JobScrape
from tests import factories
from tests.portal.api.client import Api, api, fields
from tests.portal.api.reports import now
from tests.portal.api.test_bad_input import attack

GOOD = {"p99_ms": 250.5, "sla_ms": 100, "tokens_per_s": 1200, "queue_length": 7}


def path(job: Job) -> str:
    return f"jobs/{job.pk}/metrics/"


def test_what_is_told_comes_back(running: Job, researcher: Api) -> None:
    told = researcher.post(path(running), GOOD)
    assert told.status_code == 201
    body = told.json()
    assert {name: body[name] for name in GOOD} == GOOD
    assert (body["source"], body["verdict"]) == ("pushed", "far")
    found = researcher.get(path(running)).json()
    assert (found["latest"], found["history"], found["scrape"]) == (body, [body], None)


def test_the_same_moment_again_changes_nothing(running: Job, researcher: Api) -> None:
    at = now()
    first = researcher.post(path(running), GOOD | {"at": at})
    again = researcher.post(path(running), GOOD | {"at": at, "p99_ms": 1})
    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())


def test_any_member_who_may_submit_tells_for_a_job_of_the_project(running: Job, people: dict[str, User]) -> None:
    assert api(people["member"]).post(path(running), GOOD).status_code == 201
    assert api(people["operator"]).post(path(running), GOOD).status_code == 403
    assert api(people["outsider"]).post(path(running), GOOD).status_code == 404
    assert JobMetric.objects.count() == 1


BAD = [
    ("p99_ms", "-1"), ("p99_ms", "NaN"), ("p99_ms", "1e309"), ("p99_ms", "86400001"), ("p99_ms", "true"),
    ("p99_ms", '"3"'), ("p99_ms", "null"), ("p99_ms", "[1]"), ("p99_ms", "1" * 400), ("sla_ms", "0"),
    ("sla_ms", "-5"), ("tokens_per_s", "1e10"), ("tokens_per_s", "-0.1"), ("queue_length", "1.5"),
    ("queue_length", "-1"), ("queue_length", "1000000001"), ("at", '"yesterday"'), ("at", '"2199-01-01T00:00:00Z"'),
    ("at", '"1999-01-01T00:00:00Z"'), ("evil", "1"),
]  # fmt: skip


def test_nonsense_is_refused_by_name_in_both_languages(running: Job, people: dict[str, User]) -> None:
    wrong = []
    for field, raw in BAD:
        body = ('{"queue_length": 1, "%s": %s}' % (field, raw)).encode()  # noqa: UP031
        if field == "queue_length":
            body = ('{"%s": %s}' % (field, raw)).encode()  # noqa: UP031
        callers = {language: api(people["researcher"], language) for language in ("en", "zh-hans")}
        document = raw in ("NaN", "1e309")

        def send(language: str, body: bytes = body, callers: dict[str, Api] = callers) -> Any:
            return callers[language].raw(path(running), body)

        if found := attack(send, None if document else field):
            wrong.append(f"{field} {raw[:30]}: {found}")
    assert wrong == []


@pytest.mark.parametrize("body", [{}, {"at": "2026-12-01T00:00:00Z"}])
def test_something_must_be_told(running: Job, researcher: Api, body: dict[str, Any]) -> None:
    assert researcher.post(path(running), body).status_code == 400


def test_how_reading_it_goes_is_told(running: Job, researcher: Api) -> None:
    Job.objects.filter(pk=running.pk).update(metrics_port=8000, metrics_path="/metrics")
    assert researcher.get(path(running)).json()["scrape"] is None
    JobScrape.objects.create(job=running, tried_at=database_now(), failures=2, failed=3, error="no route")
    scrape = researcher.get(path(running)).json()["scrape"]
    assert (scrape["failures"], scrape["error"], scrape["answered"]) == (2, "no route", None)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ({}, (None, "")),
        ({"metrics_port": 8000}, (8000, "/metrics")),
        ({"metrics_port": 8000, "metrics_path": "/v1/metrics"}, (8000, "/v1/metrics")),
    ],
)
def test_a_job_names_where_its_metrics_are(
    researcher: Api, spec: Callable[..., dict[str, Any]], people: Any, values: dict[str, Any], stored: Any
) -> None:
    factories.node("n1", cards=1)
    made = researcher.post("jobs/", spec(**values))
    assert made.status_code == 201
    job = Job.objects.get(pk=made.json()["id"])
    assert (job.metrics_port, job.metrics_path) == stored
    assert (made.json()["metrics_port"], made.json()["metrics_path"]) == stored


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"metrics_port": 80}, "metrics_port"),
        ({"metrics_port": 65_536}, "metrics_port"),
        ({"metrics_path": "/metrics"}, "metrics_port"),
        ({"metrics_port": 8000, "metrics_path": "metrics"}, "metrics_path"),
        ({"metrics_port": 8000, "metrics_path": "/../x"}, "metrics_path"),
        ({"metrics_port": 8000, "metrics_path": "/@evil:80/"}, "metrics_path"),
        ({"metrics_port": 8000, "metrics_path": "/a?b=c"}, "metrics_path"),
        ({"metrics_port": 8000, "metrics_path": "/a b"}, "metrics_path"),
    ],
)
def test_addresses_that_are_none(
    researcher: Api, spec: Callable[..., dict[str, Any]], values: dict[str, Any], field: str
) -> None:
    refused = researcher.post("jobs/", spec(**values))
    assert (refused.status_code, fields(refused)) == (400, {field})
