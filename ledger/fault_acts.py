"""What people do about a counted fault: say that it is dealt with. Faults themselves: ledger.faults."""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext as _

from ledger import faults, holds
from ledger.acts import Act
from ledger.errors import Conflict, Forbidden
from ledger.inventory import lock_node
from ledger.models import Fault
from ledger.odd_grants import renew_powers
from ledger.reasons import check_reason
from ledger.vocabulary import STATE_FAULTS


def clear(*, fault_id: int, act: Act) -> Fault:
    """Operators, and those of the zone. Its count stays in the history; the next one begins anew. Forbidden to others;
    Conflict for a state, which ends by itself, and for what was cleared already."""
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        lock_node(Fault.objects.values_list("node_id", flat=True).get(pk=fault_id))
        fault = Fault.objects.select_related("node", "card").get(pk=fault_id)
        if act.actor is not None and not act.actor.operates:
            renew_powers(act.actor)
        if act.actor is None or not holds.may_hold(act.actor, [fault.node]):
            raise Forbidden(_("Only operators and admins clear faults."), code="role")
        if fault.cleared_at is not None:
            raise Conflict(_("This fault is cleared already."), code="cleared")
        if fault.kind in STATE_FAULTS:
            text = _("This is a state: it ends by itself once the node no longer reports it.")
            raise Conflict(text, code="state")
        return faults.clear_inside(fault=fault, act=act)
