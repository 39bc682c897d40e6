"""The views of alerts: what fires, the rules, and silences. Thin, through scheduler.alert_changes. Site roles read,
operators and administrators silence."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import Http404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.acts import Act
from ledger.clock import database_now
from ledger.reasons import LONGEST_REASON
from portal.api.fields import Instant, Items, Text
from portal.api.filters import choice, clean_text, flag
from portal.api.listing import ID_LIMIT, PAGING, Listing, Reading, request_id
from portal.api.serializers import EndHoldInput, Strict
from scheduler import alert_changes, alert_words
from scheduler.alert_matchers import LONGEST, MOST, parse, told
from scheduler.alert_rows import Alert, AlertRule, AlertState, Severity, Silence

STATES = [str(state) for state in AlertState]
SEVERITIES = [str(severity) for severity in Severity]


class SilenceInput(Strict):
    """Each matcher a text: label=value, label!=value|value, label>=number or label<=number. All must hold."""

    matchers = Items(child=Text(max_length=2 * LONGEST), min_length=1, most=MOST)
    until = Instant()
    reason = Text(max_length=LONGEST_REASON, multiline=True)


def _readers_only(request: Request) -> None:
    if not request.user.sees_everything:
        raise PermissionDenied(_("Operators, managers, auditors and admins alone."))


@extend_schema(tags=["alerts"])
class Alerts(Listing):
    parameters = PAGING | {"state", "severity", "rule", "simulated"}
    queryset = Alert.objects.none()

    @extend_schema(
        operation_id="alerts_list",
        summary="Alerts, newest first",
        parameters=[
            OpenApiParameter("state", str, enum=STATES),
            OpenApiParameter("severity", str, enum=SEVERITIES),
            OpenApiParameter("rule", str),
            OpenApiParameter("simulated", bool),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        _readers_only(request)
        rows = Alert.objects.select_related("rule")
        if state := choice(request, "state", STATES):
            rows = rows.filter(resolved_at__isnull=state != AlertState.RESOLVED)
            if state != AlertState.RESOLVED:
                rows = rows.filter(fired_at__isnull=state == AlertState.PENDING)
        if severity := choice(request, "severity", SEVERITIES):
            rows = rows.filter(severity=severity)
        if rule := clean_text(request, "rule"):
            rows = rows.filter(rule__key=rule)
        if (simulated := flag(request, "simulated")) is not None:
            rows = rows.filter(simulated=simulated)
        return self.page(rows, lambda page: [alert_answer(alert) for alert in page])


@extend_schema(tags=["alerts"])
class AlertDetail(Reading):
    @extend_schema(summary="One alert and the messages about it", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        _readers_only(request)
        found = Alert.objects.select_related("rule").filter(pk=pk).first() if pk < ID_LIMIT else None
        if found is None:
            raise Http404
        rows = found.deliveries.select_related("message").order_by("message")
        sent = [_message(row.message) for row in rows]
        return Response(alert_answer(found) | {"messages": sent})


@extend_schema(tags=["alerts"])
class AlertRules(Listing):
    queryset = AlertRule.objects.none()

    @extend_schema(summary="Rules of alerts", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        _readers_only(request)
        return self.page(AlertRule.objects.all(), lambda page: [rule_answer(rule) for rule in page])


@extend_schema(tags=["alerts"])
class Silences(Listing):
    serializer_class = SilenceInput
    queryset = Silence.objects.none()

    @extend_schema(operation_id="silences_list", summary="Silences, newest first", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        _readers_only(request)
        rows = Silence.objects.select_related("by", "ended_by")
        return self.page(rows, lambda page: [silence_answer(silence) for silence in page])

    @extend_schema(
        summary="Silence alerts from now until then", request=SilenceInput, responses={201: OpenApiTypes.OBJECT}
    )
    def post(self, request: Request) -> Response:
        alert_changes.require_operating(request.user)
        data = SilenceInput(data=request.data)
        data.is_valid(raise_exception=True)
        values = data.validated_data
        matchers = parse("\n".join(values["matchers"]))
        act = Act(request.user, "api", values["reason"], request_id(request))
        made = alert_changes.silence(matchers=matchers, until=values["until"], act=act)
        return Response(silence_answer(made), status=status.HTTP_201_CREATED)


@extend_schema(tags=["alerts"])
class SilenceEnd(Reading):
    @extend_schema(summary="End a silence before its time", request=EndHoldInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        alert_changes.require_operating(request.user)
        found = Silence.objects.filter(pk=pk).first() if pk < ID_LIMIT else None
        if found is None:
            raise Http404
        data = EndHoldInput(data=request.data)
        data.is_valid(raise_exception=True)
        act = Act(request.user, "api", data.validated_data["reason"], request_id(request))
        return Response(silence_answer(alert_changes.end_silence(silence=found, act=act)))


# -- answers -----------------------------------------------------------------------------------------------------------


def _iso(moment: dt.datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def alert_answer(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "rule": alert.rule.key,
        "state": str(alert.state),
        "severity": alert.severity,
        "text": alert_words.sentence(alert),
        "subject": alert.subject,
        "labels": alert.labels,
        "simulated": alert.simulated,
        "value": alert.value,
        "peak": alert.peak,
        "threshold": alert.threshold,
        "started_at": _iso(alert.started_at),
        "fired_at": _iso(alert.fired_at),
        "last_seen": _iso(alert.last_seen),
        "resolved_at": _iso(alert.resolved_at),
        "ending": alert.ending,
    }


def _message(message: Any) -> dict[str, Any]:
    return {
        "channel": message.channel,
        "event": message.event,
        "state": message.state,
        "sent_at": _iso(message.sent_at),
        "tries": message.tries,
        "last_error": message.last_error,
    }


def rule_answer(rule: AlertRule) -> dict[str, Any]:
    return {
        "id": rule.pk,
        "key": rule.key,
        "name": alert_words.name(rule),
        "metric": rule.metric,
        "comparison": rule.comparison,
        "threshold": rule.threshold,
        "for_s": rule.for_s,
        "keep_s": rule.keep_s,
        "severity": rule.severity,
        "selector": told(rule.selector),
        "enabled": rule.enabled,
        "version": rule.version,
        "changed_at": _iso(rule.changed_at),
    }


def silence_answer(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.pk,
        "matchers": told(silence.matchers),
        "from": _iso(silence.period.lower),
        "until": _iso(silence.period.upper),
        "by": silence.by.username,
        "reason": silence.reason,
        "ended_by": silence.ended_by.username if silence.ended_by else None,
        "in_force": silence.period.upper > database_now(),
    }
