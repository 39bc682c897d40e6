"""The steps that a case takes by itself, each derived anew from the rows: safe to be cut off and to run twice anywhere.

WAITING until no work is on it → NEEDED until its reset or reboot was seen, or a person says that it is done → TESTING
until its test ended → RETURNED, or PASSED where a person releases it. A test or reset that fails is tried once more
with the next stronger means; then a person decides.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.db import transaction
from django.db.models import Q

from ledger import cases, orders
from ledger.clock import database_now
from ledger.inventory import hold_inside
from ledger.models import AgentOrder, AuditEvent, Card, CardSeat, Case, Fault, Hold, NodeBoot
from ledger.vocabulary import STATE_FAULTS, CaseState, FaultKind, HoldKind, Need, OrderKind

KEEP_OUT: Final = (
    FaultKind.ORPHAN,
    FaultKind.RESET_REQUIRED,
    FaultKind.REMAP_PENDING,
    FaultKind.REMAP_FAILED,
    FaultKind.MISSING,
)
MOST_STEPS: Final = 8  # of one case at one look
MOST_FAILURES: Final = 2
MOST_REBOOTS: Final = 2
STRONGER: Final[Mapping[str, Need]] = {Need.NOTHING: Need.RESET, Need.RESET: Need.REBOOT}


def advance(case_id: int) -> str:
    """As far as the case comes now. Returns its state."""
    with transaction.atomic(durable=True):
        case = cases.lock_case(case_id)
        for _ in range(MOST_STEPS):
            if case.ended_at is not None or not _step(case, database_now()):
                break
        return str(case.state)


def go_on_inside(case: Case, why: str, now: dt.datetime) -> bool:
    """A drill has measured what it wanted: the test is next. The caller holds the node's lock."""
    if case.state not in (CaseState.WAITING, CaseState.NEEDED) or case.done_at is not None:
        return False
    cases.move_inside(case, CaseState(case.state), why, now, verb="done", done_at=now)
    return True


def _step(case: Case, now: dt.datetime) -> bool:
    """Whether something moved, so that the next step may be due."""
    if not case.hold.period.upper_inf:
        return _hold_gone(case, now)
    if case.card is not None and _moved(case, case.card, now):
        return True
    step = STEPS.get(CaseState(case.state))
    return step is not None and step(case, now)


def _hold_gone(case: Case, now: dt.datetime) -> bool:
    """A person who ended it took the case over. What a rule ended, the case still needs."""
    ended = AuditEvent.objects.filter(target_type="hold", target_id=str(case.hold_id), verb="hold.ended")
    last = ended.order_by("-pk").first()
    if last is None or last.actor_id is not None or cases.held_for_drill(case):
        cases.abort_inside(case, "its hold was ended by hand", now)
        return False
    place: dict[str, Any] = {"card": case.card} if case.card is not None else {"node": case.node}
    why = f"case {case.pk} is not over"
    hold = hold_inside(kind=HoldKind(case.hold.kind), reason=why, actor=None, via="task", rule=case.rule, **place)
    cases.move_inside(case, CaseState(case.state), "its hold had ended by a rule; held again", now, hold=hold)
    case.hold = Hold.objects.get(pk=hold.pk)
    return True


def _moved(case: Case, card: Card, now: dt.datetime) -> bool:
    """Follow a card that was put into another node: what was done on the old one counts no more."""
    seat = CardSeat.objects.filter(card=card, period__upper_inf=True).select_related("node").first()
    if seat is None or seat.node_id == case.node_id:
        return False
    why = f"the card moved to {seat.node.hostname}"
    cases.begin_again_inside(case, why, now, node=seat.node, boot=cases.newest_boot(seat.node_id))
    return False  # under the lock of the new node at the next look


# -- one state each ----------------------------------------------------------------------------------------------------


def _waiting(case: Case, now: dt.datetime) -> bool:
    if _partly_out(case) and case.done_at is None:
        cases.move_inside(case, CaseState.NEEDED, "single cards of it go on being given out", now)
        return True
    if cases.is_busy(case):
        return False
    cases.move_inside(case, CaseState.NEEDED, "no work is on it", now, idle_at=now)
    return True


def _partly_out(case: Case) -> bool:
    """Whether its hold leaves it open to some new work, as one for links does: then it may never be idle."""
    return case.hold.kind not in (HoldKind.FAULT, HoldKind.DRILL)


def _take_out_wholly(case: Case, now: dt.datetime) -> bool:
    """For its test nothing new is to come on it."""
    place: dict[str, Any] = {"card": case.card} if case.card is not None else {"node": case.node}
    why = "out for the test of what was done"
    hold = hold_inside(kind=HoldKind.FAULT, reason=why, actor=None, via="task", rule=case.rule, **place)
    cases.begin_again_inside(case, why, now, done_at=case.done_at, hold=Hold.objects.get(pk=hold.pk))
    return True


def _needed(case: Case, now: dt.datetime) -> bool:
    if case.done_at is not None and _partly_out(case):
        return _take_out_wholly(case, now)
    if case.done_at is not None:
        cases.move_inside(case, CaseState.TESTING, "to be tested", now)
        return True
    return NEEDS[Need(case.need)](case, now)


def _nothing(case: Case, now: dt.datetime) -> bool:
    """A drill says itself when it has measured enough."""
    if cases.held_for_drill(case):
        return False
    cases.move_inside(case, CaseState.NEEDED, "nothing but a test is needed", now, verb="done", done_at=now)
    return True


def _reset(case: Case, now: dt.datetime) -> bool:
    found = orders.round_of(case, OrderKind.RESET)
    if not found:
        cards = _cards(case)
        orders.issue_inside(case=case, kind=OrderKind.RESET, cards=cards, now=now)
        cases.move_inside(
            case, CaseState.NEEDED, "a reset is ordered", now, verb="reset", resets=case.resets + bool(cards)
        )
        return not cards and _done(case, "no card to reset", now)
    if _running(found, now):
        return False
    bad = [order for order in found if not order.ok]
    return _failed(case, f"the reset failed: {bad[0].detail}", now) if bad else _done(case, "reset", now)


def _reboot(case: Case, now: dt.datetime) -> bool:
    boot = cases.newest_boot(case.node_id)
    if boot is None or (case.boot_id is not None and boot.pk <= case.boot_id):
        return False
    if case.boot_id is None and not case.node.simulated:
        Case.objects.filter(pk=case.pk).update(boot=boot)  # what was before nobody knows: the next one counts
        return False
    return _rebooted(case, boot, now)


def _rebooted(case: Case, boot: NodeBoot, now: dt.datetime) -> bool:
    why = f"rebooted: boot {boot.boot_id[:40]} was seen"
    cases.move_inside(case, CaseState.NEEDED, why, now, verb="done", done_at=now, boot=boot, reboots=case.reboots + 1)
    return True


def _by_person(_case: Case, _now: dt.datetime) -> bool:
    return False


def _testing(case: Case, now: dt.datetime) -> bool:
    found = orders.round_of(case, OrderKind.BURN_IN)
    if not found:
        cards = _cards(case)
        orders.issue_inside(case=case, kind=OrderKind.BURN_IN, cards=cards, now=now)
        return not cards and _passed(case, "there is no card to test", now)
    if _running(found, now):
        return False
    bad = [order for order in found if not order.ok]
    if bad:
        return _failed(case, f"the test failed: {bad[0].detail}", now)
    standing = _standing(case)
    if standing is not None:
        return _failed(case, f"the test passed, but this still stands: {standing.kind}", now)
    return _passed(case, "the test passed", now)


# -- how it goes on ----------------------------------------------------------------------------------------------------


def _running(found: Sequence[AgentOrder], now: dt.datetime) -> bool:
    """Whether an order of the round is still open; what is overdue is ended first."""
    orders.end_overdue_inside(found, now)
    return any(order.ended_at is None for order in found)


def _done(case: Case, why: str, now: dt.datetime) -> bool:
    cases.move_inside(case, CaseState.NEEDED, why, now, verb="done", done_at=now)
    return True


def _passed(case: Case, why: str, now: dt.datetime) -> bool:
    case.tested_at = now
    case.save(update_fields=["tested_at"])
    if case.by_hand or case.reboots >= MOST_REBOOTS:
        cases.move_inside(case, CaseState.PASSED, f"{why}; a person releases it", now, by_hand=True)
    else:
        cases.return_inside(case, why, now)
    return False


def _failed(case: Case, why: str, now: dt.datetime) -> bool:
    case.tested_at = now
    case.save(update_fields=["tested_at"])
    tried = orders.failed_rounds(case) >= MOST_FAILURES or case.reboots >= MOST_REBOOTS
    if tried or case.need in (Need.INSPECTION, Need.REPLACEMENT):
        cases.move_inside(case, CaseState.FAILED, why, now, by_hand=True)
        return False
    drill = cases.held_for_drill(case)  # nothing is wrong with it: the test alone is made again
    need = case.need if drill else STRONGER.get(case.need, Need(case.need))
    cases.begin_again_inside(case, why, now, need=need, done_at=now if drill else None)
    return True


def _standing(case: Case) -> Fault | None:
    """What keeps it out whatever its test says: the state that the case was opened for, where it is still so, one that
    asks for a reset or a reboot, or processes of nobody on it."""
    opened_for = Q(pk=case.fault_id, kind__in=STATE_FAULTS)
    besides = Q(node=case.node_id, card=case.card_id, kind__in=KEEP_OUT)
    return Fault.objects.filter(opened_for | besides, cleared_at=None).order_by("pk").first()


def _cards(case: Case) -> list[Card]:
    if case.card is not None:
        return [case.card]
    seats = CardSeat.objects.filter(node=case.node_id, period__upper_inf=True).select_related("card")
    return [seat.card for seat in seats.order_by("slot")]


Step = Callable[[Case, dt.datetime], bool]
STEPS: Final[Mapping[CaseState, Step]] = {
    CaseState.WAITING: _waiting,
    CaseState.NEEDED: _needed,
    CaseState.TESTING: _testing,
}
NEEDS: Final[Mapping[Need, Step]] = {
    Need.NOTHING: _nothing,
    Need.RESET: _reset,
    Need.REBOOT: _reboot,
    Need.INSPECTION: _by_person,
    Need.REPLACEMENT: _by_person,
}
