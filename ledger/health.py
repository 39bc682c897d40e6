"""What is to be done about a fault, by the site's health policy, in the transaction that counts it: the decision, the
hold and the case are one commit. The only writer of HealthEvent. Jobs that have to end are ended by scheduler.health,
which reads here what is to be done.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Sequence
from typing import Final

from django.db import transaction

from ledger import cases, health_policy
from ledger.clock import database_now
from ledger.health_rules import ENDS_JOBS, OF_NODES, SEVERITY, UNCHANGED, Decision, Past, Policy, Seen, decide, need_of
from ledger.inventory import hold_inside
from ledger.models import Card, CardShare, CardStatus, Case, Fault, HealthEvent, Hold, Node
from ledger.vocabulary import FaultKind, HealthAction, HoldKind

RULE: Final = "health"  # the rule of a hold that was placed here is health/ and the number of the policy's version
MOST_PAST: Final = 300  # earlier counts of the same and reboots that a decision looks at, of each the newest
PID: Final = re.compile(r"\bpid=(\d{1,10})\b")  # as NVIDIA's kernel messages name the process
MEMBER: Final = re.compile(r"(?:^|-)a(\d{1,18})$", re.ASCII)  # Allocation.key, after the name of the portal
LONGEST_WHY: Final = 300


def respond(*, node: Node, card: Card | None, fault: Fault, now: dt.datetime) -> None:
    """`fault` was just counted on this card, or on the node itself. The caller holds the node's lock."""
    policy = health_policy.in_force(node.site)
    tenants = _tenants(card)
    seen = Seen(
        FaultKind(fault.kind),
        fault.code,
        now.timestamp(),
        in_hand=_in_hand(node, card),
        users=frozenset(by for by in tenants.values() if by is not None),
        message=fault.message,
        place=card.pk if card is not None else None,
    )
    decision = decide(policy, seen, _past(policy, fault, now))
    hold, case = None, None
    if decision.action not in UNCHANGED:
        hold, case = _take_out(policy, decision, node, card, fault, now)
    HealthEvent.objects.create(
        fault=fault,
        node=node,
        card=card,
        kind=fault.kind,
        code=fault.code,
        at=now,
        version=policy.number,
        rule=decision.rule,
        action=decision.action,
        escalated=decision.escalated,
        why=decision.why[:LONGEST_WHY],
        began=decision.began,
        users=sorted(seen.users),
        hit=_hit(node, card, tenants, fault.message),
        hold=hold,
        case=case,
        ends_jobs=decision.action in ENDS_JOBS,
    )


def _tenants(card: Card | None) -> dict[int, int | None]:
    """Whose work is on the card now, by allocation."""
    if card is None:
        return {}
    shares = CardShare.objects.filter(card=card, period__upper_inf=True)
    return dict(shares.values_list("allocation_id", "allocation__attempt__job__by_id"))


def _in_hand(node: Node, card: Card | None) -> HealthAction | None:
    """The worst that is being done already about the card or its node. Once it is done, a fault is another one."""
    places: list[int | None] = [None] if card is None else [None, card.pk]
    open_cases = Case.objects.filter(node=node, ended_at=None, done_at=None).exclude(action="")
    found = [HealthAction(action) for place, action in open_cases.values_list("card_id", "action") if place in places]
    return max(found, key=SEVERITY.index, default=None)


def _past(policy: Policy, fault: Fault, now: dt.datetime) -> list[Past]:
    """What a decision goes by: the same on the same place, and reboots of the node. A flood of others hides neither."""
    since = now - dt.timedelta(seconds=policy.longest_s)
    rows = HealthEvent.objects.filter(node=fault.node_id, at__gt=since).order_by("-at")
    values = rows.values_list("at", "kind", "code", "action", "began", "users", "card_id")
    same = values.filter(kind=fault.kind, code=fault.code, card=fault.card_id)
    reboots = values.filter(began=True, action=HealthAction.REBOOT).exclude(
        kind=fault.kind, code=fault.code, card=fault.card_id
    )
    return [
        Past(at.timestamp(), kind, code, HealthAction(action), began, frozenset(users), place)
        for found in (same, reboots)
        for at, kind, code, action, began, users, place in found[:MOST_PAST]
    ]


def _take_out(
    policy: Policy, decision: Decision, node: Node, card: Card | None, fault: Fault, now: dt.datetime
) -> tuple[Hold, Case]:
    """The card, or its whole node, gets no new work from this commit on. What a person holds already stays theirs."""
    place = None if decision.action in OF_NODES else card
    links = decision.action is HealthAction.NO_GANG and place is not None
    rule = f"{RULE}/{policy.number}"
    hold = hold_inside(
        kind=HoldKind.LINK if links else HoldKind.FAULT,
        reason=decision.why,
        actor=None,
        via="task",
        node=node if place is None else None,
        card=place,
        rule=rule,
    )
    case = cases.open_inside(
        node=node,
        card=place,
        hold=hold,
        need=need_of(decision.action, FaultKind(fault.kind), on_card=card is not None),
        by_hand=decision.by_hand or hold.by_id is not None,
        now=now,
        fault=fault,
        action=decision.action,
        rule=rule,
    )
    return hold, case


def _hit(node: Node, card: Card | None, tenants: Collection[int], message: str) -> int | None:
    """The allocation whose process the message names, as far as the newest report knows the process; the only one on
    the card in any case."""
    found = PID.search(message)
    if found is not None:
        told = CardStatus.objects.filter(card__seats__node=node, card__seats__period__upper_inf=True)
        told = told if card is None else told.filter(card=card)
        for processes in told.values_list("processes", flat=True):
            for process in processes if isinstance(processes, list) else ():
                hit = _allocation_of(process, int(found[1]))
                if hit is not None and (card is None or hit in tenants):
                    return hit
    return next(iter(tenants)) if len(tenants) == 1 else None


def _allocation_of(process: object, pid: int) -> int | None:
    """What an agent lists comes as it is."""
    if not isinstance(process, dict) or process.get("pid") != pid:
        return None
    member = MEMBER.search(str(process.get("member") or ""))
    return int(member[1]) if member is not None else None


# -- for scheduler.health ----------------------------------------------------------------------------------------------


def to_do(limit: int) -> Sequence[HealthEvent]:
    """Events whose jobs are still to end, the oldest first."""
    rows = HealthEvent.objects.filter(ends_jobs=True, done_at=None).select_related("card", "node")
    return list(rows.order_by("at", "pk")[:limit])


def attempts_hit(event: HealthEvent) -> list[int]:
    """Live attempts that were on the card when it happened; of a contained error only the one that was hit, where that
    is known. Of a node's fault that names no card only the one that is known: the others go on."""
    shares = CardShare.objects.filter(
        period__upper_inf=True, allocation__closing_at=None, allocation__period__startswith__lte=event.at
    )
    only = event.card_id is None or event.action == HealthAction.RESTART_JOB
    if only and event.hit is not None:
        shares = shares.filter(allocation=event.hit, node=event.node_id)
    elif event.card_id is not None:
        shares = shares.filter(card=event.card_id)
    else:
        return []
    return sorted(set(shares.values_list("allocation__attempt_id", flat=True)))


def note_done(*, event_id: int, attempts: Collection[int]) -> None:
    """These attempts are ending because of it; nothing more is to be done."""
    with transaction.atomic(durable=True):
        HealthEvent.objects.filter(pk=event_id, done_at=None).update(done_at=database_now(), attempts=sorted(attempts))
