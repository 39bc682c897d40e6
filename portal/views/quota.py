"""Quota: of all projects that one may see, of one project, the change with its preview, and limits of members.

Site admins and site managers change grants; a project's own people limit its members. What may be done is judged by
ledger.quota and ledger.member_limits.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import limits, member_limits, observation, quota, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Project, QuotaGrant, User
from ledger.quota import Terms
from ledger.vocabulary import Resource
from portal import labels, quota_words
from portal.forms import card_models
from portal.quota_forms import ConfirmGrantForm, GrantForm, MemberLimitForm, initial_terms
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views import quota_parts
from portal.views.gate import request_id, signed_in, viewer
from portal.views.quota_parts import Change, GrantRow


def _number(name: str) -> Any:
    return lambda row: float(quota_words.people_units(row.grant.resource, getattr(row.grant, name)))


COLUMNS: Final = (
    Column(
        "project",
        gettext_lazy("Project"),
        lambda row: row.grant.project.slug,
        "quota/cells/project.html",
        ("project__slug",),
        always=True,
    ),
    Column(
        "resource",
        gettext_lazy("Of what"),
        lambda row: labels.text("resource", row.grant.resource),
        sort=("resource",),
        always=True,
    ),
    Column("model", gettext_lazy("Card model"), lambda row: row.grant.model, sort=("model",)),
    Column("unit", gettext_lazy("Unit"), lambda row: str(quota_words.UNITS[row.grant.resource])),
    Column("limit", gettext_lazy("Limit"), _number("amount"), "quota/cells/limit.html", ("amount",), number=True),
    Column(
        "guaranteed",
        gettext_lazy("Guaranteed"),
        _number("guaranteed"),
        "quota/cells/guaranteed.html",
        ("guaranteed",),
        number=True,
    ),
    Column("weight", gettext_lazy("Weight"), lambda row: row.grant.weight, sort=("weight",), number=True),
    Column(
        "used",
        gettext_lazy("Used"),
        lambda row: float(quota_words.people_units(row.grant.resource, row.used)),
        "quota/cells/used.html",
        number=True,
    ),
    Column("renews", gettext_lazy("Starts anew"), lambda row: row.renews_on),
    Column("observed", gettext_lazy("Observed until"), lambda row: row.observed_until),
    Column("drain_at", gettext_lazy("Jobs are ended from"), lambda row: row.grant.drain_at, sort=("drain_at",)),
    Column("until", gettext_lazy("Until"), lambda row: row.grant.period.upper, shown=False),
    Column("reason", gettext_lazy("Reason"), lambda row: row.grant.reason, shown=False),
)


@require_safe
@signed_in
def quota_list(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    visible = Project.objects.visible_to(user)
    grants = QuotaGrant.objects.filter(project__in=visible, period__contains=database_now())
    table = Table(
        request,
        "quota",
        COLUMNS,
        grants.select_related("project"),
        decorate=quota_parts.grant_rows,
        order=("project__slug", "resource", "model", "pk"),
    )
    if (file := table.export()) is not None:
        return file
    unlimited = visible.exclude(quota_grants__period__contains=database_now()).distinct().count()
    context = {"t": table.context(), "unlimited": unlimited, "sees_departments": user.audits_somewhere}
    return render(request, "quota/list.html", context)


# -- one project -------------------------------------------------------------------------------------------------------


def _project(request: HttpRequest, slug: str) -> Project:
    project = Project.objects.visible_to(viewer(request)).select_related("department").filter(slug=slug).first()
    if project is None:
        raise Http404(_("There is no such project, or you may not see it."))
    return project


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def project_quota(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The page; a POST of its form shows the preview."""
    project = _project(request, slug)
    if request.method != "POST":
        return _page(request, project)
    if not roles.governs(viewer(request)):
        raise PermissionDenied
    form = GrantForm(request.POST, models=card_models())
    change = _proposed(request, project, form)
    if change is None:
        return _page(request, project, form=form, status=422)
    return _preview(request, project, change, ConfirmGrantForm(initial={"change": quota_parts.sealed(project, change)}))


def _page(
    request: HttpRequest,
    project: Project,
    *,
    form: GrantForm | None = None,
    limit_form: MemberLimitForm | None = None,
    status: int = 200,
) -> HttpResponseBase:
    part = quota_parts.quota_part(project, viewer(request))
    context = part | {
        "effects": quota_parts.effects(part["grants"], project),
        "former": quota_parts.former_grants(project),
        "spent": quota_parts.spent_before(project, part["grants"]),
        "borrowed": quota_parts.borrowed(project, viewer(request)),
    }
    if part["may_set_quota"]:
        context["form"] = form or _fresh_form(request, part["grants"])
    if part["may_set_limits"]:
        context["limit_form"] = limit_form or MemberLimitForm(members=quota_parts.members(project))
    return render(request, "quota/project.html", context, status=status)


def _fresh_form(request: HttpRequest, rows: list[GrantRow]) -> GrantForm:
    """With what stands of the resource and model that `?resource=` and `?model=` name."""
    resource, model = request.GET.get("resource", Resource.CARD_MILLI), request.GET.get("model", "")
    if resource not in list(Resource):
        resource = Resource.CARD_MILLI
    grant = next((row.grant for row in rows if (row.grant.resource, row.grant.model) == (resource, model)), None)
    terms = None
    if grant is not None:
        values = {"guaranteed": grant.guaranteed, "weight": grant.weight, "renews": grant.renews}
        terms = Terms(Resource(resource), grant.amount, until=grant.period.upper, **values)
    return GrantForm(initial=initial_terms(resource, model, terms), models=card_models())


def _proposed(request: HttpRequest, project: Project, form: GrantForm) -> Change | None:
    """What the form asks for, tried out; None with the errors beside its fields."""
    if not form.is_valid():
        return None
    data = form.cleaned_data
    lift = data["lift"]
    terms = Terms(Resource(data["resource"]), 0, model=data["model"]) if lift else form.terms
    standing = quota_parts.of_now(project, terms.resource, terms.model)
    if lift and standing is None:
        form.add_error("lift", _("Nothing limits this now."))
        return None
    try:
        if not lift:
            quota.try_grant(project=project, terms=terms, act=_act(request, ""))
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return None
    return Change(terms, lift, standing.pk if standing else limits.NONE)


def _preview(
    request: HttpRequest, project: Project, change: Change, form: ConfirmGrantForm, *, status: int = 200
) -> HttpResponseBase:
    facts = quota_parts.preview(project, change)
    form.fields["override_reason"].required = facts["observed_until"] is not None
    if facts["observed_until"] is not None:
        facts["window_text"] = observation.window_text(facts["observed_until"])
    return render(request, "quota/preview.html", facts | {"project": project, "form": form}, status=status)


@require_POST
@signed_in
@needs_sudo
def confirm(request: HttpRequest, slug: str) -> HttpResponseBase:
    project = _project(request, slug)
    if not roles.governs(viewer(request)):
        raise PermissionDenied
    form, change = ConfirmGrantForm(request.POST), quota_parts.opened(project, request.POST.get("change", ""))
    if change is None:
        messages.error(request, _("This preview is older than an hour or not ours. Nothing was changed; begin anew."))
        return _page(request, project, status=422)
    if not form.is_valid():
        return _preview(request, project, change, form, status=422)
    try:
        _make(project, change, _act(request, form.cleaned_data["reason"]), form.cleaned_data["override_reason"])
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _preview(request, project, change, form, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("The quota is changed."))
    return redirect("quota-project", slug=project.slug)


def _make(project: Project, change: Change, act: Act, override: str) -> None:
    terms, how = change.terms, {"project": project, "act": act, "override": override, "shown": change.shown}
    if change.lift:
        quota.lift_grant(resource=terms.resource, model=terms.model, **how)
    else:
        quota.set_grant(terms=terms, **how)


@require_POST
@signed_in
def member_limit(request: HttpRequest, slug: str) -> HttpResponseBase:
    project = _project(request, slug)
    if not roles.manages(project.pk, viewer(request)):
        raise PermissionDenied
    form = MemberLimitForm(request.POST, members=quota_parts.members(project))
    if not form.is_valid():
        return _page(request, project, limit_form=form, status=422)
    data = form.cleaned_data
    what: dict[str, Any] = {
        "project": project,
        "user": User.objects.get(username=data["user"]),
        "resource": Resource(data["resource"]),
        "act": _act(request, data["reason"]),
    }
    try:
        if data["amount"] is None:
            member_limits.lift_limit(**what)
        else:
            member_limits.set_limit(amount=data["amount"], **what)
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _page(request, project, limit_form=form, status=422)
    messages.success(request, _("The limit of %(user)s is changed.") % {"user": data["user"]})
    return redirect("quota-project", slug=project.slug)


def _act(request: HttpRequest, reason: str) -> Act:
    return Act(viewer(request), "page", reason, request_id(request))
