"""Sends the messages of the outbox of alerts: to Alertmanager, by mail, and one signed JSON document to the webhook.

The webhook gets POST with `X-GPU-Commons-Signature: sha256=<HMAC-SHA256 of the body with ALERT_WEBHOOK_SECRET>` and
`Idempotency-Key`, equal for every try of one message. Any answer but 2xx is a failure; redirects are not followed.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Exists, OuterRef, Q
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ledger.clock import database_now
from ledger.models import User
from ledger.vocabulary import DeliveryState
from scheduler import alert_words, alertmanager, outbound, outbox
from scheduler.alert_rows import Alert, AlertChannel, AlertDelivery, AlertEvent, AlertMessage
from scheduler.telling import signed_headers

log = logging.getLogger(__name__)
BATCH: Final = 30  # messages in one pass
LONGEST_S: Final = 25.0  # of one pass: a channel that hangs keeps the next pass from nothing
TIMEOUT_S: Final = 10.0
NAMED: Final = 20  # alerts that a mail names; the rest is a number
LISTED: Final = 100  # alerts in a document of the webhook


def send_due(now: dt.datetime | None = None) -> dict[str, int]:
    """Try every message that is due, each on its own, then tell Alertmanager what stands. Returns counts."""
    counts = Counter(sent=0, tried=0, failed=0)
    began = time.monotonic()
    for pk in _due(now or database_now()):
        if time.monotonic() - began > LONGEST_S:
            break
        counts[_try(pk, now or database_now())] += 1
    del counts[""]
    return dict(counts) | alertmanager.push_standing(now or database_now())


def _due(now: dt.datetime) -> list[int]:
    """What calls somebody first, then those that wait longest. An end waits for its beginning, which may be tried again
    later or wait for the end of a window: the other way round, whoever is told would think that it goes on."""
    theirs = AlertDelivery.objects.filter(message=OuterRef(OuterRef("pk"))).values("alert")
    begins = {"message__event": AlertEvent.FIRED, "message__state": DeliveryState.PENDING}
    untold = AlertDelivery.objects.filter(alert__in=theirs, message__channel=OuterRef("channel"), **begins)
    rows = AlertMessage.objects.filter(state=DeliveryState.PENDING, due_at__lte=now)
    rows = rows.exclude(Q(event=AlertEvent.RESOLVED) & Exists(untold))
    order = {"page": 0, "warn": 1, "event": 2}
    found = list(rows.order_by("due_at", "pk").values_list("severity", "pk")[: 10 * BATCH])
    return [pk for _severity, pk in sorted(found, key=lambda row: order[row[0]])][:BATCH]


def _try(pk: int, now: dt.datetime) -> str:
    """What became of it: the name of a count, "" where another worker has it."""
    message = outbox.claim(AlertMessage.objects.all(), pk, now, "rule", "by")
    if message is None:
        return ""
    try:
        SENDERS[AlertChannel(message.channel)](message, now)
    except Exception as error:  # whatever the other side or a library says: it is told in the row
        log.warning("alert message %d, %s: %s", message.pk, message, error)
        given_up = outbox.note_failure(AlertMessage.objects.all(), pk, message.tries, error, now)
        return "failed" if given_up else "tried"
    return "sent" if _note_sent(message) else ""


def _note_sent(message: AlertMessage) -> int:
    return outbox.note_sent(AlertMessage.objects.all(), message.pk)


def _alerts(message: AlertMessage) -> list[Alert]:
    return list(Alert.objects.filter(deliveries__message=message).select_related("rule").order_by("pk"))


# -- channels ----------------------------------------------------------------------------------------------------------


def _to_alertmanager(message: AlertMessage, now: dt.datetime) -> None:
    if message.event == AlertEvent.TEST:
        alertmanager.send_test(now, message.by.username if message.by else "—")
    else:
        alertmanager.send(_alerts(message), now)


def _by_mail(message: AlertMessage, _now: dt.datetime) -> None:
    """In the language of the person whose address it is; English for others."""
    alerts = _alerts(message)
    by_language: dict[str, list[str]] = defaultdict(list)
    people = dict(User.objects.filter(email__in=settings.ALERT_MAIL_TO).values_list("email", "locale"))
    for address in settings.ALERT_MAIL_TO:
        by_language[people.get(address) or "en"].append(address)
    for language, addresses in by_language.items():
        with translation.override(language):
            subject, body = headline(message, alerts), text(message, alerts)
        EmailMessage(" ".join(subject.split()), body, to=addresses).send()


def _by_webhook(message: AlertMessage, _now: dt.datetime) -> None:
    body = json.dumps(document(message, _alerts(message)), ensure_ascii=False, sort_keys=True).encode()
    headers = signed_headers(body, f"alert-message-{message.pk}", settings.ALERT_WEBHOOK_SECRET)
    outbound.post(settings.ALERT_WEBHOOK_URL, body, headers, TIMEOUT_S)


SENDERS: Final = {
    AlertChannel.ALERTMANAGER: _to_alertmanager,
    AlertChannel.MAIL: _by_mail,
    AlertChannel.WEBHOOK: _by_webhook,
}


# -- what they say -----------------------------------------------------------------------------------------------------


def headline(message: AlertMessage, alerts: Sequence[Alert]) -> str:
    if message.rule is None:
        return _("Test alert of GPU Commons")
    place = message.place or (alerts[0].subject if len(alerts) == 1 else _("several places"))
    about = {"name": alert_words.name(message.rule), "place": place, "n": len(alerts)}
    if message.event == AlertEvent.RESOLVED:
        return ngettext("Over: %(name)s, %(place)s", "Over: %(name)s, %(place)s (%(n)d)", len(alerts)) % about
    if alerts and all(alert.resolved_at for alert in alerts):  # it was sent late
        return _("Over already: %(told)s") % {"told": _told_of(about)}
    mark = {"page": _("ACT NOW"), "warn": _("Warning")}.get(message.severity, _("Event"))
    return f"{mark}: {_told_of(about)}"


def _told_of(about: Mapping[str, Any]) -> str:
    return ngettext("%(name)s, %(place)s", "%(name)s, %(place)s (%(n)d)", about["n"]) % about


def text(message: AlertMessage, alerts: Sequence[Alert]) -> str:
    where = f"{settings.PORTAL_URL}/health/alerts/"
    if message.rule is None:
        by = message.by.username if message.by else "—"
        return _("%(by)s sent this to see whether alerts arrive. Nothing is wrong.") % {"by": by} + f"\n\n{where}\n"
    lines = [_line(alert) for alert in alerts[:NAMED]]
    if len(alerts) > NAMED:
        lines.append(_("… and %(n)d more.") % {"n": len(alerts) - NAMED})
    return "\n".join([headline(message, alerts), "", *lines, "", where, ""])


def _line(alert: Alert) -> str:
    label = f" [{_('simulated')}]" if alert.simulated else ""
    return f"- {alert_words.sentence(alert)}{label} {settings.PORTAL_URL}/health/alerts/{alert.pk}/"


def document(message: AlertMessage, alerts: Sequence[Alert]) -> dict[str, Any]:
    """What the webhook is told."""
    with translation.override("en"):
        told = headline(message, alerts)
        listed = [_told(alert) for alert in alerts[:LISTED]]
    return {
        "event": f"alert.{message.event}",
        "message": message.pk,
        "at": message.created_at.isoformat(),
        "rule": message.rule.key if message.rule else None,
        "severity": message.severity,
        "place": message.place,
        "text": told,
        "alerts": listed,
        "more": max(0, len(alerts) - LISTED),
    }


def _told(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "text": alert_words.sentence(alert),
        "labels": alert.labels,
        "subject": alert.subject,
        "simulated": alert.simulated,
        "value": alert.value,
        "threshold": alert.threshold,
        "started_at": alert.started_at.isoformat(),
        "fired_at": alert.fired_at.isoformat() if alert.fired_at else None,
        "resolved_at": alert.resolved_at.isoformat() if alert.resolved_at else None,
        "url": f"{settings.PORTAL_URL}/health/alerts/{alert.pk}/",
    }
