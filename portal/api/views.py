"""The views of /api/v1/: thin; reading through visible_to, writing through the ledger's and scheduler's functions."""

from __future__ import annotations

import base64
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.generics import GenericAPIView, get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger import inventory, reports, telemetry
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import Card, CardSeat, Hold, Job, Node, Project, Zone
from ledger.vocabulary import HoldKind, JobState
from portal.api import answers
from portal.api.auth import AgentAuthentication, IsAgent
from portal.api.filters import choice, clean_text, flag, window, whole_number
from portal.api.problems import IdempotencyMismatch
from portal.api.serializers import CancelInput, EndHoldInput, HoldInput, JobInput, ReportInput
from scheduler import logs, queue
from scheduler.drivers.base import DriverError, ReplyLost
from scheduler.models import Drift

MAX_KEY = 200
ID_LIMIT = 2**63


def request_id(request: Request) -> str:
    return str(getattr(request._request, "request_id", ""))


class Listing(GenericAPIView[Any]):
    """A cursor-paged list whose rows come from `answer`."""

    def page(self, rows: QuerySet[Any], answer: Any) -> Response:
        found = self.paginate_queryset(rows)
        return self.get_paginated_response(answer(found or []))


@extend_schema(tags=["jobs"])
class Jobs(Listing):
    serializer_class = JobInput
    queryset = Job.objects.none()

    @extend_schema(
        summary="Jobs that you may see, newest first",
        parameters=[
            OpenApiParameter("state", str, enum=[s.value for s in JobState]),
            OpenApiParameter("project", str),
            OpenApiParameter("simulated", bool),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = Job.objects.visible_to(request.user).select_related("project", "by")
        state = choice(request, "state", list(JobState))
        project = clean_text(request, "project")
        simulated = flag(request, "simulated")
        if state:
            rows = rows.filter(state=state)
        if project:
            rows = rows.filter(project__slug=project)
        if simulated is not None:
            rows = rows.filter(simulated=simulated)
        return self.page(rows, lambda page: [answers.job_brief(job) for job in page])

    @extend_schema(
        summary="Submit a job",
        parameters=[OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)],
        responses={201: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request) -> Response:
        data = JobInput(data=request.data, context={"user": request.user})
        data.is_valid(raise_exception=True)
        try:
            job = queue.submit(
                data=data.validated_data,
                actor=request.user,
                via="api",
                client_key=_client_key(request),
                request_id=request_id(request),
            )
        except queue.KeyReused as error:
            raise IdempotencyMismatch(str(error)) from None
        body = answers.job_detail(job, request.user)
        return Response(body, status=status.HTTP_201_CREATED, headers={"Location": f"/api/v1/jobs/{job.pk}/"})


def _client_key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        raise ValidationError({"Idempotency-Key": _("Give 1 to %(n)d printable characters.") % {"n": MAX_KEY}})
    return key


def _job(request: Request, pk: int) -> Job:
    if pk >= ID_LIMIT:
        raise NotFound
    job: Job = get_object_or_404(Job.objects.visible_to(request.user).select_related("project", "by"), pk=pk)
    return job


@extend_schema(tags=["jobs"])
class JobDetail(APIView):
    @extend_schema(summary="One job: state, times, placement, neighbours, reasons", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(answers.job_detail(_job(request, pk), request.user))


@extend_schema(tags=["jobs"])
class JobCancel(APIView):
    @extend_schema(summary="Cancel a job", request=CancelInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        job = _job(request, pk)
        data = CancelInput(data=request.data or {})
        data.is_valid(raise_exception=True)
        if not queue.may_cancel(job, request.user):
            raise PermissionDenied(_("Only its submitter, the project's managers and operators cancel a job."))
        queue.cancel(
            job_id=job.pk,
            actor=request.user,
            reason=data.validated_data["reason"],
            via="api",
            request_id=request_id(request),
        )
        return Response(answers.job_detail(_job(request, pk), request.user))


@extend_schema(tags=["jobs"])
class JobLog(APIView):
    @extend_schema(
        summary="What a job wrote, from a byte cursor on",
        parameters=[OpenApiParameter(name, int) for name in ("cursor", "rank", "attempt")],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, pk: int) -> Response:
        job = _job(request, pk)
        cursor = whole_number(request, "cursor", 0)
        try:
            chunk = logs.read(
                job, cursor or 0, whole_number(request, "rank", 0) or 0, attempt=whole_number(request, "attempt", None)
            )
        except (DriverError, ReplyLost, OSError) as error:
            raise Refused(_("The log can't be read now: %(why)s") % {"why": error}, code="log_unavailable") from None
        return Response(
            {
                "text": chunk.data.decode("utf-8", "replace"),
                "base64": base64.b64encode(chunk.data).decode(),
                "cursor": chunk.cursor,
                "end": chunk.end,
            }
        )


@extend_schema(tags=["inventory"])
class Nodes(Listing):
    queryset = Node.objects.none()

    @extend_schema(
        summary="Nodes, newest first",
        parameters=[OpenApiParameter("simulated", bool), OpenApiParameter("zone", str), OpenApiParameter("hostname", str)],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = Node.objects.all()
        simulated, zone, hostname = flag(request, "simulated"), clean_text(request, "zone"), clean_text(request, "hostname")
        if simulated is not None:
            rows = rows.filter(simulated=simulated)
        if zone:
            rows = rows.filter(zone_periods__zone__slug=zone, zone_periods__period__upper_inf=True)
        if hostname:
            rows = rows.filter(hostname=hostname)
        return self.page(rows, answers.node_answers)


@extend_schema(tags=["inventory"])
class NodeDetail(APIView):
    @extend_schema(summary="One node", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        if pk >= ID_LIMIT:
            raise NotFound
        return Response(answers.node_answers([get_object_or_404(Node, pk=pk)])[0])


@extend_schema(tags=["inventory"])
class Cards(Listing):
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
        return self.page(Zone.objects.all(), lambda page: [answers.zone_answer(zone) for zone in page])


@extend_schema(tags=["projects"])
class Projects(Listing):
    queryset = Project.objects.none()

    @extend_schema(summary="Projects that you may see", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        rows = Project.objects.visible_to(request.user).select_related("owner", "department")
        rows = rows.prefetch_related("memberships__user")
        return self.page(rows, lambda page: [answers.project_answer(project) for project in page])


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
        if not request.user.operates:
            raise PermissionDenied(_("Only operators and admins hold cards and nodes."))
        data = HoldInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        node = Node.objects.filter(hostname=values.get("node")).first()
        card = Card.objects.filter(uuid=values.get("card")).first()
        if node is None and card is None:
            field = "node" if "node" in values else "card"
            raise ValidationError({field: _("There is no such %(thing)s.") % {"thing": field}})
        hold = inventory.place_hold(
            kind=HoldKind(values["kind"]),
            reason=values["reason"],
            actor=request.user,
            via="api",
            node=node,
            card=card,
            request_id=request_id(request),
        )
        return Response(answers.hold_answer(hold), status=status.HTTP_201_CREATED)


@extend_schema(tags=["inventory"])
class HoldEnd(APIView):
    @extend_schema(summary="Return what is held to the pool", request=EndHoldInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        if not request.user.operates:
            raise PermissionDenied(_("Only operators and admins return cards and nodes."))
        if pk >= ID_LIMIT:
            raise NotFound
        get_object_or_404(Hold, pk=pk)
        data = EndHoldInput(data=request.data)
        data.is_valid(raise_exception=True)
        inventory.end_hold(
            hold_id=pk,
            reason=data.validated_data["reason"],
            actor=request.user,
            via="api",
            request_id=request_id(request),
        )
        return Response(answers.hold_answer(Hold.objects.select_related("node", "card", "by").get(pk=pk)))


@extend_schema(tags=["books"])
class Balance(APIView):
    @extend_schema(
        summary="capacity = used + cleaning + held + headroom + idle",
        parameters=[
            OpenApiParameter("from", OpenApiTypes.DATETIME),
            OpenApiParameter("to", OpenApiTypes.DATETIME),
            OpenApiParameter("zone", str),
            OpenApiParameter("project", str),
            OpenApiParameter("model", str),
            OpenApiParameter("simulated", bool),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        start, end = window(request)
        zone, project = clean_text(request, "zone"), clean_text(request, "project")
        if zone and not Zone.objects.filter(slug=zone).exists():
            raise ValidationError({"zone": _("There is no such zone.")})
        if project and not Project.objects.visible_to(request.user).filter(slug=project).exists():
            raise ValidationError({"project": _("There is no such project, or you are not in it.")})
        return Response(
            reports.balance(
                start,
                end,
                zone=zone,
                project=project,
                model=clean_text(request, "model"),
                simulated=bool(flag(request, "simulated")),
                viewer=request.user,
            )
        )


@extend_schema(tags=["inventory"])
class DriftList(Listing):
    queryset = Drift.objects.none()

    @extend_schema(summary="Where the book and the world differ, with age and proposed fix", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        rows = Drift.objects.filter(resolved_at=None)
        if not request.user.sees_everything:
            rows = rows.filter(job__in=Job.objects.visible_to(request.user))
        now = database_now()
        return self.page(
            rows, lambda page: [answers.drift_answer(d, int((now - d.first_seen).total_seconds())) for d in page]
        )


@extend_schema(tags=["agents"])
class AgentReports(APIView):
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
            raise PermissionDenied(_("This token belongs to another node."))
        foreign = self._foreign_cards(node, report)
        report["cards"] = [card for card in report["cards"] if card["uuid"] not in foreign]
        receipt = telemetry.ingest(node, report)
        answer = {"accepted": receipt.accepted, "faults": receipt.faults, "note": receipt.note}
        if foreign:
            answer["refused_cards"] = sorted(foreign)
            answer["note"] = _("These cards sit in another node that still reports them; what you say of them is left out.")
        return Response(answer)

    def _foreign_cards(self, node: Node, report: dict[str, Any]) -> set[str]:
        """Cards that sit in another node. They may appear here only once that node has reported them gone."""
        return set(
            CardSeat.objects.filter(card__uuid__in=[c["uuid"] for c in report["cards"]], period__upper_inf=True)
            .exclude(node=node)
            .exclude(card__holds__kind=HoldKind.LOST, card__holds__period__upper_inf=True)
            .values_list("card__uuid", flat=True)
        )
