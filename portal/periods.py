"""Stretches of time as people mean them: months, the period before, and bars of a chart, in the reader's time zone.

Days of the reader are 23 to 25 hours long when clocks change, so edges are found on the wall clock and handed out as
instants of UTC. No offset of this century is finer than a quarter of an hour, so every edge lies on one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from django.utils import timezone

Window = tuple[dt.datetime, dt.datetime]
QUARTER, HOUR, DAY = dt.timedelta(minutes=15), dt.timedelta(hours=1), dt.timedelta(days=1)
QUARTER_OF_A_DAY: Final = (0, 6, 12, 18)


def midnight(day: dt.date, hour: int = 0) -> dt.datetime:
    """The instant at which the reader's wall clock first shows this hour of the day; where it is left out, the end of
    the gap."""
    wall = dt.datetime.combine(day, dt.time(hour), tzinfo=timezone.get_current_timezone())
    return wall.astimezone(dt.UTC)


def local_day(moment: dt.datetime) -> dt.date:
    return timezone.localtime(moment).date()


def month_of(moment: dt.datetime, later: int = 0) -> dt.datetime:
    """The beginning of the reader's month that `moment` lies in, or of one so many months later."""
    return midnight(_month(local_day(moment), later))


def _month(day: dt.date, later: int = 0) -> dt.date:
    """The first day of a month, so many months after that of `day`."""
    number = day.year * 12 + day.month - 1 + later
    return dt.date(number // 12, number % 12 + 1, 1)


def before(start: dt.datetime, end: dt.datetime, *, month_so_far: bool = False) -> Window:
    """The period to compare [start, end) with: as many months before when it is whole months, the same stretch of the
    month before when it is the month so far, else the same length right before."""
    if month_so_far:
        earlier = month_of(start, -1)
        return earlier, min(earlier + (end - start), start)
    months = _months(start, end)
    if months:
        return month_of(start, -months), start
    return start - (end - start), start


def _months(start: dt.datetime, end: dt.datetime) -> int:
    """How many whole months of the reader a window is; 0: it is not."""
    if month_of(start) != start or month_of(end) != end:
        return 0
    a, b = local_day(start), local_day(end)
    return (b.year - a.year) * 12 + b.month - a.month


@dataclass(frozen=True)
class Step:
    """How wide a bar is in windows up to `most`. `hours` are those of each `every`-th day at which a bar begins."""

    most: dt.timedelta
    width: dt.timedelta = dt.timedelta(0)  # of bars shorter than a day, of equal length
    hours: tuple[int, ...] = ()
    week: bool = False


STEPS: Final = (
    Step(6 * HOUR, width=QUARTER),
    Step(48 * HOUR, width=HOUR),
    Step(9 * DAY, hours=QUARTER_OF_A_DAY),
    Step(63 * DAY, hours=(0,)),
    Step(400 * DAY, hours=(0,), week=True),
)


def edges(start: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    """Where to cut a window into bars: quarters of an hour, hours, quarters of a day, days, weeks or months, the first
    and last of them cut off by the window itself."""
    step = next((step for step in STEPS if end - start <= step.most), None)
    inner = _candidates(start, step)
    return [start, *sorted({edge for edge in takewhile(lambda edge: edge < end, inner) if edge > start}), end]


def _candidates(start: dt.datetime, step: Step | None) -> Iterator[dt.datetime]:
    """Edges from `start` or a little before it on, in order, without an end."""
    if step is not None and step.width:
        yield from _equal(start, step.width)
    elif step is not None:
        yield from _days(local_day(start), step)
    else:
        for number in range(10**6):
            yield month_of(start, number)


def _equal(start: dt.datetime, width: dt.timedelta) -> Iterator[dt.datetime]:
    offset = (timezone.localtime(start).utcoffset() or dt.timedelta(0)) % width
    seconds = int(width.total_seconds())
    first = int((start + offset).timestamp()) // seconds * seconds
    for number in range(10**6):
        yield dt.datetime.fromtimestamp(first, dt.UTC) - offset + number * width


def _days(first: dt.date, step: Step) -> Iterator[dt.datetime]:
    day = first - dt.timedelta(days=first.weekday()) if step.week else first
    for number in range(10**6):
        for hour in step.hours:
            yield midnight(day + dt.timedelta(days=number * (7 if step.week else 1)), hour)
