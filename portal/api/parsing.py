"""JSON in, strictly: no NaN, no repeated keys, no absurd depth, numbers that PostgreSQL can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

DEEPEST = 32  # levels; a job has 4


def _no_constant(name: str) -> Any:
    raise ParseError(_("%(name)s is not a number that JSON allows.") % {"name": name})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ParseError(_("The key %(key)s stands twice.") % {"key": repr(key[:100])})
        result[key] = value
    return result


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self) -> None:
        super().__init__(_("The body is larger than %(n)d bytes.") % {"n": settings.DATA_UPLOAD_MAX_MEMORY_SIZE})


class StrictJSONParser(JSONParser):
    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            value = json.loads(_text(stream), parse_constant=_no_constant, object_pairs_hook=_unique)
            return _checked(value)
        except RecursionError:
            raise ParseError(_("The JSON is nested too deeply.")) from None
        except ValueError as error:
            raise ParseError(_("This is not valid JSON: %(error)s") % {"error": str(error)[:200]}) from None


def _text(stream: IO[Any]) -> str:
    """The body, read no further than the limit: Django checks it only where it reads the body itself."""
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    data: bytes = stream.read(limit + 1)
    if len(data) > limit:
        raise TooLarge
    return data.decode("utf-8")


def _checked(value: Any) -> Any:
    """Refuse depth, lone surrogates and infinite numbers, which Python reads but PostgreSQL can't store."""
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if depth > DEEPEST:
            raise ParseError(_("The JSON is nested too deeply."))
        if isinstance(item, str):
            item.encode("utf-8")
        elif isinstance(item, float) and item in (float("inf"), float("-inf")):
            raise ParseError(_("A number is too large."))
        elif isinstance(item, dict):
            stack.extend((part, depth + 1) for pair in item.items() for part in pair)
        elif isinstance(item, list):
            stack.extend((part, depth + 1) for part in item)
    return value
