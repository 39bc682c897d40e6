"""Which channels were told of a drill, and when: read from the alerts that name its hold."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Final

from scheduler import alert_messages, alerts
from scheduler.alert_rows import Alert

SENT: Final = "sent"
NOWHERE: Final = "not_configured"
PAGES: Final = "pages"  # of scheduler.alerts: the portal's own, on which every alert stands once it fires


@dataclass(frozen=True, slots=True)
class Told:
    """`channels` were to tell, `sent` did first at that time."""

    channels: frozenset[str] = frozenset()
    sent: dict[str, dt.datetime] = field(default_factory=dict)


def told(hold_id: int) -> Told:
    rows = [row for row in deliveries(hold_id) if row[2] != NOWHERE]
    sent: dict[str, dt.datetime] = {}
    for channel, at, state in rows:
        if state == SENT and at is not None:
            sent[channel] = min(at, sent.get(channel, at))
    return Told(awaited(hold_id) | {channel for channel, _at, _state in rows}, sent)


def deliveries(hold_id: int) -> list[tuple[str, dt.datetime | None, str]]:
    """(channel, when, state) of every alert of this hold."""
    return alerts.deliveries_for(_labels(hold_id))


def awaited(hold_id: int) -> frozenset[str]:
    """What is to tell of this hold: the portal's pages, and once its alert fires those channels on which it is to leave
    the portal."""
    fired = Alert.objects.filter(labels__contains=_labels(hold_id), fired_at__isnull=False)
    rungs = alert_messages.ladder()
    leaves = {channel for alert in fired for channel in alert_messages.channels_of(alert, rungs)}
    return frozenset({PAGES} | {channel for channel in leaves if alert_messages.configured(channel)})


def _labels(hold_id: int) -> dict[str, str]:
    return {"hold": str(hold_id)}
