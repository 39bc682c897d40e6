"""The 15-minute roll-up of the balance: long reports read it instead of walking the book. Derived, never a source.

A quarter is rolled up once no transaction can still write into it: after its end, the first run notes the newest
transaction number, and a later run goes on when every transaction up to that number is over. Quarters of an hour fit
every time zone; hours don't.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from django.db import connection, transaction
from django.db.models import F

from ledger import balance
from ledger.balance import NOWHERE, Cell, Cut, Sums, Window
from ledger.clock import database_now
from ledger.models import RollUp, UsageQuarter

QUARTER: Final = dt.timedelta(minutes=15)
# Clocks of the database's own sessions agree; this only lets the last second of a quarter pass.
GRACE: Final = dt.timedelta(seconds=30)
AT_ONCE: Final = 8  # quarters a query: the query's memory grows with cards times quarters
MOST_A_RUN: Final = 96  # a long backlog is worked off over several runs
Key = tuple[bool, int | None, str, int, str, int | None, str]


def floor(moment: dt.datetime) -> dt.datetime:
    """The beginning of the quarter (UTC) that `moment` lies in."""
    return moment - dt.timedelta(seconds=moment.timestamp() % QUARTER.total_seconds())


def _ceiling(moment: dt.datetime) -> dt.datetime:
    below = floor(moment)
    return below if below == moment else below + QUARTER


def windows(start: dt.datetime, end: dt.datetime) -> list[Window]:
    """The quarters of [start, end), both on the edge of a quarter."""
    return [(start + QUARTER * n, start + QUARTER * (n + 1)) for n in range((end - start) // QUARTER)]


# -- write ------------------------------------------------------------------------------------------------------------


def roll_up() -> int:
    """Roll up what can't change any more, oldest first; how many quarters that were. Safe to run twice at once."""
    with transaction.atomic():
        mark = _locked_mark()
        if mark is None:
            return 0
        done = _up_to_the_fence(mark)
        target = floor(database_now() - GRACE)
        if mark.fence is None and target > mark.until:
            mark.fence, mark.fence_at = _newest_transaction(), target
        mark.save()
    return done


def _locked_mark() -> RollUp | None:
    """The row that says how far the roll-up is, locked; None while there is nothing to count. First call makes it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(lower(period)) FROM ledger_cardseat")
        (first,) = cursor.fetchone()
    if first is None:
        return None
    RollUp.objects.get_or_create(pk=1, defaults={"since": floor(first), "until": floor(first)})
    return RollUp.objects.select_for_update().get(pk=1)


def _newest_transaction() -> int:
    """Our own number: whoever could still write into the past has a smaller one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        return int(cursor.fetchone()[0])


def _oldest_running() -> int:
    """Every transaction with a smaller number is over. Our own number is newer than any fence set before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        return int(cursor.fetchone()[0])


def _up_to_the_fence(mark: RollUp) -> int:
    if mark.fence is None or mark.fence_at is None or _oldest_running() < mark.fence:
        return 0
    due = windows(mark.until, mark.fence_at)[:MOST_A_RUN]
    for first in range(0, len(due), AT_ONCE):
        _write(due[first : first + AT_ONCE])
    mark.until = due[-1][1] if due else mark.until
    if mark.until >= mark.fence_at:
        mark.fence = mark.fence_at = None
    return len(due)


def _write(part: list[Window]) -> None:
    UsageQuarter.objects.bulk_create(
        [
            UsageQuarter(
                starts_at=part[line.window][0],
                simulated=simulated,
                zone_id=line.zone_id,
                model=line.model,
                card_memory_mib=line.size,
                account=line.account,
                project_id=line.project_id,
                form=line.form,
                mib_seconds=line.amount,
            )
            for simulated in (False, True)
            for line in balance.lines(part, Cut(simulated=simulated))
        ],
        batch_size=2000,
    )


def redo(start: dt.datetime, end: dt.datetime) -> int:
    """Roll up [start, end) once more, after a correction of the book; how many quarters were written."""
    with transaction.atomic():
        mark = _locked_mark()
        if mark is None:
            return 0
        due = windows(max(floor(start), mark.since), min(_ceiling(end), mark.until))
        if due:
            UsageQuarter.objects.filter(starts_at__gte=due[0][0], starts_at__lt=due[-1][1]).delete()
        for first in range(0, len(due), AT_ONCE):
            _write(due[first : first + AT_ONCE])
    return len(due)


# -- read -------------------------------------------------------------------------------------------------------------


def rolled_parts(wanted: Sequence[Window]) -> list[Window | None]:
    """The whole quarters inside each window [start, end) that are rolled up, or None."""
    mark = RollUp.objects.filter(pk=1).first()
    if mark is None:
        return [None for _ in wanted]
    inside = [(max(_ceiling(start), mark.since), min(floor(end), mark.until)) for start, end in wanted]
    return [(first, last) if first < last else None for first, last in inside]


# the quarters of [first, last) that a cut looks at, of all projects
IN_CUT: Final = """starts_at >= %(first)s AND starts_at < %(last)s AND simulated = %(simulated)s
    AND (%(model)s::text IS NULL OR model = %(model)s)
    AND CASE %(zone)s::text WHEN %(nowhere)s THEN zone_id IS NULL
        ELSE %(zone)s::text IS NULL OR zone_id = (SELECT id FROM ledger_zone WHERE slug = %(zone)s) END"""
# ids are grouped and only the few groups get their names: with names inside it takes half as long again
ROWS: Final = """
SELECT g.bucket, g.account, coalesce(z.slug, %(nowhere)s), g.model, coalesce(p.slug, ''), g.form, g.size, g.total FROM (
  SELECT width_bucket(starts_at, %(edges)s::timestamptz[]) AS bucket, account, zone_id, model, project_id, form,
         card_memory_mib AS size, sum(mib_seconds)::bigint AS total
  FROM ledger_usagequarter
  WHERE -- in cut
    AND (%(project)s::text IS NULL OR project_id = (SELECT id FROM ledger_project WHERE slug = %(project)s))
  GROUP BY 1, 2, 3, 4, 5, 6, 7
) AS g LEFT JOIN ledger_zone z ON z.id = g.zone_id LEFT JOIN ledger_project p ON p.id = g.project_id
""".replace("-- in cut", IN_CUT)


def rows(parts: Sequence[Window], cut: Cut) -> list[Sums]:
    """MiB-seconds by cell over the rolled-up quarters of each part, in one query. Parts are in order, apart from each
    other, and on the edges of quarters."""
    sums: list[Sums] = [Counter() for _ in parts]
    if not parts:
        return sums
    edges = [edge for part in parts for edge in part]
    values = {**asdict(cut), "edges": edges, "first": edges[0], "last": edges[-1], "nowhere": NOWHERE}
    with connection.cursor() as cursor:
        cursor.execute(ROWS, values)
        for bucket, *cell, total in cursor.fetchall():
            if bucket % 2:  # 1 is the first part, 3 the second; an even one lies between two
                sums[bucket // 2][Cell(*cell)] += total
    return sums


# -- check ------------------------------------------------------------------------------------------------------------


def _recomputed(part: list[Window]) -> Counter[tuple[dt.datetime, Key]]:
    found: Counter[tuple[dt.datetime, Key]] = Counter()
    for simulated in (False, True):
        for line in balance.lines(part, Cut(simulated=simulated)):
            key = (simulated, line.zone_id, line.model, line.size, line.account, line.project_id, line.form)
            found[part[line.window][0], key] += line.amount
    return found


def _kept(part: list[Window]) -> Counter[tuple[dt.datetime, Key]]:
    kept = UsageQuarter.objects.filter(starts_at__in=[start for start, _end in part]).values_list(
        "starts_at",
        F("simulated"), F("zone_id"), F("model"), F("card_memory_mib"), F("account"), F("project_id"), F("form"),
        "mib_seconds",
    )  # fmt: skip
    return Counter({(row[0], row[1:8]): row[8] for row in kept})


def differences(quarters: Iterable[Window], limit: int) -> list[tuple[object, ...]]:
    """Rows (quarter, key, kept, recomputed) where the roll-up is not what the book says; [] when it is."""
    wrong: list[tuple[object, ...]] = []
    part = list(quarters)
    for first in range(0, len(part), AT_ONCE):
        some = part[first : first + AT_ONCE]
        kept, right = _kept(some), _recomputed(some)
        wrong += [(at.isoformat(), *key, kept[at, key], right[at, key]) for at, key in sorted(
            (kept.keys() | right.keys()), key=str) if kept[at, key] != right[at, key]]  # fmt: skip
    return wrong[:limit]


def to_check(now: dt.datetime) -> list[Window]:
    """The newest four rolled-up quarters and one older, another each minute, so that in time each gets its turn."""
    mark = RollUp.objects.filter(pk=1).first()
    if mark is None:
        return []
    newest_from = max(mark.since, mark.until - 4 * QUARTER)
    newest = windows(newest_from, mark.until)
    older = (newest_from - mark.since) // QUARTER
    if not older:
        return newest
    turn = mark.since + QUARTER * (int(now.timestamp() // 60) % older)
    return [*newest, (turn, turn + QUARTER)]
