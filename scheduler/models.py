"""Decisions, the outbox of commands, drift, and the make-believe hardware of the simulated driver."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models import Allocation, Attempt, Job
from ledger.vocabulary import CommandState, CommandVerb


class Decision(models.Model):
    """Why a job was placed where it was, or why it waits: inputs, rule and reasons, kept as data."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="decisions")
    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, null=True, related_name="decision")
    at = models.DateTimeField()  # of the newest equal decision
    first_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    rule = models.CharField(max_length=64)
    seed = models.BigIntegerField()
    ask_index = models.SmallIntegerField(null=True)  # null: it waits
    reasons = models.JSONField()  # [{refusal: nodes}] one an ask
    scores = models.JSONField(default=list)  # [[node id, score]] the best few
    neighbours = models.JSONField(default=list)  # projects on the same nodes at that instant
    never = models.BooleanField(default=False)
    position = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job"], condition=Q(attempt__isnull=True), name="one_waiting_decision_a_job"
            )
        ]

    def __str__(self) -> str:
        return f"decision on job {self.job_id}"


class Command(models.Model):
    """The outbox: what a driver must be told about one allocation. Repeatable; the row says whether it is done."""

    allocation = models.ForeignKey(Allocation, on_delete=models.PROTECT, related_name="commands")
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="commands")
    driver = models.CharField(max_length=16)
    verb = models.CharField(max_length=8, choices=[(v, v) for v in CommandVerb])
    grace_s = models.PositiveIntegerField(default=10)
    state = models.CharField(max_length=8, default=CommandState.PENDING, choices=[(s, s) for s in CommandState])
    tries = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField()
    created_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["allocation", "verb"], name="one_command_a_verb"),
            models.CheckConstraint(condition=Q(state__in=list(CommandState)), name="command_state_known"),
            models.CheckConstraint(condition=Q(verb__in=list(CommandVerb)), name="command_verb_known"),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], name="command_pending", condition=Q(state=CommandState.PENDING))
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.allocation_id}"


class Drift(models.Model):
    """A difference between the book and what a driver or an agent reports; open until it is gone."""

    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=200)  # hostname, card uuid or member key
    driver = models.CharField(max_length=16, default="")
    detail = models.CharField(max_length=500)
    fix = models.CharField(max_length=500)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, null=True, related_name="+")
    simulated = models.BooleanField(default=False)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"], condition=Q(resolved_at__isnull=True), name="one_open_drift_a_subject"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


class TaskRun(models.Model):
    """The last run of each periodic task, for people and for /readyz."""

    name = models.CharField(max_length=64, primary_key=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ok = models.BooleanField(null=True)
    result = models.JSONField(default=dict)
    runs = models.BigIntegerField(default=0)
    failures = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class SimulatedMember(models.Model):
    """One member on make-believe hardware: times and outcome are drawn from a seed when it starts."""

    key = models.CharField(max_length=60, primary_key=True)
    job = models.BigIntegerField()
    attempt = models.BigIntegerField()
    fence = models.BigIntegerField()
    node = models.CharField(max_length=253)
    runs_at = models.DateTimeField()  # start delay over
    ends_at = models.DateTimeField()  # when it would end by itself
    stopped_at = models.DateTimeField(null=True)
    exit_code = models.IntegerField(default=0)
    end_reason = models.CharField(max_length=16, default="")
    lines = models.PositiveIntegerField(default=1)
    cleaned = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["ends_at"], name="simulated_live", condition=Q(cleaned=False))]

    def __str__(self) -> str:
        return self.key


class SimulatedTombstone(models.Model):
    job = models.BigIntegerField(primary_key=True)
    fence = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.job} up to {self.fence}"


class SimulatedFault(models.Model):
    """A fault put on make-believe hardware: the node or card is not there while the row is."""

    hostname = models.CharField(max_length=253)
    card_uuid = models.CharField(max_length=100, default="")  # "" = the whole node is offline

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hostname", "card_uuid"], name="one_simulated_fault")]

    def __str__(self) -> str:
        return f"{self.hostname} {self.card_uuid}"
