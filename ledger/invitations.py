"""Invitations into projects: the only writer of them. Managers invite, the person answers, managers may take back.

Each act leaves one audit row in the same transaction; an accepted one makes the person a member (ledger.projects).
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from ledger import roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.invitation_ends import close, record
from ledger.models import Invitation, Membership, Project, User
from ledger.projects import lock_project, put_inside
from ledger.vocabulary import InvitationState, ProjectRole, ProjectState

OPEN_FOR: Final = dt.timedelta(days=30)
MOST_OPEN: Final = 200  # of one project


def invite(*, project: Project, user: User, role: ProjectRole, act: Act) -> Invitation:
    """Ask a person into a project. Refused when they are in it or asked already, or the actor can't give the role."""
    with transaction.atomic(durable=True):
        locked, now = lock_project(project.pk), database_now()
        _require(locked, user, role, act)
        open_now = _expire(Invitation.objects.filter(project=locked, state=InvitationState.OPEN), now)
        if any(one.user_id == user.pk for one in open_now):
            text = _("%(user)s is invited already and has not answered yet.") % {"user": user.username}
            raise Conflict(text, field="user", code="invited")
        if len(open_now) >= MOST_OPEN:
            text = _("%(n)d invitations are open, the most there may be. Take some back first.") % {"n": MOST_OPEN}
            raise Refused(text, field="user", code="too_many")
        made = Invitation.objects.create(
            project=locked,
            user=user,
            role=role,
            by=act.actor,
            reason=act.reason,
            made_at=now,
            expires_at=now + OPEN_FOR,
        )
        record(made, "invitation.made", act, after=_told(made))
    return made


def _require(project: Project, user: User, role: ProjectRole, act: Act) -> None:
    roles.require_managing(project.pk, act.actor)
    if role not in roles.grantable(project.pk, act.actor):
        raise Forbidden(_("Your role does not give this role."), field="role", code="role")
    if not user.is_active:
        raise Refused(_("%(user)s has left.") % {"user": user.username}, field="user", code="inactive")
    if Membership.objects.filter(project=project, user=user).exists():
        text = _("%(user)s is in the project already; change their role there.") % {"user": user.username}
        raise Conflict(text, field="user", code="member")


def open_invitations(user: User) -> QuerySet[Invitation]:
    """Those that this person may still answer."""
    found = Invitation.objects.filter(user=user, state=InvitationState.OPEN, expires_at__gt=database_now())
    return found.exclude(project__state=ProjectState.ENDED).select_related("project", "by").order_by("pk")


def answer(*, invitation: Invitation, accept: bool, act: Act) -> Invitation:
    """The invited person says yes or no. Conflict when it is no longer open or its time is over."""
    if act.actor is None or act.actor.pk != invitation.user_id:
        raise Forbidden(_("Only who is invited answers."), code="role")
    with transaction.atomic(durable=True):
        lock_project(invitation.project_id)
        found = _open(invitation.pk)
        now = database_now()
        if found.expires_at <= now:
            text = _("This invitation was open until %(at)s. Ask for a new one.") % {"at": found.expires_at.date()}
            raise Conflict(text, code="expired")
        if accept and ProjectRole(found.role) not in roles.grantable(found.project_id, found.by):
            text = _("%(user)s, who invited you, may not give this role any more. Ask for a new invitation.")
            raise Conflict(text % {"user": found.by.username if found.by else ""}, code="inviter")
        close(found, InvitationState.ACCEPTED if accept else InvitationState.DECLINED, now, act)
        if accept and not Membership.objects.filter(project=found.project_id, user=found.user_id).exists():
            put_inside(found.project_id, found.user, ProjectRole(found.role), act)
    return found


def withdraw(*, invitation: Invitation, act: Act) -> Invitation:
    """The project's managers take it back."""
    roles.require_managing(invitation.project_id, act.actor)
    with transaction.atomic(durable=True):
        lock_project(invitation.project_id)
        found = _open(invitation.pk)
        close(found, InvitationState.WITHDRAWN, database_now(), act)
    return found


def _open(pk: int) -> Invitation:
    found = Invitation.objects.select_for_update(no_key=True).get(pk=pk)
    if found.state != InvitationState.OPEN:
        raise Conflict(_("This invitation is no longer open."), code="answered")
    return found


def _expire(invitations: QuerySet[Invitation], now: dt.datetime) -> list[Invitation]:
    """Those that are still open; those whose time is over are closed, so that a person may be invited again."""
    rows = list(invitations)
    for one in rows:
        if one.expires_at <= now:
            close(one, InvitationState.WITHDRAWN, now, Act(None, "rule", "its time was over"))
    return [one for one in rows if one.expires_at > now]


def _told(invitation: Invitation) -> dict[str, str]:
    until = invitation.expires_at.isoformat()
    return {"user": invitation.user.username, "role": invitation.role, "expires_at": until}
