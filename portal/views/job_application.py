"""The part of a job's page that shows what its application tells of itself, under what its cards do; and where it holds
more of a card than it was promised. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ledger import job_metrics
from ledger.models import Job, JobMetric, ShareUse
from ledger.vocabulary import LIVE_JOB_STATES
from portal.labels import Text
from portal.views.gate import signed_in, viewer
from scheduler.scrape_rows import JobScrape

WIDTH: Final = 240
HEIGHT: Final = 36
IN_TABLE: Final = 50  # the newest
Pick = Callable[[JobMetric], float | None]


@dataclass(frozen=True)
class Line:
    """One value over time as a small drawing: `parts` are polylines, with a gap where nothing was told."""

    name: Text
    unit: str
    now: float | None
    most: float
    parts: Sequence[str]
    bound: float | None = None  # where the line of what was promised stands in the drawing


@require_safe
@signed_in
def application(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The part alone; htmx asks for it while the job lives."""
    job = Job.objects.visible_to(viewer(request)).filter(pk=pk).first()
    if job is None:
        raise Http404(_("There is no such job, or you may not see it."))
    return render(request, "jobs/application.html", application_of(job))


def application_of(job: Job) -> dict[str, Any]:
    """What templates/jobs/application.html needs."""
    rows = job_metrics.history(job.pk)
    latest = rows[-1] if rows else None
    return {
        "job": job,
        "live": job.state in LIVE_JOB_STATES,
        "latest": latest,
        "verdict": job_metrics.verdict(latest.p99_ms, latest.sla_ms) if latest else None,
        "lines": _lines(rows),
        "told": rows[: -IN_TABLE - 1 : -1],
        "scrape": JobScrape.objects.filter(job=job).first() if job.metrics_port else None,
        "over": _over(job) if job.state in LIVE_JOB_STATES else [],
    }


def _over(job: Job) -> list[ShareUse]:
    uses = ShareUse.objects.filter(share__allocation__attempt__job=job, share__period__upper_inf=True, over__gte=1)
    return list(uses.select_related("share__seat__node", "share__card").order_by("pk"))


def _lines(rows: Sequence[JobMetric]) -> list[Line]:
    if not rows:
        return []
    sla = rows[-1].sla_ms
    found = [
        _line(rows, _("P99"), "ms", lambda row: row.p99_ms, sla),
        _line(rows, _("tokens a second"), "", lambda row: row.tokens_per_s),
        _line(rows, _("waiting requests"), "", lambda row: row.queue_length),
    ]
    return [line for line in found if line is not None]


def _line(rows: Sequence[JobMetric], name: Text, unit: str, pick: Pick, bound: float | None = None) -> Line | None:
    """None when none of them tells it."""
    known = [value for value in map(pick, rows) if value is not None]
    if not known:
        return None
    first, last = rows[0].at, rows[-1].at
    span = (last - first).total_seconds() or 1.0
    top = max([*known, bound or 0.0]) or 1.0
    parts: list[list[str]] = [[]]
    for row in rows:
        value = pick(row)
        if value is None:
            parts.append([])
            continue
        x = (row.at - first).total_seconds() / span * WIDTH
        parts[-1].append(f"{x:.1f},{_height(value, top):.1f}")
    drawn = [" ".join(part) for part in parts if len(part) > 1]
    return Line(name, unit, pick(rows[-1]), max(known), drawn, None if bound is None else _height(bound, top))


def _height(value: float, top: float) -> float:
    return 1 + (HEIGHT - 2) * (1 - value / top)
