"""What the API says of what is out of the pool and of drills: plain dictionaries."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ledger import dwell
from ledger.dwell import Out
from ledger.models import Case
from scheduler import drill_verdict
from scheduler.drill_rows import OPEN_DRILLS, Drill


def _iso(moment: dt.datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def out(row: Out) -> dict[str, Any]:
    hold = row.hold
    return {
        "hold": hold.pk,
        "case": row.case.pk if row.case else None,
        "node": hold.hostname,
        "card": hold.card.uuid if hold.card else None,
        "simulated": hold.simulated,
        "kind": hold.kind,
        "reason": hold.reason,
        "rule": hold.rule or None,
        "by": hold.by.username if hold.by else None,
        "since": _iso(row.since),
        "age_s": round(row.age_s),
        "overdue": row.overdue,
        "state": row.case.state if row.case else None,
        "waits_for": str(row.waits),
        "who_acts": str(row.who),
    }


def case(found: Case, now: dt.datetime) -> dict[str, Any]:
    waits = dwell.waits(found, dwell.heard_orders([found.pk])) if found.ended_at is None else None
    fault = found.fault
    return {
        "id": found.pk,
        "node": found.node.hostname,
        "card": found.card.uuid if found.card else None,
        "simulated": found.node.simulated,
        "hold": found.hold_id,
        "reason": found.hold.reason,
        "rule": found.rule or None,
        "action": found.action or None,
        "fault": {"kind": fault.kind, "code": fault.code, "count": fault.count} if fault else None,
        "state": found.state,
        "need": found.need,
        "by_hand": found.by_hand,
        "waits_for": str(waits) if waits else None,
        "who_acts": str(dwell.WHO[waits]) if waits else None,
        "age_s": round(((found.ended_at or now) - found.opened_at).total_seconds()),
        "note": found.note,
        "opened": _iso(found.opened_at),
        "idle": _iso(found.idle_at),
        "done": _iso(found.done_at),
        "tested": _iso(found.tested_at),
        "ended": _iso(found.ended_at),
        "resets": found.resets,
        "reboots": found.reboots,
        "orders": [
            {
                "id": order.pk,
                "kind": order.kind,
                "card": order.card.uuid if order.card else None,
                "issued": _iso(order.issued_at),
                "sent": _iso(order.sent_at),
                "ended": _iso(order.ended_at),
                "ok": order.ok,
                "seconds": order.seconds,
                "detail": order.detail,
            }
            for order in found.orders.select_related("card").order_by("-pk")[:100]
        ],
    }


def drill(found: Drill, now: dt.datetime) -> dict[str, Any]:
    live = found.state in OPEN_DRILLS
    return {
        "id": found.pk,
        "node": found.node.hostname,
        "card": found.card.uuid if found.card else None,
        "zone": found.zone.slug if found.zone else None,
        "site": found.site or None,
        "simulated": found.simulated,
        "by": found.by.username,
        "reason": found.reason,
        "drain": found.drain,
        "state": found.state,
        "verdict": found.verdict or None,
        "note": found.note,
        "hold": found.hold_id,
        "case": found.case_id,
        "avoided_by": found.avoided_by or None,
        "avoided": found.avoided,
        "times": {
            "planned": _iso(found.planned_at),
            "due": _iso(found.due_at),
            "started": _iso(found.started_at),
            "held": _iso(found.held_at),
            "avoided": _iso(found.avoided_at),
            "alerted": found.alerted,
            "tested": _iso(found.tested_at),
            "returned": _iso(found.returned_at),
            "ended": _iso(found.ended_at),
        },
        "lines": drill_verdict.as_data(drill_verdict.lines(found, now=now)) if live else found.lines,
    }
