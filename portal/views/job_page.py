"""One job: its timeline, placement, reasons, live log and cancelling. The facts are those of GET /api/v1/jobs/{id}/."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_POST, require_safe

from ledger.errors import Refused
from ledger.models import Job, Node, User
from ledger.vocabulary import LIVE_JOB_STATES, JobState
from portal.api.answers import job_detail
from portal.api.comparison import comparison
from portal.api.preemption import at_risk_answer
from portal.forms import ReasonForm
from portal.typed import id_of, whole
from portal.views.fleet_rows import node_rows
from portal.views.gate import request_id, signed_in, viewer
from portal.views.job_application import application_of
from scheduler import logs, queue
from scheduler.drivers.base import DriverError, LogChunk, ReplyLost

STOP_POLLING = 286  # htmx ends a poll on this status
LONGEST_NUMBER = 15
MOST_DRAWN = 4  # nodes


def find_job(request: HttpRequest, pk: int) -> Job:
    job = Job.objects.visible_to(viewer(request)).select_related("project", "by").filter(pk=pk).first()
    if job is None:
        raise Http404(_("There is no such job, or you may not see it."))
    return job


def _facts(request: HttpRequest, job: Job) -> dict[str, Any]:
    detail = job_detail(job, viewer(request))
    return {
        "job": job,
        "detail": detail,
        "fingerprint": detail["attempts"][-1]["fingerprint"] if detail["attempts"] else None,
        **_drawn(detail, viewer(request)),
        "stages": stages(detail),
        "live": job.state in LIVE_JOB_STATES,
        "may_cancel": job.state in LIVE_JOB_STATES and queue.may_cancel(job, viewer(request)),
    }


def _whole_page(request: HttpRequest, job: Job) -> dict[str, Any]:
    return _facts(request, job) | application_of(job)


def _compared(request: HttpRequest, job: Job) -> dict[str, Any]:
    """The placement beside that of the job that the reader names, `?compare=`."""
    other = id_of(request.GET.get("compare", ""))
    attempt = job.attempts.select_related("decision").order_by("-n").first() if other else None
    return {"compared": comparison(attempt, other, viewer(request)) if other and attempt else None}


def _drawn(detail: dict[str, Any], user: User) -> dict[str, Any]:
    """The nodes that the job holds now, for the drawing: the first few, and how many more there are."""
    names = [member["node"] for member in detail["placement"] if member["until"] is None]
    nodes = list(Node.objects.filter(hostname__in=names[:MOST_DRAWN]).order_by("hostname")) if names else []
    return {"drawn": node_rows(nodes, user) if nodes else [], "undrawn": len(names) - len(nodes)}


@require_safe
@signed_in
def job_page(request: HttpRequest, pk: int) -> HttpResponseBase:
    job = find_job(request, pk)
    context = _whole_page(request, job) | {"cancel_form": ReasonForm(), "rank": _number(request, "rank")}
    context |= _compared(request, job) | {"risk": at_risk_answer(job, viewer(request))}
    return render(request, "jobs/job.html", context)


@require_safe
@signed_in
def job_status(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The part of the page that changes; htmx asks for it while the job lives."""
    job = find_job(request, pk)
    return render(request, "jobs/status.html", _facts(request, job) | {"polled": True})


def stages(detail: dict[str, Any]) -> list[dict[str, Any]]:
    """The path of a job with the time of each stage that it reached, and how long it stayed there."""
    times, members = detail["times"], detail["placement"]
    begun = [m["active"] for m in members if m["active"]]
    closing = [m["used_until"] for m in members if m["used_until"]]
    reached = [
        (pgettext("stage", "queued"), times["queued"]),
        (pgettext("stage", "placed"), times["placed"]),
        (pgettext("stage", "starting"), min((m["from"] for m in members), default=None)),
        (pgettext("stage", "running"), times["started"] or max(begun, default=None)),
        (pgettext("stage", "stopping"), min(closing, default=None)),
        (pgettext("stage", "ended"), times["ended"]),
    ]
    if detail["state"] == JobState.QUEUED:
        reached = [reached[0]] + [(name, None) for name, _moment in reached[1:]]
    known = [i for i, (_name, moment) in enumerate(reached) if moment]
    found = []
    for i, (name, moment) in enumerate(reached):
        following = next((reached[k][1] for k in known if k > i), None)
        now = detail["times"]["ended"] is None and bool(known) and i == known[-1]
        found.append({"name": name, "at": moment, "lasted": _between(moment, following), "now": now})
    return found


def _between(start: str | None, end: str | None) -> float | None:
    first, last = parse_datetime(start or ""), parse_datetime(end or "")
    return (last - first) / dt.timedelta(seconds=1) if first and last else None


@require_safe
@signed_in
def job_log(request: HttpRequest, pk: int) -> HttpResponseBase:
    """Bytes of the log from a cursor on, base64; the script of the page decodes and appends them as text."""
    job = find_job(request, pk)
    attempt = job.attempts.order_by("-n").values_list("n", flat=True).first() or 0
    cursor = _number(request, "cursor") if _number(request, "attempt") == attempt else 0
    try:
        chunk = logs.read(job, cursor, _number(request, "rank"))
    except (DriverError, ReplyLost, OSError) as error:
        return JsonResponse({"error": _("The log can't be read now: %(why)s") % {"why": error}})
    done = chunk.end and not chunk.data and job.state not in LIVE_JOB_STATES
    answer = {
        "attempt": attempt,
        "from": cursor,
        "cursor": chunk.cursor,
        "data": base64.b64encode(chunk.data).decode(),
        "end": done,
    }
    return JsonResponse(answer, status=STOP_POLLING if done else 200)


@require_safe
@signed_in
def job_log_file(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The whole log as it is, for keeping."""
    job, rank = find_job(request, pk), _number(request, "rank")
    try:
        first = logs.read(job, 0, rank)
    except (DriverError, ReplyLost, OSError) as error:
        text = _("The log can't be read now: %(why)s") % {"why": error}
        return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(_log_parts(job, rank, first), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="job-{job.pk}-{rank}.log"'
    return response


def _log_parts(job: Job, rank: int, chunk: LogChunk) -> Iterator[bytes]:
    while chunk.data:
        yield chunk.data
        chunk = logs.read(job, chunk.cursor, rank)


@require_POST
@signed_in
def cancel(request: HttpRequest, pk: int) -> HttpResponseBase:
    job = find_job(request, pk)
    form = ReasonForm(request.POST)
    if not form.is_valid():
        context = _whole_page(request, job) | {"cancel_form": form, "rank": 0}
        return render(request, "jobs/job.html", context, status=422)
    try:
        reason = form.cleaned_data["reason"]
        queue.cancel(job_id=job.pk, actor=viewer(request), reason=reason, via="page", request_id=request_id(request))
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, _("Job %(id)d is being cancelled.") % {"id": job.pk})
    return redirect("job", pk=job.pk)


def _number(request: HttpRequest, name: str) -> int:
    """A whole number of the query string; anything else is 0."""
    return whole(request.GET.get(name, ""), LONGEST_NUMBER) or 0
