"""Answers about projects, invitations and requests, as JSON has them."""

from __future__ import annotations

from typing import Any

from ledger.models import Invitation, Project, ProjectRequest
from ledger.request_kinds import changes


def project(one: Project) -> dict[str, Any]:
    return {
        "id": one.pk,
        "slug": one.slug,
        "title": one.title,
        "purpose": one.purpose,
        "cost_centre": one.cost_centre,
        "owner": one.owner.username,
        "department": one.department.slug if one.department else None,
        "starts_on": one.starts_on.isoformat(),
        "ends_on": one.ends_on.isoformat() if one.ends_on else None,
        "grace_days": one.grace_days,
        "state": one.state,
        "members": [{"user": m.user.username, "role": m.role} for m in one.memberships.all()],
    }


def invitation(one: Invitation) -> dict[str, Any]:
    return {
        "id": one.pk,
        "project": one.project.slug,
        "user": one.user.username,
        "role": one.role,
        "by": one.by.username if one.by else None,
        "reason": one.reason,
        "state": one.state,
        "made_at": one.made_at.isoformat(),
        "expires_at": one.expires_at.isoformat(),
        "answered_at": one.answered_at.isoformat() if one.answered_at else None,
    }


def request_brief(one: ProjectRequest) -> dict[str, Any]:
    return {
        "id": one.pk,
        "kind": one.kind,
        "project": one.project.slug if one.project else None,
        "by": one.by.username,
        "details": one.details,
        "reason": one.reason,
        "state": one.state,
        "needs": one.needs,
        "made_at": one.made_at.isoformat(),
        "expires_at": one.expires_at.isoformat(),
        "decided_at": one.decided_at.isoformat() if one.decided_at else None,
    }


def request_detail(one: ProjectRequest) -> dict[str, Any]:
    verdicts = one.verdicts.select_related("by").order_by("pk")
    comments = one.comments.select_related("by").order_by("pk")
    return request_brief(one) | {
        "changes": [{"field": name, "before": before, "after": after} for name, before, after in changes(one)],
        "verdicts": [
            {"by": v.by.username, "approves": v.approves, "reason": v.reason, "at": v.at.isoformat()} for v in verdicts
        ],
        "comments": [{"by": c.by.username, "text": c.text, "at": c.at.isoformat()} for c in comments],
    }
