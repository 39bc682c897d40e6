"""Drills: planned by people, carried out a step at a time by whoever looks, aborted. The only writer of Drill.

Every step is one transaction that is derived anew from the rows, so that it may be cut off or run twice anywhere; a
drill that fails does not stop the others. The place comes back by its case (ledger.cases), as after a fault.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from ledger import audit, case_steps, cases, holds
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.inventory import end_hold_inside, hold_inside, lock_node
from ledger.models import Allocation, Card, CardSeat, CardShare, Case, Hold, Node, User
from ledger.odd_grants import renew_powers
from ledger.reasons import check_reason
from ledger.vocabulary import CaseState, HoldKind, Need, NodeState
from ledger.zones import zones_of
from scheduler import drill_alerts, drill_probe, drill_verdict
from scheduler.drill_probe import Found
from scheduler.drill_rows import OPEN_DRILLS, AvoidedBy, Drill, DrillState, DrillVerdict
from scheduler.wake import wake_after_commit

log = logging.getLogger(__name__)
TASK: Final = "scheduler.drills"
MOST_STEPS: Final = 6  # of one drill at one look
FARTHEST: Final = dt.timedelta(days=366)
LONGEST_TARGET_S: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Targets:
    """Seconds, as Drill has them."""

    hold_s: float
    avoid_s: float
    alert_s: float
    return_s: float


def usual_targets() -> Targets:
    return Targets(settings.DRILL_HOLD_S, settings.DRILL_AVOID_S, settings.DRILL_ALERT_S, settings.DRILL_RETURN_S)


# -- what people do ----------------------------------------------------------------------------------------------------


def plan_drill(
    *,
    act: Act,
    node: Node | None = None,
    card: Card | None = None,
    due_at: dt.datetime | None = None,
    drain: bool = False,
    targets: Targets | None = None,
) -> Drill:
    """Of one card or one node. `due_at` None: now. Refused without a reason, for an odd time or target, and where work
    is on the place unless it may `drain`; Conflict where the place is out already or has an open drill."""
    check_reason(act.reason)
    where = _where(node, card)
    with transaction.atomic(durable=True):
        there = lock_node(where.pk)
        planner = _check_right(act, there, card)
        now = database_now()
        due = _checked_time(due_at, now)
        aims = _checked_targets(targets or usual_targets())
        _check_place(there, card, drain)
        drill = Drill.objects.create(
            node=there,
            card=card,
            zone=zones_of([there.pk]).get(there.pk),
            site=there.site,
            simulated=there.simulated,
            by=planner,
            reason=act.reason,
            planned_at=now,
            due_at=due,
            drain=drain,
            hold_target_s=aims.hold_s,
            avoid_target_s=aims.avoid_s,
            alert_target_s=aims.alert_s,
            return_target_s=aims.return_s,
        )
        after = {"node": there.hostname, "card": card.uuid if card else None, "due": due.isoformat(), "drain": drain}
        audit.record(verb="drill.planned", target=drill, after=after, at=now, **act.said())
        wake_after_commit(TASK)
        return drill


def abort_drill(*, drill_id: int, act: Act) -> Drill:
    """Nothing is left behind: the hold ends, the case with it. Conflict when it has ended."""
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        drill = _locked(drill_id)
        _check_right(act, drill.node, drill.card)
        if drill.state not in OPEN_DRILLS:
            raise Conflict(_("This drill has ended already."), code="drill_ended")
        now = database_now()
        if drill.case is not None and drill.case.ended_at is None and drill.case.hold_id == drill.hold_id:
            if cases.held_for_drill(drill.case):
                cases.abort_inside(drill.case, f"its drill was aborted: {act.reason}", now, act)
            else:
                cases.leave_drill_inside(drill.case, "its drill was aborted", now)
        _end_hold(drill, f"drill {drill.pk} was aborted", act)
        _end(drill, now, DrillVerdict.ABORTED, act.reason, act)
        wake_after_commit("scheduler.tick")
        return drill


def _where(node: Node | None, card: Card | None) -> Node:
    if (node is None) == (card is None):
        raise Refused(_("A drill is of one node or of one card."), field="node", code="place")
    if node is not None:
        return node
    seat = CardSeat.objects.filter(card=card, period__upper_inf=True).select_related("node").first()
    if seat is None:
        raise Refused(_("This card sits in no node now."), field="card", code="no_seat")
    return seat.node


def _check_right(act: Act, node: Node, card: Card | None) -> User:
    if act.actor is not None and not act.actor.operates:
        renew_powers(act.actor)
    if act.actor is None or not holds.may_hold(act.actor, [] if card else [node], [card] if card else []):
        raise Forbidden(_("Only operators and admins make drills."), code="role")
    return act.actor


def _checked_time(due_at: dt.datetime | None, now: dt.datetime) -> dt.datetime:
    if due_at is not None and due_at > now + FARTHEST:
        raise Refused(_("Give a time within a year."), field="due_at", code="too_far")
    return now if due_at is None else max(due_at, now)


def _checked_targets(targets: Targets) -> Targets:
    for name in ("hold_s", "avoid_s", "alert_s", "return_s"):
        if not 0 < getattr(targets, name) <= LONGEST_TARGET_S:
            text = _("Give a target of more than 0 seconds and at most %(n)d.") % {"n": int(LONGEST_TARGET_S)}
            raise Refused(text, field=name, code="target")
    return targets


def _check_place(node: Node, card: Card | None, drain: bool) -> None:
    if node.state == NodeState.RETIRED:
        raise Refused(_("This node has left the fleet."), field="node", code="retired")
    if Drill.objects.filter(node=node, card=card, ended_at=None).exists():
        raise Conflict(_("This place has a drill already that has not ended."), code="drill_open")
    text = _in_the_way(node, card, drain)
    if text == WORK:
        text = _("Work is on it. Confirm that it may drain: what runs goes on to its end, and the test waits for that.")
        raise Refused(text, field="drain", code="busy")
    if text:
        raise Conflict(_("It is out of the pool already: end that first."), code="held")


WORK, HELD = "work is on it", "it is out of the pool already"


def _in_the_way(node: Node, card: Card | None, drain: bool) -> str:
    """Why the place can't be taken out now; "" = it can."""
    places = [{"node": node}] + ([{"card": card}] if card else [])
    held = any(Hold.objects.filter(period__upper_inf=True, **place).exists() for place in places)
    if held or Case.objects.filter(node=node, card=card, ended_at=None).exists():
        return HELD
    return WORK if not drain and is_busy(node, card) else ""


def is_busy(node: Node, card: Card | None) -> bool:
    if card is not None:
        return CardShare.objects.filter(card=card, period__upper_inf=True).exists()
    return Allocation.objects.filter(node=node, period__upper_inf=True).exists()


# -- what is due -------------------------------------------------------------------------------------------------------


def advance_all() -> dict[str, Any]:
    """Returns counts for the task's record."""
    counts: Counter[str] = Counter()
    open_drills = Drill.objects.filter(state__in=sorted(OPEN_DRILLS)).order_by("pk")
    for pk in list(open_drills.values_list("pk", flat=True)):
        try:
            counts[advance(pk)] += 1
        except Exception:
            log.exception("drill %s can't go on", pk)
            counts["odd"] += 1
    return dict(counts)


def advance(drill_id: int) -> str:
    """As far as the drill comes now. Returns its state."""
    for _step in range(MOST_STEPS):
        drill = Drill.objects.select_related("node", "card", "case", "hold", "by").get(pk=drill_id)
        step = STEPS.get(DrillState(drill.state))
        if step is None or not step(drill):
            break
    return str(Drill.objects.values_list("state", flat=True).get(pk=drill_id))


def _locked(drill_id: int) -> Drill:
    """Under its node's lock, in the house order."""
    lock_node(Drill.objects.values_list("node_id", flat=True).get(pk=drill_id))
    rows = Drill.objects.select_related("node", "card", "case", "hold", "by")
    return rows.select_for_update(no_key=True, of=("self",)).get(pk=drill_id)


def take_out(drill: Drill) -> bool:
    """Once it is due: the hold and its case in one commit. What would stand in the way ends the drill."""
    if database_now() < drill.due_at:
        return False
    probe = drill_probe.offer(drill)  # just before, and outside the lock
    with transaction.atomic(durable=True):
        drill = _locked(drill.pk)
        if drill.state != DrillState.PLANNED:
            return True
        now, act = database_now(), Act(drill.by, "task", drill.reason)
        problem = "it sits elsewhere now" if _moved(drill) else _in_the_way(drill.node, drill.card, drill.drain)
        problem = problem or _not_theirs_any_more(drill)
        if problem or drill.node.state == NodeState.RETIRED:
            _end(drill, now, DrillVerdict.ABORTED, problem or "it has left the fleet", act)
            return False
        _hold(drill, probe, act)
        audit.record(verb="drill.out", target=drill, after={"hold": drill.hold_id}, **act.said())
        wake_after_commit("scheduler.tick")
    return True


def _not_theirs_any_more(drill: Drill) -> str:
    places: tuple[list[Node], list[Card]] = ([], [drill.card]) if drill.card is not None else ([drill.node], [])
    if not drill.by.operates:
        renew_powers(drill.by)
    return "" if holds.may_hold(drill.by, *places) else "who planned it may no longer take it out"


def _moved(drill: Drill) -> bool:
    if drill.card is None:
        return False
    return not CardSeat.objects.filter(card=drill.card, node=drill.node, period__upper_inf=True).exists()


def _hold(drill: Drill, probe: Mapping[str, Any] | None, act: Act) -> None:
    rule = f"{cases.DRILL_RULE}{drill.pk}"
    place: dict[str, Any] = {"card": drill.card} if drill.card is not None else {"node": drill.node}
    hold = hold_inside(kind=HoldKind.DRILL, reason=drill.reason, actor=act.actor, via=act.via, rule=rule, **place)
    hold.refresh_from_db()
    held_at = hold.period.lower
    case = cases.open_inside(
        node=drill.node, card=drill.card, hold=hold, need=Need.NOTHING, by_hand=False, now=held_at, rule=rule
    )
    _write(
        drill,
        state=DrillState.OUT,
        started_at=drill.due_at,
        hold=hold,
        held_at=held_at,
        case=case,
        probe=probe,
    )


def measure(drill: Drill) -> bool:
    """While it is out: what avoids it, what told of it; after that, or after their time, its test is next."""
    found = _avoided(drill)
    told = drill_alerts.told(drill.hold_id or 0)
    with transaction.atomic(durable=True):
        drill = _locked(drill.pk)
        if drill.state != DrillState.OUT:
            return True
        now = database_now()
        if _was_taken_over(drill, now):
            return False
        fields = _new_alerts(drill, told) | (found if drill.avoided_at is None else {})
        if fields:
            _write(drill, **fields)
        if not _measured(drill, now) or drill.case is None:
            return False
        case = cases.lock_case(drill.case.pk)
        case_steps.go_on_inside(case, f"drill {drill.pk} has measured what it can", now)
        _write(drill, state=DrillState.RETURNING, went_on_at=now)
        wake_after_commit("scheduler.service")
    return True


def _avoided(drill: Drill) -> dict[str, Any]:
    """The columns of the first that showed it; empty while nothing has."""
    if drill.avoided_at is not None:
        return {}
    real = drill_probe.real_elsewhere(drill)
    if real is not None:
        told = f"job {real.attempt.job_id}: {real.node.hostname}"
        return {"avoided_at": real.period.lower, "avoided_by": AvoidedBy.PLACEMENT, "avoided": told}
    found: Found | None = drill_probe.look(drill) if drill.probe is not None else None
    if found is None or not found.avoids:
        return {}
    return {"avoided_at": database_now(), "avoided_by": AvoidedBy.PROBE, "avoided": found.told[:300]}


def _new_alerts(drill: Drill, told: drill_alerts.Told) -> dict[str, Any]:
    """The first time that each channel was told."""
    alerted = {**{channel: at.isoformat() for channel, at in told.sent.items()}, **drill.alerted}
    channels = sorted({*told.channels, *drill.channels})
    changed = {"alerted": alerted, "channels": channels}
    return changed if (alerted, channels) != (drill.alerted, drill.channels) else {}


def _measured(drill: Drill, now: dt.datetime) -> bool:
    """Whether nothing more is to be waited for."""
    since = (now - drill.held_at).total_seconds() if drill.held_at else 0.0
    avoided = drill.avoided_at is not None or since > drill.avoid_target_s
    alerted = since > drill.alert_target_s or not set(drill.channels) - set(drill.alerted)
    return avoided and alerted


def follow_return(drill: Drill) -> bool:
    """Its case brings it back; then the verdict."""
    told = drill_alerts.told(drill.hold_id or 0)
    with transaction.atomic(durable=True):
        drill = _locked(drill.pk)
        now = database_now()
        if drill.state != DrillState.RETURNING or drill.case is None or _was_taken_over(drill, now):
            return False
        fields = _new_alerts(drill, told)
        if drill.case.tested_at is not None and drill.case.tested_at != drill.tested_at:
            fields["tested_at"] = drill.case.tested_at
        if drill.case.state == CaseState.RETURNED:
            fields["returned_at"] = drill.case.ended_at
        if fields:
            _write(drill, **fields)
        if drill.case.state == CaseState.RETURNED:
            _end(drill, now, None, "", Act(None, "task"))
        elif drill.case.state in (CaseState.FAILED, CaseState.SCRAPPED):
            _end(drill, now, DrillVerdict.FAILED, f"it stays out: {drill.case.note}", Act(None, "task"))
    return False


def _was_taken_over(drill: Drill, now: dt.datetime) -> bool:
    """A fault that was counted meanwhile, or a person who ended the hold, ends the drill. Nothing of it stays."""
    case = drill.case
    if case is None or (
        cases.held_for_drill(case) and case.hold_id == drill.hold_id and case.state != CaseState.ABORTED
    ):
        return False
    act = Act(None, "task")
    why = case.note if case.state == CaseState.ABORTED else "a fault was counted on it meanwhile; its case goes on"
    if case.ended_at is None:
        cases.leave_drill_inside(case, f"drill {drill.pk} ended", now)
    _end_hold(drill, f"drill {drill.pk} ended: {why}", act)
    _end(drill, now, DrillVerdict.ABORTED, why, act)
    return True


def _end_hold(drill: Drill, why: str, act: Act) -> None:
    hold = Hold.objects.filter(pk=drill.hold_id or 0, period__upper_inf=True).first()
    if hold is not None:
        end_hold_inside(hold, why[:500], act.actor, act.via, act.request_id)


def _end(drill: Drill, now: dt.datetime, verdict: DrillVerdict | None, note: str, act: Act) -> None:
    """Without a verdict, that of what was measured."""
    found = drill_verdict.lines(drill, broken=drill_probe.broken(drill))
    verdict = verdict or drill_verdict.verdict(found)
    _write(
        drill,
        state=DrillState.ENDED,
        verdict=verdict,
        ended_at=now,
        lines=drill_verdict.as_data(found),
        note=note[:500],
    )
    after = {"verdict": str(verdict), "note": note, "lines": {f"{one.what}{one.channel}": one.said for one in found}}
    audit.record(
        verb=f"drill.{'aborted' if verdict == DrillVerdict.ABORTED else 'ended'}",
        target=drill,
        after=after,
        at=now,
        **act.said(),
    )


def _write(drill: Drill, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(drill, name, value)
    drill.save(update_fields=sorted(fields))


STEPS: Final[Mapping[DrillState, Callable[[Drill], bool]]] = {
    DrillState.PLANNED: take_out,
    DrillState.OUT: measure,
    DrillState.RETURNING: follow_return,
}
