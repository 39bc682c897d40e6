"""What agents report. What is refused as a whole is counted all the same, so that it can be seen who sends what."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import quality, telemetry
from ledger.models import Node
from ledger.telemetry import Receipt
from ledger.vocabulary import QualityKind
from portal.api.auth import AgentAuthentication, IsAgent
from portal.api.listing import Reading
from portal.api.serializers import ReportInput
from portal.api.throttles import first_of_the_minute
from scheduler.wake import ring

# a flood is counted by minutes: what comes in one must not make the database do more
REFUSED: Final = {
    status.HTTP_400_BAD_REQUEST: QualityKind.MALFORMED,
    status.HTTP_401_UNAUTHORIZED: QualityKind.UNKNOWN_TOKEN,
    status.HTTP_413_REQUEST_ENTITY_TOO_LARGE: QualityKind.TOO_LARGE,
    status.HTTP_429_TOO_MANY_REQUESTS: QualityKind.FLOOD,
}


class WrongNode(PermissionDenied):
    pass


@extend_schema(tags=["agents"])
class AgentReports(Reading):
    authentication_classes = [AgentAuthentication]
    permission_classes = [IsAgent]

    @extend_schema(summary="A node agent's report", request=ReportInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        node = request.auth
        assert isinstance(node, Node)  # noqa: S101  IsAgent said so
        data = ReportInput(data=request.data)
        data.is_valid(raise_exception=True)
        report = data.validated_data
        if report["hostname"] != node.hostname:
            raise WrongNode(_("This token belongs to another node."))
        receipt = telemetry.ingest(node, report)
        if receipt.faults:
            ring("scheduler.health")
        return Response(_answer(receipt))

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if isinstance(exc, APIException):
            _count_refused(self.request, exc, response.status_code)
        return response


def _answer(receipt: Receipt) -> dict[str, Any]:
    answer: dict[str, Any] = {"accepted": receipt.accepted, "faults": receipt.faults, "note": receipt.note}
    if receipt.repeated:
        answer["repeated"] = True
    if receipt.foreign:
        answer["refused_cards"] = list(receipt.foreign)
        answer["note"] = _("These cards sit in another node that still reports them; what you say of them is left out.")
    if receipt.set_aside:
        answer["set_aside"] = [{"card": one.card, "field": one.field, "value": one.value} for one in receipt.set_aside]
    return answer


def _count_refused(request: Request, error: APIException, answered: int) -> None:
    node = request.auth if isinstance(request.auth, Node) else None
    kind = QualityKind.WRONG_NODE if isinstance(error, WrongNode) else REFUSED.get(answered)
    if kind is None or (kind == QualityKind.FLOOD and not first_of_the_minute(f"flood:{node.pk if node else ''}")):
        return
    quality.count(node.pk if node else None, kind, type(error).__name__)
