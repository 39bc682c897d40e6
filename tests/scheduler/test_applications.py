"""What applications tell at their own address: names that are known, percentiles and rates between two readings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models import F

from ledger import job_metrics
from ledger.models import Job, JobMetric, Node
from ledger.models.use import MetricSource
from scheduler import applications, scraping
from scheduler.applications import p99_ms, reading_of, values_of
from scheduler.scrape_rows import JobScrape
from scheduler.scraping import samples_of
from tests.scheduler import flow
from tests.scheduler.exporter import Exporter, exporter

VLLM = """
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="m",engine="0"}} 3.0
vllm:num_requests_waiting{{model_name="m",engine="1"}} 4.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{model_name="m"}} {tokens}
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{{le="0.5",model_name="m"}} {fast}
vllm:e2e_request_latency_seconds_bucket{{le="1.0",model_name="m"}} {all}
vllm:e2e_request_latency_seconds_bucket{{le="+Inf",model_name="m"}} {all}
vllm:e2e_request_latency_seconds_count{{model_name="m"}} {all}
vllm:e2e_request_latency_seconds_sum{{model_name="m"}} 9
"""


def vllm(tokens: int = 0, fast: int = 0, total: int = 0) -> str:
    return VLLM.format(tokens=tokens, fast=fast, all=total)


def read(text: str) -> dict[str, Any]:
    return reading_of(scraping.samples_of(text))


# -- its text ----------------------------------------------------------------------------------------------------------


def test_vllm() -> None:
    buckets = {"0.5": 10.0, "1.0": 20.0, "+Inf": 20.0}
    assert read(vllm(1000, 10, 20)) == {"plain": {}, "queue": 7.0, "tokens": 1000.0, "buckets": buckets}


def test_text_generation_inference() -> None:
    text = (
        '# TYPE tgi_queue_size gauge\ntgi_queue_size 2\n# TYPE tgi_request_duration histogram\n'
        'tgi_request_duration_bucket{le="1"} 5\ntgi_request_duration_bucket{le="+Inf"} 5\n'
        '# TYPE tgi_request_generated_tokens histogram\ntgi_request_generated_tokens_sum 640\n'
    )  # fmt: skip
    assert read(text) == {"plain": {}, "queue": 2.0, "tokens": 640.0, "buckets": {"1": 5.0, "+Inf": 5.0}}


def test_our_own_names_come_first() -> None:
    text = "gpu_commons_p99_ms 120\ngpu_commons_sla_ms 100\ngpu_commons_tokens_per_s 9.5\ngpu_commons_queue_length 1\n"
    reading = read(text + vllm(1000))
    assert values_of(reading, {}, None) == {"p99_ms": 120, "sla_ms": 100, "tokens_per_s": 9.5, "queue_length": 1}


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf"])
def test_values_that_are_none_are_left_out(value: str) -> None:
    assert read(f"gpu_commons_p99_ms {value}\n") == {"plain": {}}


@pytest.mark.parametrize(
    "line",
    [
        "gpu_commons_p99_ms 1e12",
        "gpu_commons_sla_ms 0",
        "gpu_commons_queue_length 1e30",
        "gpu_commons_tokens_per_s 1e10",
    ],
)
def test_values_that_no_application_can_have_are_left_out(line: str) -> None:
    assert values_of(read(line + "\n"), {}, None) == {}


def test_another_program_tells_nothing() -> None:
    assert read("# TYPE go_goroutines gauge\ngo_goroutines 12\n") == {"plain": {}}


# -- between two readings ----------------------------------------------------------------------------------------------

BOUNDS = ("0.1", "0.5", "1", "+Inf")


def buckets(*counts: float) -> dict[str, float]:
    return dict(zip(BOUNDS, counts, strict=True))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (buckets(0, 0, 0, 0), buckets(100, 100, 100, 100), 99.0),  # all within 100 ms
        (buckets(0, 0, 0, 0), buckets(0, 100, 100, 100), 496.0),  # 0.1 + 0.4 × 0.99
        (buckets(50, 50, 50, 50), buckets(50, 150, 150, 150), 496.0),  # only what came since
        (buckets(0, 0, 0, 0), buckets(0, 0, 0, 10), 1000.0),  # slower than the last bound: at least that
        (buckets(0, 0, 0, 0), buckets(98, 98, 100, 100), 750.0),  # the 99th of a hundred: half of 0.5 to 1
        (buckets(9, 9, 9, 9), buckets(9, 9, 9, 9), None),  # nothing came
        (buckets(9, 9, 9, 9), buckets(1, 1, 1, 1), None),  # it began anew
        ({"0.2": 1.0, "+Inf": 1.0}, buckets(5, 5, 5, 5), None),  # other bounds than before
        ({}, {"+Inf": 5.0}, None),
        ({}, {"0.1": 5.0}, None),  # no bucket for all
        ({}, {"x": 5.0, "0.1": 4.0, "+Inf": 5.0}, 100.0),
    ],
)
def test_p99(before: dict[str, float], after: dict[str, float], told: float | None) -> None:
    found = p99_ms(before, after)
    assert found == (pytest.approx(told) if told is not None else None)


def test_tokens_a_second() -> None:
    first, second = read(vllm(1000)), read(vllm(1600))
    assert values_of(second, first, 10)["tokens_per_s"] == 60
    assert "tokens_per_s" not in values_of(first, second, 10)  # it began anew
    assert "tokens_per_s" not in values_of(first, {}, None)


# -- a pass over real HTTP ---------------------------------------------------------------------------------------------


@pytest.fixture
def served(settings: Any) -> Iterator[Exporter]:
    with exporter() as found:
        settings.OUTBOUND_ALLOW = [found.place()]
        yield found


@pytest.fixture
def job(db: None, served: Exporter) -> Job:
    """One that runs on a node whose name leads to the test's own server."""
    flow.world()
    made = flow.long_job(metrics_port=served.port, metrics_path="/metrics")
    flow.start(made)
    Node.objects.update(hostname="127.0.0.1", simulated=False)
    Job.objects.update(simulated=False)
    return made


def an_earlier_reading(seconds: float) -> None:
    JobScrape.objects.update(ok_at=F("ok_at") - dt.timedelta(seconds=seconds))


def test_two_readings_tell_of_the_time_between(job: Job, served: Exporter) -> None:
    served.body = vllm(1000, 10, 10).encode()
    assert applications.scrape_jobs() == {"read": 1, "failed": 0}
    first = job_metrics.latest(job.pk)
    assert first is not None
    assert (first.queue_length, first.p99_ms, first.tokens_per_s, first.source) == (7, None, None, MetricSource.SCRAPED)
    an_earlier_reading(10)
    served.body = vllm(1600, 10, 110).encode()
    applications.scrape_jobs()
    second = job_metrics.latest(job.pk)
    assert second is not None
    assert second.p99_ms == pytest.approx(995)
    assert second.tokens_per_s == pytest.approx(60, rel=0.2)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"secret of others {", 200, "not in the text format of Prometheus"),
        (b"\x00", 200, "not in the text format of Prometheus"),
        (b"", 200, "it tells nothing that is known here"),
        (b"secret of others", 404, "it answered 404"),
    ],
)
def test_failures_are_counted_and_told(job: Job, served: Exporter, body: bytes, status: int, said: str) -> None:
    served.body, served.status = body, status
    for _ in range(2):
        assert applications.scrape_jobs() == {"read": 0, "failed": 1}
        JobScrape.objects.update(tried_at=F("tried_at") - dt.timedelta(minutes=6))
    row = JobScrape.objects.get()
    assert said in row.error
    assert "secret" not in row.error
    assert (row.failures, row.failed) == (2, 2)
    assert not JobMetric.objects.exists()
    served.body, served.status = vllm().encode(), 200
    applications.scrape_jobs()
    row.refresh_from_db()
    assert (row.failures, row.failed, row.error) == (0, 2, "")


@pytest.mark.parametrize("change", [{"simulated": True}, {"state": "stopping"}])
def test_only_real_jobs_that_run_are_read(job: Job, served: Exporter, change: dict[str, Any]) -> None:
    Job.objects.update(**change)
    Node.objects.update(simulated=change.get("simulated", False))
    assert applications.scrape_jobs() == {"read": 0, "failed": 0}
    assert served.asked == 0


def test_one_that_names_no_address_is_not_read(job: Job, served: Exporter) -> None:
    Job.objects.update(metrics_port=None, metrics_path="")
    assert applications.scrape_jobs() == {"read": 0, "failed": 0}


def test_what_is_on_loopback_is_refused(job: Job, served: Exporter, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    assert applications.scrape_jobs() == {"read": 0, "failed": 1}
    assert served.asked == 0


def test_a_job_that_ended_meanwhile_gets_no_values(job: Job) -> None:
    Job.objects.update(state="stopping")
    applications.take(job.pk, vllm(1))
    assert JobMetric.objects.count() == 1  # stopping still tells
    flow.finish(job)
    applications.take(job.pk, vllm(2))
    assert JobMetric.objects.count() == 1


@pytest.mark.parametrize("le", ["x", "nan", "1" * 33, ""])
def test_what_is_no_bound_is_not_kept(le: str) -> None:
    text = f'vllm:e2e_request_latency_seconds_bucket{{le="{le}"}} 1\nvllm:num_requests_waiting 2\n'
    assert applications.reading_of(samples_of(text)) == {"plain": {}, "queue": 2}
