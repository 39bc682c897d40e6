"""What a rule would find: now, and in the last days as far as that is kept. Reads only.

Values of cards are kept by the hour (CardHour: least, mean, most). A rule of less than an hour is tried on the worst
value of each hour, so that its number is the most that there can have been; a longer one on the means of whole hours.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from django.db import connection

from ledger.clock import database_now
from ledger.models import CardSeat, Fault, Hold
from ledger.vocabulary import HoldKind
from scheduler.alert_matchers import meets
from scheduler.alert_metrics import BUSY_PCT, Reading, World
from scheduler.alert_rows import AlertRule, Comparison
from scheduler.alerting import find, labelled
from scheduler.models import Drift

LOOKS_BACK: Final = dt.timedelta(days=7)
MOST_EXAMPLES: Final = 10
HOUR_S: Final = 3_600
SHARE: Final = "(h.memory_used_mib[{at}] * 100.0 / c.memory_mib)"
BUSY: Final = f" AND h.utilisation_pct[2] >= {BUSY_PCT}"
# metric → the value of an hour, and what else must hold in it
HOURS: Final[Mapping[str, tuple[str, str]]] = {
    "temperature": ("h.temperature_c[{at}]", ""),
    "memory_share": (SHARE, ""),
    "utilisation": ("h.utilisation_pct[{at}]", ""),
    "tensor_active": ("h.tensor_pct[{at}]", ""),
    "tensor_active_busy": ("h.tensor_pct[{at}]", BUSY),
    "memory_bandwidth": ("h.memory_busy_pct[{at}]", ""),
    "memory_bandwidth_busy": ("h.memory_busy_pct[{at}]", BUSY),
}
LEAST, MEAN, MOST = 1, 2, 3
EPISODES: Final = """
WITH bad AS (
  SELECT h.card_id, h.hour, h.hour - lag(h.hour) OVER (PARTITION BY h.card_id ORDER BY h.hour) > %(gap)s AS apart
  FROM ledger_cardhour h JOIN ledger_card c ON c.id = h.card_id
  WHERE h.hour >= %(since)s AND {value} {sign} %(threshold)s{also}
), numbered AS (
  SELECT card_id, hour, count(*) FILTER (WHERE apart) OVER (PARTITION BY card_id ORDER BY hour) AS episode FROM bad
), long AS (
  SELECT card_id, episode FROM numbered GROUP BY card_id, episode HAVING count(*) >= %(hours)s
)
SELECT card_id, count(*) FROM long GROUP BY card_id ORDER BY count(*) DESC, card_id
"""


@dataclass(frozen=True, slots=True)
class Past:
    """How often it would have fired since then. `at_most`: the true number may be smaller."""

    times: int
    since: dt.datetime
    at_most: bool
    things: int  # of which it would have
    examples: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Effect:
    """`now`: what is bad at this moment; `past` None: of this metric no history is kept."""

    now: int
    examples: list[str]
    past: Past | None
    days: int


def effect(rule: AlertRule) -> Effect:
    """Of a rule that need not be saved."""
    moment = database_now()
    hits, _broken = find([rule], World(moment))
    subjects = sorted(hit.reading.subject for hit in hits.values())
    return Effect(len(hits), subjects[:MOST_EXAMPLES], _past(rule, moment), LOOKS_BACK.days)


def _past(rule: AlertRule, now: dt.datetime) -> Past | None:
    since = now - LOOKS_BACK
    if rule.metric in HOURS:
        counted = list(_of_hours(rule, since))
        return _summed(counted, since, at_most=rule.for_s < HOUR_S)
    if rule.metric not in EVENTS or rule.comparison != Comparison.ABOVE or rule.threshold >= 1:
        return None
    found = [reading for reading in EVENTS[rule.metric](World(now), since)]
    wanted = [reading for reading in found if meets(labelled(rule, reading), rule.selector)]
    return _summed([(reading.subject, int(reading.value)) for reading in wanted], since, at_most=rule.for_s > 0)


def _summed(counted: list[tuple[str, int]], since: dt.datetime, *, at_most: bool) -> Past:
    by_subject: dict[str, int] = {}
    for subject, times in counted:
        by_subject[subject] = by_subject.get(subject, 0) + times
    worst = sorted(by_subject.items(), key=lambda pair: (-pair[1], pair[0]))
    return Past(sum(by_subject.values()), since, at_most, len(by_subject), worst[:MOST_EXAMPLES])


def _of_hours(rule: AlertRule, since: dt.datetime) -> Iterator[tuple[str, int]]:
    """(subject, how often) of each card that it would have fired for, wherever the card was then."""
    above, whole = rule.comparison == Comparison.ABOVE, rule.for_s >= HOUR_S
    value, also = HOURS[rule.metric]
    at = MEAN if whole else (MOST if above else LEAST)
    statement = EPISODES.format(value=value.format(at=at), sign=">" if above else "<", also=also)
    hours = max(1, -(-rule.for_s // HOUR_S)) if whole else 1
    gap = dt.timedelta(hours=1, seconds=rule.keep_s)
    with connection.cursor() as cursor:
        values = {"gap": gap, "since": since, "threshold": rule.threshold, "hours": hours}
        cursor.execute(statement, values)
        times = dict(cursor.fetchall())
    world = World()
    seats = CardSeat.objects.filter(card__in=times, period__upper_inf=True).select_related("node", "card")
    for seat in seats:
        labels = world.place(seat.node_id, seat.node.hostname) | {"card": seat.card.uuid}
        subject = f"{seat.node.hostname} {seat.card.uuid}"
        if meets(labelled(rule, Reading(labels, 0, subject, "", seat.node.simulated)), rule.selector):
            yield subject, times[seat.card_id]


# -- what has a beginning in a table of its own ------------------------------------------------------------------------


def _faults(world: World, since: dt.datetime) -> Iterator[Reading]:
    for fault in Fault.objects.filter(first_seen__gte=since).select_related("node", "card"):
        labels = world.place(fault.node_id, fault.node.hostname) | {"kind": str(fault.kind)}
        labels |= {"code": str(fault.code)} if fault.code is not None else {}
        subject = f"{fault.node.hostname} {fault.card or ''}".strip()
        yield Reading(labels, 1, subject, "", fault.node.simulated)


def _holds(world: World, since: dt.datetime) -> Iterator[Reading]:
    kinds = (HoldKind.FAULT, HoldKind.DRILL)
    rows = list(Hold.objects.filter(kind__in=kinds, period__startswith__gte=since).select_related("node", "card"))
    cards = [hold.card_id for hold in rows if hold.card_id is not None]
    seats = CardSeat.objects.filter(card__in=cards, period__upper_inf=True).select_related("node")
    seated = {seat.card_id: seat.node for seat in seats}
    for hold in rows:
        node = hold.node or seated.get(hold.card_id or 0)
        labels = {"kind": str(hold.kind)} | (world.place(node.pk, node.hostname) if node else {})
        subject = " ".join(filter(None, (node and node.hostname, hold.card and hold.card.uuid)))
        yield Reading(labels, 1, subject, "", node is not None and node.simulated)


def _drift(_world: World, since: dt.datetime) -> Iterator[Reading]:
    for drift in Drift.objects.filter(first_seen__gte=since):
        yield Reading({"kind": drift.kind}, 1, drift.kind, "", drift.simulated)


EVENTS: Final = {"open_faults": _faults, "taken_out": _holds, "drift": _drift}
