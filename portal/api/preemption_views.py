"""Pre-emption over the API: what would be done, for whom nodes are kept, what was done. Reads only; each reader is told
what concerns jobs that they may see.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.clock import database_now
from portal.api import preemption
from portal.api.listing import Reading
from portal.api.views import job_of


@extend_schema(tags=["jobs"])
class Preemptions(Reading):
    @extend_schema(
        summary="Whom the next round would stop for whom, for whom nodes are kept now, and who was stopped lately",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        user: Any = request.user
        return Response(
            {
                "at": database_now().isoformat(),
                "next_round": preemption.next_round_answer(user),
                "claims": preemption.claim_answers(user),
                "lately": preemption.lately_answers(user),
            }
        )


@extend_schema(tags=["jobs"])
class JobPreemption(Reading):
    @extend_schema(
        summary="Whom the next round would stop for a waiting job; for whom a running one may be stopped",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, pk: int) -> Response:
        return Response(preemption.job_answer(job_of(request, pk), request.user))
