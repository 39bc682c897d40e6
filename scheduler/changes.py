"""Where reading of changes stands: which transactions have been seen wholly, and whether anything was missed.

A reader that goes on after the newest number it saw loses a transaction that took its number early and commits late. So
it goes on from the oldest transaction that was still running at the last look, and what it sees twice changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import connection

# own rows count too, though the number of the own transaction may lie past the snapshot's end
STAND: Final = """
SELECT pg_snapshot_xmin(s)::text::bigint,
       greatest(pg_snapshot_xmax(s)::text::bigint, pg_current_xact_id_if_assigned()::text::bigint + 1),
       pg_relation_filenode(%s::regclass)
FROM pg_current_snapshot() AS s
"""
BETWEEN: Final = "changed_xid >= %s::text::xid8 AND changed_xid < %s::text::xid8"


@dataclass(frozen=True, slots=True)
class Stand:
    """All transactions before `oldest` are over; none from `next` on had begun. `place` is the table's storage: after
    a restore or a truncation it is another one, and then no number tells what changed."""

    oldest: int
    next: int
    place: int


class News(NamedTuple):
    """`rows` are all there are (`whole`), or those that changed; `stand` is where to go on from once they are taken."""

    rows: list[tuple[Any, ...]]
    whole: bool
    stand: Stand


def news(table: str, last: Stand | None, *, whole: str, since: str) -> News:
    """What a query finds since the last look (`since`, in which BETWEEN stands once), or all (`whole`) where that can't
    be told."""
    now = stand(table)
    window = between(last, now)
    with connection.cursor() as cursor:
        cursor.execute(whole if window is None else since, window)
        return News(cursor.fetchall(), window is None, now)


def stand(table: str) -> Stand:
    """Take it before the rows are read: what commits in between is then read again."""
    with connection.cursor() as cursor:
        cursor.execute(STAND, [table])
        return Stand(*cursor.fetchone())


def between(last: Stand | None, now: Stand) -> tuple[int, int] | None:
    """The parameters of BETWEEN for what changed since the last look; None when all must be read."""
    if last is None or last.place != now.place or now.oldest < last.oldest:
        return None
    return last.oldest, now.next
