"""The heat map of the books: its grid, table and file say the same, add up to the balance and lead to ledger lines."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import openpyxl
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ledger import hours as by_hour
from ledger import quarters
from ledger.clock import database_now
from ledger.models import Job, RollUp, User
from portal.views import books, books_hours, books_lines
from tests import factories
from tests.portal.views.conftest import ClientAs

WEEK = "hardware=simulated&window=7d"
STYLES = settings.BASE_DIR / "static" / "css" / "books.css"


@pytest.fixture(autouse=True)
def now(db: None, monkeypatch: pytest.MonkeyPatch) -> dt.datetime:
    """An hour after the fleet was registered, always the same."""
    then = (database_now() + dt.timedelta(hours=1)).replace(microsecond=0)
    for module in (books, books_lines):
        monkeypatch.setattr(module, "database_now", lambda: then)
    return then


def grid(client: Client, query: str = WEEK) -> books_hours.Grid:
    found = client.get(f"/books/hours/?{query}").context["grid"]
    assert isinstance(found, books_hours.Grid)
    return found


def own(start: str, end: str) -> str:
    return urlencode({"hardware": "simulated", "window": "own", "start": start, "end": end})


def spots(found: books_hours.Grid) -> list[books_hours.Spot]:
    return [spot for day in found.days for spot in day.spots if spot]


def live_in(zone: str) -> None:
    User.objects.update(time_zone=zone)


# -- which windows have one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "start", "end", "fits"),
    [
        ("UTC", "2026-01-01", "2026-01-03", True), ("UTC", "2026-01-01", "2026-01-02T23:59", False),
        ("UTC", "2026-01-01", "2026-02-05", True), ("UTC", "2026-01-01", "2026-02-05T00:01", False),
        ("Europe/Berlin", "2026-03-28", "2026-03-30", True), ("Europe/Berlin", "2026-10-24", "2026-10-26", True),
        ("Europe/Berlin", "2025-10-24", "2025-11-28", True), ("Europe/Berlin", "2026-03-07", "2026-04-11", True),
    ],
)  # fmt: skip
def test_windows_of_2_to_35_days_have_a_heat_map(zone: str, start: str, end: str, fits: bool) -> None:
    with timezone.override(zone):
        moments = [timezone.make_aware(dt.datetime.fromisoformat(text)).astimezone(dt.UTC) for text in (start, end)]
        assert books_hours.fits(*moments) is fits


def test_the_page_loads_the_heat_map_by_itself_or_says_what_to_choose(client_as: ClientAs, running: Job) -> None:
    client = client_as("manager")
    text = client.get(f"/books/?{WEEK}").content.decode()
    (address,) = re.findall(r'hx-get="(/books/hours/[^"]*)"', text)
    assert grid(client, address.partition("?")[2].replace("&amp;", "&")).share
    for path in ("/books/?hardware=simulated", "/books/hours/?hardware=simulated&export=csv"):
        text = client.get(path).content.decode()
        assert "windows of 2 to 35 days" in text
        assert 'hx-get="/books/hours/' not in text


# -- what it shows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "Europe/Berlin"])
@pytest.mark.parametrize("cut", ["", "&zone=flexible", "&model=A100", "&zone=(none)"])
def test_the_heat_map_adds_up_to_the_balance_above_it(client_as: ClientAs, running: Job, zone: str, cut: str) -> None:
    live_in(zone)
    client = client_as("manager")
    found, page = grid(client, WEEK + cut), client.get(f"/books/?{WEEK}{cut}").context["page"]
    used = next(row for row in page.accounts if row.account == "used")
    assert sum(spot.hour.used.total() for spot in spots(found)) == found.total.used.total() == used.now.exact
    assert sum(spot.hour.capacity.total() for spot in spots(found)) == page.capacity.now.exact
    assert (used.now.exact > 0) is (cut != "&zone=(none)")
    assert found.share == (pytest.approx(used.part) if page.capacity.now.exact else None)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("cut", ["", "&project=vision"])
def test_every_number_leads_to_ledger_lines_that_add_up_to_it(
    client_as: ClientAs, running: Job, zone: str, cut: str
) -> None:
    live_in(zone)
    client = client_as("researcher")
    known = [spot for spot in spots(grid(client, WEEK + cut)) if spot.share is not None]
    assert known
    for spot in known:
        response = client.get(spot.url)
        assert response.context["total"] == spot.hour.used.total()
        assert response.context["agrees"]


def test_with_a_project_it_is_that_projects_part_of_everybodys_capacity(
    client_as: ClientAs, running: Job, turn: Callable[[], None]
) -> None:
    factories.job(factories.user("outsider"), project="outside", command=["simulate", "--seconds", "3600"])
    turn()
    client = client_as("manager")
    pool, vision, outside = (grid(client, WEEK + cut).total for cut in ("", "&project=vision", "&project=outside"))
    assert pool.capacity == vision.capacity == outside.capacity
    assert vision.used.total() + outside.used.total() == pool.used.total()
    assert vision.used.total() > 0 < outside.used.total()
    assert grid(client).top == 100
    assert grid(client, f"{WEEK}&project=vision").top == 5  # 1 of 2 × 15.6 GiB
    assert "only what vision used" in client.get(f"/books/?{WEEK}&project=vision").content.decode()


def test_a_project_out_of_sight_is_no_filter(client_as: ClientAs, running: Job) -> None:
    client = client_as("outsider")
    assert grid(client, f"{WEEK}&project=vision").total == grid(client).total


def test_hours_without_data_are_empty_and_those_without_use_are_0(client_as: ClientAs, people: Any) -> None:
    factories.node("n1", cards=1)
    context = client_as("manager").get(f"/books/hours/?{WEEK}").context
    heat, dots = context["figure"]["data"]
    shares = [share for row in heat["z"] for share in row if share is not None]
    assert set(shares) == {0.0}
    inside = len(spots(context["grid"]))
    assert len(dots["x"]) == inside - len(shares) > 150
    assert (len(heat["z"]), len(heat["x"])) == (24, 8)
    empty = client_as("manager").get("/books/hours/?window=7d")
    assert b"No card was in these books" in empty.content


def test_the_table_has_the_numbers_of_the_picture(client_as: ClientAs, running: Job) -> None:
    response = client_as("manager").get(f"/books/hours/?{WEEK}")
    heat = response.context["figure"]["data"][0]
    table = re.search(r'<table[^>]*id="hours-table".*?</table>', response.content.decode(), re.S)
    assert table
    body = re.findall(r'<tr><th scope="row">.*?</tr>', table[0])
    assert len(body) == len(heat["x"])
    for number, line in enumerate(body):
        cells = [re.sub(r"<[^>]*>|\*", "", cell) for cell in re.findall(r"<td[^>]*>.*?</td>", line)]
        shown = [row[number] for row in heat["z"]]
        assert cells[:24] == ["" if share is None else f"{share:.1f}" for share in shown]


@pytest.mark.breaks_books  # the cards are there long before anybody registered them
@pytest.mark.parametrize(
    ("start", "end", "missing", "long"),
    [("2026-03-28T00:00", "2026-03-31T00:00", (1, 2), None), ("2025-10-25T00:00", "2025-10-28T00:00", None, (1, 2))],
)
def test_days_on_which_clocks_change_have_their_hours(
    client_as: ClientAs,
    running: Job,
    start: str,
    end: str,
    missing: tuple[int, int] | None,
    long: tuple[int, int] | None,
) -> None:
    live_in("Europe/Berlin")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_cardseat SET period = tstzrange('2025-01-01', NULL)")
    found = grid(client_as("manager"), own(start, end))
    assert len(found.days) == 3
    for number, day in enumerate(found.days):
        for hour, spot in enumerate(day.spots):
            assert (spot is None) is ((number, hour) == missing)
            assert spot is None or spot.odd == ("2 h" if (number, hour) == long else "")
            assert spot is None or spot.share == 0
    seconds = (found.form.until - found.form.since).total_seconds()
    assert found.total.capacity.total() == 2 * 16_000 * seconds


def test_the_last_hour_is_the_part_that_is_over(client_as: ClientAs, running: Job, now: dt.datetime) -> None:
    last = spots(grid(client_as("manager")))[-1]
    assert last.hour.end == now
    assert last.share == pytest.approx(100 * last.hour.used.total() / last.hour.capacity.total())


def test_what_the_roll_up_still_lacks_in_a_large_fleet_is_said(
    client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hour, "MOST_FROM_THE_BOOK", 0)
    client = client_as("manager")
    assert b"not added up yet" in client.get(f"/books/hours/?{WEEK}").content
    edge = quarters.floor(database_now())
    RollUp.objects.create(pk=1, since=edge - dt.timedelta(days=1), until=edge)
    assert f"added up until {edge:%Y-%m-%d %H:%M}".encode() in client.get(f"/books/hours/?{WEEK}").content
    text = b"".join(client.get(f"/books/hours/?{WEEK}&export=csv").streaming_content).decode()
    assert '"# Not complete"' in text


# -- files, bad input, queries, colours --------------------------------------------------------------------------------


def test_the_files_hold_what_is_shown(client_as: ClientAs, running: Job) -> None:
    live_in("Asia/Shanghai")
    client = client_as("manager")
    query = f"{WEEK}&project=vision"
    found = grid(client, query)
    text = b"".join(client.get(f"/books/hours/?{query}&export=csv").streaming_content).decode("utf-8-sig")
    lines = list(csv.reader(io.StringIO(text)))
    about = {line[0][2:]: line[1] for line in lines if line[0].startswith("# ")}
    header, *body = lines[len(about) :]
    book = openpyxl.load_workbook(io.BytesIO(client.get(f"/books/hours/?{query}&export=xlsx").content))
    first, *cells = book["Data"].iter_rows(values_only=True)
    assert (about["Time zone"], about["Filters"]) == ("Asia/Shanghai", "project=vision")
    assert list(first) == header
    assert [[str(value) for value in line] for line in cells] == body
    for line, spot in zip(cells, spots(found), strict=True):
        row = dict(zip(header, line, strict=True))
        assert (row["Day"], row["Hour"]) == (spot.hour.day.isoformat(), spot.hour.hour)
        assert row["From"] == spot.hour.start.astimezone(dt.timezone(dt.timedelta(hours=8))).isoformat()
        assert row["Used (MiB-seconds)"] == spot.hour.used.total()
        assert row["Capacity (MiB-seconds)"] == spot.hour.capacity.total()
        assert row["Used (%)"] == ("" if spot.share is None else round(spot.share, 1))


@pytest.mark.parametrize(
    "query", ["window=zzz", "zone=nowhere&window=7d", "project=%00&window=30d", "export=pdf&window=7d", "model=<script>",
              "window=own&start=0001-01-01T00:00", "window=own&start=9999-12-31T23:59&end=9999-12-31T23:59", "x=1"],
)  # fmt: skip
def test_bad_filters_do_no_harm(client_as: ClientAs, running: Job, query: str) -> None:
    live_in("America/New_York")
    response = client_as("outsider").get(f"/books/hours/?hardware=simulated&{query}")
    assert response.status_code == 200
    assert b"<script>" not in response.content


@pytest.mark.parametrize(("who", "queries"), [("researcher", 11), ("manager", 10)])
def test_the_part_asks_the_database_this_often(client_as: ClientAs, running: Job, who: str, queries: int) -> None:
    edge = quarters.floor(database_now())
    RollUp.objects.create(pk=1, since=edge - dt.timedelta(days=3), until=edge)
    client = client_as(who)
    client.get(f"/books/hours/?{WEEK}")
    with CaptureQueriesContext(connection) as few:
        client.get(f"/books/hours/?{WEEK}")
    for number in range(4):
        factories.project(f"more-{number}")
        factories.node(f"more-{number}", cards=2, model=f"M{number}", in_zone=factories.zone(f"z{number}"))
    with CaptureQueriesContext(connection) as many:
        client.get("/books/hours/?hardware=simulated&window=30d")
    assert len(many) == len(few) == queries, [query["sql"][:90] for query in few.captured_queries]


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_the_colours_of_the_heat_map_are_told_apart_by_lightness_alone() -> None:
    found = re.findall(r"--gc-heat-(\d): (#[0-9a-f]{6});", STYLES.read_text())
    assert [number for number, _ in found] == [*"01234", *"01234"]  # light, dark
    for theme in (found[:5], found[5:]):
        light = [_luminance(colour) for _, colour in theme]
        assert light in (sorted(light), sorted(light, reverse=True))
        assert _contrast(light[0], light[-1]) >= 7
        assert all(_contrast(*pair) >= 1.3 for pair in zip(light, light[1:], strict=False))
