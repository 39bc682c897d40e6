"""The calendar of budgets that renew: months, quarters and years of UTC. Pure; the database works out the same
(ledger_counted_since)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from ledger.vocabulary import Renewal

MONTHS: Final[Mapping[str, int]] = {Renewal.MONTH: 1, Renewal.QUARTER: 3, Renewal.YEAR: 12}
MONTHS_OF_A_YEAR: Final = 12


def began(renews: str, at: dt.datetime) -> dt.datetime | None:
    """The start of the period that `at` lies in; None for what does not renew."""
    return _start(renews, at, 0) if renews else None


def next_start(renews: str, at: dt.datetime) -> dt.datetime | None:
    """When the next period begins."""
    return _start(renews, at, 1) if renews else None


def before(renews: str, at: dt.datetime, count: int) -> list[tuple[dt.datetime, dt.datetime]]:
    """The last so many whole periods before the one of `at`, the newest first."""
    starts = [_start(renews, at, -number) for number in range(count + 1)]
    return [(start, end) for end, start in pairwise(starts)]


def _start(renews: str, at: dt.datetime, later: int) -> dt.datetime:
    utc, length = at.astimezone(dt.UTC), MONTHS[renews]
    month = (utc.year * MONTHS_OF_A_YEAR + utc.month - 1) // length * length + later * length
    return dt.datetime(month // MONTHS_OF_A_YEAR, month % MONTHS_OF_A_YEAR + 1, 1, tzinfo=dt.UTC)
