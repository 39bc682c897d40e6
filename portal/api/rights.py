"""Extra rights in the API: who operates one zone or audits one department until when; given and withdrawn by admins."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound, PermissionDenied
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import odd_grants, roles
from ledger.clock import database_now
from ledger.models import Department, OddGrant, Zone
from ledger.reasons import LONGEST_REASON
from portal import odd_grant_rows
from portal.api.fields import Instant, Text
from portal.api.filters import clean_text
from portal.api.listing import PAGING, Listing, Reading
from portal.api.project_inputs import DepartmentName, Person
from portal.api.projects import act_of, taken
from portal.api.serializers import Strict

ID_LIMIT = 2**63


class ZoneName(Text):
    """The short name of a zone."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        found = Zone.objects.filter(slug=super().run_validation(data)).first()
        if found is None:
            raise serializers.ValidationError(_("There is no such zone."), code="unknown")
        return found


class RightInput(Strict):
    """A zone or a department, one of the two."""

    user = Person()
    zone = ZoneName(required=False, max_length=50)
    department = DepartmentName(required=False, max_length=50)
    until = Instant()
    reason = Text(max_length=LONGEST_REASON, multiline=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("zone" in attrs) == ("department" in attrs):
            raise serializers.ValidationError({"zone": _("Choose a zone or a department, one of the two.")})
        return attrs

    @property
    def place(self) -> Zone | Department:
        found: Zone | Department = self.validated_data.get("zone") or self.validated_data["department"]
        return found


class EndRightInput(Strict):
    reason = Text(max_length=LONGEST_REASON, multiline=True)


def right_answer(grant: OddGrant, now: dt.datetime) -> dict[str, Any]:
    return {
        "id": grant.pk,
        "user": grant.user.username,
        "kind": grant.kind,
        "zone": grant.zone.slug if grant.zone else None,
        "department": grant.department.slug if grant.department else None,
        "since": grant.period.lower.isoformat(),
        "until": grant.period.upper.isoformat(),
        "state": odd_grant_rows.row_of(grant, now).standing,
        "reason": grant.reason,
        "by": grant.by.username,
        "withdrawn_by": grant.withdrawn_by.username if grant.withdrawn_by else None,
    }


def _answers(grants: Sequence[OddGrant]) -> list[dict[str, Any]]:
    now = database_now()
    return [right_answer(grant, now) for grant in grants]


def _seen(request: Request, pk: int) -> OddGrant:
    if pk >= ID_LIMIT:
        raise NotFound
    found: OddGrant = get_object_or_404(odd_grant_rows.seen_by(request.user), pk=pk)
    return found


def _require_admin(request: Request) -> None:
    if not roles.is_admin(request.user):
        raise PermissionDenied(_("Only site admins give and take extra rights."))


@extend_schema(tags=["people"])
class Rights(Listing):
    parameters = PAGING | {"user"}
    serializer_class = RightInput
    queryset = OddGrant.objects.none()

    @extend_schema(
        operation_id="rights_list",
        summary="Extra rights that you may see, ended ones too, newest first",
        parameters=[OpenApiParameter("user", str)],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = odd_grant_rows.seen_by(request.user)
        if name := clean_text(request, "user"):
            rows = rows.filter(user__username=name)
        return self.page(rows, _answers)

    @extend_schema(summary="Give one (site admins)", responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request) -> Response:
        _require_admin(request)
        data = taken(RightInput, request)
        given = data.validated_data
        made = odd_grants.give(
            user=given["user"], place=data.place, until=given["until"], act=act_of(request, given["reason"])
        )
        where = {"Location": f"/api/v1/rights/{made.pk}/"}
        answer = right_answer(_seen(request, made.pk), database_now())
        return Response(answer, status.HTTP_201_CREATED, headers=where)


@extend_schema(tags=["people"])
class RightDetail(Reading):
    @extend_schema(summary="One extra right", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(right_answer(_seen(request, pk), database_now()))


@extend_schema(tags=["people"])
class RightWithdrawal(Reading):
    @extend_schema(summary="End one now (site admins)", request=EndRightInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        grant = _seen(request, pk)
        _require_admin(request)
        data = taken(EndRightInput, request).validated_data
        odd_grants.withdraw(grant=grant, act=act_of(request, data["reason"]))
        return Response(right_answer(_seen(request, pk), database_now()))
