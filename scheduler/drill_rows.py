"""Drills: a card or node taken out on purpose to see whether the pool notices, and how quickly it comes back. Written
by scheduler.drills alone and kept."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import models
from django.db.models import Q

from ledger.models import Card, Case, Hold, Node, User, Zone


class DrillState(StrEnum):
    PLANNED = "planned"
    OUT = "out"  # held; what avoids it and what tells of it is measured
    RETURNING = "returning"  # measured; its test is under way
    ENDED = "ended"


class DrillVerdict(StrEnum):
    """PARTLY: no target was missed, but not all could be measured."""

    PASSED = "passed"
    PARTLY = "partly"
    FAILED = "failed"
    ABORTED = "aborted"


OPEN_DRILLS: Final = frozenset(set(DrillState) - {DrillState.ENDED})


class AvoidedBy(StrEnum):
    """What showed first that placing leaves the place out."""

    PROBE = "probe"  # the engine on the real snapshot, asked for what it had offered before
    PLACEMENT = "placement"  # a real job that could have gone there went elsewhere


class Drill(models.Model):
    """Targets are seconds from the hold, but that of the hold itself, which is from the start."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="drills")
    card = models.ForeignKey(Card, on_delete=models.PROTECT, null=True, related_name="drills")  # null: the whole node
    zone = models.ForeignKey(Zone, on_delete=models.PROTECT, null=True, related_name="drills")  # when it was planned
    site = models.CharField(max_length=64, default="")
    simulated = models.BooleanField()
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    planned_at = models.DateTimeField()
    due_at = models.DateTimeField()
    drain = models.BooleanField()  # work may be on it: it goes on to its end, and only then is it tested
    hold_target_s = models.FloatField()
    avoid_target_s = models.FloatField()
    alert_target_s = models.FloatField()
    return_target_s = models.FloatField()
    state = models.CharField(max_length=10, default=DrillState.PLANNED, choices=[(s, s) for s in DrillState])
    verdict = models.CharField(max_length=8, default="")  # of DrillVerdict; "" = not ended
    started_at = models.DateTimeField(null=True)  # when it was to be out
    hold = models.ForeignKey(Hold, on_delete=models.PROTECT, null=True, related_name="drills")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, null=True, related_name="drills")
    held_at = models.DateTimeField(null=True)
    probe = models.JSONField(null=True)  # what was offered the place just before; null: nothing could be
    avoided_at = models.DateTimeField(null=True)
    avoided_by = models.CharField(max_length=10, default="")
    avoided = models.CharField(max_length=300, default="")  # in words: where it went, or why it waits
    alerted = models.JSONField(default=dict)  # {channel: when the alert was out}
    channels = models.JSONField(default=list)  # that were to tell; empty: this site has none
    went_on_at = models.DateTimeField(null=True)
    tested_at = models.DateTimeField(null=True)
    returned_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    lines = models.JSONField(default=list)  # of the verdict: [{what, took_s, target_s, said, why}]
    note = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "card"],
                condition=Q(ended_at__isnull=True),
                nulls_distinct=False,
                name="one_open_drill_a_place",
            ),
            models.CheckConstraint(condition=Q(state__in=list(DrillState)), name="drill_state_known"),
            models.CheckConstraint(condition=Q(verdict__in=["", *DrillVerdict]), name="drill_verdict_known"),
            models.CheckConstraint(condition=Q(avoided_by__in=["", *AvoidedBy]), name="drill_avoided_by_known"),
            models.CheckConstraint(condition=~Q(reason=""), name="drill_has_a_reason"),
            models.CheckConstraint(
                condition=Q(state=DrillState.ENDED, ended_at__isnull=False) & ~Q(verdict="")
                | ~Q(state=DrillState.ENDED) & Q(ended_at__isnull=True, verdict=""),
                name="drill_ends_with_a_verdict",
            ),
            models.CheckConstraint(
                condition=Q(hold__isnull=True, held_at__isnull=True, case__isnull=True)
                | Q(hold__isnull=False, held_at__isnull=False, case__isnull=False),
                name="drill_holds_with_a_case",
            ),
        ]
        indexes = [models.Index(fields=["zone", "-ended_at"], name="drill_of_zone")]

    def __str__(self) -> str:
        return f"drill {self.pk} of {self.card or self.node}"
