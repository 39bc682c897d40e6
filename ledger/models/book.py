"""The book: who holds which part of which card when. Rows are written by ledger.book alone and never deleted."""

from __future__ import annotations

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.indexes import GistIndex
from django.db import models
from django.db.models import Q
from django.db.models.lookups import Exact

from ledger.fields import Int4MultiRangeField, period_field
from ledger.models.inventory import EQUAL, NOT_EQUAL, OVERLAPS, Block, Card, CardSeat, Node, Zone
from ledger.models.projects import Project
from ledger.models.work import Attempt
from ledger.vocabulary import Account, AllocationState, Form


class StateTransition(models.Model):
    """The legal moves between states, read by the triggers; equal to ledger.vocabulary.TRANSITIONS."""

    entity = models.CharField(max_length=16)
    old = models.CharField(max_length=16)
    new = models.CharField(max_length=16)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["entity", "old", "new"], name="transition_once")]

    def __str__(self) -> str:
        return f"{self.entity}: {self.old} to {self.new}"


class Allocation(models.Model):
    """One attempt's hold on one node for a period (open while it lasts)."""

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="allocations", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="allocations")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="allocations")
    rank = models.PositiveSmallIntegerField(default=0)  # position inside the gang
    form = models.CharField(max_length=16, choices=[(f, f) for f in Form])
    driver = models.CharField(max_length=16)
    zone_then = models.ForeignKey(Zone, on_delete=models.PROTECT, null=True, db_index=False)
    cpu_milli = models.BigIntegerField()
    host_memory_mib = models.BigIntegerField()
    state = models.CharField(max_length=16, default=AllocationState.OPENING, choices=[(s, s) for s in AllocationState])
    active_at = models.DateTimeField(null=True)
    closing_at = models.DateTimeField(null=True)
    period = period_field()

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="node_holds_one_form", expressions=[("node", EQUAL), ("form", NOT_EQUAL), ("period", OVERLAPS)]
            ),
            ExclusionConstraint(
                name="whole_node_is_alone",
                expressions=[("node", EQUAL), ("period", OVERLAPS)],
                condition=Q(form=Form.WHOLE),
            ),
            models.UniqueConstraint(fields=["attempt", "node"], name="gang_members_on_distinct_nodes"),
            models.UniqueConstraint(fields=["attempt", "rank"], name="gang_ranks_distinct"),
            models.UniqueConstraint(fields=["id", "node", "period"], name="allocation_with_node_and_period"),
            models.CheckConstraint(condition=Q(period__isempty=False), name="allocation_period_not_empty"),
            models.CheckConstraint(condition=Q(form__in=list(Form)), name="allocation_form_known"),
            models.CheckConstraint(condition=Q(state__in=list(AllocationState)), name="allocation_state_known"),
            models.CheckConstraint(
                condition=Q(cpu_milli__gte=0, host_memory_mib__gte=0), name="allocation_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(state=AllocationState.CLOSED, period__upper_inf=False)
                | (~Q(state=AllocationState.CLOSED) & Q(period__upper_inf=True)),
                name="allocation_open_until_closed",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[AllocationState.OPENING, AllocationState.ACTIVE], closing_at__isnull=True)
                | Q(state__in=[AllocationState.CLOSING, AllocationState.CLOSED], closing_at__isnull=False),
                name="allocation_closing_has_a_time",
            ),
        ]
        indexes = [
            # in the database with more columns, which the quota is summed from (0009_batched_guards)
            models.Index(fields=["project"], name="allocation_live_by_project", condition=Q(period__upper_inf=True)),
            models.Index(fields=["node"], name="allocation_live_by_node", condition=Q(period__upper_inf=True)),
            GistIndex(fields=["period"], name="allocation_period"),
        ]

    def __str__(self) -> str:
        return f"allocation {self.pk} of attempt {self.attempt_id}"

    @property
    def key(self) -> str:
        """The name of this member at its driver: never reused, derived from the row."""
        return f"a{self.pk}"


def _is_empty(multirange: str) -> models.Func:
    return models.Func(models.F(multirange), function="isempty", output_field=models.BooleanField())


class CardShare(models.Model):
    """The part of one card that an allocation holds. Its period follows the allocation's by foreign key."""

    allocation = models.ForeignKey(
        Allocation, on_delete=models.PROTECT, related_name="shares", db_constraint=False, db_index=False
    )
    seat = models.ForeignKey(CardSeat, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    card = models.ForeignKey(Card, on_delete=models.PROTECT, related_name="shares", db_constraint=False)
    block = models.ForeignKey(Block, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    card_memory_mib = models.IntegerField()
    memory = Int4MultiRangeField()
    compute = Int4MultiRangeField()  # of [0, 1000); empty = best effort
    memory_mib = models.IntegerField()  # the sum of `memory`; checked
    mig_mode = models.BooleanField(default=False)
    period = period_field()

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="card_never_double_booked",
                expressions=[("card", EQUAL), ("memory", OVERLAPS), ("period", OVERLAPS)],
            ),
            ExclusionConstraint(
                name="compute_never_double_booked",
                expressions=[("card", EQUAL), ("compute", OVERLAPS), ("period", OVERLAPS)],
                condition=Q(Exact(_is_empty("compute"), False)),  # as a rule nothing is asked for
            ),
            ExclusionConstraint(
                name="card_in_one_mig_mode",
                expressions=[("card", EQUAL), ("mig_mode", NOT_EQUAL), ("period", OVERLAPS)],
                condition=Q(period__upper_inf=True),  # a share comes open; once closed it can't clash any more
            ),
            ExclusionConstraint(
                name="block_given_once",
                expressions=[("block", EQUAL), ("allocation", NOT_EQUAL), ("period", OVERLAPS)],
                condition=Q(block__isnull=False),
            ),
            models.UniqueConstraint(fields=["allocation", "card"], name="one_share_a_card_and_allocation"),
        ]

    def __str__(self) -> str:
        return f"{self.memory_mib} MiB of {self.card_id}"


def _on_a_quarter(field: str, name: str) -> models.CheckConstraint:
    """The time lies on a quarter of an hour of UTC, exactly."""
    epoch = models.Func(
        models.F(field), template="mod(extract(epoch FROM %(expressions)s), 900)", output_field=models.DecimalField()
    )
    return models.CheckConstraint(condition=Exact(epoch, 0), name=name)


class RollUp(models.Model):
    """What is rolled up (one row). Quarters up to `fence_at` follow once transactions before `fence` are over."""

    since = models.DateTimeField()
    until = models.DateTimeField()
    fence = models.BigIntegerField(null=True)  # a transaction number (xid8)
    fence_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="one_roll_up"),
            _on_a_quarter("since", "roll_up_since_a_quarter"),
            _on_a_quarter("until", "roll_up_until_a_quarter"),
            models.CheckConstraint(condition=Q(since__lte=models.F("until")), name="roll_up_since_before_until"),
            models.CheckConstraint(
                condition=Q(fence__isnull=True, fence_at__isnull=True)
                | Q(fence__isnull=False, fence_at__isnull=False, fence_at__gt=models.F("until")),
                name="roll_up_fence_has_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"rolled up to {self.until}"


class UsageQuarter(models.Model):
    """MiB-seconds of one account in one 15-minute quarter of UTC and one cell; derived from the book, see
    ledger.quarters."""

    starts_at = models.DateTimeField()
    simulated = models.BooleanField()
    zone = models.ForeignKey(Zone, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    model = models.CharField(max_length=64)
    card_memory_mib = models.IntegerField()
    account = models.CharField(max_length=16, choices=[(a, a) for a in Account])
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    form = models.CharField(max_length=16, default="", choices=[(f, f) for f in Form], blank=True)
    mib_seconds = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["starts_at", "simulated", "zone", "model", "card_memory_mib", "account", "project", "form"],
                nulls_distinct=False,
                name="one_amount_a_quarter_and_cell",
            ),
            models.CheckConstraint(condition=Q(mib_seconds__gt=0), name="usage_positive"),
            _on_a_quarter("starts_at", "usage_on_a_quarter"),
            models.CheckConstraint(condition=Q(account__in=list(Account)), name="usage_account_known"),
            models.CheckConstraint(
                condition=Q(account__in=[Account.USED, Account.CLEANING], project__isnull=False, form__in=list(Form))
                | (~Q(account__in=[Account.USED, Account.CLEANING]) & Q(project__isnull=True, form="")),
                name="usage_has_a_project_where_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.mib_seconds} MiB-s from {self.starts_at}"
