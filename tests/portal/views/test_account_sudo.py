"""Sudo mode: no dangerous act without a fresh password, nothing typed is lost, and nothing is followed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from ledger.models import ApiToken, User
from tests.factories import PASSWORD
from tests.portal.views.conftest import ClientAs

ACT = "/account/tokens/"
TYPED = {"label": 'a <b>"label"</b>', "days": "30", "next": "https://evil.example/"}


@pytest.fixture
def clock() -> Iterator[Any]:
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


@pytest.fixture
def late(client_as: ClientAs, clock: Any) -> Client:
    """A researcher whose last proof is eleven minutes old."""
    client = client_as("researcher")
    clock.shift(dt.timedelta(minutes=11))
    return client


def test_a_fresh_sign_in_is_a_proof(client_as: ClientAs) -> None:
    assert "gpc_" in client_as("researcher").post(ACT, TYPED).content.decode()


def test_without_a_fresh_proof_nothing_is_done_and_everything_is_kept(late: Client) -> None:
    answer = late.post(ACT, TYPED)
    assert answer.status_code == 403
    assert dict(answer.context["kept"]) == TYPED
    assert "&lt;b&gt;" in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_the_right_password_goes_on_with_what_was_typed(late: Client) -> None:
    answer = late.post(ACT, TYPED | {"sudo_password": PASSWORD})
    assert answer.status_code == 200
    assert ApiToken.objects.get().label == TYPED["label"]
    assert late.post(ACT, TYPED | {"label": "another"}).status_code == 200  # for ten minutes


def test_the_proof_ends_after_ten_minutes(late: Client, clock: Any) -> None:
    late.post(ACT, TYPED | {"sudo_password": PASSWORD})
    clock.shift(dt.timedelta(minutes=10))
    assert late.post(ACT, TYPED | {"label": "another"}).status_code == 403


def test_a_wrong_password_does_nothing_and_keeps_everything(late: Client) -> None:
    answer = late.post(ACT, TYPED | {"sudo_password": "wrong"})
    assert answer.status_code == 422
    assert dict(answer.context["kept"]) == TYPED
    assert "not your password" in answer.content.decode()
    assert "wrong" not in [text for _name, text in answer.context["kept"]]
    assert not ApiToken.objects.exists()


def test_guessing_closes_the_door_and_keeps_the_form(late: Client) -> None:
    codes = [late.post(ACT, TYPED | {"sudo_password": f"guess {n}"}).status_code for n in range(5)]
    assert codes == [422, 422, 422, 422, 429]
    answer = late.post(ACT, TYPED | {"sudo_password": PASSWORD})
    assert (answer.status_code, answer["Retry-After"]) == (429, "900")
    assert dict(answer.context["kept"]) == TYPED
    assert not ApiToken.objects.exists()
    away = Client().post("/sign-in/", {"username": "researcher", "password": PASSWORD})
    assert away.status_code == 429  # one count for both doors


def test_a_right_password_forgets_the_failures_before(late: Client, clock: Any) -> None:
    for n in range(4):
        late.post(ACT, TYPED | {"sudo_password": f"guess {n}"})
    late.post(ACT, TYPED | {"sudo_password": PASSWORD})
    clock.shift(dt.timedelta(minutes=11))
    assert late.post(ACT, TYPED | {"sudo_password": "wrong"}).status_code == 422


def test_the_password_of_somebody_else_proves_nothing(late: Client, people: dict[str, User]) -> None:
    User.objects.get(username="outsider")
    people["outsider"].set_password("the password of the outsider")
    people["outsider"].save(update_fields=["password"])
    form = TYPED | {"sudo_password": "the password of the outsider", "username": "outsider"}
    assert late.post(ACT, form).status_code == 422


def test_repeated_names_and_empty_texts_are_kept(late: Client) -> None:
    answer = late.post(ACT, {"key": ["1", "2", "2"], "reason": ""})
    assert answer.context["kept"] == [("key", "1"), ("key", "2"), ("key", "2"), ("reason", "")]


@pytest.mark.parametrize("path", [ACT + "?next=https://evil.example/", ACT + "?next=//evil.example"])
def test_the_question_leads_nowhere_else(late: Client, path: str) -> None:
    asked = late.post(path, TYPED)
    assert f'action="{path}"' in asked.content.decode()
    done = late.post(path, TYPED | {"sudo_password": PASSWORD})
    assert "Location" not in done


def test_a_form_of_another_site_gets_no_question(people: dict[str, User], clock: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["researcher"])
    clock.shift(dt.timedelta(minutes=11))
    answer = client.post(ACT, TYPED | {"sudo_password": PASSWORD})
    assert answer.status_code == 403
    assert b"came from another site" in answer.content
    assert not ApiToken.objects.exists()


def test_reading_needs_no_proof(late: Client) -> None:
    assert (late.get(ACT).status_code, late.head(ACT).status_code) == (200, 200)


def test_a_stranger_is_sent_to_the_sign_in_page(people: dict[str, User]) -> None:
    answer = Client().post(ACT, TYPED | {"sudo_password": PASSWORD})
    assert answer["Location"] == "/sign-in/?next=/account/tokens/"
    assert not ApiToken.objects.exists()


def test_the_proof_is_one_sessions_own(late: Client, people: dict[str, User], clock: Any) -> None:
    other = Client()
    other.force_login(people["researcher"])
    clock.shift(dt.timedelta(minutes=11))
    late.post(ACT, TYPED | {"sudo_password": PASSWORD})
    assert other.post(ACT, TYPED | {"label": "another"}).status_code == 403


def test_a_clock_that_was_set_back_proves_nothing(client_as: ClientAs, clock: Any) -> None:
    client = client_as("researcher")
    clock.shift(dt.timedelta(hours=-1))
    assert client.post(ACT, TYPED).status_code == 403
