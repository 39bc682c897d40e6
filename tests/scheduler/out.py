"""Places that are taken out by the health policy, and the agents' part, for tests of cases and drills."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from ledger import cases, inventory
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import AgentOrder, Card, Case, Fault, Node, NodeBoot
from ledger.vocabulary import FaultKind, HealthAction, HoldKind, Need, SiteRole
from scheduler import drill_alerts
from tests import factories

RULE = "health/1"


def operator(reason: str = "looked at it") -> Act:
    return Act(factories.user("operator", SiteRole.OPERATOR), "test", reason)


def case(
    card: Card | None = None,
    node: Node | None = None,
    need: Need = Need.RESET,
    *,
    by_hand: bool = False,
    action: HealthAction = HealthAction.RESET,
    fault: Fault | None = None,
    kind: HoldKind = HoldKind.FAULT,
    rule: str = RULE,
) -> Case:
    """As the policy opens one."""
    where = node or Node.objects.get(seats__card=card, seats__period__upper_inf=True)
    with transaction.atomic():
        inventory.lock_node(where.pk)
        place: dict[str, Any] = {"card": card} if card else {"node": where}
        hold = inventory.hold_inside(kind=kind, reason="XID 62", actor=None, via="task", rule=rule, **place)
        hold.refresh_from_db()
        values = {"need": need, "by_hand": by_hand, "action": action, "fault": fault, "rule": rule}
        return cases.open_inside(node=where, card=card, hold=hold, now=database_now(), **values)


def fault_of(card: Card, kind: FaultKind = FaultKind.XID, code: int | None = 62) -> Fault:
    """As it was counted, before anything is done about it."""
    node, now = Node.objects.get(seats__card=card, seats__period__upper_inf=True), database_now()
    return Fault.objects.create(node=node, card=card, kind=kind, code=code, first_seen=now, last_seen=now)


def without_alerts(patch: pytest.MonkeyPatch) -> None:
    """No alert tells of drills, on no channel."""
    patch.setattr(drill_alerts, "deliveries", lambda hold_id: [])
    patch.setattr(drill_alerts, "awaited", lambda hold_id: frozenset())


def tell(*, ok: bool = True, detail: str = "done", node: Node | None = None) -> list[str]:
    """The agent (of this node) carries out what it is asked for and tells. Returns the kinds."""
    kinds = []
    for where in Node.objects.filter(orders__ended_at=None).distinct() if node is None else [node]:
        asked = cases.orders_of(where)
        kinds += [one["kind"] for one in asked]
        results = [{"order": one["id"], "ok": ok, "seconds": 1.5, "detail": detail} for one in asked]
        with transaction.atomic():
            inventory.lock_node(where.pk)
            cases.take_results_inside(where, results, database_now())
    return kinds


def boot(node: Node, name: str) -> NodeBoot:
    return NodeBoot.objects.create(node=node, boot_id=name, first_seen=database_now())


def grow_old(seconds: float) -> None:
    """Time passes for orders and cases."""
    back = dt.timedelta(seconds=seconds)
    AgentOrder.objects.update(issued_at=F("issued_at") - back, sent_at=F("sent_at") - back)
    Case.objects.update(idle_at=F("idle_at") - back, opened_at=F("opened_at") - back)
