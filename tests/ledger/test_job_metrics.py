"""What applications tell: judged, kept within bounds, each moment once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import job_metrics
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.job_metrics import Verdict, verdict
from ledger.models import Job, JobMetric
from ledger.models.use import MetricSource
from tests.scheduler import flow


@pytest.mark.parametrize(
    ("p99", "sla", "told"),
    [
        (None, 100, Verdict.UNKNOWN), (50, None, Verdict.UNKNOWN), (100, 100, Verdict.MET), (0, 100, Verdict.MET),
        (101, 100, Verdict.MISSED), (200, 100, Verdict.MISSED), (200.1, 100, Verdict.FAR),
    ],
)  # fmt: skip
def test_the_verdict(p99: float | None, sla: float | None, told: Verdict) -> None:
    assert verdict(p99, sla) == told


@pytest.fixture
def job(db: None) -> Job:
    flow.world()
    made = flow.long_job()
    flow.start(made)
    return made


def record(job: Job, at: dt.datetime | None = None, **values: Any) -> tuple[JobMetric, bool]:
    return job_metrics.record(job_id=job.pk, values=values, source=MetricSource.PUSHED, at=at)


def test_what_was_promised_holds_on_until_it_is_told_anew(job: Job) -> None:
    assert record(job, p99_ms=5)[0].sla_ms is None
    record(job, sla_ms=100)
    assert record(job, p99_ms=50)[0].sla_ms == 100
    assert record(job, p99_ms=50, sla_ms=200)[0].sla_ms == 200
    assert record(job, queue_length=0)[0].sla_ms == 200


def test_the_same_moment_again_is_kept_as_it_was_first(job: Job) -> None:
    at = database_now()
    assert record(job, at, p99_ms=5)[1]
    metric, new = record(job, at, p99_ms=6)
    assert (metric.p99_ms, new, JobMetric.objects.count()) == (5, False, 1)


def test_moments_that_can_not_be(job: Job) -> None:
    now = database_now()
    for at, code in (
        (now + dt.timedelta(minutes=6), "future"),
        (job.submitted_at - dt.timedelta(seconds=1), "too_old"),
    ):
        with pytest.raises(Refused) as caught:
            record(job, at, p99_ms=1)
        assert (caught.value.field, caught.value.code) == ("at", code)
    metric, _ = record(job, now + dt.timedelta(minutes=4), p99_ms=1)
    assert metric.at <= database_now()  # a clock that is a little ahead tells of now
    assert JobMetric.objects.count() == 1


@pytest.mark.parametrize("ending", ["waiting", "ended"])
def test_a_job_that_does_not_run_tells_nothing(job: Job, ending: str) -> None:
    other = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000, "cards_per_node": 4}])
    if ending == "ended":
        flow.finish(job)
        other = job
    with pytest.raises(Conflict) as caught:
        record(other, p99_ms=1)
    assert (caught.value.code, JobMetric.objects.count()) == ("not_running", 0)


def test_the_newest_come_last_and_only_so_many(job: Job) -> None:
    now = database_now()
    rows = [
        JobMetric(job=job, at=now - dt.timedelta(seconds=n), source=MetricSource.PUSHED, queue_length=n)
        for n in range(6)
    ]
    JobMetric.objects.bulk_create(rows)
    assert [metric.queue_length for metric in job_metrics.history(job.pk, 3)] == [2, 1, 0]
    newest = job_metrics.latest(job.pk)
    assert newest is not None
    assert newest.queue_length == 0
    assert [metric.queue_length for metric in job_metrics.newest_of_running(now - dt.timedelta(minutes=1))] == [0]
    assert job_metrics.newest_of_running(now + dt.timedelta(minutes=1)) == []


def test_old_ones_and_those_above_the_number_go(job: Job, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.JOB_METRICS_KEPT_DAYS = 7
    monkeypatch.setattr(job_metrics, "MOST_KEPT", 3)
    now = database_now()
    ages = [dt.timedelta(days=8), *(dt.timedelta(seconds=n) for n in range(5))]
    JobMetric.objects.bulk_create(
        JobMetric(job=job, at=now - age, source=MetricSource.PUSHED, queue_length=n) for n, age in enumerate(ages)
    )
    assert job_metrics.trim() == {"old": 1, "too_many": 2}
    assert [metric.queue_length for metric in job_metrics.history(job.pk)] == [3, 2, 1]
    assert job_metrics.trim() == {"old": 0, "too_many": 0}


@pytest.mark.parametrize(
    "values",
    [{"p99_ms": -1}, {"p99_ms": float("nan")}, {"sla_ms": 0}, {"tokens_per_s": float("inf")}, {"queue_length": -1}],
)
def test_the_database_takes_no_nonsense(job: Job, values: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match="metric_not_negative"), transaction.atomic():
        JobMetric.objects.create(job=job, at=database_now(), source=MetricSource.PUSHED, **values)


@pytest.mark.parametrize(
    "values", [{"metrics_port": 80, "metrics_path": "/m"}, {"metrics_port": 8000}, {"metrics_path": "/m"}]
)
def test_an_address_is_whole(job: Job, values: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match="job_metrics_at_an_address"), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**values)
