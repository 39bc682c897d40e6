"""What single people may do beyond their roles, for a time: operate one zone, audit one department. Written by
ledger.odd_grants alone. Who asks what somebody may do asks `powers_of` (User.odd_powers), which looks at the periods,
so that an end counts at once; django-guardian's rows beside it are derived by ledger.roles and tidied afterwards."""

from __future__ import annotations

from typing import Final, Self

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import connection, models
from django.db.models import F, Q
from guardian.models import UserObjectPermissionBase

from ledger.fields import period_field
from ledger.models.inventory import Zone
from ledger.models.people import Powers, User
from ledger.models.projects import Department
from ledger.vocabulary import OddGrantKind

IN_FORCE: Final = """
WITH RECURSIVE here AS (
  SELECT zone_id, department_id FROM ledger_oddgrant WHERE user_id = %s AND period @> clock_timestamp()
), down AS (
  SELECT department_id AS id FROM here WHERE department_id IS NOT NULL
  UNION SELECT d.id FROM down JOIN ledger_department d ON d.parent_id = down.id
)
SELECT ARRAY(SELECT zone_id FROM here WHERE zone_id IS NOT NULL), ARRAY(SELECT id FROM down)
"""


def powers_of(user: User) -> Powers:
    """What their odd grants give at this instant of the database's clock; nothing to who has left or isn't stored."""
    if not user.is_active or user.pk is None:
        return Powers()
    with connection.cursor() as cursor:
        cursor.execute(IN_FORCE, [user.pk])
        zones, departments = cursor.fetchone()
    return Powers(frozenset(zones), frozenset(departments))


class OddGrantQuerySet(models.QuerySet["OddGrant"]):
    def visible_to(self, user: User) -> Self:
        """One's own, those of the departments that one audits and of the zones that one operates, and all for the
        site's roles."""
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        return self.filter(Q(user=user) | Q(department__in=user.audited_departments) | Q(zone__in=user.operated_zones))


class OddGrant(models.Model):
    """A person operates one zone, or audits one department and those below it, during a period. It is never changed but
    ended early (migration 0024 holds it to that): then `withdrawn_at` is the end of the period."""

    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="odd_grants", db_index=False)
    kind = models.CharField(max_length=16, choices=[(k, k) for k in OddGrantKind])
    zone = models.ForeignKey(Zone, on_delete=models.PROTECT, null=True, related_name="odd_grants")
    department = models.ForeignKey(Department, on_delete=models.PROTECT, null=True, related_name="odd_grants")
    period = period_field()
    reason = models.CharField(max_length=500)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)

    objects = OddGrantQuerySet.as_manager()

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_odd_grant_of_a_zone",
                expressions=[
                    ("user", RangeOperators.EQUAL),
                    ("zone", RangeOperators.EQUAL),
                    ("period", RangeOperators.OVERLAPS),
                ],
            ),
            ExclusionConstraint(
                name="one_odd_grant_of_a_department",
                expressions=[
                    ("user", RangeOperators.EQUAL),
                    ("department", RangeOperators.EQUAL),
                    ("period", RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(
                condition=Q(kind=OddGrantKind.ZONE_OPERATOR, zone__isnull=False, department__isnull=True)
                | Q(kind=OddGrantKind.AUDITOR, zone__isnull=True, department__isnull=False),
                name="odd_grant_of_one_place",
            ),
            models.CheckConstraint(
                condition=Q(period__isempty=False, period__lower_inf=False, period__upper_inf=False),
                name="odd_grant_has_an_end",
            ),
            models.CheckConstraint(condition=~Q(by=F("user")), name="nobody_grants_to_themselves"),
            models.CheckConstraint(condition=~Q(reason=""), name="odd_grant_says_why"),
            models.CheckConstraint(
                condition=Q(withdrawn_at__isnull=True, withdrawn_by__isnull=True)
                | Q(withdrawn_at__isnull=False, withdrawn_by__isnull=False, period__endswith=F("withdrawn_at")),
                name="withdrawn_grant_has_ended",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.zone_id or self.department_id} for {self.user_id}"


class ZoneUserPermission(UserObjectPermissionBase):
    """django-guardian rows of zones; derived, and tidied some time after a grant's end: ask User.odd_powers instead."""

    content_object = models.ForeignKey(Zone, on_delete=models.CASCADE)


class DepartmentUserPermission(UserObjectPermissionBase):
    """The same of departments: the one that was granted, without those below it."""

    content_object = models.ForeignKey(Department, on_delete=models.CASCADE)
