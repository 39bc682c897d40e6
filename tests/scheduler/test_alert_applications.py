"""What applications tell as alerts see it: P99 as a multiple of its promise, tokens a second, waiting requests."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Job, JobMetric
from ledger.models.use import MetricSource
from scheduler.alert_metrics import METRICS, Reach, World
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    flow.world()
    made = flow.long_job(kind="inference", priority=7)
    flow.start(made)
    return made


def tell(job: Job, age_s: float = 0, **values: Any) -> None:
    at = database_now() - dt.timedelta(seconds=age_s)
    JobMetric.objects.create(job=job, at=at, source=MetricSource.PUSHED, **values)


@pytest.mark.parametrize(
    ("name", "told", "value"),
    [
        ("p99_over_sla", {"p99_ms": 250, "sla_ms": 100}, 2.5),
        ("p99_over_sla", {"p99_ms": 250}, None),
        ("p99_over_sla", {"sla_ms": 100}, None),
        ("tokens_per_s", {"tokens_per_s": 3.5}, 3.5),
        ("queue_length", {"queue_length": 9}, 9),
        ("queue_length", {"p99_ms": 1}, None),
    ],
)
def test_the_newest_is_read(job: Job, name: str, told: dict[str, Any], value: float | None) -> None:
    tell(job, 30, p99_ms=1, sla_ms=1, tokens_per_s=1000, queue_length=1000)
    tell(job, **told)
    found = list(METRICS[name](World(), Reach(above=2)))
    assert [reading.value for reading in found] == ([] if value is None else [value])
    for reading in found:
        labels = {"job": str(job.pk), "project": "vision", "kind": "inference", "priority": "7", "preemptible": "false"}
        assert (reading.labels, reading.url, reading.simulated) == (labels, f"/jobs/{job.pk}/", True)


def test_what_no_rule_looks_at_is_left_out(job: Job) -> None:
    tell(job, queue_length=5)
    assert list(METRICS["queue_length"](World(), Reach(above=5))) == []
    assert list(METRICS["queue_length"](World(), Reach())) == []


def test_what_was_told_long_ago_is_not_known_any_more(job: Job) -> None:
    tell(job, 200, queue_length=5)
    assert list(METRICS["queue_length"](World(), Reach(above=1))) == []


def test_a_job_that_has_ended_alerts_nobody(job: Job) -> None:
    tell(job, queue_length=5)
    flow.finish(job)
    assert list(METRICS["queue_length"](World(), Reach(above=1))) == []
