"""The books page: both sides equal, compared, split and over time; real and simulated apart, other projects without
their names."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ledger import quarters, reports
from ledger.clock import database_now
from ledger.models import Job, RollUp, User
from portal import books_form, charts, stacks
from portal.views import books, books_lines
from portal.views.books_rows import change
from tests import factories
from tests.portal.views.conftest import ClientAs

SPLITS = ("zone", "form", "project", "model")


@pytest.fixture(autouse=True)
def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader comes an hour after the fleet was registered: whole hours are then in the books. Always the same
    hour, so that two pages say the same."""
    then: list[dt.datetime] = []

    def now() -> dt.datetime:
        if not then:
            then.append(database_now() + dt.timedelta(hours=1))
        return then[0]

    monkeypatch.setattr(books, "database_now", now)
    monkeypatch.setattr(books_lines, "database_now", now)


def numbers(page: Any) -> list[tuple[str, int]]:
    """Every number of the page with its link: (address, MiB-seconds)."""
    rows = [page.capacity, *page.accounts, *(row for _, rows in page.splits for row in rows)]
    return [(amount.url, amount.exact) for row in rows for amount in (row.now, row.before)]


def test_both_sides_are_printed_and_equal(client_as: ClientAs, running: Job) -> None:
    response = client_as("researcher").get("/books/?hardware=simulated&unit=mib_seconds")
    page = response.context["page"]
    assert page.balanced
    assert page.capacity.now.exact == sum(row.now.exact for row in page.accounts) > 0
    assert f"{page.capacity.now.exact:,}".replace(",", "\u202f") in response.content.decode()


def test_the_page_says_so_when_the_sides_differ(
    client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = reports.balance(database_now() - dt.timedelta(hours=1), database_now(), simulated=True)
    answer["exact"] = {**answer["exact"], "held": answer["exact"]["held"] + 1}
    monkeypatch.setattr(reports, "balances", lambda *args, **cut: [answer, answer])
    assert b"the two sides differ" in client_as("researcher").get("/books/?hardware=simulated").content


def test_real_books_know_nothing_of_simulated_cards(client_as: ClientAs, running: Job) -> None:
    response = client_as("researcher").get("/books/")
    assert response.context["page"].capacity.now.exact == 0
    assert b"No real card was registered" in response.content


@pytest.mark.parametrize(("who", "named"), [("researcher", True), ("manager", True), ("outsider", False)])
def test_other_projects_have_no_name_in_the_books(client_as: ClientAs, running: Job, who: str, named: bool) -> None:
    for path in ("/books/", "/books/?stack=project", "/books/chart/?stack=project"):
        page = client_as(who).get(f"{path}{'&' if '?' in path else '?'}hardware=simulated").content.decode()
        assert ("vision" in page) == named, path
        assert ("other projects" in page) != named, path


# -- window and comparison ---------------------------------------------------------------------------------------------


def test_a_window_is_read_in_the_readers_time_zone(client_as: ClientAs, running: Job) -> None:
    running.by.time_zone = "Asia/Shanghai"
    running.by.save(update_fields=["time_zone"])
    response = client_as("researcher").get("/books/?window=own&start=2026-01-01T08:00&end=2026-01-02T08:00")
    assert response.context["form"].since == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    text = response.content.decode()
    assert "2026-01-01 08:00:00" in text
    assert 'title="2026-01-01 00:00:00 UTC"' in text
    assert "(Asia/Shanghai)" in text


def test_a_link_with_its_own_offset_keeps_its_window_when_the_form_is_sent_again(
    client_as: ClientAs, running: Job
) -> None:
    running.by.time_zone = "Asia/Shanghai"
    running.by.save(update_fields=["time_zone"])
    query = urlencode({"window": "own", "start": "2026-01-01T00:00:07Z", "end": "2026-01-02T00:00:00+00:00"})
    text = client_as("researcher").get(f"/books/?{query}").content.decode()
    assert 'value="2026-01-01T08:00:07"' in text
    assert 'value="2026-01-02T08:00:00"' in text


@pytest.mark.parametrize(
    ("now", "before", "glyph", "word", "percent"),
    [
        (5, 5, "=", "the same", None), (0, 0, "=", "the same", None), (3, 0, "▲", "new", None),
        (3, 2, "▲", "more", 50.0), (0, 8, "▼", "less", 100.0), (2, 3, "▼", "less", 33.3),
    ],
)  # fmt: skip
def test_a_change_has_a_glyph_a_word_and_percent(now: int, before: int, glyph: str, word: str, percent: float) -> None:
    found = change(now, before)
    assert (found.glyph, found.word, found.percent) == (glyph, word, percent)


def test_the_period_before_stands_beside_each_account(client_as: ClientAs, running: Job) -> None:
    response = client_as("researcher").get("/books/?hardware=simulated&window=24h")
    page = response.context["page"]
    used = next(row for row in page.accounts if row.account == "used")
    assert (used.now.exact > 0, used.before.exact, used.change.word) == (True, 0, "new")
    earlier = page.form.before
    assert earlier == (page.form.since - dt.timedelta(days=1), page.form.since)
    assert earlier[0].strftime("%Y-%m-%d %H:%M:%S") in response.content.decode()


# -- splits and drill-down ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["account", *SPLITS])
@pytest.mark.parametrize("who", ["researcher", "outsider"])
def test_every_number_leads_to_ledger_lines_that_add_up_to_it(
    client_as: ClientAs, running: Job, stack: str, who: str
) -> None:
    client = client_as(who)
    page = client.get(f"/books/?hardware=simulated&stack={stack}").context["page"]
    rows = client.get(f"/books/chart/?hardware=simulated&stack={stack}").context["rows"]
    cells = [(cell["url"], cell["exact"]) for row in rows[-2:] for cell in [*row["cells"], row["capacity"]]]
    assert any(exact for _, exact in cells)
    for url, exact in numbers(page) + cells:
        response = client.get(url)
        assert response.context["total"] == exact, url
        assert response.context["agrees"]
        assert "field-error" not in response.content.decode(), url


@pytest.mark.parametrize("stack", SPLITS)
def test_the_stack_still_adds_up_to_the_capacity(client_as: ClientAs, running: Job, stack: str) -> None:
    context = client_as("researcher").get(f"/books/chart/?hardware=simulated&stack={stack}").context
    assert [band.account for band in context["bands"]] == ["used", "cleaning", "held", "headroom", "stranded", "free"]
    for row in context["rows"]:
        assert sum(cell["exact"] for cell in row["cells"]) == row["capacity"]["exact"]


def _answer(members: int) -> dict[str, Any]:
    of = {f"m{number:02}": 100 - number for number in range(members)}
    return {"used": {"total": sum(of.values()), "by_model": of}, "capacity": sum(of.values())}


@pytest.mark.parametrize("members", [0, 1, 8, 9, 30])
def test_more_than_eight_members_are_folded_and_none_is_lost(members: int) -> None:
    answer = _answer(members)
    found = stacks.members("model", [answer])
    assert len(found) == min(members, 9)
    assert sum(band.amount(answer) for band in found) == answer["used"]["total"]
    assert len({band.meta for band in found}) == len(found)
    assert len({(band.meta, band.pattern) for band in found}) == len(found)
    if members > 8:
        assert found[-1].name == f"{members - 8} smaller ones"
        assert set(found[-1].lines) == {"account", "split", "but"}


def test_the_folded_rest_leads_to_its_lines_too(
    client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "MOST_MEMBERS", 0)
    client = client_as("researcher")
    for stack in SPLITS:
        page = client.get(f"/books/?hardware=simulated&stack={stack}").context["page"]
        ((_, (rest,)),) = page.splits
        assert rest.now.exact > 0
        assert client.get(rest.now.url).context["total"] == rest.now.exact


def test_a_member_leads_to_the_balance_of_it_alone(client_as: ClientAs, running: Job) -> None:
    client = client_as("researcher")
    page = client.get("/books/?hardware=simulated&stack=zone").context["page"]
    ((_, (row,)),) = page.splits
    query = parse_qs(urlsplit(row.only).query)
    assert (query["zone"], query["hardware"], query["stack"]) == (["flexible"], ["simulated"], ["zone"])
    assert client.get(row.only).context["page"].capacity.now.exact > 0


# -- chart -------------------------------------------------------------------------------------------------------------


def test_the_chart_has_one_bar_a_bucket_and_account_and_the_table_the_same_numbers(
    client_as: ClientAs, running: Job
) -> None:
    context = client_as("researcher").get("/books/chart/?hardware=simulated").context
    figure, rows = context["figure"], context["rows"]
    assert [trace["meta"] for trace in figure["data"]] == [f"account-{name}" for name in stacks.ACCOUNT_PATTERNS]
    for number, trace in enumerate(figure["data"]):
        assert list(trace["y"]) == [row["cells"][number]["cards"] for row in rows]
    assert len(rows) == 25  # hours of the clock, so that the first and the last are cut off
    assert figure["layout"]["yaxis"]["title"]["text"] == "cards (average)"
    assert figure["layout"]["xaxis"]["title"]["text"] == "time (UTC)"


def _row(start: dt.datetime, end: dt.datetime) -> dict[str, Any]:
    return {"start": start, "end": end, "cells": [{"cards": 1} for _ in stacks.ACCOUNT_PATTERNS]}


def test_two_bars_of_the_night_when_clocks_go_back_stand_apart() -> None:
    start = dt.datetime(2026, 10, 25, 0, 0, tzinfo=dt.UTC)  # 02:00 and again 02:00 in Berlin
    hours = [start + dt.timedelta(hours=number) for number in range(4)]
    with timezone.override("Europe/Berlin"):
        figure = charts.balance_figure([_row(*pair) for pair in itertools.pairwise(hours)], stacks.account_bands())
    assert len(set(figure["data"][0]["x"])) == 3
    assert figure["layout"]["xaxis"]["title"]["text"] == "time (Europe/Berlin, UTC+01:00)"


def test_bars_of_days_stand_side_by_side_over_a_change_of_clocks() -> None:
    with timezone.override("Europe/Berlin"):
        days = [timezone.make_aware(dt.datetime(2026, 3, day)).astimezone(dt.UTC) for day in range(27, 32)]
        figure = charts.balance_figure([_row(*pair) for pair in itertools.pairwise(days)], stacks.account_bands())
    trace = figure["data"][0]
    assert list(trace["x"]) == [f"2026-03-{day} 12:00:00" for day in range(27, 31)]
    assert set(trace["width"]) == {24 * 3600 * 1000}


# -- bad input, queries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/books/", "/books/chart/", "/books/lines/"])
@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_hopeless_windows_are_named_and_the_default_stands(
    client_as: ClientAs, running: Job, path: str, zone: str
) -> None:
    User.objects.filter(pk=running.by.pk).update(time_zone=zone)
    client = client_as("researcher")
    for start, end, named in (
        ("0000-01-01T00:00", "", True), ("0001-01-01T00:00", "", True), ("", "0001-01-01T00:00", True),
        ("2000-06-01T00:00", "", True), ("2026-02-02T00:00", "2026-02-01T00:00", True),
        ("2001-01-01T00:00", "2020-01-01T00:00", True), ("9999-12-31T23:59", "9999-12-31T23:59", True),
        ("", "9999-12-31T23:59", False), ("x", "y", True),
    ):  # fmt: skip
        response = client.get(f"{path}?{urlencode({'window': 'own', 'start': start, 'end': end})}")
        assert response.status_code == 200
        form = response.context["form"]
        assert bool(form.errors) == named, (start, end)
        assert form.until - form.since == dt.timedelta(days=1), (start, end)


@pytest.mark.parametrize("path", ["/books/", "/books/lines/"])
def test_a_filter_that_does_not_exist_is_named(client_as: ClientAs, running: Job, path: str) -> None:
    text = client_as("researcher").get(f"{path}?hardware=simulated&zome=x&export=pdf").content.decode()
    assert "There is no filter “zome”." in text
    assert "“pdf” is not a kind of file" in text
    text = client_as("researcher").get(f"{path}?zone=nowhere&project=outside&model=%00").content.decode()
    assert text.count("field-error") == 3
    assert "has-error" in text


@pytest.mark.parametrize(
    ("who", "path", "queries"),
    [
        ("researcher", "/books/?hardware=simulated", 11),
        ("manager", "/books/?hardware=simulated", 9),
        ("researcher", "/books/chart/?hardware=simulated", 11),
        ("manager", "/books/?hardware=simulated&window=30d", 9),
        ("manager", "/books/chart/?hardware=simulated&stack=project&window=30d", 9),
        ("manager", "/books/chart/?hardware=simulated&window=own&start=2025-01-01T00:00", 9),
    ],
)
def test_the_pages_ask_the_database_this_often_and_read_long_windows_from_the_roll_up(
    client_as: ClientAs, running: Job, who: str, path: str, queries: int
) -> None:
    edge = quarters.floor(database_now())
    RollUp.objects.create(pk=1, since=edge - dt.timedelta(days=3), until=edge)
    client = client_as(who)
    client.get(path)
    with CaptureQueriesContext(connection) as few:
        client.get(path)
    for number in range(4):
        factories.project(f"more-{number}")
        factories.node(f"more-{number}", cards=2, model=f"M{number}", in_zone=factories.zone(f"z{number}"))
    with CaptureQueriesContext(connection) as many:
        client.get(path)
    asked = [query["sql"] for query in few.captured_queries]
    assert len(many) == len(few) == queries, [sql[:90] for sql in asked]
    assert any("ledger_usagequarter" in sql for sql in asked)


def test_in_a_large_fleet_the_books_end_with_what_is_rolled_up(
    client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books_form, "LARGE_FLEET", 1)
    client = client_as("manager")
    now = client.get("/books/?hardware=simulated").context["form"].now
    edge = quarters.floor(now) - dt.timedelta(minutes=15)
    RollUp.objects.create(pk=1, since=edge - dt.timedelta(days=9), until=edge)
    with CaptureQueriesContext(connection) as asked:
        form = client.get("/books/?hardware=simulated").context["form"]
    assert (form.since, form.until) == (edge - dt.timedelta(days=1), edge)
    assert not any("ledger_cardshare" in query["sql"] for query in asked.captured_queries)
    RollUp.objects.update(since=edge - dt.timedelta(hours=1), until=edge)
    assert client.get("/books/?hardware=simulated").context["form"].until > edge  # in the first hours all is news
    RollUp.objects.update(since=edge - dt.timedelta(days=9), until=edge - dt.timedelta(hours=1))
    assert client.get("/books/?hardware=simulated").context["form"].until == now  # a roll-up that lags is no end


def test_the_lines_of_no_account_in_particular_are_those_of_used(client_as: ClientAs, running: Job) -> None:
    assert client_as("manager").get("/books/lines/").context["form"].lines.account == "used"


def test_no_text_of_the_page_is_wider_than_its_table(client_as: ClientAs, running: Job) -> None:
    factories.node("wide", cards=1, model="M" * 64, in_zone=factories.zone("z" * 50))
    text = client_as("researcher").get("/books/chart/?hardware=simulated&stack=model").content.decode()
    assert not re.search(r"<th[^>]*>[^<]{30,}</th>", text)
