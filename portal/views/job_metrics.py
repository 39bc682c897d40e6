"""What the cards of a job did while it had them: a part of its page. A shared card's numbers are of the whole card,
which is said. Only who sees the job gets here. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ledger import half_used, sample_reading
from ledger.clock import database_now
from ledger.half_used import HalfUsed
from ledger.models import CardShare, Fault, FaultEvent, Job
from ledger.sample_reading import TOGETHER, Point, Reading, Span
from ledger.vocabulary import LIVE_JOB_STATES
from portal import health_charts
from portal.health_words import fault_name
from portal.views.gate import signed_in
from portal.views.job_page import find_job

MOST_POINTS: Final = 300
MOST_SHARES: Final = 64  # rows of the table; the figure is of all
STEPS: Final = [dt.timedelta(seconds=s) for s in (10, 30, 60, 300, 900, 3600, 7200, 14_400, 86_400)]
SAMPLED: Final = dt.timedelta(days=2)  # a job that lasts longer is read by its hours


@dataclass(frozen=True)
class ShareLine:
    """One share of the job and what its card told in the meantime; None = nothing was told."""

    share: CardShare
    load: Reading | None
    memory: Reading | None
    tensor: Reading | None
    bandwidth: Reading | None

    @property
    def shared(self) -> bool:
        return self.share.memory_mib < self.share.card_memory_mib

    @property
    def memory_part(self) -> float | None:
        """The most of the card's memory that was in use, in percent."""
        return None if self.memory is None else 100 * self.memory.most / self.share.card_memory_mib


@dataclass(frozen=True)
class FaultLine:
    """A fault of the job's hardware while it ran there: how often, first and last in that time."""

    name: str
    card: str
    node: str
    count: int
    first: dt.datetime
    last: dt.datetime


def shares_of(job: Job) -> list[CardShare]:
    shares = CardShare.objects.filter(allocation__attempt__job=job).order_by("-period", "pk")
    return list(shares.select_related("card", "node", "seat", "allocation__attempt"))


def _spans(shares: Sequence[CardShare], now: dt.datetime) -> list[Span]:
    return [Span(share.card_id, share.period.lower, share.period.upper or now) for share in shares]


def _read(spans: Sequence[Span], *, together: bool) -> dict[int, list[Point]]:
    if not spans:
        return {}
    lasted = max(span.until for span in spans) - min(span.since for span in spans)
    hourly = lasted > SAMPLED
    step = next((s for s in STEPS if lasted / s <= MOST_POINTS and (not hourly or s >= STEPS[5])), STEPS[-1])
    return sample_reading.points(spans, step=step, hourly=hourly, together=together)


@require_safe
@signed_in
def metrics(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The part with the figure, the table by share, faults, and the hint about half used cards."""
    job, now = find_job(request, pk), database_now()
    shares = shares_of(job)
    spans = _spans(shares, now)
    points = _read(spans, together=True).get(TOGETHER, [])
    by_card = _read(spans, together=False)
    lines = [_line(share, by_card.get(share.card_id, [])) for share in shares]
    context: dict[str, Any] = {
        "job": job,
        "shares": lines[:MOST_SHARES],
        "more": max(0, len(lines) - MOST_SHARES),
        "faults": faults_of(shares, now),
        "hint": hint(job, lines, now),
        "rule": half_used,
        "live": job.state in LIVE_JOB_STATES,
    }
    if points:
        span = (min(s.since for s in spans), max(s.until for s in spans))
        context |= {"figure": health_charts.job_figure(points, span), "points": list(reversed(points))}
    return render(request, "jobs/metrics.html", context)


def _line(share: CardShare, points: Sequence[Point]) -> ShareLine:
    end = share.period.upper
    mine = [point for point in points if end is None or point.at < end]
    names = ("utilisation_pct", "memory_used_mib", "tensor_pct", "memory_busy_pct")
    return ShareLine(share, *(sample_reading.whole(mine, name) for name in names))


def faults_of(shares: Sequence[CardShare], now: dt.datetime) -> list[FaultLine]:
    """Of the cards of these shares, each while the job had it. Faults without events count by when they were first and
    last seen."""
    if not shares:
        return []
    told = Exists(FaultEvent.objects.filter(fault=OuterRef("pk")))
    faults = Fault.objects.filter(card__in={share.card_id for share in shares}).select_related("card", "node")
    by_fault: dict[int, list[dt.datetime]] = {}
    meanwhile = (min(share.period.lower for share in shares), max(share.period.upper or now for share in shares))
    events = FaultEvent.objects.filter(fault__in=faults.order_by().values("pk"), at__range=meanwhile)
    for fault_id, at in events.values_list("fault_id", "at"):
        by_fault.setdefault(fault_id, []).append(at)
    lines = []
    for fault in faults.annotate(told=told).order_by("-last_seen"):
        ends = [] if fault.told else [fault.first_seen, *([fault.last_seen] if fault.count > 1 else [])]
        times = by_fault.get(fault.pk, ends)
        mine = [share for share in shares if share.card_id == fault.card_id]
        inside = sorted(at for at in times if any(_had(share, at, now) for share in mine))
        if inside and fault.card is not None:
            name = fault_name(fault.kind, fault.code)
            lines.append(FaultLine(name, fault.card.uuid, fault.node.hostname, len(inside), inside[0], inside[-1]))
    return lines


def _had(share: CardShare, at: dt.datetime, now: dt.datetime) -> bool:
    return bool(share.period.lower <= at < (share.period.upper or now))


def hint(job: Job, lines: Sequence[ShareLine], now: dt.datetime) -> HalfUsed | None:
    """The job holds whole cards and uses less than half of them; None when it doesn't, or it isn't known."""
    held = [line for line in lines if line.share.period.upper is None]
    if job.state not in LIVE_JOB_STATES or not held or any(line.shared for line in held):
        return None
    loads = [line.load.mean for line in held if line.load is not None]
    parts = [part for line in held if (part := line.memory_part) is not None]
    load = sum(loads) / len(loads) if loads else None
    memory = max(parts, default=None)
    since = min(line.share.period.lower for line in held)
    if not half_used.is_half_used(now - since, load, memory):
        return None
    return HalfUsed(job.pk, len(held), max(line.share.card_memory_mib for line in held), since, load, memory)
