"""Alerts: the rules, what they found, silences, the ladder to channels, and the outbox of messages. Rules, rungs and
silences are written by scheduler.alert_changes, alerts by scheduler.alerting, messages by scheduler.alert_messages and
scheduler.alert_sending alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q

from ledger.fields import period_field
from ledger.models import User
from ledger.vocabulary import DeliveryState


class Comparison(StrEnum):
    """On which side of its threshold a value is bad."""

    ABOVE = "above"
    BELOW = "below"


class Severity(StrEnum):
    """How urgent an alert is: somebody is called, somebody looks in working hours, or it is only noted."""

    PAGE = "page"
    WARN = "warn"
    EVENT = "event"


class AlertChannel(StrEnum):
    """By what an alert leaves the portal; on its pages it stands in any case."""

    ALERTMANAGER = "alertmanager"
    MAIL = "mail"
    WEBHOOK = "webhook"


class AlertEvent(StrEnum):
    FIRED = "fired"
    RESOLVED = "resolved"
    TEST = "test"


class AlertState(StrEnum):
    """Read from the times of an alert: true for less than its rule's time, for longer, or over."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Ending(StrEnum):
    """Why an alert is over."""

    CLEAR = "clear"  # the value is good again, or nobody reports it any more
    RULE = "rule"  # its rule was switched off, or is about other things now


LONGEST_S: Final = 30 * 86_400


class AlertRule(models.Model):
    """What is bad, for how long, and how urgent that is. Each change is in the audit trail, before and after; `version`
    counts them. Rules of the portal itself have a `key` of scheduler.alert_defaults, and their words come from there
    while `name` and `summary` are empty."""

    key = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100, default="", blank=True)
    summary = models.CharField(max_length=300, default="", blank=True)
    metric = models.CharField(max_length=32)  # of scheduler.alert_metrics.METRICS
    comparison = models.CharField(max_length=8, choices=[(c, c) for c in Comparison])
    threshold = models.FloatField()
    for_s = models.PositiveIntegerField()  # so long it has to be bad before it fires
    keep_s = models.PositiveIntegerField()  # so long it has to be good before it is over
    selector = models.JSONField(default=list)  # [[label, op, [value]]]: which readings it looks at; [] = all
    severity = models.CharField(max_length=8, choices=[(s, s) for s in Severity])
    enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField()
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")  # null: the portal itself
    reason = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(comparison__in=list(Comparison)), name="alert_comparison_known"),
            models.CheckConstraint(condition=Q(severity__in=list(Severity)), name="alert_rule_severity_known"),
            models.CheckConstraint(
                condition=Q(for_s__lte=LONGEST_S, keep_s__lte=LONGEST_S), name="alert_rule_times_bounded"
            ),
            models.CheckConstraint(
                condition=Q(by__isnull=True) | ~Q(reason=""), name="alert_rule_changed_with_a_reason"
            ),
        ]

    def __str__(self) -> str:
        return self.key


class Alert(models.Model):
    """One thing that one rule found bad, from when it became so until it was over. One that never fired is deleted."""

    rule = models.ForeignKey(AlertRule, on_delete=models.PROTECT, related_name="alerts")
    severity = models.CharField(max_length=8, choices=[(s, s) for s in Severity])  # of the rule when it began
    labels = models.JSONField()  # {name: value}, with alertname, severity and simulated
    fingerprint = models.CharField(max_length=64)  # of rule and labels: the same thing has the same one
    subject = models.CharField(max_length=200)
    url = models.CharField(max_length=300, default="")  # a path of the portal
    simulated = models.BooleanField()
    threshold = models.FloatField()  # of the rule when it began
    value = models.FloatField()  # the newest bad one
    peak = models.FloatField()  # the worst one
    started_at = models.DateTimeField()
    fired_at = models.DateTimeField(null=True)
    last_seen = models.DateTimeField()  # bad, to within SEEN_EVERY of scheduler.alerting
    clear_since = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    ending = models.CharField(max_length=8, default="", choices=[(e, e) for e in Ending])
    told_at = models.DateTimeField(null=True)  # its messages were written, or the ladder wants none
    told_over_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(resolved_at__isnull=True), name="one_open_alert_a_thing"
            ),
            models.CheckConstraint(condition=Q(severity__in=list(Severity)), name="alert_severity_known"),
            models.CheckConstraint(
                condition=Q(resolved_at__isnull=True) | Q(fired_at__isnull=False), name="alert_is_over_once_it_fired"
            ),
            models.CheckConstraint(
                condition=Q(resolved_at__isnull=True, ending="")
                | (Q(resolved_at__isnull=False) & Q(ending__in=list(Ending))),
                name="alert_that_is_over_says_why",
            ),
            models.CheckConstraint(
                condition=Q(fired_at__isnull=True) | Q(fired_at__gte=F("started_at")),
                name="alert_fires_after_its_start",
            ),
            models.CheckConstraint(
                condition=Q(told_at__isnull=True) | Q(fired_at__isnull=False), name="alert_is_told_once_it_fired"
            ),
        ]
        indexes = [
            GinIndex(fields=["labels"], opclasses=["jsonb_path_ops"], name="alert_labels"),
            models.Index(fields=["resolved_at"], name="alert_by_end"),
            models.Index(fields=["fired_at"], name="alert_untold", condition=Q(told_at__isnull=True)),
            models.Index(
                fields=["resolved_at"],
                name="alert_end_untold",
                condition=Q(resolved_at__isnull=False, told_over_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"alert {self.pk}: {self.subject}"

    @property
    def state(self) -> AlertState:
        if self.resolved_at is not None:
            return AlertState.RESOLVED
        return AlertState.PENDING if self.fired_at is None else AlertState.FIRING


class AlertRung(models.Model):
    """One rung of the ladder: the first, by position, whose matchers an alert meets says which channels it takes."""

    key = models.SlugField(max_length=64, unique=True)
    position = models.PositiveIntegerField()
    matchers = models.JSONField(default=list)  # as AlertRule.selector; [] = every alert
    channels = ArrayField(models.CharField(max_length=16), default=list)  # of AlertChannel; none: pages only
    enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField()
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    reason = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(channels__contained_by=[str(channel) for channel in AlertChannel]),
                name="alert_channels_known",
            )
        ]
        indexes = [models.Index(fields=["position"], name="alert_rung_order")]

    def __str__(self) -> str:
        return self.key


class Silence(models.Model):
    """Alerts that meet all its matchers are recorded and not told during its period."""

    matchers = models.JSONField()  # as AlertRule.selector, at least one
    period = period_field()
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    ended_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")  # before its time
    mirror = models.CharField(max_length=64, default="", blank=True)  # its id at the site's Alertmanager
    mirrored_until = models.DateTimeField(null=True)  # what Alertmanager was told of its end

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(matchers=[]), name="silence_matches_something"),
            models.CheckConstraint(condition=~Q(reason=""), name="silence_has_a_reason"),
            models.CheckConstraint(
                condition=Q(period__isempty=False, period__upper_inf=False), name="silence_ends_some_day"
            ),
        ]

    def __str__(self) -> str:
        return f"silence {self.pk}"


class AlertMessage(models.Model):
    """The outbox: one thing that is sent by one channel about one alert or many of the same rule. It may be sent twice,
    never not at all: a try is claimed by moving `due_at` ahead, and the row says sent only afterwards."""

    channel = models.CharField(max_length=16, choices=[(c, c) for c in AlertChannel])
    event = models.CharField(max_length=8, choices=[(e, e) for e in AlertEvent])
    rule = models.ForeignKey(AlertRule, on_delete=models.PROTECT, null=True, related_name="+")  # null: a test
    severity = models.CharField(max_length=8, choices=[(s, s) for s in Severity])
    place = models.CharField(max_length=253, default="", blank=True)  # node or zone of all its alerts; "" = several
    state = models.CharField(max_length=16, choices=[(s, s) for s in DeliveryState])
    tries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, default="", blank=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")  # who asked for the test

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(channel__in=list(AlertChannel)), name="alert_message_channel_known"),
            models.CheckConstraint(condition=Q(event__in=list(AlertEvent)), name="alert_message_event_known"),
            models.CheckConstraint(condition=Q(state__in=list(DeliveryState)), name="alert_message_state_known"),
            models.CheckConstraint(
                condition=Q(event=AlertEvent.TEST, rule__isnull=True)
                | (~Q(event=AlertEvent.TEST) & Q(rule__isnull=False)),
                name="alert_message_of_a_rule_or_a_test",
            ),
            models.CheckConstraint(
                condition=Q(state=DeliveryState.SENT, sent_at__isnull=False)
                | (~Q(state=DeliveryState.SENT) & Q(sent_at__isnull=True)),
                name="sent_alert_message_says_when",
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at", "id"], name="alert_message_pending", condition=Q(state=DeliveryState.PENDING)
            ),
            models.Index(fields=["channel", "rule", "event", "created_at"], name="alert_message_rate"),
        ]

    def __str__(self) -> str:
        return f"{self.event} by {self.channel}"


class AlertDelivery(models.Model):
    """An alert in a message."""

    message = models.ForeignKey(AlertMessage, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    alert = models.ForeignKey(Alert, on_delete=models.PROTECT, related_name="deliveries")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["message", "alert"], name="alert_once_a_message")]

    def __str__(self) -> str:
        return f"alert {self.alert_id} in message {self.message_id}"


class AlertPush(models.Model):
    """The last time that all standing alerts were told to a channel that forgets them (Alertmanager)."""

    channel = models.CharField(max_length=16, primary_key=True)
    tried_at = models.DateTimeField()
    ok_at = models.DateTimeField(null=True)
    alerts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, default="", blank=True)

    def __str__(self) -> str:
        return self.channel
