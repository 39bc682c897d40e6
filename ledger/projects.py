"""Projects and who is in them: the only writer of projects and memberships. A member who goes loses access at the next
request; their work goes on and stays in the books.

Each writer checks who may, says why not (`errors`), and leaves one audit row a change in the same transaction.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields
from typing import Any, Final

from django.core.validators import slug_re
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from ledger import audit, departments, invitation_ends, limits, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Department, Membership, Project, User
from ledger.vocabulary import ProjectRole, ProjectState

MOST_GRACE_DAYS: Final = 90
EARLIEST, LATEST = dt.date(1970, 1, 1), dt.date(2199, 12, 31)
NOT_NAMES: Final = frozenset({"new"})  # pages of the site have these addresses
LONGEST: Final = {"title": 200, "cost_centre": 64, "purpose": 2000}
OF_MANAGERS: Final = frozenset({"title", "purpose"})  # what the project's own people change; the rest is the site's


@dataclass(frozen=True, slots=True)
class Details:
    """What a project says of itself. In a change, fields that are None stay as they are."""

    title: str | None = None
    purpose: str | None = None
    cost_centre: str | None = None
    department: Department | None = None
    starts_on: dt.date | None = None
    ends_on: dt.date | None = None
    grace_days: int | None = None

    def given(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def open_project(*, slug: str, owner: User, details: Details, act: Act) -> Project:
    """A new project with its owner as the first member. Title and end are needed; it starts today unless told."""
    roles.require_governing(act.actor)
    with transaction.atomic(durable=True):
        return open_inside(slug, owner, details, act)


def open_inside(slug: str, owner: User, details: Details, act: Act) -> Project:
    """The step of open_project, for callers that hold a durable transaction and have decided who may."""
    given = check_new(slug, details)
    _check_person(owner, "owner")
    try:
        with transaction.atomic():
            project = Project.objects.create(slug=slug, owner=owner, **given)
    except IntegrityError as error:  # somebody else took the name at this moment
        raise _taken(slug) from error
    _record(project, "project.created", act, after={"slug": slug, "owner": owner.username} | _told(given))
    _put(project, owner, ProjectRole.OWNER, act)
    return project


def check_new(slug: str, details: Details) -> dict[str, Any]:
    """The fields of a new project; Refused, naming the field, when one is missing or not right."""
    given = {"starts_on": database_now().date(), "grace_days": 7} | details.given()
    _check_slug(slug)
    if Project.objects.filter(slug=slug).exists():
        raise _taken(slug)
    if "ends_on" not in given:
        raise Refused(_("Say on which day the project ends."), field="ends_on", code="required")
    _check_details({"title": ""} | given, was=None)
    return given


def _taken(slug: str) -> Conflict:
    text = _("There is a project %(slug)s already. Choose another short name.") % {"slug": slug}
    return Conflict(text, field="slug", code="taken")


def change_project(*, project: Project, details: Details, act: Act) -> Project:
    """Change what is given. Title and purpose are its managers'; dates, department and cost centre the site's. A
    later end takes a project that is about to be reclaimed back to work."""
    given = details.given()
    if not roles.governs(act.actor):
        _require_texts_alone(project, given, act)
    with transaction.atomic(durable=True):
        return change_inside(project.pk, given, act)


def check_change(project: Project, given: dict[str, Any]) -> None:
    """Refused, naming the field, when one of these is not right for the project as it is."""
    _check_details(given, was=project)


def _require_texts_alone(project: Project, given: dict[str, Any], act: Act) -> None:
    roles.require_managing(project.pk, act.actor)
    if not given.keys() <= OF_MANAGERS and not roles.is_admin(act.actor):
        text = _(
            "Only site admins and site managers set dates, grace, department and cost centre. Ask for an extension."
        )
        raise Forbidden(text, code="role")


def change_inside(project_id: int, given: dict[str, Any], act: Act) -> Project:
    """The step of change_project, for callers that hold a durable transaction and have decided who may."""
    if "department" in given:
        above = Project.objects.values_list("department", flat=True).get(pk=project_id)
        limits.lock_departments({*limits.chain(above), *limits.chain(given["department"].pk)})
    project = lock_project(project_id)
    check_change(project, given)
    changes = {name: value for name, value in given.items() if getattr(project, name) != value}
    if not changes:
        return project
    before = _told({name: getattr(project, name) for name in changes})
    for name, value in changes.items():
        setattr(project, name, value)
    if "ends_on" in changes and project.state == ProjectState.ENDING:
        before["state"], project.state = project.state, ProjectState.ACTIVE
        changes["state"] = project.state
        project.ending_since = project.end_ordered_at = None
        changes |= {"ending_since": None, "end_ordered_at": None}
    if "department" in changes:
        departments.check_room(Project.objects.get(pk=project_id), changes["department"])
    with departments.held_by_ceilings("department"):
        project.save(update_fields=list(changes))
    if "department" in changes:
        departments.check_guarantees(limits.chain(project.department_id), "department")
    _record(project, "project.changed", act, before=before, after=_told(changes))
    return project


def set_role(*, project: Project, user: User, role: ProjectRole, act: Act) -> Membership:
    """Make a person a member with this role, or change it. The owner's role moves by hand_over alone."""
    with transaction.atomic(durable=True):
        locked = lock_project(project.pk)
        _require_grant(locked, user, role, act)
        return _put(locked, user, role, act)


def put_inside(project_id: int, user: User, role: ProjectRole, act: Act) -> Membership:
    """The step of set_role, for callers that hold a durable transaction and have decided who may. Never the owner."""
    project = lock_project(project_id)
    _check_person(user, "user")
    _refuse_owner(project, user)
    return _put(project, user, role, act)


def remove_member(*, project: Project, user: User, act: Act) -> bool:
    """Take a person out, or leave oneself. What they run goes on, what they used stays. False when not inside."""
    if act.actor is None or act.actor.pk != user.pk:
        roles.require_managing(project.pk, act.actor)
    with transaction.atomic(durable=True):
        locked = lock_project(project.pk)
        _refuse_owner(locked, user)
        member = Membership.objects.filter(project=locked, user=user).first()
        if member is None:
            return False
        before = {"user": user.username, "role": member.role}
        _record(locked, "member.removed", act, target=member, before=before)
        member.delete()
        roles.derive(locked, user.pk)
        invitation_ends.close_of(locked, user)
    return True


def hand_over(*, project: Project, to: User, act: Act) -> Project:
    """Make `to` the owner; who owned it stays as a manager. By the owner or a site admin."""
    with transaction.atomic(durable=True):
        locked = lock_project(project.pk)
        roles.require_owning(locked, act.actor)
        _check_person(to, "to")
        if to.pk == locked.owner_id:
            raise Conflict(_("%(user)s owns the project already.") % {"user": to.username}, field="to", code="owner")
        was = locked.owner
        _put(locked, was, ProjectRole.MANAGER, act)
        locked.owner = to
        locked.save(update_fields=["owner"])
        _put(locked, to, ProjectRole.OWNER, act)
        after = {"owner": to.username}
        _record(locked, "project.handed_over", act, before={"owner": was.username}, after=after)
    return locked


def lock_project(project_id: int) -> Project:
    """The project under its lock. Refused once it has ended: then nothing in it changes any more."""
    project = Project.objects.select_for_update(no_key=True).get(pk=project_id)
    if project.state == ProjectState.ENDED:
        text = _("Project %(project)s has ended; nothing in it changes any more.") % {"project": project.slug}
        raise Conflict(text, field="project", code="project_ended")
    return project


def _require_grant(project: Project, user: User, role: ProjectRole, act: Act) -> None:
    _check_person(user, "user")
    may = roles.grantable(project.pk, act.actor)
    if not may:
        roles.require_managing(project.pk, act.actor)
    if role == ProjectRole.OWNER:
        raise Refused(_("A project has one owner. Hand it over instead."), field="role", code="owner")
    if role not in may:
        raise Forbidden(_("Your role does not give this role."), field="role", code="role")
    _refuse_owner(project, user)


def _refuse_owner(project: Project, user: User) -> None:
    if user.pk == project.owner_id:
        text = _("%(user)s owns the project. Hand it over to somebody else first.") % {"user": user.username}
        raise Conflict(text, field="user", code="owner")


def _put(project: Project, user: User, role: ProjectRole, act: Act) -> Membership:
    member = Membership.objects.filter(project=project, user=user).first()
    if member is not None and member.role == role:
        return member
    before = {"user": user.username, "role": member.role} if member else None
    member, _created = Membership.objects.update_or_create(project=project, user=user, defaults={"role": role})
    _record(project, "member.role", act, target=member, before=before, after={"user": user.username, "role": role})
    roles.derive(project, user.pk)
    return member


def _check_slug(slug: str) -> None:
    longest = Project._meta.get_field("slug").max_length or 0
    if not slug_re.fullmatch(slug) or len(slug) > longest:
        text = _("Use 1 to %(n)d letters without accents, digits, - and _.") % {"n": longest}
        raise Refused(text, field="slug", code="invalid")
    if slug.lower() in NOT_NAMES:
        text = _("%(name)s can't be a short name: a page of the site has it. Choose another one.") % {"name": slug}
        raise Refused(text, field="slug", code="reserved")


def _check_person(user: User, field: str) -> None:
    if not user.is_active:
        raise Refused(_("%(user)s has left.") % {"user": user.username}, field=field, code="inactive")


def _check_details(given: dict[str, Any], was: Project | None) -> None:
    for name, longest in LONGEST.items():
        value = given.get(name)
        if value is not None and len(value) > longest:
            raise Refused(_("At most %(n)d characters.") % {"n": longest}, field=name, code="too_long")
    if "title" in given and not given["title"].strip():
        raise Refused(_("Give the project a title."), field="title", code="required")
    if not 0 <= given.get("grace_days", 0) <= MOST_GRACE_DAYS:
        text = _("Between 0 and %(n)d days.") % {"n": MOST_GRACE_DAYS}
        raise Refused(text, field="grace_days", code="out_of_range")
    _check_dates(given, was)


def _check_dates(given: dict[str, Any], was: Project | None) -> None:
    for name in ("starts_on", "ends_on"):
        if given.get(name) is not None and not EARLIEST <= given[name] <= LATEST:
            raise Refused(_("This day lies outside 1970 to 2199."), field=name, code="out_of_range")
    starts, ends = (given.get(name, getattr(was, name, None)) for name in ("starts_on", "ends_on"))
    if ends is not None and starts is not None and ends < starts:
        text = _("The end, %(end)s, lies before the start, %(start)s.") % {"end": ends, "start": starts}
        raise Refused(text, field="ends_on", code="end_before_start")
    today = database_now().date()
    moved = given.get("ends_on") not in (None, getattr(was, "ends_on", None))
    if moved and given["ends_on"] < today:
        text = _("The end can't lie in the past; today is %(today)s.") % {"today": today}
        raise Refused(text, field="ends_on", code="past")


def _told(values: dict[str, Any]) -> dict[str, Any]:
    """As an audit row has them."""
    plain = (int, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in values.items()}


def _record(project: Project, verb: str, act: Act, target: Membership | None = None, **states: Any) -> None:
    audit.record(verb=verb, target=target or project, project=project, **states, **act.said())
