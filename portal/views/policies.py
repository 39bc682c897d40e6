"""Policies of jobs: those that bear on one's projects, each with its history, what holds for a project, and the change
with its preview. Site admins and site managers change them. What may be said is judged by scheduler.policy_changes.
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

from ledger import roles
from ledger.acts import Act
from ledger.errors import Conflict, Refused
from ledger.models import Project
from ledger.vocabulary import ProjectState
from portal import labels, policy_forms
from portal.policy_forms import PAGE_FIELDS, SITE, ConfirmPolicyForm, EffectiveForm, PolicyForm
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.typed import id_of
from portal.views import policy_parts
from portal.views.gate import request_id, signed_in, viewer
from portal.views.policy_parts import Change
from scheduler import policy, policy_changes
from scheduler.policy import Terms, terms_of
from scheduler.policy_rows import JobPolicy, PolicyVersion

COLUMNS: Final = (
    Column(
        "scope",
        gettext_lazy("Jobs of"),
        lambda row: row.scope,
        "policies/cells/scope.html",
        ("project__slug", "department__slug", "kind"),
        always=True,
    ),
    Column("kind", gettext_lazy("Kind of work"), lambda row: _kind(row), sort=("kind",), shown=False),
    Column("says", gettext_lazy("What it says"), lambda row: row.summary, "policies/cells/says.html"),
    Column("version", gettext_lazy("Version"), lambda row: row.version.number, number=True),
    Column("since", gettext_lazy("Since"), lambda row: row.version.period.lower),
    Column("by", gettext_lazy("By"), lambda row: row.version.by.username),
    Column("reason", gettext_lazy("Reason"), lambda row: row.version.reason),
)


def _kind(row: Any) -> str:
    return labels.text("kind", row.policy.kind) if row.policy.kind else ""


@require_safe
@signed_in
def policy_list(request: HttpRequest) -> HttpResponseBase:
    found = JobPolicy.objects.visible_to(viewer(request)).select_related("project", "department")
    order = ("project__slug", "department__slug", "kind", "pk")
    table = Table(request, "policies", COLUMNS, found, decorate=policy_parts.policy_rows, order=order)
    if (file := table.export()) is not None:
        return file
    return render(request, "policies/list.html", {"t": table.context(), "governs": roles.governs(viewer(request))})


@require_safe
@signed_in
def policy_page(request: HttpRequest, pk: int) -> HttpResponseBase:
    found = _policy(request, pk)
    past = policy_parts.history(found)
    context = {
        "policy": found,
        "row": policy_parts.policy_rows([found])[0],
        "history": past,
        "governs": roles.governs(viewer(request)) and not _over(found),
    }
    return render(request, "policies/policy.html", context)


def _over(found: JobPolicy) -> bool:
    return found.project is not None and found.project.state == ProjectState.ENDED


def _policy(request: HttpRequest, pk: int) -> JobPolicy:
    rows = JobPolicy.objects.visible_to(viewer(request)).select_related("project", "department")
    found = rows.filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise Http404(_("There is no such policy, or it is not about your projects."))
    return found


@require_safe
@signed_in
def effective(request: HttpRequest) -> HttpResponseBase:
    """What holds for the jobs of a project and kind, and which version says it."""
    projects = list(Project.objects.visible_to(viewer(request)).distinct().order_by("slug"))
    form = EffectiveForm(request.GET if "project" in request.GET else None, projects=projects)
    context: dict[str, Any] = {"form": form, "projects": projects, "governs": roles.governs(viewer(request))}
    if form.is_valid():
        project = next(one for one in projects if one.slug == form.cleaned_data["project"])
        rules = policy.effective(project, form.cleaned_data["kind"])
        context |= {"project": project, "kind": form.cleaned_data["kind"], "sources": policy_parts.sources(rules)}
    return render(request, "policies/effective.html", context)


# -- change → preview → confirm ----------------------------------------------------------------------------------------


def _governs_only(request: HttpRequest) -> None:
    if not roles.governs(viewer(request)):
        raise PermissionDenied


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: HttpRequest) -> HttpResponseBase:
    """The form; a POST of it shows the preview. `?policy=` or `?about=` and `?kind=` say what it starts from."""
    _governs_only(request)
    if request.method != "POST":
        return _form(request, PolicyForm(initial=_starting(request)))
    form = PolicyForm(request.POST)
    proposed = _proposed(form)
    if proposed is None:
        return _form(request, form, status=422)
    return _preview(request, proposed, ConfirmPolicyForm(initial={"change": policy_parts.sealed(proposed)}))


def _form(request: HttpRequest, form: PolicyForm, status: int = 200) -> HttpResponseBase:
    return render(request, "policies/change.html", {"form": form}, status=status)


def _starting(request: HttpRequest) -> dict[str, Any]:
    pk = id_of(request.GET.get("policy", ""))
    found = JobPolicy.objects.select_related("project", "department").filter(pk=pk).first() if pk else None
    if found is None:
        return policy_forms.initial(request.GET.get("about", SITE), request.GET.get("kind", ""), None)
    about = SITE
    if found.project is not None:
        about = f"project:{found.project.slug}"
    elif found.department is not None:
        about = f"department:{found.department.slug}"
    row = found.versions.filter(period__upper_inf=True).first()
    values = policy_forms.initial(about, found.kind, terms_of(row) if row else None)
    return values | {"withdraw": request.GET.get("withdraw") == "yes"}


def _proposed(form: PolicyForm) -> Change | None:
    """What the form asks for, judged; None with the errors beside its fields."""
    if not form.is_valid():
        return None
    scope, withdraws = form.scope, form.cleaned_data["withdraw"]
    old = policy_parts.standing(scope)
    terms = Terms() if withdraws else form.terms
    proposed = Change(scope, terms, old.number if old else policy_changes.NONE)
    if withdraws and old is None:
        form.add_error("withdraw", _("The policy says nothing now."))
        return None
    try:
        if not withdraws:
            policy_changes.check_terms(terms)
        if old is not None and terms_of(old) == terms:
            raise Refused(_("This is what the policy says already."), code="no_change")
    except Refused as refused:
        field = PAGE_FIELDS.get(refused.field, refused.field)
        form.add_error(field if field in form.fields else None, str(refused))
        return None
    return proposed


def _preview(request: HttpRequest, proposed: Change, form: ConfirmPolicyForm, *, status: int = 200) -> HttpResponseBase:
    context = policy_parts.preview(proposed) | {"form": form}
    return render(request, "policies/preview.html", context, status=status)


@require_POST
@signed_in
@needs_sudo
def confirm(request: HttpRequest) -> HttpResponseBase:
    _governs_only(request)
    form, proposed = ConfirmPolicyForm(request.POST), policy_parts.opened(request.POST.get("change", ""))
    if proposed is None:
        messages.error(request, _("This preview is older than an hour or not ours. Nothing was changed; begin anew."))
        return _form(request, PolicyForm(initial={"about": SITE}), status=422)
    if not form.is_valid():
        return _preview(request, proposed, form, status=422)
    try:
        made = _make(proposed, Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request)))
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _preview(request, proposed, form, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("The policy is changed: this is its version %(n)d.") % {"n": made.number})
    return redirect("policy", pk=made.policy_id)


def _make(proposed: Change, act: Act) -> PolicyVersion:
    if not proposed.terms.says:
        return policy_changes.withdraw(scope=proposed.scope, act=act, shown=proposed.shown)
    return policy_changes.put_version(scope=proposed.scope, terms=proposed.terms, act=act, shown=proposed.shown)
