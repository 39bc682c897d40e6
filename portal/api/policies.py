"""The views of policies of jobs: thin, through scheduler.policy, its writers and its preview. Zones by short name."""

from __future__ import annotations

from typing import Any, Final

from django.http import Http404
from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import roles
from ledger.acts import Act
from ledger.models import Department, Project, Zone
from ledger.reasons import LONGEST_REASON
from ledger.vocabulary import Form, JobKind
from portal.api import policy_answers as answers
from portal.api.fields import Choice, Items, StrictBoolean, Text, WholeNumber
from portal.api.filters import choice, clean_text
from portal.api.listing import ID_LIMIT, Listing, Reading, request_id
from portal.api.serializers import Strict
from scheduler import policy, policy_changes, policy_preview
from scheduler.policy import Scope, Terms, Version
from scheduler.policy_rows import LEAST_PRIORITY, LONGEST_S, MOST_PRIORITY, VALUES, JobPolicy

MOST_VERSIONS: Final = 100
MOST_ZONES: Final = 1000
KINDS: Final = [str(kind) for kind in JobKind]


def _seconds(least: int) -> WholeNumber:
    return WholeNumber(default=None, allow_null=True, min_value=least, max_value=LONGEST_S)


def _priority() -> WholeNumber:
    return WholeNumber(default=None, allow_null=True, min_value=LEAST_PRIORITY, max_value=MOST_PRIORITY)


class DraftInput(Strict):
    """What a policy is to say. Neither project nor department: of everybody's jobs; null: nothing of that is said."""

    project = Text(default=None, allow_null=True, max_length=50)
    department = Text(default=None, allow_null=True, max_length=50)
    kind = Choice(KINDS, default=None, allow_null=True)
    withdraw = StrictBoolean(default=False)
    forms = Items(child=Choice([str(form) for form in Form]), default=None, allow_null=True, min_length=1, most=3)
    fallback_wait_s = _seconds(0)
    zones = Items(child=Text(max_length=50), default=None, allow_null=True, min_length=1, most=MOST_ZONES)
    priority_default = _priority()
    priority_most = _priority()
    walltime_default_s = _seconds(1)
    walltime_most_s = _seconds(1)

    def validate_project(self, slug: str | None) -> int | None:
        return self._found(Project, slug, _("There is no such project."))

    def validate_department(self, slug: str | None) -> int | None:
        return self._found(Department, slug, _("There is no such department."))

    @staticmethod
    def _found(model: Any, slug: str | None, message: Any) -> int | None:
        if slug is None:
            return None
        pk: int | None = model.objects.filter(slug=slug).values_list("pk", flat=True).first()
        if pk is None:
            raise serializers.ValidationError(message, code="unknown")
        return pk

    def validate_zones(self, slugs: list[str] | None) -> tuple[int, ...] | None:
        if slugs is None:
            return None
        ids = dict(Zone.objects.filter(slug__in=slugs).values_list("slug", "pk"))
        unknown = [slug for slug in slugs if slug not in ids]
        if unknown:
            raise serializers.ValidationError(_("There is no zone %(slug)s.") % {"slug": unknown[0]}, code="unknown")
        return tuple(sorted(ids[slug] for slug in slugs))

    def validate_forms(self, forms: list[str] | None) -> tuple[str, ...] | None:
        return None if forms is None else tuple(forms)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["withdraw"] and any(attrs[name] is not None for name in VALUES):
            message = _("A policy that is withdrawn says nothing: leave out the rest.")
            raise serializers.ValidationError({"withdraw": message})
        return attrs

    @property
    def scope(self) -> Scope:
        data = self.validated_data
        return Scope(data["project"], data["department"], data["kind"] or "")

    @property
    def terms(self) -> Terms:
        return Terms(**{name: self.validated_data[name] for name in VALUES})


class VersionInput(DraftInput):
    """`shown`: the number of the version that was in force when it was looked at, 0 for none; without it any."""

    reason = Text(max_length=LONGEST_REASON, multiline=True)
    shown = WholeNumber(default=None, allow_null=True, min_value=0, max_value=2**31 - 1)


def _policy(request: Request, pk: int) -> JobPolicy:
    rows = JobPolicy.objects.visible_to(request.user).select_related("project", "department")
    found = rows.filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404
    return found


@extend_schema(tags=["policies"])
class Policies(Listing):
    serializer_class = VersionInput
    queryset = JobPolicy.objects.none()

    @extend_schema(
        operation_id="policies_list",
        summary="Policies that bear on projects that you may see, each with its newest version",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = JobPolicy.objects.visible_to(request.user).select_related("project", "department")
        return self.page(rows, answers.policies)

    @extend_schema(
        summary="A new version of a policy (site admins and managers); it holds from now on",
        request=VersionInput,
        responses={201: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request) -> Response:
        roles.require_governing(request.user)
        data = VersionInput(data=request.data)
        data.is_valid(raise_exception=True)
        act = Act(request.user, "api", data.validated_data["reason"], request_id(request))
        how = {"scope": data.scope, "act": act, "shown": data.validated_data["shown"]}
        if data.validated_data["withdraw"]:
            made = policy_changes.withdraw(**how)
        else:
            made = policy_changes.put_version(terms=data.terms, **how)
        body = answers.detail(_policy(request, made.policy_id), MOST_VERSIONS)
        where = {"Location": f"/api/v1/policies/{made.policy_id}/"}
        return Response(body, status=status.HTTP_201_CREATED, headers=where)


@extend_schema(tags=["policies"])
class PolicyDetail(Reading):
    @extend_schema(summary="One policy with its versions, the newest first", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(answers.detail(_policy(request, pk), MOST_VERSIONS))


@extend_schema(tags=["policies"])
class EffectivePolicies(Reading):
    parameters = frozenset({"project", "kind"})

    @extend_schema(
        operation_id="policies_effective",
        summary="What holds for the jobs of a project and kind, and which version says it",
        parameters=[OpenApiParameter("project", str, required=True), OpenApiParameter("kind", str, enum=KINDS)],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        slug = clean_text(request, "project")
        kind = choice(request, "kind", KINDS) or JobKind.OTHER.value
        project = Project.objects.visible_to(request.user).filter(slug=slug).first()
        if project is None:
            raise ValidationError({"project": _("There is no such project, or you are not in it.")})
        told = answers.effective(policy.effective(project, kind))
        return Response({"project": project.slug, "kind": kind, "holds": told})


@extend_schema(tags=["policies"])
class PolicyPreview(Reading):
    serializer_class = DraftInput

    @extend_schema(
        summary="What a version would change for jobs of the last 30 days and those that wait; nothing is written",
        request=DraftInput,
        responses=OpenApiTypes.OBJECT,
    )
    def post(self, request: Request) -> Response:
        roles.require_governing(request.user)
        data = DraftInput(data=request.data)
        data.is_valid(raise_exception=True)
        policy_changes.check_scope(data.scope)
        if not data.validated_data["withdraw"]:
            policy_changes.check_terms(data.terms)
        return Response(answers.effect(policy_preview.effect(Version(data.scope, data.terms, 0))))
