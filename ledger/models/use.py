"""What processes use of what was promised, as cards report it, and what applications tell of themselves. ShareUse and
CardWatch are written by scheduler.overuse and scheduler.strays alone, JobMetric by ledger.job_metrics."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from ledger.models.book import CardShare
from ledger.models.inventory import Card
from ledger.models.telemetry import NodeBoot
from ledger.models.work import Job


class ShareUse(models.Model):
    """The memory that the processes of a share held when its card last told. Gone a while after the share is."""

    share = models.OneToOneField(CardShare, on_delete=models.CASCADE, primary_key=True, related_name="use")
    used_mib = models.IntegerField(null=True)  # NULL: not all of its processes tell
    over = models.PositiveSmallIntegerField(default=0)  # samples in a row above the promise
    boot = models.ForeignKey(NodeBoot, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    sequence = models.BigIntegerField()  # of the last sample that was looked at
    at = models.DateTimeField()
    over_at = models.DateTimeField(null=True)  # the last sample above the promise
    warned_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)  # its attempt was ended for it

    class Meta:
        indexes = [models.Index(fields=["over"], name="shares_over", condition=Q(over__gte=2))]

    def __str__(self) -> str:
        return f"use of share {self.share_id}"


class CardWatch(models.Model):
    """How far the samples of a card were looked at, and the processes on it that belong to no allocation."""

    card = models.OneToOneField(Card, on_delete=models.CASCADE, primary_key=True, related_name="watch")
    boot = models.ForeignKey(NodeBoot, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    sequence = models.BigIntegerField()
    at = models.DateTimeField()
    strays = models.JSONField(default=list)  # [{pid, member, name, memory_mib, sure}] of the last sample
    seen = models.PositiveSmallIntegerField(default=0)  # samples in a row with strays
    without = models.PositiveSmallIntegerField(default=0)  # samples in a row without

    class Meta:
        indexes = [models.Index(fields=["card"], name="cards_with_strays", condition=Q(seen__gt=0))]

    def __str__(self) -> str:
        return f"watch of {self.card_id}"


class MetricSource(StrEnum):
    PUSHED = "pushed"  # by the job, or who may submit in its project
    SCRAPED = "scraped"  # read by the portal at the address that the job names


class JobMetric(models.Model):
    """What the application of a job said of itself at one moment; NULL = it did not tell. Only for some days, and the
    newest of each job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics", db_index=False)
    at = models.DateTimeField()
    source = models.CharField(max_length=8, choices=[(s, s) for s in MetricSource])
    p99_ms = models.FloatField(null=True)
    sla_ms = models.FloatField(null=True)
    tokens_per_s = models.FloatField(null=True)
    queue_length = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "at", "source"], name="one_metric_a_moment"),
            models.CheckConstraint(condition=Q(source__in=list(MetricSource)), name="metric_source_known"),
            models.CheckConstraint(
                condition=(Q(p99_ms__isnull=True) | Q(p99_ms__gte=0, p99_ms__lt=float("inf")))
                & (Q(sla_ms__isnull=True) | Q(sla_ms__gt=0, sla_ms__lt=float("inf")))
                & (Q(tokens_per_s__isnull=True) | Q(tokens_per_s__gte=0, tokens_per_s__lt=float("inf")))
                & (Q(queue_length__isnull=True) | Q(queue_length__gte=0)),
                name="metric_not_negative",
            ),
        ]
        indexes = [models.Index(fields=["at"], name="metric_by_time")]

    def __str__(self) -> str:
        return f"metric of job {self.job_id} at {self.at}"
