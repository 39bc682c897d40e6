"""The health policy: its versions by site with their rules, what each counted fault was answered with, and what was
given back of time that hardware spoilt. Versions and rules are never changed but that a version ends when the next one
begins. Written by ledger.health_policy, ledger.health and ledger.refunds alone."""

from __future__ import annotations

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Q

from ledger.fields import period_field
from ledger.models.health import Case
from ledger.models.inventory import Card, Hold, Node
from ledger.models.people import User
from ledger.models.projects import Project
from ledger.models.telemetry import Fault
from ledger.models.work import Attempt
from ledger.vocabulary import FaultKind, HealthAction


class HealthVersion(models.Model):
    """What the policy of a site says during a period; once withdrawn, that of every site holds there."""

    number = models.PositiveIntegerField(unique=True)  # 1, 2, … of all sites together; 0 is the portal's own table
    site = models.CharField(max_length=64, default="")  # of Node.site; "" = every site that has none of its own
    period = period_field()
    withdrawn = models.BooleanField(default=False)
    inspect_after = models.PositiveSmallIntegerField()  # reboots of a node within the window: then a person looks at it
    inspect_window_s = models.PositiveIntegerField()
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_health_policy_a_site",
                expressions=[("site", RangeOperators.EQUAL), ("period", RangeOperators.OVERLAPS)],
            ),
            models.CheckConstraint(condition=Q(period__isempty=False), name="health_period_not_empty"),
            models.CheckConstraint(condition=~Q(reason=""), name="health_version_has_a_reason"),
            models.CheckConstraint(condition=Q(number__gt=0), name="health_version_from_one"),
            models.CheckConstraint(
                condition=Q(inspect_after__gte=1, inspect_window_s__gte=1), name="health_inspection_known"
            ),
        ]

    def __str__(self) -> str:
        return f"health policy {self.number}"


class HealthRule(models.Model):
    """What is done about faults of a kind, or of one code of it. `repeats` of them within `window_s` (with `by_users`:
    that many different people whose work they hit) are answered with `then`."""

    version = models.ForeignKey(HealthVersion, on_delete=models.PROTECT, related_name="rules", db_index=False)
    kind = models.CharField(max_length=16, choices=[(k, k) for k in FaultKind])
    code = models.IntegerField(null=True)  # null: any code of the kind that has no rule of its own
    action = models.CharField(max_length=16, choices=[(a, a) for a in HealthAction])
    then = models.CharField(max_length=16, default="", choices=[(a, a) for a in HealthAction])  # "" = always the same
    repeats = models.PositiveSmallIntegerField(default=0)
    window_s = models.PositiveIntegerField(default=0)
    by_users = models.BooleanField(default=False)
    by_hand = models.BooleanField(default=False)  # a person releases what it took out
    note = models.CharField(max_length=200, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["version", "kind", "code"], nulls_distinct=False, name="one_health_rule_a_code"
            ),
            models.CheckConstraint(condition=Q(kind__in=list(FaultKind)), name="health_rule_kind_known"),
            models.CheckConstraint(condition=Q(action__in=list(HealthAction)), name="health_rule_action_known"),
            models.CheckConstraint(condition=Q(then__in=["", *HealthAction]), name="health_rule_then_known"),
            models.CheckConstraint(
                condition=Q(then="", repeats=0, window_s=0, by_users=False)
                | (~Q(then="") & ~Q(then=F("action")) & Q(repeats__gte=2, window_s__gte=1)),
                name="health_rule_says_when_it_escalates",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.code or ''}: {self.action}"


class HealthEvent(models.Model):
    """One count of a fault and what it was answered with, by which version and rule. `began`: nothing was being done
    about the place yet. `done_at`: the jobs that were to end because of it are ending, `attempts`."""

    fault = models.ForeignKey(Fault, on_delete=models.PROTECT, related_name="answers")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+", db_index=False)
    card = models.ForeignKey(Card, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    kind = models.CharField(max_length=16, choices=[(k, k) for k in FaultKind])
    code = models.IntegerField(null=True)
    at = models.DateTimeField()
    version = models.PositiveIntegerField()  # number of the policy's version; 0 = the portal's own table
    rule = models.CharField(max_length=64)  # in words that stay: kind and code, or that none says anything of it
    action = models.CharField(max_length=16, choices=[(a, a) for a in HealthAction])
    escalated = models.BooleanField(default=False)
    why = models.CharField(max_length=300)
    began = models.BooleanField()
    users = ArrayField(models.BigIntegerField(), default=list)  # whose work was on the card
    hit = models.BigIntegerField(null=True)  # the allocation whose process it was, where that is known
    hold = models.ForeignKey(Hold, on_delete=models.PROTECT, null=True, related_name="+")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, null=True, related_name="events")
    ends_jobs = models.BooleanField(default=False)
    done_at = models.DateTimeField(null=True)
    attempts = ArrayField(models.BigIntegerField(), default=list)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(action__in=list(HealthAction)), name="health_event_action_known"),
            models.CheckConstraint(
                condition=Q(ends_jobs=True) | Q(done_at__isnull=True, attempts=[]), name="health_event_ends_jobs"
            ),
        ]
        indexes = [
            models.Index(fields=["node", "-at"], name="health_event_of_node"),
            models.Index(fields=["card", "-at"], name="health_event_of_card"),
            models.Index(fields=["at"], name="health_events_to_do", condition=Q(ends_jobs=True, done_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.rule}: {self.action}"


class Refund(models.Model):
    """What an attempt used of cards, given back because hardware failed it: it counts no more against budgets and fair
    share. The book itself keeps it as used. Once an attempt and never more than it used (migration 0026)."""

    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, related_name="refund")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="refunds")
    at = models.DateTimeField()
    card_milli_s = models.BigIntegerField()  # milli-card-seconds, as budgets count them
    event = models.ForeignKey(HealthEvent, on_delete=models.PROTECT, null=True, related_name="refunds")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(card_milli_s__gte=0), name="refund_not_negative")]

    def __str__(self) -> str:
        return f"refund of attempt {self.attempt_id}"
