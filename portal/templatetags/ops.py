"""Template tags of the operators' pages: causes of waiting, kinds of drift, ages. Nothing here reads the database."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import template

from portal import ops_words
from portal.labels import Text
from portal.templatetags.ui import duration

register = template.Library()


@register.filter
def cause(word: str) -> Text:
    return ops_words.cause(word)


@register.filter
def age(since: dt.datetime | None, now: dt.datetime) -> str:
    """How long ago, in two parts at most; a dash when there is no moment."""
    return duration(None if since is None else (now - since).total_seconds())


@register.inclusion_tag("partials/look.html")
def drift_look(kind: str) -> dict[str, Any]:
    """`{% drift_look row.kind %}`"""
    return {"look": ops_words.drift(kind)}
