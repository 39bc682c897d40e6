"""What may be held at most: by a project, by all projects of a department, by one person inside a project. The
database holds all three at commit (migrations 0010 and 0015). Written by ledger.quota, departments and member_limits
alone."""

from __future__ import annotations

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import Q

from ledger.fields import period_field
from ledger.models.people import User
from ledger.models.projects import Department, Project
from ledger.vocabulary import AT_ONCE, OF_CARDS, Renewal, Resource


def _renews() -> models.CharField[str, str]:
    """Of a budget: with which period of the calendar it starts anew; "" = never."""
    return models.CharField(max_length=8, default="", blank=True, choices=[("", ""), *((r, r) for r in Renewal)])


def _renews_only_budgets(name: str) -> models.CheckConstraint:
    renews = Q(renews__in=list(Renewal), resource=Resource.CARD_MILLI_S)
    return models.CheckConstraint(condition=Q(renews="") | renews, name=name)


class QuotaGrant(models.Model):
    """How much of a resource a project may hold at once during a period. No grant means no limit.

    `guaranteed` of it is the project's own; what is above may be lent by others, in proportion to `weight`, and taken
    back. With a `model` it is about cards of that model alone. A budget (Resource.CARD_MILLI_S) counts what has ended
    since `counted_from`, so that a change of its amount forgets nothing; one that `renews` counts from the start of the
    present month, quarter or year of UTC at the earliest: what was used before no longer counts, and of what runs over
    the boundary only the time after it."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="quota_grants")
    resource = models.CharField(max_length=24, choices=[(r, r) for r in Resource])
    model = models.CharField(max_length=64, default="", blank=True)  # "" = cards of every model
    amount = models.BigIntegerField()
    guaranteed = models.BigIntegerField(default=0)
    weight = models.PositiveSmallIntegerField(default=1)
    period = period_field()
    counted_from = models.DateTimeField(null=True)  # of a budget; null = the period's start
    renews = _renews()
    drain_at = models.DateTimeField(null=True)  # from then on jobs are ended until what runs fits
    reason = models.CharField(max_length=500)
    by = models.ForeignKey(User, on_delete=models.PROTECT)
    used_at_most = models.BigIntegerField(null=True, editable=False)  # kept by the database; null = to be summed
    bound_until = models.DateTimeField(null=True, editable=False)  # of a budget: until then the bound is good

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_grant_at_a_time",
                expressions=[
                    ("project", RangeOperators.EQUAL),
                    ("resource", RangeOperators.EQUAL),
                    ("model", RangeOperators.EQUAL),
                    ("period", RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="grant_not_negative"),
            models.CheckConstraint(
                condition=Q(guaranteed__gte=0, guaranteed__lte=models.F("amount")),
                name="guarantee_within_grant",
            ),
            models.CheckConstraint(condition=Q(weight__gte=1, weight__lte=1000), name="grant_weight_1_to_1000"),
            models.CheckConstraint(condition=Q(resource__in=list(Resource)), name="grant_resource_known"),
            models.CheckConstraint(
                condition=Q(model="") | Q(resource__in=sorted(OF_CARDS)), name="grant_of_a_model_is_of_cards"
            ),
            models.CheckConstraint(condition=Q(period__isempty=False), name="grant_period_not_empty"),
            _renews_only_budgets("grant_that_renews_is_a_budget"),
        ]

    def __str__(self) -> str:
        return f"{self.project}: {self.amount} {self.resource}"


class DepartmentCeiling(models.Model):
    """How much of a resource all projects of a department and of those below it may hold. None means no ceiling."""

    department = models.ForeignKey(Department, on_delete=models.PROTECT, related_name="ceilings")
    resource = models.CharField(max_length=24, choices=[(r, r) for r in Resource])
    model = models.CharField(max_length=64, default="", blank=True)  # "" = cards of every model
    amount = models.BigIntegerField()
    period = period_field()
    counted_from = models.DateTimeField(null=True)  # as of a grant
    renews = _renews()
    drain_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=500)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    used_at_most = models.BigIntegerField(null=True, editable=False)
    bound_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_ceiling_at_a_time",
                expressions=[
                    ("department", RangeOperators.EQUAL),
                    ("resource", RangeOperators.EQUAL),
                    ("model", RangeOperators.EQUAL),
                    ("period", RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="ceiling_not_negative"),
            models.CheckConstraint(
                condition=Q(model="") | Q(resource__in=sorted(OF_CARDS)), name="ceiling_of_a_model_is_of_cards"
            ),
            models.CheckConstraint(condition=Q(resource__in=list(Resource)), name="ceiling_resource_known"),
            models.CheckConstraint(condition=Q(period__isempty=False), name="ceiling_period_not_empty"),
            _renews_only_budgets("ceiling_that_renews_is_a_budget"),
        ]

    def __str__(self) -> str:
        return f"{self.department}: {self.amount} {self.resource}"


class MemberLimit(models.Model):
    """How much of a resource one person's jobs may hold at once inside a project. None means the project's quota alone.
    It outlives their membership, so that who leaves and comes back has it still."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="member_limits", db_index=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    resource = models.CharField(max_length=24, choices=[(r, r) for r in Resource])
    amount = models.BigIntegerField()
    since = models.DateTimeField()
    reason = models.CharField(max_length=500)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    used_at_most = models.BigIntegerField(null=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user", "resource"], name="one_limit_a_member_and_resource"),
            models.CheckConstraint(condition=Q(amount__gte=0), name="member_limit_not_negative"),
            models.CheckConstraint(condition=Q(resource__in=sorted(AT_ONCE)), name="member_limit_is_at_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}: {self.amount} {self.resource}"
