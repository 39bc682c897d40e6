"""A share that holds more memory of its card than it was promised: warned after two samples in a row, ended when the
next one is above too. Only the attempt of that share ends; who shares the card with it is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q

from ledger import audit, book, faults
from ledger.clock import database_now
from ledger.inventory import lock_node
from ledger.models import Card, CardSeat, Fault, Job, Node, ShareUse
from ledger.vocabulary import FaultKind, Outcome
from scheduler.ending import close_members
from scheduler.processes import CERTAIN

LAST: Final = CERTAIN + 1  # samples in a row at which it is ended
WARNED, ENDED, OVER = "warned", "ended_for_memory", "over_state"


def cards_to_act_on() -> list[int]:
    """Where something is to be done: a warning, an end, or a state that begins or ends."""
    over = ShareUse.objects.filter(share__period__upper_inf=True, over__gte=CERTAIN)
    due = over.filter(Q(warned_at=None) | Q(stopped_at=None, over__gte=LAST, over_at__gt=F("warned_at")))
    with_over = set(over.values_list("share__card_id", flat=True))
    with_fault = set(_open_faults().exclude(card=None).values_list("card_id", flat=True))
    acts = set(due.values_list("share__card_id", flat=True))
    return sorted(pk for pk in acts | (with_over ^ with_fault) if pk is not None)


def _open_faults() -> Any:
    return Fault.objects.filter(kind=FaultKind.OVERUSE, cleared_at=None)


def act_on_card(card_id: int) -> str:
    """Returns what was done, for the task's record."""
    node_id = CardSeat.objects.filter(card=card_id, period__upper_inf=True).values_list("node_id", flat=True).first()
    if node_id is None:
        return ""
    with transaction.atomic(durable=True):
        node, card = lock_node(node_id), Card.objects.get(pk=card_id)
        rows = ShareUse.objects.filter(share__card=card_id, share__period__upper_inf=True, over__gte=CERTAIN)
        uses = list(rows.select_related("share__allocation__attempt__job", "share__seat").order_by("pk"))
        done = [_act(use, node, card) for use in uses]
        _tell(node, card, uses)
    return max(done, key=(OVER, WARNED, ENDED).index, default=OVER)


def _act(use: ShareUse, node: Node, card: Card) -> str:
    if use.warned_at is None:
        _warn(use, node, card)
        return WARNED
    if use.over >= LAST and use.stopped_at is None and use.over_at is not None and use.over_at > use.warned_at:
        _end(use, node)
        return ENDED
    return OVER


def _warn(use: ShareUse, node: Node, card: Card) -> None:
    job = _job(use)
    now = database_now()
    ShareUse.objects.filter(pk=use.pk).update(warned_at=now)
    audit.record(
        actor=None,
        via="task",
        verb="job.over_memory",
        target=job,
        project=job.project_id,
        after={"card": card.uuid, "node": node.hostname, "used_mib": use.used_mib, "promised_mib": _promised(use)},
        at=now,
    )


def _end(use: ShareUse, node: Node) -> None:
    attempt = use.share.allocation.attempt
    job, live = book.lock_job(attempt.job_id)
    if live is not None and live.pk == attempt.pk:
        close_members(job, live, Outcome.OUT_OF_MEMORY, message=_words(use, node))
    ShareUse.objects.filter(pk=use.pk).update(stopped_at=database_now())


def _words(use: ShareUse, node: Node) -> str:
    return (
        f"it held {use.used_mib} MiB of the card in slot {use.share.seat.slot} of {node.hostname}, where it was "
        f"promised {_promised(use)} MiB, in {use.over} samples in a row; it was ended to protect the work beside it"
    )


def _tell(node: Node, card: Card, uses: Sequence[ShareUse]) -> None:
    standing = _open_faults().filter(node=node, card=card).exists()
    if bool(uses) == standing:
        return
    told = [f"{use.used_mib} of {_promised(use)} MiB" for use in uses]  # everybody reads it: no names
    faults.set_state_inside(
        node=node, card=card, kind=FaultKind.OVERUSE, on=bool(uses), message="; ".join(told), now=database_now()
    )


def _promised(use: ShareUse) -> int:
    return use.share.memory_mib


def _job(use: ShareUse) -> Job:
    return use.share.allocation.attempt.job
