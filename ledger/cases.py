"""Cases: the only writer of what was taken out for its health, on its way back."""

from __future__ import annotations

import datetime as dt

from ledger.models import Card, Case, Fault, Hold, Node, NodeBoot
from ledger.vocabulary import CaseState, HealthAction, Need


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
    """The case of a place that was just taken out; the open one that it has already is returned. `card` None: the whole
    node. The caller holds the node's lock."""
    standing = Case.objects.filter(node=node, card=card, ended_at=None).first()
    if standing is not None:
        return standing
    return Case.objects.create(
        node=node,
        card=card,
        hold=hold,
        fault=fault,
        action=action or "",
        rule=rule,
        need=need,
        by_hand=by_hand,
        state=CaseState.WAITING,
        boot=NodeBoot.objects.filter(node=node).order_by("-pk").first(),
        opened_at=now,
    )
