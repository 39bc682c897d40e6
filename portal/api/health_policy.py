"""The health policy through the API: what holds at a site, the versions, and a new one. Site admins write."""

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

from ledger import health_policy
from ledger.acts import Act
from ledger.errors import Forbidden
from ledger.health_policy import EVERY_SITE, HIGHEST_CODE, LONGEST_NOTE, LONGEST_S, MOST_REPEATS, MOST_RULES
from ledger.health_rules import Policy, Rule
from ledger.models import HealthVersion
from ledger.reasons import LONGEST_REASON
from ledger.roles import is_admin
from ledger.vocabulary import FaultKind, HealthAction
from portal.api.fields import Choice, Items, StrictBoolean, Text, WholeNumber
from portal.api.filters import clean_text
from portal.api.listing import Listing, Reading, request_id
from portal.api.serializers import Strict

KINDS: Final = [str(kind) for kind in FaultKind]
ACTIONS: Final = [str(action) for action in HealthAction]


class RuleInput(Strict):
    """A rule; `code` null: of any code of the kind that has none of its own."""

    kind = Choice(KINDS)
    code = WholeNumber(default=None, allow_null=True, min_value=0, max_value=HIGHEST_CODE)
    action = Choice(ACTIONS)
    then = Choice(ACTIONS, default=None, allow_null=True)
    repeats = WholeNumber(default=0, min_value=0, max_value=MOST_REPEATS)
    window_s = WholeNumber(default=0, min_value=0, max_value=LONGEST_S)
    by_users = StrictBoolean(default=False)
    by_hand = StrictBoolean(default=False)
    note = Text(default="", allow_blank=True, max_length=LONGEST_NOTE)


class HealthVersionInput(Strict):
    """A whole table for a site ("" = every site), or its withdrawal. `shown`: the number of what was in force there
    when it was looked at; without it any."""

    site = Text(default=EVERY_SITE, allow_blank=True, max_length=64)
    withdraw = StrictBoolean(default=False)
    rules = Items(child=RuleInput(), default=None, allow_null=True, min_length=1, most=MOST_RULES)
    inspect_after = WholeNumber(default=health_policy.DEFAULT.inspect_after, min_value=1, max_value=100)
    inspect_window_s = WholeNumber(default=health_policy.DEFAULT.inspect_window_s, min_value=60, max_value=LONGEST_S)
    reason = Text(max_length=LONGEST_REASON, multiline=True)
    shown = WholeNumber(default=None, allow_null=True, min_value=0, max_value=2**31 - 1)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["withdraw"] and attrs["rules"] is not None:
            message = _("A policy that is withdrawn says nothing: leave out the rest.")
            raise serializers.ValidationError({"withdraw": message})
        if not attrs["withdraw"] and attrs["rules"] is None:
            raise serializers.ValidationError({"rules": _("Give the whole table.")}, code="required")
        return attrs

    @property
    def rules_given(self) -> list[Rule]:
        return [
            Rule(
                **{
                    **one,
                    "kind": FaultKind(one["kind"]),
                    "action": HealthAction(one["action"]),
                    "then": HealthAction(one["then"]) if one["then"] else None,
                }
            )
            for one in self.validated_data["rules"]
        ]


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "version": policy.number,
        "of_site": policy.site,
        "inspect_after": policy.inspect_after,
        "inspect_window_s": policy.inspect_window_s,
        "rules": [
            {
                "kind": rule.kind,
                "code": rule.code,
                "action": rule.action,
                "then": rule.then,
                "repeats": rule.repeats,
                "window_s": rule.window_s,
                "by_users": rule.by_users,
                "by_hand": rule.by_hand,
                "note": rule.note,
            }
            for rule in policy.rules
        ],
    }


def _version(row: HealthVersion) -> dict[str, Any]:
    upper = row.period.upper
    return {
        "number": row.number,
        "site": row.site,
        "withdrawn": row.withdrawn,
        "since": row.period.lower.isoformat(),
        "until": upper.isoformat() if upper else None,
        "by": row.by.username,
        "reason": row.reason,
    }


@extend_schema(tags=["health"])
class HealthPolicy(Reading):
    parameters = frozenset({"site"})
    serializer_class = HealthVersionInput

    @extend_schema(
        operation_id="health_policy",
        summary="What is done about faults at a site, and by which version; without a site: at every other",
        parameters=[OpenApiParameter("site", str)],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        site = clean_text(request, "site") or EVERY_SITE
        if site != EVERY_SITE and site not in health_policy.sites():
            raise ValidationError({"site": _("There is no site of this name.")})
        return Response({"site": site, **_policy(health_policy.in_force(site))})

    @extend_schema(
        summary="A new version of the whole table of a site, or its withdrawal (site admins); it holds from now on",
        request=HealthVersionInput,
        responses={201: OpenApiTypes.OBJECT},
    )
    def post(self, request: Request) -> Response:
        if not is_admin(request.user):
            raise Forbidden(str(_("Only site admins change the health policy.")), code="role")
        data = HealthVersionInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        act = Act(request.user, "api", values["reason"], request_id(request))
        if values["withdraw"]:
            made = health_policy.withdraw(site=values["site"], act=act, shown=values["shown"])
        else:
            made = health_policy.put_version(
                site=values["site"],
                rules=data.rules_given,
                inspect_after=values["inspect_after"],
                inspect_window_s=values["inspect_window_s"],
                act=act,
                shown=values["shown"],
            )
        where = {"Location": f"/api/v1/health/policy/versions/{made.number}/"}
        return Response(_version(made), status=status.HTTP_201_CREATED, headers=where)


@extend_schema(tags=["health"])
class HealthVersions(Listing):
    queryset = HealthVersion.objects.none()

    @extend_schema(
        operation_id="health_policy_versions",
        summary="Every version of every site, the newest first",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = HealthVersion.objects.select_related("by")
        return self.page(rows, lambda found: [_version(row) for row in found])


@extend_schema(tags=["health"])
class HealthVersionDetail(Reading):
    @extend_schema(summary="One version with its rules; 0 is the portal's own table", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, number: int) -> Response:
        found = health_policy.numbered(number)
        if found is None:
            raise Http404
        row = HealthVersion.objects.select_related("by").filter(number=number).first() if number else None
        return Response({**(_version(row) if row else {}), **_policy(found)})
