"""Alerts that have been over for long go with what was told of them; open ones and late ones stay whole."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.vocabulary import DeliveryState
from scheduler import alert_defaults, alert_trim
from scheduler.alert_rows import Alert, AlertChannel, AlertDelivery, AlertEvent, AlertMessage, AlertRule

pytestmark = pytest.mark.django_db
DAY = dt.timedelta(days=1)


def _alert(name: str, began: int, over: int | None) -> Alert:
    """Days ago; None: it is open."""
    now = database_now()
    at = now - began * DAY
    return Alert.objects.create(
        rule=AlertRule.objects.get(key="taken-out"), severity="warn", labels={"node": name}, fingerprint=name,
        subject=name, simulated=False, threshold=0, value=1, peak=1, started_at=at, fired_at=at, last_seen=at,
        told_at=at, resolved_at=None if over is None else now - over * DAY, ending="" if over is None else "clear",
    )  # fmt: skip


def _message(days: int, state: DeliveryState, *alerts: Alert) -> AlertMessage:
    at = database_now() - days * DAY
    message = AlertMessage.objects.create(
        channel=AlertChannel.WEBHOOK, event=AlertEvent.FIRED, rule=alerts[0].rule, severity="warn", state=state,
        created_at=at, due_at=at, sent_at=at if state == DeliveryState.SENT else None,
    )  # fmt: skip
    AlertDelivery.objects.bulk_create(AlertDelivery(message=message, alert=alert) for alert in alerts)
    return message


def test_what_is_over_for_long_goes_and_what_an_open_alert_was_told_stays(settings: Any) -> None:
    settings.ALERTS_KEPT_DAYS = 30
    alert_defaults.ensure(database_now())
    old, open_one, fresh, owed = (
        _alert("old", 90, 80), _alert("open", 90, None), _alert("fresh", 90, 3), _alert("owed", 90, 80)
    )  # fmt: skip
    _message(90, DeliveryState.SENT, old)
    shared = _message(90, DeliveryState.SENT, old, open_one)
    kept = _message(90, DeliveryState.SENT, fresh)
    pending = _message(90, DeliveryState.PENDING, owed)
    untold = _alert("untold", 90, 80)
    assert alert_trim.trim() == {"messages": 1, "alerts": 1}
    assert set(AlertMessage.objects.all()) == {shared, kept, pending}
    assert set(Alert.objects.all()) == {old, open_one, fresh, owed}  # old stands in a message of an open one
    assert not Alert.objects.filter(pk=untold.pk).exists()
    Alert.objects.filter(pk=open_one.pk).update(resolved_at=database_now() - 40 * DAY, ending="clear")
    assert alert_trim.trim() == {"messages": 1, "alerts": 2}
    assert alert_trim.trim() == {"messages": 0, "alerts": 0}
