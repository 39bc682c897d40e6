"""Cases: the only writer of what was taken out for its health or for a drill, on its way back. Orders to agents that
belong to one: ledger.orders. The steps a case takes by itself: ledger.case_steps. What people do to one: here.

Nothing returns without evidence: a reset or reboot that was seen, a test that passed, or a person with a reason.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from ledger import audit, faults, holds, leaving, orders
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden
from ledger.inventory import end_hold_inside, hold_inside, lock_node
from ledger.models import Allocation, Card, CardShare, Case, Fault, Hold, Node, NodeBoot
from ledger.odd_grants import renew_powers
from ledger.orders import orders_of as orders_of  # what the answer to a report asks an agent for
from ledger.orders import take_results_inside as take_results_inside
from ledger.reasons import check_reason
from ledger.vocabulary import OPEN_CASES, CaseState, HealthAction, HoldKind, Need

LONGEST_NOTE: Final = 500
HEALTH_RULE: Final = "health/"  # how the rule of a hold begins that the health policy placed
DRILL_RULE: Final = "drill/"
NO_BOOT: Final = "dcgm"  # the boot id of reports that were read from an exporter
SEVERITY: Final = tuple(Need)  # the mildest first
TASK: Final = Act(None, "task")


def open_inside(
    *,
    node: Node,
    card: Card | None,
    hold: Hold,
    need: Need,
    by_hand: bool,
    now: dt.datetime,
    fault: Fault | None = None,
    action: HealthAction | None = None,
    rule: str = "",
) -> Case:
    """The case of a place that was just taken out. One that the place has already takes on what is worse of both, and
    what was tested of it so far counts no more. `card` None: the whole node. The caller holds the node's lock."""
    standing = Case.objects.select_related("hold").filter(node=node, card=card, ended_at=None).first()
    if standing is not None and _is_over(standing.hold) and standing.hold_id != hold.pk:
        abort_inside(standing, "its hold had ended", now)
        standing = None
    if standing is not None:
        return _grow_worse(standing, hold, need, by_hand, now, fault, action, rule)
    case = Case.objects.create(
        node=node,
        card=card,
        hold=hold,
        fault=fault,
        action=action or "",
        rule=rule,
        need=need,
        by_hand=by_hand,
        state=CaseState.WAITING,
        boot=newest_boot(node.pk),
        opened_at=now,
    )
    after = {"node": node.hostname, "card": card.uuid if card else None, "need": str(need), "by_hand": by_hand}
    after |= {"rule": rule, "why": "taken out", "state": str(case.state)}
    audit.record(actor=None, via="task", verb="case.opened", target=case, after=after, at=now)
    return case


def _grow_worse(
    case: Case,
    hold: Hold,
    need: Need,
    by_hand: bool,
    now: dt.datetime,
    fault: Fault | None,
    action: HealthAction | None,
    rule: str,
) -> Case:
    worse = max(case.need, need, key=lambda one: SEVERITY.index(Need(one)))
    fields: dict[str, Any] = {"need": worse, "by_hand": case.by_hand or by_hand}
    if action is not None and (worse != case.need or not case.action or case.hold.kind != HoldKind.FAULT):
        fields |= {"action": action, "rule": rule, "fault": fault}
        if HoldKind.FAULT in (hold.kind, case.hold.kind):
            fields["hold"] = hold if hold.kind == HoldKind.FAULT else case.hold
    if worse != case.need:
        fields["boot"] = newest_boot(case.node_id)  # a reboot before it does not count
    wholly = "hold" in fields and case.hold.kind == HoldKind.LINK and hold.kind == HoldKind.FAULT
    again = case.state in (CaseState.TESTING, CaseState.PASSED) or (worse != case.need and case.done_at is not None)
    if again:
        begin_again_inside(case, "a new fault was counted", now, **fields)
    elif wholly:  # until now single cards of it were given out
        begin_again_inside(case, "a new fault was counted", now, **fields | {"done_at": case.done_at})
    elif any(getattr(case, name) != value for name, value in fields.items()):
        move_inside(case, CaseState(case.state), "a new fault was counted", now, **fields)
    return case


# -- steps inside a caller's transaction that holds the node's lock ----------------------------------------------------


def move_inside(
    case: Case, state: CaseState, why: str, now: dt.datetime, act: Act = TASK, verb: str = "", **fields: Any
) -> None:
    """Write the state and these fields with their audit row."""
    before = {"state": case.state}
    fields |= {"state": state, "note": why[:LONGEST_NOTE]}
    if state not in OPEN_CASES:
        fields["ended_at"] = now
    for name, value in fields.items():
        setattr(case, name, value)
    case.save(update_fields=sorted(fields))
    said = act.said()
    audit.record(
        verb=f"case.{verb or state}",
        target=case,
        before=before,
        after={"state": str(state), "why": why, "need": case.need},
        at=now,
        **said,
    )


def begin_again_inside(case: Case, why: str, now: dt.datetime, act: Act = TASK, **fields: Any) -> None:
    """Back to the start: what was done and tested so far counts no more, unless `fields` say so."""
    orders.drop_open_inside(case=case, why=why, now=now)
    anew: dict[str, Any] = {"idle_at": None, "done_at": None, "boot": newest_boot(case.node_id)}
    move_inside(case, CaseState.WAITING, why, now, act, **anew | fields)


def abort_inside(case: Case, why: str, now: dt.datetime, act: Act = TASK) -> None:
    orders.drop_open_inside(case=case, why=why, now=now)
    move_inside(case, CaseState.ABORTED, why, now, act)


def leave_drill_inside(case: Case, why: str, now: dt.datetime) -> None:
    """A fault came while its drill held it: the case goes on with the hold that the health policy placed."""
    own = [hold for hold in _holds_of(case) if hold.rule.startswith(HEALTH_RULE)]
    if own and case.hold_id != own[0].pk:
        move_inside(case, CaseState(case.state), why, now, hold=own[0])


def return_inside(case: Case, why: str, now: dt.datetime, act: Act = TASK) -> None:
    """The place is offered again from this commit on; what was counted on it is dealt with."""
    orders.drop_open_inside(case=case, why="it returned", now=now)
    for hold in _holds_of(case):
        end_hold_inside(hold, f"case {case.pk}: {why}"[:LONGEST_NOTE], act.actor, act.via, act.request_id)
    if case.action:
        faults.clear_standing_inside(node=case.node, card=case.card, now=now)
        if case.card is None:
            faults.clear_on_cards_inside(node=case.node, now=now)
    move_inside(case, CaseState.RETURNED, why, now, act)


def _holds_of(case: Case) -> list[Hold]:
    """Its own, and those that the health policy placed besides."""
    place = {"card": case.card_id} if case.card_id else {"node": case.node_id}
    standing = Hold.objects.filter(period__upper_inf=True, **place).order_by("pk")
    return [hold for hold in standing if hold.pk == case.hold_id or hold.rule.startswith(HEALTH_RULE)]


def is_busy(case: Case) -> bool:
    """Whether a live allocation shares the card, or stands on the node."""
    if case.card_id is not None:
        return CardShare.objects.filter(card=case.card_id, period__upper_inf=True).exists()
    return Allocation.objects.filter(node=case.node_id, period__upper_inf=True).exists()


def newest_boot(node_id: int) -> NodeBoot | None:
    """None also where only an exporter told of the node: it knows of no boots."""
    return NodeBoot.objects.filter(node=node_id).exclude(boot_id=NO_BOOT).order_by("-pk").first()


def _is_over(hold: Hold) -> bool:
    return not hold.period.upper_inf


def lock_case(case_id: int) -> Case:
    """The case under its node's lock, in the house order; a card may have moved in between."""
    while True:
        node_id = Case.objects.values_list("node_id", flat=True).get(pk=case_id)
        lock_node(node_id)
        case = Case.objects.select_related("node", "card", "hold", "fault").get(pk=case_id)
        if case.node_id == node_id:
            return case


# -- what people do ----------------------------------------------------------------------------------------------------


def mark_done(*, case_id: int, act: Act) -> Case:
    """A person has inspected or replaced it: the test is next. Conflict where the case waits for something else."""
    with transaction.atomic(durable=True):
        case = _theirs(case_id, act)
        if case.need not in (Need.INSPECTION, Need.REPLACEMENT) or case.state != CaseState.NEEDED:
            text = _("This case does not wait for an inspection or a replacement.")
            raise Conflict(text, code="not_waiting_for_that")
        now = database_now()
        move_inside(case, CaseState.NEEDED, f"done: {act.reason}", now, act, verb="done", done_at=now)
        return case


def test_again(*, case_id: int, act: Act) -> Case:
    """Another test of what has failed, or passed and waits for its release."""
    with transaction.atomic(durable=True):
        case = _theirs(case_id, act)
        if case.state not in (CaseState.FAILED, CaseState.PASSED):
            raise Conflict(_("Only what has failed or passed its test is tested again."), code="not_tested")
        now = database_now()
        begin_again_inside(case, f"to be tested again: {act.reason}", now, act, done_at=now)
        return case


def release(*, case_id: int, act: Act) -> Case:
    """Back to the pool, after its test has passed. Conflict else: whoever ends the hold itself overrides the case."""
    with transaction.atomic(durable=True):
        case = _theirs(case_id, act)
        if case.state != CaseState.PASSED:
            text = _("Only what has passed its test is released. To return it without, end its hold by hand.")
            raise Conflict(text, code="not_passed")
        return_inside(case, act.reason, database_now(), act)
        return case


def scrap(*, case_id: int, act: Act) -> Case:
    """It leaves the fleet. Its hold stays: should it be put back, nothing is placed on it."""
    with transaction.atomic(durable=True):
        case = _theirs(case_id, act)
        if is_busy(case):
            raise Conflict(_("Work is still on it. Wait for its end, or cancel it first."), code="busy")
        now = database_now()
        orders.drop_open_inside(case=case, why="it left the fleet", now=now)
        if case.card is not None and case.hold.kind == HoldKind.LINK:  # which leaves it open to work on single cards
            why = f"it left the fleet: {act.reason}"[:LONGEST_NOTE]
            hold_inside(kind=HoldKind.FAULT, reason=why, actor=act.actor, via=act.via, card=case.card)
        leaving.leave_inside(node=case.node, card=case.card, act=act)
        move_inside(case, CaseState.SCRAPPED, act.reason, now, act)
        return case


def _theirs(case_id: int, act: Act) -> Case:
    """The open case, locked, of a person who may do things to it by what they may do at this moment."""
    check_reason(act.reason)
    case = lock_case(case_id)
    if act.actor is not None and not act.actor.operates:
        renew_powers(act.actor)
    if act.actor is None or not holds.may_hold(act.actor, *_place(case)):
        raise Forbidden(_("Only operators and admins bring back what is out."), code="role")
    if case.ended_at is not None:
        raise Conflict(_("This case has ended already."), code="case_ended")
    return case


def _place(case: Case) -> tuple[list[Node], list[Card]]:
    return ([], [case.card]) if case.card is not None else ([case.node], [])


def held_for_drill(case: Case) -> bool:
    return case.rule.startswith(DRILL_RULE) and case.hold.kind == HoldKind.DRILL
