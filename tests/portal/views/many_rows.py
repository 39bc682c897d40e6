"""A world in which every table has rows, and which grows by as many again of each kind: for tests of how often a page
asks the database. Through the writers where there is one; what they can't lay out in a moment is written as rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Q
from django.test import Client

from ledger import (
    audit,
    health_policy,
    invitations,
    letters,
    odd_grants,
    quarters,
    refunds,
    requests,
    saved_values,
    telemetry,
)
from ledger.acts import Act
from ledger.clock import database_now
from ledger.health_defaults import DEFAULT
from ledger.health_rules import Rule
from ledger.inventory import end_hold, place_hold
from ledger.models import (
    AgentOrder,
    Attempt,
    AuditEvent,
    AuditSeal,
    Card,
    CardShare,
    CardWatch,
    Case,
    Department,
    DepartmentCeiling,
    Fault,
    HeadroomReserve,
    HealthEvent,
    Hold,
    Job,
    JobMetric,
    Link,
    MemberLimit,
    MetricSource,
    Node,
    NodeBoot,
    OddGrant,
    OpenHour,
    Project,
    ProjectRequest,
    QuotaGrant,
    Receipt,
    RollUp,
    ShareUse,
    UsageQuarter,
    User,
)
from ledger.people import create_token
from ledger.vocabulary import (
    Account,
    FaultKind,
    Form,
    HealthAction,
    HoldKind,
    OddGrantKind,
    ProjectRole,
    RequestKind,
    Resource,
)
from scheduler import alert_changes, alerting, commands, observing, placing, queue, queue_control, reclaim
from scheduler.alert_rows import Alert, AlertChannel, AlertDelivery, AlertMessage, AlertPush
from scheduler.drill_rows import Drill
from scheduler.models import (
    Drift,
    Preemption,
    PreemptionVictim,
    Promise,
    SimulatedFault,
    SimulatedMember,
    SimulatedTombstone,
    TaskRun,
    Workload,
    ZonePlan,
)
from scheduler.policy import Scope, Terms
from scheduler.policy_changes import put_version
from scheduler.policy_rows import JobPolicy
from scheduler.queue_control import Order
from scheduler.scrape_rows import JobScrape, NodeScrape
from scheduler.zone_proposals import propose_list
from scheduler.zones import make_plan
from tests import factories, sampled
from tests.ledger.raw import Sql, attempt

LONG = ["simulate", "--seconds", "3600"]
# What one row stands for all of, or the portal writes once.
# One row, or one for each of a few words:
ONCE = {
    "ledger_inventoryversion",
    "ledger_rollup",
    "ledger_statetransition",
    "scheduler_alertpush",
    "scheduler_alertrung",
}


class Rows:
    """`add` writes about as many rows of every kind as there are numbers, none of which it may get twice."""

    def __init__(self, people: dict[str, User]) -> None:
        self.people = people
        self.readers = (people["researcher"], people["admin"])

    def add(self, numbers: Sequence[int]) -> None:
        for n in numbers:
            self._people(n)
            self._machines(n)
            self._out(n)
        self._jobs(numbers)
        self._around_one_object(numbers)
        for n in numbers:
            self._operations(n)
            self._usage(n)
            self._readings(n)
            self._ends(n)
        self._plans(numbers)
        self._seals()

    # -- people and machines -------------------------------------------------------------------------------------------

    def _people(self, n: int) -> None:
        person, member = f"person-{n}", ProjectRole.MEMBER
        made = factories.project(f"team-{n}", researcher=member, admin=member, **{person: member})
        factories.join(Project.objects.get(slug="vision"), {factories.user(person): member})
        Department.objects.create(slug=f"department-{n}", title=str(n))
        self._asked(n, made)
        factories.grant(made, Resource.CARD_MEMORY_MIB, 10**9)
        self._limits(n, person)
        self._policies(n, made)
        for reader in self.readers:
            Client().force_login(reader)
            create_token(user=reader, label=f"token {n}", days=9, actor=reader, via="test")
            saved_values.save(user=reader, name=f"set {n}", values={"name": "x"}, via="test")

    def _asked(self, n: int, team: Project) -> None:
        """Invitations of the readers, and requests in vision with a verdict and a comment."""
        vision, owner = Project.objects.get(slug="vision"), self.people["owner"]
        ask, guest = Act(owner, "test", "more"), factories.user(f"guest-{n}")
        invitations.invite(project=vision, user=guest, role=ProjectRole.MEMBER, act=ask)
        other = factories.project(f"club-{n}")
        for reader in self.readers:
            invitations.invite(project=other, user=reader, role=ProjectRole.MEMBER, act=ask)
        later = {"ends_on": str(vision.ends_on + dt.timedelta(days=400))}
        ProjectRequest.objects.filter(by=owner, state="open").update(expires_at=database_now())
        requests.expire_requests()
        asked = requests.ask(kind=RequestKind.EXTENSION, project=vision, details=later, act=ask)
        for _ in range(n + 1):
            requests.comment(request=asked, text="please", act=ask)
        requests.decide(request=asked, approves=True, act=Act(self.people["manager"], "test"))

    def _limits(self, n: int, person: str) -> None:
        """Also of one project and department, which pages list them of."""
        vision, research = Project.objects.get(slug="vision"), Department.objects.get(slug="research")
        below = Department.objects.create(slug=f"below-{n}", title=str(n), parent=research)
        now, by, long = database_now(), self.people["admin"], 10**12
        for resource in (Resource.CARD_MEMORY_MIB, Resource.CARD_MILLI, Resource.CARD_MILLI_S):
            about = {"resource": resource, "amount": long, "period": (now, None), "reason": "test", "by": by}
            QuotaGrant.objects.create(project=vision, model=f"M{n}", **about)
        for place, resource in (
            (below, Resource.CPU_MILLI),
            (Department.objects.get(slug=f"department-{n}"), Resource.CARD_MILLI),
        ):
            about = {"resource": resource, "amount": long, "period": (now, None), "reason": "test", "by": by}
            DepartmentCeiling.objects.create(department=place, **about)
        past = (now - dt.timedelta(days=n + 2), now - dt.timedelta(days=n + 2, hours=-12))
        DepartmentCeiling.objects.create(
            department=research, resource=Resource.CPU_MILLI, amount=1, period=past, reason="x", by=by
        )
        limit = {"resource": Resource.CPU_MILLI, "amount": long, "since": now, "reason": "test", "by": by}
        MemberLimit.objects.create(project=vision, user=factories.user(person), **limit)

    def _policies(self, n: int, team: Project) -> None:
        """Of more and more projects and departments, and version upon version of one."""
        act, below = Act(self.people["manager"], "test", "as agreed"), Department.objects.get(slug=f"below-{n}")
        home = factories.zone(f"home-{n}").pk
        for scope, terms in (
            (Scope(project=team.pk), Terms(priority_most=100)),
            (Scope(department=below.pk), Terms(zones=(home,))),
            (Scope(kind="data"), Terms(priority_default=n, zones=(home,))),
        ):
            put_version(scope=scope, terms=terms, act=act)
        rules = [*DEFAULT.rules, Rule(FaultKind.XID, 50_000 + n, HealthAction.LOG)]
        how = {"inspect_after": 2, "inspect_window_s": 3_600, "act": Act(self.people["admin"], "test", "as agreed")}
        health_policy.put_version(site="", rules=rules, **how)

    def _machines(self, n: int) -> None:
        home, before = factories.zone(f"home-{n}"), factories.zone(f"before-{n}", [Form.WHOLE])
        place = {"simulated": False, "rack": f"rack-{n}", "cards": 2}
        node = factories.node(f"real-{n}", in_zone=home, block=1, model=f"M{n}", **place)
        factories.node(f"made-up-{n}", in_zone=home, block=1, model=f"M{n}", **place | {"simulated": True})
        for name in ("mover", "leaver"):
            factories.node(f"{name}-{n}", in_zone=before, **place | {"cards": 1})
        held = factories.node(f"held-{n}", in_zone=home, **place)
        place_hold(kind=HoldKind.MAINTENANCE, reason="fan", actor=None, via="test", node=held)
        card = Card.objects.get(uuid=f"held-{n}-card-0")
        place_hold(kind=HoldKind.FAULT, reason="XID 79", actor=None, via="test", card=card)
        HeadroomReserve.objects.create(zone=home, model=f"M{n}", mib=1, period=(database_now(), None))
        first, second = sorted(card.pk for card in Card.objects.filter(uuid__startswith=f"real-{n}-"))
        Link.objects.create(card_a_id=first, card_b_id=second, kind="nvlink", gbps=900)
        telemetry.ingest(node, _report(node.hostname))
        SimulatedFault.objects.create(hostname=f"gone-{n}")

    def _ends(self, n: int) -> None:
        """A project that has ended, one that is about to, with a job that waits, and somebody who has left."""
        member = ProjectRole.MEMBER
        factories.ended(f"over-{n}", researcher=member, admin=member)
        ends = factories.project(f"ends-{n}", researcher=member, admin=member, **{f"gone-{n}": member})
        Project.objects.filter(pk=ends.pk).update(ends_on=ends.starts_on + dt.timedelta(days=3))
        self._job(self.readers[0], n, project=ends.slug, asks=[{"form": "container", "cards_per_node": 9}])
        gone = factories.user(f"gone-{n}")
        create_token(user=gone, label="x", days=9, actor=gone, via="test")
        self._rights(n, gone)
        User.objects.filter(pk=gone.pk).update(is_active=False)
        reclaim.reclaim_all()
        letters.write_due()

    def _rights(self, n: int, gone: User) -> None:
        """Of the one who leaves over a zone, of somebody over the department of vision; and the readers had one."""
        admin, research = self.people["admin"], Department.objects.get(slug="research")
        soon, act = database_now() + dt.timedelta(days=1), Act(admin, "test", "help")
        odd_grants.give(user=gone, place=factories.zone(f"home-{n}"), until=soon, act=act)
        odd_grants.give(user=factories.user(f"person-{n}"), place=research, until=soon, act=act)
        over = soon - dt.timedelta(days=n + 2)
        about = {"kind": OddGrantKind.AUDITOR, "department": research, "reason": "test", "by": self.people["manager"]}
        for reader in self.readers:
            OddGrant.objects.create(user=reader, period=(over - dt.timedelta(hours=9), over), **about)

    def _out(self, n: int) -> None:
        """Of one card, case upon case: the open one has order upon order. And drills."""
        node, now, by = Node.objects.get(hostname="held-0"), database_now(), self.people["operator"]
        card = Card.objects.get(uuid="held-0-card-0")
        hold = Hold.objects.get(card=card, period__upper_inf=True)
        about = {"node": node, "card": card, "hold": hold, "need": "reset", "by_hand": True, "opened_at": now}
        found = Case.objects.filter(state="needed").first() or Case.objects.create(
            **about, state="needed", action="rma"
        )
        Case.objects.create(**about, state="aborted", ended_at=now)
        NodeBoot.objects.create(node=node, boot_id=f"since-{n}", first_seen=database_now())
        Fault.objects.create(node=node, card=card, kind=FaultKind.XID, code=n, first_seen=now, last_seen=now)
        AgentOrder.objects.create(node=node, card=card, kind="reset", issued_at=now, case=found)
        audit.record(actor=by, via="test", verb="case.reset", target=found, after={"why": "x"})
        other = Card.objects.get(uuid=f"held-{n}-card-1")
        drill = {"node": node, "by": by, "reason": "drill", "planned_at": now, "due_at": now, "drain": False}
        drill |= {name: 1.0 for name in ("hold_target_s", "avoid_target_s", "alert_target_s", "return_target_s")}
        Drill.objects.create(**drill, card=other, zone=factories.zone(f"home-{n}"), simulated=False)
        audit.record(actor=by, via="test", verb="drill.planned", target=drill_row())

    # -- work ----------------------------------------------------------------------------------------------------------

    def _jobs(self, numbers: Sequence[int]) -> None:
        """Running for each reader and on both kinds of hardware; ended in each way; waiting in each way; starting; and
        last of those that run, one gang as wide as there are numbers, with as many attempts behind it."""
        researcher, admin = self.readers
        ended = [self._job(researcher, n, command=_seconds(code)) for n in numbers for code in (0, 1)]
        dropped = [self._job(researcher, n) for n in numbers]
        for n in numbers:
            self._job(admin, n)
            self._job(researcher, n, simulated=True)
        self._turn()
        SimulatedMember.objects.filter(job__in=[job.pk for job in ended]).update(ends_at=database_now())
        for job in dropped:
            queue.cancel(job_id=job.pk, actor=researcher, reason="wrong data", via="test")
        self._turn()
        self._turn()
        gang = self._job(researcher, numbers[0], name="gang", asks=[{"form": "container", "nodes": len(numbers)}])
        for n in range(len(numbers)):
            over = Sql("clock_timestamp()")
            attempt(gang.pk, n=n + 1, state="ended", outcome="hardware", ended_at=over)
        self._turn()
        self._promise(gang, numbers)
        for n in numbers:
            self._promise(self._job(researcher, n, name="starts"), [n])
        placing.place_queued()
        held = [self._job(reader, n, name="held").pk for n in numbers for reader in self.readers]
        queue_control.hold_jobs(job_ids=held, order=Order(actor=admin, reason="budget", via="test"))
        for n in numbers:
            for reader in self.readers:
                self._job(reader, n, name="waits", asks=[{"form": "container", "cards_per_node": 9}])
        placing.place_queued()

    @staticmethod
    def _job(actor: User, n: int, **values: Any) -> Job:
        return factories.any_job(actor, **{"command": LONG, "simulated": False, "project": f"team-{n}"} | values)

    @staticmethod
    def _promise(job: Job, numbers: Sequence[int]) -> None:
        spots = [{"node": f"real-{n}", "form": "container", "cards": [0]} for n in numbers]
        neighbours = [f"team-{n}" for n in numbers]
        Promise.objects.create(job=job, made_at=database_now(), verdict="now", spots=spots, neighbours=neighbours)

    @staticmethod
    def _turn() -> None:
        placing.place_queued()
        commands.run_due()
        observing.observe_all()

    def _around_one_object(self, numbers: Sequence[int]) -> None:
        """What the pages of one job, node and card list."""
        refunds.refund_due()
        job, node = gang(), busiest()
        card, now = Card.objects.get(uuid=busiest_card()), database_now()
        for n in numbers:
            audit.record(actor=self.readers[0], via="test", verb="job.bumped", target=job, project=job.project)
            about = {"kind": FaultKind.XID, "code": n, "first_seen": now, "last_seen": now}
            fault = Fault.objects.create(node=node, card=card, **about)
            answer = {"kind": fault.kind, "code": n, "at": now, "version": 0, "rule": "xid", "why": "x", "began": True}
            HealthEvent.objects.create(fault=fault, node=node, card=card, action=HealthAction.LOG, **answer)
            NodeBoot.objects.create(node=node, boot_id=f"older-{n}", first_seen=now)
            past = (now - dt.timedelta(days=n + 1), now - dt.timedelta(days=n + 1, hours=-1))
            Hold.objects.create(node=node, kind=HoldKind.DRILL, reason="drill", period=past)
            Hold.objects.create(card=card, kind=HoldKind.DRILL, reason="drill", period=past)
        self._use(numbers)
        for kind in [HoldKind.MAINTENANCE, HoldKind.FAULT, HoldKind.LOST][: len(numbers)]:
            for place in ({"node": node}, {"card": card}):
                place_hold(kind=kind, reason="fan", actor=self.readers[1], via="test", **place)

    @staticmethod
    def _use(numbers: Sequence[int]) -> None:
        """What the shares of that job hold, what is on its cards, and what its application and exporters tell."""
        job, now = gang(), database_now()
        seen = {"boot": NodeBoot.objects.latest("pk"), "sequence": 1, "at": now}
        for share in CardShare.objects.filter(allocation__attempt__job=job, period__upper_inf=True):
            ShareUse.objects.get_or_create(share=share, defaults={"used_mib": 1, "over": 1, **seen})
            CardWatch.objects.get_or_create(card=share.card, defaults=seen)
        for n in numbers:
            at = now - dt.timedelta(seconds=n)
            JobMetric.objects.create(job=job, at=at, source=MetricSource.PUSHED, p99_ms=n, queue_length=n)
            node = Node.objects.get(hostname=f"real-{n}")
            NodeScrape.objects.create(node=node, tried_at=now)
            first = Job.objects.filter(project__slug=f"team-{n}").earliest("pk")
            JobScrape.objects.get_or_create(job=first, defaults={"tried_at": now})
        Job.objects.filter(pk=job.pk).update(metrics_port=8000, metrics_path="/metrics")
        JobScrape.objects.get_or_create(job=job, defaults={"tried_at": now})

    # -- operations ----------------------------------------------------------------------------------------------------

    def _operations(self, n: int) -> None:
        now = database_now()
        seen = {"detail": "d", "fix": "f", "first_seen": now, "last_seen": now}
        Drift.objects.create(kind="agent_silent", subject=f"real-{n}", **seen)
        Drift.objects.create(kind="attempt_unknown", subject=f"a{n}", job=gang(), **seen)
        Drift.objects.create(kind="agent_silent", subject=f"mover-{n}", resolved_at=now, **seen)
        TaskRun.objects.create(name=f"task-{n}", started_at=now, ended_at=now, ok=True)
        Workload.objects.create(learnt_at=now, jobs=n, demand=[])
        self._preemption()
        SimulatedTombstone.objects.get_or_create(job=n, defaults={"fence": 1})
        self._alerts(n, now)

    def _alerts(self, n: int, now: dt.datetime) -> None:
        """Alerts that fire and that are over, with messages of all, and the rows that people write."""
        operator = Act(self.people["operator"], "test", "fan")
        terms = alert_changes.RuleTerms("dwell", "above", 9.0, 0, 0, "warn", [], name=f"Rule {n}")
        alert_changes.add_rule(terms=terms, act=operator)
        until = now + dt.timedelta(hours=1)
        made = alert_changes.silence(matchers=[["node", "=", [f"gone-{n}"]]], until=until, act=operator)
        if n % 2:
            alert_changes.end_silence(silence=made, act=operator)
        card = Card.objects.get(uuid=f"real-{n}-card-1")
        hold = place_hold(kind=HoldKind.DRILL, reason="drill", actor=None, via="test", card=card)
        alerting.evaluate(now)
        end_hold(hold_id=hold.pk, reason="drill", actor=None, via="test")
        alerting.evaluate(now + dt.timedelta(seconds=5))
        for channel in AlertChannel:
            AlertPush.objects.update_or_create(channel=channel, defaults={"tried_at": now})
        told = alert()
        about = {"event": "fired", "rule": told.rule, "severity": "warn", "created_at": now, "due_at": now}
        message = AlertMessage.objects.create(channel="webhook", state="pending", **about)
        AlertDelivery.objects.create(alert=told, message=message)

    def _usage(self, n: int) -> None:
        """Use of each of the last days, already rolled up."""
        project, zone = Project.objects.get(slug=f"team-{n}"), factories.zone(f"home-{n}")
        edge = quarters.floor(database_now())
        RollUp.objects.get_or_create(pk=1, defaults={"since": edge - dt.timedelta(days=40), "until": edge})
        cell = {"zone": zone, "model": f"M{n}", "card_memory_mib": 16_000, "mib_seconds": 900, "simulated": False}
        for day in range(1, 4):
            at = edge - dt.timedelta(days=day)
            UsageQuarter.objects.create(starts_at=at, account=Account.FREE, **cell)
            UsageQuarter.objects.create(starts_at=at, account=Account.USED, project=project, form="container", **cell)

    @staticmethod
    def _readings(n: int) -> None:
        """Of the cards of the busiest node: samples, hours that are summed up, and hours that are not."""
        now = database_now()
        hour = now.replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=n + 1)
        for card in Card.objects.filter(seats__node=busiest(), seats__period__upper_inf=True):
            sampled.sample(card, now - dt.timedelta(minutes=n + 1), temperature_c=40 + n, utilisation_pct=n)
            sampled.hour(card, hour, temperature_c=[40, 41, 42], utilisation_pct=[0, n, 99])
        OpenHour.objects.get_or_create(hour=hour - dt.timedelta(days=30))

    def _plans(self, numbers: Sequence[int]) -> None:
        """One plan a number that is done, one of many nodes that is done, and one that waits for what runs there."""
        for n in numbers:
            self._plan([f"mover-{n}"], f"after-{n}")
        self._plan([f"leaver-{n}" for n in numbers], f"left-{numbers[0]}", override_reason="they are free")
        busy = Node.objects.filter(simulated=False, allocations__period__upper_inf=True, zone_moves=None).distinct()
        self._plan([node.hostname for node in busy], f"drained-{numbers[0]}", override_reason="it is wanted")

    def _plan(self, hostnames: Sequence[str], slug: str, **values: Any) -> None:
        proposal = propose_list(hostnames=hostnames, to_zone=factories.zone(slug, [Form.WHOLE]))
        make_plan(proposal=proposal, reason="test", actor=self.people["admin"], via="test", **values)

    @staticmethod
    def _preemption() -> None:
        """Of an attempt that is over, for its own job: no page but that of a job that was stopped asks for it."""
        over = Attempt.objects.filter(state="ended", preempted_for=None).order_by("pk")[0]
        now = database_now()
        values = {"rule": "test", "cause": "tier", "ask_index": 0, "form": "whole", "nodes": [1], "grace_s": 1}
        row = Preemption.objects.create(
            job_id=over.job_id, made_at=now, kept_until=now + dt.timedelta(seconds=1), inputs={}, **values
        )
        PreemptionVictim.objects.create(preemption=row, attempt=over, borrowed=False, ran_s=1)

    @staticmethod
    def _seals() -> None:
        last = AuditSeal.objects.count()
        fresh = AuditEvent.objects.filter(seal=None).order_by("pk")
        seals = [AuditSeal(position=last + at, event=event, digest="0" * 64) for at, event in enumerate(fresh, 1)]
        AuditSeal.objects.bulk_create(seals)


def _seconds(code: int) -> list[str]:
    return [*LONG, "--exit-code", str(code)]


def _report(hostname: str) -> dict[str, Any]:
    """One report of the node's agent, as the API hands it on."""
    now = database_now()
    cards = [{"uuid": f"{hostname}-card-{slot}", "slot": slot, "temperature_c": 40} for slot in range(2)]
    fault = {"id": "boot-1:1", "kind": "xid", "code": 13, "card_uuid": cards[0]["uuid"], "at": now, "message": "gone"}
    report = {"boot_id": "boot-1", "sequence": 1, "sent_at": now, "virtual": False, "node": {}, "links": []}
    return report | {"cards": cards, "faults": [fault]}


# -- what the pages of one object are looked at with -------------------------------------------------------------------


def gang() -> Job:
    return Job.objects.filter(name="gang").latest("pk")


def case() -> Case:
    """The one that is open."""
    return Case.objects.get(ended_at=None, action="rma")


def drill_row() -> Drill:
    return Drill.objects.order_by("pk")[0]


def policy() -> JobPolicy:
    """That of most versions, which names zones."""
    return JobPolicy.objects.annotate(n=Count("versions")).order_by("-n", "-pk")[0]


def receipt() -> Receipt:
    return Receipt.objects.latest("pk")


def alert() -> Alert:
    """The one that most messages are about."""
    return Alert.objects.annotate(n=Count("deliveries")).order_by("-n", "pk")[0]


def busiest() -> Node:
    """The real node that most stands on."""
    return Node.objects.filter(simulated=False).annotate(n=Count("allocations")).order_by("-n", "pk")[0]


def busiest_card() -> str:
    """The card of that node that most stands on."""
    cards = Card.objects.filter(seats__node=busiest(), seats__period__upper_inf=True)
    return cards.annotate(n=Count("shares")).order_by("-n", "pk")[0].uuid


def plan(*, running: bool) -> int:
    """The plan of most nodes that is under way, or done."""
    moved = Count("moves", filter=Q(moves__state="moved"))
    found = ZonePlan.objects.annotate(n=Count("moves"), moved=moved).filter(state="running" if running else "done")
    return int(found.order_by("-n", "pk")[0].pk)
