"""Guessing passwords: the door closes for an account from one address, and for an address that tries many accounts."""

from __future__ import annotations

import datetime as dt
import statistics
import time
from typing import Any

import pytest
import time_machine
from axes.models import AccessAttempt
from django.contrib.auth import get_user_model
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from ledger.models import AuditEvent, User
from tests.factories import PASSWORD

CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9"}
WRONG = "canary wrong password"


def sign_in(name: str, password: str = WRONG, address: str = "192.0.2.7", **headers: str) -> Any:
    return Client().post(
        "/sign-in/", {"username": name, "password": password}, REMOTE_ADDR=address, headers=headers or None
    )


def fail(times: int, name: str = "researcher", address: str = "192.0.2.7") -> HttpResponse:
    for _n in range(times):
        answer = sign_in(name, address=address)
    return answer  # type: ignore[no-any-return]


def test_five_failures_close_the_door_and_tell_how_long(people: dict[str, User]) -> None:
    assert fail(4).status_code == 200
    closed = sign_in("researcher")
    assert closed.status_code == 429
    assert 0 < int(closed["Retry-After"]) <= 900
    assert "Try again in 15 minutes" in closed.content.decode()
    assert closed["Cache-Control"] == "no-store"


def test_the_wait_is_told_in_both_languages(people: dict[str, User]) -> None:
    fail(5)
    told = Client().post(
        "/sign-in/", {"username": "researcher", "password": "x"}, REMOTE_ADDR="192.0.2.7", headers=CHINESE
    )
    assert told.status_code == 429
    assert "15 分钟" in told.content.decode()


def test_the_right_password_does_not_open_a_closed_door(people: dict[str, User]) -> None:
    fail(5)
    assert sign_in("researcher", PASSWORD).status_code == 429
    assert sign_in("member", PASSWORD).status_code == 302  # the others of that address get in
    assert sign_in("researcher", PASSWORD, address="192.0.2.8").status_code == 302  # and so does the owner, elsewhere


def test_the_door_opens_after_the_wait_and_trying_does_not_prolong_it(people: dict[str, User]) -> None:
    start = timezone.now()
    with time_machine.travel(start, tick=False) as clock:
        fail(5)
        for minute in (5, 10, 14):
            clock.move_to(start + dt.timedelta(minutes=minute))
            answer = sign_in("researcher", PASSWORD)
            assert int(answer["Retry-After"]) == (15 - minute) * 60
        clock.move_to(start + dt.timedelta(minutes=15, seconds=1))
        assert sign_in("researcher", PASSWORD).status_code == 302


def test_signing_in_forgets_the_failures_before(people: dict[str, User]) -> None:
    fail(4)
    assert sign_in("researcher", PASSWORD).status_code == 302
    assert fail(4).status_code == 200


def test_one_address_cannot_try_many_accounts(people: dict[str, User], settings: Any) -> None:
    settings.SIGN_IN_ADDRESS_LIMIT = 12
    codes = [sign_in(f"person-{n}").status_code for n in range(14)]
    assert codes == [200] * 11 + [429] * 3
    assert sign_in("member", PASSWORD).status_code == 429
    assert sign_in("member", PASSWORD, address="192.0.2.9").status_code == 302


def test_an_account_of_ones_own_does_not_reset_the_count_of_the_address(people: dict[str, User], settings: Any) -> None:
    settings.SIGN_IN_ADDRESS_LIMIT = 6
    for n in range(5):
        sign_in(f"person-{n}")
        assert sign_in("outsider", PASSWORD).status_code == 302
    assert sign_in("person-6").status_code == 429


def test_another_browser_name_is_no_other_caller(people: dict[str, User]) -> None:
    codes = [sign_in("researcher", **{"User-Agent": f"browser {n}"}).status_code for n in range(6)]
    assert codes == [200, 200, 200, 200, 429, 429]


def test_addresses_of_one_ipv6_network_count_as_one(people: dict[str, User]) -> None:
    codes = [sign_in("researcher", address=f"2001:db8::{n:x}").status_code for n in range(6)]
    assert codes == [200, 200, 200, 200, 429, 429]


def test_a_forwarded_header_is_believed_only_behind_a_proxy(people: dict[str, User], settings: Any) -> None:
    codes = [sign_in("researcher", **{"X-Forwarded-For": f"198.51.100.{n}"}).status_code for n in range(5)]
    assert codes[-1] == 429  # it was invented
    settings.PROXIES = 1
    spoofed = {"X-Forwarded-For": "203.0.113.1, 198.51.100.77"}  # ours wrote the last one
    assert [sign_in("member", **spoofed).status_code for _n in range(5)][-1] == 429
    assert AccessAttempt.objects.get(username="member").ip_address == "198.51.100.77"


def test_a_name_that_nobody_has_is_told_the_same(people: dict[str, User]) -> None:
    def texts(name: str) -> list[str]:
        pages = [sign_in(name) for _n in range(6)]
        bodies = [page.content.decode().replace(name, "NAME") for page in pages]
        return [f"{page.status_code} {without_tokens(body)}" for page, body in zip(pages, bodies, strict=True)]

    start = timezone.now()
    with time_machine.travel(start, tick=False):
        known, unknown = texts("researcher"), texts("nobody-here")
    assert known == unknown


def without_tokens(page: str) -> str:
    return "\n".join(line for line in page.splitlines() if "csrfmiddlewaretoken" not in line)


def test_a_disabled_account_is_told_the_same(people: dict[str, User]) -> None:
    User.objects.filter(username="member").update(is_active=False)
    disabled, wrong = sign_in("member", PASSWORD), sign_in("researcher")
    assert disabled.status_code == 200
    assert disabled.context["form"].errors == wrong.context["form"].errors


def test_a_name_that_nobody_has_takes_about_as_long(people: dict[str, User], settings: Any) -> None:
    """With the hasher of an installation: without one the hash is too short to be seen."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    settings.SIGN_IN_LIMIT = settings.AXES_FAILURE_LIMIT = 100
    person = get_user_model().objects.get(username="researcher")
    person.set_password(PASSWORD)
    person.save(update_fields=["password"])
    times: dict[str, list[float]] = {"researcher": [], "nobody-here": []}
    for _n in range(3):
        for name, found in times.items():
            start = time.process_time()
            sign_in(name)
            found.append(time.process_time() - start)
    known, unknown = (statistics.median(found) for found in times.values())
    assert 0.5 < known / unknown < 2


def test_closing_the_door_is_audited_once(people: dict[str, User]) -> None:
    fail(8)
    event = AuditEvent.objects.get(verb="signin.locked")
    assert (event.target_type, event.target_id) == ("user", str(people["researcher"].pk))
    assert event.after == {"user": "researcher", "address": "192.0.2.7", "failures": 5}


def test_what_was_typed_is_stored_nowhere(people: dict[str, User]) -> None:
    for _n in range(5):
        sign_in("my secret in the wrong field")
    assert AuditEvent.objects.get(verb="signin.locked").after["user"] is None
    attempt = AccessAttempt.objects.get()
    assert (attempt.get_data + attempt.post_data).strip("-\n") == ""  # only the lines that axes puts between


def test_signing_in_is_audited_with_where_from(people: dict[str, User]) -> None:
    sign_in("researcher", PASSWORD, **{"User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"})
    event = AuditEvent.objects.get(verb="session.started")
    assert (event.actor, event.after["address"]) == (people["researcher"], "192.0.2.7")


@pytest.mark.parametrize(
    "name", ["\x00", "a" * 10_000, "<script>alert(1)</script>", "\u202eresu", "ｒｅｓｅａｒｃｈｅｒ"]
)
def test_impossible_names_break_nothing(people: dict[str, User], name: str) -> None:
    answer = sign_in(name)
    assert answer.status_code == 200
    assert "<script>alert" not in answer.content.decode()


@pytest.mark.parametrize("limit", [1, 3])
def test_the_limit_is_a_setting(people: dict[str, User], settings: Any, limit: int) -> None:
    settings.SIGN_IN_LIMIT = settings.AXES_FAILURE_LIMIT = limit
    assert [sign_in("researcher").status_code for _n in range(limit)] == [200] * (limit - 1) + [429]
