"""Zone plans: made by admins, carried out a step at a time by whoever looks, cancelled. The only writer of ZonePlan.

Every step is derived anew from the rows (is the node empty? is it where it should be?), so that it may be cut off or
run twice anywhere. Lock order: zones, the plan, nodes by id; placements take nodes too, so a job is either on the node
before it moves, and the node waits, or sees it in its new zone.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from ledger import audit
from ledger import zones as membership
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.inventory import ZONE_PLAN_RULE, end_hold_inside, hold_inside
from ledger.models import Hold, Node, User, Zone
from ledger.reasons import check_reason
from ledger.vocabulary import HoldKind, NodeState, SiteRole
from scheduler.models import OPEN_MOVES, MoveState, PlanState, ZoneMove, ZonePlan
from scheduler.wake import wake_after_commit
from scheduler.zone_proposals import Proposal, watching

log = logging.getLogger(__name__)
BATCH: Final = 25  # nodes whose locks one transaction takes
AT_ONCE_S: Final = 2.0  # so long who makes a plan waits for its first moves; the periodic task does the rest
# why a move was dropped; elsewhere: moved by another way, or out of the fleet
CANCELLED, ELSEWHERE = "cancelled", "elsewhere"


def may_plan(user: User) -> bool:
    return user.is_active and user.site_role == SiteRole.ADMIN


# -- make -------------------------------------------------------------------------------------------------------------


def make_plan(
    *, proposal: Proposal, reason: str, actor: User, via: str, override_reason: str = "", request_id: str = ""
) -> ZonePlan:
    """Commit a proposal and do at once what can be done. Refused (with its field) when the reason is not right;
    Conflict when the world moved on since the preview, or an earlier plan is still observed and not overridden."""
    if not may_plan(actor):
        raise Forbidden(_("Only admins move nodes between zones."), code="role")
    check_reason(reason)
    if override_reason:
        check_reason(override_reason, "override_reason")
    if not proposal.moves:
        raise Refused(_("The plan would change nothing."), code="no_change")
    with transaction.atomic(durable=True):
        list(Zone.objects.filter(pk__in=proposal.zone_ids).order_by("pk").select_for_update(no_key=True))
        _check_still_so(proposal)
        overridden = _check_windows(proposal, override_reason)
        plan = _insert(proposal, reason, actor, override_reason if overridden else "")
        audit.record(
            actor=actor,
            via=via,
            verb="zone.plan.made",
            target=plan,
            after={
                "kind": plan.kind,
                "moves": len(proposal.moves),
                "targets": plan.targets,
                "undoes": plan.undoes_id,
                "overrides": [p.pk for p in overridden],
                "override_reason": plan.override_reason,
            },
            reason=reason,
            request_id=request_id,
            at=plan.created_at,
        )
        wake_after_commit("scheduler.zones")
    try:
        advance(plan.pk, budget_s=AT_ONCE_S)
    except OperationalError as error:  # a lock was not to be had: the plan stands, the periodic task carries it out
        log.warning("zone plan %s goes on later: %s", plan.pk, str(error).splitlines()[0])
    plan.refresh_from_db()
    return plan


def _check_still_so(proposal: Proposal) -> None:
    """The nodes are as the preview showed them. Open moves are read first: a plan that finishes in between has then
    moved its node, which the look at its zone finds."""
    ids = [move.node_id for move in proposal.moves]
    changed = set(ZoneMove.objects.filter(node__in=ids, state__in=sorted(OPEN_MOVES)).values_list("node_id", flat=True))
    now_in = {node_id: zone.pk for node_id, zone in membership.zones_of(ids).items()}
    nodes = Node.objects.filter(pk__in=ids, simulated=proposal.simulated).exclude(state=NodeState.RETIRED)
    there = set(nodes.values_list("pk", flat=True))
    for move in proposal.moves:
        if now_in.get(move.node_id) != move.from_zone_id or move.node_id not in there:
            changed.add(move.node_id)
    if changed:
        names = ", ".join(
            Node.objects.filter(pk__in=changed).order_by("hostname").values_list("hostname", flat=True)[:5]
        )
        text = _("These nodes were moved or taken by another plan since the preview: %(nodes)s. Look at a new preview.")
        raise Conflict(text % {"nodes": names}, code="changed_since_preview")


def _check_windows(proposal: Proposal, override_reason: str) -> list[ZonePlan]:
    """The observed plans that this one overrides; Conflict without an override, or when one of them is news."""
    observed = watching(proposal, database_now())
    if any(plan.pk not in proposal.seen_plans for plan in observed):
        text = _("Plan %(number)d for the same zones was made since the preview. Look at a new preview.")
        news = next(plan.pk for plan in observed if plan.pk not in proposal.seen_plans)
        raise Conflict(text % {"number": news}, code="changed_since_preview")
    if observed and not override_reason:
        raise Conflict(window_text(observed[0]), field="override_reason", code="observation_window")
    return observed


def window_text(plan: ZonePlan) -> str:
    """What is refused, why, until when, and what would change it."""
    until = timezone.localtime(plan.window_until).strftime("%Y-%m-%d %H:%M %Z")
    text = _(
        "Plan %(number)d changed the same zones and its effect is observed until %(until)s. A further change before "
        "then needs an override with a reason of its own."
    )
    return text % {"number": plan.pk, "until": until}


def _insert(proposal: Proposal, reason: str, actor: User, override_reason: str) -> ZonePlan:
    now = database_now()
    plan = ZonePlan.objects.create(
        kind=proposal.kind,
        simulated=proposal.simulated,
        model=proposal.model,
        targets=dict(proposal.targets or {}),
        undoes_id=proposal.undoes,
        reason=reason,
        override_reason=override_reason,
        by=actor,
        created_at=now,
        window_until=now + dt.timedelta(hours=settings.ZONE_WINDOW_HOURS),
    )
    ZoneMove.objects.bulk_create(
        ZoneMove(plan=plan, node_id=m.node_id, from_zone_id=m.from_zone_id, to_zone_id=m.to_zone_id)
        for m in proposal.moves
    )
    return plan


# -- carry out --------------------------------------------------------------------------------------------------------


def advance_all() -> dict[str, Any]:
    """One look at every running plan, for the periodic task. A plan that fails does not stop the others."""
    counts: Counter[str] = Counter()
    for plan_id in list(ZonePlan.objects.filter(state=PlanState.RUNNING).order_by("pk").values_list("pk", flat=True)):
        counts["plans"] += 1
        try:
            counts.update(advance(plan_id))
        except IntegrityError:
            log.exception("zone plan %s can't go on", plan_id)
            counts["failed"] += 1
    return dict(counts)


def advance(plan_id: int, *, budget_s: float = float("inf")) -> Counter[str]:
    """Move the nodes of a plan that are empty by now, drain those that are not, and end the plan when none is left.
    After `budget_s` the rest is left to the next look. Returns how many moves changed to which state."""
    until = monotonic() + budget_s
    counts: Counter[str] = Counter()
    waiting = list(
        ZoneMove.objects.filter(plan=plan_id, state__in=sorted(OPEN_MOVES))
        .order_by("node")
        .values_list("pk", flat=True)
    )
    for start in range(0, len(waiting), BATCH):
        with transaction.atomic(durable=True):
            counts.update(_step(plan_id, waiting[start : start + BATCH]))
        if monotonic() > until:
            return counts
    with transaction.atomic(durable=True):
        _end_if_done(plan_id)
    return counts


def _lock_running(plan_id: int) -> ZonePlan | None:
    plans = ZonePlan.objects.select_for_update(no_key=True, of=("self",)).select_related("by")
    return plans.filter(pk=plan_id, state=PlanState.RUNNING).first()


def _step(plan_id: int, move_ids: Sequence[int]) -> Counter[str]:
    plan = _lock_running(plan_id)
    if plan is None:
        return Counter()
    moves = list(
        ZoneMove.objects.filter(pk__in=move_ids, state__in=sorted(OPEN_MOVES)).select_related("to_zone", "hold")
    )
    nodes = {node.pk: node for node in membership.lock_nodes([move.node_id for move in moves])}
    now_in = {node_id: zone.pk for node_id, zone in membership.zones_of(nodes).items()}
    busy = membership.busy_nodes(nodes)
    sorted_out: dict[MoveState, list[ZoneMove]] = {state: [] for state in MoveState}
    for move in moves:
        sorted_out[_verdict(move, nodes[move.node_id], now_in.get(move.node_id), busy)].append(move)
    flips = [move for move in sorted_out[MoveState.MOVED] if now_in.get(move.node_id) != move.to_zone_id]
    _flip(plan, flips, nodes)
    _close(sorted_out[MoveState.MOVED], MoveState.MOVED, plan)
    _close(sorted_out[MoveState.DROPPED], MoveState.DROPPED, plan)
    drained = _drain(plan, sorted_out[MoveState.DRAINING], nodes)
    counts = {"moved": len(flips), "dropped": len(sorted_out[MoveState.DROPPED]), "draining": drained}
    return Counter({name: n for name, n in counts.items() if n})


def _verdict(move: ZoneMove, node: Node, zone_id: int | None, busy: set[int]) -> MoveState:
    """What the rows of this instant say about a move."""
    if zone_id == move.to_zone_id:
        return MoveState.MOVED
    if node.state == NodeState.RETIRED or zone_id != move.from_zone_id:
        return MoveState.DROPPED
    return MoveState.DRAINING if node.pk in busy else MoveState.MOVED


def _flip(plan: ZonePlan, flips: Sequence[ZoneMove], nodes: dict[int, Node]) -> None:
    if not flips:
        return
    membership.move_nodes_inside(
        [nodes[move.node_id] for move in flips],
        {move.node_id: move.to_zone for move in flips},
        actor=plan.by,
        via="zone-plan",
        reason=f"plan {plan.pk}: {plan.reason}",
    )
    wake_after_commit("scheduler.tick")


def _close(moves: Iterable[ZoneMove], state: MoveState, plan: ZonePlan, note: str = "") -> None:
    """These moves are over; what the plan held for them is returned."""
    now, moves = database_now(), list(moves)
    for move in moves:
        if move.hold is not None and move.hold.period.upper_inf:
            end_hold_inside(move.hold, f"plan {plan.pk}: {note or state}", None, "zone-plan")
        move.state = state
        move.moved_at = now if state == MoveState.MOVED else None
        if state == MoveState.DROPPED:
            move.note = note or ELSEWHERE
    ZoneMove.objects.bulk_update(moves, ["state", "moved_at", "note"])


def _drain(plan: ZonePlan, moves: Sequence[ZoneMove], nodes: dict[int, Node]) -> int:
    """Hold busy nodes out of the pool, unless somebody drains them already. Returns how many began to drain."""
    standing = set(
        Hold.objects.filter(
            node__in=[move.node_id for move in moves], kind=HoldKind.DRAIN, period__upper_inf=True
        ).values_list("node_id", flat=True)
    )
    begun = 0
    for move in moves:
        if move.node_id not in standing:
            move.hold = hold_inside(
                kind=HoldKind.DRAIN,
                reason=f"plan {plan.pk}: {plan.reason}"[:500],
                actor=plan.by,
                via="zone-plan",
                node=nodes[move.node_id],
                rule=f"{ZONE_PLAN_RULE}/{plan.pk}",
            )
        begun += move.state != MoveState.DRAINING
        move.state = MoveState.DRAINING
    ZoneMove.objects.bulk_update(moves, ["state", "hold"])
    return begun


def _end_if_done(plan_id: int) -> None:
    plan = _lock_running(plan_id)
    if plan is None or plan.moves.filter(state__in=sorted(OPEN_MOVES)).exists():
        return
    _end(plan, PlanState.DONE, "")
    moved = plan.moves.filter(state=MoveState.MOVED).count()
    audit.record(
        actor=None,
        via="zone-plan",
        verb="zone.plan.done",
        target=plan,
        before={"state": PlanState.RUNNING},
        after={"state": PlanState.DONE, "moved": moved},
    )


def _end(plan: ZonePlan, state: PlanState, reason: str) -> None:
    """A plan that moved nothing has no effect to observe: its window ends with it."""
    plan.state, plan.ended_at, plan.end_reason = state, database_now(), reason
    if not plan.moves.filter(state=MoveState.MOVED).exists():
        plan.window_until = min(plan.window_until, plan.ended_at)
    plan.save(update_fields=["state", "ended_at", "end_reason", "window_until"])


# -- cancel -----------------------------------------------------------------------------------------------------------


def cancel_plan(*, plan_id: int, reason: str, actor: User, via: str, request_id: str = "") -> ZonePlan:
    """Leave what has not moved where it is and return what drains to the pool. What has moved stays moved."""
    if not may_plan(actor):
        raise Forbidden(_("Only admins move nodes between zones."), code="role")
    check_reason(reason)
    with transaction.atomic(durable=True):
        plan = _lock_running(plan_id)
        if plan is None:
            raise Conflict(_("This plan has ended already; undo it to move its nodes back."), code="plan_ended")
        left = list(plan.moves.filter(state__in=sorted(OPEN_MOVES)).select_related("hold"))
        membership.lock_nodes([move.node_id for move in left])
        _close(left, MoveState.DROPPED, plan, CANCELLED)
        _end(plan, PlanState.CANCELLED, reason)
        audit.record(
            actor=actor,
            via=via,
            verb="zone.plan.cancelled",
            target=plan,
            before={"state": PlanState.RUNNING},
            after={"state": PlanState.CANCELLED, "left": len(left)},
            reason=reason,
            request_id=request_id,
        )
        wake_after_commit("scheduler.tick")
    return plan
