"""The window in which the effect of a change of a grant or ceiling is observed: QUOTA_WINDOW_HOURS from when one of
these rows last began or ended. A further change before then needs an override with a reason of its own.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from ledger import limits
from ledger.errors import Conflict


def changed_at(rows: Any, now: dt.datetime) -> dt.datetime | None:
    """When one of these rows, a queryset, last began or ended."""
    ends = [at for period in rows.values_list("period", flat=True) for at in (period.lower, period.upper)]
    return max((at for at in ends if at is not None and at <= now), default=None)


def observed_until(rows: Any, now: dt.datetime) -> dt.datetime | None:
    """Until when the effect of the last change is observed; None when no change is."""
    return until_of(changed_at(rows, now), now)


def until_of(last: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
    until = last + dt.timedelta(hours=settings.QUOTA_WINDOW_HOURS) if last else None
    return until if until and until > now else None


def window_text(until: dt.datetime) -> str:
    """What is refused, why, until when, and what would change it."""
    text = _(
        "This quota was changed not long ago and its effect is observed until %(until)s. A further change before then "
        "needs an override with a reason of its own."
    )
    return text % {"until": limits.told(until)}


def check_window(rows: Any, override: str, now: dt.datetime) -> bool:
    """Whether `override` is needed; Conflict when it is and is not there."""
    until = observed_until(rows, now)
    if until is not None and not override:
        raise Conflict(window_text(until), field="override_reason", code="observation_window")
    return until is not None
