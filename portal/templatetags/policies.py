"""Words of policies in templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from portal import policy_words
from scheduler.policy_rows import JobPolicy

register = template.Library()


@register.simple_tag
def policy_scope(policy: JobPolicy) -> str:
    """Whose jobs it is about."""
    return policy_words.scope(policy)


@register.filter
def policy_value(line: Mapping[str, Any]) -> str:
    """What a policy made of a thing of a job: a line of portal.api.policy_answers."""
    return policy_words.value(line["field"], line["now"], {})


@register.filter
def policy_thing(field: str) -> str:
    return str(policy_words.OF_A_JOB.get(field, field))


@register.filter
def policy_whose(source: Mapping[str, Any]) -> str:
    """As policy_scope, of what portal.api.policy_answers tells."""
    return policy_words.scope_of(source["project"], source["department"], source["kind"] or "")
