"""The views of machines: nodes, cards, zones, holds and mismatches. Thin, as portal.api.views."""

from __future__ import annotations

from django.db.models import Q
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import holds
from ledger.clock import database_now
from ledger.models import Card, Hold, Job, Node, User, Zone
from ledger.vocabulary import HoldKind
from portal.api import answers
from portal.api.filters import clean_text, flag
from portal.api.listing import ID_LIMIT, PAGING, Listing, Reading, request_id
from portal.api.serializers import EndHoldInput, HoldInput
from scheduler.models import Drift


@extend_schema(tags=["inventory"])
class Nodes(Listing):
    parameters = PAGING | {"simulated", "zone", "hostname"}
    queryset = Node.objects.none()

    @extend_schema(
        operation_id="nodes_list",
        summary="Nodes, newest first",
        parameters=[
            OpenApiParameter("simulated", bool),
            OpenApiParameter("zone", str),
            OpenApiParameter("hostname", str),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = Node.objects.all()
        simulated, zone, hostname = (
            flag(request, "simulated"),
            clean_text(request, "zone"),
            clean_text(request, "hostname"),
        )
        if simulated is not None:
            rows = rows.filter(simulated=simulated)
        if zone:
            rows = rows.filter(zone_periods__zone__slug=zone, zone_periods__period__upper_inf=True)
        if hostname:
            rows = rows.filter(hostname=hostname)
        return self.page(rows, answers.node_answers)


@extend_schema(tags=["inventory"])
class NodeDetail(Reading):
    @extend_schema(summary="One node", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        if pk >= ID_LIMIT:
            raise NotFound
        return Response(answers.node_answers([get_object_or_404(Node, pk=pk)])[0])


@extend_schema(tags=["inventory"])
class Cards(Listing):
    parameters = PAGING | {"simulated", "node", "model"}
    queryset = Card.objects.none()

    @extend_schema(
        summary="Cards, newest first",
        parameters=[OpenApiParameter("simulated", bool), OpenApiParameter("node", str), OpenApiParameter("model", str)],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = Card.objects.select_related("status")
        simulated, node, model = flag(request, "simulated"), clean_text(request, "node"), clean_text(request, "model")
        if simulated is not None:
            rows = rows.filter(seats__period__upper_inf=True, seats__node__simulated=simulated)
        if node:
            rows = rows.filter(seats__period__upper_inf=True, seats__node__hostname=node)
        if model:
            rows = rows.filter(model=model)
        return self.page(rows, answers.card_answers)


@extend_schema(tags=["inventory"])
class Zones(Listing):
    queryset = Zone.objects.none()

    @extend_schema(summary="Zones", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        return self.page(Zone.objects.all(), answers.zone_answers)


@extend_schema(tags=["inventory"])
class Holds(Listing):
    serializer_class = HoldInput
    queryset = Hold.objects.none()

    @extend_schema(summary="What is taken out of the pool now", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        rows = Hold.objects.filter(period__upper_inf=True).select_related("node", "card", "by")
        return self.page(rows, lambda page: [answers.hold_answer(hold) for hold in page])

    @extend_schema(summary="Take a card or a node out of the pool", responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request) -> Response:
        if not request.user.operates_somewhere:
            raise PermissionDenied(_("Only operators and admins hold cards and nodes."))
        data = HoldInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        node = Node.objects.filter(hostname=values.get("node")).first()
        card = Card.objects.filter(uuid=values.get("card")).first()
        if node is None and card is None:
            field = "node" if "node" in values else "card"
            raise ValidationError({field: _("There is no such %(thing)s.") % {"thing": field}})
        hold = holds.hold_one(
            kind=HoldKind(values["kind"]),
            reason=values["reason"],
            actor=request.user,
            via="api",
            node=node,
            card=card,
            request_id=request_id(request),
        )
        return Response(answers.hold_answer(_hold(hold.pk)), status=status.HTTP_201_CREATED)


def _hold(pk: int) -> Hold:
    """As it stands in the database: a hold that was just written still has its period as it was given."""
    return Hold.objects.select_related("node", "card", "by").get(pk=pk)


@extend_schema(tags=["inventory"])
class HoldEnd(Reading):
    @extend_schema(summary="Return what is held to the pool", request=EndHoldInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        if not request.user.operates_somewhere:
            raise PermissionDenied(_("Only operators and admins return cards and nodes."))
        if pk >= ID_LIMIT:
            raise NotFound
        hold = get_object_or_404(Hold.objects.select_related("node", "card"), pk=pk)
        data = EndHoldInput(data=request.data)
        data.is_valid(raise_exception=True)
        holds.end_one(
            hold=hold,
            reason=data.validated_data["reason"],
            actor=request.user,
            via="api",
            request_id=request_id(request),
        )
        return Response(answers.hold_answer(_hold(pk)))


def _of_machines(user: User) -> Q:
    """Drift of the machines themselves, in zones that they operate by an odd grant."""
    if not user.operated_zones:
        return Q(pk__in=())
    nodes = Node.objects.filter(zone_periods__zone__in=user.operated_zones, zone_periods__period__upper_inf=True)
    cards = Card.objects.filter(seats__node__in=nodes, seats__period__upper_inf=True)
    named = Q(subject__in=nodes.values("hostname")) | Q(subject__in=cards.values("uuid"))
    return Q(job=None) & named


@extend_schema(tags=["inventory"])
class DriftList(Listing):
    queryset = Drift.objects.none()

    @extend_schema(
        summary="Where the book and the world differ, with age and proposed fix", responses=OpenApiTypes.OBJECT
    )
    def get(self, request: Request) -> Response:
        rows = Drift.objects.filter(resolved_at=None)
        if not request.user.sees_everything:
            rows = rows.filter(Q(job__in=Job.objects.visible_to(request.user)) | _of_machines(request.user))
        now = database_now()
        return self.page(
            rows, lambda page: [answers.drift_answer(d, int((now - d.first_seen).total_seconds())) for d in page]
        )
