"""The heat map of the books as a grid of days and hours: what it shows, its table and its file.

Turns an answer of ledger.hours into what the template, the figure and the file need. Reads nothing from the database.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from ledger.balance import card_seconds
from ledger.hours import Hour, Usage
from ledger.vocabulary import Account
from portal import charts, exports, stacks
from portal.books_form import BooksForm
from portal.templatetags.ui import duration, hours

SHORTEST: Final = dt.timedelta(days=2)
LONGEST: Final = dt.timedelta(days=35)
HOURS: Final = range(24)
SECONDS: Final = 3600
TOPS: Final = (1, 2, 5, 10, 20, 50, 100)  # percent at which the colours may end


def fits(since: dt.datetime, until: dt.datetime) -> bool:
    """Whether a window has as many days as the heat map shows; a day may be an hour shorter or longer."""
    by_clock = timezone.localtime(until).replace(tzinfo=None) - timezone.localtime(since).replace(tzinfo=None)
    lengths = (until - since, by_clock)
    return max(lengths) >= SHORTEST and min(lengths) <= LONGEST


def percent(used: Counter[int], capacity: Counter[int]) -> float | None:
    """The used share of a capacity; None where there was none."""
    total = capacity.total()
    return 100 * used.total() / total if total else None


@dataclass(frozen=True)
class Spot:
    """One hour of one day, with the address of the lines of what was used in it."""

    hour: Hour
    share: float | None
    url: str
    odd: str  # how long it is when that is not an hour

    @property
    def shown(self) -> str:
        return "" if self.share is None else f"{self.share:.1f}"

    @property
    def told(self) -> str:
        """The hour in words, for who points at it."""
        day = f"{self.hour.day:%Y-%m-%d} {self.hour.hour:02}:00"
        when = f"{day} · {self.odd}" if self.odd else day
        if self.share is None:
            return when
        amounts = {name: hours(round(card_seconds(getattr(self.hour, name)))) for name in ("used", "capacity")}
        return f"{when}<br>{self.shown} % " + _("(%(used)s of %(capacity)s card-hours)") % amounts


@dataclass(frozen=True)
class Day:
    day: dt.date
    spots: Sequence[Spot | None]  # one an hour; None where the day or the window has no such hour
    share: float | None

    @property
    def name(self) -> str:
        return f"{self.day:%Y-%m-%d} {date_format(self.day, 'D')}"

    @property
    def short(self) -> str:
        return f"{date_format(self.day, 'D')}<br>{self.day:%m-%d}"


class Grid:
    """The hours of a window by day."""

    def __init__(self, form: BooksForm, usage: Usage) -> None:
        self.form, self.usage = form, usage

    @cached_property
    def days(self) -> list[Day]:
        by_day: dict[dt.date, dict[int, Hour]] = {}
        for one in self.usage.hours:
            by_day.setdefault(one.day, {})[one.hour] = one
        return [self._day(day, found) for day, found in by_day.items()]

    def _day(self, day: dt.date, found: dict[int, Hour]) -> Day:
        used, capacity = _summed(found.values())
        return Day(day, [self._spot(found[hour]) if hour in found else None for hour in HOURS], percent(used, capacity))

    def _spot(self, one: Hour) -> Spot:
        seconds = int((one.end - one.start).total_seconds())
        odd = "" if seconds == SECONDS else duration(seconds)
        return Spot(one, percent(one.used, one.capacity), self._url(one.start, one.end), odd)

    @cached_property
    def _url(self) -> Callable[[dt.datetime, dt.datetime], str]:
        return stacks.lines_urls(self.form.cut, {"account": Account.USED})

    @cached_property
    def total(self) -> Hour:
        """All of it as one: its sums are those of the balance."""
        used, capacity = _summed(self.usage.hours)
        return Hour(self.form.since.date(), 0, self.form.since, self.form.until, used, capacity)

    @property
    def share(self) -> float | None:
        return percent(self.total.used, self.total.capacity)

    @cached_property
    def top(self) -> int:
        """The share at which the colours end: 100 % for the pool, less for a project, which has a part of it."""
        if not self.form.chosen.get("project"):
            return 100
        most = max((spot.share or 0 for day in self.days for spot in day.spots if spot), default=0)
        return next(top for top in TOPS if top >= most or top == TOPS[-1])

    @property
    def missing(self) -> str:
        """What is not known yet, in words."""
        until = self.usage.rolled_until
        if until is None:
            return _("These hours are not added up yet; they will be in some minutes.")
        when = f"{timezone.localtime(until):%Y-%m-%d %H:%M}"
        return _("Hours are added up until %(when)s; the rest follows in some minutes.") % {"when": when}


def _summed(found: Iterable[Hour]) -> tuple[Counter[int], Counter[int]]:
    used: Counter[int] = Counter()
    capacity: Counter[int] = Counter()
    for one in found:
        used.update(one.used)
        capacity.update(one.capacity)
    return used, capacity


def figure(grid: Grid) -> dict[str, Any]:
    spots = [[day.spots[hour] for day in grid.days] for hour in HOURS]
    shares = [[spot.share if spot else None for spot in row] for row in spots]
    told = [[spot.told if spot else "" for spot in row] for row in spots]
    return charts.hours_figure([day.short for day in grid.days], shares, told, grid.top)


def header() -> list[str]:
    sums = [f"{name} ({unit})" for unit in (_("MiB-seconds"), _("card-seconds")) for name in (_("Used"), _("Capacity"))]
    return [_("Day"), _("Hour"), _("From"), _("To"), _("Used (%)"), *sums]


def file_rows(grid: Grid) -> Iterable[Sequence[exports.Cell]]:
    for spot in (spot for day in grid.days for spot in day.spots if spot):
        one = spot.hour
        share = None if spot.share is None else round(spot.share, 1)
        sums = [
            one.used.total(),
            one.capacity.total(),
            round(card_seconds(one.used)),
            round(card_seconds(one.capacity)),
        ]
        yield [one.day, one.hour, one.start, one.end, share, *sums]
