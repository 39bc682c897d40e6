"""Prometheus Alertmanager's API v2: alerts that begin, go on and end, and silences. It forgets what it isn't told
again, so all that stands is told every minute; an alert ends by its `endsAt`, and by itself when the portal is gone for
long.

Source: api/v2/openapi.yaml of prometheus/alertmanager (0.25). Label names are ours and fit its rules.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import translation

from ledger.clock import database_now
from scheduler import alert_words, outbound
from scheduler.alert_messages import configured, silenced, silences
from scheduler.alert_rows import Alert, AlertChannel, AlertEvent, AlertPush, Silence

EVERY: Final = dt.timedelta(seconds=60)
LIVES: Final = dt.timedelta(minutes=5)  # without news
AT_ONCE: Final = 500  # alerts in one request
TIMEOUT_S: Final = 5.0
MOST_SILENCES: Final = 200


def send(alerts: Sequence[Alert], now: dt.datetime) -> None:
    """Those that are over end; the others live on for LIVES."""
    for start in range(0, len(alerts), AT_ONCE):
        _post("alerts", [document(alert, now) for alert in alerts[start : start + AT_ONCE]])


def send_test(now: dt.datetime, by: str) -> None:
    labels = {"alertname": "test", "severity": "event", "source": "gpu-commons"}
    times = {"startsAt": now.isoformat(), "endsAt": (now + dt.timedelta(minutes=1)).isoformat()}
    about = {"summary": f"Test of the way to Alertmanager, by {by}."}
    address = f"{settings.PORTAL_URL}/health/alerts/channels/"
    _post("alerts", [{"labels": labels, "annotations": about, "generatorURL": address, **times}])


def document(alert: Alert, now: dt.datetime) -> dict[str, Any]:
    with translation.override("en"):
        summary, name = alert_words.sentence(alert), alert_words.name(alert.rule)
    return {
        "labels": {**alert.labels, "source": "gpu-commons"},
        "annotations": {"summary": summary, "title": name, "subject": alert.subject},
        "startsAt": (alert.fired_at or alert.started_at).isoformat(),
        "endsAt": (alert.resolved_at or now + LIVES).isoformat(),
        "generatorURL": f"{settings.PORTAL_URL}/health/alerts/{alert.pk}/",
    }


# -- what stands -------------------------------------------------------------------------------------------------------


def push_standing(now: dt.datetime) -> dict[str, int]:
    """Silences first, then every alert that it was told of and that still fires, unless that was done a moment ago."""
    if not configured(AlertChannel.ALERTMANAGER):
        return {}
    last = AlertPush.objects.filter(channel=AlertChannel.ALERTMANAGER).first()
    if last is not None and now - last.tried_at < EVERY:
        return {}
    alerts = list(standing().order_by("pk"))
    problems = mirror_silences(now)
    unknown = [silence for silence in silences(now) if not silence.mirror]
    told = [alert for alert in alerts if not silenced(alert, unknown)]
    try:
        send(told, now)
    except Exception as problem:  # whatever it is, the next minute tries again
        told, problems = [], [*problems, problem]
    error = (str(problems[-1]) or type(problems[-1]).__name__)[:500] if problems else ""
    values: dict[str, Any] = {"tried_at": now, "alerts": len(told), "last_error": error}
    values |= {} if error else {"ok_at": database_now()}
    AlertPush.objects.update_or_create(channel=AlertChannel.ALERTMANAGER, defaults=values)
    return {"standing": len(told), "push_failed": int(bool(error))}


def standing() -> QuerySet[Alert]:
    told = Q(deliveries__message__channel=AlertChannel.ALERTMANAGER, deliveries__message__event=AlertEvent.FIRED)
    return Alert.objects.filter(told, resolved_at=None).select_related("rule").distinct()


def mirror_silences(now: dt.datetime) -> list[Exception]:
    """Silences that it can hold are put there, so that what it repeats is silenced, too; their ends follow ours. What
    went wrong is returned: one that it refuses keeps neither the others nor the alerts from it."""
    fresh = Silence.objects.filter(period__contains=now, mirror="").select_related("by")
    early = Silence.objects.exclude(mirror="").filter(ended_by__isnull=False, mirrored_until__gt=now)
    problems: list[Exception] = []
    for act, rows in ((_put, fresh), (_take_back, early)):
        for silence in rows.order_by("pk")[:MOST_SILENCES]:
            try:
                act(silence, now)
            except Exception as problem:  # the next minute tries again
                problems.append(problem)
                if getattr(problem, "status", None) is None:
                    return problems  # nobody answers: the others would wait as long
    return problems


def _put(silence: Silence, _now: dt.datetime) -> None:
    matchers = _matchers(silence.matchers)
    if matchers is None:
        return
    answer = _post("silences", _silence(silence, matchers))
    mirror, until = str(json.loads(answer)["silenceID"])[:64], silence.period.upper
    Silence.objects.filter(pk=silence.pk).update(mirror=mirror, mirrored_until=until)


def _take_back(silence: Silence, now: dt.datetime) -> None:
    """One that it does not know any more is gone, too: it may have lost what it kept."""
    try:
        outbound.delete(_address(f"silence/{silence.mirror}"), _headers(), TIMEOUT_S)
    except outbound.OutboundFailed as failed:
        if failed.status != HTTPStatus.NOT_FOUND:
            raise
    Silence.objects.filter(pk=silence.pk).update(mirrored_until=now)


def _silence(silence: Silence, matchers: list[dict[str, Any]]) -> dict[str, Any]:
    times = {"startsAt": silence.period.lower.isoformat(), "endsAt": silence.period.upper.isoformat()}
    return {"matchers": matchers, "createdBy": silence.by.username, "comment": silence.reason, **times}


def _matchers(ours: Iterable[Sequence[Any]]) -> list[dict[str, Any]] | None:
    """None where it has no such matcher."""
    found: list[dict[str, Any]] = [{"name": "source", "value": "gpu-commons", "isRegex": False, "isEqual": True}]
    for name, op, values in ours:
        if op not in ("=", "!="):
            return None
        value = values[0] if len(values) == 1 else "|".join(map(re.escape, values))
        found.append({"name": name, "value": value, "isRegex": len(values) > 1, "isEqual": op == "="})
    return found


# -- HTTP --------------------------------------------------------------------------------------------------------------


def _address(path: str) -> str:
    return f"{settings.ALERTMANAGER_URL.rstrip('/')}/api/v2/{path}"


def _headers() -> dict[str, str]:
    token = {"Authorization": f"Bearer {settings.ALERTMANAGER_TOKEN}"} if settings.ALERTMANAGER_TOKEN else {}
    return {"Content-Type": "application/json"} | token


def _post(path: str, document: Any) -> bytes:
    body = json.dumps(document, ensure_ascii=False).encode()
    return outbound.post(_address(path), body, _headers(), TIMEOUT_S).body
