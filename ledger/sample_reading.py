"""What cards were like over time, in a bounded number of points: least, mean and most of each value in each bucket,
worked out by the database. Short windows are read from samples, long ones from hours, and hours that are not summed up
yet from their samples. A value that no sample of a bucket tells is None, never 0; a bucket without a sample is left
out. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import connection

NAMES: Final = (
    "temperature_c",
    "utilisation_pct",
    "tensor_pct",
    "memory_busy_pct",
    "power_mw",
    "memory_used_mib",
)
TOGETHER: Final = 0  # stands for all cards in one


class Span(NamedTuple):
    """A card from `since` to before `until`."""

    card: int
    since: dt.datetime
    until: dt.datetime


@dataclass(frozen=True)
class Reading:
    least: float
    mean: float
    most: float


@dataclass(frozen=True)
class Point:
    """The bucket that begins at `at`."""

    at: dt.datetime
    samples: int
    values: dict[str, Reading | None]


def _of_sample(name: str) -> str:
    return f"s.{name}::float8, s.{name}::float8, s.{name}::float8"


def _of_hour(name: str) -> str:
    return f"h.{name}[1], h.{name}[2], h.{name}[3]"


def _columns(name: str) -> str:
    return f"{name}_least, {name}_mean, {name}_most"


def _merged(name: str) -> str:
    """Means of parts are weighed by how many samples each has."""
    n = f"sum(n) FILTER (WHERE {name}_mean IS NOT NULL)"
    return f"min({name}_least), sum({name}_mean * n) / {n}, max({name}_most)"


# names of this module alone are put into the texts
SPANS: Final = (
    "unnest(%(cards)s::bigint[], %(since)s::timestamptz[], %(until)s::timestamptz[]) AS x(card, since, until)"
)
OF_SAMPLES: Final = f"""
SELECT x.card, s.at, 1 AS n, {", ".join(map(_of_sample, NAMES))}
FROM {SPANS} JOIN ledger_cardsample s ON s.card_id = x.card AND s.at >= x.since AND s.at < x.until
WHERE s.at >= %(start)s AND s.at < %(end)s
"""  # noqa: S608
OF_HOURS: Final = f"""
SELECT x.card, h.hour, h.samples, {", ".join(map(_of_hour, NAMES))}
FROM {SPANS} JOIN ledger_cardhour h ON h.card_id = x.card AND h.hour >= date_trunc('hour', x.since) AND h.hour < x.until
WHERE NOT EXISTS (SELECT FROM ledger_openhour o WHERE o.hour = h.hour)
UNION ALL
SELECT x.card, s.at, 1, {", ".join(map(_of_sample, NAMES))}
FROM {SPANS} CROSS JOIN ledger_openhour o JOIN ledger_cardsample s
  ON s.card_id = x.card AND s.at >= greatest(x.since, o.hour) AND s.at < least(x.until, o.hour + interval '1 hour')
WHERE s.at >= %(start)s AND s.at < %(end)s
"""  # noqa: S608
MERGE: Final = """
WITH part(card, at, n, {columns}) AS ({parts})
SELECT {card}, date_bin(%(step)s, at, %(origin)s) AS bucket, sum(n)::bigint, {merged}
FROM part GROUP BY 1, 2 ORDER BY 1, 2
"""


def points(
    spans: Sequence[Span], *, step: dt.timedelta, hourly: bool = False, together: bool = False
) -> dict[int, list[Point]]:
    """By card, in order of time; with `together` all cards in one, under TOGETHER. Buckets begin at whole steps of UTC.
    `hourly` reads the hours, which a step of whole hours goes with."""
    if not spans:
        return {}
    text = MERGE.format(
        columns=", ".join(map(_columns, NAMES)),
        parts=OF_HOURS if hourly else OF_SAMPLES,
        card=f"{TOGETHER}::bigint" if together else "card",
        merged=", ".join(map(_merged, NAMES)),
    )
    values: dict[str, Any] = {
        "cards": [span.card for span in spans],
        "since": [span.since for span in spans],
        "until": [span.until for span in spans],
        "start": min(span.since for span in spans),
        "end": max(span.until for span in spans),
        "step": step,
        "origin": dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    }
    found: dict[int, list[Point]] = {}
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        for card, at, samples, *numbers in cursor.fetchall():
            found.setdefault(card, []).append(Point(at, samples, _readings(numbers)))
    return found


def _readings(numbers: Sequence[float | None]) -> dict[str, Reading | None]:
    found: dict[str, Reading | None] = {}
    for at, name in enumerate(NAMES):
        least, mean, most = numbers[3 * at : 3 * at + 3]
        told = least is not None and mean is not None and most is not None
        found[name] = Reading(least, mean, most) if told else None  # type: ignore[arg-type]
    return found


def whole(points_of: Sequence[Point], name: str) -> Reading | None:
    """All points in one; None when no sample told this value."""
    told = [(point.samples, reading) for point in points_of if (reading := point.values[name]) is not None]
    if not told:
        return None
    weight = sum(samples for samples, _ in told)
    mean = sum(samples * reading.mean for samples, reading in told) / weight
    return Reading(min(r.least for _, r in told), mean, max(r.most for _, r in told))
