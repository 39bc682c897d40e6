"""The quick look at the books after each test finds what the full check finds."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger import invariants, quarters
from ledger.clock import database_now
from ledger.models import RollUp
from tests import factories
from tests.ledger import raw, watch

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]


def test_clean_books_look_clean() -> None:
    factories.node("n1")
    factories.project("vision")
    factories.job(factories.user("owner"))
    assert watch.small_and_clean()


def test_books_with_a_broken_invariant_do_not() -> None:
    project = factories.project("vision")
    assert watch.small_and_clean()
    raw.job(project.pk, project.owner_id)
    assert [finding.name for finding in invariants.check()] == ["I18-audited"]
    assert not watch.small_and_clean()


def test_each_invariant_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in invariants.INVARIANTS:
        with monkeypatch.context() as changed:
            changed.setitem(invariants.INVARIANTS, name, ("broken for this test", "SELECT 1"))
            assert not watch.small_and_clean(), name


def test_what_is_rolled_up_and_what_is_large_gets_the_full_check(monkeypatch: pytest.MonkeyPatch) -> None:
    factories.project("vision")
    with monkeypatch.context() as changed:
        changed.setattr(watch, "FEW", 1)
        assert not watch.small_and_clean()  # its owner's permissions are rows enough
    edge = quarters.floor(database_now())
    RollUp.objects.create(pk=1, since=edge - dt.timedelta(hours=1), until=edge)
    assert not watch.small_and_clean()


def test_many_cards_without_a_job_are_large_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FEW", 8)
    factories.node("n1", cards=1)
    assert watch.small_and_clean()
    factories.node("n2", cards=8)
    assert not watch.small_and_clean()
