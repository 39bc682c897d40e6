"""What one person's jobs may hold inside a project: the only writer of these limits. Set by the project's owner, its
managers and site admins. A limit below what runs takes nothing away; it holds from the next placement on."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.utils.translation import gettext as _

from ledger import audit, limits, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import MemberLimit, Membership, Project, User
from ledger.projects import lock_project
from ledger.reasons import check_reason
from ledger.vocabulary import AT_ONCE, Resource


def set_limit(*, project: Project, user: User, resource: Resource, amount: int, act: Act) -> MemberLimit:
    """At most `amount` at once for the jobs of this member."""
    limits.check_resource(resource, AT_ONCE)
    limits.check_amount(amount)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        locked = lock_project(project.pk)
        roles.require_managing(locked.pk, act.actor)
        if not Membership.objects.filter(project=locked, user=user).exists():
            text = _("%(user)s is not in the project.") % {"user": user.username}
            raise Refused(text, field="user", code="not_a_member")
        old = MemberLimit.objects.filter(project=locked, user=user, resource=resource).first()
        if old is not None and old.amount == amount:
            raise Refused(_("This is their limit already."), code="no_change")
        now = database_now()
        values = {"amount": amount, "since": now, "reason": act.reason, "by": limits.person(act), "used_at_most": None}
        made, _created = MemberLimit.objects.update_or_create(
            project=locked, user=user, resource=resource, defaults=values
        )
        _record(locked, "member.limit.set", made, act, old.amount if old else None, amount)
    return made


def lift_limit(*, project: Project, user: User, resource: Resource, act: Act) -> bool:
    """From now on the project's quota alone limits them. False when they had no limit."""
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        locked = lock_project(project.pk)
        roles.require_managing(locked.pk, act.actor)
        old = MemberLimit.objects.filter(project=locked, user=user, resource=resource).first()
        if old is None:
            return False
        _record(locked, "member.limit.lifted", old, act, old.amount, None)
        old.delete()
    return True


def used(project_id: int, user_id: int, resource: str) -> int:
    """What open allocations of their jobs in the project hold now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_member_used(%s, %s, %s)", [project_id, user_id, resource])
        return int(cursor.fetchone()[0])


def _record(project: Project, verb: str, limit: MemberLimit, act: Act, old: int | None, new: int | None) -> None:
    about: dict[str, Any] = {"user": limit.user.username, "resource": limit.resource}
    before, after = (about | {"amount": amount} for amount in (old, new))
    audit.record(verb=verb, target=project, project=project, before=before, after=after, **act.said())
