"""How alerts look to people: states, severities, channels, rungs, and one alert as a row. Decides nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.translation import pgettext_lazy

from portal.labels import Look, Text
from scheduler import alert_matchers, alert_words
from scheduler.alert_messages import silenced
from scheduler.alert_rows import Alert, AlertChannel, AlertEvent, AlertState, Ending, Severity, Silence

STATES: Final[Mapping[str, Look]] = {
    AlertState.PENDING: Look(pgettext_lazy("alert state", "pending"), "○", "wait"),
    AlertState.FIRING: Look(pgettext_lazy("alert state", "firing"), "⚠", "alarm"),
    AlertState.RESOLVED: Look(pgettext_lazy("alert state", "over"), "✓", "good"),
}
SEVERITIES: Final[Mapping[str, Look]] = {
    Severity.PAGE: Look(pgettext_lazy("severity", "act now"), "‼", "alarm"),
    Severity.WARN: Look(pgettext_lazy("severity", "warning"), "⚠", "warn"),
    Severity.EVENT: Look(pgettext_lazy("severity", "event"), "·", "quiet"),
}
CHANNELS: Final[Mapping[str, Look]] = {
    AlertChannel.ALERTMANAGER: Look(pgettext_lazy("channel", "Alertmanager")),
    AlertChannel.MAIL: Look(pgettext_lazy("channel", "e-mail")),
    AlertChannel.WEBHOOK: Look(pgettext_lazy("channel", "webhook")),
}
EVENTS: Final[Mapping[str, Text]] = {
    AlertEvent.FIRED: pgettext_lazy("alert", "began"),
    AlertEvent.RESOLVED: pgettext_lazy("alert", "is over"),
    AlertEvent.TEST: pgettext_lazy("alert", "test"),
}
ENDINGS: Final[Mapping[str, Text]] = {
    Ending.CLEAR: pgettext_lazy("alert", "it is good again, or nobody reports it any more"),
    Ending.RULE: pgettext_lazy("alert", "its rule was switched off"),
}
RUNGS: Final[Mapping[str, Text]] = {
    "urgent-inference": pgettext_lazy("rung", "Urgent inference"),
    "training-that-gives-way": pgettext_lazy("rung", "Training that may be stopped"),
    "spot": pgettext_lazy("rung", "Spot machines"),
    "page": pgettext_lazy("rung", "All else: act now"),
    "warn": pgettext_lazy("rung", "All else: warnings"),
    "event": pgettext_lazy("rung", "All else: events"),
}


@dataclass(frozen=True, slots=True)
class AlertRow:
    alert: Alert
    now: dt.datetime
    standing: Sequence[Silence] = ()

    @property
    def state(self) -> Look:
        return STATES[self.alert.state]

    @property
    def severity(self) -> Look:
        return SEVERITIES[self.alert.severity]

    @property
    def name(self) -> str:
        return alert_words.name(self.alert.rule)

    @property
    def why(self) -> str:
        return alert_words.sentence(self.alert)

    @property
    def silenced(self) -> bool:
        return self.alert.resolved_at is None and silenced(self.alert, self.standing)

    @property
    def since(self) -> dt.datetime:
        return self.alert.fired_at or self.alert.started_at

    @property
    def minutes(self) -> int:
        return max(0, int(((self.alert.resolved_at or self.now) - self.since).total_seconds() // 60))

    @property
    def value(self) -> str:
        return alert_words.amount(self.alert.value, self.alert.rule.metric)

    @property
    def peak(self) -> str:
        return alert_words.amount(self.alert.peak, self.alert.rule.metric)

    @property
    def ending(self) -> Text:
        return ENDINGS.get(self.alert.ending, "")


def told(matchers: Sequence[Sequence[object]]) -> list[str]:
    return alert_matchers.told(matchers)
