"""Cases: what was taken out for its health and how far it is on its way back; and what agents are asked to do for them.
Written by ledger.cases alone."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.inventory import Card, Hold, Node
from ledger.models.telemetry import Fault, NodeBoot
from ledger.vocabulary import OPEN_CASES, CaseState, HealthAction, Need, OrderKind


class Case(models.Model):
    """A card or a whole node on its way from being taken out to its return. `boot`, `opened_at` and the results of its
    orders are the evidence: nothing returns without."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="cases")
    card = models.ForeignKey(Card, on_delete=models.PROTECT, null=True, related_name="cases")  # null: the whole node
    hold = models.ForeignKey(Hold, on_delete=models.PROTECT, related_name="cases")
    fault = models.ForeignKey(Fault, on_delete=models.PROTECT, null=True, related_name="cases")
    action = models.CharField(max_length=16, default="")  # of HealthAction; "" = a drill or a person took it out
    rule = models.CharField(max_length=64, default="")  # what decided, with its version
    need = models.CharField(max_length=16, choices=[(n, n) for n in Need])
    by_hand = models.BooleanField()  # a person releases it, whatever its test says
    state = models.CharField(max_length=16, choices=[(s, s) for s in CaseState])
    boot = models.ForeignKey(NodeBoot, on_delete=models.PROTECT, null=True, related_name="+")  # the newest when opened
    opened_at = models.DateTimeField()
    idle_at = models.DateTimeField(null=True)  # nothing runs on it any more
    done_at = models.DateTimeField(null=True)  # its reset, reboot or inspection was seen
    tested_at = models.DateTimeField(null=True)  # the last test ended
    ended_at = models.DateTimeField(null=True)
    resets = models.PositiveSmallIntegerField(default=0)
    reboots = models.PositiveSmallIntegerField(default=0)
    note = models.CharField(max_length=500, default="")  # of the last step

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "card"],
                condition=Q(ended_at__isnull=True),
                nulls_distinct=False,
                name="one_open_case_a_place",
            ),
            models.CheckConstraint(condition=Q(state__in=list(CaseState)), name="case_state_known"),
            models.CheckConstraint(condition=Q(need__in=list(Need)), name="case_need_known"),
            models.CheckConstraint(condition=Q(action__in=["", *HealthAction]), name="case_action_known"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, state__in=sorted(OPEN_CASES))
                | Q(ended_at__isnull=False) & ~Q(state__in=sorted(OPEN_CASES)),
                name="case_open_until_it_ends",
            ),
            models.CheckConstraint(
                condition=~Q(state="returned", action__gt="") | Q(tested_at__isnull=False) | Q(by_hand=True),
                name="case_returns_on_evidence",
            ),
        ]

    def __str__(self) -> str:
        return f"case {self.pk} of {self.card or self.node}"


class AgentOrder(models.Model):
    """One thing that a node's agent is asked to do. It goes with the answer to each report until the agent tells how it
    ended."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="orders")
    card = models.ForeignKey(Card, on_delete=models.PROTECT, null=True, related_name="orders")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="orders")
    kind = models.CharField(max_length=16, choices=[(k, k) for k in OrderKind])
    issued_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)  # first told to the agent
    ended_at = models.DateTimeField(null=True)
    ok = models.BooleanField(null=True)
    seconds = models.FloatField(null=True)
    detail = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=list(OrderKind)), name="order_kind_known"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, ok__isnull=True) | Q(ended_at__isnull=False, ok__isnull=False),
                name="order_ends_with_a_verdict",
            ),
        ]
        indexes = [models.Index(fields=["node"], name="open_orders", condition=Q(ended_at__isnull=True))]

    def __str__(self) -> str:
        return f"order {self.pk}: {self.kind}"
