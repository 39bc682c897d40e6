"""Policies of jobs: the scope of each, its versions, and what they made of each job. Rows are never changed, but that
a version ends when the next one begins. Written by scheduler.policy_changes and scheduler.queue alone."""

from __future__ import annotations

from typing import Final, Self

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q

from ledger.fields import period_field
from ledger.models import Department, Job, Project, User
from ledger.vocabulary import Form, JobKind

LEAST_PRIORITY: Final = -100
MOST_PRIORITY: Final = 100
LONGEST_S: Final = 366 * 86_400
VALUES: Final = (
    "forms",
    "fallback_wait_s",
    "zones",
    "priority_default",
    "priority_most",
    "walltime_default_s",
    "walltime_most_s",
)
NOTHING_SAID: Final = Q(**{f"{name}__isnull": True for name in VALUES})


class JobPolicyQuerySet(models.QuerySet["JobPolicy"]):
    def visible_to(self, user: User) -> Self:
        """Those that bear on a project that they may see or are of a department that they audit; all for who sees all
        projects."""
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        projects = Project.objects.visible_to(user)
        above = Func(
            F("department"),
            template="unnest(ledger_department_chain(%(expressions)s))",
            output_field=models.BigIntegerField(),
        )
        of_all = Q(project__isnull=True, department__isnull=True)
        of_theirs = Q(department__in=projects.values_list(above)) | Q(department__in=user.audited_departments)
        return self.filter(Q(project__in=projects) | of_theirs | of_all)


class JobPolicy(models.Model):
    """A scope: jobs of one project, of one department and those below it, or of everybody; of one kind or of any."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, related_name="job_policies")
    department = models.ForeignKey(Department, on_delete=models.PROTECT, null=True, related_name="job_policies")
    kind = models.CharField(max_length=16, default="")  # of JobKind; "" = any

    objects = JobPolicyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "department", "kind"], name="one_policy_a_scope", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=Q(project__isnull=True) | Q(department__isnull=True), name="policy_of_project_or_department"
            ),
            models.CheckConstraint(condition=Q(kind__in=["", *JobKind]), name="policy_kind_known"),
        ]

    def __str__(self) -> str:
        return f"policy {self.pk}"


class PolicyVersion(models.Model):
    """What a policy says during a period; null: nothing of that, a wider policy may. Once withdrawn it says nothing.

    `forms` are tried in that order where a job leaves its form open, each `fallback_wait_s` after the one before.
    `zones` are ids."""

    policy = models.ForeignKey(JobPolicy, on_delete=models.PROTECT, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()  # 1, 2, … of its policy
    period = period_field()
    withdrawn = models.BooleanField(default=False)
    forms = ArrayField(models.CharField(max_length=16), null=True)
    fallback_wait_s = models.PositiveIntegerField(null=True)
    zones = ArrayField(models.BigIntegerField(), null=True)
    priority_default = models.SmallIntegerField(null=True)
    priority_most = models.SmallIntegerField(null=True)
    walltime_default_s = models.PositiveIntegerField(null=True)
    walltime_most_s = models.PositiveIntegerField(null=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_policy_version_at_a_time",
                expressions=[("policy", RangeOperators.EQUAL), ("period", RangeOperators.OVERLAPS)],
            ),
            models.UniqueConstraint(fields=["policy", "number"], name="policy_version_number_once"),
            models.CheckConstraint(condition=Q(period__isempty=False), name="policy_period_not_empty"),
            models.CheckConstraint(condition=~Q(reason=""), name="policy_version_has_a_reason"),
            models.CheckConstraint(
                condition=(Q(withdrawn=True) & NOTHING_SAID) | (Q(withdrawn=False) & ~NOTHING_SAID),
                name="policy_says_something",
            ),
            models.CheckConstraint(
                condition=Q(forms__isnull=True) | (~Q(forms=[]) & Q(forms__contained_by=[str(f) for f in Form])),
                name="policy_forms_known",
            ),
            models.CheckConstraint(condition=Q(zones__isnull=True) | ~Q(zones=[]), name="policy_zones_not_empty"),
            models.CheckConstraint(
                condition=Q(fallback_wait_s__isnull=True) | Q(fallback_wait_s__lte=LONGEST_S), name="policy_wait_known"
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__range": limits}), name=f"policy_{name}"
                )
                for name, limits in (
                    ("priority_default", (LEAST_PRIORITY, MOST_PRIORITY)),
                    ("priority_most", (LEAST_PRIORITY, MOST_PRIORITY)),
                    ("walltime_default_s", (1, LONGEST_S)),
                    ("walltime_most_s", (1, LONGEST_S)),
                )
            ),
            models.CheckConstraint(
                condition=Q(priority_default__isnull=True)
                | Q(priority_most__isnull=True)
                | Q(priority_default__lte=models.F("priority_most")),
                name="policy_priority_within",
            ),
            models.CheckConstraint(
                condition=Q(walltime_default_s__isnull=True)
                | Q(walltime_most_s__isnull=True)
                | Q(walltime_default_s__lte=models.F("walltime_most_s")),
                name="policy_walltime_within",
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.number} of policy {self.policy_id}"


class PolicyUse(models.Model):
    """What a job left open or policies changed: `asked` holds its asks, priority and walltime_s as they were asked for,
    each only where it was other (null: left open). `lines` say what came of it, by which version; see scheduler.policy.
    A job from before there were policies has no row."""

    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="policy_use")
    rule = models.CharField(max_length=64)
    asked = models.JSONField()
    lines = models.JSONField()  # [{field, was, now, version: id or null for the portal's own default, why}]

    def __str__(self) -> str:
        return f"policies of job {self.job_id}"
