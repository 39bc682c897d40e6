"""The books page: both sides equal, real and simulated apart, other projects without their names."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest
from django.utils import timezone

from ledger import reports
from ledger.clock import database_now
from ledger.models import Job
from portal import charts
from portal.views import books
from tests.portal.views.conftest import ClientAs


@pytest.fixture(autouse=True)
def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader comes an hour after the fleet was registered: whole hours are then in the books."""
    monkeypatch.setattr(books, "database_now", lambda: database_now() + dt.timedelta(hours=1))


def test_both_sides_are_printed_and_equal(client_as: ClientAs, running: Job) -> None:
    context = client_as("researcher").get("/books/?hardware=simulated&unit=mib_seconds").context
    assert context["balanced"]
    assert context["balance"]["capacity"] == sum(line["amount"] for line in context["lines"]) > 0


def test_the_page_says_so_when_the_sides_differ(
    client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = reports.balance(database_now() - dt.timedelta(hours=1), database_now(), simulated=True)
    answer["exact"] = {**answer["exact"], "held": answer["exact"]["held"] + 1}
    monkeypatch.setattr(reports, "balance", lambda *args, **cut: answer)
    assert b"the two sides differ" in client_as("researcher").get("/books/?hardware=simulated").content


def test_real_books_know_nothing_of_simulated_cards(client_as: ClientAs, running: Job) -> None:
    response = client_as("researcher").get("/books/")
    assert response.context["exact"]["capacity"] == 0
    assert b"No real card was registered" in response.content


@pytest.mark.parametrize(("who", "named"), [("researcher", True), ("manager", True), ("outsider", False)])
def test_other_projects_have_no_name_in_the_books(client_as: ClientAs, running: Job, who: str, named: bool) -> None:
    page = client_as(who).get("/books/?hardware=simulated").content.decode()
    assert ("<td>vision</td>" in page) == named
    assert ("<td>other projects</td>" in page) != named


def test_a_window_is_read_in_the_readers_time_zone(client_as: ClientAs, running: Job) -> None:
    running.by.time_zone = "Asia/Shanghai"
    running.by.save(update_fields=["time_zone"])
    response = client_as("researcher").get("/books/?window=own&start=2026-01-01T08:00&end=2026-01-02T08:00")
    assert response.context["start"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert "2026-01-01 08:00:00" in response.content.decode()
    assert 'title="2026-01-01 00:00:00 UTC"' in response.content.decode()


def test_the_chart_has_one_bar_a_bucket_and_account_and_the_table_the_same_numbers(
    client_as: ClientAs, running: Job
) -> None:
    context = client_as("researcher").get("/books/chart/?hardware=simulated").context
    figure, rows = context["figure"], context["rows"]
    assert [trace["meta"] for trace in figure["data"]] == list(charts.ACCOUNT_MARKS)
    for trace in figure["data"]:
        assert list(trace["y"]) == [row["cards"][trace["meta"]] for row in rows]
    assert len(rows) == 24
    assert figure["layout"]["yaxis"]["title"]["text"] == "cards (average)"
    assert figure["layout"]["xaxis"]["title"]["text"] == "time (UTC)"


def test_two_buckets_of_the_night_when_clocks_go_back_stand_apart() -> None:
    start = dt.datetime(2026, 10, 25, 0, 0, tzinfo=dt.UTC)  # 02:00 and again 02:00 in Berlin
    hours = [start + dt.timedelta(hours=number) for number in range(4)]
    cards = dict.fromkeys(charts.ACCOUNT_MARKS, 1)
    rows = [{"start": a, "end": b, "cards": cards} for a, b in itertools.pairwise(hours)]
    with timezone.override("Europe/Berlin"):
        figure = charts.balance_figure(rows)
    assert len(set(figure["data"][0]["x"])) == 3
    assert figure["layout"]["xaxis"]["title"]["text"] == "time (Europe/Berlin, UTC+01:00)"


@pytest.mark.parametrize(("days", "parts"), [(1, 24), (7, 28), (30, 30), (3, 24)])
def test_windows_are_cut_into_round_parts(days: int, parts: int) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert charts.buckets(start, start + dt.timedelta(days=days)) == parts
