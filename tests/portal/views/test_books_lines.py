"""The page of ledger lines: each kind of line, masked where it must be, in pages and files that are equal to the API."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Callable
from typing import Any

import openpyxl
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Job, Node
from ledger.vocabulary import HoldKind
from portal import tables
from portal.views import books, books_lines
from tests import factories
from tests.portal.views.conftest import ClientAs

HOSTILE = '=HYPERLINK("http://x") <script>alert(1)</script>'
SIMULATED = "hardware=simulated"
EVERY = f"{SIMULATED}&account="


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> dt.datetime:
    """An hour after the fleet was registered, always the same."""
    then = database_now() + dt.timedelta(hours=1)
    for module in (books, books_lines):
        monkeypatch.setattr(module, "database_now", lambda: then)
    return then.replace(microsecond=0)


def rows(client: Client, query: str) -> list[Any]:
    return [row for _, row in client.get(f"/books/lines/?{SIMULATED}&{query}").context["t"]["rows"]]


def csv_of(response: Any) -> tuple[dict[str, str], list[dict[str, str]]]:
    """What a file says about itself, and its rows."""
    lines = list(csv.reader(io.StringIO(b"".join(response.streaming_content).decode("utf-8-sig"), newline="")))
    about = {line[0][2:]: line[1] for line in lines if line[0].startswith("# ")}
    header, *body = lines[len(about) :]
    return about, [dict(zip(header, line, strict=True)) for line in body]


def xlsx_of(response: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    book = openpyxl.load_workbook(io.BytesIO(response.content))
    header, *body = book["Data"].iter_rows(values_only=True)
    return dict(book["About"].iter_rows(values_only=True)), [dict(zip(header, line, strict=True)) for line in body]


def test_a_share_is_told_with_job_node_card_and_time(client_as: ClientAs, running: Job, now: dt.datetime) -> None:
    (line,) = rows(client_as("researcher"), "account=used")
    assert (line.job_id, line.job, line.project, line.node, line.form) == (
        running.pk,
        "steady",
        "vision",
        "n1",
        "container",
    )
    assert (line.mib, line.size, line.zone, line.until) == (1024, 16_000, "flexible", now)
    assert line.amount == 1024 * (line.until - line.since).total_seconds()
    text = client_as("researcher").get(f"/books/lines/?{SIMULATED}&account=used").content.decode()
    assert f'href="/jobs/{running.pk}/"' in text
    assert 'href="/nodes/n1/"' in text
    assert "the lines add up to the number in the books" in text


def test_a_line_out_of_sight_has_no_job_and_no_name(client_as: ClientAs, running: Job) -> None:
    client = client_as("outsider")
    (line,) = rows(client, "account=used")
    assert (line.job_id, line.job, line.project) == (None, "", "(others)")
    for path in ("", "&sort=project", "&project=(others)", "&columns=job,name,project,reason", "&export=csv"):
        response = client.get(f"/books/lines/?{EVERY}{path}")
        text = b"".join(response.streaming_content) if response.streaming else response.content
        for secret in ("steady", "vision", f"/jobs/{running.pk}/"):
            assert secret.encode() not in text, (path, secret)


def test_idle_and_held_memory_have_their_lines(client_as: ClientAs, running: Job) -> None:
    factories.node("n2", cards=2)
    place_hold(
        kind=HoldKind.DRILL,
        reason=f"{HOSTILE} \u202egnp.exe",
        actor=None,
        via="test",
        card=None,
        node=Node.objects.get(hostname="n2"),
    )
    client = client_as("researcher")
    (free,) = rows(client, "account=free")
    (stranded,) = rows(client, "account=stranded")
    (held,) = rows(client, "account=held")
    assert (free.zone, free.model, stranded.model) == ("flexible", "A100", "A100")
    assert (held.hold, held.reason, held.cards, held.node) == ("drill", f"{HOSTILE} \u202egnp.exe", 2, "")
    text = client.get(f"/books/lines/?{EVERY}&columns=hold,reason").content.decode()
    assert "<script>alert" not in text
    assert "held: drill" in text


@pytest.mark.parametrize("account", books_lines.SHOWN)
def test_each_account_shows_columns_of_its_own_and_any_other_on_demand(
    client_as: ClientAs, running: Job, account: str
) -> None:
    client = client_as("researcher")
    shown = client.get(f"/books/lines/?{SIMULATED}&account={account}").context["t"]["table"].shown
    assert {column.name for column in shown} == set(books_lines.SHOWN[account])
    every = ",".join(column.name for column in books_lines.COLUMNS)
    shown = client.get(f"/books/lines/?{SIMULATED}&account={account}&columns={every}").context["t"]["table"].shown
    assert len(shown) == len(books_lines.COLUMNS)
    for column in books_lines.COLUMNS:
        if column.sort:
            answer = client.get(f"/books/lines/?{SIMULATED}&account={account}&columns={every}&sort=-{column.name}")
            assert "alert-warning" not in answer.content.decode(), column.name


def test_an_empty_list_says_the_next_step(client_as: ClientAs, running: Job) -> None:
    assert b"Choose a longer window" in client_as("researcher").get("/books/lines/?account=held").content


@pytest.mark.parametrize(
    "query", ["account=broken", "form=x", "but=[", "but=[1]", "but={}", "split=owner", "but=%5B%22%00%22%5D", "stack=zone",
              "sort=secret", "columns=secret", "page=-1", "page=1000000000000", "but=" + "%5B" * 2000],
)  # fmt: skip
def test_bad_filters_are_named_and_not_applied(client_as: ClientAs, running: Job, query: str) -> None:
    response = client_as("researcher").get(f"/books/lines/?{SIMULATED}&{query}")
    assert response.status_code == 200
    text = response.content.decode()
    assert "field-error" in text or "alert-warning" in text
    account = "" if query.startswith("account") else "used"
    usual = client_as("researcher").get(f"/books/lines/?{SIMULATED}&account={account}").context["total"]
    assert response.context["total"] == usual


def test_when_lines_and_books_differ_the_page_says_so(
    client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books_lines.reports, "cells", lambda *args: {})
    assert (
        b"the books say 0 MiB-seconds: tell an operator"
        in client_as("researcher").get(f"/books/lines/?{SIMULATED}").content
    )


@pytest.fixture
def three(people: dict[str, Any], turn: Callable[[], None], now: dt.datetime) -> list[Job]:
    factories.node("n1", cards=4, memory_mib=16_000)
    jobs = [factories.job(people["researcher"], name=name, command=["simulate", "--seconds", "3600"])
            for name in ("first", HOSTILE, "third")]  # fmt: skip
    turn()
    return jobs


def test_pages_and_files_hold_each_line_once(
    client_as: ClientAs, three: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS", 2)
    client = client_as("researcher")
    whole = [line for number in (1, 2, 3, 4) for line in rows(client, f"account=&sort=amount&page={number}")]
    context = client.get(f"/books/lines/?{EVERY}").context
    count = context["t"]["page"].paginator.count
    assert len({line.job_id for line in whole if line.account == "used"}) == 3
    about, found = csv_of(client.get(f"/books/lines/?{EVERY}&export=csv&sort=amount&columns=account,name,amount"))
    assert len(found) == count
    assert sum(int(line["MiB-seconds"]) for line in found) == context["total"] == int(about["Total (MiB-seconds)"])
    facts, cells = xlsx_of(client.get(f"/books/lines/?{EVERY}&export=xlsx&sort=amount&columns=account,name,amount"))
    assert [line["MiB-seconds"] for line in cells] == [int(line["MiB-seconds"]) for line in found]
    assert {line["Name"] for line in cells if line["Name"]} == {"first", HOSTILE, "third"}
    assert any(line["Name"] == f"'{HOSTILE}" for line in found)
    assert facts["Time zone"] == about["Time zone"] == "UTC"
    assert facts["Units"].startswith("MiB-seconds")


def test_a_file_of_too_many_lines_says_that_it_is_not_whole(
    client_as: ClientAs, three: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books_lines, "MOST_EXPORTED", 2)
    about, found = csv_of(client_as("researcher").get(f"/books/lines/?{EVERY}&export=csv"))
    assert len(found) == 2
    assert about["Not complete"] == "only the first 2 lines are here"


@pytest.mark.parametrize("query", ["", "&zone=flexible", "&project=vision", "&stack=model", "&model=A100&stack=zone"])
def test_the_files_of_the_balance_are_equal_to_the_api_to_the_unit(
    client_as: ClientAs, three: list[Job], now: dt.datetime, query: str
) -> None:
    client = client_as("researcher")
    start = now - dt.timedelta(hours=30)
    span = f"window=own&start={start:%Y-%m-%dT%H:%M:%S}&end={now:%Y-%m-%dT%H:%M:%S}"
    about, cells = xlsx_of(client.get(f"/books/?{SIMULATED}&{span}{query}&export=xlsx"))
    _, lines = csv_of(client.get(f"/books/?{SIMULATED}&{span}{query}&export=csv"))
    cut = "&".join(part for part in query.split("&") if not part.startswith("stack"))
    told = client.get(
        f"/api/v1/books/balance/?simulated=true&from={start:%Y-%m-%dT%H:%M:%SZ}&to={database_now():%Y-%m-%dT%H:%M:%SZ}{cut}"
    )
    assert told.status_code == 200
    exact = told.json()["exact"]
    found = {(line["Group"], line["Name"]): line["MiB-seconds"] for line in cells}
    assert about["Window"].startswith(start.isoformat())
    assert all(isinstance(line["card-seconds"], int) for line in cells)
    assert [int(line["MiB-seconds"]) for line in lines] == list(found.values())
    accounts = [value for (group, _), value in found.items() if group == "Account"]
    assert found["Capacity", "Capacity"] == sum(accounts) > exact["capacity"]  # an hour more than the API knows of


def test_the_series_adds_up_to_the_balance_in_both_units(client_as: ClientAs, three: list[Job]) -> None:
    client = client_as("researcher")
    page = client.get(f"/books/?{SIMULATED}").context["page"]
    for stack in ("account", "project"):
        about, cells = xlsx_of(client.get(f"/books/chart/?{SIMULATED}&stack={stack}&export=xlsx"))
        _, lines = csv_of(client.get(f"/books/chart/?{SIMULATED}&stack={stack}&export=csv"))
        assert sum(line["Capacity (MiB-seconds)"] for line in cells) == page.capacity.now.exact
        for line in cells:
            bands = [value for name, value in line.items() if name.endswith("(MiB-seconds)")]
            assert sum(bands) == 2 * line["Capacity (MiB-seconds)"]
        assert [{name: str(value) for name, value in line.items()} for line in cells] == lines
        assert about["Stack by"] == stack


@pytest.mark.parametrize(("who", "query", "queries"), [("researcher", "account=", 14), ("manager", "account=used", 11)])
def test_more_lines_ask_the_database_no_more_often(
    client_as: ClientAs, running: Job, turn: Callable[[], None], who: str, query: str, queries: int
) -> None:
    client, path = client_as(who), f"/books/lines/?{SIMULATED}&{query}"
    client.get(path)
    with CaptureQueriesContext(connection) as few:
        client.get(path)
    for number in range(3):
        factories.job(name=f"more {number}", command=["simulate", "--seconds", "3600"])
    turn()
    with CaptureQueriesContext(connection) as many:
        client.get(path)
    assert len(many) == len(few) == queries, [query["sql"][:90] for query in few.captured_queries]
