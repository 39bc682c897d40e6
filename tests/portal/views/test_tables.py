"""Tables: what the address asks for is what the database is asked for, and nonsense is told and not applied."""

from __future__ import annotations

import csv
import io
from typing import Any

import openpyxl
import pytest
from django.test import RequestFactory

from ledger.models import User
from portal import tables
from portal.tables import Column, Table
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db
COLUMNS = (
    Column("name", "Name", lambda user: user.username, sort=("username",), always=True),
    Column("role", "Role", lambda user: user.site_role, sort=("site_role", "username")),
    Column("id", "No.", lambda user: user.pk, number=True, shown=False),
)


def make(query: str = "", **values: Any) -> Table:
    request = RequestFactory().get(f"/?{query}")
    return Table(request, "people", COLUMNS, User.objects.exclude(username="AnonymousUser"), order=("pk",), **values)


def names(table: Table) -> list[str]:
    return [row.username for row in table.page().object_list]


@pytest.fixture(autouse=True)
def three() -> None:
    for name in ("bea", "ada", "cyd"):
        factories.user(name)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("", ["bea", "ada", "cyd"]), ("name", ["ada", "bea", "cyd"]), ("-name", ["cyd", "bea", "ada"])],
)
def test_it_sorts_both_ways(sort: str, expected: list[str]) -> None:
    assert names(make(f"sort={sort}")) == expected


@pytest.mark.parametrize(
    "sort", ["nothing", "-nothing", "id", "password", "name; DROP TABLE x", "--name", "x" * 10_000]
)
def test_a_sort_key_that_is_not_offered_is_told_and_not_applied(sort: str) -> None:
    table = make(f"sort={sort}")
    assert names(table) == ["bea", "ada", "cyd"]
    assert len(table.complaints) == 1
    assert len(table.complaints[0]) < 200


def test_columns_are_chosen_and_some_stay() -> None:
    assert [c.name for c in make().shown] == ["name", "role"]
    assert [c.name for c in make("columns=id").shown] == ["name", "id"]
    table = make("columns=id,secret,role")
    assert [c.name for c in table.shown] == ["name", "role", "id"]
    assert "secret" in table.complaints[0]


@pytest.mark.parametrize(
    ("page", "number", "told"), [("2", 2, 0), ("99", 2, 0), ("0", 1, 1), ("-1", 1, 1), ("x", 1, 1)]
)
def test_pages(monkeypatch: pytest.MonkeyPatch, page: str, number: int, told: int) -> None:
    monkeypatch.setattr(tables, "ROWS", 2)
    table = make(f"page={page}")
    assert table.page().number == number
    assert len(table.complaints) == told


def _content(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content


def test_an_export_holds_the_rows_and_columns_shown_in_their_order() -> None:
    response = make("sort=-name&columns=id&export=csv").export()
    assert response is not None
    lines = list(csv.reader(io.StringIO(_content(response).decode("utf-8-sig"))))
    facts = [line for line in lines if line[0].startswith("# ")]
    assert {fact[0] for fact in facts} == {"# Made at", "# Time zone", "# Filters", "# Sorted by"}
    header, *rows = lines[len(facts) :]
    assert header == ["Name", "No."]
    assert [row[0] for row in rows] == ["cyd", "bea", "ada"]


def test_both_kinds_of_file_hold_the_same() -> None:
    made = {kind: make(f"sort=name&export={kind}").export() for kind in ("csv", "xlsx")}
    assert all(made.values())
    book = openpyxl.load_workbook(io.BytesIO(_content(made["xlsx"])))
    sheet = [[str(cell) for cell in row] for row in book["Data"].iter_rows(values_only=True)]
    lines = list(csv.reader(io.StringIO(_content(made["csv"]).decode("utf-8-sig"))))
    assert sheet == lines[len(lines) - len(sheet) :]


def test_a_kind_of_file_that_is_not_offered_is_told() -> None:
    table = make("export=exe")
    assert table.export() is None
    assert "exe" in table.complaints[0]


def test_an_export_reads_in_portions_and_keeps_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        factories.user(f"u{number}")
    monkeypatch.setattr(tables, "PORTION", 3)
    response = make("export=csv").export()
    assert len(_content(response).decode().splitlines()) == 4 + 1 + 10


def test_the_page_keeps_filters_and_offers_the_rest(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.job(name="one")
    page = client_as("researcher").get("/jobs/?q=one&sort=-name&columns=name,priority").content.decode()
    assert 'aria-sort="descending"' in page
    assert '<input type="hidden" name="q" value="one">' in page
    assert "Priority" in page
    assert "export=csv" in page
