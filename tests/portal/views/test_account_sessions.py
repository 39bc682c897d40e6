"""Sessions: a new key at sign-in, limits, what ends them, and that nobody sees or ends those of others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from ledger.models import AuditEvent, User, UserSession
from ledger.sessions import SessionStore, digest_of_key
from tests.factories import PASSWORD
from tests.portal.views.conftest import ClientAs

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def signed_in(name: str = "researcher", agent: str = FIREFOX) -> Client:
    client = Client(headers={"User-Agent": agent})
    assert client.post("/sign-in/", {"username": name, "password": PASSWORD}).status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def row_of(client: Client) -> UserSession:
    return UserSession.objects.get(pk=digest_of_key(client.session.session_key or ""))


def test_signing_in_gives_a_new_key_and_kills_the_old_one(people: dict[str, User]) -> None:
    client = Client()
    planted = SessionStore()
    planted["planted"] = "by an attacker"
    planted.create()
    client.cookies["sessionid"] = planted.session_key
    client.post("/sign-in/", {"username": "researcher", "password": PASSWORD})
    assert client.cookies["sessionid"].value != planted.session_key
    attacker = Client()
    attacker.cookies["sessionid"] = planted.session_key
    assert not is_in(attacker)


def test_a_key_that_we_did_not_give_is_never_taken_over(people: dict[str, User]) -> None:
    client = Client()
    client.cookies["sessionid"] = "chosenbytheattacker0123456789abc"
    client.post("/sign-in/", {"username": "researcher", "password": PASSWORD})
    assert client.cookies["sessionid"].value != "chosenbytheattacker0123456789abc"


def test_only_digests_of_keys_are_stored(people: dict[str, User]) -> None:
    client = signed_in()
    key = client.cookies["sessionid"].value
    row = UserSession.objects.get()
    assert row.pk == digest_of_key(key) != key
    assert key not in f"{row.session_data}{row}"
    thief = Client()
    thief.cookies["sessionid"] = row.pk  # whoever reads the table has this
    assert not is_in(thief)


def test_a_session_knows_its_person_browser_and_address(people: dict[str, User]) -> None:
    row = row_of(signed_in())
    assert (row.user, row.browser, row.address) == (people["researcher"], FIREFOX, "127.0.0.1")


def test_the_list_shows_mine_and_marks_this_one(people: dict[str, User]) -> None:
    client, other = signed_in(), signed_in(agent="curl/8.5.0")
    signed_in("outsider")
    page = client.get("/account/sessions/")
    rows = page.context["t"]["rows"]
    assert {(row.browser, row.here) for _key, row in rows} == {("Firefox, Linux", True), ("curl", False)}
    text = page.content.decode()
    assert all(c.cookies["sessionid"].value not in text for c in (client, other))
    assert "outsider" not in text


def test_ending_one_signs_that_browser_out_at_its_next_request(people: dict[str, User]) -> None:
    client, other = signed_in(), signed_in()
    answer = client.post(f"/account/sessions/{row_of(other).pk}/end/")
    assert answer.status_code == 302
    assert (is_in(client), is_in(other)) == (True, False)
    event = AuditEvent.objects.get(verb="session.ended")
    assert (event.actor, event.before["browser"]) == (people["researcher"], FIREFOX)


def test_ending_all_others_leaves_this_one_and_other_people(people: dict[str, User]) -> None:
    client, others, stranger = signed_in(), [signed_in() for _n in range(3)], signed_in("outsider")
    client.post("/account/sessions/end-others/")
    assert is_in(client)
    assert is_in(stranger)
    assert not [other for other in others if is_in(other)]
    assert AuditEvent.objects.get(verb="session.ended").before == {"others": 3}
    assert client.post("/account/sessions/end-others/").status_code == 302  # none is left: nothing breaks
    assert AuditEvent.objects.filter(verb="session.ended").count() == 1


def test_ending_this_one_is_signing_out(people: dict[str, User]) -> None:
    client = signed_in()
    assert client.post(f"/account/sessions/{row_of(client).pk}/end/")["Location"] == "/sign-in/"
    assert not is_in(client)
    assert not UserSession.objects.filter(user=people["researcher"]).exists()


def test_nobody_ends_the_session_of_another(people: dict[str, User]) -> None:
    victim = signed_in()
    for name in ("outsider", "admin", "owner"):
        assert signed_in(name).post(f"/account/sessions/{row_of(victim).pk}/end/").status_code == 404
    assert is_in(victim)


@pytest.mark.parametrize("digest", ["x", "0" * 64, "%00", "a" * 5_000])
def test_ending_what_is_not_there_breaks_nothing(people: dict[str, User], digest: str) -> None:
    assert signed_in().post(f"/account/sessions/{digest}/end/").status_code == 404


def test_a_form_of_another_site_ends_nothing(people: dict[str, User]) -> None:
    other = signed_in()
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["researcher"])
    assert client.post(f"/account/sessions/{row_of(other).pk}/end/").status_code == 403
    assert client.post("/account/sessions/end-others/").status_code == 403
    assert is_in(other)


def test_a_disabled_account_is_out_at_its_next_request_and_stays_out(people: dict[str, User]) -> None:
    client = signed_in()
    User.objects.filter(username="researcher").update(is_active=False)
    assert client.get("/jobs/").status_code == 302
    assert client.get("/api/v1/jobs/").status_code == 401
    User.objects.filter(username="researcher").update(is_active=True)
    assert not is_in(client)
    assert not UserSession.objects.filter(user=people["researcher"]).exists()


def test_a_password_that_is_changed_elsewhere_ends_the_session(people: dict[str, User]) -> None:
    client = signed_in()
    person = User.objects.get(username="researcher")
    person.set_password("another long password")
    person.save(update_fields=["password"])
    assert not is_in(client)


@pytest.fixture
def clock() -> Any:
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


def test_an_idle_session_ends(people: dict[str, User], clock: Any) -> None:
    client = signed_in()
    clock.shift(dt.timedelta(minutes=119))
    assert is_in(client)
    clock.shift(dt.timedelta(minutes=119))
    assert is_in(client)  # it was used in between
    clock.shift(dt.timedelta(minutes=121))
    assert not is_in(client)


def test_a_page_that_polls_keeps_nobody_signed_in(people: dict[str, User], clock: Any) -> None:
    client = signed_in()
    for headers in ({"HX-Request": "true"}, {"Sec-Fetch-Dest": "empty"}):
        clock.shift(dt.timedelta(minutes=50))
        assert client.get("/account/", headers=headers).status_code == 200
    clock.shift(dt.timedelta(minutes=30))
    assert not is_in(client)


def test_a_busy_session_ends_after_twelve_hours(people: dict[str, User], clock: Any) -> None:
    client = signed_in()
    for _n in range(12):
        clock.shift(dt.timedelta(minutes=59))
        assert is_in(client)
    clock.shift(dt.timedelta(minutes=15))
    assert not is_in(client)


def test_signing_in_starts_the_hours_anew(people: dict[str, User], clock: Any) -> None:
    client = signed_in()
    clock.shift(dt.timedelta(minutes=100))
    client.post("/sign-out/")
    client.post("/sign-in/", {"username": "researcher", "password": PASSWORD})
    assert row_of(client).started_at == timezone.now().replace(microsecond=0)


def test_use_is_noted_once_a_minute(people: dict[str, User], clock: Any, django_assert_num_queries: Any) -> None:
    client = signed_in()
    seen = row_of(client).seen_at
    clock.shift(dt.timedelta(seconds=50))
    client.get("/account/")
    assert row_of(client).seen_at == seen
    clock.shift(dt.timedelta(seconds=20))
    client.get("/account/")
    assert row_of(client).seen_at == seen + dt.timedelta(seconds=70)


def test_noting_use_does_not_bring_back_a_session_that_was_ended(people: dict[str, User], clock: Any) -> None:
    client = signed_in()
    store = SessionStore(client.cookies["sessionid"].value)
    assert store["started"]
    UserSession.objects.all().delete()
    clock.shift(dt.timedelta(minutes=5))
    store.note_use()
    assert not UserSession.objects.exists()


def test_sessions_that_have_ended_are_taken_away_at_a_sign_in(people: dict[str, User], clock: Any) -> None:
    signed_in()
    clock.shift(dt.timedelta(days=1))
    client = signed_in("member")
    assert list(UserSession.objects.values_list("user", flat=True)) == [people["member"].pk]
    assert is_in(client)


def test_pages_cost_no_query_more_with_many_sessions(
    people: dict[str, User], client_as: ClientAs, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    client = client_as("researcher")
    now = timezone.now()
    UserSession.objects.bulk_create(
        UserSession(
            session_key=f"{n:064x}",
            session_data="",
            expire_date=now + dt.timedelta(hours=1),
            user=people["researcher"] if n % 2 else people["member"],
            started_at=now,
            seen_at=now - dt.timedelta(seconds=n),
            browser="<b>\u202e" + "x" * 190,
            address="2001:db8::1",
        )
        for n in range(10_000)
    )
    with django_assert_max_num_queries(4):  # session, person, how many, one page
        page = client.get("/account/sessions/?page=3&sort=seen")
    assert len(page.context["t"]["rows"]) == 50
    assert "<b>" not in page.content.decode()
    with django_assert_max_num_queries(8):
        assert client.get("/account/").context["session_count"] == 5_001


def test_the_list_is_exported(people: dict[str, User]) -> None:
    client = signed_in()
    text = b"".join(client.get("/account/sessions/?export=csv").streaming_content).decode()  # type: ignore[attr-defined]
    assert "Firefox, Linux" in text
    assert client.cookies["sessionid"].value not in text


# -- a form that is sent after the session has ended ------------------------------------------------------------------


def test_a_form_sent_too_late_is_kept_for_the_sign_in(people: dict[str, User]) -> None:
    client = Client()
    typed = {"name": "long work", "command": "a\nb <&\"'>", "password": "never kept"}
    answer = client.post("/jobs/new/", typed)
    assert answer["Location"] == "/sign-in/?next=/jobs/new/"
    page = client.post("/sign-in/", {"username": "researcher", "password": PASSWORD, "next": "/jobs/new/"})
    assert (page.status_code, page.context["target"]) == (200, "/jobs/new/")
    assert dict(page.context["kept"]) == {"name": "long work", "command": "a\nb <&\"'>"}
    assert "a\nb &lt;&amp;&quot;&#x27;&gt;" in page.content.decode()
    assert client.get("/account/").status_code == 200
    assert "kept_form" not in client.session  # once


def test_a_kept_form_is_given_for_its_own_address_alone(people: dict[str, User]) -> None:
    client = Client()
    client.post("/jobs/new/", {"name": "x"})
    answer = client.post("/sign-in/", {"username": "researcher", "password": PASSWORD, "next": "/jobs/"})
    assert answer["Location"] == "/jobs/"
    assert "kept_form" not in client.session


def test_a_kept_form_is_forgotten_after_half_an_hour(people: dict[str, User], clock: Any) -> None:
    client = Client()
    client.post("/jobs/new/", {"name": "x"})
    clock.shift(dt.timedelta(minutes=31))
    answer = client.post("/sign-in/", {"username": "researcher", "password": PASSWORD, "next": "/jobs/new/"})
    assert answer["Location"] == "/jobs/new/"


def test_a_huge_or_foreign_form_is_not_kept(people: dict[str, User]) -> None:
    Client().post("/jobs/new/", {"name": "x" * 70_000})
    assert Client(enforce_csrf_checks=True).post("/jobs/new/", {"name": "x"}).status_code == 403
    Client().post("/sign-in/", {"username": "researcher", "password": "wrong", "next": "/jobs/new/"})
    assert not UserSession.objects.exists()
