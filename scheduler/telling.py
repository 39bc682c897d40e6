"""Sends what stands in the outbox of notices and letters: mails through Django's backend, and one signed JSON document
a notice to the site's webhook. Claim → send → note: killed between the last two, it is sent again, never left out.

The webhook gets POST with `X-GPU-Commons-Signature: sha256=<HMAC-SHA256 of the body with PROJECT_WEBHOOK_SECRET>` and
`Idempotency-Key`, equal for every try of one delivery. Any answer but 2xx is a failure; redirects are not followed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import F
from django.db.models.lookups import IsNull
from django.utils import translation

from ledger import ends, letters, notices
from ledger.clock import database_now
from ledger.models import Delivery, Letter, Notice, User
from ledger.vocabulary import Channel, DeliveryState
from scheduler import outbound, outbox

log = logging.getLogger(__name__)
BATCH: Final = 50  # tries in one pass; what is dropped takes nobody's turn
MOST_LOOKED_AT: Final = 2_000
TIMEOUT_S: Final = 10


def tell_due(now: dt.datetime | None = None, limit: int = BATCH) -> dict[str, int]:
    """Try every delivery that is due, each on its own. Returns counts for the task's record."""
    counts = Counter(sent=0, tried=0, failed=0)
    looked_at: set[int] = set()
    while (left := limit - counts["sent"] - counts["tried"] - counts["failed"]) > 0 and len(looked_at) < MOST_LOOKED_AT:
        due = _due(now or database_now(), left, looked_at)
        if not due:
            break
        looked_at.update(due)
        counts.update(_try(pk, now or database_now()) for pk in due)
    del counts[""]
    return dict(counts)


def _try(pk: int, now: dt.datetime) -> str:
    """What became of it: the name of a count, "" where another worker has it."""
    delivery = _claim(pk, now)
    if delivery is None:
        return ""
    try:
        if delivery.letter is not None and not letters.holds(delivery.letter, now):
            return "dropped" if outbox.note_dropped(Delivery.objects.all(), delivery.pk) else ""
        SENDERS[Channel(delivery.channel)](delivery)
    except Exception as error:  # whatever a mail server or a library says: it is told in the row
        log.warning("delivery %d, %s: %s", delivery.pk, delivery, error)
        given_up = outbox.note_failure(Delivery.objects.all(), delivery.pk, delivery.tries, error, now)
        return "failed" if given_up else "tried"
    return "sent" if _note_sent(delivery) else ""


def _due(now: dt.datetime, limit: int, looked_at: Collection[int] = ()) -> list[int]:
    """Notices of projects first, whatever single people are told; those that wait longest before others."""
    rows = Delivery.objects.filter(state=DeliveryState.PENDING, due_at__lte=now).exclude(pk__in=looked_at)
    letter = IsNull(F("notice"), True)
    return list(rows.order_by(letter, "due_at", "pk").values_list("pk", flat=True)[:limit])


def _claim(pk: int, now: dt.datetime) -> Delivery | None:
    """None when another worker has it, or it is done."""
    delivery = outbox.claim(Delivery.objects.all(), pk, now, "notice__project__owner", "to")
    if delivery is not None and delivery.letter_id is not None:
        delivery.letter = letters.with_things(Letter.objects).get(pk=delivery.letter_id)
    return delivery


def _note_sent(delivery: Delivery) -> int:
    return outbox.note_sent(Delivery.objects.all(), delivery.pk)


# -- channels ----------------------------------------------------------------------------------------------------------


def _send_mail(delivery: Delivery) -> None:
    person: User | None = delivery.to
    if person is None or not person.email:
        raise ValueError(notices.NO_ADDRESS)
    with translation.override(person.locale):
        subject, body = _words(delivery)
    EmailMessage(" ".join(subject.split()), f"{subject}\n\n{body}\n\n{settings.PORTAL_URL}\n", to=[person.email]).send()


def _words(delivery: Delivery) -> tuple[str, str]:
    """Subject and text, in the language of this moment."""
    if delivery.letter is not None:
        return letters.headline(delivery.letter), letters.meaning(delivery.letter)
    notice = _notice(delivery)
    return notices.headline(notice), notices.meaning(notice)


def _notice(delivery: Delivery) -> Notice:
    if delivery.notice is None:
        raise ValueError("a delivery of nothing")
    return delivery.notice


def _send_webhook(delivery: Delivery) -> None:
    body = json.dumps(document(_notice(delivery)), ensure_ascii=False, sort_keys=True).encode()
    key, secret = f"notice-{delivery.notice_id}", settings.PROJECT_WEBHOOK_SECRET
    outbound.post(settings.PROJECT_WEBHOOK_URL, body, signed_headers(body, key, secret), TIMEOUT_S, trusted=True)


def signed_headers(body: bytes, key: str, secret: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json; charset=utf-8",
        "Idempotency-Key": key,
        "X-GPU-Commons-Signature": f"sha256={signature(body, secret)}",
    }


def signature(body: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def document(notice: Notice) -> dict[str, Any]:
    """What the webhook is told of a notice."""
    project = notice.project
    grace_over = ends.grace_over_at(project)
    with translation.override("en"):
        text = notices.headline(notice)
    return {
        "event": f"project.notice.{notice.kind}",
        "notice": notice.pk,
        "at": notice.at.isoformat(),
        "project": project.slug,
        "title": project.title,
        "owner": project.owner.username,
        "state": project.state,
        "ends_on": notice.ends_on.isoformat(),
        "grace_over_at": grace_over.isoformat() if grace_over else None,
        "text": text,
    }


SENDERS: Final = {Channel.MAIL: _send_mail, Channel.WEBHOOK: _send_webhook}
