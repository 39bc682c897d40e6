"""Jobs: the list and the submit form. One job's own page is in portal.views.job_page."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ledger.errors import Refused
from ledger.models import Job, Project, User
from ledger.vocabulary import LIVE_JOB_STATES
from portal import labels
from portal.api.serializers import JobInput
from portal.forms import PAGE_FIELDS, JobFilter, SubmitForm
from portal.outlook_words import refusal_words
from portal.tables import Column, Table
from portal.typed import id_of
from portal.views.gate import request_id, signed_in, viewer
from portal.views.job_filter import narrowed
from portal.views.job_form import TEMPLATES, SaveForm, open_form, projects_of, saved_of, starting_values
from portal.views.outlook import of_values
from scheduler import queue, slices

RECENT: Final = 5
COLUMNS: Final = (
    Column("id", gettext_lazy("No."), lambda job: job.pk, "jobs/cells/number.html", ("pk",), number=True, always=True),
    Column("name", gettext_lazy("Name"), lambda job: job.name, "jobs/cells/name.html", ("name",)),
    Column(
        "state", gettext_lazy("State"), lambda job: labels.text("job", job.state), "jobs/cells/state.html", ("state",)
    ),
    Column("project", gettext_lazy("Project"), lambda job: job.project.slug, sort=("project__slug",)),
    Column("by", gettext_lazy("By"), lambda job: job.by.username, sort=("by__username",)),
    Column("ask", gettext_lazy("Asked for"), lambda job: _ask_words(job), "jobs/cells/ask.html"),
    Column("submitted", gettext_lazy("Submitted"), lambda job: job.submitted_at, sort=("submitted_at",)),
    Column("started", gettext_lazy("Started"), lambda job: job.started_at, sort=("started_at",), shown=False),
    Column("ended", gettext_lazy("Ended"), lambda job: job.ended_at, sort=("ended_at",)),
    Column("kind", gettext_lazy("Kind of work"), lambda job: labels.text("kind", job.kind), shown=False),
    Column("priority", gettext_lazy("Priority"), lambda job: job.priority, "", ("priority",), number=True, shown=False),
    Column("message", gettext_lazy("Message"), lambda job: job.message, "jobs/cells/message.html", shown=False),
)


def _ask_words(job: Job) -> str:
    ask = job.asks[0]
    form = labels.text("ask_form", ask["form"])
    size = f"{ask['memory_mib']} MiB {ask.get('profile', '')}".strip()
    return f"{form}: {ask['nodes']} × {ask['cards_per_node']} × {size} {ask['model']}".strip()


@require_safe
@signed_in
def job_list(request: HttpRequest) -> HttpResponseBase:
    projects = [(p.slug, p.slug) for p in Project.objects.visible_to(viewer(request)).distinct().order_by("slug")]
    form = JobFilter(request.GET, known={"project": projects})
    table = Table(request, "jobs", COLUMNS, _filtered(form, viewer(request)), form)
    if (file := table.export()) is not None:
        return file
    return render(request, "jobs/list.html", {"form": form, "t": table.context()})


def _filtered(form: JobFilter, user: User) -> QuerySet[Job]:
    chosen = form.chosen
    jobs = narrowed(Job.objects.visible_to(user).select_related("project", "by"), chosen)
    if state := chosen.get("state"):
        jobs = jobs.filter(state__in=sorted(LIVE_JOB_STATES) if state == "live" else [state])
    return jobs.filter(by=user) if chosen.get("mine") else jobs


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def submit(request: HttpRequest) -> HttpResponseBase:
    """The form makes the body that POST /api/v1/jobs/ takes; the same JobInput judges it, the same call queues it."""
    user, gone = viewer(request), []
    if request.method == "POST":
        form = SubmitForm(request.POST, projects=projects_of(user), cards=slices.sizes())
    else:
        form, gone = open_form(user, starting_values(request.GET, user))
    if form.is_valid():
        job = _submitted(request, form)
        if job is not None:
            messages.success(request, _("Job %(id)d is in the queue.") % {"id": job.pk})
            return redirect("job", pk=job.pk)
    return form_page(request, form, gone=gone, status=422 if form.is_bound else 200)


def form_page(
    request: HttpRequest,
    form: SubmitForm,
    *,
    gone: Sequence[tuple[str, str]] = (),
    saving: SaveForm | None = None,
    status: int = 200,
) -> HttpResponseBase:
    """The submit page. `gone` is what `open_form` left out; `saving` holds the name of values that were not saved."""
    user = viewer(request)
    saved = saved_of(user)
    current = next((one for one in saved if one.pk == id_of(request.GET.get("saved", ""))), None)
    name = request.POST.get("save_as", current.name if current else "")
    context = {
        "form": form,
        "projects": form.projects,
        "templates": TEMPLATES,
        "recent": Job.objects.visible_to(user).filter(by=user).order_by("-pk")[:RECENT],
        "gone": gone,
        "saved": saved,
        "current": current,
        "saving": saving or SaveForm(initial={"save_as": name}),
    }
    return render(request, "jobs/submit.html", context, status=status)


def _submitted(request: HttpRequest, form: SubmitForm) -> Job | None:
    judged = JobInput(data=form.spec(), context={"user": viewer(request)})
    if not judged.is_valid():
        form.take_errors(judged.errors)
        return None
    key = f"page-{form.cleaned_data['client_key']}"
    try:
        return queue.submit(
            data=judged.validated_data,
            actor=viewer(request),
            via="page",
            client_key=key,
            request_id=request_id(request),
            outlook=of_values(judged.validated_data, viewer(request)),
        )
    except queue.KeyReused:
        form.data = {**request.POST.dict(), "client_key": uuid.uuid4().hex}
        form.add_error(None, _("This form was sent before with other values. Send it again to submit a second job."))
    except Refused as refused:
        field = refused.field.rpartition(".")[2]  # of a wish: asks.0.nodes
        name = PAGE_FIELDS.get(field, field)
        form.add_error(name if name in form.fields else None, refusal_words(refused))
    return None
