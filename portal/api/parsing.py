"""JSON in, strictly: no NaN, no repeated keys, no absurd depth, numbers that PostgreSQL can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


def _no_constant(name: str) -> Any:
    raise ParseError(_("%(name)s is not a number that JSON allows.") % {"name": name})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ParseError(_("The key %(key)s stands twice.") % {"key": repr(key[:100])})
        result[key] = value
    return result


class StrictJSONParser(JSONParser):
    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            text = stream.read().decode("utf-8")
            value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
            text.encode("utf-8", "strict")
            return _checked(value)
        except RecursionError:
            raise ParseError(_("The JSON is nested too deeply.")) from None
        except ValueError as error:
            raise ParseError(_("This is not valid JSON: %(error)s") % {"error": str(error)[:200]}) from None


def _checked(value: Any) -> Any:
    """Refuse lone surrogates and infinite numbers, which Python reads but PostgreSQL can't store."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            item.encode("utf-8")
        elif isinstance(item, float) and item in (float("inf"), float("-inf")):
            raise ParseError(_("A number is too large."))
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return value
