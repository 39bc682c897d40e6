"""Claim → send → note, for every outbox: rows with `state`, `tries`, `due_at`, `sent_at` and `last_error`.

A try is claimed by moving `due_at` ahead; the row says sent only afterwards. Killed between the two, it is sent again,
never left out.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, TypeVar

from django.db import models, transaction

from ledger.clock import database_now
from ledger.vocabulary import DeliveryState

LEASE: Final = dt.timedelta(seconds=60)  # longer than one try takes
FIRST_BACK_OFF_S: Final = 30
LONGEST_BACK_OFF_S: Final = 4 * 3_600
MOST_TRIES: Final = 15  # about a day and a half; then it has failed
LONGEST_ERROR: Final = 500
Row = TypeVar("Row", bound=models.Model)


def claim(rows: models.QuerySet[Row], pk: int, now: dt.datetime, *also: str) -> Row | None:
    """The row, for this worker alone; None when another has it, or it is done. `also` are relations to read."""
    with transaction.atomic(durable=True):
        free = rows.select_for_update(skip_locked=True, of=("self",))
        row: Any = free.filter(pk=pk, state=DeliveryState.PENDING, due_at__lte=now).select_related(*also).first()
        if row is not None:
            row.tries, row.due_at = row.tries + 1, now + LEASE
            row.save(update_fields=["tries", "due_at"])
    found: Row | None = row
    return found


def note_sent(rows: models.QuerySet[Row], pk: int) -> int:
    return rows.filter(pk=pk, state=DeliveryState.PENDING).update(
        state=DeliveryState.SENT, sent_at=database_now(), last_error=""
    )


def note_dropped(rows: models.QuerySet[Row], pk: int) -> int:
    """When its turn came it was no longer so, or no longer theirs to know."""
    return rows.filter(pk=pk, state=DeliveryState.PENDING).update(state=DeliveryState.DROPPED)


def note_failure(rows: models.QuerySet[Row], pk: int, tries: int, error: Exception, now: dt.datetime) -> bool:
    """Try later; True when it was tried often enough."""
    given_up = tries >= MOST_TRIES
    wait = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** min(tries - 1, 20))
    rows.filter(pk=pk, state=DeliveryState.PENDING).update(
        state=DeliveryState.FAILED if given_up else DeliveryState.PENDING,
        due_at=now + dt.timedelta(seconds=wait),
        last_error=(str(error) or type(error).__name__)[:LONGEST_ERROR],
    )
    return given_up
