"""What the API says of jobs, nodes, cards and the rest: plain dictionaries, shown by pages too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Sum

from ledger.models import Allocation, Card, CardSeat, CardShare, Hold, Job, Node, NodeZone, User, Zone
from ledger.vocabulary import JobState
from portal.api import policy_answers
from portal.api.company import company_answer
from portal.api.comparison import comparison, fingerprint_of
from portal.api.preemption import stopped_for, stops_for
from scheduler.models import Decision, Drift


def _iso(moment: Any) -> str | None:
    return moment.isoformat() if moment else None


def job_brief(job: Job) -> dict[str, Any]:
    return {
        "id": job.pk,
        "project": job.project.slug,
        "by": job.by.username,
        "name": job.name,
        "kind": job.kind,
        "state": job.state,
        "simulated": job.simulated,
        "priority": job.priority,
        "asks": job.asks,
        "message": job.message,
        "times": {
            "submitted": _iso(job.submitted_at),
            "queued": _iso(job.queued_at),
            "placed": _iso(job.placed_at),
            "started": _iso(job.started_at),
            "ended": _iso(job.ended_at),
        },
    }


def job_detail(job: Job, viewer: User) -> dict[str, Any]:
    """Everything a person who may see the job sees of it."""
    attempts = list(job.attempts.select_related("decision", "refund").order_by("n"))
    newest = attempts[-1] if attempts else None
    allocations = list(
        Allocation.objects.filter(attempt__job=job)
        .select_related("node", "attempt", "zone_then")
        .order_by("attempt__n", "rank")
    )
    current = [a for a in allocations if newest is not None and a.attempt_id == newest.pk]
    return {
        **job_brief(job),
        "cpu_milli": job.cpu_milli,
        "host_memory_mib": job.host_memory_mib,
        "interconnect": job.interconnect,
        "distance": job.distance,
        "labels": job.labels,
        "reproducible": job.reproducible,
        "like_job": job.like_job_id,
        "command": job.command,
        "environment": job.environment,
        "image": job.image,
        "data_paths": job.data_paths,
        "walltime_s": job.walltime_s,
        "preemptible": job.preemptible,
        "checkpoint": job.checkpoint,
        "metrics_port": job.metrics_port,
        "metrics_path": job.metrics_path,
        "exit_code": newest.exit_code if newest else None,
        "outcome": (newest.outcome or None) if newest else None,
        "attempts": [
            {
                "n": a.n,
                "state": a.state,
                "outcome": a.outcome or None,
                "exit_code": a.exit_code,
                "message": a.message,
                "opened": _iso(a.opened_at),
                "ended": _iso(a.ended_at),
                "refunded_card_milli_s": a.refund.card_milli_s if hasattr(a, "refund") else 0,
                "fingerprint": fingerprint_of(a),
            }
            for a in attempts
        ],
        "policies": policy_answers.of_job(job),
        "stopped_for": stopped_for(attempts, viewer),
        "comparison": comparison(newest, job.like_job_id, viewer) if newest and job.like_job_id else None,
        "placement": _placement(current),
        **company_answer(job, current, viewer),
        "reasons": _reasons(job, viewer),
        "usage": _usage(allocations),
    }


def _placement(allocations: Sequence[Allocation]) -> list[dict[str, Any]]:
    shares: dict[int, list[dict[str, Any]]] = {}
    rows = CardShare.objects.filter(allocation__in=[a.pk for a in allocations])
    rows = rows.select_related("card__status", "seat", "block")
    live = {a.pk for a in allocations if a.period.upper_inf}
    for share in rows.order_by("seat__slot"):
        shares.setdefault(share.allocation_id, []).append(
            {
                "uuid": share.card.uuid,
                "slot": share.seat.slot,
                "model": share.card.model,
                "memory_mib": share.memory_mib,
                "card_memory_mib": share.card_memory_mib,
                "memory_assumed": share.card.memory_assumed,
                "virtual": share.card.virtual,
                "block": share.block.n if share.block else None,
                "status": _readings(share.card) if share.allocation_id in live else None,
            }
        )
    return [
        {
            "node": a.node.hostname,
            "rank": a.rank,
            "form": a.form,
            "driver": a.driver,
            "simulated": a.node.simulated,
            "zone": a.zone_then.slug if a.zone_then else None,
            "zone_title": a.zone_then.title if a.zone_then else None,
            "state": a.state,
            "cpu_milli": a.cpu_milli,
            "host_memory_mib": a.host_memory_mib,
            "cards": shares.get(a.pk, []),
            "from": _iso(a.period.lower),
            "active": _iso(a.active_at),
            "used_until": _iso(a.closing_at),
            "until": _iso(a.period.upper),
        }
        for a in allocations
    ]


def _readings(card: Card) -> dict[str, Any] | None:
    """What the card itself reported last, of all its work together; None when nothing was heard of it yet."""
    status = getattr(card, "status", None)
    if status is None:
        return None
    return {
        "at": _iso(status.received_at),
        "temperature_c": status.temperature_c,
        "utilisation_pct": status.utilisation_pct,
        "power_mw": status.power_mw,
        "memory_used_mib": status.memory_used_mib,
        "ecc": status.ecc,
        "lost": status.lost,
    }


def _reasons(job: Job, viewer: User) -> dict[str, Any] | None:
    """Why it waits (while queued), else why it was placed where it is."""
    decisions = Decision.objects.filter(job=job)
    if job.state == JobState.QUEUED:
        decision = decisions.filter(attempt=None).first()
    else:
        decision = decisions.filter(attempt__isnull=False).order_by("-pk").first()
    if decision is None:
        return None
    return {
        "placed": decision.attempt_id is not None,
        "rule": decision.rule,
        "policy": decision.policy,
        "ask_index": decision.ask_index,
        "by_ask": decision.reasons,
        "best": decision.scores,
        "warm": decision.warm,
        "never": decision.never,
        "position": decision.position,
        "expected_s": decision.expected_s,
        "kept": _kept(decision, viewer),
        "stops": stops_for(job, decision),
        "since": _iso(decision.first_at),
        "at": _iso(decision.at),
    }


def _kept(decision: Decision, viewer: User) -> dict[str, Any] | None:
    """Nodes that are kept for a waiting job; of the jobs whose ends it waits for, those that the person may see."""
    if decision.kept is None:
        return None
    awaits = decision.kept["awaits"]
    seen = list(Job.objects.visible_to(viewer).filter(pk__in=awaits).order_by("pk").values_list("pk", flat=True))
    return {
        "nodes": decision.kept["nodes"],
        "ask_index": decision.kept["ask"],
        "from": _iso(decision.begins_at),
        "awaits": seen,
        "awaits_others": len(awaits) - len(seen),
    }


def _usage(allocations: Sequence[Allocation]) -> dict[str, Any]:
    """What the book has counted for the job so far: memory × (⌈end⌉ − ⌈start⌉), summed over shares."""
    total = 0
    shares = CardShare.objects.filter(allocation__in=[a.pk for a in allocations])
    held = dict(shares.order_by().values_list("allocation").annotate(Sum("memory_mib")))
    for a in allocations:
        if a.closing_at is None:
            continue
        seconds = math.ceil(a.closing_at.timestamp()) - math.ceil(a.period.lower.timestamp())
        total += held.get(a.pk, 0) * seconds
    ended = all(a.closing_at is not None for a in allocations)
    return {"unit": "mib_seconds", "used": total, "final": bool(allocations) and ended}


def node_answer(
    node: Node, zone: Zone | None, seats: Sequence[CardSeat], held: bool, form: str | None
) -> dict[str, Any]:
    return {
        "id": node.pk,
        "hostname": node.hostname,
        "state": node.state,
        "held": held,
        "simulated": node.simulated,
        "used_form": form,
        "zone": zone.slug if zone else None,
        "forms": zone.forms if zone else [],
        "site": node.site,
        "room": node.room,
        "rack": node.rack,
        "leaf": node.leaf,
        "cpu_milli": node.cpu_milli,
        "host_memory_mib": node.host_memory_mib,
        "interconnect": node.interconnect,
        "network": node.network,
        "labels": node.labels,
        "supply": node.supply,
        "managers": node.managers,
        "seen_at": _iso(node.seen_at),
        "cards": [
            {
                "uuid": s.card.uuid,
                "slot": s.slot,
                "block": s.block.n if s.block else None,
                "model": s.card.model,
                "memory_mib": s.card.memory_mib,
                "memory_assumed": s.card.memory_assumed,
                "virtual": s.card.virtual,
            }
            for s in seats
        ],
    }


def node_answers(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Several nodes with a fixed number of queries."""
    ids = [n.pk for n in nodes]
    zones = {
        m.node_id: m.zone for m in NodeZone.objects.filter(node__in=ids, period__upper_inf=True).select_related("zone")
    }
    seats: dict[int, list[CardSeat]] = {}
    for seat in (
        CardSeat.objects.filter(node__in=ids, period__upper_inf=True).select_related("card", "block").order_by("slot")
    ):
        seats.setdefault(seat.node_id, []).append(seat)
    held = set(Hold.objects.filter(node__in=ids, period__upper_inf=True).values_list("node_id", flat=True))
    forms = dict(Allocation.objects.filter(node__in=ids, period__upper_inf=True).values_list("node_id", "form"))
    return [node_answer(n, zones.get(n.pk), seats.get(n.pk, []), n.pk in held, forms.get(n.pk)) for n in nodes]


def card_answers(cards: Sequence[Card]) -> list[dict[str, Any]]:
    ids = [c.pk for c in cards]
    seats = {
        s.card_id: s
        for s in CardSeat.objects.filter(card__in=ids, period__upper_inf=True).select_related("node", "block")
    }
    held = {h.card_id: h for h in Hold.objects.filter(card__in=ids, period__upper_inf=True)}
    busy: dict[int, int] = {}
    for card_id, mib in CardShare.objects.filter(card__in=ids, period__upper_inf=True).values_list(
        "card_id", "memory_mib"
    ):
        busy[card_id] = busy.get(card_id, 0) + mib
    return [_card(c, seats.get(c.pk), held.get(c.pk), busy.get(c.pk, 0)) for c in cards]


def _card(card: Card, seat: CardSeat | None, hold: Hold | None, busy: int) -> dict[str, Any]:
    return {
        "id": card.pk,
        "uuid": card.uuid,
        "model": card.model,
        "memory_mib": card.memory_mib,
        "memory_assumed": card.memory_assumed,
        "virtual": card.virtual,
        "node": seat.node.hostname if seat else None,
        "simulated": seat.node.simulated if seat else None,
        "slot": seat.slot if seat else None,
        "block": seat.block.n if seat and seat.block else None,
        "taken_mib": busy,
        "free_mib": card.memory_mib - busy,
        "held": {"kind": hold.kind, "reason": hold.reason} if hold else None,
        "status": _readings(card),
    }


def zone_answers(zones: Sequence[Zone]) -> list[dict[str, Any]]:
    """Zones with how many nodes and cards are in them now."""
    members = NodeZone.objects.filter(zone__in=[z.pk for z in zones], period__upper_inf=True)
    nodes = dict(members.values_list("zone").annotate(Count("pk")))
    seated = members.filter(node__seats__period__upper_inf=True)
    cards = dict(seated.values_list("zone").annotate(Count("node__seats")))
    return [
        {
            "id": zone.pk,
            "slug": zone.slug,
            "title": zone.title,
            "forms": zone.forms,
            "nodes": nodes.get(zone.pk, 0),
            "cards": cards.get(zone.pk, 0),
        }
        for zone in zones
    ]


def hold_answer(hold: Hold) -> dict[str, Any]:
    return {
        "id": hold.pk,
        "node": hold.node.hostname if hold.node else None,
        "card": hold.card.uuid if hold.card else None,
        "kind": hold.kind,
        "reason": hold.reason,
        "rule": hold.rule or None,
        "by": hold.by.username if hold.by else None,
        "from": _iso(hold.period.lower),
        "to": _iso(hold.period.upper),
    }


def drift_answer(drift: Drift, age_s: int) -> dict[str, Any]:
    return {
        "id": drift.pk,
        "kind": drift.kind,
        "subject": drift.subject,
        "driver": drift.driver or None,
        "job": drift.job_id,
        "simulated": drift.simulated,
        "detail": drift.detail,
        "fix": drift.fix,
        "first_seen": _iso(drift.first_seen),
        "last_seen": _iso(drift.last_seen),
        "age_s": age_s,
    }
