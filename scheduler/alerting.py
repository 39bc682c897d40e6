"""Finds what is bad: compares rules with the readings of their metrics and moves alerts from pending to firing to over.

Level-triggered: each pass looks at what is so now, in a number of queries that doesn't grow with the fleet. A metric
that can't be read leaves its alerts as they are. Alerts are written here alone.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.db import transaction

from ledger.clock import database_now
from scheduler import alert_defaults, alert_messages
from scheduler.alert_matchers import meets
from scheduler.alert_metrics import METRICS, Labels, Reach, Reading, World, reaches, readings
from scheduler.alert_rows import Alert, AlertRule, Comparison, Ending
from scheduler.wake import wake_after_commit

log = logging.getLogger(__name__)
SEEN_EVERY: Final = dt.timedelta(seconds=30)  # so often an alert that goes on unchanged is written
BATCH: Final = 500
CHANGED: Final = ("value", "peak", "last_seen", "clear_since", "fired_at", "resolved_at", "ending")


@dataclass(frozen=True, slots=True)
class Hit:
    """A reading that a rule calls bad."""

    rule: AlertRule
    reading: Reading
    labels: Labels


def evaluate(now: dt.datetime | None = None) -> dict[str, int]:
    """One pass over all rules, then the messages about what changed. Returns counts for the task's record."""
    now = now or database_now()
    alert_defaults.ensure(now)
    rules = [rule for rule in AlertRule.objects.filter(enabled=True) if rule.metric in METRICS]
    hits, broken = find(rules, World(now))
    counts = _write(hits, {rule.pk: rule for rule in rules}, broken, now)
    counts.update(alert_messages.write_due(now))
    return dict(counts) | {"rules": len(rules), "unreadable": len(broken)}


def find(rules: Sequence[AlertRule], world: World) -> tuple[dict[str, Hit], set[str]]:
    """What is bad now, by fingerprint, and the metrics that could not be read."""
    hits: dict[str, Hit] = {}
    broken: set[str] = set()
    by_metric: dict[str, list[AlertRule]] = defaultdict(list)
    for rule in rules:
        by_metric[rule.metric].append(rule)
    for name, found in readings({name: reach(those) for name, those in by_metric.items()}, world):
        if isinstance(found, Exception):
            log.error("the metric %s can't be read: %s: %s", name, type(found).__name__, found)
            broken.add(name)
            continue
        for rule in by_metric[name]:
            hits |= {fingerprint(rule.key, hit.labels): hit for hit in bad(rule, found)}
    return hits, broken


def reach(rules: Iterable[AlertRule]) -> Reach:
    """What all of these rules look at."""
    over = [rule.threshold for rule in rules if rule.comparison == Comparison.ABOVE]
    under = [rule.threshold for rule in rules if rule.comparison == Comparison.BELOW]
    return Reach(min(over, default=None), max(under, default=None))


def bad(rule: AlertRule, found: Iterable[Reading]) -> list[Hit]:
    own = reach([rule])
    hits = []
    for reading in found:
        if not reaches(reading.value, own):
            continue
        labels = labelled(rule, reading)
        if meets(labels, rule.selector):
            hits.append(Hit(rule, reading, labels))
    return hits


def labelled(rule: AlertRule, reading: Reading) -> Labels:
    """What ladder, silences and Alertmanager go by."""
    own = {"alertname": rule.key, "severity": str(rule.severity), "simulated": str(reading.simulated).lower()}
    return reading.labels | own


def fingerprint(key: str, labels: Mapping[str, str]) -> str:
    """Equal for the same thing under the same rule, however urgent the rule is."""
    about = sorted((name, value) for name, value in labels.items() if name not in ("alertname", "severity"))
    return hashlib.sha256(json.dumps([key, about]).encode()).hexdigest()


# -- writing -----------------------------------------------------------------------------------------------------------


def _write(hits: Mapping[str, Hit], rules: Mapping[int, AlertRule], broken: set[str], now: dt.datetime) -> Counter[str]:
    counts = Counter(began=0, fired=0, over=0, passed=0)
    with transaction.atomic(durable=True):
        standing = {alert.fingerprint: alert for alert in Alert.objects.select_for_update().filter(resolved_at=None)}
        changed, gone = [], []
        for alert in standing.values():
            rule, hit = rules.get(alert.rule_id), hits.get(alert.fingerprint)
            if rule is not None and rule.metric in broken:
                continue
            if hit is not None and _goes_on(alert, hit, now):
                changed.append(alert)
            elif hit is None and alert.fired_at is None:
                gone.append(alert.pk)
            elif hit is None and _clears(alert, rule, now):
                changed.append(alert)
        new = [_begun(mark, hit, now) for mark, hit in hits.items() if mark not in standing]
        Alert.objects.filter(pk__in=gone).delete()
        Alert.objects.bulk_update(changed, CHANGED, batch_size=BATCH)
        Alert.objects.bulk_create(new, batch_size=BATCH)
    counts["began"], counts["passed"] = len(new), len(gone)
    counts["fired"] = sum(alert.fired_at == now for alert in (*changed, *new))
    counts["over"] = sum(alert.resolved_at is not None for alert in changed)
    if counts["fired"] or counts["over"]:
        wake_after_commit("scheduler.send_alerts")
    return counts


def _begun(mark: str, hit: Hit, now: dt.datetime) -> Alert:
    rule, reading = hit.rule, hit.reading
    return Alert(
        rule=rule,
        severity=rule.severity,
        labels=hit.labels,
        fingerprint=mark,
        subject=reading.subject[:200],
        url=reading.url[:300],
        simulated=reading.simulated,
        threshold=rule.threshold,
        value=reading.value,
        peak=reading.value,
        started_at=now,
        last_seen=now,
        fired_at=now if rule.for_s == 0 else None,
    )


def _goes_on(alert: Alert, hit: Hit, now: dt.datetime) -> bool:
    """Whether there is something to write."""
    value = hit.reading.value
    worse = value > alert.peak if hit.rule.comparison == Comparison.ABOVE else value < alert.peak
    fires = alert.fired_at is None and now - alert.started_at >= dt.timedelta(seconds=hit.rule.for_s)
    if not (worse or fires or alert.clear_since is not None or now - alert.last_seen >= SEEN_EVERY):
        return False
    alert.value, alert.last_seen, alert.clear_since = value, now, None
    alert.peak = value if worse else alert.peak
    alert.fired_at = now if fires else alert.fired_at
    return True


def _clears(alert: Alert, rule: AlertRule | None, now: dt.datetime) -> bool:
    """Of one that fires and is bad no more, or whose rule is gone. Whether there is something to write."""
    if rule is None:
        alert.resolved_at, alert.ending = now, Ending.RULE
        return True
    began = alert.clear_since is None
    alert.clear_since = alert.clear_since or now
    if now - alert.clear_since >= dt.timedelta(seconds=rule.keep_s):
        alert.resolved_at, alert.ending = now, Ending.CLEAR
        return True
    return began
