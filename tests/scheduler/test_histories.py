"""Some hundred random histories in which quotas, ceilings, limits and ends of projects meet everything else. Thousands:
manage.py bench histories."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from tests.ledger import watch
from tests.scheduler import histories

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
COUNT = 80


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(driver("simulated"), "world", World(start_delay_s=(0.0, 0.0)))
    histories.lay_out()


def test_whatever_happens_nothing_is_used_that_may_not_be(pool: None) -> None:
    told = []
    for number in range(COUNT):
        point = transaction.savepoint()
        told.append(histories.tell(number))
        if number % 20 == 0:
            assert watch.small_and_clean()
        transaction.savepoint_rollback(point)
    tally = histories.tally(told)
    assert set(tally) >= {"submit", "turn", "finish", "crash", "resize", "cut", "drain", "ceiling", "limit", "member"}
    assert tally["placed"] > COUNT
    assert tally["ended"] > COUNT // 3


@pytest.mark.breaks_books
@pytest.mark.parametrize("table", ["ledger_cardshare", "ledger_allocation"])
def test_without_a_guard_of_the_database_a_history_is_found_that_breaks_it(pool: None, table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER quota_never_exceeded ON {table}")
    with pytest.raises(histories.Broken, match="is used, before it was|the bound is"):
        for number in range(COUNT):
            point = transaction.savepoint()
            histories.tell(number)
            transaction.savepoint_rollback(point)
