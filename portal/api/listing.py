"""What the views of the API share: query parameters that are checked, and cursor-paged lists."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.filters import check_names

PAGING = frozenset({"cursor", "page_size"})
ID_LIMIT = 2**63


def request_id(request: Request) -> str:
    return str(getattr(request._request, "request_id", ""))


class Reading(APIView):
    """A view that takes the query parameters in `parameters` and refuses others."""

    parameters: frozenset[str] = frozenset()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        check_names(request, self.parameters)


class Listing(Reading, GenericAPIView[Any]):
    """A cursor-paged list whose rows come from `answer`."""

    parameters = PAGING

    def page(self, rows: QuerySet[Any], answer: Any) -> Response:
        found = self.paginate_queryset(rows)
        return self.get_paginated_response(answer(found or []))
