"""Which channels were told of a drill, and when: read from the alerts that name its hold."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

SENT: Final = "sent"
NOWHERE: Final = "not_configured"


@dataclass(frozen=True, slots=True)
class Told:
    """`channels` were to tell, `sent` did first at that time."""

    channels: frozenset[str] = frozenset()
    sent: dict[str, dt.datetime] = field(default_factory=dict)


def deliveries(hold_id: int) -> list[tuple[str, dt.datetime | None, str]]:
    """(channel, when, state) of every alert of this hold."""
    try:
        alerts = import_module("scheduler.alerts")
    except ModuleNotFoundError:
        return []
    found: list[tuple[str, dt.datetime | None, str]] = alerts.deliveries_for({"hold": str(hold_id)})
    return found


def configured() -> frozenset[str]:
    """Channels that the alert of a drill is to go out on."""
    try:
        alerts = import_module("scheduler.alerts")
    except ModuleNotFoundError:
        return frozenset()
    return frozenset(alerts.channels())


def told(hold_id: int) -> Told:
    rows = [row for row in deliveries(hold_id) if row[2] != NOWHERE]
    sent: dict[str, dt.datetime] = {}
    for channel, at, state in rows:
        if state == SENT and at is not None:
            sent[channel] = min(at, sent.get(channel, at))
    return Told(configured() | {channel for channel, _at, _state in rows}, sent)
