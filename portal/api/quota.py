"""The views of quota: what is granted and used, changes of it, and what a job would take. Thin, as portal.api.views.

Amounts are in the units of the book: thousandths, MiB, milli-card-seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import Http404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import quota, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.limits import LONGEST_MODEL
from ledger.models import MemberLimit, Project, QuotaGrant
from ledger.quota import Terms
from ledger.reasons import LONGEST_REASON
from ledger.vocabulary import Renewal, Resource
from portal.api import policy_answers
from portal.api.fields import Choice, Instant, StrictBoolean, Text, WholeNumber
from portal.api.filters import choice, clean_text
from portal.api.listing import PAGING, Listing, Reading, request_id
from portal.api.preemption import exposure_answers, preview_answer
from portal.api.serializers import JobInput, Strict
from portal.views import quota_parts
from portal.views.quota_parts import CeilingRow, GrantRow
from scheduler import policy, whatif
from scheduler import quota as scheduler_quota
from scheduler.quota import Claim


def _iso(moment: Any) -> str | None:
    return moment.isoformat() if moment else None


def grant_answer(row: GrantRow) -> dict[str, Any]:
    grant = row.grant
    names = ("resource", "model", "amount", "guaranteed", "weight", "renews", "reason")
    return {
        "id": grant.pk,
        "project": grant.project.slug,
        **{name: getattr(grant, name) for name in names},
        "used": row.used,
        "since": _iso(grant.period.lower),
        "until": _iso(grant.period.upper),
        "renews_on": _iso(row.renews_on),
        "drain_at": _iso(grant.drain_at),
        "observed_until": _iso(row.observed_until),
    }


def ceiling_answer(row: CeilingRow) -> dict[str, Any]:
    ceiling = row.ceiling
    names = ("resource", "model", "amount")
    return {
        "department": ceiling.department.slug,
        **{name: getattr(ceiling, name) for name in names},
        "used": row.used,
        "renews": ceiling.renews,
        "renews_on": _iso(row.renews_on),
        "drain_at": _iso(ceiling.drain_at),
    }


def claim_answer(claim: Claim) -> dict[str, Any]:
    names = ("resource", "model", "takes", "left", "amount", "exact")
    about = {"limit": str(claim.refusal), **{name: getattr(claim, name) for name in names}}
    return about | {"renews_on": _iso(claim.renews_on)}


@extend_schema(tags=["quota"])
class Quotas(Listing):
    parameters = PAGING | {"project", "resource"}
    queryset = QuotaGrant.objects.none()

    @extend_schema(
        summary="What projects that you may see are granted now, and use of it",
        parameters=[
            OpenApiParameter("project", str),
            OpenApiParameter("resource", str, enum=[resource.value for resource in Resource]),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        visible = Project.objects.visible_to(request.user)
        rows = QuotaGrant.objects.filter(project__in=visible, period__contains=database_now()).select_related("project")
        project, resource = clean_text(request, "project"), choice(request, "resource", list(Resource))
        if project:
            rows = rows.filter(project__slug=project)
        if resource:
            rows = rows.filter(resource=resource)
        return self.page(rows, _grant_answers)


def _grant_answers(grants: Sequence[QuotaGrant]) -> list[dict[str, Any]]:
    return [grant_answer(row) for row in quota_parts.grant_rows(grants)]


class GrantInput(Strict):
    """`lift` true: nothing limits this any more; then there is no amount."""

    resource = Choice([resource.value for resource in Resource])
    model = Text(default="", allow_blank=True, max_length=LONGEST_MODEL)
    lift = StrictBoolean(default=False)
    amount = WholeNumber(required=False, min_value=0, max_value=2**53)
    guaranteed = WholeNumber(default=0, min_value=0, max_value=2**53)
    weight = WholeNumber(default=1, min_value=1, max_value=quota.MOST_WEIGHT)
    renews = Choice(["", *(renewal.value for renewal in Renewal)], default="", allow_blank=True)
    until = Instant(default=None, allow_null=True)
    drain_at = Instant(default=None, allow_null=True)
    anew = StrictBoolean(default=False)
    reason = Text(max_length=LONGEST_REASON, multiline=True)
    override_reason = Text(default="", allow_blank=True, max_length=LONGEST_REASON, multiline=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["lift"] == ("amount" in attrs):
            raise serializers.ValidationError({"amount": _("Give an amount, or lift true; one of the two.")})
        return attrs

    @property
    def terms(self) -> Terms:
        data = self.validated_data
        names = ("amount", "guaranteed", "weight", "model", "renews", "until", "drain_at", "anew")
        return Terms(resource=Resource(data["resource"]), **{name: data[name] for name in names})


@extend_schema(tags=["quota"])
class ProjectQuota(Reading):
    serializer_class = GrantInput

    @extend_schema(
        summary="One project: its grants, the ceilings over it, limits of members", responses=OpenApiTypes.OBJECT
    )
    def get(self, request: Request, slug: str) -> Response:
        return Response(_project_answer(_project(request, slug), request))

    @extend_schema(
        summary="Set or lift a quota of the project", request=GrantInput, responses={200: OpenApiTypes.OBJECT}
    )
    def post(self, request: Request, slug: str) -> Response:
        project = _project(request, slug)
        roles.require_governing(request.user)
        data = GrantInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        act = Act(request.user, "api", values["reason"], request_id(request))
        how = {"project": project, "act": act, "override": values["override_reason"]}
        if values["lift"]:
            quota.lift_grant(resource=Resource(values["resource"]), model=values["model"], **how)
        else:
            quota.set_grant(terms=data.terms, **how)
        return Response(_project_answer(project, request), status=status.HTTP_200_OK)


def _project(request: Request, slug: str) -> Project:
    project = Project.objects.visible_to(request.user).filter(slug=slug).first()
    if project is None:
        raise Http404
    return project


def _project_answer(project: Project, request: Request) -> dict[str, Any]:
    part = quota_parts.quota_part(project, request.user)
    return {
        "project": project.slug,
        "grants": [grant_answer(row) for row in part["grants"]],
        "ceilings": [ceiling_answer(row) for row in part["ceilings"]],
        "member_limits": [_limit_answer(row["limit"], row["used"]) for row in part["member_limits"]],
        "borrowed": exposure_answers(project, request.user),
    }


def _limit_answer(limit: MemberLimit, used: int) -> dict[str, Any]:
    about = {"user": limit.user.username, "resource": limit.resource, "amount": limit.amount, "used": used}
    return about | {"reason": limit.reason, "since": _iso(limit.since)}


@extend_schema(tags=["jobs"])
class WhatIf(Reading):
    serializer_class = JobInput

    @extend_schema(
        summary="What a job would get if it were submitted now, and take of what is left; nothing is written",
        request=JobInput,
        responses=OpenApiTypes.OBJECT,
    )
    def post(self, request: Request) -> Response:
        data = JobInput(data=request.data, context={"user": request.user})
        data.is_valid(raise_exception=True)
        project = Project.objects.visible_to(request.user).filter(slug=data.validated_data["project"]).first()
        if project is None:
            raise ValidationError({"project": _("There is no such project, or you are not in it.")})
        job = whatif.candidate(data.validated_data, project, request.user)
        outlook = whatif.outlook(job)
        ruled = policy.settled(data.validated_data, project)
        return Response(
            {
                "verdict": outlook.verdict,
                "ask": outlook.ask_index,
                "nodes": [spot.hostname for spot in outlook.spots],
                "expected_at": _iso(outlook.expected_at),
                "ahead": outlook.ahead,
                "reasons": [dict(ask) for ask in outlook.by_ask],
                "job": {name: getattr(job, name) for name in ("asks", "priority", "walltime_s")},
                "policies": policy_answers.of_draft(ruled),
                "stops": preview_answer(outlook.stops, request.user),
                "takes": [claim_answer(claim) for claim in scheduler_quota.claims(job, outlook.spots)],
            }
        )
