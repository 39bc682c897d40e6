"""Requests: for an extension, a new project, or to be in one; their review with comments, verdicts and a diff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import requests, roles
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Project, ProjectRequest, QuotaGrant
from ledger.vocabulary import RequestKind, RequestState
from portal import labels
from portal.project_forms import (
    AskProjectForm,
    CommentForm,
    ExtensionForm,
    JoinForm,
    OptionalReasonForm,
    RequestFilter,
)
from portal.project_words import change_rows
from portal.quota_forms import AskQuotaForm
from portal.tables import Column, Table
from portal.views.gate import signed_in, viewer
from portal.views.project_gate import act_of, project_of

ID_LIMIT: Final = 2**63
COLUMNS: Final = (
    Column(
        "request", gettext_lazy("No."), lambda r: r.pk, "requests/cells/number.html", ("pk",), number=True, always=True
    ),
    Column("kind", gettext_lazy("Kind"), lambda r: labels.text("request_kind", r.kind), sort=("kind",)),
    Column("project", gettext_lazy("Project"), lambda r: _about(r), "requests/cells/project.html"),
    Column(
        "state",
        gettext_lazy("State"),
        lambda r: labels.text("request", r.state),
        "requests/cells/state.html",
        ("state",),
    ),
    Column("by", gettext_lazy("By"), lambda r: r.by.username, sort=("by__username",)),
    Column("reason", gettext_lazy("Reason"), lambda r: r.reason, "zones/cells/reason.html"),
    Column("made", gettext_lazy("Asked"), lambda r: r.made_at, sort=("made_at",)),
    Column("decided", gettext_lazy("Decided"), lambda r: r.decided_at, sort=("decided_at",)),
    Column("expires", gettext_lazy("Open until"), lambda r: r.expires_at, sort=("expires_at",), shown=False),
)


def _about(request: ProjectRequest) -> str:
    return request.project.slug if request.project else str(request.details.get("slug", ""))


def _seen(request: HttpRequest) -> QuerySet[ProjectRequest]:
    return ProjectRequest.objects.visible_to(viewer(request)).select_related("project", "by")


@require_safe
@signed_in
def request_list(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    projects = [(p.slug, p.slug) for p in Project.objects.visible_to(user).order_by("slug")]
    form = RequestFilter(request.GET, known={"project": projects})
    table = Table(request, "requests", COLUMNS, _filtered(request, form.chosen), form)
    if (file := table.export()) is not None:
        return file
    return render(request, "requests/list.html", {"form": form, "t": table.context()})


def _filtered(request: HttpRequest, chosen: Mapping[str, Any]) -> QuerySet[ProjectRequest]:
    user, found = viewer(request), _seen(request)
    if chosen.get("mine") == "decide":
        found = found.filter(pk__in=ProjectRequest.objects.decided_by(user).values("pk"))
    elif chosen.get("mine") == "own":
        found = found.filter(by=user)
    for name, field in (("state", "state"), ("kind", "kind"), ("project", "project__slug")):
        if value := chosen.get(name):
            found = found.filter(**{field: value})
    return found


# -- asking -----------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def ask_extension(request: HttpRequest, slug: str) -> HttpResponseBase:
    project = project_of(request, slug)
    if roles.role_in(project.pk, viewer(request)) not in roles.MANAGING:
        raise PermissionDenied
    form = ExtensionForm(request.POST if request.method == "POST" else None)
    return _asked(request, form, RequestKind.EXTENSION, project) or _form(request, form, "extension", project)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def ask_quota(request: HttpRequest, slug: str) -> HttpResponseBase:
    project = project_of(request, slug)
    if roles.role_in(project.pk, viewer(request)) not in roles.MANAGING:
        raise PermissionDenied
    grants = QuotaGrant.objects.filter(project=project, period__contains=database_now()).order_by("resource", "model")
    form = AskQuotaForm(request.POST if request.method == "POST" else None, grants=list(grants))
    return _asked(request, form, RequestKind.QUOTA, project) or _form(request, form, "quota", project)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def ask_project(request: HttpRequest) -> HttpResponseBase:
    form = AskProjectForm(request.POST if request.method == "POST" else None)
    return _asked(request, form, RequestKind.NEW_PROJECT, None) or _form(request, form, "new_project")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def ask_to_join(request: HttpRequest) -> HttpResponseBase:
    """The answer is the same whether there is such a project or not. One's own list shows the request,
    so that it can be taken back."""
    initial = {"project": request.GET.get("project", "")[:50], "role": "member"}
    form = JoinForm(request.POST if request.method == "POST" else None, initial=initial)
    if form.is_valid():
        project = Project.objects.filter(slug=form.cleaned_data["project"]).first()
        try:
            requests.check_room(viewer(request))
            if project is not None:
                requests.ask(
                    kind=RequestKind.JOIN,
                    project=project,
                    details={"role": form.cleaned_data["role"]},
                    act=act_of(request, form.cleaned_data["reason"]),
                )
        except Conflict as conflict:
            if conflict.code == "member":
                form.add_error("project", str(conflict))
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        if not form.errors:
            text = _("If there is a project of this name, its managers have your request now.")
            messages.success(request, text)
            return redirect("requests")
    return _form(request, form, "join")


def _asked(
    request: HttpRequest, form: forms.Form, kind: RequestKind, project: Project | None
) -> HttpResponseBase | None:
    """The way to the new request, or None with the errors in the form."""
    if not form.is_valid():
        return None
    data = dict(form.cleaned_data)
    reason = data.pop("reason")
    data.pop("grant", None)
    if department := data.get("department"):
        data["department"] = department.slug
    details = {name: value for name, value in data.items() if value not in (None, "")}
    try:
        made = requests.ask(kind=kind, project=project, details=details, act=act_of(request, reason))
    except Forbidden as forbidden:
        raise PermissionDenied(str(forbidden)) from None
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return None
    messages.success(request, _("Your request is number %(n)d.") % {"n": made.pk})
    return redirect("request", pk=made.pk)


def _form(request: HttpRequest, form: forms.Form, kind: str, project: Project | None = None) -> HttpResponseBase:
    context = {"form": form, "kind": kind, "project": project}
    return render(request, "requests/ask.html", context, status=422 if form.errors else 200)


# -- one request ------------------------------------------------------------------------------------------------------


def _request(request: HttpRequest, pk: int) -> ProjectRequest:
    found = _seen(request).filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404(_("There is no such request."))
    return found


@require_safe
@signed_in
def request_page(request: HttpRequest, pk: int) -> HttpResponseBase:
    return _answer(request, _request(request, pk), {})


def _answer(
    request: HttpRequest, found: ProjectRequest, given: Mapping[str, forms.Form], status: int = 200
) -> HttpResponseBase:
    user = viewer(request)
    is_open = found.state == RequestState.OPEN
    verdicts = requests.verdicts_on(found)
    may_decide = is_open and requests.may_decide(found, user)
    context = {
        "asked": found,
        "changes": change_rows(found),
        "verdicts": verdicts,
        "left": requests.missing(found, verdicts),
        "comments": list(found.comments.select_related("by").order_by("pk")),
        "may_decide": may_decide and all(verdict.by_id != user.pk for verdict in verdicts),
        "may_comment": is_open and requests.may_comment(found, user),
        "may_withdraw": is_open and found.by_id == user.pk,
        "complaints": [error for form in given.values() for error in form.non_field_errors()],
        "verdict_form": given.get("verdict") or OptionalReasonForm(),
        "comment_form": given.get("comment") or CommentForm(),
        "sees_project": found.project and Project.objects.visible_to(user).filter(pk=found.project_id).exists(),
    }
    return render(request, "requests/request.html", context, status=status)


@require_POST
@signed_in
def request_verdict(request: HttpRequest, pk: int) -> HttpResponseBase:
    """`verdict` is approve or refuse; to refuse needs a reason."""
    found, form = _request(request, pk), OptionalReasonForm(request.POST)
    verdict = request.POST.get("verdict")
    if verdict not in ("approve", "refuse"):
        form.add_error(None, _("Approve or refuse."))
    if form.is_valid():
        act = act_of(request, form.cleaned_data["reason"])
        try:
            done = requests.decide(request=found, approves=verdict == "approve", act=act)
        except Forbidden as forbidden:
            raise PermissionDenied(str(forbidden)) from None
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _told(done))
            return redirect("request", pk=pk)
    return _answer(request, _request(request, pk), {"verdict": form}, status=422)


def _told(request: ProjectRequest) -> str:
    if request.state == RequestState.APPROVED:
        return _("The request is approved and done.")
    if request.state == RequestState.REFUSED:
        return _("The request is refused.")
    return _("You have approved; one more person has to.")


@require_POST
@signed_in
def request_comment(request: HttpRequest, pk: int) -> HttpResponseBase:
    found, form = _request(request, pk), CommentForm(request.POST)
    if form.is_valid():
        try:
            requests.comment(request=found, text=form.cleaned_data["text"], act=act_of(request))
        except Forbidden as forbidden:
            raise PermissionDenied(str(forbidden)) from None
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            return redirect("request", pk=pk)
    return _answer(request, found, {"comment": form}, status=422)


@require_POST
@signed_in
def request_withdraw(request: HttpRequest, pk: int) -> HttpResponseBase:
    found = _request(request, pk)
    try:
        requests.withdraw(request=found, act=act_of(request))
    except Forbidden as forbidden:
        raise PermissionDenied(str(forbidden)) from None
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, _("The request is taken back."))
    return redirect("request", pk=pk)
