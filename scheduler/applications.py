"""What the application of a job tells at the address that the job names, in the text format of Prometheus, becomes
JobMetric rows: on the node of its first member, while it runs.

Known are the names of vLLM and of Text Generation Inference as their documentation has them (2025), and our own plain
ones, which come first. P99 and rates are of what happened between two readings; a counter that fell began anew, and
nothing is told of that time.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.db.models import F
from prometheus_client.samples import Sample

from ledger import job_metrics
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import Allocation, Job
from ledger.models.use import MetricSource
from ledger.vocabulary import AllocationState, JobState
from scheduler.outbound import OutboundFailed
from scheduler.scrape_rows import JobScrape
from scheduler.scraping import Unreadable, fetch_all, is_due, samples_of, words_of

log = logging.getLogger(__name__)
MOST: Final = 2_000  # jobs in one pass
MOST_BYTES: Final = 1024 * 1024
PLAIN: Final[Mapping[str, str]] = {f"gpu_commons_{name}": name for name in job_metrics.VALUES}
LATENCIES: Final = ("vllm:e2e_request_latency_seconds", "tgi_request_duration")  # histograms in seconds
TOKENS: Final = ("vllm:generation_tokens_total", "tgi_request_generated_tokens_sum")  # they only grow
QUEUES: Final = ("vllm:num_requests_waiting", "tgi_queue_size")
MOST_BUCKETS: Final = 200
LONGEST_BOUND: Final = 32  # characters
SHARE: Final = 0.99
NAMES: Final = (*LATENCIES, *TOKENS, *QUEUES, *PLAIN)  # told in the documentation; a test compares

Buckets = dict[str, float]  # upper bound as text → how many at most so long, cumulative


# -- reading its text: pure --------------------------------------------------------------------------------------------


def reading_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """Sums over all labels: {plain: {…}, queue, tokens, buckets}, each only where it is told."""
    sums: dict[str, float] = defaultdict(float)
    buckets: dict[str, Buckets] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        if not math.isfinite(sample.value) or sample.value < 0:
            continue
        base = sample.name.removesuffix("_bucket")
        if base in LATENCIES and _bound(sample.labels.get("le", "")) is not None and base != sample.name:
            buckets[base][sample.labels["le"]] += sample.value
        elif sample.name in PLAIN:
            sums[sample.name] = max(sample.value, sums[sample.name])
        elif sample.name in TOKENS or sample.name in QUEUES:
            sums[sample.name] += sample.value
    found: dict[str, Any] = {"plain": {PLAIN[name]: sums[name] for name in PLAIN if name in sums}}
    for key, names in (("queue", QUEUES), ("tokens", TOKENS)):
        told_by = next((name for name in names if name in sums), None)
        if told_by is not None:
            found[key] = sums[told_by]
    told = next((dict(buckets[name]) for name in LATENCIES if buckets.get(name)), None)
    return found | ({"buckets": told} if told and len(told) <= MOST_BUCKETS else {})


def p99_ms(before: Buckets, after: Buckets) -> float | None:
    """The 99th percentile of what came between two readings, by linear interpolation inside its bucket, as Prometheus'
    histogram_quantile. None when nothing came, or a counter fell."""
    grown = {_bound(le): count - before.get(le, 0.0) for le, count in after.items()}
    if any(count < before.get(le, 0.0) for le, count in after.items()) or set(before) - set(after):
        return None
    bounds = sorted(bound for bound in grown if bound is not None)
    if not bounds or bounds[-1] != math.inf or grown[math.inf] <= 0 or len(bounds) < 2:
        return None
    rank, low, below = SHARE * grown[math.inf], 0.0, 0.0
    for bound in bounds:
        if grown[bound] >= rank:
            if bound == math.inf:
                return low * 1000  # slower than the last bound: at least that
            inside = grown[bound] - below
            return 1000 * (low + (bound - low) * ((rank - below) / inside if inside > 0 else 1.0))
        low, below = bound, grown[bound]
    return None


def _bound(le: str) -> float | None:
    """None for what is no bound; it is kept as it is written, so it is short."""
    try:
        bound = float(le) if len(le) <= LONGEST_BOUND else math.nan
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def values_of(reading: Mapping[str, Any], before: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    """What is told now; `before` is the reading `seconds` ago, {} and None when there was none."""
    values: dict[str, Any] = {}
    if "queue" in reading:
        values["queue_length"] = reading["queue"]
    grown = reading["tokens"] - before["tokens"] if "tokens" in reading and "tokens" in before else -1.0
    if seconds and grown >= 0:
        values["tokens_per_s"] = grown / seconds
    if "buckets" in reading and "buckets" in before:
        values["p99_ms"] = p99_ms(before["buckets"], reading["buckets"])
    return _possible(values | reading["plain"])


def _possible(values: Mapping[str, float | None]) -> dict[str, Any]:
    """What no application can have is left out."""
    most = {"p99_ms": job_metrics.MOST_MS, "sla_ms": job_metrics.MOST_MS, "queue_length": job_metrics.MOST_QUEUE}
    good = {
        name: value
        for name, value in values.items()
        if value is not None
        and value <= most.get(name, job_metrics.MOST_TOKENS_PER_S)
        and (value > 0 or name != "sla_ms")
    }
    return good | ({"queue_length": round(good["queue_length"])} if "queue_length" in good else {})


# -- a pass ------------------------------------------------------------------------------------------------------------


def scrape_jobs(fetch: Callable[..., Any] = fetch_all) -> dict[str, int]:
    """Read every running job that names an address. Returns counts for the task's record."""
    counts = {"read": 0, "failed": 0}
    for pk, answer in fetch(_addresses(), MOST_BYTES):
        try:
            if isinstance(answer, Exception):
                raise answer
            take(pk, answer)
            counts["read"] += 1
        except Exception as error:  # of the network, of the text: told in the row
            log.info("the application of job %d: %s", pk, error)
            _note_failure(pk, error)
            counts["failed"] += 1
    return counts


def _addresses() -> dict[int, str]:
    """By job; those that were not read for the longest time first."""
    jobs = Job.objects.filter(state=JobState.RUNNING, simulated=False, metrics_port__isnull=False)
    rows, now = JobScrape.objects.in_bulk(jobs.values_list("pk", flat=True)), database_now()
    oldest = jobs.order_by(F("scrape__tried_at").asc(nulls_first=True), "pk").only("metrics_port", "metrics_path")
    due = [job for job in oldest if is_due(rows.get(job.pk), now)][:MOST]
    first = Allocation.objects.filter(attempt__job__in=due, rank=0, state=AllocationState.ACTIVE)
    hosts = dict(first.values_list("attempt__job", "node__hostname"))
    return {job.pk: f"http://{hosts[job.pk]}:{job.metrics_port}{job.metrics_path}" for job in due if job.pk in hosts}


def take(job_id: int, text: str) -> None:
    """One answer of a job's application. Raises scraping.Unreadable and ValueError."""
    reading = reading_of(samples_of(text))
    if reading == {"plain": {}}:
        raise ValueError("it tells nothing that is known here")
    now = database_now()
    known = JobScrape.objects.filter(job=job_id).first()
    fresh = known is not None and known.ok_at is not None and bool(known.seen)
    seconds = (now - known.ok_at).total_seconds() if known and known.ok_at and fresh else None
    values = values_of(reading, known.seen if known and fresh else {}, seconds)
    if values:
        try:
            job_metrics.record(job_id=job_id, values=values, source=MetricSource.SCRAPED, at=now)
        except Refused:
            return  # it has ended meanwhile
    _note(job_id, now, {"ok_at": now, "failures": 0, "error": "", "seen": reading})


def _note(job_id: int, now: dt.datetime, told: Mapping[str, Any]) -> None:
    JobScrape.objects.update_or_create(job_id=job_id, defaults={"tried_at": now, **told})


def _why(error: Exception) -> str:
    """For who sees the job, without a word of what answered: at the port that was named there may be somebody else."""
    if isinstance(error, OutboundFailed) and error.status is not None:
        return f"it answered {error.status}"
    return "it answered, and not in the text format of Prometheus" if isinstance(error, Unreadable) else words_of(error)


def _note_failure(job_id: int, error: Exception) -> None:
    now = database_now()
    _note(job_id, now, {"error": _why(error)})
    JobScrape.objects.filter(job=job_id).update(failures=F("failures") + 1, failed=F("failed") + 1)
