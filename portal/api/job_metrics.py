"""What applications of jobs tell of themselves: pushed by who may submit in the project, read by who sees the job."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import job_metrics
from ledger.models import Job, JobMetric
from ledger.models.use import MetricSource
from portal.api.fields import Instant, WholeNumber
from portal.api.listing import Reading
from portal.api.serializers import Strict
from portal.api.views import job_of
from scheduler import queue
from scheduler.scrape_rows import JobScrape


class Number(serializers.FloatField):
    """A JSON number; not true, not "3"."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise serializers.ValidationError(_("Give a number."), code="invalid")
        try:
            number = float(data)
        except OverflowError:
            number = float("inf")
        if number != number or number in (float("inf"), float("-inf")):
            raise serializers.ValidationError(_("Give a number."), code="invalid")
        return number


class MetricInput(Strict):
    p99_ms = Number(required=False, min_value=0, max_value=job_metrics.MOST_MS)
    sla_ms = Number(required=False, min_value=0.001, max_value=job_metrics.MOST_MS)
    tokens_per_s = Number(required=False, min_value=0, max_value=job_metrics.MOST_TOKENS_PER_S)
    queue_length = WholeNumber(required=False, min_value=0, max_value=job_metrics.MOST_QUEUE)
    at = Instant(required=False, help_text=gettext_lazy("When it was so. Without: now."))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not set(attrs) & set(job_metrics.VALUES):
            known = ", ".join(job_metrics.VALUES)
            raise serializers.ValidationError(_("Tell at least one of: %(known)s.") % {"known": known})
        return attrs


def metric_answer(metric: JobMetric) -> dict[str, Any]:
    return {
        "at": metric.at.isoformat(),
        "source": metric.source,
        **{name: getattr(metric, name) for name in job_metrics.VALUES},
        "verdict": job_metrics.verdict(metric.p99_ms, metric.sla_ms),
    }


def metrics_answer(job: Job) -> dict[str, Any]:
    """The newest, its history, and how reading it goes where the job names an address."""
    rows = job_metrics.history(job.pk)
    scrape = JobScrape.objects.filter(job=job).first() if job.metrics_port else None
    return {
        "latest": metric_answer(rows[-1]) if rows else None,
        "history": [metric_answer(row) for row in rows],
        "scrape": scrape
        and {
            "tried": scrape.tried_at.isoformat(),
            "answered": scrape.ok_at.isoformat() if scrape.ok_at else None,
            "failures": scrape.failures,
            "error": scrape.error,
        },
    }


@extend_schema(tags=["jobs"])
class JobMetrics(Reading):
    @extend_schema(
        operation_id="job_metrics_read",
        summary="What the job’s application told of itself, the newest last",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, pk: int) -> Response:
        return Response(metrics_answer(job_of(request, pk)))

    @extend_schema(
        operation_id="job_metrics_push",
        summary="Tell how the job’s application does: P99, what was promised, tokens a second, queue length",
        request=MetricInput,
        responses={201: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request, pk: int) -> Response:
        job = job_of(request, pk)
        if not queue.may_tell(job, request.user):
            raise PermissionDenied(_("Only who may submit in its project tells how a job does."))
        data = MetricInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        metric, new = job_metrics.record(job_id=job.pk, values=values, source=MetricSource.PUSHED, at=values.get("at"))
        return Response(metric_answer(metric), status=status.HTTP_201_CREATED if new else status.HTTP_200_OK)
