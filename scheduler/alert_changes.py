"""What people change about alerts: rules, the ladder, silences, and tests of the channels. The only writer of these for
people; operators and administrators alone, each change in the audit trail with what was before.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.db import transaction
from django.utils.text import slugify
from django.utils.translation import gettext as _
from psycopg.types.range import TimestamptzRange

from ledger import audit
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import User
from ledger.reasons import check_reason
from ledger.vocabulary import DeliveryState
from scheduler.alert_matchers import Matcher, check, meets
from scheduler.alert_messages import configured
from scheduler.alert_metrics import METRICS
from scheduler.alert_rows import (
    LONGEST_S,
    AlertChannel,
    AlertEvent,
    AlertMessage,
    AlertRule,
    AlertRung,
    Comparison,
    Severity,
    Silence,
)
from scheduler.wake import wake_after_commit

LONGEST_NAME: Final = 100
LONGEST_SUMMARY: Final = 300
LARGEST: Final = 1e12
LONGEST_SILENCE: Final = dt.timedelta(days=90)
TEST_EVERY: Final = dt.timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class RuleTerms:
    """What a rule is to say. `name` "" leaves a rule of the portal its own words."""

    metric: str
    comparison: str
    threshold: float
    for_s: int
    keep_s: int
    severity: str
    selector: list[Matcher]
    enabled: bool = True
    name: str = ""
    summary: str = ""


TERMS: Final = tuple(RuleTerms.__dataclass_fields__)


def terms_of(rule: AlertRule) -> RuleTerms:
    return RuleTerms(**{name: getattr(rule, name) for name in TERMS})


def require_operating(actor: User | None) -> User:
    """Forbidden for all but operators and administrators."""
    if actor is None or not actor.operates:
        raise Forbidden(_("Operators and administrators alone change what alerts say and do."), code="forbidden")
    return actor


# -- rules -------------------------------------------------------------------------------------------------------------


def check_rule(terms: RuleTerms) -> None:
    """Refused, naming the field, unless a rule may say that."""
    _one_of("metric", terms.metric, list(METRICS))
    _one_of("comparison", terms.comparison, list(Comparison))
    _one_of("severity", terms.severity, list(Severity))
    if not math.isfinite(terms.threshold) or abs(terms.threshold) > LARGEST:
        raise Refused(_("Give a number."), field="threshold", code="invalid")
    for name in ("for_s", "keep_s"):
        if not 0 <= getattr(terms, name) <= LONGEST_S:
            text = _("Give a whole number from %(least)d to %(most)d.") % {"least": 0, "most": LONGEST_S}
            raise Refused(text, field=name, code="out_of_range")
    if terms.metric == "utilisation" and terms.comparison == Comparison.ABOVE:
        text = _(
            "High utilisation alone is no fault: a busy card is what the pool is for. Look at tensor cores or memory "
            "bandwidth of busy cards, at the queue, or at P99."
        )
        raise Refused(text, field="metric", code="utilisation_alone")
    for name, most in (("name", LONGEST_NAME), ("summary", LONGEST_SUMMARY)):
        if len(getattr(terms, name)) > most or not _printable(getattr(terms, name)):
            raise Refused(_("Give at most %(n)d characters on one line.") % {"n": most}, field=name, code="invalid")
    check(terms.selector, "selector")


def _printable(text: str) -> bool:
    return text == "" or text.isprintable()


def _one_of(name: str, value: str, known: list[Any]) -> None:
    if value not in known:
        text = _("Known are: %(known)s.") % {"known": ", ".join(map(str, known))}
        raise Refused(text, field=name, code="invalid_choice")


def add_rule(*, terms: RuleTerms, act: Act) -> AlertRule:
    """A rule of the site's own; it needs a name."""
    by = require_operating(act.actor)
    check_reason(act.reason)
    check_rule(terms)
    if not terms.name.strip():
        raise Refused(_("Give the rule a name."), field="name", code="required")
    with transaction.atomic(durable=True):
        now = database_now()
        about = {"changed_at": now, "by": by, "reason": act.reason}
        rule = AlertRule.objects.create(key=_free_key(terms.name), **asdict(terms), **about)
        audit.record(verb="alert.rule.added", target=rule, after=asdict(terms), at=now, **act.said())
        wake_after_commit("scheduler.alerts")
    return rule


def _free_key(name: str) -> str:
    """`own-` keeps it apart from the portal's, also from those that are still to come."""
    start = f"own-{slugify(name)[:50].strip('-') or 'rule'}"
    taken = set(AlertRule.objects.filter(key__startswith=start).values_list("key", flat=True))
    return next(key for key in (start, *(f"{start}-{n}" for n in range(2, len(taken) + 3))) if key not in taken)


def change_rule(*, rule: AlertRule, terms: RuleTerms, act: Act, shown: int | None = None) -> AlertRule:
    """From the next pass on it says that. `shown`: the version that was looked at; Conflict when it is another now."""
    by = require_operating(act.actor)
    check_reason(act.reason)
    check_rule(terms)
    with transaction.atomic(durable=True):
        found = AlertRule.objects.select_for_update().get(pk=rule.pk)
        _same_version(found.version, shown)
        before = terms_of(found)
        if before == terms:
            raise Refused(_("This is what the rule says already."), code="no_change")
        now = database_now()
        for name in TERMS:
            setattr(found, name, getattr(terms, name))
        found.version, found.changed_at, found.by, found.reason = found.version + 1, now, by, act.reason
        found.save(update_fields=[*TERMS, "version", "changed_at", "by", "reason"])
        audit.record(
            verb="alert.rule.changed", target=found, before=asdict(before), after=asdict(terms), at=now, **act.said()
        )
        wake_after_commit("scheduler.alerts")
    return found


def _same_version(version: int, shown: int | None) -> None:
    if shown is not None and shown != version:
        text = _("It was changed since you looked at it (version %(n)d now). Look again.") % {"n": version}
        raise Conflict(text, code="changed")


# -- the ladder --------------------------------------------------------------------------------------------------------


def change_rung(
    *, rung: AlertRung, matchers: list[Matcher], channels: list[str], enabled: bool, act: Act, shown: int | None = None
) -> AlertRung:
    """Which alerts take this rung, and the channels that they then go to."""
    by = require_operating(act.actor)
    check_reason(act.reason)
    matchers = check(matchers)
    for channel in channels:
        _one_of("channels", channel, list(AlertChannel))
    with transaction.atomic(durable=True):
        found = AlertRung.objects.select_for_update().get(pk=rung.pk)
        _same_version(found.version, shown)
        before = {"matchers": found.matchers, "channels": found.channels, "enabled": found.enabled}
        after = {"matchers": matchers, "channels": [str(c) for c in AlertChannel if c in channels], "enabled": enabled}
        if before == after:
            raise Refused(_("This is what the rung says already."), code="no_change")
        now = database_now()
        for name, value in after.items():
            setattr(found, name, value)
        found.version, found.changed_at, found.by, found.reason = found.version + 1, now, by, act.reason
        found.save(update_fields=[*after, "version", "changed_at", "by", "reason"])
        audit.record(verb="alert.rung.changed", target=found, before=before, after=after, at=now, **act.said())
    return found


# -- silences ----------------------------------------------------------------------------------------------------------


def silence(*, matchers: list[Matcher], until: dt.datetime, act: Act) -> Silence:
    """From now until then, alerts that meet all of these are recorded and not told."""
    by = require_operating(act.actor)
    check_reason(act.reason)
    matchers = check(matchers)
    if not matchers:
        raise Refused(_("Say which alerts: at least one label."), field="matchers", code="required")
    if meets({}, matchers):  # such as a label that nothing has, left empty
        text = _("This would silence every alert that lacks these labels. Name at least one label with its value.")
        raise Refused(text, field="matchers", code="too_wide")
    with transaction.atomic(durable=True):
        now = database_now()
        if not now < until <= now + LONGEST_SILENCE:
            text = _("Choose a time after now and within %(n)d days.") % {"n": LONGEST_SILENCE.days}
            raise Refused(text, field="until", code="out_of_range")
        period = TimestamptzRange(now, until, "[)")
        made = Silence.objects.create(matchers=matchers, period=period, by=by, reason=act.reason)
        after = {"matchers": matchers, "until": until.isoformat()}
        audit.record(verb="alert.silenced", target=made, after=after, at=now, **act.said())
        wake_after_commit("scheduler.send_alerts")
    return made


def end_silence(*, silence: Silence, act: Act) -> Silence:
    """Before its time. What fires still is told from the next pass on."""
    by = require_operating(act.actor)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        found = Silence.objects.select_for_update().get(pk=silence.pk)
        now = database_now()
        if found.period.upper <= now:
            raise Conflict(_("This silence is over already."), code="over")
        before = {"until": found.period.upper.isoformat()}
        found.period, found.ended_by = TimestamptzRange(found.period.lower, now, "[)"), by
        found.save(update_fields=["period", "ended_by"])
        audit.record(verb="alert.silence_ended", target=found, before=before, at=now, **act.said())
        wake_after_commit("scheduler.send_alerts")
    return found


# -- tests of channels -------------------------------------------------------------------------------------------------


def send_test(*, channel: str, act: Act) -> AlertMessage:
    """A test alert by this channel; it goes the way of every other message."""
    by = require_operating(act.actor)
    _one_of("channel", channel, list(AlertChannel))
    if not configured(channel):
        raise Conflict(_("This site has no such channel; its settings name none."), code="not_configured")
    with transaction.atomic(durable=True):
        now = database_now()
        tests = AlertMessage.objects.filter(channel=channel, event=AlertEvent.TEST)
        if tests.filter(created_at__gt=now - TEST_EVERY).exists():
            raise Conflict(_("A test was asked for a moment ago; wait ten seconds."), code="too_soon")
        values = {"channel": channel, "event": AlertEvent.TEST, "severity": Severity.EVENT, "by": by}
        made = AlertMessage.objects.create(state=DeliveryState.PENDING, created_at=now, due_at=now, **values)
        audit.record(verb="alert.tested", target=made, after={"channel": channel}, at=now, **act.said())
        wake_after_commit("scheduler.send_alerts")
    return made
