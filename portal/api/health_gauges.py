"""Gauges of health, telemetry and alerts for /metrics. Label sets are bounded by zones, kinds and rules: no label names
a card, a node or a job. Reads only; real and simulated things never share a number."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django.db import connection
from django.db.models import Count, Q, Sum
from prometheus_client import CollectorRegistry, Gauge

from ledger.clock import database_now
from ledger.models import CardHour, Case, QualityCount, SampleBatch
from ledger.vocabulary import OPEN_CASES, DeliveryState, QualityKind
from scheduler.alert_metrics import FRESH
from scheduler.alert_rows import Alert, AlertChannel, AlertMessage

# Of each card in a seat: held before faulty before ok; a card that is only kept from gangs (link) still takes work
CARDS: Final = """
SELECT coalesce(z.slug, ''), n.simulated,
  CASE WHEN EXISTS (SELECT FROM ledger_hold h WHERE upper_inf(h.period) AND h.kind <> 'link'
                    AND (h.card_id = s.card_id OR h.node_id = n.id))
       THEN 'held'
       WHEN EXISTS (SELECT FROM ledger_fault f WHERE f.cleared_at IS NULL AND f.node_id = n.id
                    AND (f.card_id IS NULL OR f.card_id = s.card_id)) THEN 'fault'
       ELSE 'ok' END AS health, count(*)
FROM ledger_cardseat s JOIN ledger_node n ON n.id = s.node_id
LEFT JOIN ledger_nodezone nz ON nz.node_id = n.id AND upper_inf(nz.period) LEFT JOIN ledger_zone z ON z.id = nz.zone_id
WHERE upper_inf(s.period) AND n.state <> 'retired' GROUP BY 1, 2, 3
"""
TEMPERATURES: Final = """
SELECT coalesce(z.slug, ''), n.simulated, max(c.temperature_c),
  percentile_disc(0.95) WITHIN GROUP (ORDER BY c.temperature_c)
FROM ledger_cardstatus c JOIN ledger_cardseat s ON s.card_id = c.card_id AND upper_inf(s.period)
JOIN ledger_node n ON n.id = s.node_id
LEFT JOIN ledger_nodezone nz ON nz.node_id = n.id AND upper_inf(nz.period) LEFT JOIN ledger_zone z ON z.id = nz.zone_id
WHERE c.received_at > %s AND c.temperature_c IS NOT NULL GROUP BY 1, 2
"""
AGES: Final = """
SELECT max(age), percentile_disc(0.99) WITHIN GROUP (ORDER BY age), percentile_disc(0.5) WITHIN GROUP (ORDER BY age)
FROM (SELECT extract(epoch FROM %s - r.received_at) AS age
      FROM ledger_nodereport r JOIN ledger_node n ON n.id = r.node_id
      WHERE n.state <> 'retired' AND NOT n.simulated AND (n.agent_digest <> '' OR n.dcgm_url <> '')) ages
"""
HEALTH: Final = ("ok", "held", "fault")


def add(registry: CollectorRegistry) -> None:
    now = database_now()
    _cards(registry, now)
    _telemetry(registry, now)
    _cases(registry)
    _alerts(registry, now)


def _rows(statement: str, *values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _word(simulated: bool) -> str:
    return str(simulated).lower()


def _cards(registry: CollectorRegistry, now: dt.datetime) -> None:
    labels = ["health", "zone", "simulated"]
    cards = Gauge("gpu_commons_cards_by_health", "Cards in a seat, by health", labels, registry=registry)
    for zone, simulated, found, count in _rows(CARDS):
        for health in HEALTH:  # a zero is told, so that a rule sees it fall
            cards.labels(health, zone, _word(simulated)).inc(count if health == found else 0)
    heat = Gauge(
        "gpu_commons_card_temperature_celsius",
        "Temperature of the cards of a zone that report: its maximum and its 95th percentile",
        ["stat", "zone", "simulated"],
        registry=registry,
    )
    for zone, simulated, most, p95 in _rows(TEMPERATURES, now - FRESH):
        heat.labels("max", zone, _word(simulated)).set(most)
        heat.labels("p95", zone, _word(simulated)).set(p95)


def _telemetry(registry: CollectorRegistry, now: dt.datetime) -> None:
    ages = Gauge(
        "gpu_commons_telemetry_age_seconds",
        "Age of the newest report of real nodes that have an agent or an exporter",
        ["stat"],
        registry=registry,
    )
    (found,) = _rows(AGES, now)
    for stat, value in zip(("max", "p99", "p50"), found, strict=True):
        if value is not None:
            ages.labels(stat).set(float(value))
    backlog = Gauge("gpu_commons_ingest_backlog", "Reports whose samples wait to be copied", registry=registry)
    backlog.set(SampleBatch.objects.count())
    hour = now.replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=1)
    samples = Gauge("gpu_commons_samples_taken", "Samples of cards in the last whole hour", registry=registry)
    samples.set(CardHour.objects.filter(hour=hour).aggregate(n=Sum("samples"))["n"] or 0)
    quality = Gauge(
        "gpu_commons_telemetry_quality", "What was wrong with telemetry since midnight UTC", ["kind"], registry=registry
    )
    today = QualityCount.objects.filter(day=now.astimezone(dt.UTC).date())
    counts = dict(today.values_list("kind").annotate(n=Sum("count")))
    for kind in QualityKind:
        quality.labels(kind).set(counts.get(kind, 0))


def _cases(registry: CollectorRegistry) -> None:
    cases = Gauge("gpu_commons_cases_open", "Open cases by state", ["state", "simulated"], registry=registry)
    rows = Case.objects.filter(ended_at=None).values_list("state", "node__simulated").annotate(n=Count("pk"))
    counts = {(state, simulated): n for state, simulated, n in rows}
    for state in sorted(OPEN_CASES):
        for simulated in (True, False):
            cases.labels(state, _word(simulated)).set(counts.get((state, simulated), 0))


def _alerts(registry: CollectorRegistry, now: dt.datetime) -> None:
    labels = ["rule", "severity", "simulated"]
    firing = Gauge("gpu_commons_alerts_firing", "Alerts that fire, by rule", labels, registry=registry)
    rows = Alert.objects.filter(resolved_at=None, fired_at__isnull=False)
    for rule, severity, simulated, count in rows.values_list("rule__key", "severity", "simulated").annotate(
        n=Count("pk")
    ):
        firing.labels(rule, severity, _word(simulated)).set(count)
    pending = Gauge(
        "gpu_commons_alert_messages_pending", "Messages about alerts to be sent by now", ["channel"], registry=registry
    )
    late = Q(due_at__lte=now) | Q(tries__gt=0)  # not those that wait for the end of a window, as they should
    waiting = AlertMessage.objects.filter(late, state=DeliveryState.PENDING)
    counts = dict(waiting.values_list("channel").annotate(n=Count("pk")))
    for channel in AlertChannel:
        pending.labels(channel).set(counts.get(channel, 0))
