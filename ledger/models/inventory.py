"""Zones, nodes, cards, seats, blocks, links, holds and headroom. History is kept as periods, never overwritten."""

from __future__ import annotations

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import Q

from ledger.fields import period_field
from ledger.vocabulary import Form, HoldKind, Interconnect, NodeState, Supply

EQUAL, OVERLAPS, NOT_EQUAL = RangeOperators.EQUAL, RangeOperators.OVERLAPS, RangeOperators.NOT_EQUAL


class InventoryVersion(models.Model):
    """One row; triggers add one when what carries no transaction number changes: zones, cards, links, and rows that are
    deleted. Then the scheduler reads everything anew."""

    version = models.BigIntegerField(default=1)

    def __str__(self) -> str:
        return str(self.version)


class Zone(models.Model):
    slug = models.SlugField(unique=True)
    title = models.CharField(max_length=200)
    forms = ArrayField(models.CharField(max_length=16, choices=[(f, f) for f in Form]))

    class Meta:
        permissions = [("operate_zone", "Can hold and return machines of this zone")]
        constraints = [
            models.CheckConstraint(
                condition=Q(forms__contained_by=[f.value for f in Form]) & Q(forms__len__gt=0), name="zone_forms_known"
            )
        ]

    def __str__(self) -> str:
        return self.slug


class Node(models.Model):
    hostname = models.CharField(max_length=253, unique=True)
    site = models.CharField(max_length=64, default="")
    room = models.CharField(max_length=64, default="")
    rack = models.CharField(max_length=64, default="")
    leaf = models.CharField(max_length=64, default="")
    cpu_milli = models.BigIntegerField()
    host_memory_mib = models.BigIntegerField()
    interconnect = models.CharField(max_length=16, default=Interconnect.PCIE, choices=[(i, i) for i in Interconnect])
    network = models.CharField(max_length=100, default="")
    labels = ArrayField(models.CharField(max_length=63), default=list)
    supply = models.CharField(max_length=16, default=Supply.OWNED, choices=[(s, s) for s in Supply])
    managers = models.JSONField(default=dict)  # {form: driver name}
    simulated = models.BooleanField(default=False)
    state = models.CharField(max_length=16, default=NodeState.UP, choices=[(s, s) for s in NodeState])
    seen_at = models.DateTimeField(null=True)
    agent_digest = models.CharField(max_length=64, default="")  # SHA-256 of the agent's token; "" = no agent may report
    dcgm_url = models.CharField(max_length=300, default="", db_default="")  # of its dcgm-exporter; "" = it has none

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(cpu_milli__gte=0), name="node_cpu_not_negative"),
            models.CheckConstraint(condition=Q(host_memory_mib__gte=0), name="node_memory_not_negative"),
            models.CheckConstraint(condition=Q(state__in=list(NodeState)), name="node_state_known"),
        ]

    def __str__(self) -> str:
        return self.hostname


class NodeZone(models.Model):
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="zone_periods")
    zone = models.ForeignKey(Zone, on_delete=models.PROTECT, related_name="node_periods")
    period = period_field()

    class Meta:
        constraints = [
            ExclusionConstraint(name="node_in_one_zone", expressions=[("node", EQUAL), ("period", OVERLAPS)]),
            models.CheckConstraint(condition=Q(period__isempty=False), name="node_zone_period_not_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.node} in {self.zone}"


class Block(models.Model):
    """A fixed group of cards of one node that is given out as one piece."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="blocks")
    n = models.PositiveSmallIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "n"], name="block_number_once_a_node"),
            models.UniqueConstraint(fields=["id", "node"], name="block_with_its_node"),
        ]

    def __str__(self) -> str:
        return f"{self.node} block {self.n}"


class Card(models.Model):
    uuid = models.CharField(max_length=100, unique=True)
    model = models.CharField(max_length=64)
    memory_mib = models.IntegerField()
    memory_assumed = models.BooleanField(default=False)  # the source hides it; taken from the model's name
    virtual = models.BooleanField(default=False)
    mig_layout = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["id", "memory_mib"], name="card_with_its_memory"),
            models.CheckConstraint(condition=Q(memory_mib__gt=0), name="card_memory_positive"),
        ]

    def __str__(self) -> str:
        return self.uuid


class CardSeat(models.Model):
    """Where a card sits and since when; a card that moves gets a new seat and keeps its history."""

    card = models.ForeignKey(Card, on_delete=models.PROTECT, related_name="seats")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="seats")
    slot = models.PositiveSmallIntegerField()
    block = models.ForeignKey(Block, on_delete=models.PROTECT, null=True, related_name="seats")
    period = period_field()

    class Meta:
        constraints = [
            ExclusionConstraint(name="card_in_one_seat", expressions=[("card", EQUAL), ("period", OVERLAPS)]),
            ExclusionConstraint(
                name="seat_has_one_card", expressions=[("node", EQUAL), ("slot", EQUAL), ("period", OVERLAPS)]
            ),
            models.UniqueConstraint(fields=["id", "node", "card"], name="seat_with_node_and_card"),
            models.CheckConstraint(condition=Q(period__isempty=False), name="seat_period_not_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.card} in {self.node} slot {self.slot}"


class Link(models.Model):
    card_a = models.ForeignKey(Card, on_delete=models.CASCADE, related_name="+")
    card_b = models.ForeignKey(Card, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16)
    gbps = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["card_a", "card_b"], name="one_link_a_pair"),
            models.CheckConstraint(condition=Q(card_a__lt=models.F("card_b")), name="link_in_order"),
        ]

    def __str__(self) -> str:
        return f"{self.card_a}-{self.card_b} {self.kind}"


class Hold(models.Model):
    """A card or a node taken out of the pool on purpose. It stops new placements, never running work."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, null=True, related_name="holds")
    card = models.ForeignKey(Card, on_delete=models.PROTECT, null=True, related_name="holds")
    kind = models.CharField(max_length=16, choices=[(k, k) for k in HoldKind])
    period = period_field()
    reason = models.CharField(max_length=500)
    by = models.ForeignKey("ledger.User", on_delete=models.PROTECT, null=True)  # null: a rule of the system
    rule = models.CharField(max_length=64, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(node__isnull=True, card__isnull=False) | Q(node__isnull=False, card__isnull=True),
                name="hold_on_a_card_or_a_node",
            ),
            models.CheckConstraint(condition=Q(period__isempty=False), name="hold_period_not_empty"),
            models.CheckConstraint(condition=Q(kind__in=list(HoldKind)), name="hold_kind_known"),
            ExclusionConstraint(
                name="one_hold_a_kind_and_node",
                expressions=[("node", EQUAL), ("kind", EQUAL), ("period", OVERLAPS)],
                condition=Q(node__isnull=False),
            ),
            ExclusionConstraint(
                name="one_hold_a_kind_and_card",
                expressions=[("card", EQUAL), ("kind", EQUAL), ("period", OVERLAPS)],
                condition=Q(card__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} hold on {self.node or self.card}"


class HeadroomReserve(models.Model):
    """MiB of card memory kept free in a (zone, card model) cell for work marked as key."""

    zone = models.ForeignKey(Zone, on_delete=models.PROTECT, related_name="reserves")
    model = models.CharField(max_length=64)
    mib = models.BigIntegerField()
    period = period_field()

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_reserve_a_cell", expressions=[("zone", EQUAL), ("model", EQUAL), ("period", OVERLAPS)]
            ),
            models.CheckConstraint(condition=Q(mib__gte=0), name="reserve_not_negative"),
            models.CheckConstraint(condition=Q(period__isempty=False), name="reserve_period_not_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.mib} MiB of {self.model} in {self.zone}"
