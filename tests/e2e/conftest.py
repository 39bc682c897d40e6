"""Chromium on pages of a live server in this process; the scheduler is turned by hand, so nothing depends on time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger.models import User
from portal.management.commands import screenshots
from scheduler import commands, observing, placing, snapshot
from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from tests import factories

OPTIONS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
COMPLAINTS = (
    "window.complaints = [];"
    "document.addEventListener('securitypolicyviolation',"
    " (e) => window.complaints.push(e.violatedDirective + ' ' + e.blockedURI));"
)


def chromium_path() -> str:
    return screenshots.chromium() or pytest.skip("no chromium on this machine: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(django_db_setup: None) -> Iterator[Any]:
    """Debian's Chromium through playwright. Its event loop runs in this thread, which Django would refuse; both end
    with the module, so that no other test is touched."""
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        chromium = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, transactional_db: None) -> Iterator[Any]:
    """A fresh browser window; the test fails when its pages threw an error or broke their policy."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    context.add_init_script(COMPLAINTS)
    window = context.new_page()
    troubles: list[str] = []
    window.on("pageerror", lambda error: troubles.append(str(error)))
    window.on("console", lambda line: troubles.append(line.text) if "Content Security Policy" in line.text else None)
    yield window
    troubles += window.evaluate("window.complaints")
    context.close()
    assert troubles == []


@pytest.fixture
def people(transactional_db: None, settings: Any) -> Iterator[dict[str, User]]:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    snapshot.forget()
    yield factories.cast()
    snapshot.forget()


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.setattr(driver("simulated"), "world", World(start_delay_s=(0.0, 0.0)))

    def run() -> None:
        placing.place_queued()
        commands.run_due()
        observing.observe_all()

    return run
