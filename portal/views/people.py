"""Who may sign in, for site admins: the list, a new account, one person with what stands in their name."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import accounts, roles
from ledger.errors import Forbidden, Refused
from ledger.leavers import standing_in_name_of
from ledger.models import Membership, User
from ledger.vocabulary import LIVE_JOB_STATES, SiteRole
from portal import labels, odd_grant_rows
from portal.people_forms import AccountForm, LeaveForm, PeopleFilter, SiteRoleForm
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views.gate import View, signed_in, viewer
from portal.views.project_gate import act_of

COLUMNS: Final = (
    Column("name", gettext_lazy("Name"), lambda u: u.username, "people/cells/name.html", ("username",), always=True),
    Column("role", gettext_lazy("Site role"), lambda u: labels.text("site_role", u.site_role), sort=("site_role",)),
    Column("state", gettext_lazy("State"), lambda u: _state(u), "people/cells/state.html", ("is_active",)),
    Column("email", gettext_lazy("E-mail"), lambda u: u.email, sort=("email",)),
    Column("projects", gettext_lazy("Projects"), lambda u: u.projects, sort=("projects",), number=True),
    Column("live", gettext_lazy("Live jobs"), lambda u: u.live, sort=("live",), number=True),
    Column("joined", gettext_lazy("Since"), lambda u: u.date_joined, sort=("date_joined",)),
    Column("seen", gettext_lazy("Last sign-in"), lambda u: u.last_login, sort=("last_login",)),
)


def _state(user: User) -> str:
    return pgettext("person", "here") if user.is_active else pgettext("person", "has left")


def for_admins(view: View) -> View:
    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not roles.is_admin(viewer(request)):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(inner)


@require_safe
@for_admins
def people(request: HttpRequest) -> HttpResponseBase:
    form = PeopleFilter(request.GET, known={})
    table = Table(request, "people", COLUMNS, _filtered(form.chosen), form, order=("username",))
    if (file := table.export()) is not None:
        return file
    return render(request, "people/list.html", {"form": form, "t": table.context()})


def _filtered(chosen: dict[str, Any]) -> QuerySet[Any]:
    live = Count("jobs", filter=Q(jobs__state__in=sorted(LIVE_JOB_STATES)), distinct=True)
    found = User.objects.annotate(projects=Count("memberships", distinct=True), live=live)
    if text := chosen.get("q"):
        found = found.filter(Q(username__icontains=text) | Q(email__icontains=text))
    if role := chosen.get("role"):
        found = found.filter(site_role=role)
    if state := chosen.get("state"):
        found = found.filter(is_active=state == "here")
    return found


@require_http_methods(["GET", "HEAD", "POST"])
@for_admins
@needs_sudo
@sensitive_variables("password")
def people_new(request: HttpRequest) -> HttpResponseBase:
    """The first password stands in this one answer and nowhere else."""
    form, made, password = AccountForm(request.POST if request.method == "POST" else None), None, ""
    if form.is_valid():
        try:
            made, password = accounts.create_account(
                username=form.cleaned_data["username"],
                email=form.cleaned_data["email"],
                site_role=SiteRole(form.cleaned_data["site_role"]),
                act=act_of(request),
            )
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
    context = {"form": AccountForm() if made else form, "made": made, "password": password}
    return render(request, "people/new.html", context, status=422 if form.errors else 200)


def _person(username: str) -> User:
    found = User.objects.filter(username=username).first() if "\x00" not in username else None
    if found is None:
        raise Http404(_("There is nobody of this name."))
    return found


@require_safe
@for_admins
def person(request: HttpRequest, username: str) -> HttpResponseBase:
    return _answer(request, _person(username), SiteRoleForm(), LeaveForm())


def _answer(request: HttpRequest, user: User, role: Any, leave: Any, status: int = 200) -> HttpResponseBase:
    members = Membership.objects.filter(user=user).select_related("project").order_by("project__slug")
    if not role.is_bound:
        role.initial = {"site_role": user.site_role}
    context = {
        "person": user,
        "members": list(members),
        "standing": standing_in_name_of(user),
        "odd": odd_grant_rows.of_person(viewer(request), user),
        "gives": user.pk != viewer(request).pk,
        "role_form": role,
        "leave_form": leave,
        "is_self": user.pk == viewer(request).pk,
    }
    return render(request, "people/person.html", context, status=status)


@require_POST
@for_admins
@needs_sudo
def person_role(request: HttpRequest, username: str) -> HttpResponseBase:
    user, form = _person(username), SiteRoleForm(request.POST)
    if form.is_valid():
        role, act = SiteRole(form.cleaned_data["site_role"]), act_of(request, form.cleaned_data["reason"])
        if _done(form, lambda: accounts.set_site_role(user=user, site_role=role, act=act)):
            messages.success(request, _("The site role of %(user)s is changed.") % {"user": username})
            return redirect("person", username=username)
    return _answer(request, user, form, LeaveForm(), status=422)


@require_POST
@for_admins
@needs_sudo
def person_leave(request: HttpRequest, username: str) -> HttpResponseBase:
    """Who is here leaves; who has left comes back."""
    user, form = _person(username), LeaveForm(request.POST)
    write = accounts.deactivate if user.is_active else accounts.reactivate
    if form.is_valid() and _done(form, lambda: write(user=user, act=act_of(request, form.cleaned_data["reason"]))):
        text = (
            _("%(user)s has left: sign-in, sessions and tokens are closed.")
            if user.is_active
            else _("%(user)s is back.")
        )
        messages.success(request, text % {"user": username})
        return redirect("person", username=username)
    return _answer(request, user, SiteRoleForm(), form, status=422)


def _done(form: Any, write: Any) -> bool:
    try:
        write()
    except Forbidden as forbidden:
        if forbidden.code != "self":
            raise PermissionDenied(str(forbidden)) from None
        form.add_error(None, str(forbidden))
        return False
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return False
    return True
