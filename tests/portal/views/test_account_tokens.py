"""Tokens and the password on the account page: shown once, one's own alone, ended at once."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ledger.clock import database_now
from ledger.models import ApiToken, AuditEvent, User, UserSession
from ledger.people import MOST_TOKENS, digest_of
from tests.factories import PASSWORD
from tests.portal.views.conftest import ClientAs

NEW = "a new and long password"


def make(client: Client, **values: Any) -> Any:
    return client.post("/account/tokens/", {"label": "my script", "days": "30"} | values)


def secret_in(answer: Any) -> str:
    found = re.search(r'<code id="secret">(gpc_[\w-]+)</code>', answer.content.decode())
    assert found
    return found[1]


def works(secret: str) -> bool:
    answer = Client().get("/api/v1/jobs/", headers={"Authorization": f"Bearer {secret}"})
    return answer.status_code == 200


def test_the_secret_is_shown_once_and_works(client_as: ClientAs, people: dict[str, User]) -> None:
    client = client_as("researcher")
    answer = make(client)
    secret = secret_in(answer)
    assert answer["Cache-Control"] == "no-store"
    assert works(secret)
    token = ApiToken.objects.get()
    assert (token.user, token.digest, token.label) == (people["researcher"], digest_of(secret), "my script")
    assert token.expires_at is not None
    assert abs(token.expires_at - database_now() - dt.timedelta(days=30)) < dt.timedelta(minutes=1)
    assert secret not in client.get("/account/tokens/").content.decode()
    event = AuditEvent.objects.get(verb="token.created")
    assert (event.actor, event.after["label"]) == (people["researcher"], "my script")
    assert secret not in str(event.after)


def test_a_form_sent_twice_makes_one_token(client_as: ClientAs) -> None:
    client = client_as("researcher")
    make(client)
    again = make(client)
    assert again.status_code == 422
    assert list(again.context["form"].errors) == ["label"]
    assert ApiToken.objects.count() == 1


def test_the_label_is_free_again_after_revoking(client_as: ClientAs) -> None:
    client = client_as("researcher")
    make(client)
    client.post(f"/account/tokens/{ApiToken.objects.get().pk}/revoke/")
    assert make(client).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("days", text) for text in ("0", "366", "-1", "1e9", "", "9" * 400)),
        *(("label", text) for text in ("", "   ", "x" * 101, "a\x00b")),
    ],
)
def test_bad_input_is_named_and_kept(client_as: ClientAs, field: str, value: str) -> None:
    answer = make(client_as("researcher"), **{field: value})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("days", ["1", "365"])
def test_the_ends_of_the_range_are_taken(client_as: ClientAs, days: str) -> None:
    assert make(client_as("researcher"), days=days).status_code == 200


def test_there_is_a_most(client_as: ClientAs, people: dict[str, User]) -> None:
    ApiToken.objects.bulk_create(
        ApiToken(user=people["researcher"], digest=f"{n:064x}", label=str(n), created_at=timezone.now())
        for n in range(MOST_TOKENS)
    )
    answer = make(client_as("researcher"))
    assert answer.status_code == 422
    assert "Revoke one" in answer.content.decode()


def test_a_revoked_token_is_refused_at_once_and_shown_as_such(client_as: ClientAs, people: dict[str, User]) -> None:
    client = client_as("researcher")
    secret = secret_in(make(client))
    pk = ApiToken.objects.get().pk
    assert client.post(f"/account/tokens/{pk}/revoke/").status_code == 302
    assert not works(secret)
    assert "revoked" in client.get("/account/tokens/").content.decode()
    client.post(f"/account/tokens/{pk}/revoke/")  # twice changes nothing
    event = AuditEvent.objects.get(verb="token.revoked")
    assert (event.actor, event.target_id) == (people["researcher"], str(pk))


def test_nobody_sees_or_revokes_the_token_of_another(client_as: ClientAs, people: dict[str, User]) -> None:
    secret = secret_in(make(client_as("researcher"), label="very own label"))
    pk = ApiToken.objects.get().pk
    for name in ("outsider", "member", "owner", "admin", "auditor"):
        client = client_as(name)
        assert client.post(f"/account/tokens/{pk}/revoke/").status_code == 404
        pages = [client.get(path).content.decode() for path in ("/account/", "/account/tokens/")]
        assert not [page for page in pages if "very own label" in page]
    assert works(secret)


@pytest.mark.parametrize("pk", [0, 10**30, 2**63])
def test_a_token_that_is_not_there_breaks_nothing(client_as: ClientAs, pk: int) -> None:
    assert client_as("researcher").post(f"/account/tokens/{pk}/revoke/").status_code == 404


def test_a_form_of_another_site_makes_and_revokes_nothing(people: dict[str, User], client_as: ClientAs) -> None:
    make(client_as("researcher"))
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["researcher"])
    assert make(client, label="other").status_code == 403
    assert client.post(f"/account/tokens/{ApiToken.objects.get().pk}/revoke/").status_code == 403
    assert ApiToken.objects.get().revoked_at is None


def test_an_export_never_swallows_the_secret(client_as: ClientAs) -> None:
    answer = client_as("researcher").post("/account/tokens/?export=csv", {"label": "x", "days": "1"})
    assert secret_in(answer)


def test_hostile_labels_stay_text(client_as: ClientAs) -> None:
    client = client_as("researcher")
    make(client, label='"><script>alert(1)</script>\u202eevil')
    for path in ("/account/", "/account/tokens/"):
        assert "<script>alert" not in client.get(path).content.decode()


def test_queries_do_not_grow_with_tokens(
    client_as: ClientAs, people: dict[str, User], django_assert_max_num_queries: Callable[..., Any]
) -> None:
    ApiToken.objects.bulk_create(
        ApiToken(user=people["researcher"], digest=f"{n:064x}", label=str(n), created_at=timezone.now())
        for n in range(200)
    )
    client = client_as("researcher")
    with django_assert_max_num_queries(4):
        assert len(client.get("/account/tokens/").context["t"]["rows"]) == 50


# -- the password -----------------------------------------------------------------------------------------------------


def change(client: Client, old: str = PASSWORD, new: str = NEW, again: str | None = None) -> Any:
    return client.post("/account/password/", {"old_password": old, "new_password1": new, "new_password2": again or new})


def test_a_new_password_ends_all_other_sessions_and_keeps_this_one(
    client_as: ClientAs, people: dict[str, User]
) -> None:
    client, other, stranger = client_as("researcher"), client_as("researcher"), client_as("member")
    before = client.cookies["sessionid"].value
    assert change(client)["Location"] == "/account/"
    assert client.cookies["sessionid"].value != before
    codes = [c.get("/account/").status_code for c in (client, other, stranger)]
    assert codes == [200, 302, 200]
    assert UserSession.objects.filter(user=people["researcher"]).count() == 1
    assert User.objects.get(username="researcher").check_password(NEW)
    event = AuditEvent.objects.get(verb="password.changed")
    assert NEW not in f"{event.before}{event.after}"


def test_tokens_go_on_after_a_new_password(client_as: ClientAs) -> None:
    client = client_as("researcher")
    secret = secret_in(make(client))
    change(client)
    assert works(secret)


@pytest.mark.parametrize(
    ("old", "new", "again", "field"),
    [
        ("wrong", NEW, None, "old_password"),
        ("", NEW, None, "old_password"),
        (PASSWORD, "short", None, "new_password2"),
        (PASSWORD, "password1234", None, "new_password2"),
        (PASSWORD, NEW, NEW + "x", "new_password2"),
        (PASSWORD, "", None, "new_password1"),
    ],
)
def test_what_is_not_right_is_named_and_changes_nothing(
    client_as: ClientAs, old: str, new: str, again: str | None, field: str
) -> None:
    answer = change(client_as("researcher"), old, new, again)
    assert answer.status_code == 422
    assert field in answer.context["form"].errors
    assert User.objects.get(username="researcher").check_password(PASSWORD)
    assert 'value="' + NEW not in answer.content.decode()


def test_the_old_password_cannot_be_guessed_through_a_stolen_session(client_as: ClientAs) -> None:
    client = client_as("researcher")
    codes = [change(client, old=f"guess {n}").status_code for n in range(5)]
    assert codes == [422, 422, 422, 422, 429]
    answer = change(client)
    assert (answer.status_code, "Retry-After" in answer) == (429, True)
    assert User.objects.get(username="researcher").check_password(PASSWORD)


def test_a_form_of_another_site_changes_no_password(people: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["researcher"])
    assert change(client).status_code == 403
    assert User.objects.get(username="researcher").check_password(PASSWORD)


def test_a_new_password_works_and_the_old_one_does_not(client_as: ClientAs) -> None:
    change(client_as("researcher"))
    assert Client().post("/sign-in/", {"username": "researcher", "password": PASSWORD}).status_code == 200
    assert Client().post("/sign-in/", {"username": "researcher", "password": NEW}).status_code == 302
