"""Words of the health pages in templates. Nothing here reads the database."""

from __future__ import annotations

from typing import Any

from django import template

from portal import health_policy_words, health_words
from portal.health_words import Health, Meaning

register = template.Library()


@register.inclusion_tag("partials/look.html")
def health_look(health: int) -> dict[str, Any]:
    """`{% health_look row.health %}`"""
    return {"look": health_words.LOOKS[Health(health)]}


@register.filter
def fault_name(fault: Any) -> str:
    return health_words.fault_name(fault.kind, fault.code)


@register.filter
def checkbox(choice: Any) -> str:
    """The box of one choice of a field, without its text."""
    return choice.tag()  # type: ignore[no-any-return]


@register.filter
def rule_note(text: str) -> str:
    return health_policy_words.note(text)


@register.filter
def quality(kind: str) -> Meaning:
    return health_words.quality(kind)


@register.filter
def percent(value: float | str | None, decimals: int = 0) -> str:
    """A dash when it is not known, which is not 0; "" is what a template makes of a part of None."""
    return f"{value:.{decimals}f}" if isinstance(value, int | float) else "—"
