"""Stretches of time on the reader's wall clock, also where clocks change."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import zoneinfo

import pytest
from django.utils import timezone

from portal import periods

UTC = dt.UTC
ZONES = ["UTC", "Europe/Berlin", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe",
         "America/Santiago", "Asia/Beirut", "Africa/Cairo", "Pacific/Apia", "America/Havana"]  # fmt: skip


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("zone", "now", "start", "end"),
    [
        ("UTC", utc(2026, 3, 15, 12), utc(2026, 3, 1), utc(2026, 4, 1)),
        ("Europe/Berlin", utc(2026, 3, 15, 12), utc(2026, 2, 28, 23), utc(2026, 3, 31, 22)),  # 743 hours
        ("Asia/Shanghai", utc(2026, 2, 28, 17), utc(2026, 2, 28, 16), utc(2026, 3, 31, 16)),  # already March there
        ("America/New_York", utc(2027, 1, 1, 3), utc(2026, 12, 1, 5), utc(2027, 1, 1, 5)),  # still December there
    ],
)
def test_a_month_is_the_readers(zone: str, now: dt.datetime, start: dt.datetime, end: dt.datetime) -> None:
    with timezone.override(zone):
        assert (periods.month_of(now), periods.month_of(now, 1)) == (start, end)


def test_the_period_before_a_month_is_the_month_before() -> None:
    with timezone.override("Europe/Berlin"):
        march = (periods.month_of(utc(2026, 3, 15)), periods.month_of(utc(2026, 4, 15)))
        assert periods.before(*march) == (periods.month_of(utc(2026, 2, 15)), march[0])
        quarter = (periods.month_of(utc(2026, 4, 15)), periods.month_of(utc(2026, 7, 15)))
        assert periods.before(*quarter) == (periods.month_of(utc(2026, 1, 15)), quarter[0])


def test_the_period_before_any_other_window_is_as_long() -> None:
    start, end = utc(2026, 3, 3, 7), utc(2026, 3, 9, 8, 0, 1)
    assert periods.before(start, end) == (start - (end - start), start)


def test_the_month_so_far_is_compared_with_as_much_of_the_month_before() -> None:
    first, now = utc(2026, 3, 1), utc(2026, 3, 10, 5)
    assert periods.before(first, now, month_so_far=True) == (utc(2026, 2, 1), utc(2026, 2, 10, 5))
    late = periods.before(first, utc(2026, 3, 31), month_so_far=True)
    assert late == (utc(2026, 2, 1), first)  # February is over by then


@pytest.mark.parametrize("zone", ZONES)
def test_the_bars_of_any_window_are_in_order_few_whole_and_on_quarters(zone: str) -> None:
    draw = random.Random(zone)
    with timezone.override(zone):
        for _ in range(40):
            start = utc(2010, 1, 1) + dt.timedelta(seconds=draw.randrange(0, 16 * 365 * 86_400))
            length = dt.timedelta(seconds=round(10 ** draw.uniform(0, 7.97)))
            edges = periods.edges(start, start + length)
            assert (edges[0], edges[-1]) == (start, start + length)
            assert all(a < b for a, b in itertools.pairwise(edges))
            assert len(edges) <= 66
            assert all(edge.timestamp() % 900 == 0 for edge in edges[1:-1]), edges


@pytest.mark.parametrize("zone", ZONES)
def test_days_begin_when_the_readers_date_changes(zone: str) -> None:
    """Each day of two years, found by looking at every quarter of an hour."""
    place = zoneinfo.ZoneInfo(zone)
    moments = [utc(2022, 12, 31) + n * dt.timedelta(minutes=15) for n in range(2 * 365 * 96)]
    days = [moment.astimezone(place).date() for moment in moments]
    firsts: dict[dt.date, dt.datetime] = {}
    for day, moment in zip(days, moments, strict=True):
        firsts.setdefault(day, moment)
    with timezone.override(zone):
        for day in list(firsts)[1:]:
            assert periods.midnight(day) == firsts[day], day


def test_a_month_in_which_clocks_change_has_a_bar_a_day() -> None:
    with timezone.override("Europe/Berlin"):
        start, end = periods.month_of(utc(2026, 3, 15)), periods.month_of(utc(2026, 4, 15))
        edges = periods.edges(start, end)
    hours = [(b - a).total_seconds() / 3600 for a, b in itertools.pairwise(edges)]
    assert (len(hours), sorted(set(hours)), hours[28]) == (31, [23, 24], 23)


@pytest.mark.parametrize(
    ("length", "bars"),
    [(dt.timedelta(hours=1), 4), (dt.timedelta(hours=24), 24), (dt.timedelta(days=7), 28), (dt.timedelta(days=30), 30),
     (dt.timedelta(days=364), 52), (dt.timedelta(days=730), 24), (dt.timedelta(seconds=1), 1)],
)  # fmt: skip
def test_windows_on_round_edges_are_cut_into_round_parts(length: dt.timedelta, bars: int) -> None:
    start = utc(2024, 1, 1)  # a Monday
    assert len(periods.edges(start, start + length)) - 1 == bars
