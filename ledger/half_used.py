"""Cards that somebody holds whole and leaves half idle while others wait: found from the hours of cards, or told of one
job from its own samples. Reads only; nothing is taken from anybody. The numbers of the rule stand here alone.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

HELD_FOR: Final = dt.timedelta(minutes=30)
LOOKED_BACK: Final = dt.timedelta(hours=24)
LEAST_LOAD: Final = 40  # percent, mean
LEAST_MEMORY: Final = 50  # percent of the card, at its highest
STEP_MIB: Final = 1024
SPARE: Final = 1.2  # of the highest use, in what is proposed


@dataclass(frozen=True)
class HalfUsed:
    """A job that holds `cards` whole cards of `card_memory_mib`. Percents are None when no sample tells."""

    job_id: int
    cards: int
    card_memory_mib: int
    since: dt.datetime
    load: float | None  # mean, percent
    memory: float | None  # the highest of any card, percent of its memory

    @property
    def enough_mib(self) -> int | None:
        """What would have been enough on each card, with a fifth to spare, in whole GiB; None when it isn't known or
        the whole card is."""
        if self.memory is None:
            return None
        wanted = self.memory / 100 * self.card_memory_mib * SPARE
        rounded = max(STEP_MIB, -int(-wanted // STEP_MIB) * STEP_MIB)
        return rounded if rounded < self.card_memory_mib else None


def is_half_used(held: dt.timedelta, load: float | None, memory: float | None) -> bool:
    """What isn't known is not held against anybody."""
    if held <= HELD_FOR:
        return False
    return (load is not None and load < LEAST_LOAD) or (memory is not None and memory < LEAST_MEMORY)


FIND: Final = """
WITH held AS (
  SELECT t.job_id, s.card_id, s.card_memory_mib, lower(s.period) AS since
  FROM ledger_cardshare s JOIN ledger_allocation a ON a.id = s.allocation_id
    JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id
  WHERE upper_inf(s.period) AND s.memory_mib = s.card_memory_mib AND lower(s.period) < %(before)s
    AND j.simulated = %(simulated)s
)
SELECT held.job_id, count(DISTINCT held.card_id), max(held.card_memory_mib), min(held.since),
  sum(h.utilisation_pct[2] * h.samples) / sum(h.samples) FILTER (WHERE h.utilisation_pct IS NOT NULL) AS load,
  max(100 * h.memory_used_mib[3] / held.card_memory_mib) AS memory
FROM held JOIN ledger_cardhour h ON h.card_id = held.card_id AND h.hour >= greatest(held.since, %(after)s)
GROUP BY held.job_id
HAVING sum(h.utilisation_pct[2] * h.samples) / sum(h.samples) FILTER (WHERE h.utilisation_pct IS NOT NULL) < %(load)s
  OR max(100 * h.memory_used_mib[3] / held.card_memory_mib) < %(memory)s
"""


def find(*, simulated: bool, now: dt.datetime) -> dict[int, HalfUsed]:
    """Running jobs by number, judged by the whole hours of the last day in which they held their cards; a job is among
    them after its first whole hour that is summed up."""
    values: dict[str, Any] = {
        "before": now - HELD_FOR,
        "after": now - LOOKED_BACK,
        "simulated": simulated,
        "load": LEAST_LOAD,
        "memory": LEAST_MEMORY,
    }
    with connection.cursor() as cursor:
        cursor.execute(FIND, values)
        return {row[0]: HalfUsed(*row) for row in cursor.fetchall()}
