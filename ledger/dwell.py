"""What is out of the pool now, what each waits for and who must act: nothing stays out silently. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.conf import settings
from django.db.models import BigIntegerField, Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from ledger.cases import DRILL_RULE
from ledger.inventory import SYNC_RULE, ZONE_PLAN_RULE
from ledger.models import AgentOrder, CardSeat, Case, Hold, Node, NodeZone, User
from ledger.vocabulary import CaseState, Need, NodeState


class Waits(StrEnum):
    """What something that is out waits for."""

    WORK = "work"  # what runs on it
    AGENT = "agent"  # the node's agent, to hear of an order
    RESET = "reset"  # the agent carries it out
    TEST = "test"
    REBOOT = "reboot"
    INSPECTION = "inspection"
    REPLACEMENT = "replacement"
    RELEASE = "release"
    DECISION = "decision"  # its test has failed
    DRILL = "drill"  # what it measures
    REPORTS = "reports"  # it ends by itself when the node or card reports again
    ZONE_PLAN = "zone_plan"
    RULE = "rule"  # what placed the hold ends it
    HOLDER = "holder"  # the person who placed the hold


class Who(StrEnum):
    """Who must act next."""

    NOBODY = "nobody"
    AGENT = "agent"
    OPERATOR = "operator"
    HANDS = "hands"  # somebody at the machine
    HOLDER = "holder"


WHO: Final[dict[Waits, Who]] = {
    Waits.WORK: Who.NOBODY,
    Waits.AGENT: Who.OPERATOR,  # an agent that asks for nothing is to be looked at
    Waits.RESET: Who.AGENT,
    Waits.TEST: Who.AGENT,
    Waits.REBOOT: Who.HANDS,
    Waits.INSPECTION: Who.HANDS,
    Waits.REPLACEMENT: Who.HANDS,
    Waits.RELEASE: Who.OPERATOR,
    Waits.DECISION: Who.OPERATOR,
    Waits.DRILL: Who.NOBODY,
    Waits.REPORTS: Who.OPERATOR,
    Waits.ZONE_PLAN: Who.NOBODY,
    Waits.RULE: Who.NOBODY,
    Waits.HOLDER: Who.HOLDER,
}
BY_NEED: Final[dict[str, Waits]] = {
    Need.REBOOT: Waits.REBOOT,
    Need.INSPECTION: Waits.INSPECTION,
    Need.REPLACEMENT: Waits.REPLACEMENT,
}


@dataclass(frozen=True)
class Out:
    """One hold, with its case where it has one. `hold` has the annotations of `holds_out`."""

    hold: Any
    case: Case | None
    waits: Waits
    now: dt.datetime

    @property
    def since(self) -> dt.datetime:
        since: dt.datetime = self.case.opened_at if self.case else self.hold.period.lower
        return since

    @property
    def age_s(self) -> float:
        return max(0.0, (self.now - self.since).total_seconds())

    @property
    def overdue(self) -> bool:
        return self.age_s > settings.CASE_DWELL_HOURS * 3600

    @property
    def who(self) -> Who:
        return WHO[self.waits]


def holds_out() -> QuerySet[Any]:
    """Open holds on what is in the fleet, each with hostname, simulated and zone (id) of its place."""
    seat = CardSeat.objects.filter(card=OuterRef("card"), period__upper_inf=True)
    there = Node.objects.filter(pk=OuterRef("place"))
    zone = NodeZone.objects.filter(node=OuterRef("place"), period__upper_inf=True)
    rows = Hold.objects.filter(period__upper_inf=True)
    rows = rows.annotate(
        place=Coalesce(F("node_id"), Subquery(seat.values("node_id")[:1]), output_field=BigIntegerField())
    )
    rows = rows.exclude(place=None)
    rows = rows.filter(~Exists(there.filter(state=NodeState.RETIRED)))
    return rows.annotate(
        hostname=Subquery(there.values("hostname")[:1]),
        simulated=Subquery(there.values("simulated")[:1]),
        zone=Subquery(zone.values("zone_id")[:1], output_field=BigIntegerField()),
        zone_title=Subquery(zone.values("zone__title")[:1]),
    ).select_related("card", "node", "by")


def visible_holds(user: User) -> QuerySet[Any]:
    """All for the site roles; for who operates a zone, those in it."""
    rows = holds_out()
    return rows if user.sees_everything else rows.filter(zone__in=user.operated_zones)


def visible_cases(user: User) -> QuerySet[Case]:
    if user.sees_everything:
        return Case.objects.all()
    here = NodeZone.objects.filter(zone__in=user.operated_zones, period__upper_inf=True)
    return Case.objects.filter(node__in=here.values("node"))


def outs(holds: Sequence[Hold], now: dt.datetime) -> list[Out]:
    """In a fixed number of queries."""
    cases = Case.objects.filter(hold__in=[hold.pk for hold in holds], ended_at=None).select_related("fault", "node")
    by_hold = {case.hold_id: case for case in cases}
    heard = heard_orders([case.pk for case in by_hold.values()])
    return [
        Out(hold, case, waits(case, heard) if case else waits_of_hold(hold), now)
        for hold, case in ((hold, by_hold.get(hold.pk)) for hold in holds)
    ]


def heard_orders(case_ids: Collection[int]) -> set[int]:
    """Cases whose agent has heard of every order that is open."""
    rows = AgentOrder.objects.filter(case__in=case_ids, ended_at=None)
    return set(case_ids) - set(rows.filter(sent_at=None).values_list("case_id", flat=True))


def waits(case: Case, heard: Collection[int]) -> Waits:
    """`heard`: as heard_orders tells."""
    state = case.state
    if state == CaseState.WAITING:
        return Waits.WORK
    if state == CaseState.PASSED:
        return Waits.RELEASE
    if state == CaseState.FAILED:
        return Waits.DECISION
    if state == CaseState.TESTING:
        return Waits.TEST if case.pk in heard else Waits.AGENT
    if case.rule.startswith(DRILL_RULE) and case.need == Need.NOTHING:
        return Waits.DRILL
    return BY_NEED.get(case.need, Waits.RESET if case.pk in heard else Waits.AGENT)


def waits_of_hold(hold: Hold) -> Waits:
    """Of one without a case."""
    if hold.rule == SYNC_RULE:
        return Waits.REPORTS
    if hold.rule.startswith(f"{ZONE_PLAN_RULE}/"):
        return Waits.ZONE_PLAN
    return Waits.HOLDER if hold.by_id is not None else Waits.RULE
