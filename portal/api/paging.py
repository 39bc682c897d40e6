"""Cursor pagination: stable while rows arrive. Newest first."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from portal.api.filters import clean_text, whole_number

LARGEST_ID = 2**63 - 1


class NewestFirst(CursorPagination):
    ordering = "-id"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500

    def paginate_queryset(self, queryset: QuerySet[Any], request: Request, view: Any = None) -> list[Any] | None:
        if whole_number(request, "page_size", self.page_size) == 0:
            raise ValidationError({"page_size": _("Give a whole number from 1 on.")})
        clean_text(request, "cursor")
        return super().paginate_queryset(queryset, request, view)

    def decode_cursor(self, request: Request) -> Any:
        """The framework's cursor, with its position checked: it is an id in disguise, and people can change it."""
        try:
            cursor = super().decode_cursor(request)
        except NotFound:
            cursor = None
            wrong = True
        else:
            position = cursor.position if cursor is not None else None
            wrong = position is not None and not _is_id(position)
        if wrong:
            raise ValidationError({"cursor": _("This is no cursor that a list gave out.")})
        return cursor


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST_ID
