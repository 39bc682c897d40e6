"""Whatever stands in the query string, a page answers with 200 or 404 and says what it did not take."""

from __future__ import annotations

import itertools
from urllib.parse import urlencode

import pytest

from ledger.models import Job
from portal import tables
from tests import factories
from tests.portal.views.conftest import ClientAs

BAD = [
    "-1",
    "0",
    "1000000000",
    "9" * 40,
    "abc",
    "1e9",
    "NaN",
    "\x00",
    "٣",
    "💥",
    "' OR 1=1 --",
    "a" * 5000,
    "../../etc",
]
TIMES = ["0001-01-01T00:00", "9999-12-31T23:59", "2026-02-30T00:00", "1969-01-01T00:00", "2026-01-01T00:00+99:00", "x"]
FEW = ["-1", "abc", "\x00"]
FIELDS = {
    "/jobs/": ["page", "q", "state", "project", "hardware", "mine"],
    "/nodes/": ["page", "q", "hardware", "zone", "form", "state", "model", "free"],
    "/health/": ["page", "q", "hardware", "zone", "form", "model", "rack", "health", "colour", "sort", "columns"],
    "/health/use/": ["window", "hardware"],
    "/books/": ["window", "hardware", "zone", "project", "model", "unit"],
    "/books/chart/": ["window", "hardware", "zone", "project", "model", "unit"],
}


@pytest.mark.parametrize("page", FIELDS)
def test_a_bad_filter_never_breaks_a_page(client_as: ClientAs, running: Job, page: str) -> None:
    client = client_as("researcher")
    for field, value in itertools.product(FIELDS[page], FEW if page == "/books/chart/" else BAD):
        assert client.get(f"{page}?{urlencode({field: value})}").status_code == 200, (field, value)


def test_a_bad_window_never_breaks_the_books(client_as: ClientAs, running: Job) -> None:
    client = client_as("researcher")
    for start, end in itertools.product(["", *TIMES], ["", *TIMES]):
        query = urlencode({"window": "own", "start": start, "end": end})
        assert client.get(f"/books/?{query}").status_code == 200, query
    for start in TIMES:
        query = urlencode({"window": "own", "start": start})
        assert client.get(f"/books/chart/?{query}").status_code == 200, query


def test_a_bad_number_of_a_job_or_name_of_a_node_is_not_found(client_as: ClientAs, running: Job) -> None:
    client = client_as("researcher")
    for value, path in itertools.product(BAD, ["/jobs/{}/", "/jobs/{}/status/", "/jobs/{}/log/", "/nodes/{}/"]):
        assert client.get(path.format(value)).status_code == 404, (path, value)


def test_a_bad_cursor_never_breaks_the_log(client_as: ClientAs, running: Job) -> None:
    client = client_as("researcher")
    for field, value in itertools.product(["cursor", "attempt", "rank"], BAD):
        assert client.get(f"/jobs/{running.pk}/log/?{urlencode({field: value})}").status_code == 200, (field, value)


def test_a_filter_that_is_not_taken_is_named_beside_its_field(client_as: ClientAs, running: Job) -> None:
    page = client_as("researcher").get("/jobs/?state=broken").content.decode()
    assert "field-error" in page
    assert f"/jobs/{running.pk}/" in page  # and not applied


def test_a_window_in_the_future_is_refused_by_name(client_as: ClientAs, people: object) -> None:
    page = client_as("researcher").get("/books/?window=own&start=2199-01-01T00:00").content.decode()
    assert "which has no books yet" in page


@pytest.mark.parametrize(
    ("page", "shown"), [("1", 1), ("-1", 1), ("abc", 1), ("2", 2), ("999999999", 2), ("9" * 30, 1)]
)
def test_pages_beyond_the_list_show_its_nearest_page(
    client_as: ClientAs, people: dict[str, object], monkeypatch: pytest.MonkeyPatch, page: str, shown: int
) -> None:
    monkeypatch.setattr(tables, "ROWS", 2)
    for number in range(3):
        factories.job(name=f"job {number}")
    assert client_as("researcher").get(f"/jobs/?page={page}").context["t"]["page"].number == shown
