"""Who is in a project: invitations, roles, leaving, handing over. What a person runs goes on when they go."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from ledger import invitations, projects, roles
from ledger.errors import Forbidden, Refused
from ledger.models import Invitation, Job, Membership, Project
from ledger.vocabulary import LIVE_JOB_STATES, ProjectRole
from portal.project_forms import HandOverForm, InviteForm, OptionalReasonForm, RoleForm
from portal.sudo import needs_sudo
from portal.views.gate import signed_in, viewer
from portal.views.project_gate import act_of, project_of
from portal.views.projects import project_answer

ID_LIMIT = 2**63


@require_POST
@signed_in
def invite(request: HttpRequest, slug: str) -> HttpResponseBase:
    project = project_of(request, slug)
    if not roles.manages(project.pk, viewer(request)):
        raise PermissionDenied
    form = InviteForm(request.POST, roles=roles.grantable(project.pk, viewer(request)))
    if form.is_valid():
        data = form.cleaned_data
        try:
            invitations.invite(
                project=project, user=data["user"], role=ProjectRole(data["role"]), act=act_of(request, data["reason"])
            )
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("%(user)s is invited.") % {"user": data["user"].username})
            return redirect("project", slug=project.slug)
    return project_answer(request, project, invite=form, status=422)


@require_POST
@signed_in
def invitation_act(request: HttpRequest, pk: int, act: str) -> HttpResponseBase:
    """The invited person accepts or declines; the project's managers withdraw."""
    seen = Invitation.objects.visible_to(viewer(request)).select_related("project", "user")
    found = seen.filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404(_("There is no such invitation."))
    said = act_of(request)
    try:
        if act == "withdraw":
            invitations.withdraw(invitation=found, act=said)
            messages.success(request, _("The invitation is taken back."))
            return redirect("project", slug=found.project.slug)
        invitations.answer(invitation=found, accept=act == "accept", act=said)
    except Forbidden as forbidden:
        raise PermissionDenied(str(forbidden)) from None
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect("projects")
    if act == "accept":
        messages.success(request, _("You are in project %(slug)s.") % {"slug": found.project.slug})
        return redirect("project", slug=found.project.slug)
    messages.info(request, _("The invitation is declined."))
    return redirect("projects")


def _member(project: Project, username: str) -> Membership:
    found = None
    if "\x00" not in username:
        found = Membership.objects.filter(project=project, user__username=username).select_related("user").first()
    if found is None:
        raise Http404(_("Nobody of this name is in the project."))
    return found


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def member(request: HttpRequest, slug: str, username: str) -> HttpResponseBase:
    """A member's role in the project: seen by all in it, changed by its managers. POST changes the role."""
    project = project_of(request, slug)
    found = _member(project, username)
    form = RoleForm(
        request.POST if request.method == "POST" else None,
        roles=roles.grantable(project.pk, viewer(request)),
        initial={"role": found.role},
    )
    if request.method == "POST":
        if not roles.manages(project.pk, viewer(request)):
            raise PermissionDenied
        if form.is_valid() and _done(request, form, project, found):
            return redirect("project", slug=project.slug)
    return _answer(request, project, found, form, status=422 if form.errors else 200)


def _done(request: HttpRequest, form: RoleForm, project: Project, member: Membership) -> bool:
    role = ProjectRole(form.cleaned_data["role"])
    try:
        projects.set_role(project=project, user=member.user, role=role, act=act_of(request))
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return False
    messages.success(request, _("The role of %(user)s is changed.") % {"user": member.user.username})
    return True


def _answer(request: HttpRequest, project: Project, member: Membership, form: Any, status: int) -> HttpResponseBase:
    user = viewer(request)
    live = Job.objects.filter(project=project, by=member.user, state__in=sorted(LIVE_JOB_STATES)).order_by("-pk")
    manages = roles.manages(project.pk, user)
    context = {
        "project": project,
        "member": member,
        "form": form,
        "removal": OptionalReasonForm(),
        "live": list(live),
        "is_owner": member.user_id == project.owner_id,
        "manages": manages,
        "may_remove": (manages or member.user_id == user.pk) and member.user_id != project.owner_id,
        "is_self": member.user_id == user.pk,
    }
    return render(request, "projects/member.html", context, status=status)


@require_POST
@signed_in
def member_remove(request: HttpRequest, slug: str, username: str) -> HttpResponseBase:
    project = project_of(request, slug)
    found = _member(project, username)
    form = OptionalReasonForm(request.POST)
    reason = form.cleaned_data["reason"] if form.is_valid() else ""
    try:
        projects.remove_member(project=project, user=found.user, act=act_of(request, reason))
    except Forbidden as forbidden:
        raise PermissionDenied(str(forbidden)) from None
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect("member", slug=project.slug, username=username)
    if found.user_id == viewer(request).pk:
        messages.success(request, _("You have left project %(slug)s.") % {"slug": project.slug})
        return redirect("projects")
    messages.success(request, _("%(user)s is no longer in the project.") % {"user": username})
    return redirect("project", slug=project.slug)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@needs_sudo
def hand_over(request: HttpRequest, slug: str) -> HttpResponseBase:
    project = project_of(request, slug)
    if not roles.owns(project, viewer(request)):
        raise PermissionDenied
    form = HandOverForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        data = form.cleaned_data
        try:
            projects.hand_over(project=project, to=data["to"], act=act_of(request, data["reason"]))
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("%(user)s owns the project now.") % {"user": data["to"].username})
            return redirect("project", slug=project.slug)
    status = 422 if form.errors else 200
    return render(request, "projects/hand_over.html", {"form": form, "project": project}, status=status)
