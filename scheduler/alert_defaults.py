"""The portal's own rules and ladder. A row that is not there is written; one that people changed stays as they left it.

No rule of these is only about high utilisation: a busy card is what the pool is for. What is low while a card is busy
is looked at apart: tensor cores and memory bandwidth. P99 at twice its promise calls somebody, whatever the hour.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from scheduler.alert_metrics import METRICS
from scheduler.alert_rows import AlertChannel, AlertRule, AlertRung, Comparison, Severity

ABOVE, BELOW = Comparison.ABOVE, Comparison.BELOW
PAGE, WARN, EVENT = Severity.PAGE, Severity.WARN, Severity.EVENT
# key, metric, comparison, threshold, for_s, keep_s, severity, selector
RULES: Final[tuple[tuple[str, str, Comparison, float, int, int, Severity, list[Any]], ...]] = (
    ("temperature-high", "temperature", ABOVE, 85, 60, 120, WARN, []),
    ("temperature-critical", "temperature", ABOVE, 92, 10, 120, PAGE, []),
    ("memory-nearly-full", "memory_share", ABOVE, 97, 600, 300, EVENT, []),
    ("fault-open", "open_faults", ABOVE, 0, 0, 0, WARN, [["kind", "!=", ["silent"]]]),
    ("taken-out", "taken_out", ABOVE, 0, 0, 0, WARN, []),
    ("tensor-low", "tensor_active_busy", BELOW, 5, 1_800, 300, EVENT, []),
    ("bandwidth-low", "memory_bandwidth_busy", BELOW, 5, 1_800, 300, EVENT, []),
    ("agent-silent", "agent_silence", ABOVE, 60, 0, 0, WARN, []),
    ("queue-wait-inference", "queue_wait", ABOVE, 600, 0, 60, WARN, [["kind", "=", ["inference"]]]),
    ("queue-wait", "queue_wait", ABOVE, 14_400, 0, 60, EVENT, [["kind", "!=", ["inference"]]]),
    ("drift", "drift", ABOVE, 0, 900, 60, WARN, []),
    ("dwell", "dwell", ABOVE, 72, 0, 0, WARN, []),
    ("sla-missed", "p99_over_sla", ABOVE, 1, 300, 120, WARN, []),
    ("sla-missed-twofold", "p99_over_sla", ABOVE, 2, 30, 120, PAGE, []),
    ("drill-overdue", "overdue_drills", ABOVE, 0, 0, 0, WARN, []),
)
ALL: Final = [str(AlertChannel.ALERTMANAGER), str(AlertChannel.MAIL), str(AlertChannel.WEBHOOK)]
PROGRAMS: Final = [str(AlertChannel.ALERTMANAGER), str(AlertChannel.WEBHOOK)]
# key, matchers, channels; the first whose matchers hold decides
LADDER: Final[tuple[tuple[str, list[Any], list[str]], ...]] = (
    ("urgent-inference", [["kind", "=", ["inference"]], ["priority", ">=", ["50"]]], ALL),
    ("training-that-gives-way", [["kind", "=", ["training"]], ["preemptible", "=", ["true"]]], []),
    ("spot", [["supply", "=", ["spot"]], ["severity", "!=", ["page"]]], []),
    ("page", [["severity", "=", ["page"]]], ALL),
    ("warn", [["severity", "=", ["warn"]]], PROGRAMS),
    ("event", [], []),
)


def ensure(now: dt.datetime) -> int:
    """Write the rules and rungs that are not there. Rules of metrics that there are not yet are left out. Returns how
    many were written."""
    rules, rungs = _missing_rules(now), _missing_rungs(now)
    AlertRule.objects.bulk_create(rules, ignore_conflicts=True)
    AlertRung.objects.bulk_create(rungs, ignore_conflicts=True)
    return len(rules) + len(rungs)


def _missing_rules(now: dt.datetime) -> list[AlertRule]:
    there = set(AlertRule.objects.values_list("key", flat=True))
    names = ("key", "metric", "comparison", "threshold", "for_s", "keep_s", "severity", "selector")
    wanted = [dict(zip(names, row, strict=True)) for row in RULES if row[0] not in there and row[1] in METRICS]
    return [AlertRule(changed_at=now, **values) for values in wanted]


def _missing_rungs(now: dt.datetime) -> list[AlertRung]:
    there = set(AlertRung.objects.values_list("key", flat=True))
    return [
        AlertRung(key=key, position=10 * at, matchers=matchers, channels=channels, changed_at=now)
        for at, (key, matchers, channels) in enumerate(LADDER, 1)
        if key not in there
    ]
