"""`manage.py screenshots` on a live server: a picture of each page in each look, with what the page loads by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command

from ledger.models import User
from portal.management.commands import screenshots
from portal.management.commands.screenshots import settle
from tests import factories
from tests.e2e.conftest import chromium_path

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PNG, WIDTH_AT = b"\x89PNG", slice(16, 20)


@pytest.fixture
def people(settings: Any) -> dict[str, User]:
    chromium_path()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return factories.cast()


def test_each_page_in_each_look(
    live_server: Any, people: dict[str, User], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screenshots, "LOADING_MS", 100)  # these pages load nothing more
    call_command("screenshots", tmp_path, url=live_server.url, user="admin", only="/help/")
    pages = {"help", "help-researcher", "not-found", "sign-in"}
    looks = {f"{locale}-{theme}" for locale in ("en", "zh-hans") for theme in ("light", "dark")}
    wanted = {f"{page}-{look}-{width}.png" for page in pages for look in looks for width in (1440, 390)}
    pictures = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(pictures) == wanted
    assert all(data.startswith(PNG) for data in pictures.values())
    for name, data in pictures.items():  # no page is wider than its window
        assert f"-{int.from_bytes(data[WIDTH_AT])}.png" in name
    assert pictures["help-en-light-1440.png"] != pictures["help-en-dark-1440.png"]
    assert pictures["help-en-light-1440.png"] != pictures["help-zh-hans-light-1440.png"]
    assert pictures["sign-in-en-light-1440.png"] != pictures["help-en-light-1440.png"]
    admin = User.objects.get(username="admin")
    assert (admin.locale, admin.theme) == (people["admin"].locale, people["admin"].theme)
    assert not Session.objects.exists()  # its session is ended


def test_a_part_that_is_slow_is_waited_for(live_server: Any, people: dict[str, User], page: Any) -> None:
    page.goto(f"{live_server.url}/sign-in/")
    page.evaluate(
        "() => { document.body.className = 'htmx-request'; setTimeout(() => document.body.className = '', 1500) }"
    )
    settle(page, 0)
    assert page.locator(".htmx-request").count() == 0


def test_an_unknown_person_is_refused(people: dict[str, User], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no user 'nobody'"):
        call_command("screenshots", tmp_path, user="nobody")
