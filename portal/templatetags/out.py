"""Template tags of what is out of the pool and of drills. Nothing here reads the database."""

from __future__ import annotations

from typing import Any

from django import template

from portal import out_words
from portal.labels import Text

register = template.Library()


@register.inclusion_tag("partials/look.html")
def out_look(table: str, value: str) -> dict[str, Any]:
    """`{% out_look "case" case.state %}`"""
    return {"look": out_words.look(table, value)}


@register.simple_tag
def out_word(table: str, value: str) -> Text:
    """`{% out_word "need" case.need %}`"""
    return out_words.word(table, value)


@register.filter
def told(text: str | None) -> str:
    return out_words.told(text or "")


@register.filter
def seconds(value: float | None) -> str:
    """Measured seconds: two decimals below ten, one below a hundred."""
    if value is None:
        return "—"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
