"""Odd grants: one person operates one zone, or audits one department and those below it, until a date. The only writer
of them; by site admins, never to themselves, each act with one audit row.

What a grant gives it gives from this commit to the end of its period and no longer, by the database's clock: who asks
looks at the period (User.odd_powers). `tidy` derives django-guardian's rows again when a period is over.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any, Final

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext as _

from ledger import audit, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Department, DepartmentUserPermission, OddGrant, User, Zone, ZoneUserPermission
from ledger.models.odd_grants import powers_of
from ledger.reasons import check_reason
from ledger.vocabulary import OddGrantKind

log = logging.getLogger(__name__)
LONGEST: Final = dt.timedelta(days=366)
AT_LEAST: Final = dt.timedelta(microseconds=1)
OVERLAPS: Final = ("one_odd_grant_of_a_zone", "one_odd_grant_of_a_department")


def give(*, user: User, place: Zone | Department, until: dt.datetime, act: Act) -> OddGrant:
    """The person operates the zone, or audits the department, from now until then."""
    giver = _require_admin(act)
    if giver.pk == user.pk:
        raise Forbidden(_("Nobody gives rights to themselves; ask another admin."), field="user", code="self")
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        found = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        now = database_now()
        kind = _check(found, place, until, now)
        made = _insert(found, kind, place, (now, until), act)
        roles.derive_odd(found.pk, now)
        audit.record(verb="odd_grant.given", target=made, after=told(made), at=now, **act.said())
    return made


def _require_admin(act: Act) -> User:
    if act.actor is None or not roles.is_admin(act.actor):
        raise Forbidden(_("Only site admins give and take extra rights."), code="role")
    return act.actor


def _check(user: User, place: Zone | Department, until: dt.datetime, now: dt.datetime) -> OddGrantKind:
    if not user.is_active:
        raise Refused(_("%(user)s has left.") % {"user": user.username}, field="user", code="inactive")
    if until <= now:
        text = _("The end lies in the past. Choose one that is still to come.")
        raise Refused(text, field="until", code="past")
    if until > now + LONGEST:
        text = _("At most %(n)d days ahead. Give it anew when it is over.") % {"n": LONGEST.days}
        raise Refused(text, field="until", code="too_long")
    kind = OddGrantKind.ZONE_OPERATOR if isinstance(place, Zone) else OddGrantKind.AUDITOR
    if user.operates if kind == OddGrantKind.ZONE_OPERATOR else user.sees_everything:
        text = _("%(user)s may do this everywhere already, by their site role.") % {"user": user.username}
        raise Conflict(text, field="user", code="by_role")
    return kind


def _insert(
    user: User, kind: OddGrantKind, place: Zone | Department, period: tuple[dt.datetime, dt.datetime], act: Act
) -> OddGrant:
    zone, department = (place, None) if isinstance(place, Zone) else (None, place)
    values = {"zone": zone, "department": department, "period": period}
    try:
        with transaction.atomic():
            made = OddGrant.objects.create(
                user=user, kind=kind, reason=act.reason.strip(), by=_require_admin(act), **values
            )
    except IntegrityError as error:
        text = _("%(user)s has this right already. Withdraw it first to give it with another end.")
        raise Conflict(text % {"user": user.username}, field="user", code="granted") from error
    made.refresh_from_db(fields=["period"])
    return made


def withdraw(*, grant: OddGrant, act: Act) -> OddGrant:
    """End it now. Conflict when it has ended."""
    _require_admin(act)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        User.objects.select_for_update(no_key=True).get(pk=grant.user_id)
        found = OddGrant.objects.select_related("user", "zone", "department").get(pk=grant.pk)
        now = max(database_now(), found.period.lower + AT_LEAST)
        if found.period.upper <= now:
            raise Conflict(_("This right has ended already."), code="ended")
        before = {"until": found.period.upper.isoformat()}
        found.period, found.withdrawn_at, found.withdrawn_by = (found.period.lower, now), now, act.actor
        found.save(update_fields=["period", "withdrawn_at", "withdrawn_by"])
        found.refresh_from_db(fields=["period"])
        roles.derive_odd(found.user_id, now)
        after = {"until": now.isoformat(), "user": found.user.username}
        audit.record(verb="odd_grant.withdrawn", target=found, before=before, after=after, **act.said())
    return found


def renew_powers(user: User) -> None:
    """Read anew what their odd grants give, and hold it until the caller's transaction ends: `give` and `withdraw` wait
    for that. The caller takes this lock before any other; a page may have read the powers long before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT is_active FROM ledger_user WHERE id = %s FOR SHARE", [user.pk])
        user.is_active = cursor.fetchone() == (True,)
    user.odd_powers = powers_of(user)


def tidy() -> dict[str, int]:
    """Derive the permissions of everybody anew whose odd grants are over; each person on their own, and safe to run
    twice. Nothing waits for it."""
    count = 0
    for user_id in sorted(_untidy(ZoneUserPermission, "zone") | _untidy(DepartmentUserPermission, "department")):
        try:
            with transaction.atomic(durable=True):
                _derive_anew(User.objects.select_for_update(no_key=True).get(pk=user_id))
            count += 1
        except Exception:  # one odd person stops nobody else's
            log.exception("the permissions of user %d by odd grants are as they were", user_id)
    return {"tidied": count}


def _derive_anew(user: User) -> None:
    before = _permitted(user)
    roles.derive_odd(user.pk, database_now())
    after = _permitted(user)
    if before != after:
        audit.record(actor=None, via="task", verb="odd_grant.over", target=user, before=before, after=after)


def _permitted(user: User) -> dict[str, list[str]]:
    """What django-guardian's rows say, by short names."""
    found = {"zones": ZoneUserPermission, "departments": DepartmentUserPermission}
    return {
        name: sorted(model.objects.filter(user=user).values_list("content_object__slug", flat=True))
        for name, model in found.items()
    }


def _untidy(model: type[Any], place: str) -> set[int]:
    """People with permissions that no grant gives now."""
    given = in_force().filter(user=OuterRef("user"), **{place: OuterRef("content_object")})
    return set(model.objects.exclude(Exists(given)).values_list("user", flat=True))


def in_force() -> QuerySet[OddGrant]:
    return OddGrant.objects.filter(period__contains=database_now())


def told(grant: OddGrant) -> dict[str, Any]:
    """As an audit row has it."""
    where: Mapping[str, Any] = (
        {"zone": grant.zone.slug} if grant.zone else {"department": grant.department and grant.department.slug}
    )
    return {"user": grant.user.username, "kind": grant.kind, **where, "until": grant.period.upper.isoformat()}


def day_after(day: dt.date) -> dt.datetime:
    """The end of a right whose last day this is, in UTC."""
    return dt.datetime.combine(day, dt.time(), dt.UTC) + dt.timedelta(days=1)
