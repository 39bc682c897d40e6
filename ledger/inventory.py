"""The only writer of nodes, cards, seats, zone membership and holds (blocks: ledger.blocks). Every change is a ledger
event with its audit row.

Holds and seats take the node's lock first, as placements do (house rule 8).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Q, Sum
from django.utils.translation import gettext as _

from ledger import audit, seats
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Allocation, Card, CardSeat, Hold, Link, Node, User
from ledger.vocabulary import HoldKind, NodeState

SYNC_RULE = "inventory-sync/1"
APPEARED = "card.appeared"
ZONE_PLAN_RULE = "zone-plan"  # the rule of a hold that a zone plan placed is zone-plan/ and the number of the plan


@dataclass(frozen=True)
class SeenCard:
    uuid: str
    slot: int
    model: str
    memory_mib: int
    virtual: bool = False
    memory_assumed: bool = False
    lost: bool = False


@dataclass(frozen=True)
class SeenNode:
    """What a driver or an agent says about one node now."""

    hostname: str
    cards: Sequence[SeenCard]
    online: bool = True
    cpu_milli: int | None = None
    host_memory_mib: int | None = None
    links: Sequence[tuple[str, str, str, int]] = ()  # uuid a, uuid b, kind, Gbit/s


@dataclass
class Changes:
    """What a sync wrote, and what it saw but could not write."""

    events: list[str] = field(default_factory=list)
    conflicts: list[tuple[str, str, str]] = field(default_factory=list)  # subject, detail, proposed fix


def lock_node(node_id: int) -> Node:
    return Node.objects.select_for_update(no_key=True).get(pk=node_id)


def _lock_place(node_id: int | None, card_id: int | None) -> None:
    """Lock the node that a hold is about: its own, or the one where its card sits."""
    seats = CardSeat.objects.filter(card=card_id, period__upper_inf=True)
    where = node_id or seats.values_list("node_id", flat=True).first()
    if where is not None:
        lock_node(where)


def place_hold(
    *,
    kind: HoldKind,
    reason: str,
    actor: User | None,
    via: str,
    node: Node | None = None,
    card: Card | None = None,
    rule: str = "",
    request_id: str = "",
) -> Hold:
    """Take a card or a node out of the pool from this commit on. Running work is not touched."""
    with transaction.atomic(durable=True):
        return hold_inside(
            kind=kind, reason=reason, actor=actor, via=via, node=node, card=card, rule=rule, request_id=request_id
        )


def hold_inside(
    *,
    kind: HoldKind,
    reason: str,
    actor: User | None,
    via: str,
    node: Node | None = None,
    card: Card | None = None,
    rule: str = "",
    request_id: str = "",
) -> Hold:
    """The step inside a caller's transaction; an equal hold that stands already is returned."""
    if (node is None) == (card is None):
        raise Refused(_("A hold is on one node or on one card."), field="node")
    _lock_place(node.pk if node else None, card.pk if card else None)
    standing = Hold.objects.filter(node=node, card=card, kind=kind, period__upper_inf=True).first()
    if standing is not None:
        return standing
    now = database_now()
    hold = Hold.objects.create(node=node, card=card, kind=kind, period=(now, None), reason=reason, by=actor, rule=rule)
    audit.record(
        actor=actor,
        via=via,
        verb="hold.placed",
        target=hold,
        after={
            "node": node.hostname if node else None,
            "card": card.uuid if card else None,
            "kind": kind,
            "rule": rule,
        },
        reason=reason,
        request_id=request_id,
        at=now,
    )
    return hold


def end_hold(*, hold_id: int, reason: str, actor: User | None, via: str, request_id: str = "") -> Hold:
    """Return what was held to the pool. Ending an ended hold is a Conflict."""
    with transaction.atomic(durable=True):
        return end_standing_inside(hold_id, reason, actor, via, request_id)


def end_standing_inside(hold_id: int, reason: str, actor: User | None, via: str, request_id: str = "") -> Hold:
    # the lock: or a placement could begin inside the hold and see it ended
    _lock_place(*Hold.objects.values_list("node_id", "card_id").get(pk=hold_id))
    hold = Hold.objects.select_for_update(no_key=True).get(pk=hold_id)
    if not hold.period.upper_inf:
        raise Conflict(_("This hold has ended already."), code="hold_ended")
    if hold.rule.startswith(f"{ZONE_PLAN_RULE}/"):
        number = hold.rule.partition("/")[2]
        text = _("Zone plan %(number)s drains this node; cancel the plan to return it.") % {"number": number}
        raise Conflict(text, code="zone_plan")
    end_hold_inside(hold, reason, actor, via, request_id)
    return hold


def end_hold_inside(hold: Hold, reason: str, actor: User | None, via: str, request_id: str = "") -> None:
    seats.end_period("ledger_hold", hold.pk)
    audit.record(
        actor=actor,
        via=via,
        verb="hold.ended",
        target=hold,
        before={"kind": hold.kind, "node": hold.node_id, "card": hold.card_id},
        reason=reason,
        request_id=request_id,
    )


def sync_node(seen: SeenNode) -> Changes:
    """Bring one known node in line with what was seen: cards that appear, vanish, move or return, links, size."""
    changes = Changes()
    with transaction.atomic(durable=True):
        node = _lock_touched(seen).get(seen.hostname)
        if node is None:
            changes.conflicts.append((seen.hostname, "an unknown node reports", "register it with import_fleet"))
            return changes
        _sync_state(node, seen, changes)
        if seen.online:
            _sync_size(node, seen, changes)
            _sync_cards(node, seen, changes)
            _sync_links(seen)
    return changes


def _lock_touched(seen: SeenNode) -> dict[str, Node]:
    """Lock the node, and by the house order also the nodes where its reported cards sat until now, by host name."""
    seats = CardSeat.objects.filter(card__uuid__in=[card.uuid for card in seen.cards], period__upper_inf=True)
    nodes = Node.objects.filter(Q(hostname=seen.hostname) | Q(pk__in=seats.values("node_id")))
    return {node.hostname: node for node in nodes.order_by("pk").select_for_update(no_key=True)}


def _sync_state(node: Node, seen: SeenNode, changes: Changes) -> None:
    wanted = NodeState.UP if seen.online else NodeState.OFFLINE
    if node.state in (wanted, NodeState.RETIRED):
        return
    before, node.state = node.state, wanted
    node.save(update_fields=["state"])
    audit.record(
        actor=None, via="task", verb=f"node.{wanted}", target=node, before={"state": before}, after={"state": wanted}
    )
    changes.events.append(f"{node.hostname} is {wanted}")
    if wanted == NodeState.OFFLINE:
        hold_inside(
            kind=HoldKind.OFFLINE, reason="the node does not report", actor=None, via="task", node=node, rule=SYNC_RULE
        )
        return
    for hold in Hold.objects.filter(node=node, kind=HoldKind.OFFLINE, rule=SYNC_RULE, period__upper_inf=True):
        end_hold_inside(hold, "the node reports again", None, "task")


def _sync_size(node: Node, seen: SeenNode, changes: Changes) -> None:
    before = {"cpu_milli": node.cpu_milli, "host_memory_mib": node.host_memory_mib}
    after = {
        "cpu_milli": node.cpu_milli if seen.cpu_milli is None else seen.cpu_milli,
        "host_memory_mib": node.host_memory_mib if seen.host_memory_mib is None else seen.host_memory_mib,
    }
    if before == after:
        return
    taken = Allocation.objects.filter(node=node, period__upper_inf=True).aggregate(
        cpu_milli=Sum("cpu_milli", default=0), host_memory_mib=Sum("host_memory_mib", default=0)
    )
    if any(after[name] < taken[name] for name in after):
        changes.conflicts.append((node.hostname, "it shrank below what is allocated on it", "end those jobs first"))
        return
    Node.objects.filter(pk=node.pk).update(**after)
    audit.record(actor=None, via="task", verb="node.resized", target=node, before=before, after=after)
    changes.events.append(f"{node.hostname} was resized")


def _sync_cards(node: Node, seen: SeenNode, changes: Changes) -> None:
    seated = {s.card.uuid: s for s in CardSeat.objects.filter(node=node, period__upper_inf=True).select_related("card")}
    lost = _lost([seat.card_id for seat in seated.values()])
    there = {card.uuid for card in seen.cards if not card.lost}
    gone = {seat.card_id for uuid, seat in seated.items() if uuid not in there}
    for seat in seated.values():
        if seat.card_id in gone and seat.card_id not in lost:
            _card_vanished(seat, changes)
    fresh = _fresh(seen, seated)
    _cards_appeared(node, fresh, changes)
    for card in seen.cards:
        seat_now = seated.get(card.uuid)
        if card.lost or card in fresh:
            continue
        if seat_now is None:
            _card_appeared(node, card, gone, changes)
        else:
            _card_returned(seat_now, lost.get(seat_now.card_id, ()), changes)
            if seat_now.slot != card.slot:
                changes.conflicts.append(
                    (
                        card.uuid,
                        f"slot {card.slot} instead of {seat_now.slot}",
                        "the index is only for display; nothing",
                    )
                )


def _lost(card_ids: Sequence[int]) -> dict[int, list[Hold]]:
    """By card: its standing holds for being lost."""
    found: dict[int, list[Hold]] = {}
    for hold in Hold.objects.filter(card__in=card_ids, kind=HoldKind.LOST, period__upper_inf=True):
        if hold.card_id is not None:
            found.setdefault(hold.card_id, []).append(hold)
    return found


def _fresh(seen: SeenNode, seated: Mapping[str, CardSeat]) -> list[SeenCard]:
    """Cards that nobody has seen before, each the only one reported for a slot in which no card sits."""
    slots = Counter(card.slot for card in seen.cards)
    slots.update(seat.slot for seat in seated.values())
    names = Counter(card.uuid for card in seen.cards)
    new = [c for c in seen.cards if not c.lost and c.uuid not in seated and slots[c.slot] == names[c.uuid] == 1]
    known = set(Card.objects.filter(uuid__in=[card.uuid for card in new]).values_list("uuid", flat=True)) if new else ()
    return [card for card in new if card.uuid not in known]


def _cards_appeared(node: Node, fresh: Sequence[SeenCard], changes: Changes) -> None:
    """Seat them in a few statements whatever their number."""
    if not fresh:
        return
    now = database_now()
    cards = Card.objects.bulk_create(_new_card(card) for card in fresh)
    CardSeat.objects.bulk_create(
        CardSeat(card=card, node=node, slot=seen.slot, period=(now, None))
        for card, seen in zip(cards, fresh, strict=True)
    )
    audit.record_many(
        audit.row(
            actor=None,
            via="task",
            verb=APPEARED,
            target=card,
            after={"node": node.hostname, "slot": seen.slot},
            at=now,
        )
        for card, seen in zip(cards, fresh, strict=True)
    )
    changes.events += [_tell_seated(APPEARED, node, card.uuid, card.slot) for card in fresh]


def _new_card(seen: SeenCard) -> Card:
    return Card(
        uuid=seen.uuid,
        model=seen.model,
        memory_mib=seen.memory_mib,
        virtual=seen.virtual,
        memory_assumed=seen.memory_assumed,
    )


def _tell_seated(verb: str, node: Node, uuid: str, slot: int) -> str:
    return f"{verb} {uuid} in {node.hostname} slot {slot}"


def _card_vanished(seat: CardSeat, changes: Changes) -> None:
    hold_inside(
        kind=HoldKind.LOST,
        reason=f"{seat.node.hostname} no longer reports the card",
        actor=None,
        via="task",
        card=seat.card,
        rule=SYNC_RULE,
    )
    changes.events.append(f"card {seat.card.uuid} vanished from {seat.node.hostname}")


def _card_returned(seat: CardSeat, lost: Iterable[Hold], changes: Changes) -> None:
    for hold in lost:
        if hold.rule != SYNC_RULE:
            continue
        end_hold_inside(hold, "the node reports the card again", None, "task")
        changes.events.append(f"card {seat.card.uuid} returned to {seat.node.hostname}")


def _card_appeared(node: Node, seen: SeenCard, gone: Collection[int], changes: Changes) -> None:
    """A card that sits nowhere in this node. `gone`: the cards that sit here and are not there any more."""
    card = Card.objects.filter(uuid=seen.uuid).first()
    verb = APPEARED if card is None else "card.moved"
    place = seats.place_for(node, seen, gone)
    if place.replaced is not None and not _replaced(place.replaced, seen, node, changes):
        return
    if card is None:
        card = _new_card(seen)
        card.save(force_insert=True)
    old = CardSeat.objects.filter(card=card, period__upper_inf=True).select_related("node", "card").first()
    if old is not None and not seats.leave(old, node, changes):
        return
    now = database_now()
    seat = CardSeat.objects.create(
        card=card, node=node, slot=place.slot, block=place.block_for(seen), period=(now, None)
    )
    audit.record(
        actor=None, via="task", verb=verb, target=card, after={"node": node.hostname, "slot": place.slot}, at=now
    )
    _card_returned(seat, _lost([card.pk]).get(card.pk, ()), changes)
    changes.events.append(_tell_seated(verb, node, seen.uuid, place.slot))


def _replaced(seat: CardSeat, by: SeenCard, node: Node, changes: Changes) -> bool:
    """It leaves its seat, and with it what the sync itself held it for: it is no part of the pool any more."""
    if not seats.leave(seat, node, changes, by=by.uuid):
        return False
    for hold in _lost([seat.card_id]).get(seat.card_id, ()):
        if hold.rule == SYNC_RULE:
            end_hold_inside(hold, f"card {by.uuid} sits in its place", None, "task")
    return True


def _sync_links(seen: SeenNode) -> None:
    if not seen.links:
        return
    ids = dict(Card.objects.filter(uuid__in=[c.uuid for c in seen.cards]).values_list("uuid", "pk"))
    wanted: dict[tuple[int, int], tuple[str, int]] = {}
    for a, b, kind, gbps in seen.links:
        if a in ids and b in ids and a != b:
            wanted[min(ids[a], ids[b]), max(ids[a], ids[b])] = (kind, gbps)
    known = {
        (link.card_a_id, link.card_b_id): (link.kind, link.gbps)
        for link in Link.objects.filter(card_a__in=ids.values(), card_b__in=ids.values())
    }
    if known == wanted:
        return
    Link.objects.filter(card_a__in=ids.values(), card_b__in=ids.values()).delete()
    Link.objects.bulk_create(
        Link(card_a_id=a, card_b_id=b, kind=kind, gbps=gbps) for (a, b), (kind, gbps) in sorted(wanted.items())
    )


def note_seen(hostnames: Mapping[str, dt.datetime]) -> None:
    """Stamp when nodes were last heard of; not an inventory change."""
    for hostname, at in hostnames.items():
        Node.objects.filter(hostname=hostname).update(seen_at=at)
