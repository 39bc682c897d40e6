"""The 15-minute roll-up: equal to the book, never ahead of a transaction that may still write, repaired on request."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from ledger import balance, invariants, quarters, reports
from ledger.balance import Cut
from ledger.clock import database_now
from ledger.models import RollUp, UsageQuarter
from tests import factories
from tests.ledger.balance_reference import LENGTH_S, at, lay_out
from tests.ledger.raw import Sql, insert, refused, run

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
BEFORE = quarters.floor(at(0)) - quarters.QUARTER  # the history crosses an edge between quarters
LONG = (BEFORE - dt.timedelta(hours=13.1), BEFORE + dt.timedelta(hours=13.7))
CUTS: list[dict[str, Any]] = [
    {}, {"simulated": True}, {"zone": "z1"}, {"model": "A"}, {"project": "vision"},
    {"zone": "z2", "model": "B", "simulated": True}, {"zone": "z1", "project": "speech"}, {"zone": "nowhere"},
    {"zone": balance.NOWHERE},
]  # fmt: skip


def _rolled(count: int = 4) -> None:
    """Roll up `count` quarters from BEFORE on, through the same door as the task."""
    RollUp.objects.create(pk=1, since=BEFORE, until=BEFORE, fence=1, fence_at=BEFORE + count * quarters.QUARTER)
    assert quarters.roll_up() == count


def _book(window: balance.Window, cut: Cut) -> Counter[tuple[str, str, str, int]]:
    found: Counter[tuple[str, str, str, int]] = Counter()
    for line in balance.lines([window], cut):
        found[line.account, line.slug, line.form, line.size] += line.amount
    return Counter({key: n for key, n in found.items() if n})


@pytest.mark.parametrize("seed", range(8))
def test_a_long_report_says_the_same_with_and_without_the_roll_up(seed: int) -> None:
    lay_out(seed)
    _rolled()
    assert quarters.rolled_parts([LONG]) == [(BEFORE, BEFORE + 4 * quarters.QUARTER)]
    for cut in CUTS:
        found = {row[:4]: row[4] for row in reports.rows(*LONG, **cut)}
        assert found == _book(LONG, Cut(**cut)), cut


@pytest.mark.parametrize("seed", [3, 5])
def test_a_long_series_adds_up_and_reads_the_roll_up(seed: int) -> None:
    lay_out(seed)
    _rolled()
    whole = reports.balance(*LONG)["exact"]
    edges = [LONG[0], *(BEFORE + n * quarters.QUARTER for n in range(-9, 12)), LONG[1]]
    parts = reports.balance_series(edges)
    assert (parts[0]["from"], parts[-1]["to"]) == (whole_from_to := tuple(edge.isoformat() for edge in LONG))
    assert [part["to"] for part in parts[:-1]] == [part["from"] for part in parts[1:]], whole_from_to
    assert sum(part["exact"]["capacity"] for part in parts) == whole["capacity"]
    assert sum(part["exact"]["used"]["total"] for part in parts) == whole["used"]["total"]
    run("UPDATE ledger_usagequarter SET mib_seconds = mib_seconds + 1000000 WHERE account = 'free'")
    assert sum(part["exact"]["capacity"] for part in reports.balance_series(edges)) > whole["capacity"]


def test_a_series_of_any_length_asks_the_database_as_often(django_assert_num_queries: Any) -> None:
    lay_out(3)
    _rolled()
    for bars in (2, 40):
        edges = [LONG[0], *(BEFORE + n * quarters.QUARTER for n in range(2 - bars, 2)), LONG[1]]
        with django_assert_num_queries(3):  # how far the roll-up is, its rows, the edges from the book
            reports.balance_series(edges)


def test_a_short_report_never_reads_the_roll_up() -> None:
    lay_out(3)
    _rolled()
    before = reports.balance(at(-60), at(LENGTH_S))
    run("UPDATE ledger_usagequarter SET mib_seconds = mib_seconds + 1000000")
    assert reports.balance(at(-60), at(LENGTH_S)) == before


def test_a_changed_quarter_is_found_and_done_again() -> None:
    lay_out(4)
    _rolled()
    every = quarters.windows(BEFORE, BEFORE + 4 * quarters.QUARTER)
    assert quarters.differences(every, 20) == []
    assert "roll-up" not in {finding.name for finding in invariants.check()}
    row = UsageQuarter.objects.order_by("starts_at", "id")[2]
    run("UPDATE ledger_usagequarter SET mib_seconds = mib_seconds + 1 WHERE id = %s", row.pk)
    ((when, *_, kept, right),) = quarters.differences(every, 20)
    assert (when, kept, right) == (row.starts_at.isoformat(), row.mib_seconds + 1, row.mib_seconds)
    assert "roll-up" in {finding.name for finding in invariants.check()}
    assert quarters.redo(row.starts_at, row.starts_at + dt.timedelta(seconds=1)) == 1
    assert quarters.differences(every, 20) == []


def test_a_row_too_few_is_found() -> None:
    lay_out(4)
    _rolled()
    run("DELETE FROM ledger_usagequarter WHERE id = (SELECT max(id) FROM ledger_usagequarter)")
    found = quarters.differences(quarters.windows(BEFORE, BEFORE + 4 * quarters.QUARTER), 20)
    assert [row[-2] for row in found] == [0]


def test_every_old_quarter_gets_its_turn_in_the_check() -> None:
    lay_out(4)
    _rolled(9)
    looks = [quarters.to_check(at(0) + dt.timedelta(minutes=minute)) for minute in range(9)]
    assert [quarters.differences(some, 5) for some in looks] == [[]] * 9
    seen = {w[0] for some in looks for w in some}
    assert seen == {start for start, _ in quarters.windows(BEFORE, BEFORE + 9 * quarters.QUARTER)}


def test_with_no_card_there_is_nothing_to_roll_up() -> None:
    assert quarters.roll_up() == 0
    assert not RollUp.objects.exists()
    assert quarters.to_check(database_now()) == []


def test_a_backlog_is_worked_off_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(6)
    monkeypatch.setattr(quarters, "MOST_A_RUN", 3)
    RollUp.objects.create(pk=1, since=BEFORE, until=BEFORE, fence=1, fence_at=BEFORE + 7 * quarters.QUARTER)
    assert [quarters.roll_up() for _ in range(3)] == [3, 3, 1]
    mark = RollUp.objects.get()
    assert mark.until == BEFORE + 7 * quarters.QUARTER
    assert mark.fence_at is not None  # the next part, up to now, waits for its fence
    assert mark.fence_at == quarters.floor(database_now() - quarters.GRACE)


@contextmanager
def _somebody_writes() -> Iterator[None]:
    """Another session with an open transaction that has written something."""
    written, go = threading.Event(), threading.Event()

    def work() -> None:
        with transaction.atomic():
            run("UPDATE ledger_zone SET title = 'late'")
            written.set()
            go.wait(60)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert written.wait(30)
        yield
    finally:
        go.set()
        thread.join(30)


@pytest.mark.django_db(transaction=True)
def test_a_quarter_waits_for_transactions_that_began_in_it() -> None:
    node = factories.node(cards=2)
    zone = node.zone_periods.get().zone
    run("UPDATE ledger_cardseat SET period = tstzrange(now() - interval '1 hour', NULL)")
    with _somebody_writes():
        assert quarters.roll_up() == 0  # sets the fence
        assert quarters.roll_up() == 0
        assert RollUp.objects.get().fence is not None
    deadline = time.monotonic() + 60
    while not (done := quarters.roll_up()):
        assert time.monotonic() < deadline, "an older transaction on this server does not end"
        time.sleep(0.05)
    assert done in (3, 4, 5)  # an hour, cut at quarters
    mark = RollUp.objects.get()
    assert (mark.fence, mark.until) == (None, quarters.floor(database_now() - quarters.GRACE))
    assert set(UsageQuarter.objects.values_list("zone_id", "account")) <= {(zone.pk, "free"), (None, "free")}
    assert (
        quarters.differences(quarters.windows(quarters.floor(mark.until - dt.timedelta(hours=2)), mark.until), 9) == []
    )


EARLY = Sql("'2026-01-01 00:15+00'")
USAGE: dict[str, Any] = {
    "starts_at": EARLY, "simulated": False, "model": "A", "card_memory_mib": 4,
    "account": "free", "form": "", "mib_seconds": 7,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"mib_seconds": 0}, "usage_positive"),
        ({"account": "idle"}, "usage_account_known"),
        ({"account": "used"}, "usage_has_a_project_where_due"),
        ({"form": "whole"}, "usage_has_a_project_where_due"),
        ({"starts_at": Sql("'2026-01-01 00:15:01+00'")}, "usage_on_a_quarter"),
    ],
)
def test_the_database_refuses_a_wrong_quarter(change: dict[str, Any], constraint: str) -> None:
    insert("ledger_usagequarter", **USAGE)
    with refused(constraint, at_once=True):
        insert("ledger_usagequarter", **{**USAGE, "model": "B", **change})


def test_the_database_refuses_a_second_amount_for_a_cell() -> None:
    insert("ledger_usagequarter", **USAGE)
    with refused("one_amount_a_quarter_and_cell", at_once=True):
        insert("ledger_usagequarter", **USAGE)


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"id": 2}, "one_roll_up"),
        ({"id": 1, "fence": 4}, "roll_up_fence_has_a_time"),
        ({"id": 1, "until": Sql("'2026-01-01 00:37+00'")}, "roll_up_until_a_quarter"),
        ({"id": 1, "since": Sql("'2026-01-01 00:00:00.5+00'")}, "roll_up_since_a_quarter"),
        ({"id": 1, "since": Sql("'2026-01-01 00:30+00'")}, "roll_up_since_before_until"),
    ],
)
def test_the_database_refuses_a_wrong_mark(values: dict[str, Any], constraint: str) -> None:
    with refused(constraint, at_once=True):
        insert("ledger_rollup", **{"since": EARLY, "until": EARLY, **values})
