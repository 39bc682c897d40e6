"""The hours of the heat map: they add up to the balance whatever the clock does, with and without the roll-up."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import balance, hours, quarters, reports
from ledger.balance import NOWHERE, Cut
from ledger.hours import Hour
from ledger.models import RollUp
from tests.ledger.balance_reference import at, lay_out
from tests.ledger.raw import run

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
UTC = ZoneInfo("UTC")
BEFORE = quarters.floor(at(0)) - quarters.QUARTER  # the random histories last two minutes and cross the next edge
DAYS = (
    BEFORE.replace(hour=0, minute=0) - dt.timedelta(days=1),
    BEFORE.replace(hour=0, minute=0) + dt.timedelta(days=1),
)
# clocks that change in the middle of the history or a week later, and that differ from UTC by parts of an hour
CLOCKS = ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns"]
CUTS: list[dict[str, Any]] = [
    {}, {"simulated": True}, {"zone": "z1"}, {"zone": NOWHERE}, {"model": "A"}, {"zone": "nowhere"},
    {"zone": "z2", "model": "B", "simulated": True},
]  # fmt: skip


def _roll_up() -> None:
    RollUp.objects.create(pk=1, since=BEFORE, until=BEFORE, fence=1, fence_at=BEFORE + 4 * quarters.QUARTER)
    assert quarters.roll_up() == 4


def _sums(found: Iterable[Hour]) -> tuple[int, int]:
    used: Counter[int] = Counter()
    capacity: Counter[int] = Counter()
    for one in found:
        used.update(one.used)
        capacity.update(one.capacity)
    return used.total(), capacity.total()


def _booked(start: dt.datetime, end: dt.datetime, **cut: Any) -> tuple[int, int]:
    """What the balance says: a project's part, and the capacity of everybody."""
    exact = reports.balance(start, end, **cut)["exact"]
    capacity = reports.balance(start, end, **cut | {"project": None})["exact"]["capacity"]
    return exact["used"]["total"], capacity


# -- the clock ---------------------------------------------------------------------------------------------------------


def _day(clock: str, day: dt.date) -> list[Hour]:
    tz = ZoneInfo(clock)
    start, end = (dt.datetime.combine(d, dt.time(), tz).astimezone(dt.UTC) for d in (day, day + dt.timedelta(days=1)))
    return hours.usage(start, end, tz, Cut()).hours


@pytest.mark.parametrize(
    ("clock", "day", "numbers", "lengths"),
    [
        ("UTC", "2026-03-29", range(24), {60: 24}),
        ("Asia/Kathmandu", "2026-03-29", range(24), {60: 24}),
        ("Europe/Berlin", "2026-03-29", [0, 1, *range(3, 24)], {60: 23}),
        ("Europe/Berlin", "2026-10-25", range(24), {60: 23, 120: 1}),
        ("Australia/Lord_Howe", "2026-10-04", range(24), {60: 23, 30: 1}),
        ("Australia/Lord_Howe", "2026-04-05", range(24), {60: 23, 90: 1}),
        ("America/Havana", "2026-11-01", range(24), {60: 23, 120: 1}),
        ("America/Havana", "2026-03-08", range(1, 24), {60: 23}),
    ],
)
def test_a_day_has_the_hours_that_its_clock_shows(
    clock: str, day: str, numbers: Iterable[int], lengths: dict[int, int]
) -> None:
    found = _day(clock, dt.date.fromisoformat(day))
    assert [one.hour for one in found] == list(numbers)
    assert {one.day.isoformat() for one in found} == {day}
    assert Counter((one.end - one.start) // dt.timedelta(minutes=1) for one in found) == lengths
    assert all(one.end == later.start for one, later in zip(found, found[1:], strict=False))


def test_a_window_that_begins_and_ends_in_an_hour_has_parts_of_hours() -> None:
    start, end = BEFORE + dt.timedelta(minutes=7), BEFORE + dt.timedelta(hours=2, minutes=1, seconds=3)
    found = hours.usage(start, end, UTC, Cut()).hours
    assert (found[0].start, found[-1].end) == (start, end)
    assert len({(one.day, one.hour) for one in found}) == len(found) == 3


def test_a_clock_that_was_put_back_at_an_odd_minute_shows_each_hour_once() -> None:
    tz = ZoneInfo("America/St_Johns")  # until 2011 a minute after midnight
    start = dt.datetime(2006, 10, 28, tzinfo=tz).astimezone(dt.UTC)
    found = hours.usage(start, start + dt.timedelta(days=3, hours=1), tz, Cut()).hours
    assert len({(one.day, one.hour) for one in found}) == len(found) == 3 * 24


# -- the amounts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rolled", [False, True])
def test_the_hours_add_up_to_the_balance(seed: int, clock: str, rolled: bool) -> None:
    lay_out(seed)
    if rolled:
        _roll_up()
    for cut in [*CUTS, {"project": "vision"}, {"project": "speech", "zone": "z1"}]:
        found = hours.usage(*DAYS, ZoneInfo(clock), Cut(**cut))
        assert found.whole
        assert _sums(found.hours) == _booked(*DAYS, **cut), cut
    assert _booked(*DAYS)[0] > 0


@pytest.mark.parametrize("clock", ["Europe/Berlin", "Asia/Kathmandu"])
@pytest.mark.parametrize("rolled", [False, True])
def test_each_hour_is_the_balance_of_that_hour(clock: str, rolled: bool) -> None:
    lay_out(5)
    if rolled:
        _roll_up()
    start, end = BEFORE - dt.timedelta(hours=1, minutes=20), BEFORE + dt.timedelta(hours=1, minutes=40)
    seen = 0
    for cut in [{}, {"project": "vision"}]:
        for one in hours.usage(start, end, ZoneInfo(clock), Cut(**cut)).hours:
            assert (one.used.total(), one.capacity.total()) == _booked(one.start, one.end, **cut)
            seen += bool(one.used)
    assert seen >= 2


def test_the_roll_up_is_what_is_read() -> None:
    lay_out(3)
    _roll_up()
    before = _sums(hours.usage(*DAYS, UTC, Cut()).hours)
    run("UPDATE ledger_usagequarter SET mib_seconds = mib_seconds + 1000 WHERE account = 'free'")
    after = _sums(hours.usage(*DAYS, UTC, Cut()).hours)
    assert after[0] == before[0]
    assert after[1] > before[1]


def test_without_a_card_every_hour_is_empty() -> None:
    found = hours.usage(*DAYS, UTC, Cut())
    assert len(found.hours) == 48
    assert found.whole
    assert _sums(found.hours) == (0, 0)


def test_what_would_take_too_long_to_read_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(4)
    monkeypatch.setattr(hours, "MOST_FROM_THE_BOOK", 0)
    nothing = hours.usage(*DAYS, UTC, Cut())
    assert (nothing.whole, nothing.rolled_until, _sums(nothing.hours)) == (False, None, (0, 0))
    _roll_up()
    found = hours.usage(*DAYS, UTC, Cut())
    edge = BEFORE + 4 * quarters.QUARTER
    assert (found.whole, found.rolled_until) == (False, edge)
    assert _sums(found.hours) == _booked(BEFORE, edge)
    assert [one.end for one in found.hours if one.capacity][-1] == edge


def test_windows_of_any_length_ask_the_database_as_often() -> None:
    lay_out(3)
    _roll_up()
    counts = []
    for days in (2, 35):
        with CaptureQueriesContext(connection) as asked:
            hours.usage(BEFORE - dt.timedelta(days=days), BEFORE + dt.timedelta(hours=2), UTC, Cut())
        counts.append(len(asked))
    assert counts == [4, 4]  # how far the roll-up is, the first card, its rows, the rest from the book
    with CaptureQueriesContext(connection) as asked:
        hours.usage(BEFORE, BEFORE + 4 * quarters.QUARTER, UTC, Cut())
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("sizes", "seconds"), [({}, 0), ({4: 400}, 100), ({4: 2, 6: 3}, 1), ({6: 1}, 0), ({6: 5, 4: 7, 9: 1}, 3)]
)
def test_amounts_become_whole_card_seconds(sizes: dict[int, int], seconds: int) -> None:
    assert round(balance.card_seconds(Counter(sizes))) == seconds
