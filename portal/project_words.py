"""The words of what a request changes: its fields and their values, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import pgettext_lazy

from ledger.models import ProjectRequest
from ledger.request_kinds import changes
from portal import labels
from portal.labels import Text

FIELDS: Final[Mapping[str, Text]] = {
    "slug": pgettext_lazy("field", "short name"),
    "title": pgettext_lazy("field", "title"),
    "purpose": pgettext_lazy("field", "what it is for"),
    "cost_centre": pgettext_lazy("field", "cost centre"),
    "department": pgettext_lazy("field", "department"),
    "starts_on": pgettext_lazy("field", "first day"),
    "ends_on": pgettext_lazy("field", "last day"),
    "role": pgettext_lazy("field", "role"),
}


def change_rows(request: ProjectRequest) -> list[tuple[Text, Any, Any]]:
    """(field, before, after) of what an approval changes, or has changed, in the language of this moment."""
    return [
        (FIELDS.get(name, name), _value(name, before), _value(name, after)) for name, before, after in changes(request)
    ]


def _value(name: str, value: Any) -> Any:
    return labels.text("project_role", value) if name == "role" and value else value
