"""Jobs that hardware hit: ended, so that they are tried again elsewhere, and what they used is refunded. What is to be
done stands in HealthEvent rows; each look works it off anew, so that it may be cut off or run twice anywhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

from ledger import health, refunds
from ledger.models import HealthEvent
from ledger.vocabulary import Outcome
from scheduler.ending import end_attempt

log = logging.getLogger(__name__)
AT_ONCE: Final = 500


def follow_all() -> dict[str, Any]:
    """One look, for the periodic task."""
    counts = Counter[str]()
    for event in health.to_do(AT_ONCE):
        try:
            counts["ended"] += end_hit(event)
            counts["events"] += 1
        except Exception:  # whatever an odd row brings: the others go on, and the next look tries it again
            log.exception("what fault event %s hit can't be ended", event.pk)
            counts["failed"] += 1
    counts["refunded"] += refunds.refund_due()
    return dict(counts)


def end_hit(event: HealthEvent) -> int:
    """End what one event hit. Returns how many attempts this call began to close."""
    attempts = health.attempts_hit(event)
    ended = [pk for pk in attempts if end_attempt(attempt_id=pk, outcome=Outcome.HARDWARE, message=_why(event))]
    health.note_done(event_id=event.pk, attempts=attempts)
    return len(ended)


def _why(event: HealthEvent) -> str:
    where = f"card {event.card.uuid}" if event.card is not None else f"node {event.node.hostname}"
    return f"{where}: {event.rule} (health policy {event.version}); it is tried again elsewhere and refunded"
