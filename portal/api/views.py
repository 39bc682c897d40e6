"""The views of jobs, projects and the balance: thin; reading through visible_to, writing through the writers."""

from __future__ import annotations

import base64
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger import reports
from ledger.models import Job, Project, Zone
from ledger.vocabulary import JobState
from portal.api import answers
from portal.api.filters import choice, clean_text, flag, whole_number, window
from portal.api.listing import ID_LIMIT, PAGING, Listing, Reading, request_id
from portal.api.problems import IdempotencyMismatch, Unavailable
from portal.api.serializers import CancelInput, JobInput
from scheduler import logs, queue
from scheduler.drivers.base import DriverError, ReplyLost

MAX_KEY = 200


@extend_schema(tags=["jobs"])
class Jobs(Listing):
    parameters = PAGING | {"state", "project", "simulated"}
    serializer_class = JobInput
    queryset = Job.objects.none()

    @extend_schema(
        operation_id="jobs_list",
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
    if not (key.strip() and len(key) <= MAX_KEY and key.isprintable()):
        raise ValidationError({"Idempotency-Key": _("Give 1 to %(n)d printable characters.") % {"n": MAX_KEY}})
    return key


def job_of(request: Request, pk: int) -> Job:
    if pk >= ID_LIMIT:
        raise NotFound
    job: Job = get_object_or_404(Job.objects.visible_to(request.user).select_related("project", "by"), pk=pk)
    return job


@extend_schema(tags=["jobs"])
class JobDetail(Reading):
    @extend_schema(summary="One job: state, times, placement, neighbours, reasons", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(answers.job_detail(job_of(request, pk), request.user))


@extend_schema(tags=["jobs"])
class JobCancel(Reading):
    @extend_schema(summary="Cancel a job", request=CancelInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        job = job_of(request, pk)
        data = CancelInput(data=request.data)
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
        return Response(answers.job_detail(job_of(request, pk), request.user))


@extend_schema(tags=["jobs"])
class JobLog(Reading):
    parameters = frozenset({"cursor", "rank", "attempt"})

    @extend_schema(
        summary="What a job wrote, from a byte cursor on",
        parameters=[OpenApiParameter(name, int) for name in ("cursor", "rank", "attempt")],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, pk: int) -> Response:
        job = job_of(request, pk)
        cursor = whole_number(request, "cursor", 0)
        try:
            chunk = logs.read(
                job, cursor or 0, whole_number(request, "rank", 0) or 0, attempt=whole_number(request, "attempt", None)
            )
        except (DriverError, ReplyLost, OSError) as error:
            raise Unavailable(_("The log can't be read now: %(why)s") % {"why": error}) from None
        return Response(
            {
                "text": chunk.data.decode("utf-8", "replace"),
                "base64": base64.b64encode(chunk.data).decode(),
                "cursor": chunk.cursor,
                "end": chunk.end,
            }
        )


@extend_schema(tags=["books"])
class Balance(Reading):
    parameters = frozenset({"from", "to", "zone", "project", "model", "simulated"})

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


@extend_schema(exclude=True)
class Nowhere(APIView):
    """Every other address below /api/v1/, so that a wrong one is answered as a problem too."""

    def http_method_not_allowed(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        raise NotFound(_("There is no such address; all of them end with “/”."))

    options = http_method_not_allowed
