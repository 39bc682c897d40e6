"""The part of a job's page about its application: values, the verdict, how reading goes, and memory above the promise."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import CardShare, Job, JobMetric, NodeBoot, ShareUse
from ledger.models.use import MetricSource
from portal.views.job_application import application_of
from scheduler.scrape_rows import JobScrape
from tests.portal.views.conftest import ClientAs
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(people: Any) -> Job:
    flow.world()
    made = flow.long_job()
    flow.start(made)
    return made


def tell(job: Job, *values: dict[str, Any]) -> None:
    now = database_now()
    for n, told in enumerate(reversed(values)):
        at = now - dt.timedelta(seconds=10 * n)
        JobMetric.objects.create(job=job, at=at, source=MetricSource.PUSHED, **told)


def page(client_as: ClientAs, job: Job, part: str = "application/") -> str:
    response = client_as("researcher").get(f"/jobs/{job.pk}/{part}")
    assert response.status_code == 200
    return str(response.content.decode())


def test_nothing_is_shown_where_nothing_is_told(client_as: ClientAs, job: Job) -> None:
    assert "What the application tells" not in page(client_as, job)
    assert 'id="application"' in page(client_as, job, "")


@pytest.mark.parametrize(
    ("p99", "words"),
    [(90, "P99 as promised"), (150, "P99 above what"), (201, "P99 more than twice"), (None, "unknown")],
)
def test_the_newest_values_and_the_verdict(client_as: ClientAs, job: Job, p99: float | None, words: str) -> None:
    tell(job, {"p99_ms": 1, "sla_ms": 100}, {"p99_ms": p99, "sla_ms": 100, "tokens_per_s": 1234.4, "queue_length": 0})
    for part in ("", "application/"):
        shown = page(client_as, job, part)
        assert words in shown
        assert "1\u202f234" in shown
        assert ("it needs more instances" in shown) == (p99 == 201)


def test_a_value_that_is_not_told_is_a_gap_and_never_zero(job: Job) -> None:
    tell(job, {"p99_ms": 50}, {"p99_ms": 100}, {"queue_length": 1}, {"p99_ms": 75}, {"p99_ms": 0})
    p99, queue = application_of(job)["lines"]
    assert p99.parts == ["0.0,18.0 60.0,1.0", "180.0,9.5 240.0,35.0"]
    assert (p99.now, p99.most, queue.parts) == (0, 100, [])


def test_how_reading_goes(client_as: ClientAs, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(metrics_port=8000, metrics_path="/m")
    assert "It has told nothing yet." in page(client_as, job)
    JobScrape.objects.create(job=job, tried_at=database_now(), failures=3, error="answered 404: <b>no</b>")
    shown = page(client_as, job)
    assert "Read at port 8000, /m." in shown
    assert "3 readings in a row failed" in shown
    assert "answered 404: &lt;b&gt;no&lt;/b&gt;" in shown


@pytest.mark.parametrize(("warned", "words"), [(False, "If it stays so"), (True, "If the next sample")])
def test_memory_above_the_promise_is_told_to_the_owner(client_as: ClientAs, job: Job, warned: bool, words: str) -> None:
    share = CardShare.objects.get(allocation__attempt__job=job)
    boot = NodeBoot.objects.create(node=share.node, boot_id="b", first_seen=database_now())
    now = database_now()
    values = {"used_mib": 2048, "over": 1 + warned, "warned_at": now if warned else None}
    ShareUse.objects.create(share=share, boot=boot, sequence=1, at=now, **values)
    shown = page(client_as, job)
    assert "It holds 2 GiB of the card in slot 0 of n1, where it was promised 1 GiB." in shown
    assert words in shown


def test_others_do_not_see_it(client_as: ClientAs, job: Job) -> None:
    assert client_as("outsider").get(f"/jobs/{job.pk}/application/").status_code == 404
