"""Alerts that are over, and what was told of them, go after ALERTS_KEPT_DAYS. The audit trail and the faults stay."""

from __future__ import annotations

import datetime as dt
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from ledger.clock import database_now
from ledger.vocabulary import DeliveryState
from scheduler.alert_rows import Alert, AlertDelivery, AlertMessage

BATCH: Final = 5_000  # rows in one transaction


def trim() -> dict[str, int]:
    """Messages first, with their deliveries, then alerts that no message names any more."""
    before = database_now() - dt.timedelta(days=settings.ALERTS_KEPT_DAYS)
    counts = {"messages": 0, "alerts": 0}
    while messages := _drop_messages(before):
        counts["messages"] += messages
    while alerts := _drop_alerts(before):
        counts["alerts"] += alerts
    return counts


def _drop_messages(before: dt.datetime) -> int:
    """Those of which every alert is over for so long: what an open one was told decides what its end tells."""
    live = AlertDelivery.objects.filter(Q(alert__resolved_at=None) | Q(alert__resolved_at__gte=before))
    old = AlertMessage.objects.filter(created_at__lt=before).exclude(state=DeliveryState.PENDING)
    old = old.exclude(pk__in=live.values("message")).order_by("pk")
    with transaction.atomic(durable=True):
        gone = list(old.values_list("pk", flat=True)[:BATCH])
        AlertMessage.objects.filter(pk__in=gone).delete()
    return len(gone)


def _drop_alerts(before: dt.datetime) -> int:
    told = AlertDelivery.objects.values("alert")
    old = Alert.objects.filter(resolved_at__lt=before).exclude(pk__in=told).order_by("pk")
    with transaction.atomic(durable=True):
        gone = list(old.values_list("pk", flat=True)[:BATCH])
        Alert.objects.filter(pk__in=gone).delete()
    return len(gone)
