"""Cards and nodes that leave the fleet for good, by a person's act: seats end, nodes retire. What merely is not
reported any more: ledger.inventory."""

from __future__ import annotations

from django.db import connection

from ledger import audit
from ledger.acts import Act
from ledger.models import Card, CardSeat, Node
from ledger.vocabulary import NodeState

END_SEATS = """
UPDATE ledger_cardseat SET period = tstzrange(lower(period),
  greatest(lower(period) + interval '1 microsecond', clock_timestamp()))
WHERE id = ANY (%s) AND upper_inf(period)
"""


def leave_inside(*, node: Node, card: Card | None, act: Act) -> None:
    """The card, or the node with all its cards. The caller holds the node's lock and knows that no work is on it."""
    seats = CardSeat.objects.filter(node=node, period__upper_inf=True).select_related("card").order_by("slot")
    leaving = [seat for seat in seats if card is None or seat.card_id == card.pk]
    with connection.cursor() as cursor:
        cursor.execute(END_SEATS, [[seat.pk for seat in leaving]])
    for seat in leaving:
        before = {"node": node.hostname, "slot": seat.slot}
        audit.record(verb="card.left", target=seat.card, before=before, **act.said())
    if card is None and node.state != NodeState.RETIRED:
        before = {"state": node.state}
        node.state = NodeState.RETIRED
        node.save(update_fields=["state"])
        audit.record(verb="node.retired", target=node, before=before, after={"state": node.state}, **act.said())
