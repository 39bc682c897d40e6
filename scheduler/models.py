"""Decisions, the outbox of commands, drift, zone plans, and the make-believe hardware of the simulated driver."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import models
from django.db.models import Q

from ledger.models import Allocation, Attempt, Hold, Job, Node, User, Zone
from ledger.vocabulary import CommandState, CommandVerb


class Workload(models.Model):
    """What jobs asked for up to some moment, as far as placing goes by it (scheduler.workload). Never changed: a
    decision names the one that it was made with."""

    learnt_at = models.DateTimeField()
    jobs = models.PositiveIntegerField()  # that were looked at
    demand = models.JSONField()  # [engine Demand as an object]

    def __str__(self) -> str:
        return f"workload {self.pk}"


class Decision(models.Model):
    """Why a job was placed where it was, or why it waits: inputs, rule and reasons, kept as data."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="decisions")
    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, null=True, related_name="decision")
    at = models.DateTimeField()  # of the newest equal decision
    first_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    rule = models.CharField(max_length=64)
    policy = models.CharField(max_length=64, default="")  # what ordered the queue
    seed = models.BigIntegerField()
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    ask_index = models.SmallIntegerField(null=True)  # null: it waits
    reasons = models.JSONField()  # [{refusal: nodes}] one an ask
    scores = models.JSONField(default=list)  # [[node id, score]] the best few
    neighbours = models.JSONField(default=list)  # projects on the same nodes at that instant
    fingerprint = models.CharField(
        max_length=16, default="", db_default=""
    )  # of the placement: equal where runs are comparable
    fingerprint_parts = models.JSONField(null=True)  # what it stands for (scheduler.engine.fingerprint)
    warm = models.JSONField(null=True)  # {policy, nodes, gave_up}: nodes that were preferred for the data on them
    never = models.BooleanField(default=False)
    position = models.PositiveIntegerField(null=True)
    expected_s = models.FloatField(null=True)  # how long the job was expected to run; null: nothing was known of it
    # of a job that nodes are kept for: {nodes: [host name], ask: its number, awaits: [job id]}, and from when
    kept = models.JSONField(null=True)
    begins_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kept__isnull=True, begins_at__isnull=True)
                | Q(kept__isnull=False, begins_at__isnull=False, attempt__isnull=True),
                name="decision_keeps_nodes_from_a_time",
            ),
            models.UniqueConstraint(
                fields=["job"], condition=Q(attempt__isnull=True), name="one_waiting_decision_a_job"
            ),
        ]
        indexes = [models.Index(fields=["job"], name="decision_kept", condition=Q(kept__isnull=False))]

    def __str__(self) -> str:
        return f"decision on job {self.job_id}"


class Promise(models.Model):
    """What the submit page told of a job's place and company before it was queued; never changed. Whether it was kept
    is read from the book (scheduler.promises)."""

    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="promise")
    made_at = models.DateTimeField()
    verdict = models.CharField(max_length=8)  # of scheduler.whatif.Outlook
    spots = models.JSONField(default=list)  # [{node, form, cards: [slot]}]
    neighbours = models.JSONField(default=list)  # slugs of projects on these nodes
    expected_at = models.DateTimeField(null=True)  # the earliest start, of a job that was to wait

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(verdict__in=["now", "later", "never", "barred"]), name="promise_verdict_known"
            ),
            models.CheckConstraint(condition=~Q(verdict="now") | ~Q(spots=[]), name="promise_of_now_names_a_place"),
        ]

    def __str__(self) -> str:
        return f"promise to job {self.job_id}"


class Preemption(models.Model):
    """Attempts were stopped so that one waiting job gets its cards, and nodes are kept for it meanwhile. Never changed:
    whether it is still open is read from the job and the time (scheduler.standings)."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="preemptions")
    made_at = models.DateTimeField()
    kept_until = models.DateTimeField(db_index=True)
    rule = models.CharField(max_length=64)
    cause = models.CharField(max_length=16)  # of scheduler.engine.preempt
    ask_index = models.SmallIntegerField()
    form = models.CharField(max_length=16)
    nodes = models.JSONField()  # [node id] that are kept
    grace_s = models.PositiveIntegerField()
    inputs = models.JSONField()  # what it was decided by

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(cause__in=["guarantee", "tier"]), name="preemption_cause_known"),
            models.CheckConstraint(condition=Q(kept_until__gt=models.F("made_at")), name="preemption_keeps_for_a_time"),
            models.CheckConstraint(condition=~Q(nodes=[]), name="preemption_keeps_nodes"),
        ]

    def __str__(self) -> str:
        return f"preemption for job {self.job_id}"


class PreemptionVictim(models.Model):
    """An attempt that was stopped for another job: once, and for one."""

    preemption = models.ForeignKey(Preemption, on_delete=models.PROTECT, related_name="victims")
    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, related_name="preempted_for")
    borrowed = models.BooleanField()  # its project held more than its guarantee
    ran_s = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"attempt {self.attempt_id}"


class Command(models.Model):
    """The outbox: what a driver must be told about one allocation. Repeatable; the row says whether it is done."""

    allocation = models.ForeignKey(Allocation, on_delete=models.PROTECT, related_name="commands", db_index=False)
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


class PlanKind(StrEnum):
    """How the nodes of a zone plan were chosen."""

    LIST = "list"
    RATIO = "ratio"
    UNDO = "undo"


class PlanState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class MoveState(StrEnum):
    """One node of a zone plan. DROPPED: the plan was cancelled, or the node went its own way."""

    PLANNED = "planned"
    DRAINING = "draining"
    MOVED = "moved"
    DROPPED = "dropped"


OPEN_MOVES: Final = frozenset({MoveState.PLANNED, MoveState.DRAINING})


class ZonePlan(models.Model):
    """Nodes that go from zone to zone, with a reason. Its zones are under observation until `window_until`."""

    kind = models.CharField(max_length=8, choices=[(k, k) for k in PlanKind])
    simulated = models.BooleanField()  # real and simulated nodes never share a plan
    model = models.CharField(max_length=64, default="")  # by ratio: only nodes with this card model; "" = any
    targets = models.JSONField(default=dict)  # by ratio: {zone slug: nodes} as they were wanted
    undoes = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="undone_by")
    reason = models.CharField(max_length=500)
    override_reason = models.CharField(max_length=500, default="")  # why the window of an earlier plan didn't count
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    window_until = models.DateTimeField()
    state = models.CharField(max_length=10, default=PlanState.RUNNING, choices=[(s, s) for s in PlanState])
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=list(PlanState)), name="zone_plan_state_known"),
            models.CheckConstraint(condition=~Q(reason=""), name="zone_plan_has_a_reason"),
            models.CheckConstraint(
                condition=Q(state=PlanState.RUNNING, ended_at__isnull=True)
                | (~Q(state=PlanState.RUNNING) & Q(ended_at__isnull=False)),
                name="zone_plan_ended_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["id"], name="zone_plan_running", condition=Q(state=PlanState.RUNNING)),
            models.Index(fields=["window_until"], name="zone_plan_window"),
        ]

    def __str__(self) -> str:
        return f"zone plan {self.pk}"


class ZoneMove(models.Model):
    """One node of a zone plan: from where to where, and how far it is."""

    plan = models.ForeignKey(ZonePlan, on_delete=models.PROTECT, related_name="moves", db_index=False)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="zone_moves")
    from_zone = models.ForeignKey(Zone, on_delete=models.PROTECT, null=True, related_name="+")  # null: in no zone
    to_zone = models.ForeignKey(Zone, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=8, default=MoveState.PLANNED, choices=[(s, s) for s in MoveState])
    hold = models.ForeignKey(Hold, on_delete=models.PROTECT, null=True, related_name="+")  # the drain of this plan
    moved_at = models.DateTimeField(null=True)
    note = models.CharField(max_length=200, default="")  # why it was dropped

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "node"], name="node_once_a_zone_plan"),
            models.UniqueConstraint(
                fields=["node"], condition=Q(state__in=sorted(OPEN_MOVES)), name="one_open_zone_move_a_node"
            ),
            models.CheckConstraint(condition=Q(state__in=list(MoveState)), name="zone_move_state_known"),
            models.CheckConstraint(
                condition=Q(from_zone__isnull=True) | ~Q(from_zone=models.F("to_zone")), name="zone_move_moves"
            ),
            models.CheckConstraint(
                condition=Q(state=MoveState.MOVED, moved_at__isnull=False)
                | (~Q(state=MoveState.MOVED) & Q(moved_at__isnull=True)),
                name="zone_move_moved_says_when",
            ),
        ]

    def __str__(self) -> str:
        return f"node {self.node_id} to zone {self.to_zone_id}"


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


from scheduler import alert_rows as alert_rows  # noqa: E402
from scheduler import drill_rows as drill_rows  # noqa: E402
from scheduler import policy_rows as policy_rows  # noqa: E402  more tables, in a module of their own
from scheduler import scrape_rows as scrape_rows  # noqa: E402
