"""Departments and their ceilings: the only writer of both. Site admins and site managers alone.

Departments form a tree; a ceiling holds all projects of its department and of those below it, and nothing moves under a
ceiling that it would break. The database holds both (migration 0015); the checks here say it in words. Lock order:
departments from the root down, then projects.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from django.core.validators import slug_re
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from ledger import audit, limits, observation, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.limits import ANY, TRIED, check_shown
from ledger.models import Department, DepartmentCeiling, Project
from ledger.reasons import check_reason
from ledger.vocabulary import Resource

LONGEST_TITLE: Final = 200
LONGEST_SLUG: Final = 50
SET, LIFTED, OVERRIDDEN = "ceiling.set", "ceiling.lifted", "ceiling.overridden"


def create_department(*, slug: str, title: str, parent: Department | None, act: Act) -> Department:
    roles.require_governing(act.actor)
    if not slug_re.fullmatch(slug) or len(slug) > LONGEST_SLUG:
        text = _("Use 1 to %(n)d letters without accents, digits, - and _.") % {"n": LONGEST_SLUG}
        raise Refused(text, field="slug", code="invalid")
    _check_title(title)
    try:
        with transaction.atomic(durable=True):
            made = Department.objects.create(slug=slug, title=title, parent=parent)
            after = {"slug": slug, "title": title, "parent": parent.slug if parent else None}
            audit.record(verb="department.created", target=made, after=after, **act.said())
    except IntegrityError as error:
        if Department.objects.filter(slug=slug).exists():
            text = _("There is a department %(slug)s already. Choose another short name.") % {"slug": slug}
            raise Conflict(text, field="slug", code="taken") from error
        raise
    return made


def rename_department(*, department: Department, title: str, act: Act) -> Department:
    roles.require_governing(act.actor)
    _check_title(title)
    with transaction.atomic(durable=True):
        locked = Department.objects.select_for_update(no_key=True).get(pk=department.pk)
        if locked.title != title:
            before, locked.title = {"title": locked.title}, title
            locked.save(update_fields=["title"])
            after = {"title": title}
            audit.record(verb="department.renamed", target=locked, before=before, after=after, **act.said())
    return locked


def move_department(*, department: Department, parent: Department | None, act: Act) -> Department:
    """Put the department with all below it under another one, or at the top. Refused when it would stand below itself;
    Conflict when a ceiling above its new place has no room for what its projects use, or for their guarantees."""
    roles.require_governing(act.actor)
    with transaction.atomic(durable=True):
        limits.lock_departments(Department.objects.values_list("pk", flat=True))
        locked = Department.objects.select_related("parent").get(pk=department.pk)
        limits.lock_projects(limits.projects_below(locked.pk))
        _check_tree(locked, parent)
        if locked.parent_id != (parent.pk if parent else None):
            before = {"parent": locked.parent.slug if locked.parent else None}
            locked.parent = parent
            with held_by_ceilings("parent"):
                locked.save(update_fields=["parent"])
            check_guarantees(limits.chain(locked.pk), "parent")
            after = {"parent": parent.slug if parent else None}
            audit.record(verb="department.moved", target=locked, before=before, after=after, **act.said())
    return locked


@contextmanager
def held_by_ceilings(field: str) -> Iterator[None]:
    """Conflict, naming the field, when the database says that a ceiling has no room for what moves."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if limits.constraint_of(error) == "ceiling_never_exceeded":
            raise Conflict(_full(), field=field, code="above_ceiling") from error
        raise


def check_room(project: Project, department: Department | None) -> None:
    """Conflict when a ceiling over `department` has no room for what a project uses that is to be moved there."""
    now, new = database_now(), limits.chain(department.pk if department else None)
    old = limits.chain(project.department_id)
    for ceiling in _current(now).filter(department__in=[one for one in new if one not in old]):
        since = limits.since_of(ceiling, now)
        comes = limits.used([project.pk], ceiling.resource, ceiling.model, since)
        there = limits.used(limits.projects_below(ceiling.department_id), ceiling.resource, ceiling.model, since)
        if comes and comes + there > ceiling.amount:
            raise Conflict(_full(), field="department", code="above_ceiling")


def check_guarantees(departments: list[int], field: str, resource: str | None = None) -> None:
    """Refused when a ceiling of one of these is below what the projects under it are guaranteed."""
    now = database_now()
    rows = _current(now).filter(department__in=departments)
    for ceiling in rows.filter(resource=resource) if resource else rows:
        total = limits.guaranteed_below(ceiling.department_id, ceiling.resource, now, ceiling.model)
        if total > ceiling.amount:
            text = _("The projects of department %(department)s are guaranteed %(sum)d together, above %(n)d.")
            values = {"department": ceiling.department.title, "sum": total, "n": ceiling.amount}
            raise Refused(text % values, field=field, code="guarantees_above_ceiling")


@dataclass(frozen=True, slots=True)
class Cap:
    """A ceiling as it is to be. `anew`: a budget counts from now on. `renews` as of ledger.quota.Terms."""

    resource: Resource
    amount: int
    drain_at: dt.datetime | None = None
    anew: bool = False
    renews: str = ""
    model: str = ""


def set_ceiling(
    *, department: Department, cap: Cap, act: Act, override: str = "", shown: int = ANY
) -> DepartmentCeiling:
    """What the projects of the department and of those below it may hold together from now on. Conflict while the last
    change of this resource is observed and `override` gives no reason, and when the ceiling that stands is another than
    `shown`, the one that its maker was shown (NONE: there was none)."""
    roles.require_governing(act.actor)
    with transaction.atomic(durable=True):
        return _set_inside(department, cap, act, override, shown)


def try_ceiling(*, department: Department, cap: Cap, act: Act) -> None:
    """Refused as set_ceiling would, whatever is observed; nothing is written."""
    roles.require_governing(act.actor)
    with transaction.atomic(durable=True):
        _set_inside(department, cap, replace(act, reason=TRIED), TRIED, ANY)
        transaction.set_rollback(True)


def _set_inside(department: Department, cap: Cap, act: Act, override: str, shown: int) -> DepartmentCeiling:
    _check_cap(cap, act, override)
    rows, now = _locked(department, cap.resource, cap.model)
    old = rows[0] if rows else None
    check_shown(old, shown)
    since = now if old is None or cap.anew else limits.since_of(old, now)
    taken = limits.used(limits.projects_below(department.pk), cap.resource, cap.model, since)
    drain_at = limits.drain_date(cap.amount, taken, cap.drain_at, now)
    if old is not None and _same(old, cap, drain_at):
        raise Refused(_("This is the ceiling already."), code="no_change")
    before, overridden = told(old), _check_window(department, cap.resource, override, now)
    limits.clear(rows, now, None)
    ceiling = DepartmentCeiling.objects.create(
        department=department,
        resource=cap.resource,
        model=cap.model,
        amount=cap.amount,
        period=(now, None),
        renews=cap.renews,
        counted_from=since if cap.resource == Resource.CARD_MILLI_S and since != now else None,
        drain_at=drain_at,
        reason=act.reason,
        by=limits.person(act),
    )
    ceiling.refresh_from_db(fields=["period"])
    check_guarantees([department.pk], "amount", cap.resource)
    after = (told(ceiling) or {}) | ({"override_reason": override} if overridden else {})
    verb = OVERRIDDEN if overridden else SET
    audit.record(verb=verb, target=department, before=before, after=after, at=now, **act.said())
    return ceiling


def _check_cap(cap: Cap, act: Act, override: str) -> None:
    """Refused, naming the field, when a ceiling can't be so whatever stands and runs."""
    _check_reasons(act, override)
    limits.check_resource(cap.resource)
    limits.check_amount(cap.amount)
    limits.check_model(cap.model, cap.resource)
    limits.check_renewal(cap.renews, cap.resource)
    limits.check_moment(cap.drain_at, "drain_at")


def _check_reasons(act: Act, override: str) -> None:
    check_reason(act.reason)
    if override:
        check_reason(override, "override_reason")


def _same(old: DepartmentCeiling, cap: Cap, drain_at: dt.datetime | None) -> bool:
    return not cap.anew and (old.amount, old.renews, old.drain_at) == (cap.amount, cap.renews, drain_at)


def lift_ceiling(
    *, department: Department, resource: Resource, act: Act, model: str = "", override: str = "", shown: int = ANY
) -> bool:
    """From now on the department has no ceiling of this resource and model. False when it had none."""
    roles.require_governing(act.actor)
    _check_reasons(act, override)
    with transaction.atomic(durable=True):
        rows, now = _locked(department, resource, model)
        check_shown(rows[0] if rows else None, shown)
        if not rows:
            return False
        before, overridden = told(rows[0]), _check_window(department, resource, override, now)
        limits.clear(rows, now, None)
        after: dict[str, Any] = {"resource": resource, "model": model, "amount": None}
        verb, more = (OVERRIDDEN, {"override_reason": override}) if overridden else (LIFTED, {})
        audit.record(verb=verb, target=department, before=before, after=after | more, at=now, **act.said())
    return True


def ceilings_of(department_id: int, resource: str) -> QuerySet[DepartmentCeiling]:
    """All that stood and stand, of every model: what is observed together."""
    return DepartmentCeiling.objects.filter(department=department_id, resource=resource)


def _check_window(department: Department, resource: str, override: str, now: dt.datetime) -> bool:
    return observation.check_window(ceilings_of(department.pk, resource), override, now)


def told(ceiling: DepartmentCeiling | None) -> dict[str, Any] | None:
    """As an audit row has it."""
    if ceiling is None:
        return None
    drain_at = ceiling.drain_at.isoformat() if ceiling.drain_at else None
    about = {name: getattr(ceiling, name) for name in ("resource", "model", "amount", "renews")}
    return about | {"drain_at": drain_at}


def _locked(department: Department, resource: str, model: str) -> tuple[list[DepartmentCeiling], dt.datetime]:
    """Nothing is placed below the department while this transaction lasts, not even by who saw no ceiling yet."""
    limits.lock_departments(limits.chain(department.pk))
    limits.lock_projects(limits.projects_below(department.pk))
    now = database_now()
    rows = ceilings_of(department.pk, resource).filter(model=model, period__overlap=(now, None))
    return list(rows.select_for_update(no_key=True).order_by("period")), now


def _current(now: dt.datetime) -> Any:
    return DepartmentCeiling.objects.filter(period__contains=now).select_related("department").order_by("pk")


def _check_tree(department: Department, parent: Department | None) -> None:
    if parent is not None and department.pk in limits.chain(parent.pk):
        text = _("%(department)s would stand below itself. Choose a department that is not below it.")
        raise Refused(text % {"department": department.title}, field="parent", code="cyclic")


def _check_title(title: str) -> None:
    if not title.strip():
        raise Refused(_("Give the department a title."), field="title", code="required")
    if len(title) > LONGEST_TITLE:
        raise Refused(_("At most %(n)d characters.") % {"n": LONGEST_TITLE}, field="title", code="too_long")


def _full() -> str:
    return _("A ceiling there has no room for what the projects that would move use now.")
