"""Orders to agents: the only writer of AgentOrder. What program carries one out is the agent's own setting.

An open order goes with the answer to each report of its node until the agent tells how it ended, so that a lost answer
or an agent that was started anew costs time and nothing else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from django.conf import settings

from ledger.clock import database_now
from ledger.models import AgentOrder, Card, Case, Node
from ledger.vocabulary import OrderKind

LONGEST_DETAIL: Final = 500
DROPPED: Final = "no longer wanted"  # how the detail of an order begins whose result nobody needs any more
SLACK: Final = dt.timedelta(seconds=60)  # for reports on their way, beyond what the agent was given


def timeout_s(kind: str) -> int:
    return int(settings.RESET_TIMEOUT_S if kind == OrderKind.RESET else settings.BURN_IN_TIMEOUT_S)


def issue_inside(*, case: Case, kind: OrderKind, cards: Sequence[Card], now: dt.datetime) -> list[AgentOrder]:
    """One order a card, all of one instant: a round. The caller holds the node's lock."""
    return AgentOrder.objects.bulk_create(
        AgentOrder(node_id=case.node_id, card=card, case=case, kind=kind, issued_at=now) for card in cards
    )


def orders_of(node: Node) -> list[dict[str, Any]]:
    """What the answer to a report of this node's agent asks for; noted as sent the first time."""
    found = list(AgentOrder.objects.filter(node=node, ended_at=None).select_related("card").order_by("pk"))
    fresh = [order.pk for order in found if order.sent_at is None]
    if fresh:
        AgentOrder.objects.filter(pk__in=fresh, sent_at=None).update(sent_at=database_now())
    return [
        {
            "id": order.pk,
            "kind": order.kind,
            "card": order.card.uuid if order.card else None,
            "timeout_s": timeout_s(order.kind),
        }
        for order in found
    ]


def take_results_inside(node: Node, results: Collection[Mapping[str, Any]], now: dt.datetime) -> int:
    """How orders of this node ended. A result of an order that is unknown, another node's or ended changes nothing.
    Returns how many ended. The caller holds the node's lock."""
    told = {result["order"]: result for result in results if isinstance(result.get("order"), int)}
    if not told:
        return 0
    ended = 0
    for order in AgentOrder.objects.filter(node=node, ended_at=None, pk__in=[pk for pk in told if 0 < pk < 2**63]):
        result = told[order.pk]
        ended += _end(order, result.get("ok") is True, now, str(result.get("detail") or ""), result.get("seconds"))
    return ended


def drop_open_inside(*, case: Case, why: str, now: dt.datetime) -> int:
    """Nobody needs what these would tell any more; it doesn't count as a test that failed."""
    found = list(AgentOrder.objects.filter(case=case, ended_at=None))
    return sum(_end(order, False, now, f"{DROPPED}: {why}") for order in found)


def end_overdue_inside(found: Sequence[AgentOrder], now: dt.datetime) -> int:
    """Those that the agent was told of and did not end in the time of the whole round. Returns how many."""
    limit = sum((dt.timedelta(seconds=timeout_s(order.kind)) for order in found), SLACK)
    late = [one for one in found if one.ended_at is None and one.sent_at is not None and now - one.sent_at > limit]
    return sum(_end(order, False, now, f"no result within {int(limit.total_seconds())} s") for order in late)


def round_of(case: Case, kind: OrderKind) -> list[AgentOrder]:
    """The orders of this kind since the place was idle last."""
    if case.idle_at is None:
        return []
    return list(AgentOrder.objects.filter(case=case, kind=kind, issued_at__gte=case.idle_at).order_by("pk"))


def failed_rounds(case: Case) -> int:
    """How often a reset or a test of this case failed."""
    bad = AgentOrder.objects.filter(case=case, ok=False).exclude(detail__startswith=DROPPED)
    return bad.values("issued_at", "kind").distinct().count()


def _end(order: AgentOrder, ok: bool, now: dt.datetime, detail: str, seconds: Any = None) -> int:
    order.ended_at, order.ok, order.detail = now, ok, detail.replace("\x00", "")[:LONGEST_DETAIL]
    order.sent_at = order.sent_at or (None if detail.startswith(DROPPED) else now)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 10**9:
        order.seconds = float(seconds)
    order.save(update_fields=["ended_at", "ok", "detail", "seconds", "sent_at"])
    return 1
