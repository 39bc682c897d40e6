"""The history of cards: what ingest leaves in SampleBatch goes into daily partitions by binary COPY, hours are summed
up, old days and hours go. Each task is safe to run twice and to be killed anywhere: a batch leaves its table in the
transaction that copies it.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from psycopg.errors import UniqueViolation

from ledger.clock import database_now

# what a sample tells: name → PostgreSQL's type, and the least and the most that any card can have
VALUES: Final[dict[str, tuple[str, int, int]]] = {
    "temperature_c": ("int2", -50, 150),
    "utilisation_pct": ("int2", 0, 100),
    "tensor_pct": ("int2", 0, 100),
    "memory_busy_pct": ("int2", 0, 100),
    "power_mw": ("int4", 0, 10_000_000),
    "memory_used_mib": ("int4", 0, 1 << 20),
}
KEYS: Final = ("card_id", "boot_id", "sequence", "at")
TYPES: Final = ("int8", "int8", "int8", "timestamptz", *(kind for kind, _, _ in VALUES.values()))
BATCHES: Final = 500  # reports copied in one transaction
TAKE: Final = """
DELETE FROM ledger_samplebatch WHERE id IN
  (SELECT id FROM ledger_samplebatch ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING boot_id, sequence, at, samples::text
"""
ONE_BY_ONE: Final = (
    f"INSERT INTO ledger_cardsample ({', '.join((*KEYS, *VALUES))})"  # noqa: S608  names of this module
    f" VALUES ({', '.join(['%s'] * len(TYPES))}) ON CONFLICT DO NOTHING"
)
HOUR: Final = dt.timedelta(hours=1)


def impossible(name: str, value: int | None, memory_mib: int | None) -> bool:
    """Whether no card can have this value; None is unknown and always possible."""
    if value is None:
        return False
    _kind, least, most = VALUES[name]
    if name == "memory_used_mib" and memory_mib is not None:
        most = memory_mib
    return not least <= value <= most


def keep_days() -> dt.timedelta:
    return dt.timedelta(days=settings.SAMPLES_KEPT_DAYS)


# -- copying -----------------------------------------------------------------------------------------------------------


def copy_batches(most: int = 40 * BATCHES) -> dict[str, int]:
    """Everything that waits, up to `most` reports. Returns counts for the task's record."""
    reports = samples = 0
    while reports < most:
        taken, copied = _copy_some(min(BATCHES, most - reports))
        reports, samples = reports + taken, samples + copied
        if taken < BATCHES:
            break
    return {"reports": reports, "samples": samples}


def _copy_some(limit: int) -> tuple[int, int]:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(TAKE, [limit])
        batches = cursor.fetchall()
        if not batches:
            return 0, 0
        rows = [
            (card, boot, sequence, at, *values)
            for boot, sequence, at, text in batches
            for card, *values in json.loads(text)
        ]
        days = {at.astimezone(dt.UTC).date() for _, _, at, _ in batches}
        cursor.execute("SELECT ledger_sample_days(%s, %s)", [min(days), max(days)])
        try:
            with transaction.atomic():
                _copy(cursor, rows)
        except UniqueViolation:  # whatever brought it here twice, nothing that follows may wait for it
            cursor.executemany(ONE_BY_ONE, rows)
        _note_hours(cursor, {at.replace(minute=0, second=0, microsecond=0) for _, _, at, _ in batches})
    return len(batches), len(rows)


def _copy(cursor: Any, rows: Iterable[Sequence[Any]]) -> None:
    columns = ", ".join((*KEYS, *VALUES))
    with cursor.copy(f"COPY ledger_cardsample ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(TYPES)
        for row in rows:
            copy.write_row(row)


def _note_hours(cursor: Any, hours: set[dt.datetime]) -> None:
    """Also locked where they are open already: nobody sums one up while samples of it are not to be seen yet."""
    cursor.execute(
        "INSERT INTO ledger_openhour (hour) SELECT unnest(%s::timestamptz[])"
        " ON CONFLICT (hour) DO UPDATE SET hour = excluded.hour",
        [sorted(hours)],
    )


# -- hours -------------------------------------------------------------------------------------------------------------


def _sum_of(name: str) -> str:
    three = f"ARRAY[min({name}), round(avg({name}), 2), max({name})]::float8[]"
    return f"CASE WHEN count({name}) > 0 THEN {three} END AS {name}"


SUM_UP: Final = f"""
INSERT INTO ledger_cardhour (card_id, hour, samples, {", ".join(VALUES)})
SELECT card_id, %(hour)s, count(*), {", ".join(map(_sum_of, VALUES))}
FROM ledger_cardsample WHERE at >= %(hour)s AND at < %(hour)s + interval '1 hour' GROUP BY card_id
ON CONFLICT (card_id, hour) DO UPDATE SET samples = excluded.samples,
  {", ".join(f"{name} = excluded.{name}" for name in VALUES)}
"""  # noqa: S608  names of this module


def sum_up_hours(most: int = 50) -> dict[str, int]:
    """Sum up each hour that is over and got samples since; one that gets late samples afterwards is summed up anew."""
    done = 0
    while done < most and _sum_up_one():
        done += 1
    return {"hours": done}


def _sum_up_one() -> bool:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        # taken before its samples are read: what is copied in the meantime opens the hour again
        cursor.execute(
            "DELETE FROM ledger_openhour WHERE hour = (SELECT hour FROM ledger_openhour"
            " WHERE hour <= %s ORDER BY hour LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING hour",
            [database_now() - HOUR],
        )
        row = cursor.fetchone()
        if row is None:
            return False
        cursor.execute(SUM_UP, {"hour": row[0]})
    return True


# -- what is not kept --------------------------------------------------------------------------------------------------


def drop_old() -> dict[str, int]:
    """Days and hours that are older than what the site keeps. The day of tomorrow gets its partition ahead of time."""
    now = database_now().astimezone(dt.UTC)
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT ledger_drop_sample_days(%s)", [(now - keep_days()).date()])
        days = cursor.fetchone()[0]
        cursor.execute("SELECT ledger_sample_days(%s, %s)", [now.date(), now.date() + dt.timedelta(days=1)])
        cursor.execute(
            "DELETE FROM ledger_cardhour WHERE hour < %s", [now - dt.timedelta(days=settings.SAMPLE_HOURS_KEPT_DAYS)]
        )
        hours = cursor.rowcount
        cursor.execute(
            "DELETE FROM ledger_qualitycount WHERE day < %s",
            [(now - dt.timedelta(days=settings.SAMPLE_HOURS_KEPT_DAYS)).date()],
        )
    return {"days": days, "hours": hours}
