"""The writer of saved values: one set a name and person, bounded, recorded without its values."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger import saved_values
from ledger.errors import Refused
from ledger.models import AuditEvent, SavedValues, User
from ledger.saved_values import LONGEST_IN_ALL, LONGEST_NAME, LONGEST_VALUE, MOST_SAVED
from tests import factories
from tests.ledger.test_application_role import as_application

pytestmark = pytest.mark.django_db


@pytest.fixture
def researcher() -> User:
    return factories.user("researcher")


def save(user: User, name: str = "mine", **values: str) -> tuple[SavedValues, bool]:
    return saved_values.save(user=user, name=name, values=values, via="test", request_id="r1")


def test_the_same_name_replaces_and_says_so(researcher: User) -> None:
    first, replaced = save(researcher, "  night \n run ", command="a")
    assert (first.name, replaced) == ("night run", False)
    second, replaced = save(researcher, "night run", nodes="x")
    assert (second.pk, replaced) == (first.pk, True)
    kept = SavedValues.objects.get()
    assert kept.values == {"nodes": "x"}
    assert kept.saved_at > first.saved_at


def test_two_people_may_use_the_same_name(researcher: User) -> None:
    save(researcher, command="mine")
    assert save(factories.user("member"), command="theirs")[1] is False
    assert SavedValues.objects.get(user=researcher).values == {"command": "mine"}


def test_every_act_is_in_the_trail_and_no_value_is(researcher: User) -> None:
    saved, _ = save(researcher, environment="KEY=canary")
    save(researcher, environment="KEY=canary")
    assert saved_values.remove(saved=saved, actor=researcher, via="test")
    assert not saved_values.remove(saved=saved, actor=researcher, via="test")
    events = AuditEvent.objects.filter(target_type="savedvalues", target_id=str(saved.pk)).order_by("pk")
    assert [event.verb for event in events] == ["values.saved", "values.replaced", "values.removed"]
    assert [event.actor for event in events] == [researcher] * 3
    assert events[0].after == events[2].before == {"user": "researcher", "name": "mine"}
    assert events[0].request_id == "r1"
    assert "canary" not in str([(event.before, event.after) for event in events])


def test_there_is_a_most_and_a_known_name_still_replaces(researcher: User) -> None:
    for n in range(MOST_SAVED):
        save(researcher, f"set {n}")
    with pytest.raises(Refused) as refused:
        save(researcher, "one more")
    assert (refused.value.field, refused.value.code) == ("name", "too_many")
    assert str(MOST_SAVED) in str(refused.value)
    assert save(researcher, "set 0", command="new")[1] is True
    assert save(factories.user("member"), "theirs")[1] is False
    assert SavedValues.objects.filter(user=researcher).count() == MOST_SAVED


@pytest.mark.parametrize(
    ("name", "values", "field", "code"),
    [
        ("", {}, "name", "empty"),
        (" \n\t", {}, "name", "empty"),
        ("x" * (LONGEST_NAME + 1), {}, "name", "too_long"),
        ("a\x00b", {}, "name", "unprintable"),
        ("mine", {"command": "x" * (LONGEST_VALUE + 1)}, "values.command", "too_long"),
        ("mine", {"command": "a\x00b"}, "values.command", "unprintable"),
        ("mine", {"command": "\ud800"}, "values.command", "unprintable"),
        ("mine", {name: "x" * (LONGEST_IN_ALL // 3) for name in "abc"}, "", "too_long"),
    ],
)
def test_what_can_not_be_kept_is_refused(
    researcher: User, name: str, values: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        save(researcher, name, **values)
    assert (refused.value.field, refused.value.code) == (field, code)
    assert not SavedValues.objects.exists()
    assert not AuditEvent.objects.filter(verb__startswith="values.").exists()


def test_the_longest_that_may_be_is_kept(researcher: User) -> None:
    name, text = "名" * LONGEST_NAME, "值" * LONGEST_VALUE
    save(researcher, name, command=text)
    assert SavedValues.objects.get(name=name).values == {"command": text}


def test_the_database_itself_keeps_one_set_a_name(researcher: User) -> None:
    saved, _ = save(researcher)
    again = SavedValues(user=researcher, name=saved.name, values={}, saved_at=saved.saved_at)
    nameless = SavedValues(user=researcher, name="", values={}, saved_at=saved.saved_at)
    for row in (again, nameless):
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save()


def test_the_application_may_save_replace_and_remove(researcher: User) -> None:
    with as_application():
        save(researcher)
        saved, replaced = save(researcher, command="x")
        assert replaced
        assert saved_values.remove(saved=saved, actor=researcher, via="test")
    assert not SavedValues.objects.exists()


def test_the_person_is_locked_before_their_sets_are_counted(researcher: User) -> None:
    """Else two browsers could pass the most together."""
    with CaptureQueriesContext(connection) as queries:
        save(researcher)
    statements = [query["sql"] for query in queries]
    lock = next(i for i, sql in enumerate(statements) if "ledger_user" in sql and "FOR UPDATE" in sql)
    assert lock < next(i for i, sql in enumerate(statements) if "ledger_savedvalues" in sql)
