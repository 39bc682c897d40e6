"""The outlook of a job as people read it: while they type it, and while it waits. The facts are scheduler.whatif's.

Names of other projects and jobs are given to those alone who may see them. Nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from ledger.errors import Refused
from ledger.models import Job, Project, User
from ledger.vocabulary import JobState
from portal.api import policy_answers
from portal.api.preemption import preview_answer
from portal.api.serializers import JobInput
from portal.forms import PAGE_FIELDS, SubmitForm
from portal.outlook_words import limit_words, refusal_words, sooner_words
from portal.views.gate import signed_in, viewer
from portal.views.job_form import projects_of
from scheduler import policy, quota, slices, whatif
from scheduler.whatif import Outlook

PLACEHOLDER: Final = "x"  # name and command decide nothing about where a job goes
MOST_BLOCKERS: Final = 5


@require_POST
@signed_in
def draft(request: HttpRequest) -> HttpResponseBase:
    """The panel beside the form: what these values would get at this moment."""
    user = viewer(request)
    typed = request.POST.copy()
    for name in ("name", "command"):
        if not typed.get(name, "").strip():
            typed[name] = PLACEHOLDER
    form = SubmitForm(typed, projects=projects_of(user), cards=slices.sizes())
    judged = _judged(form, user)
    if judged is None:
        return render(request, "jobs/outlook.html", {"troubles": _troubles(form)})
    try:
        job = job_of(judged, user)
    except Refused as refused:
        return render(request, "jobs/outlook.html", {"troubles": [_trouble(form, refused)]})
    if job is None:
        return render(request, "jobs/outlook.html", {"troubles": [(_("Project"), _("Choose a project."))]})
    outlook = whatif.outlook(job)
    context = described(outlook, user) | {"copy": _as_api(request, form.spec())}
    context["policies"] = policy_answers.of_draft(policy.settled(judged, job.project))["lines"]
    context["claims"] = [claim for claim in quota.claims(job, outlook.spots) if claim.takes]
    context["cuts"] = slices.cuts_of(job)
    return render(request, "jobs/outlook.html", context)


def of_values(judged: Mapping[str, Any], user: User) -> Outlook | None:
    """The outlook of a job with these values of a JobInput, without whom it would have stopped; None when the person is
    not in its project."""
    job = job_of(judged, user)
    return whatif.outlook(job, stops=False) if job is not None else None


def job_of(judged: Mapping[str, Any], user: User) -> Job | None:
    """The job that they would submit with these values, not saved."""
    project = Project.objects.visible_to(user).filter(slug=judged["project"]).first()
    return whatif.candidate(judged, project, user) if project else None


@require_safe
@signed_in
def of_job(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The same for a job in the queue; nothing once it is placed."""
    job = Job.objects.visible_to(viewer(request)).select_related("project").filter(pk=pk).first()
    if job is None:
        raise Http404(_("There is no such job, or you may not see it."))
    if job.state != JobState.QUEUED:
        return HttpResponse()  # takes the place of the card, which is gone by that
    outlook = whatif.outlook(job)
    context = described(outlook, viewer(request)) | {"queued": True, "job": job}
    context["claims"] = [claim for claim in quota.claims(job, outlook.spots) if claim.takes]
    return render(request, "jobs/job_outlook.html", context)


def _judged(form: SubmitForm, user: User) -> dict[str, Any] | None:
    if not form.is_valid():
        return None
    judged = JobInput(data=form.spec(), context={"user": user})
    if not judged.is_valid():
        form.take_errors(judged.errors)
        return None
    return dict(judged.validated_data)


def _trouble(form: SubmitForm, refused: Refused) -> tuple[str, str]:
    """The same of what the job would be refused for."""
    name = PAGE_FIELDS.get(refused.field, refused.field)
    return str(form.fields[name].label) if name in form.fields else "", refusal_words(refused)


def _troubles(form: SubmitForm) -> list[tuple[str, str]]:
    """(label of the field, what is wrong), for the panel; the form itself marks nothing before it is sent."""
    return [
        (str(form.fields[name].label) if name in form.fields else "", str(error))
        for name, errors in form.errors.items()
        for error in errors
    ]


def described(outlook: Outlook, user: User) -> dict[str, Any]:
    """What the template shows of an outlook."""
    slugs = dict(Project.objects.visible_to(user).filter(pk__in=outlook.neighbours).values_list("pk", "slug"))
    hidden = len(outlook.neighbours) - len(slugs)
    return {
        "outlook": outlook,
        "spots": outlook.spots,
        "zones": whatif.zone_titles(spot.node_id for spot in outlook.spots),
        "neighbours": sorted(slugs.values()) + [_("another project")] * hidden,
        "alone": bool(outlook.spots) and all(spot.form == "whole" for spot in outlook.spots),
        "reasons": [sorted(ask.items(), key=lambda item: -item[1]) for ask in outlook.by_ask],
        "blockers": _blockers(outlook.blockers, user),
        "more_blockers": max(0, len(outlook.blockers) - MOST_BLOCKERS),
        "limits": [limit_words(limit) for limit in outlook.limits],
        "sooner": [sooner_words(sooner) for sooner in outlook.sooner],
        "stops": preview_answer(outlook.stops, user),
    }


def _blockers(ids: Sequence[int], user: User) -> list[Job | None]:
    """The first few jobs that must end; None for one that the person may not see."""
    seen = Job.objects.visible_to(user).select_related("project").in_bulk(ids[:MOST_BLOCKERS])
    return [seen.get(pk) for pk in ids[:MOST_BLOCKERS]]


def _as_api(request: HttpRequest, spec: Mapping[str, Any]) -> str:
    """The same job as a command line for the API."""
    body = json.dumps(spec, ensure_ascii=False, indent=2).replace("'", "'\\''")
    address = request.build_absolute_uri("/api/v1/jobs/")
    return (
        f'curl -X POST {address} \\\n  -H "Authorization: Bearer $GPU_COMMONS_TOKEN" \\\n'
        f"  -H 'Content-Type: application/json' -H \"Idempotency-Key: $(uuidgen)\" \\\n  -d '{body}'"
    )
