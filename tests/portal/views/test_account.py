"""What people choose for themselves: language, theme, time zone."""

from __future__ import annotations

import pytest
from django.test import Client

from ledger.models import User
from tests.portal.views.conftest import ClientAs

CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9"}


def test_the_sign_in_page_speaks_the_language_of_the_browser(client: Client, db: None) -> None:
    assert "登录" in client.get("/sign-in/", headers=CHINESE).content.decode()
    assert "Sign in" in client.get("/sign-in/", headers={"Accept-Language": "de"}).content.decode()


def test_the_language_is_kept_with_the_account(client_as: ClientAs, people: dict[str, User]) -> None:
    client = client_as("researcher")
    response = client.post("/account/language/", {"language": "zh-hans", "next": "/jobs/"})
    people["researcher"].refresh_from_db()
    assert (response["Location"], people["researcher"].locale) == ("/jobs/", "zh-hans")
    assert "任务" in client.get("/jobs/").content.decode()
    client.post("/account/language/", {"language": "en", "next": "/"})
    assert "Submit a job" in client.get("/jobs/", headers=CHINESE).content.decode()


def test_a_language_that_is_not_there_changes_nothing(client_as: ClientAs, people: dict[str, User]) -> None:
    client_as("researcher").post("/account/language/", {"language": "xx", "next": "/"})
    people["researcher"].refresh_from_db()
    assert people["researcher"].locale == "en"


@pytest.mark.parametrize(("theme", "kept"), [("dark", "dark"), ("light", "light"), ("auto", "auto"), ("pink", "auto")])
def test_the_theme_is_kept_with_the_account(
    client_as: ClientAs, people: dict[str, User], theme: str, kept: str
) -> None:
    client = client_as("researcher")
    assert client.post("/account/theme/", {"theme": theme, "next": "/nodes/"})["Location"] == "/nodes/"
    assert f'data-theme="{kept}"' in client.get("/").content.decode()


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", ""])
def test_switches_never_lead_to_another_site(client_as: ClientAs, target: str) -> None:
    client = client_as("researcher")
    assert client.post("/account/theme/", {"theme": "dark", "next": target})["Location"] == "/"
    assert client.post("/account/language/", {"language": "en", "next": target})["Location"] == "/"


def test_the_account_page_keeps_all_three(client_as: ClientAs, people: dict[str, User]) -> None:
    chosen = {"locale": "zh-hans", "theme": "dark", "time_zone": "Asia/Shanghai"}
    client = client_as("researcher")
    assert client.post("/account/", chosen).status_code == 302
    person = User.objects.get(username="researcher")
    assert {name: getattr(person, name) for name in chosen} == chosen
    assert "Asia/Shanghai" in client.get("/").content.decode()


@pytest.mark.parametrize("field", ["locale", "theme", "time_zone"])
def test_the_account_page_refuses_what_is_not_offered(client_as: ClientAs, field: str) -> None:
    chosen = {"locale": "en", "theme": "light", "time_zone": "UTC"} | {field: "Mars/Olympus\x00"}
    assert client_as("researcher").post("/account/", chosen).context["form"].errors.keys() == {field}


def test_nobody_raises_their_own_role_through_the_account_page(client_as: ClientAs) -> None:
    chosen = {"locale": "en", "theme": "light", "time_zone": "UTC", "site_role": "admin", "is_superuser": "on"}
    client_as("researcher").post("/account/", chosen)
    person = User.objects.get(username="researcher")
    assert (person.site_role, person.is_superuser) == ("researcher", False)
