"""How invitations end: answered, taken back, or closed with what they depend on. For ledger.invitations and whoever
takes people out of projects."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db.models import Q

from ledger import audit
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Invitation, Project, User
from ledger.vocabulary import InvitationState


def close_inside(project: Project, reason: str) -> int:
    """The open ones of a project that ends; the caller holds its lock. Returns how many."""
    return _close_all(project, Q(), Act(None, "task", reason))


def close_of(project: Project, user: User) -> int:
    """The open ones to and by somebody who is taken out; the caller holds the project's lock. Returns how many."""
    text = f"{user.username} was taken out of the project"
    return _close_all(project, Q(user=user) | Q(by=user), Act(None, "rule", text))


def close(invitation: Invitation, state: InvitationState, now: dt.datetime, act: Act) -> None:
    before, invitation.state, invitation.answered_at = invitation.state, state, now
    invitation.save(update_fields=["state", "answered_at"])
    record(invitation, f"invitation.{state}", act, before={"state": before}, after={"state": state})


def record(invitation: Invitation, verb: str, act: Act, **states: Any) -> None:
    audit.record(verb=verb, target=invitation, project=invitation.project_id, **states, **act.said())


def _close_all(project: Project, which: Q, act: Act) -> int:
    rows = Invitation.objects.filter(which, project=project, state=InvitationState.OPEN).order_by("pk")
    now = database_now()
    for one in rows.select_for_update(no_key=True):
        close(one, InvitationState.WITHDRAWN, now, act)
    return len(rows)
