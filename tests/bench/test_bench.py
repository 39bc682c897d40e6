"""Benchmarks still run: small, in the test database, and no page fails on what they write."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from portal import sample_pages
from tests.bench import pages
from tests.portal.commands import run

FEW = {"cards": 32, "jobs": 120}


@pytest.mark.django_db
@pytest.mark.breaks_books  # rows past the book: no audit of each start, no commands
def test_every_page_answers_on_the_rows_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    admin, researcher = pages._fill(**FEW)
    for user in (admin, researcher):
        found = pages._measured(user, 1, orders=False)
        assert len(found) > 20
        assert {address: row["status"] for address, row in found.items() if row["status"] >= 500} == {}
        assert found["/nodes/"]["bytes"] > found["/search/"]["bytes"]  # the lists are not empty
        assert found["/nodes/"]["with_files"] > found["/nodes/"]["bytes"]
        assert all(row["queries"] for address, row in found.items() if address.startswith(("/jobs", "/nodes", "/ops")))
    monkeypatch.setattr(sample_pages, "sample_addresses", lambda user: ["/zones/plans/1/", "/nodes/"])
    found = pages._measured(admin, 1)
    assert {row["status"] for address, row in found.items() if "/nodes/?sort=" in address} == {200}
    assert "/nodes/?sort=free" in found


def test_a_benchmark_that_is_not_there_is_named_with_those_that_are() -> None:
    known = "balance, commit, histories, mixed, pages, placement, queue, quota, rate"
    with pytest.raises(CommandError, match=f"there are: {known}"):
        run("bench", "nothing")
