"""Processes on a card that belong to no allocation: a fault and a hold on the card until two newer samples show that
they are gone, so that it is never given to somebody else before. A silent agent ends nothing.
"""

from __future__ import annotations

from typing import Any, Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef

from ledger import faults
from ledger.clock import database_now
from ledger.inventory import end_hold_inside, hold_inside, lock_node
from ledger.models import Card, CardSeat, CardWatch, Case, Fault, Hold, Node
from ledger.vocabulary import FaultKind, HoldKind
from scheduler.processes import CERTAIN, alarming, named
from scheduler.wake import wake_after_commit

RULE: Final = "orphan/1"
FOUND, GONE = "strays_found", "strays_gone"


def cards_to_act_on() -> list[int]:
    """Cards with strays that are not held, and cards that are held for strays which may be gone."""
    held = Hold.objects.filter(card=OuterRef("card"), kind=HoldKind.FAULT, period__upper_inf=True)
    told = Fault.objects.filter(card=OuterRef("card"), kind=FaultKind.ORPHAN, cleared_at=None)
    # of the newest sample alone: a card that stopped to tell of processes is a person's to decide
    newest = CardWatch.objects.filter(card__status__boot=F("boot"), card__status__sequence=F("sequence"))
    watches = newest.annotate(held=Exists(held), told=Exists(told), ours=Exists(_ours().filter(card=OuterRef("card"))))
    begun = [
        watch.pk
        for watch in watches.filter(seen__gt=0)
        if alarming(watch.strays, watch.seen) and not (watch.held and watch.told)
    ]
    over = watches.filter(seen=0, without__gte=CERTAIN)
    ended = {*over.filter(told=True).values_list("pk", flat=True), *over.filter(ours=True).values_list("pk", flat=True)}
    return sorted({*begun, *ended})


def act_on_card(card_id: int) -> str:
    """Returns what was done, for the task's record."""
    node_id = CardSeat.objects.filter(card=card_id, period__upper_inf=True).values_list("node_id", flat=True).first()
    if node_id is None:
        return ""
    with transaction.atomic(durable=True):
        node, card = lock_node(node_id), Card.objects.get(pk=card_id)
        watch = CardWatch.objects.get(pk=card_id)
        if alarming(watch.strays, watch.seen):
            return _begin(node, card, watch.strays)
        if not watch.strays and watch.without >= CERTAIN:
            return _end(node, card)
    return ""


def _begin(node: Node, card: Card, found: Any) -> str:
    text = f"processes without an allocation: {named(found)}"[:500]
    hold_inside(kind=HoldKind.FAULT, reason=text, actor=None, via="task", card=card, rule=RULE)
    faults.set_state_inside(node=node, card=card, kind=FaultKind.ORPHAN, on=True, message=text, now=database_now())
    return FOUND


def _end(node: Node, card: Card) -> str:
    """A hold that the health policy has made its own meanwhile is left to its case."""
    faults.set_state_inside(node=node, card=card, kind=FaultKind.ORPHAN, on=False, now=database_now())
    for hold in _ours().filter(card=card):
        end_hold_inside(hold, "two samples in a row show no such process any more", None, "task")
        wake_after_commit("scheduler.tick")
    return GONE


def _ours() -> Any:
    """The open holds that are ours to end."""
    cases = Case.objects.filter(hold=OuterRef("pk"), ended_at=None)
    return Hold.objects.filter(~Exists(cases), kind=HoldKind.FAULT, rule=RULE, period__upper_inf=True)
