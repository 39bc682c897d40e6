"""Roles → permissions, in one place. Object permissions (django-guardian rows) are derived, never set by hand."""

from __future__ import annotations

from typing import Final

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType

from ledger import audit
from ledger.models import Membership, Project, ProjectUserPermission, User
from ledger.vocabulary import ProjectRole

VIEW, CHANGE = "view_project", "change_project"
ROLE_PERMISSIONS: Final[dict[ProjectRole, frozenset[str]]] = {
    ProjectRole.OWNER: frozenset({VIEW, CHANGE}),
    ProjectRole.MANAGER: frozenset({VIEW, CHANGE}),
    ProjectRole.MEMBER: frozenset({VIEW}),
    ProjectRole.VIEWER: frozenset({VIEW}),
}


def grant_role(membership: Membership, *, actor: User | None = None, via: str = "system") -> Membership:
    """Store the membership and make the person's object permissions in the project equal to its role's."""
    saved, _ = Membership.objects.update_or_create(
        project=membership.project, user=membership.user, defaults={"role": membership.role}
    )
    audit.record(
        actor=actor,
        via=via,
        verb="member.role",
        target=saved,
        project=membership.project,
        after={"user": membership.user.username, "role": membership.role},
    )
    kind = ContentType.objects.get_for_model(Project)
    wanted = Permission.objects.filter(content_type=kind, codename__in=ROLE_PERMISSIONS[ProjectRole(membership.role)])
    rows = ProjectUserPermission.objects.filter(content_object=membership.project, user=membership.user)
    rows.exclude(permission__in=wanted).delete()
    for permission in wanted:
        ProjectUserPermission.objects.get_or_create(
            content_object=membership.project, user=membership.user, permission=permission
        )
    return saved


def revoke_role(*, project: Project, user_id: int, actor: User | None = None, via: str = "system") -> None:
    """Take a person out of a project: access ends at the next request, work and usage stay."""
    for membership in Membership.objects.filter(project=project, user_id=user_id):
        audit.record(
            actor=actor,
            via=via,
            verb="member.removed",
            target=membership,
            project=project,
            before={"user": membership.user.username, "role": membership.role},
        )
    ProjectUserPermission.objects.filter(content_object=project, user_id=user_id).delete()
    Membership.objects.filter(project=project, user_id=user_id).delete()
