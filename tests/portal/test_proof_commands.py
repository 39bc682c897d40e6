"""check_books and verify_audit end with 1 and show what is broken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.db import connection

from ledger import audit
from ledger.models import AuditEvent, Job, Membership, ProjectUserPermission
from tests import factories
from tests.portal.commands import ends_with_1, run


@pytest.mark.django_db
def test_check_books_says_clean() -> None:
    factories.cast()
    factories.node("n1", cards=2)
    factories.job()
    assert "invariants hold" in run("check_books")


@pytest.mark.django_db
@pytest.mark.breaks_books
def test_check_books_ends_with_1_and_shows_the_rows_that_break_an_invariant() -> None:
    factories.cast()
    job = factories.job()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE ledger_job DISABLE TRIGGER USER")
        cursor.execute("UPDATE ledger_job SET state = 'running' WHERE id = %s", [job.pk])
        cursor.execute("ALTER TABLE ledger_job ENABLE TRIGGER USER")
    said = ends_with_1("check_books")
    assert "BROKEN I8-one-live-attempt" in said
    assert f"({job.pk}, 'running', 0)" in said


@pytest.mark.django_db
@pytest.mark.breaks_books
def test_check_books_finds_work_without_its_audit_row_and_rights_without_a_membership() -> None:
    people = factories.cast()
    job = factories.job(people["researcher"])
    made = Job.objects.get(pk=job.pk)
    made.pk = None
    made.save(force_insert=True)
    Membership.objects.filter(user=people["member"]).delete()
    assert ProjectUserPermission.objects.filter(user=people["member"]).exists()
    said = ends_with_1("check_books")
    assert "BROKEN I18-audited" in said
    assert f"({made.pk},)" in said
    assert "BROKEN guardian-orphans" in said


def sealed(at_least: int) -> None:
    """Other databases of the same server may hold the horizon back for a moment."""
    for _ in range(600):
        audit.seal()
        if audit.verify().sealed >= at_least:
            return
        time.sleep(0.1)
    raise AssertionError("the sealer found nothing to seal")


@pytest.mark.django_db(transaction=True)
def test_verify_audit_names_the_first_row_that_was_changed_deleted_or_cut_off(data: Path) -> None:
    user = factories.user("admin")
    for i in range(5):
        audit.record(actor=user, via="test", verb="thing.done", target=user, after={"i": i})
    sealed(at_least=5)
    audit.write_anchor(data / "audit-anchor.log")
    assert "intact: 5 rows" in run("verify_audit")
    ids = list(AuditEvent.objects.order_by("id").values_list("pk", flat=True))
    tamper("UPDATE ledger_auditevent SET reason = 'x' WHERE id = %s", ids[2])
    assert f"after 2 good rows: audit row {ids[2]}" in ends_with_1("verify_audit")
    tamper("UPDATE ledger_auditevent SET reason = '' WHERE id = %s", ids[2])
    assert "intact" in run("verify_audit")
    tamper("DELETE FROM ledger_auditseal WHERE event_id = %s", ids[4])
    tamper("DELETE FROM ledger_auditevent WHERE id = %s", ids[4])
    assert "anchored outside" in ends_with_1("verify_audit")


def tamper(statement: str, pk: int) -> None:
    """As the owner of the tables, with their guards off."""
    with connection.cursor() as cursor:
        for table in ("ledger_auditevent", "ledger_auditseal"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(statement, [pk])
        for table in ("ledger_auditevent", "ledger_auditseal"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
