"""What is out of the pool and drills over the API: thin, through ledger.dwell, ledger.cases and scheduler.drills."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from django.http import Http404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import cases, dwell
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Card, Case, Hold, Node, NodeZone
from ledger.reasons import LONGEST_REASON
from portal.api import health_out_answers as answers
from portal.api.fields import Choice, Instant, StrictBoolean, Text
from portal.api.filters import flag
from portal.api.listing import ID_LIMIT, PAGING, Listing, Reading, request_id
from portal.api.serializers import Strict
from scheduler import drills, service
from scheduler.drill_rows import Drill
from scheduler.drills import LONGEST_TARGET_S, Targets, usual_targets

WRITERS: Final[dict[str, Any]] = {
    "done": cases.mark_done,
    "test": cases.test_again,
    "release": service.release,
    "scrap": cases.scrap,
}


class CaseActInput(Strict):
    act = Choice(list(WRITERS))
    reason = Text(max_length=LONGEST_REASON, multiline=True)


def _seconds() -> serializers.FloatField:
    return serializers.FloatField(required=False, min_value=0.001, max_value=LONGEST_TARGET_S)


class DrillInput(Strict):
    """Of one node or one card; without a time now; without targets those of the settings."""

    node = Text(required=False, max_length=253)
    card = Text(required=False, max_length=100)
    due_at = Instant(required=False)
    drain = StrictBoolean(default=False)
    hold_s, avoid_s, alert_s, return_s = _seconds(), _seconds(), _seconds(), _seconds()
    reason = Text(max_length=LONGEST_REASON, multiline=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("node" in attrs) == ("card" in attrs):
            raise serializers.ValidationError({"node": _("Name one node or one card.")})
        for name, model, key in (("node", Node, "hostname"), ("card", Card, "uuid")):
            if name in attrs:
                found = model.objects.filter(**{key: attrs[name]}).first()  # type: ignore[attr-defined]
                if found is None:
                    raise serializers.ValidationError({name: _("There is no such %(thing)s.") % {"thing": name}})
                attrs[name] = found
        return attrs

    @property
    def targets(self) -> Targets:
        usual, data = usual_targets(), self.validated_data
        names = ("hold_s", "avoid_s", "alert_s", "return_s")
        return Targets(*(data.get(name, getattr(usual, name)) for name in names))


class AbortInput(Strict):
    reason = Text(max_length=LONGEST_REASON, multiline=True)


def _watchers_only(request: Request) -> None:
    if not request.user.sees_everything and not request.user.operates_somewhere:
        raise PermissionDenied


def _operators_only(request: Request) -> None:
    if not request.user.operates_somewhere:
        raise PermissionDenied


@extend_schema(tags=["health"])
class Outs(Listing):
    parameters = PAGING | {"simulated"}
    queryset = Hold.objects.none()

    @extend_schema(
        operation_id="out_list",
        summary="What is out of the pool, what it waits for and who must act, newest first",
        parameters=[OpenApiParameter("simulated", bool)],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        _watchers_only(request)
        rows, simulated = dwell.visible_holds(request.user), flag(request, "simulated")
        if simulated is not None:
            rows = rows.filter(simulated=simulated)
        return self.page(rows, lambda page: [answers.out(one) for one in dwell.outs(page, database_now())])


@extend_schema(tags=["health"])
class CaseDetail(Reading):
    @extend_schema(summary="One case with its evidence and orders", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(answers.case(_case(request, pk), database_now()))


@extend_schema(tags=["health"])
class CaseActs(Reading):
    serializer_class = CaseActInput

    @extend_schema(
        summary="Say that an inspection is done, test again, release or scrap",
        request=CaseActInput,
        responses=OpenApiTypes.OBJECT,
    )
    def post(self, request: Request, pk: int) -> Response:
        _operators_only(request)
        case = _case(request, pk)
        data = CaseActInput(data=request.data)
        data.is_valid(raise_exception=True)
        said = Act(request.user, "api", data.validated_data["reason"], request_id(request))
        WRITERS[data.validated_data["act"]](case_id=case.pk, act=said)
        return Response(answers.case(_case(request, pk), database_now()))


def _case(request: Request, pk: int) -> Case:
    _watchers_only(request)
    rows = dwell.visible_cases(request.user).select_related("node", "card", "hold", "hold__by", "fault")
    found = rows.filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404
    return found


@extend_schema(tags=["health"])
class Drills(Listing):
    serializer_class = DrillInput
    queryset = Drill.objects.none()

    @extend_schema(operation_id="drills_list", summary="Drills, newest first", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        now = database_now()
        return self.page(_drills(request), lambda page: [answers.drill(one, now) for one in page])

    @extend_schema(summary="Plan a drill of one card or node", request=DrillInput, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request) -> Response:
        _operators_only(request)
        data = DrillInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        drill = drills.plan_drill(
            act=Act(request.user, "api", values["reason"], request_id(request)),
            node=values.get("node"),
            card=values.get("card"),
            due_at=values.get("due_at"),
            drain=values["drain"],
            targets=data.targets,
        )
        where = {"Location": f"/api/v1/health/drills/{drill.pk}/"}
        body = answers.drill(_drill(request, drill.pk), database_now())
        return Response(body, status=status.HTTP_201_CREATED, headers=where)


@extend_schema(tags=["health"])
class DrillDetail(Reading):
    @extend_schema(summary="One drill with its times and verdict", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(answers.drill(_drill(request, pk), database_now()))


@extend_schema(tags=["health"])
class DrillAbort(Reading):
    serializer_class = AbortInput

    @extend_schema(summary="Abort a drill; nothing of it stays", request=AbortInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        _operators_only(request)
        drill = _drill(request, pk)
        data = AbortInput(data=request.data)
        data.is_valid(raise_exception=True)
        said = Act(request.user, "api", data.validated_data["reason"], request_id(request))
        drills.abort_drill(drill_id=drill.pk, act=said)
        return Response(answers.drill(_drill(request, pk), database_now()))


def _drills(request: Request) -> QuerySet[Drill]:
    _watchers_only(request)
    rows = Drill.objects.select_related("node", "card", "zone", "by")
    if request.user.sees_everything:
        return rows
    here = NodeZone.objects.filter(zone__in=request.user.operated_zones, period__upper_inf=True)
    return rows.filter(node__in=here.values("node"))


def _drill(request: Request, pk: int) -> Drill:
    found = _drills(request).filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404
    return found
