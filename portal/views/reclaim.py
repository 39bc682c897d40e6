"""The reclaim: what will be taken back when, the dry run of the next pass, and what admins do about it; and receipts of
projects that have ended. The site roles read the first, auditors of a department its part, members the receipts of
their projects.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import Project, Receipt
from ledger.vocabulary import ProjectState, SiteRole
from portal import reclaim_rows
from portal.forms import ReasonForm
from portal.reclaim_forms import ExtendForm, ReceiptFilter
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views.gate import request_id, signed_in, viewer
from portal.views.ops_gate import for_readers_of_ends
from scheduler import reclaim as writer
from scheduler import reclaim_plan

ID_LIMIT: Final = 2**31


def may_act(request: HttpRequest) -> bool:
    return viewer(request).site_role == SiteRole.ADMIN


@require_safe
@for_readers_of_ends
def reclaim(request: HttpRequest) -> HttpResponseBase:
    now, user = database_now(), viewer(request)
    rows = reclaim_rows.end_rows(user, now)
    context = {
        "now": now,
        "rows": rows,
        "acting": [row for row in rows if row.steps or row.error],
        "overdue": reclaim_rows.overdue(user, now),
        "leavers": reclaim_rows.left_behind(user),
        "odd": sorted(reclaim_rows.odd_ones(user).items()),
        "may_act": may_act(request),
    }
    return render(request, "reclaim/reclaim.html", context)


# -- acts --------------------------------------------------------------------------------------------------------------


def _project(request: HttpRequest, slug: str) -> Project:
    """One that has not ended; only admins get this far."""
    if not may_act(request):
        raise PermissionDenied
    found = Project.objects.filter(slug=slug).exclude(state=ProjectState.ENDED).select_related("owner").first()
    if found is None:
        raise Http404(_("There is no such project, or it has ended."))
    return found


def _act(request: HttpRequest, form: ReasonForm) -> Act:
    return Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request))


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def extend(request: HttpRequest, slug: str) -> HttpResponseBase:
    project, form = _project(request, slug), ExtendForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            writer.extend(project=project, ends_on=form.cleaned_data["ends_on"], act=_act(request, form))
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            text = _("Project %(project)s works through %(end)s.")
            messages.success(request, text % {"project": project.slug, "end": form.cleaned_data["ends_on"]})
            return redirect("reclaim")
    return _page(request, "reclaim/extend.html", project, form)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@needs_sudo
def end_now(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The preview of what it stops; a POST with a reason does it."""
    project, form = _project(request, slug), ReasonForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            writer.end_now(project=project, act=_act(request, form))
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("Project %(project)s ends now.") % {"project": project.slug})
            return redirect("reclaim")
    return _page(request, "reclaim/end.html", project, form)


def _page(request: HttpRequest, template: str, project: Project, form: ReasonForm) -> HttpResponseBase:
    row = reclaim_rows.row_of(reclaim_plan.facts_of([project])[0], database_now())
    context = {"project": project, "form": form, "row": row}
    return render(request, template, context, status=422 if form.errors else 200)


# -- receipts ----------------------------------------------------------------------------------------------------------

RECEIPTS: Final = (
    Column(
        "project",
        gettext_lazy("Project"),
        lambda r: r.project.slug,
        "reclaim/cells/receipt.html",
        ("project__slug",),
        always=True,
    ),
    Column("owner", gettext_lazy("Owner"), lambda r: r.project.owner.username, sort=("project__owner__username",)),
    Column("ends_on", gettext_lazy("Last day"), lambda r: r.ends_on, "reclaim/cells/day.html", ("ends_on",)),
    Column("grace", gettext_lazy("Grace over"), lambda r: r.grace_over_at, sort=("grace_over_at",)),
    Column("free", gettext_lazy("All free"), lambda r: r.free_at, sort=("free_at",)),
    Column("took", gettext_lazy("Took (s)"), lambda r: r.took_s, sort=("took_s",), number=True),
    Column("stopped", gettext_lazy("Jobs stopped"), lambda r: r.jobs_stopped, sort=("jobs_stopped",), number=True),
    Column(
        "cancelled", gettext_lazy("Jobs cancelled"), lambda r: r.jobs_cancelled, sort=("jobs_cancelled",), number=True
    ),
    Column("grants", gettext_lazy("Grants ended"), lambda r: r.grants_ended, sort=("grants_ended",), number=True),
    Column("left", gettext_lazy("Not enforced (paths)"), lambda r: r.not_enforced, sort=("not_enforced",), number=True),
)


@require_safe
@signed_in
def receipts(request: HttpRequest) -> HttpResponseBase:
    form = ReceiptFilter(request.GET, known={})
    rows = Receipt.objects.visible_to(viewer(request)).select_related("project__owner")
    table = Table(
        request=request,
        name="receipts",
        columns=RECEIPTS,
        records=_filtered(rows, form.chosen),
        form=form,
        order=("-free_at", "-pk"),
    )
    if (file := table.export()) is not None:
        return file
    return render(request, "reclaim/receipts.html", {"form": form, "t": table.context(), "filtered": table.filtered})


def _filtered(rows: QuerySet[Receipt], chosen: dict[str, Any]) -> QuerySet[Receipt]:
    if text := chosen.get("q"):
        rows = rows.filter(Q(project__slug__icontains=text) | Q(project__title__icontains=text))
    if start := chosen.get("start"):
        rows = rows.filter(free_at__date__gte=start)
    if end := chosen.get("end"):
        rows = rows.filter(free_at__date__lte=end)
    if left := chosen.get("left"):
        rows = rows.filter(not_enforced__gt=0) if left == "yes" else rows.filter(not_enforced=0)
    return rows


@require_safe
@signed_in
def receipt(request: HttpRequest, pk: int) -> HttpResponseBase:
    rows = Receipt.objects.visible_to(viewer(request)).select_related("project__owner")
    found = rows.filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404(_("There is no such receipt."))
    return render(request, "reclaim/receipt.html", {"receipt": found, "content": found.content})
