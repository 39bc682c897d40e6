"""The account pages in a browser: a token is made and copied, sudo asks and goes on, the door closes after guessing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from ledger.models import ApiToken, User, UserSession
from tests.factories import PASSWORD

pytestmark = pytest.mark.browser
THEMES = ("light", "dark")


def sign_in(page: Any, address: str, password: str = PASSWORD) -> None:
    page.goto(f"{address}/sign-in/")
    page.fill("#id_username", "researcher")
    page.fill("#id_password", password)
    page.click("button.w-100")


def without_proof(page: Any) -> None:
    """As if the sign-in were long ago."""
    from ledger.sessions import STARTED, SessionStore

    key = next(c["value"] for c in page.context.cookies() if c["name"] == "sessionid")
    store = SessionStore(key)
    store[STARTED] -= 3600
    store.pop("proved", None)
    store.save()


def violations(page: Any) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{page.url} {v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]


def test_a_token_is_made_after_the_password_was_asked_again(
    page: Any, live_server: Any, people: dict[str, User]
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    sign_in(page, live_server.url)
    without_proof(page)
    page.goto(f"{live_server.url}/account/tokens/")
    page.fill("#id_label", 'night "runs" & more')
    page.fill("#id_days", "7")
    page.click("text=Make the token")
    assert "Confirm that it is you" in page.inner_text("main")
    page.fill("#id_sudo_password", "wrong")
    page.press("#id_sudo_password", "Enter")
    assert "not your password" in page.inner_text("main")
    page.fill("#id_sudo_password", PASSWORD)
    page.press("#id_sudo_password", "Enter")
    secret = page.inner_text("#secret")
    assert re.fullmatch(r"gpc_[\w-]{43}", secret)
    assert ApiToken.objects.get().label == 'night "runs" & more'
    page.click("[data-copy]")
    page.wait_for_selector("[data-copy].done")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    page.click("td button.btn-outline-danger")
    page.wait_for_selector("text=The token is revoked")


def test_another_session_is_ended_by_hand(page: Any, live_server: Any, people: dict[str, User]) -> None:
    sign_in(page, live_server.url)
    other = page.context.browser.new_context()
    window = other.new_page()
    sign_in(window, live_server.url)
    page.goto(f"{live_server.url}/account/")
    page.click("text=End all others")
    page.wait_for_selector("text=1 other session is ended.")
    window.goto(f"{live_server.url}/jobs/")
    assert "/sign-in/" in window.url
    other.close()
    assert UserSession.objects.filter(user=people["researcher"]).count() == 1


def test_guessing_ends_at_a_page_that_says_how_long(page: Any, live_server: Any, people: dict[str, User]) -> None:
    for n in range(5):
        sign_in(page, live_server.url, f"guess {n}")
    assert "Try again in 15 minutes" in page.inner_text("main")
    assert violations(page) == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1440, 390])
def test_the_pages_are_accessible_and_fit(
    page: Any, live_server: Any, people: dict[str, User], theme: str, width: int
) -> None:
    User.objects.filter(username="researcher").update(theme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    sign_in(page, live_server.url)
    page.goto(f"{live_server.url}/account/tokens/")
    page.fill("#id_label", "x" * 100)
    page.click("text=Make the token")
    found = violations(page)
    for path in ("/account/", "/account/sessions/", "/account/tokens/", "/account/password/"):
        page.goto(live_server.url + path)
        found += violations(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    without_proof(page)
    page.goto(f"{live_server.url}/account/tokens/")
    page.fill("#id_label", "another")
    page.click("text=Make the token")
    assert found + violations(page) == []
