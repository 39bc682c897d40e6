"""The audit chain: sealed in order whatever commits when, and any later change of what was sealed is found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection, transaction

from ledger import audit
from ledger.clock import database_now
from ledger.models import AuditEvent, AuditSeal, User
from tests import factories
from tests.ledger.raw import one, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.breaks_books]


def _write(count: int = 1, **values: object) -> list[AuditEvent]:
    who = factories.user("owner")
    return [
        audit.record(
            actor=who, via="test", verb="thing.done", target=who, after={"n": n, "ü": [1.5, None]}, reason="因为"
        )
        for n in range(count)
    ]


def _seal(until: int, limit: int = 5_000) -> int:
    """Seal until this many rows are; transactions of others on the server may hold a row back for a moment."""
    deadline = time.monotonic() + 60
    while AuditSeal.objects.count() < until:
        assert time.monotonic() < deadline, "an older transaction on this server does not end"
        if not audit.seal(limit):
            time.sleep(0.05)
    return AuditSeal.objects.count()


def test_rows_are_sealed_in_order_and_verify() -> None:
    events = _write(20)
    assert _seal(20) == 20
    assert list(AuditSeal.objects.order_by("position").values_list("position", "event_id")) == [
        (n, event.pk) for n, event in enumerate(events, start=1)
    ]
    verdict = audit.verify()
    assert (verdict.ok, verdict.sealed) == (True, 20)
    assert audit.seal() == 0


def test_small_portions_make_the_same_chain() -> None:
    _write(11)
    _seal(11, limit=3)
    portions = list(AuditSeal.objects.order_by("position").values_list("position", "event_id", "digest"))
    AuditSeal.objects.all().delete()
    _seal(11)
    assert list(AuditSeal.objects.order_by("position").values_list("position", "event_id", "digest")) == portions


@contextmanager
def _open_transaction() -> Iterator[Callable[[], None]]:
    """Another connection has written a row and not committed it; calling what is given commits it."""
    written, go = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with transaction.atomic():
                _write()
                written.set()
                go.wait(30)
        finally:
            written.set()
            connection.close()

    factories.user("owner")
    thread = threading.Thread(target=work)
    thread.start()
    assert written.wait(30)

    def commit() -> None:
        go.set()
        thread.join(30)

    try:
        yield commit
    finally:
        commit()


def test_a_row_that_commits_late_is_neither_lost_nor_overtaken() -> None:
    _write(2)
    _seal(2)
    with _open_transaction() as commit:
        _write(3)
        assert audit.seal() == 0  # later rows wait for the one that is still open
        assert AuditSeal.objects.count() == 2
        commit()
    assert _seal(6) == 6
    order = list(AuditSeal.objects.order_by("position").values_list("event_id", flat=True))
    assert order == sorted(order)
    assert audit.verify().ok


def test_a_row_that_is_rolled_back_leaves_no_hole() -> None:
    with transaction.atomic():
        _write()
        transaction.set_rollback(True)
    _write(2)
    assert _seal(2) == 2
    assert audit.verify().ok


def test_two_sealers_make_one_chain() -> None:
    _write(200)
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(10):
            audit.seal(limit=30)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _seal(200) == 200
    assert audit.verify().ok


TAMPERING: dict[str, tuple[str, ...]] = {
    "a changed reason": ("UPDATE ledger_auditevent SET reason = 'x' WHERE id = %(e3)s",),
    "a changed time": ("UPDATE ledger_auditevent SET at = at + interval '1 microsecond' WHERE id = %(e3)s",),
    "a changed value": ("""UPDATE ledger_auditevent SET after = '{"n": 7}' WHERE id = %(e3)s""",),
    "a changed actor": ("UPDATE ledger_auditevent SET actor_id = NULL WHERE id = %(e3)s",),
    "a changed first row": ("UPDATE ledger_auditevent SET verb = 'x' WHERE id = %(e1)s",),
    "a changed last row": ("UPDATE ledger_auditevent SET verb = 'x' WHERE id = %(e9)s",),
    "a deleted row": (
        "DELETE FROM ledger_auditseal WHERE position = 3",
        "DELETE FROM ledger_auditevent WHERE id = %(e3)s",
    ),
    "a deleted row, closed up": (
        "DELETE FROM ledger_auditseal WHERE position = 3",
        "DELETE FROM ledger_auditevent WHERE id = %(e3)s",
        "UPDATE ledger_auditseal SET position = -position WHERE position > 3",
        "UPDATE ledger_auditseal SET position = -position - 1 WHERE position < 0",
    ),
    "two rows swapped": (
        "UPDATE ledger_auditseal SET position = -3 WHERE position = 3",
        "UPDATE ledger_auditseal SET position = 3 WHERE position = 4",
        "UPDATE ledger_auditseal SET position = 4 WHERE position = -3",
    ),
    "an inserted row": (
        "UPDATE ledger_auditseal SET position = -position - 1 WHERE position > 2",
        "UPDATE ledger_auditseal SET position = -position WHERE position < 0",
        "INSERT INTO ledger_auditevent (at, via, verb, target_type, target_id, reason, request_id) "
        "VALUES (now(), 'x', 'x', 'x', 'x', '', '')",
        "INSERT INTO ledger_auditseal (position, event_id, digest, horizon) "
        "SELECT 3, max(id), repeat('0', 64), 0 FROM ledger_auditevent",
    ),
    "a changed digest": ("UPDATE ledger_auditseal SET digest = repeat('0', 64) WHERE position = 3",),
    "an old row unsealed": (
        "DELETE FROM ledger_auditseal WHERE position = 9",
        "UPDATE ledger_auditevent SET at = at - interval '1 hour' WHERE id = %(e9)s",
    ),
}


@pytest.fixture
def sealed() -> dict[str, int]:
    events = _write(9)
    assert _seal(9) == 9
    return {f"e{n}": event.pk for n, event in enumerate(events, start=1)}


def test_every_kind_of_tampering_is_found(sealed: dict[str, int]) -> None:
    assert audit.verify().ok
    for name, statements in TAMPERING.items():
        with transaction.atomic():
            for statement in statements:
                for key, pk in sealed.items():
                    statement = statement.replace(f"%({key})s", str(pk))
                run(statement)
            assert not audit.verify().ok, name
            transaction.set_rollback(True)
    assert audit.verify().ok


def test_a_truncated_end_is_found_by_the_anchor_outside(sealed: dict[str, int], tmp_path: Path) -> None:
    anchor = tmp_path / "deep" / "anchor.log"
    audit.write_anchor(anchor)
    audit.write_anchor(anchor)
    assert anchor.read_text().count("\n") == 1
    assert audit.verify(anchor).ok
    run("DELETE FROM ledger_auditseal WHERE position > 6")
    run("DELETE FROM ledger_auditevent WHERE id > %s", sealed["e6"])
    assert audit.verify().ok  # the chain alone can't tell
    verdict = audit.verify(anchor)
    assert not verdict.ok
    assert "9" in verdict.message


def test_a_chain_made_anew_is_found_by_the_anchor_outside(sealed: dict[str, int], tmp_path: Path) -> None:
    anchor = tmp_path / "anchor.log"
    audit.write_anchor(anchor)
    run("UPDATE ledger_auditevent SET reason = 'better' WHERE id = %s", sealed["e2"])
    AuditSeal.objects.all().delete()
    _seal(9)
    assert audit.verify().ok
    assert not audit.verify(anchor).ok


def test_the_anchor_grows_with_the_chain(sealed: dict[str, int], tmp_path: Path) -> None:
    anchor = tmp_path / "anchor.log"
    audit.write_anchor(anchor)
    _write(2)
    _seal(11)
    audit.write_anchor(anchor)
    assert [line.split()[0] for line in anchor.read_text().splitlines()] == ["9", "11"]
    assert audit.verify(anchor).ok


def test_nothing_sealed_is_fine_and_leaves_no_anchor(tmp_path: Path) -> None:
    audit.write_anchor(tmp_path / "anchor.log")
    assert not (tmp_path / "anchor.log").exists()
    verdict = audit.verify(tmp_path / "anchor.log")
    assert (verdict.ok, verdict.sealed) == (True, 0)


def test_what_is_written_is_what_is_read() -> None:
    (event,) = _write()
    stored = AuditEvent.objects.get(pk=event.pk)
    assert (stored.after, stored.reason, stored.actor) == ({"n": 0, "ü": [1.5, None]}, "因为", User.objects.get())
    assert stored.at <= database_now()
    assert one("SELECT txid FROM ledger_auditevent WHERE id = %s", event.pk) is not None
