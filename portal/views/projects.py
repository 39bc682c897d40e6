"""Projects: the list, one project's page, opening and changing one. Who is in it: portal.views.project_members."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ledger import projects, roles
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.invitations import open_invitations
from ledger.models import Department, Invitation, Job, Membership, Project, ProjectRequest, Refund, User
from ledger.vocabulary import LIVE_JOB_STATES, InvitationState, ProjectRole, ProjectState, RequestState
from portal import labels
from portal.project_forms import ChangeProjectForm, InviteForm, NewProjectForm, ProjectFilter, TextsForm
from portal.tables import Column, Table
from portal.views import project_end, quota_parts
from portal.views.gate import signed_in, viewer
from portal.views.project_gate import act_of, project_of, projects_seen

RECENT: Final = 5
COLUMNS: Final = (
    Column("project", gettext_lazy("Project"), lambda p: p.slug, "projects/cells/project.html", ("slug",), always=True),
    Column(
        "state",
        gettext_lazy("State"),
        lambda p: labels.text("project", p.state),
        "projects/cells/state.html",
        ("state",),
    ),
    Column("owner", gettext_lazy("Owner"), lambda p: p.owner.username, sort=("owner__username",)),
    Column(
        "department",
        gettext_lazy("Department"),
        lambda p: p.department.title if p.department else "",
        "projects/cells/department.html",
        ("department__slug",),
    ),
    Column("role", gettext_lazy("My role"), lambda p: labels.text("project_role", p.role) if p.role else ""),
    Column("ends", gettext_lazy("Last day"), lambda p: p.ends_on.isoformat() if p.ends_on else "", sort=("ends_on",)),
    Column("members", gettext_lazy("Members"), lambda p: p.people, sort=("people",), number=True),
    Column("live", gettext_lazy("Live jobs"), lambda p: p.live, "projects/cells/live.html", ("live",), number=True),
    Column("starts", gettext_lazy("First day"), lambda p: p.starts_on.isoformat(), sort=("starts_on",), shown=False),
    Column(
        "grace", gettext_lazy("Days of grace"), lambda p: p.grace_days, sort=("grace_days",), number=True, shown=False
    ),
    Column("cost", gettext_lazy("Cost centre"), lambda p: p.cost_centre, sort=("cost_centre",), shown=False),
    Column("title", gettext_lazy("Title"), lambda p: p.title, "projects/cells/title.html", ("title",), shown=False),
)


def _counted(rows: QuerySet[Any], of: str) -> Any:
    counts = rows.filter(project=OuterRef("pk")).order_by().values("project").annotate(n=Count("pk")).values(of)
    return Coalesce(Subquery(counts), 0)


def _with_counts(found: QuerySet[Project], user: User) -> QuerySet[Any]:
    mine = Membership.objects.filter(project=OuterRef("pk"), user=user).values("role")[:1]
    return found.annotate(
        people=_counted(Membership.objects.all(), "n"),
        live=_counted(Job.objects.filter(state__in=sorted(LIVE_JOB_STATES)), "n"),
        role=Subquery(mine),
    )


@require_safe
@signed_in
def project_list(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    shown = projects_seen(request)
    departments = Department.objects.filter(pk__in=shown.order_by().values("department")).order_by("slug")
    form = ProjectFilter(request.GET, known={"department": [(d.slug, d.title) for d in departments]})
    table = Table(
        request, "projects", COLUMNS, _filtered(_with_counts(shown, user), form.chosen), form, order=("slug",)
    )
    if (file := table.export()) is not None:
        return file
    context = {
        "form": form,
        "t": table.context(),
        "may_open": roles.governs(user),
        "invitations": list(open_invitations(user)),
    }
    return render(request, "projects/list.html", context)


def _filtered(found: QuerySet[Any], chosen: dict[str, Any]) -> QuerySet[Any]:
    if text := chosen.get("q"):
        found = found.filter(Q(slug__icontains=text) | Q(title__icontains=text))
    if state := chosen.get("state"):
        found = found.filter(state=state)
    if department := chosen.get("department"):
        found = found.filter(department__slug=department)
    return found.filter(role__isnull=False) if chosen.get("mine") else found


@require_safe
@signed_in
def project_page(request: HttpRequest, slug: str) -> HttpResponseBase:
    return project_answer(request, project_of(request, slug))


def project_answer(
    request: HttpRequest, project: Project, *, invite: InviteForm | None = None, status: int = 200
) -> HttpResponseBase:
    """One project. `invite` is the form as it was sent, with what is wrong in it."""
    user = viewer(request)
    manages, ended = roles.manages(project.pk, user), project.state == ProjectState.ENDED
    live = Count(
        "user__jobs", filter=Q(user__jobs__project=F("project"), user__jobs__state__in=sorted(LIVE_JOB_STATES))
    )
    members = Membership.objects.filter(project=project).select_related("user").annotate(live=live)
    order = list(ProjectRole)
    requests = ProjectRequest.objects.visible_to(user).filter(project=project).select_related("by")
    invitations = Invitation.objects.visible_to(user).filter(project=project, state=InvitationState.OPEN)
    context = {
        "project": project,
        "members": sorted(members, key=lambda m: (order.index(ProjectRole(m.role)), m.user.username)),
        "role": roles.role_in(project.pk, user),
        "manages": manages and not ended,
        "governs": roles.governs(user) and not ended,
        "owns": roles.owns(project, user) and not ended,
        "invitations": list(invitations.select_related("user", "by").order_by("pk")),
        "form": invite or InviteForm(roles=roles.grantable(project.pk, user)),
        "requests": list(requests.order_by("-pk")[:RECENT]),
        "open_requests": sum(1 for _one in requests.filter(state=RequestState.OPEN)),
        "jobs": list(Job.objects.filter(project=project).select_related("by").order_by("-pk")[:RECENT]),
        "live": Job.objects.filter(project=project, state__in=sorted(LIVE_JOB_STATES)).count(),
        "refunds": Refund.objects.filter(project=project).aggregate(n=Count("pk"), used=Sum("card_milli_s", default=0)),
    }
    context |= project_end.end_context(project, user, database_now()) | quota_parts.quota_part(project, user)
    return render(request, "projects/project.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def project_new(request: HttpRequest) -> HttpResponseBase:
    if not roles.governs(viewer(request)):
        raise PermissionDenied
    form = NewProjectForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        data = form.cleaned_data
        try:
            made = projects.open_project(
                slug=data["slug"], owner=data["owner"], details=form.details(), act=act_of(request)
            )
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("Project %(slug)s is open.") % {"slug": made.slug})
            return redirect("project", slug=made.slug)
    return render(request, "projects/new.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def project_change(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Site admins and managers change all of it, the project's own managers what it is called and what it is for."""
    project, user = project_of(request, slug), viewer(request)
    governs = roles.governs(user)
    if not governs and not roles.manages(project.pk, user):
        raise PermissionDenied
    kind = ChangeProjectForm if governs else TextsForm
    form = kind(request.POST if request.method == "POST" else None, initial=_now(project))
    if form.is_valid():
        reason = form.cleaned_data.get("reason", "")
        try:
            projects.change_project(project=project, details=form.details(), act=act_of(request, reason))
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("The project is changed."))
            return redirect("project", slug=project.slug)
    status = 422 if form.errors else 200
    return render(
        request, "projects/change.html", {"form": form, "project": project, "governs": governs}, status=status
    )


def _now(project: Project) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: getattr(project, name) for name in ChangeProjectForm.base_fields if hasattr(project, name)
    }
    return values | {"department": project.department.slug if project.department else None}
