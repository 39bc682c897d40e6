"""The words of what a request changes: its fields and their values, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import pgettext_lazy

from ledger.models import ProjectRequest
from ledger.request_kinds import changes
from ledger.vocabulary import RequestKind
from portal import labels, quota_words
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
    "model": pgettext_lazy("field", "card model"),
}


def change_rows(request: ProjectRequest) -> list[tuple[Text, Any, Any]]:
    """(field, before, after) of what an approval changes, or has changed, in the language of this moment."""
    if request.kind == RequestKind.QUOTA:
        return [_quota_row(request)]
    return [
        (FIELDS.get(name, name), _value(name, before), _value(name, after)) for name, before, after in changes(request)
    ]


def _quota_row(request: ProjectRequest) -> tuple[Text, Any, Any]:
    """One row: the resource, with the limit before and after in people's units."""
    details = request.details
    resource, model = details["resource"], details.get("model") or ""
    amounts = {name: before for name, before, _after in changes(request)}
    before = amounts.get("amount", details["amount"])
    label = labels.text("resource", resource) + (f" ({model})" if model else "")
    return label, quota_words.told(resource, before), quota_words.told(resource, details["amount"])


def _value(name: str, value: Any) -> Any:
    return labels.text("project_role", value) if name == "role" and value else value
