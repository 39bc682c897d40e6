"""Quota of projects: the only writer of grants. Site admins and site managers set and lift them.

A change ends the old grant and begins the new one at one instant, under the locks of the departments from the root down
and of the project, so that what is placed is held against the one or the other. It never takes running work at once:
below what runs it needs a date, from which scheduler.draining ends jobs. After a change its effect is observed for
QUOTA_WINDOW_HOURS; a further change before then needs an override with a reason of its own.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from ledger import audit, limits, observation, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.limits import ANY, TRIED, check_shown
from ledger.models import DepartmentCeiling, Project, QuotaGrant
from ledger.projects import lock_project
from ledger.reasons import check_reason
from ledger.vocabulary import Resource

MOST_WEIGHT: Final = 1000
SET, LIFTED, OVERRIDDEN = "quota.set", "quota.lifted", "quota.overridden"


@dataclass(frozen=True, slots=True)
class Terms:
    """What is to be granted. After `until`, what was granted before comes back; nothing, if nothing was. `anew`: a
    budget counts from now on, instead of what it has counted so far. `renews`: a budget starts anew with each calendar
    month, quarter or year of UTC."""

    resource: Resource
    amount: int
    guaranteed: int = 0
    weight: int = 1
    model: str = ""
    until: dt.datetime | None = None
    drain_at: dt.datetime | None = None
    anew: bool = False
    renews: str = ""


def set_grant(*, project: Project, terms: Terms, act: Act, override: str = "", shown: int = ANY) -> QuotaGrant:
    """Grant this from now on in place of what stands. Refused with the field that is wrong; Conflict while the last
    change of this resource is observed and `override` gives no reason, and when the grant that stands is another than
    `shown`, the one that its maker was shown (NONE: there was none)."""
    roles.require_governing(act.actor)
    with transaction.atomic(durable=True):
        return set_inside(project, terms, act, override, shown)


def try_grant(*, project: Project, terms: Terms, act: Act) -> None:
    """Refused as set_grant would, whatever is observed; nothing is written."""
    roles.require_governing(act.actor)
    with transaction.atomic(durable=True):
        set_inside(project, terms, replace(act, reason=TRIED), TRIED)
        transaction.set_rollback(True)


def set_inside(project: Project, terms: Terms, act: Act, override: str = "", shown: int = ANY) -> QuotaGrant:
    """The step of set_grant, for callers that hold a durable transaction without locks and have decided who may."""
    check_terms(terms)
    _check_reasons(act, override)
    locked, now = _lock(project)
    rows = _standing(locked, terms.resource, terms.model, now)
    old = _of_now(rows, now)
    check_shown(old, shown)
    drain_at = _check_against(locked, terms, old, now)
    before, overridden = told(old), _check_window(locked, terms.resource, override, now)
    back = limits.clear(rows, now, terms.until)
    counted = None if old is None or terms.anew else limits.since_of(old, now)
    grant = QuotaGrant.objects.create(
        project=locked,
        resource=terms.resource,
        model=terms.model,
        amount=terms.amount,
        guaranteed=terms.guaranteed,
        weight=terms.weight,
        period=(now, terms.until),
        counted_from=counted if terms.resource == Resource.CARD_MILLI_S else None,
        renews=terms.renews,
        drain_at=drain_at,
        reason=act.reason,
        by=limits.person(act),
    )
    grant.refresh_from_db(fields=["period"])
    _give_time(back, terms)
    _check_guarantees(locked, terms, now)
    after = (told(grant) or {}) | ({"override_reason": override} if overridden else {})
    verb = OVERRIDDEN if overridden else SET
    audit.record(verb=verb, target=locked, project=locked, before=before, after=after, at=now, **act.said())
    return grant


def lift_grant(
    *, project: Project, resource: Resource, act: Act, model: str = "", override: str = "", shown: int = ANY
) -> bool:
    """From now on nothing limits this resource of the project. False when nothing did."""
    roles.require_governing(act.actor)
    _check_reasons(act, override)
    with transaction.atomic(durable=True):
        locked, now = _lock(project)
        rows = _standing(locked, resource, model, now)
        check_shown(_of_now(rows, now), shown)
        if not rows:
            return False
        before, overridden = told(rows[0]), _check_window(locked, resource, override, now)
        limits.clear(rows, now, None)
        after: dict[str, Any] = {"resource": resource, "model": model, "amount": None}
        verb, more = (OVERRIDDEN, {"override_reason": override}) if overridden else (LIFTED, {})
        audit.record(verb=verb, target=locked, project=locked, before=before, after=after | more, at=now, **act.said())
    return True


def told(grant: QuotaGrant | None) -> dict[str, Any] | None:
    """As an audit row has it."""
    if grant is None:
        return None
    names = ("resource", "model", "amount", "guaranteed", "weight", "renews")
    times = {"until": grant.period.upper, "drain_at": grant.drain_at}
    return {name: getattr(grant, name) for name in names} | {
        name: at.isoformat() if at else None for name, at in times.items()
    }


# -- observation ------------------------------------------------------------------------------------------------------


def changed_at(project_id: int, resource: str, now: dt.datetime) -> dt.datetime | None:
    """When a grant of this resource last began or ended."""
    return observation.changed_at(_grants(project_id, resource), now)


def observed_until(project_id: int, resource: str, now: dt.datetime) -> dt.datetime | None:
    """Until when the effect of the last change is observed; None when no change is."""
    return observation.observed_until(_grants(project_id, resource), now)


def _grants(project_id: int, resource: str) -> QuerySet[QuotaGrant]:
    return QuotaGrant.objects.filter(project=project_id, resource=resource)


def _check_window(project: Project, resource: str, override: str, now: dt.datetime) -> bool:
    return observation.check_window(_grants(project.pk, resource), override, now)


# -- steps ------------------------------------------------------------------------------------------------------------


def _lock(project: Project) -> tuple[Project, dt.datetime]:
    """Departments from the root down, then the project; and the instant of the change."""
    department = Project.objects.values_list("department", flat=True).get(pk=project.pk)
    limits.lock_departments(limits.chain(department))
    locked = lock_project(project.pk)
    if locked.department_id != department:
        text = _("The project was moved to another department at this moment. Try again.")
        raise Conflict(text, code="changed")
    return locked, database_now()


def _standing(project: Project, resource: str, model: str, now: dt.datetime) -> list[QuotaGrant]:
    """The grant of now and those to come, the first first."""
    rows = QuotaGrant.objects.filter(project=project, resource=resource, model=model, period__overlap=(now, None))
    return list(rows.select_for_update(no_key=True).order_by("period"))


def _of_now(rows: list[QuotaGrant], now: dt.datetime) -> QuotaGrant | None:
    return next((row for row in rows if row.period.lower <= now), None)


def check_terms(terms: Terms) -> None:
    """Refused, naming the field, when a grant can't be so whatever stands and runs."""
    limits.check_resource(terms.resource)
    limits.check_amount(terms.amount)
    limits.check_amount(terms.guaranteed, "guaranteed")
    limits.check_renewal(terms.renews, terms.resource)
    limits.check_moment(terms.until, "until")
    limits.check_moment(terms.drain_at, "drain_at")
    if terms.guaranteed > terms.amount:
        text = _("The guarantee, %(g)d, is above the limit, %(n)d.")
        values = {"g": terms.guaranteed, "n": terms.amount}
        raise Refused(text % values, field="guaranteed", code="above_amount")
    if not 1 <= terms.weight <= MOST_WEIGHT:
        raise Refused(_("Between 1 and %(n)d.") % {"n": MOST_WEIGHT}, field="weight", code="out_of_range")
    limits.check_model(terms.model, terms.resource)


def _check_reasons(act: Act, override: str) -> None:
    check_reason(act.reason)
    if override:
        check_reason(override, "override_reason")


def _check_against(project: Project, terms: Terms, old: QuotaGrant | None, now: dt.datetime) -> dt.datetime | None:
    """What stands, what runs and what the departments may have; gives the date of the drain."""
    limits.check_later(terms.until, now)
    since = now if old is None or terms.anew else limits.since_of(old, now)
    taken = limits.used([project.pk], terms.resource, terms.model, since)
    drain_at = limits.drain_date(terms.amount, taken, terms.drain_at, now)
    if old is not None and not terms.anew and _same(old, terms, drain_at):
        raise Refused(_("This is what is granted already."), code="no_change")
    for ceiling in ceilings_over(project.department_id, terms, now):
        if terms.amount > ceiling.amount:
            text = _("The ceiling of department %(department)s is %(n)d.")
            values = {"department": ceiling.department.title, "n": ceiling.amount}
            raise Refused(text % values, field="amount", code="above_ceiling")
    return drain_at


def _same(old: QuotaGrant, terms: Terms, drain_at: dt.datetime | None) -> bool:
    names = ("amount", "guaranteed", "weight", "renews")
    same = all(getattr(old, name) == getattr(terms, name) for name in names)
    return same and old.period.upper == terms.until and old.drain_at == drain_at


def ceilings_over(department_id: int | None, terms: Terms, now: dt.datetime) -> list[DepartmentCeiling]:
    """The ceilings that such a grant to a project of this department stands under, the root's first: those for every
    model, and for its own."""
    above, models = limits.chain(department_id), {"", terms.model}
    rows = DepartmentCeiling.objects.filter(
        department__in=above, resource=terms.resource, model__in=models, period__contains=now
    )
    return sorted(rows.select_related("department"), key=lambda row: above.index(row.department_id))


def _check_guarantees(project: Project, terms: Terms, now: dt.datetime) -> None:
    """Under every ceiling the guarantees fit, now and when what was granted before comes back."""
    for ceiling in ceilings_over(project.department_id, terms, now):
        for at in filter(None, (now, terms.until)):
            total = limits.guaranteed_below(ceiling.department_id, terms.resource, at, ceiling.model)
            if total > ceiling.amount:
                text = _("The guarantees in department %(department)s would be %(sum)d together; its ceiling is %(n)d.")
                values = {"department": ceiling.department.title, "sum": total, "n": ceiling.amount}
                raise Refused(text % values, field="guaranteed", code="guarantees_above_ceiling")


def _give_time(back: list[Any], terms: Terms) -> None:
    """A smaller grant that comes back takes running work no sooner than any other cut."""
    for row in back:
        if row.amount < terms.amount:
            row.drain_at = limits.earliest_drain(row.period.lower)
            row.save(update_fields=["drain_at"])
