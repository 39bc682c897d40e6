"""What applications tell of themselves: the only writer of JobMetric, and how it is judged.

A value that is not told is NULL, never 0. What is promised (sla_ms) holds on until it is told anew.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from django.utils.translation import gettext as _

from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Job, JobMetric
from ledger.models.use import MetricSource
from ledger.vocabulary import JobState

VALUES: Final = ("p99_ms", "sla_ms", "tokens_per_s", "queue_length")
MOST_MS: Final = 86_400_000.0  # a day
MOST_TOKENS_PER_S: Final = 1e9
MOST_QUEUE: Final = 10**9
MOST_KEPT: Final = 5_000  # of one job, the newest
SHOWN: Final = 500
SLACK: Final = dt.timedelta(minutes=5)  # a clock may be ahead
FAR: Final = 2.0  # times its promise, from which on more of it has to be started
TELLING: Final = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
TRIM: Final = """
DELETE FROM ledger_jobmetric m USING (
  SELECT id, row_number() OVER (PARTITION BY job_id ORDER BY at DESC, id DESC) AS n FROM ledger_jobmetric
  WHERE job_id IN (SELECT job_id FROM ledger_jobmetric GROUP BY job_id HAVING count(*) > %(most)s)
) old WHERE old.id = m.id AND old.n > %(most)s
"""


class Verdict(StrEnum):
    """How the slowest of a hundred answers stands to what was promised."""

    UNKNOWN = "unknown"
    MET = "met"
    MISSED = "missed"
    FAR = "far"  # more than twice as long as promised: more of it is needed, however busy its cards are


def verdict(p99_ms: float | None, sla_ms: float | None) -> Verdict:
    if p99_ms is None or sla_ms is None:
        return Verdict.UNKNOWN
    if p99_ms <= sla_ms:
        return Verdict.MET
    return Verdict.FAR if p99_ms > FAR * sla_ms else Verdict.MISSED


def record(
    *, job_id: int, values: Mapping[str, Any], source: MetricSource, at: dt.datetime | None = None
) -> tuple[JobMetric, bool]:
    """Store what was told, and whether it is new: the same moment told twice is kept as it was first. Conflict when the
    job does not run, Refused for a moment that can't be."""
    with transaction.atomic(durable=True):
        job = Job.objects.select_for_update(no_key=True).only("state", "submitted_at").get(pk=job_id)
        if job.state not in TELLING:
            raise Conflict(_("The job does not run now, so its application can't tell anything."), code="not_running")
        now = database_now()
        moment = _moment(at, job, now)
        told = {name: values.get(name) for name in VALUES}
        if told["sla_ms"] is None:
            told["sla_ms"] = _promised(job_id)
        return JobMetric.objects.get_or_create(job_id=job_id, at=moment, source=source, defaults=told)


def _moment(at: dt.datetime | None, job: Job, now: dt.datetime) -> dt.datetime:
    if at is None:
        return now
    if at > now + SLACK:
        raise Refused(_("This time lies ahead of the portal’s clock."), field="at", code="future")
    if at < max(job.submitted_at, now - _kept()):
        raise Refused(_("This time lies before the job, or before what is kept."), field="at", code="too_old")
    return min(at, now)


def _promised(job_id: int) -> float | None:
    rows = JobMetric.objects.filter(job=job_id, sla_ms__isnull=False).order_by("-at", "-pk")
    return rows.values_list("sla_ms", flat=True).first()


def latest(job_id: int) -> JobMetric | None:
    return JobMetric.objects.filter(job=job_id).order_by("-at", "-pk").first()


def history(job_id: int, most: int = SHOWN) -> list[JobMetric]:
    """The newest, the oldest of them first."""
    return list(JobMetric.objects.filter(job=job_id).order_by("-at", "-pk")[:most])[::-1]


def newest_of_running(since: dt.datetime) -> list[JobMetric]:
    """The newest of each job that runs and has told something since then, with its job and project: what alerts are
    judged by."""
    rows = JobMetric.objects.filter(job__state=JobState.RUNNING, at__gt=since).order_by("job", "-at", "-pk")
    return list(rows.distinct("job").select_related("job__project"))


def trim() -> dict[str, int]:
    """Drop what is older than what is kept, and of each job all but the newest."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_jobmetric WHERE at < %s", [database_now() - _kept()])
        old = cursor.rowcount
        cursor.execute(TRIM, {"most": MOST_KEPT})
        return {"old": old, "too_many": cursor.rowcount}


def _kept() -> dt.timedelta:
    return dt.timedelta(days=settings.JOB_METRICS_KEPT_DAYS)
