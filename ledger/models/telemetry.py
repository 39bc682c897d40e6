"""The latest of what agents report, its history, boots and counted faults. Telemetry never moves work by itself."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from ledger.fields import Int8MultiRangeField
from ledger.models.inventory import Card, Node
from ledger.vocabulary import FaultKind, QualityKind


class NodeBoot(models.Model):
    """A boot of a node, in the order in which the portal first heard of it; reports of older boots are old news."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="boots")
    boot_id = models.CharField(max_length=64)
    first_seen = models.DateTimeField()
    taken = Int8MultiRangeField(default=tuple)  # the sequences of its reports that were taken in, each once

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
    tensor_pct = models.SmallIntegerField(null=True)  # how long its tensor cores were busy
    memory_busy_pct = models.SmallIntegerField(null=True)  # how long its memory was read or written
    ecc = models.JSONField(default=dict)
    nvlink_errors = models.BigIntegerField(null=True)
    slowdown = ArrayField(models.CharField(max_length=16), null=True)  # why its clocks are held down
    processes = models.JSONField(null=True)
    lost = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"status of {self.card}"


class SampleBatch(models.Model):
    """The samples of one report on their way into the history: written with its receipt, taken out by the task that
    copies them (ledger.samples)."""

    boot = models.ForeignKey(NodeBoot, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    sequence = models.BigIntegerField()
    at = models.DateTimeField()
    samples = models.JSONField()  # [[card id, *values in the order of ledger.samples.VALUES]]

    def __str__(self) -> str:
        return f"samples {self.sequence} of boot {self.boot_id}"


class CardSample(models.Model):
    """One reading of one card; NULL = the card does not tell. In daily partitions by `at`; each (boot, sequence) of a
    card once. Written by ledger.samples alone."""

    pk = models.CompositePrimaryKey("card", "at", "boot", "sequence")
    card = models.ForeignKey(Card, on_delete=models.DO_NOTHING, related_name="samples", db_constraint=False)
    boot = models.ForeignKey(NodeBoot, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    sequence = models.BigIntegerField()
    at = models.DateTimeField()  # when it was taken, as far as the node's clock can be believed
    temperature_c = models.SmallIntegerField(null=True)
    utilisation_pct = models.SmallIntegerField(null=True)
    tensor_pct = models.SmallIntegerField(null=True)
    memory_busy_pct = models.SmallIntegerField(null=True)
    power_mw = models.IntegerField(null=True)
    memory_used_mib = models.IntegerField(null=True)

    class Meta:
        managed = False  # Django makes no partitioned tables; the migration does
        db_table = "ledger_cardsample"

    def __str__(self) -> str:
        return f"sample {self.sequence} of card {self.card_id}"


class CardHour(models.Model):
    """The samples of one card in one hour of UTC, in short: for each value its least, its mean and its most. NULL = no
    sample of the hour told it. Kept longer than the samples."""

    card = models.ForeignKey(Card, on_delete=models.CASCADE, related_name="hours", db_constraint=False, db_index=False)
    hour = models.DateTimeField()
    samples = models.PositiveIntegerField()
    temperature_c = ArrayField(models.FloatField(), size=3, null=True)
    utilisation_pct = ArrayField(models.FloatField(), size=3, null=True)
    tensor_pct = ArrayField(models.FloatField(), size=3, null=True)
    memory_busy_pct = ArrayField(models.FloatField(), size=3, null=True)
    power_mw = ArrayField(models.FloatField(), size=3, null=True)
    memory_used_mib = ArrayField(models.FloatField(), size=3, null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["card", "hour"], name="one_row_a_card_and_hour")]
        indexes = [models.Index(fields=["hour"], name="card_hour_by_hour")]

    def __str__(self) -> str:
        return f"hour {self.hour} of card {self.card_id}"


class OpenHour(models.Model):
    """An hour that got samples since it was last summed up."""

    hour = models.DateTimeField(primary_key=True)

    def __str__(self) -> str:
        return f"hour {self.hour}"


class QualityCount(models.Model):
    """How often telemetry was not as it should be, by node, card, kind and day of UTC."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, null=True, related_name="quality")  # null: nobody knows
    card = models.ForeignKey(Card, on_delete=models.CASCADE, null=True, related_name="quality")
    kind = models.CharField(max_length=16, choices=[(k, k) for k in QualityKind])
    day = models.DateField()
    count = models.PositiveBigIntegerField(default=1)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    detail = models.CharField(max_length=200, default="")  # of the last one

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "node", "card", "kind"], nulls_distinct=False, name="one_quality_count_a_day"
            ),
            models.CheckConstraint(condition=Q(kind__in=list(QualityKind)), name="quality_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} x{self.count}"


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
