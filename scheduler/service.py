"""Return to service: every open case a step on, whoever looks. Level-triggered and safe to be cut off anywhere; a case
that fails does not stop the others.

Orders to simulated nodes, and their reboots, are answered here after a short time, and say that they are simulated.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from ledger import case_steps, cases
from ledger.acts import Act
from ledger.clock import database_now
from ledger.inventory import lock_node
from ledger.models import AgentOrder, Case, Node, NodeBoot
from ledger.vocabulary import CaseState, Need
from scheduler.models import SimulatedFault
from scheduler.wake import ring

log = logging.getLogger(__name__)
TICK: Final = "scheduler.tick"
SIMULATED: Final = "simulated"


def advance_all() -> dict[str, Any]:
    """Returns counts for the task's record."""
    counts: Counter[str] = Counter()
    counts["simulated"] = _answer_simulated()
    for pk in list(_moving().values_list("pk", flat=True)):
        try:
            counts[case_steps.advance(pk)] += 1
        except Exception:
            log.exception("case %s can't go on", pk)
            counts["odd"] += 1
    if counts[CaseState.RETURNED]:
        ring(TICK)
    return {name: count for name, count in counts.items() if count}


def _moving() -> QuerySet[Case]:
    """Open cases that may go on by themselves; not those that wait for a person, unless somebody ended their hold."""
    by_person = Q(state__in=(CaseState.PASSED, CaseState.FAILED)) | Q(
        state=CaseState.NEEDED, need__in=(Need.INSPECTION, Need.REPLACEMENT), done_at=None
    )
    return Case.objects.filter(ended_at=None).exclude(by_person, hold__period__upper_inf=True).order_by("pk")


def release(*, case_id: int, act: Act) -> Case:
    """As ledger.cases.release; what waits is looked at at once."""
    case = cases.release(case_id=case_id, act=act)
    ring(TICK)
    return case


# -- make-believe hardware ---------------------------------------------------------------------------------------------


def _answer_simulated() -> int:
    """What agents of simulated nodes would tell."""
    before = database_now() - dt.timedelta(seconds=settings.SIMULATED_SERVICE_S)
    waiting = AgentOrder.objects.filter(ended_at=None, node__simulated=True, issued_at__lte=before)
    told = 0
    for node in Node.objects.filter(pk__in=waiting.values("node")).order_by("pk"):
        told += _answer(node, before)
    reboots = Case.objects.filter(
        ended_at=None, state=CaseState.NEEDED, need=Need.REBOOT, done_at=None, node__simulated=True, idle_at__lte=before
    )
    for case in reboots.order_by("pk"):
        told += _boot(case)
    return told


def _answer(node: Node, before: dt.datetime) -> int:
    with transaction.atomic(durable=True):
        lock_node(node.pk)
        cases.orders_of(node)
        now = database_now()
        gone = set(SimulatedFault.objects.filter(hostname=node.hostname).values_list("card_uuid", flat=True))
        found = AgentOrder.objects.filter(node=node, ended_at=None, issued_at__lte=before).select_related("card")
        results = [_result(order, gone, now) for order in found]
        return cases.take_results_inside(node, results, now)


def _result(order: AgentOrder, gone: set[str], now: dt.datetime) -> dict[str, Any]:
    ok = not gone & {"", order.card.uuid if order.card else ""}
    detail = f"{SIMULATED}: {order.kind} {'passed' if ok else 'failed, the hardware is not there'}"
    return {"order": order.pk, "ok": ok, "seconds": (now - order.issued_at).total_seconds(), "detail": detail}


def _boot(case: Case) -> int:
    """A make-believe reboot, once nothing runs on the node."""
    with transaction.atomic(durable=True):
        node = lock_node(case.node_id)
        if node.allocations.filter(period__upper_inf=True).exists():
            return 0
        name = f"{SIMULATED}-{case.pk}-{case.reboots + 1}"
        _row, new = NodeBoot.objects.get_or_create(node=node, boot_id=name, defaults={"first_seen": database_now()})
        return int(new)
