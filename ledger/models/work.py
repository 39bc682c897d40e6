"""Jobs and their attempts. Their states are moved by ledger.book and ledger.work alone."""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from ledger.models.people import User
from ledger.models.projects import Project, of_member
from ledger.vocabulary import (
    LIVE_ATTEMPT_STATES,
    LIVE_JOB_STATES,
    AttemptState,
    Distance,
    Interconnect,
    JobKind,
    JobState,
    Outcome,
)


class JobQuerySet(models.QuerySet["Job"]):
    def visible_to(self, user: User) -> Self:
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        if any(user.odd_powers):
            theirs = Q(project__in=of_member(user)) | Q(project__department__in=user.audited_departments)
            return self.filter(theirs | Q(pk__in=_standing_in(user.operated_zones)))
        return self.filter(project__memberships__user=user)


def _standing_in(zones: frozenset[int]) -> models.QuerySet[Attempt, int]:
    """The jobs that hold something on nodes of these zones now."""
    there = {
        "allocations__node__zone_periods__zone__in": zones,
        "allocations__node__zone_periods__period__upper_inf": True,
    }
    return Attempt.objects.filter(allocations__period__upper_inf=True, **there).values_list("job", flat=True)


class Job(models.Model):
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, default=JobKind.OTHER, choices=[(k, k) for k in JobKind])
    asks = models.JSONField()  # [{form, nodes, cards_per_node, memory_mib, after_s, model, compute_milli}]
    cpu_milli = models.BigIntegerField()
    host_memory_mib = models.BigIntegerField()
    interconnect = models.CharField(max_length=16, default=Interconnect.ANY, choices=[(i, i) for i in Interconnect])
    distance = models.CharField(max_length=16, default=Distance.ANY, choices=[(d, d) for d in Distance])
    labels = models.JSONField(default=list)
    zones = ArrayField(models.BigIntegerField(), null=True)  # the only ones that it may be placed in; null = any
    reproducible = models.BooleanField(default=False)  # whole machines of one class of hardware
    like_job = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    like = models.JSONField(null=True)  # engine Likeness: how like_job was placed when this job was submitted
    environment = models.JSONField(default=dict)
    command = models.JSONField()  # argv
    image = models.CharField(max_length=300, default="")
    data_paths = models.JSONField(default=list)
    walltime_s = models.PositiveIntegerField()
    priority = models.SmallIntegerField(default=0)
    preemptible = models.BooleanField(default=False)
    checkpoint = models.CharField(max_length=16, default="")  # signal sent before a forced stop; "" = SIGTERM only
    key_work = models.BooleanField(default=False)  # may enter headroom
    simulated = models.BooleanField(default=False)
    # where the portal reads what the application tells of itself: on the node of the first member; null = nowhere
    metrics_port = models.IntegerField(null=True)
    metrics_path = models.CharField(max_length=200, default="", db_default="")
    state = models.CharField(max_length=16, default=JobState.QUEUED, choices=[(s, s) for s in JobState])
    message = models.CharField(max_length=500, default="")
    client_key = models.CharField(max_length=200, null=True)  # noqa: DJ001  NULL = no Idempotency-Key was sent
    client_digest = models.CharField(max_length=64, default="")
    submitted_at = models.DateTimeField()
    queued_at = models.DateTimeField()  # again after a retry
    placed_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    cancel_reason = models.CharField(max_length=500, default="")
    # held back in the queue by an operator; placing skips it until it is released
    held_at = models.DateTimeField(null=True)
    held_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    held_reason = models.CharField(max_length=500, default="")

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=list(JobState)), name="job_state_known"),
            models.UniqueConstraint(fields=["by", "client_key"], name="one_job_a_client_key"),
            models.UniqueConstraint(fields=["id", "project"], name="job_with_its_project"),
            models.CheckConstraint(
                condition=Q(cpu_milli__gte=0, host_memory_mib__gte=0), name="job_needs_not_negative"
            ),
            models.CheckConstraint(condition=~Q(zones=[]), name="job_is_open_to_some_zone"),
            models.CheckConstraint(
                condition=Q(metrics_port__isnull=True, metrics_path="")
                | Q(
                    metrics_port__isnull=False,
                    metrics_port__gte=1024,
                    metrics_port__lt=65_536,
                    metrics_path__startswith="/",
                ),
                name="job_metrics_at_an_address",
            ),
            models.CheckConstraint(
                condition=Q(held_at__isnull=True, held_by__isnull=True, held_reason="")
                | Q(held_at__isnull=False, held_by__isnull=False),
                name="job_held_by_somebody",
            ),
            models.CheckConstraint(
                condition=Q(like_job__isnull=True, like__isnull=True)
                | Q(reproducible=True, like_job__isnull=False, like__isnull=False),
                name="job_like_another_is_reproducible",
            ),
            # the placing of a job that was held in the meantime is refused here
            models.CheckConstraint(
                condition=Q(held_at__isnull=True)
                | ~Q(state__in=[JobState.STARTING, JobState.RUNNING, JobState.STOPPING]),
                name="held_job_is_not_placed",
            ),
        ]
        indexes = [
            models.Index(fields=["-priority", "queued_at", "id"], name="job_queue", condition=Q(state=JobState.QUEUED)),
            # those of one project and priority that ask for the same, the first to come at the front
            models.Index(
                "project",
                "priority",
                models.Func("asks", function="jsonb_hash", output_field=models.IntegerField()),
                "queued_at",
                "id",
                name="job_lines",
                condition=Q(state=JobState.QUEUED, held_at__isnull=True),
            ),
            models.Index(fields=["project", "-id"], name="job_by_project"),
            models.Index(fields=["state"], name="job_live", condition=Q(state__in=sorted(LIVE_JOB_STATES))),
        ]

    def __str__(self) -> str:
        return f"job {self.pk} {self.name}"


class Attempt(models.Model):
    """One try at running a job. `fence` grows over all attempts, so an older start is told from a newer one."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="attempts", db_index=False)
    n = models.PositiveSmallIntegerField()
    fence = models.BigIntegerField(unique=True)
    state = models.CharField(max_length=16, default=AttemptState.STARTING, choices=[(s, s) for s in AttemptState])
    outcome = models.CharField(max_length=16, default="", choices=[(o, o) for o in Outcome], blank=True)
    exit_code = models.IntegerField(null=True)
    message = models.CharField(max_length=500, default="")
    opened_at = models.DateTimeField()
    unknown_since = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "n"], name="attempt_number_once_a_job"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state__in=sorted(LIVE_ATTEMPT_STATES)), name="one_live_attempt_a_job"
            ),
            models.CheckConstraint(condition=Q(state__in=list(AttemptState)), name="attempt_state_known"),
            models.CheckConstraint(
                condition=~Q(state=AttemptState.ENDED) | (Q(ended_at__isnull=False) & ~Q(outcome="")),
                name="ended_attempt_has_an_outcome",
            ),
        ]
        indexes = [
            models.Index(fields=["state"], name="attempt_live", condition=Q(state__in=sorted(LIVE_ATTEMPT_STATES))),
            models.Index(fields=["id"], name="attempt_failed_by_hardware", condition=Q(outcome=Outcome.HARDWARE)),
        ]

    def __str__(self) -> str:
        return f"attempt {self.n} of job {self.job_id}"
