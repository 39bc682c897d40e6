"""Many nodes or cards held or returned by a person in one step: all of them or none. One by one: ledger.inventory.

Holds that a rule placed end by themselves and are not a person's to end here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from ledger.errors import Conflict, Forbidden, Refused
from ledger.inventory import SYNC_RULE, ZONE_PLAN_RULE, end_hold_inside, end_standing_inside, hold_inside
from ledger.models import Card, CardSeat, Hold, Node, User
from ledger.odd_grants import renew_powers
from ledger.reasons import check_reason
from ledger.vocabulary import HoldKind
from ledger.zones import in_zones, lock_nodes

BY_PEOPLE: Final = (HoldKind.MAINTENANCE, HoldKind.FAULT, HoldKind.DRILL, HoldKind.DRAIN)


def returnable(hold: Hold) -> bool:
    """False for holds that end by themselves: a silent node or card, a node that a zone plan drains."""
    return hold.rule != SYNC_RULE and not hold.rule.startswith(f"{ZONE_PLAN_RULE}/")


def open_holds(*, nodes: Collection[Node] = (), cards: Collection[Card] = ()) -> list[Hold]:
    wanted = Q(node__in=[node.pk for node in nodes]) | Q(card__in=[card.pk for card in cards])
    return list(Hold.objects.filter(wanted, period__upper_inf=True).select_related("by").order_by("pk"))


def hold_many(
    *,
    kind: HoldKind,
    reason: str,
    actor: User,
    via: str,
    nodes: Collection[Node] = (),
    cards: Collection[Card] = (),
    request_id: str = "",
) -> list[Hold]:
    """Take all of these out of the pool from this commit on; running work stays. Conflict when all of them are held in
    this way already."""
    _check(actor, reason)
    if kind not in BY_PEOPLE:
        raise Refused(_("This kind of hold is placed by rules alone."), field="kind", code="kind")
    with transaction.atomic(durable=True):
        _lock_places(actor, nodes, cards)
        standing = {(hold.node_id, hold.card_id) for hold in open_holds(nodes=nodes, cards=cards) if hold.kind == kind}
        wanted: list[tuple[Node | None, Card | None]] = [
            (node, None) for node in nodes if (node.pk, None) not in standing
        ]
        wanted += [(None, card) for card in cards if (None, card.pk) not in standing]
        if not wanted:
            raise Conflict(_("All of them are held in this way already; nothing would change."), code="no_change")
        return [
            hold_inside(kind=kind, reason=reason, actor=actor, via=via, node=node, card=card, request_id=request_id)
            for node, card in wanted
        ]


def return_many(
    *,
    reason: str,
    actor: User,
    via: str,
    nodes: Collection[Node] = (),
    cards: Collection[Card] = (),
    request_id: str = "",
) -> list[Hold]:
    """End every hold on these that a person may end. Conflict when there is none."""
    _check(actor, reason)
    with transaction.atomic(durable=True):
        _lock_places(actor, nodes, cards)
        ending = [hold for hold in open_holds(nodes=nodes, cards=cards) if returnable(hold)]
        if not ending:
            raise Conflict(_("None of them has a hold that a person may end; nothing would change."), code="no_change")
        for hold in ending:
            end_hold_inside(hold, reason, actor, via, request_id)
        return ending


def hold_one(
    *,
    kind: HoldKind,
    reason: str,
    actor: User,
    via: str,
    node: Node | None = None,
    card: Card | None = None,
    request_id: str = "",
) -> Hold:
    """As ledger.inventory.place_hold, by a person: Forbidden outside what they operate."""
    with transaction.atomic(durable=True):
        _lock_places(actor, [node] if node else [], [card] if card else [])
        return hold_inside(kind=kind, reason=reason, actor=actor, via=via, node=node, card=card, request_id=request_id)


def end_one(*, hold: Hold, reason: str, actor: User, via: str, request_id: str = "") -> Hold:
    """As ledger.inventory.end_hold, by a person: Forbidden outside what they operate, Conflict where it ends by itself
    (`returnable`; what a zone plan drains is refused by end_standing_inside)."""
    with transaction.atomic(durable=True):
        _lock_places(actor, [hold.node] if hold.node else [], [hold.card] if hold.card else [])
        if hold.rule == SYNC_RULE and hold.period.upper_inf:
            text = _("This hold ends by itself, once what it is about is there again; nobody ends it by hand.")
            raise Conflict(text, code="by_rule")
        return end_standing_inside(hold.pk, reason, actor, via, request_id)


def _check(actor: User, reason: str) -> None:
    if not actor.operates_somewhere:
        raise _not_theirs()
    check_reason(reason)


def _not_theirs() -> Forbidden:
    return Forbidden(_("Only operators and admins hold and return machines."), code="role")


def _lock_places(actor: User, nodes: Collection[Node], cards: Collection[Card]) -> None:
    """Every node that these holds are about, in order, before the first hold is written; under the locks no node leaves
    its zone. Forbidden when the actor doesn't operate all of them, by what they may do at this moment."""
    if not actor.operates:
        renew_powers(actor)
    seats = CardSeat.objects.filter(card__in=[card.pk for card in cards], period__upper_inf=True)
    found = dict(seats.values_list("card_id", "node_id"))
    lock_nodes({node.pk for node in nodes} | set(found.values()))
    if not may_hold(actor, nodes, cards):
        raise _not_theirs()


def may_hold(actor: User, nodes: Collection[Node], cards: Collection[Card] = ()) -> bool:
    """Whether they hold and return all of these: operators of the site everything, operators of a zone what is in it
    now. A card that sits nowhere is in no zone."""
    if actor.operates:
        return True
    if not actor.operated_zones:
        return False
    seats = CardSeat.objects.filter(card__in=[card.pk for card in cards], period__upper_inf=True)
    found = dict(seats.values_list("card_id", "node_id"))
    places = {node.pk for node in nodes} | set(found.values())
    return len(found) == len({card.pk for card in cards}) and in_zones(places, actor.operated_zones)
