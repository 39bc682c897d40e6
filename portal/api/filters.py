"""Query parameters, checked: a bad one is a 400 that names it, never ignored and never a 500."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from ledger.clock import database_now
from portal.typed import whole

LONGEST_WINDOW = dt.timedelta(days=3 * 366)
LONGEST_NUMBER = 15  # digits
EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


def check_names(request: Request, known: Iterable[str]) -> None:
    """A parameter that the address does not know is named, not ignored: it may be a misspelt filter."""
    allowed = {*known, "format"}  # the framework's own
    for name in request.query_params:
        if name not in allowed:
            text = ", ".join(sorted(allowed - {"format"})) or "–"
            raise ValidationError(
                {name[:100]: _("There is no such parameter; known are: %(known)s.") % {"known": text}}
            )


def clean_text(request: Request, name: str) -> str | None:
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise ValidationError({name: _("Give this parameter once.")})
    value = values[0] if values else ""
    if value == "":
        return None
    if "\x00" in value or len(value) > 300:
        raise ValidationError({name: _("Give at most 300 characters without NUL.")})
    return value


def choice(request: Request, name: str, known: Sequence[str]) -> str | None:
    value = clean_text(request, name)
    if value is not None and value not in list(known):
        raise ValidationError({name: _("Known are: %(known)s.") % {"known": ", ".join(known)}})
    return value


def flag(request: Request, name: str) -> bool | None:
    value = clean_text(request, name)
    if value is None:
        return None
    if value.lower() in {"true", "1"}:
        return True
    if value.lower() in {"false", "0"}:
        return False
    raise ValidationError({name: _("Give true or false.")})


def whole_number(request: Request, name: str, default: int | None) -> int | None:
    value = clean_text(request, name)
    if value is None:
        return default
    number = whole(value, LONGEST_NUMBER)
    if number is None:
        raise ValidationError({name: _("Give a whole number from 0 on.")})
    return number


def window(request: Request) -> tuple[dt.datetime, dt.datetime]:
    """`from` and `to` with offset; default the last 24 hours. What lies in the future is cut off at now."""
    now = database_now()
    end = min(_moment(request, "to") or now, now)
    start = _moment(request, "from") or end - dt.timedelta(days=1)
    if start >= end:
        raise ValidationError({"from": _("“from” must lie before “to” and before now.")})
    if end - start > LONGEST_WINDOW:
        raise ValidationError({"from": _("The window is longer than three years.")})
    return start, end


def _moment(request: Request, name: str) -> dt.datetime | None:
    value = clean_text(request, name)
    if value is None:
        return None
    try:
        moment = parse_datetime(value.replace(" ", "+")) if value.isascii() else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValidationError({name: _("Give a time with its offset, such as 2026-01-31T08:00:00Z.")})
    try:
        moment = moment.astimezone(dt.UTC)
    except OverflowError:
        moment = dt.datetime.min.replace(tzinfo=dt.UTC)
    if moment < EARLIEST:
        raise ValidationError({name: _("Times before the year 2000 are not kept.")})
    return moment
