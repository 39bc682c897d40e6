"""What every database test of the ledger and the scheduler gets for free: constant rows, a cold snapshot, and the
invariants of the books checked at its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

TABLE = re.compile(r"\b(?:ledger|scheduler|portal)_[a-z]+\b")  # as the queries of the invariants name tables
BREAKS = "breaks_books"  # marker of tests that write rows past the book on purpose


def register(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{BREAKS}: writes rows past the book, so the invariants are not checked at its end"
    )


def uses_database(request: pytest.FixtureRequest) -> bool:
    wanted = {"db", "transactional_db"} & set(request.fixturenames)
    return bool(wanted) or request.node.get_closest_marker("django_db") is not None


def watched(request: pytest.FixtureRequest) -> Iterator[None]:
    if not uses_database(request):
        yield
        return
    for name in ("transactional_db", "db"):  # set up first: fixtures that every test gets come before those it asks for
        if name in request.fixturenames:
            request.getfixturevalue(name)
            break
    from django.db import connection

    from ledger import invariants
    from scheduler import reconcile, snapshot
    from tests import factories

    factories.constant_rows()
    snapshot.forget()
    reconcile._nodes["at"] = None  # its one-second memory belongs to another test
    yield
    failed = connection.in_atomic_block and connection.needs_rollback  # the test has said so already
    if request.node.get_closest_marker(BREAKS) is None and not failed:
        looks_clean = small_and_clean()
        if not looks_clean:
            analyze()
        broken = [] if looks_clean else invariants.check()
        assert not broken, broken


FEW = 500  # rows up to which one plan, made while the tables were empty, is a good plan; more took minutes once


def tables() -> list[str]:
    """Those that the invariants read."""
    from ledger import invariants

    return sorted(set(TABLE.findall(" ".join(query for _meaning, query in invariants.INVARIANTS.values()))))


def analyze() -> None:
    """Many rows that one transaction wrote are planned for as if they were few, until the server has counted them."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {', '.join(tables())}")


def small_and_clean() -> bool:
    """Whether few rows are there and no query of the invariants finds any, and nothing is rolled up, which takes more
    than a query to check. One statement that the server has planned once: planning twenty took longer than most tests.
    False proves nothing; the full check then says what is wrong."""
    from django.db import connection

    from ledger import invariants

    connection.ensure_connection()
    found = [f"EXISTS ({query})" for _meaning, query in invariants.INVARIANTS.values()]
    few = [f"(SELECT count(*) FROM (SELECT FROM {table} LIMIT {FEW}) AS counted) = {FEW}" for table in tables()]
    dirty = " OR ".join(["EXISTS (SELECT FROM ledger_rollup)", *found])
    for question in (" OR ".join(few), dirty):
        row = connection.connection.execute(f"SELECT {question}", prepare=True).fetchone()
        if row[0]:
            return False
    return True
