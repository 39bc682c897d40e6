"""Jobs: the list, the submit form, and cancelling. One job's own page is in portal.views.job_page."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from ledger.errors import Refused
from ledger.models import Job, Project, User
from ledger.vocabulary import LIVE_JOB_STATES, ProjectState, SiteRole
from portal.api.serializers import JobInput
from portal.forms import PAGE_FIELDS, JobFilter, SubmitForm, card_models
from portal.views.gate import page_of, request_id, signed_in, viewer
from scheduler import queue

DIGITS_OF_AN_ID = 18


@require_safe
@signed_in
def job_list(request: HttpRequest) -> HttpResponseBase:
    projects = [(p.slug, p.slug) for p in Project.objects.visible_to(viewer(request)).order_by("slug")]
    form = JobFilter(request.GET, known={"project": projects})
    page = page_of(request, _filtered(form, viewer(request)))
    return render(request, "jobs/list.html", {"form": form, "page": page, "filtered": bool(form.chosen)})


def _filtered(form: JobFilter, user: User) -> QuerySet[Job]:
    chosen = form.chosen
    jobs = Job.objects.visible_to(user).select_related("project", "by").order_by("-pk")
    if text := chosen.get("q"):
        wanted = Q(name__icontains=text)
        if text.isascii() and text.isdigit() and len(text) <= DIGITS_OF_AN_ID:
            wanted |= Q(pk=int(text))
        jobs = jobs.filter(wanted)
    if state := chosen.get("state"):
        jobs = jobs.filter(state__in=sorted(LIVE_JOB_STATES) if state == "live" else [state])
    if project := chosen.get("project"):
        jobs = jobs.filter(project__slug=project)
    if hardware := chosen.get("hardware"):
        jobs = jobs.filter(simulated=hardware == "simulated")
    if chosen.get("mine"):
        jobs = jobs.filter(by=user)
    return jobs


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def submit(request: HttpRequest) -> HttpResponseBase:
    """The form makes the body that POST /api/v1/jobs/ takes; the same JobInput judges it, the same call queues it."""
    projects = _projects(viewer(request))
    initial = {"client_key": uuid.uuid4().hex, "project": request.GET.get("project", "")}
    data = request.POST if request.method == "POST" else None
    form = SubmitForm(data, initial=initial, projects=projects, models=card_models())
    if form.is_valid():
        job = _submitted(request, form)
        if job is not None:
            messages.success(request, _("Job %(id)d is in the queue.") % {"id": job.pk})
            return redirect("job", pk=job.pk)
    status = 422 if form.is_bound else 200
    return render(request, "jobs/submit.html", {"form": form, "projects": projects}, status=status)


def _projects(user: User) -> QuerySet[Project]:
    """Where the person may submit: a choice of the select field, checked again by the queue."""
    visible = Project.objects.visible_to(user).filter(state=ProjectState.ACTIVE).order_by("slug")
    if user.site_role == SiteRole.ADMIN:
        return visible
    return visible.filter(memberships__user=user, memberships__role__in=queue.MAY_SUBMIT)


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
        )
    except queue.KeyReused:
        form.data = {**request.POST.dict(), "client_key": uuid.uuid4().hex}
        form.add_error(None, _("This form was sent before with other values. Send it again to submit a second job."))
    except Refused as refused:
        name = PAGE_FIELDS.get(refused.field, refused.field)
        form.add_error(name if name in form.fields else None, str(refused))
    return None
