"""The latest of what agents report, boots and counted faults. Telemetry never moves work by itself."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.inventory import Card, Node
from ledger.vocabulary import FaultKind


class NodeBoot(models.Model):
    """A boot of a node, in the order in which the portal first heard of it; reports of older boots are old news."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="boots")
    boot_id = models.CharField(max_length=64)
    first_seen = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "boot_id"], name="boot_once_a_node")]

    def __str__(self) -> str:
        return f"{self.node} {self.boot_id}"


class NodeReport(models.Model):
    """The newest report of a node's agent, by (boot, sequence)."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, related_name="report")
    boot = models.ForeignKey(NodeBoot, on_delete=models.CASCADE)
    sequence = models.BigIntegerField()
    sent_at = models.DateTimeField()  # the agent's clock: for people only
    received_at = models.DateTimeField()
    virtual = models.BooleanField(default=False)
    facts = models.JSONField()

    def __str__(self) -> str:
        return f"report {self.sequence} of {self.node}"


class CardStatus(models.Model):
    """The newest values of one card. NULL = the card does not tell, never 0."""

    card = models.OneToOneField(Card, on_delete=models.CASCADE, related_name="status")
    boot = models.ForeignKey(NodeBoot, on_delete=models.CASCADE)
    sequence = models.BigIntegerField()
    received_at = models.DateTimeField()
    temperature_c = models.SmallIntegerField(null=True)
    utilisation_pct = models.SmallIntegerField(null=True)
    power_mw = models.IntegerField(null=True)
    memory_used_mib = models.IntegerField(null=True)
    ecc = models.JSONField(default=dict)
    processes = models.JSONField(null=True)
    lost = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"status of {self.card}"


class Fault(models.Model):
    """A counted fault: how often, first and last; open until cleared."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="faults")
    card = models.ForeignKey(Card, on_delete=models.CASCADE, null=True, related_name="faults")
    kind = models.CharField(max_length=16, choices=[(k, k) for k in FaultKind])
    code = models.IntegerField(null=True)
    message = models.CharField(max_length=500, default="")
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    cleared_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "card", "kind", "code"],
                condition=Q(cleared_at__isnull=True),
                nulls_distinct=False,
                name="one_open_fault_a_kind",
            ),
            models.CheckConstraint(condition=Q(kind__in=list(FaultKind)), name="fault_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.code or ''} on {self.card or self.node} x{self.count}"


class FaultEvent(models.Model):
    """One reported event, so that a repeated delivery is counted once."""

    fault = models.ForeignKey(Fault, on_delete=models.CASCADE, related_name="events")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    event_id = models.CharField(max_length=200)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "event_id"], name="fault_event_once")]

    def __str__(self) -> str:
        return self.event_id
