"""Which channels are told of an alert, and the messages to them: few, however many alerts begin or end at once.

The alerts of one rule that begin together go by node; those of more than MOST_PLACES nodes by zone; those of more zones
in one message. A channel gets at most MOST_MESSAGES of a rule in WINDOW; what comes on top of that waits for the end of
it, in one. Messages are begun here and sent by scheduler.alert_sending.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from ledger.vocabulary import DeliveryState
from scheduler.alert_matchers import meets
from scheduler.alert_rows import Alert, AlertChannel, AlertDelivery, AlertEvent, AlertMessage, AlertRung, Silence

MOST_PLACES: Final = 3
MOST_MESSAGES: Final = 6
WINDOW: Final = dt.timedelta(minutes=5)
MOST_ALERTS: Final = 5_000  # looked at in one pass
ROWS: Final = 2_000


def configured(channel: str) -> bool:
    """Whether this site has such a channel."""
    if channel == AlertChannel.ALERTMANAGER:
        return bool(settings.ALERTMANAGER_URL)
    if channel == AlertChannel.MAIL:
        return bool(settings.EMAIL_HOST and settings.ALERT_MAIL_TO)
    return bool(settings.ALERT_WEBHOOK_URL)


def write_due(now: dt.datetime) -> dict[str, int]:
    """The messages about alerts that nobody was told of yet. Returns counts."""
    counts: Counter[str] = Counter(messages=0)
    with transaction.atomic(durable=True):
        counts += _began(now)
        counts += _ended(now)
    return {"messages": counts["messages"]}


def channels_of(alert: Alert, ladder: Iterable[AlertRung]) -> list[str]:
    """What the ladder says; nothing for make-believe hardware unless the site wants that."""
    if alert.simulated and not settings.ALERT_SIMULATED:
        return []
    rung = next((rung for rung in ladder if meets(alert.labels, rung.matchers)), None)
    return list(rung.channels) if rung is not None else []


def ladder() -> list[AlertRung]:
    return list(AlertRung.objects.filter(enabled=True).order_by("position", "pk"))


def silences(now: dt.datetime) -> list[Silence]:
    """Those in force."""
    return list(Silence.objects.filter(period__contains=now))


def silenced(alert: Alert, standing: Iterable[Silence]) -> bool:
    return any(meets(alert.labels, silence.matchers) for silence in standing)


def _began(now: dt.datetime) -> Counter[str]:
    """One that is silenced waits: when it still fires after that, it is told then."""
    fresh = Alert.objects.select_for_update().filter(fired_at__isnull=False, told_at=None, resolved_at=None)
    standing, rungs = silences(now), ladder()
    audible = (alert for alert in fresh.order_by("pk").iterator(ROWS) if not silenced(alert, standing))
    told = list(islice(audible, MOST_ALERTS))  # those that are silenced take nobody's turn
    wanted: dict[tuple[str, int], list[Alert]] = defaultdict(list)
    for alert in told:
        for channel in channels_of(alert, rungs):
            wanted[channel, alert.rule_id].append(alert)
    Alert.objects.filter(pk__in=[alert.pk for alert in told]).update(told_at=now)
    return _write(wanted, AlertEvent.FIRED, now)


def _ended(now: dt.datetime) -> Counter[str]:
    """Told to the channels that were told of the beginning; Alertmanager, which keeps silences, at once, the others
    after a silence: who was called is told that it is over."""
    over = Alert.objects.select_for_update().filter(resolved_at__isnull=False, told_over_at=None)
    alerts = {alert.pk: alert for alert in over.order_by("pk").iterator(ROWS)}
    standing = silences(now) if alerts else []
    quiet = {pk for pk, alert in alerts.items() if silenced(alert, standing)}
    wanted: dict[tuple[str, int], list[Alert]] = defaultdict(list)
    waiting: set[int] = set()
    for pk, channel in sorted(_told_pairs(alerts, AlertEvent.FIRED) - _told_pairs(alerts, AlertEvent.RESOLVED)):
        if pk in quiet and channel != AlertChannel.ALERTMANAGER:
            waiting.add(pk)
        else:
            wanted[channel, alerts[pk].rule_id].append(alerts[pk])
    Alert.objects.filter(pk__in=[pk for pk in alerts if pk not in waiting]).update(told_over_at=now)
    return _write(wanted, AlertEvent.RESOLVED, now)


def _told_pairs(alerts: Collection[int], event: AlertEvent) -> set[tuple[int, str]]:
    """(alert, channel) of what was written to a channel that there is."""
    rows = AlertDelivery.objects.filter(alert__in=alerts, message__event=event)
    there = rows.exclude(message__state=DeliveryState.NOT_CONFIGURED)
    return set(there.values_list("alert", "message__channel"))


# -- few messages ------------------------------------------------------------------------------------------------------


def places(alerts: Sequence[Alert]) -> dict[str, list[Alert]]:
    """The alerts of one rule by node, by zone, or all together ("")."""
    for label in ("node", "zone"):
        found: dict[str, list[Alert]] = defaultdict(list)
        for alert in alerts:
            found[alert.labels.get(label, "")].append(alert)
        if len(found) <= MOST_PLACES:
            return found
    return {"": list(alerts)}


def _write(wanted: dict[tuple[str, int], list[Alert]], event: AlertEvent, now: dt.datetime) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (channel, rule), alerts in wanted.items():
        split = places(alerts) if channel != AlertChannel.ALERTMANAGER else {"": alerts}
        for place, those in split.items():
            message, new = _message(channel, rule, event, place, those[0].severity, now)
            rows = [AlertDelivery(message=message, alert=alert) for alert in those]
            AlertDelivery.objects.bulk_create(rows, batch_size=ROWS, ignore_conflicts=True)
            counts["messages"] += new
    return counts


def _message(
    channel: str, rule: int, event: AlertEvent, place: str, severity: str, now: dt.datetime
) -> tuple[AlertMessage, bool]:
    """A new one; or the one that waits for the end of the window already."""
    alike = AlertMessage.objects.filter(channel=channel, rule=rule, event=event)
    due_at = _due_at(alike, now) if channel != AlertChannel.ALERTMANAGER else now  # which groups by itself
    if due_at > now:
        unsent = Q(state=DeliveryState.PENDING, tries=0, due_at__gt=now) | Q(state=DeliveryState.NOT_CONFIGURED)
        late = alike.filter(unsent, created_at__gt=now - WINDOW).select_for_update(skip_locked=True)
        kept = late.order_by("-pk").first()
        if kept is not None:
            AlertMessage.objects.filter(pk=kept.pk).exclude(place=place).update(place="")
            return kept, False
    state = DeliveryState.PENDING if configured(channel) else DeliveryState.NOT_CONFIGURED
    values = {"channel": channel, "rule_id": rule, "event": event, "severity": severity, "place": place}
    made = AlertMessage.objects.create(state=state, created_at=now, due_at=due_at, **values)
    return made, True


def _due_at(alike: QuerySet[AlertMessage], now: dt.datetime) -> dt.datetime:
    """Now, or the end of the window when enough of them are in it."""
    recent = list(alike.filter(created_at__gt=now - WINDOW).order_by("created_at", "pk")[:MOST_MESSAGES])
    return recent[0].created_at + WINDOW if len(recent) >= MOST_MESSAGES else now
