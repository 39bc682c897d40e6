"""What other parts ask about alerts. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from ledger.vocabulary import DeliveryState
from scheduler.alert_rows import Alert, AlertDelivery, AlertEvent

PAGES: Final = "pages"  # the alerts page, on which every alert stands from the moment it fires


def deliveries_for(labels: Mapping[str, str]) -> list[tuple[str, dt.datetime | None, str]]:
    """When the alerts that have all these labels went out, and by what: (channel, sent at, state of DeliveryState), the
    first first, what was not sent last. PAGES stands for the portal's own pages."""
    alerts = Alert.objects.filter(labels__contains=dict(labels), fired_at__isnull=False)
    found: list[tuple[str, dt.datetime | None, str]] = [
        (PAGES, fired_at, str(DeliveryState.SENT)) for fired_at in alerts.values_list("fired_at", flat=True)
    ]
    sent = AlertDelivery.objects.filter(alert__in=alerts, message__event=AlertEvent.FIRED)
    found += list(sent.values_list("message__channel", "message__sent_at", "message__state"))
    return sorted(found, key=lambda row: (row[1] is None, row[1] or dt.datetime.min.replace(tzinfo=dt.UTC), row[0]))
