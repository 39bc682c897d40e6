"""JSON fields that take exactly their own type and refuse what PostgreSQL, a kernel or a terminal could trip over.

Sizes are checked before the items, so that a long list costs nothing. No field echoes its input in an error.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LINE_BREAK = re.compile("[\t\n\u2028\u2029]")
BIDI_CONTROL = re.compile("[\u202a-\u202e\u2066-\u2069]")  # they make a text read as another one
EARLIEST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # a node without a battery clock starts here
LATEST = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
DEEPEST_FACTS = 4
MOST_FACTS = 20_000


class WholeNumber(serializers.IntegerField):
    """A JSON integer; not true, not "3", not 3.0."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            raise serializers.ValidationError(_("Give a whole number."), code="invalid")
        value: int = super().to_internal_value(data)
        return value


class Text(serializers.CharField):
    """A JSON string without control characters, on one line unless `multiline`."""

    def __init__(self, *, multiline: bool = False, **values: Any) -> None:
        super().__init__(**values)
        self.multiline = multiline

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if isinstance(data, str) and not self.allow_blank and data and not has_visible(data):
            self.fail("blank")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(_("Give a text."), code="invalid")
        if CONTROL.search(data) or BIDI_CONTROL.search(data):
            raise serializers.ValidationError(_("Control characters (such as NUL) are not allowed."), code="control")
        value: str = super().to_internal_value(data)
        if not self.multiline and LINE_BREAK.search(value):
            raise serializers.ValidationError(_("Give one line."), code="line_break")
        return value


def has_visible(text: str) -> bool:
    """Whether anything of a text can be seen: not only spaces, joiners and other formatting."""
    return any(unicodedata.category(c)[0] not in "ZC" for c in text)


class StrictBoolean(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            raise serializers.ValidationError(_("Give true or false."), code="invalid")
        return data


class Argument(Text):
    """A command argument or the value of a variable: anything but NUL."""

    def __init__(self, **values: Any) -> None:
        super().__init__(allow_blank=True, trim_whitespace=False, **values)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(_("Give a text."), code="invalid")
        if "\x00" in data:
            raise serializers.ValidationError(_("NUL is not allowed."), code="control")
        return data


class Choice(serializers.ChoiceField):
    """One of a few words; the error lists them."""

    def __init__(self, choices: Iterable[str], **values: Any) -> None:
        super().__init__(list(choices), **values)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            known = ", ".join(word or '""' for word in self.choices)
            raise serializers.ValidationError(_("Known are: %(known)s.") % {"known": known}, code="invalid_choice")
        return data


class Items(serializers.ListField):
    """A list of at most `most` items."""

    def __init__(self, *, most: int, **values: Any) -> None:
        super().__init__(**values)
        self.most = most

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list) and len(data) > self.most:
            raise serializers.ValidationError(_("Give at most %(n)d.") % {"n": self.most}, code="max_length")
        value: list[Any] = super().to_internal_value(data)
        return value


class Instant(serializers.DateTimeField):
    """A point in time with its offset, between 1970 and 2200."""

    def to_internal_value(self, value: Any) -> dt.datetime:
        try:
            moment = parse_datetime(value) if isinstance(value, str) and value.isascii() else None
            moment = moment.astimezone(dt.UTC) if moment is not None and moment.tzinfo is not None else None
        except (ValueError, OverflowError):
            moment = None
        if moment is None:
            raise serializers.ValidationError(
                _("Give a time with its offset, such as 2026-01-31T08:00:00Z."), code="invalid"
            )
        if not EARLIEST <= moment < LATEST:
            raise serializers.ValidationError(_("This time lies outside 1970 to 2199."), code="invalid")
        return moment


class Facts(serializers.JSONField):
    """A small JSON value of one kind that is stored as it is."""

    def __init__(self, kind: type, **values: Any) -> None:
        super().__init__(**values)
        self.kind = kind

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, self.kind) or not _is_small(data):
            raise serializers.ValidationError(
                _("Give a flat JSON value of the right kind without NUL."), code="invalid"
            )
        return data


def _is_small(data: Any) -> bool:
    """At most a few levels and some thousand values, and nothing that jsonb refuses."""
    stack, seen = [(data, 1)], 0
    while stack:
        item, depth = stack.pop()
        seen += 1
        if depth > DEEPEST_FACTS or seen > MOST_FACTS or (isinstance(item, str) and "\x00" in item):
            return False
        if isinstance(item, dict):
            stack += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            stack += [(part, depth + 1) for part in item]
    return True
