"""Project roles and odd grants → object permissions, by one function: django-guardian's rows are derived from
memberships and from odd grants, never set by hand. And who may change what in a project.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django.contrib.auth.models import Permission
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from ledger.errors import Forbidden
from ledger.models import (
    DepartmentUserPermission,
    Membership,
    OddGrant,
    Project,
    ProjectUserPermission,
    User,
    ZoneUserPermission,
)
from ledger.vocabulary import ProjectRole, ProjectState, SiteRole

VIEW, CHANGE = "view_project", "change_project"
ROLE_PERMISSIONS: Final[dict[ProjectRole, frozenset[str]]] = {
    ProjectRole.OWNER: frozenset({VIEW, CHANGE}),
    ProjectRole.MANAGER: frozenset({VIEW, CHANGE}),
    ProjectRole.MEMBER: frozenset({VIEW}),
    ProjectRole.VIEWER: frozenset({VIEW}),
}
ODD_PERMISSIONS: Final[tuple[tuple[type[Any], str, str], ...]] = (
    (ZoneUserPermission, "zone", "operate_zone"),
    (DepartmentUserPermission, "department", "audit_department"),
)
READING: Final = frozenset({VIEW})  # what is left of every role once the project has ended
MANAGING: Final = (ProjectRole.OWNER, ProjectRole.MANAGER)
GRANTING: Final[dict[ProjectRole, frozenset[ProjectRole]]] = {  # what each role may give to others and take from them
    ProjectRole.OWNER: frozenset({ProjectRole.MANAGER, ProjectRole.MEMBER, ProjectRole.VIEWER}),
    ProjectRole.MANAGER: frozenset({ProjectRole.MANAGER, ProjectRole.MEMBER, ProjectRole.VIEWER}),
    ProjectRole.MEMBER: frozenset(),
    ProjectRole.VIEWER: frozenset(),
}
GOVERNING: Final = (SiteRole.ADMIN, SiteRole.MANAGER)  # site roles that open projects and set dates and quotas


def permissions_of(role: str, state: str) -> frozenset[str]:
    """Codenames that a role gives in a project of this state."""
    return READING if state == ProjectState.ENDED else ROLE_PERMISSIONS[ProjectRole(role)]


def derive(project: Project, user_id: int | None = None) -> None:
    """Make the object permissions of one person, or of everybody, in the project equal to what their roles give."""
    rows = ProjectUserPermission.objects.filter(content_object=project)
    members = Membership.objects.filter(project=project)
    if user_id is not None:
        rows, members = rows.filter(user=user_id), members.filter(user=user_id)
    codes = dict(Permission.objects.filter(content_type__model="project").values_list("codename", "pk"))
    wanted = {
        (project.pk, member.user_id, codes[code])
        for member in members
        for code in permissions_of(member.role, project.state)
    }
    _make_equal(ProjectUserPermission, rows, wanted)


def derive_odd(user_id: int, now: dt.datetime) -> None:
    """Make one person's object permissions of zones and departments equal to what their odd grants give now."""
    grants = OddGrant.objects.filter(user=user_id, period__contains=now)
    for model, place, code in ODD_PERMISSIONS:
        permission = Permission.objects.get(content_type__model=place, codename=code).pk
        places = grants.exclude(**{place: None}).values_list(f"{place}_id", flat=True)
        _make_equal(model, model.objects.filter(user=user_id), {(pk, user_id, permission) for pk in places})


def _make_equal(model: type[Any], rows: QuerySet[Any], wanted: set[tuple[int, int, int]]) -> None:
    """`wanted`: (object, user, permission)."""
    found = {(row.content_object_id, row.user_id, row.permission_id): row.pk for row in rows}
    model.objects.filter(pk__in=[pk for key, pk in found.items() if key not in wanted]).delete()
    model.objects.bulk_create(
        model(content_object_id=thing, user_id=user, permission_id=permission)
        for thing, user, permission in sorted(wanted - found.keys())
    )


def role_in(project_id: int, user: User) -> ProjectRole | None:
    """Their role; nobody who has left the site has one."""
    if not user.is_active:
        return None
    role = Membership.objects.filter(project=project_id, user=user).values_list("role", flat=True).first()
    return ProjectRole(role) if role else None


def governs(user: User | None) -> bool:
    """Whether they open projects and set their dates, departments and quotas. None is the system."""
    return user is None or (user.is_active and user.site_role in GOVERNING)


def manages(project_id: int, user: User | None) -> bool:
    """Whether they decide who is in the project: its owner, its managers and site admins. None is the system."""
    if user is None or is_admin(user):
        return True
    return role_in(project_id, user) in MANAGING


def owns(project: Project, user: User | None) -> bool:
    """Whether they decide who owns the project: its owner and site admins. None is the system."""
    return user is None or is_admin(user) or (user.is_active and user.pk == project.owner_id)


def is_admin(user: User | None) -> bool:
    return user is None or (user.is_active and user.site_role == SiteRole.ADMIN)


def require_owning(project: Project, user: User | None) -> None:
    if not owns(project, user):
        raise Forbidden(_("Only the owner and site admins hand a project over."), code="role")


def require_changing(project_id: int, user: User | None) -> None:
    """Whoever changes anything of what a project says of itself."""
    if not governs(user):
        require_managing(project_id, user)


def require_governing(user: User | None) -> None:
    if not governs(user):
        raise Forbidden(_("Only site admins and site managers do this."), code="role")


def require_managing(project_id: int, user: User | None) -> None:
    if not manages(project_id, user):
        raise Forbidden(_("Only the project's owner, its managers and site admins do this."), code="role")


def grantable(project_id: int, user: User | None) -> frozenset[ProjectRole]:
    """The roles that they may give in this project, and take; the owner's goes by hand-over alone."""
    if user is None or is_admin(user):
        return GRANTING[ProjectRole.OWNER]
    role = role_in(project_id, user)
    return GRANTING[role] if role else frozenset()
