"""Pictures of every page, light and dark, English and Chinese, wide and narrow, from the portal that runs here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.test import Client

from ledger.models import User
from portal.sample_pages import sample_addresses

WIDTHS: Final = (1440, 390)
THEMES: Final = ("light", "dark")
LOCALES: Final = ("en", "zh-hans")
LOADING_MS: Final = 700  # until a page has begun to load its parts
PATIENCE_MS: Final = 10_000
SIGN_IN: Final = "/sign-in/"
NOWHERE: Final = "/jobs/999999999/"


class Command(BaseCommand):
    help = "Write FOLDER/<page>-<locale>-<theme>-<width>.png for every page, as USER sees it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the portal answers")
        parser.add_argument("--user", default="admin")
        parser.add_argument("--only", default="", help="only pages whose address contains this")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"there is no user {options['user']!r}")
        try:
            from playwright.sync_api import Error, sync_playwright
        except ImportError:
            raise CommandError("playwright is not installed; `manage.py test` installs what tests need") from None
        path = chromium()
        if path is None:
            raise CommandError("there is no chromium on this machine: apt-get install chromium")
        client = Client()
        client.force_login(user)  # a session as signing in makes it
        wanted = [a for a in sample_addresses(user) if options["only"] in a]
        addresses = [a for a in wanted if _is_page(client, a, options["url"])]
        before, key = (user.locale, user.theme), str(client.cookies[settings.SESSION_COOKIE_NAME].value)
        options["folder"].mkdir(parents=True, exist_ok=True)
        done = 0
        try:
            for locale, theme in product(LOCALES, THEMES):
                User.objects.filter(pk=user.pk).update(locale=locale, theme=theme)
                with sync_playwright() as playwright:  # inside it the database is out of reach
                    browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--no-first-run"])
                    for width in WIDTHS:
                        tail = f"{locale}-{theme}-{width}.png"
                        with _window(browser, options["url"], key, locale, theme, width) as page:
                            for address in addresses:
                                _shoot(page, options["url"] + address, options["folder"] / f"{_name(address)}-{tail}")
                            _shoot(page, options["url"] + NOWHERE, options["folder"] / f"not-found-{tail}")
                        with _window(browser, options["url"], "", locale, theme, width) as page:  # nobody signed in
                            _shoot(page, options["url"] + SIGN_IN, options["folder"] / f"sign-in-{tail}")
                        done += len(addresses) + 2
                    self.stderr.write(f"{done} pictures …")
                    browser.close()
        except Error as error:
            raise CommandError(str(error).splitlines()[0]) from None
        finally:
            User.objects.filter(pk=user.pk).update(locale=before[0], theme=before[1])
            client.logout()
        self.stdout.write(f"{done} pictures in {options['folder']}")


def _is_page(client: Client, address: str, origin: str) -> bool:
    """Not for POST alone, nor a redirect, a part of a page, data or a file."""
    answer = client.get(address, headers={"host": urlsplit(origin).netloc})
    if answer.status_code != HTTPStatus.OK or answer.streaming:
        return False
    return bool(answer.content.lstrip()[:15].lower().startswith(b"<!doctype html"))


def _name(address: str) -> str:
    return (re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-") or "home")[:60]


@contextmanager
def _window(browser: Any, origin: str, key: str, locale: str, theme: str, width: int) -> Iterator[Any]:
    """A browser window with the session of this key, or of nobody."""
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, locale=locale, color_scheme=theme)
    cookies = {settings.LANGUAGE_COOKIE_NAME: locale} | ({settings.SESSION_COOKIE_NAME: key} if key else {})
    context.add_cookies([{"name": name, "value": value, "url": origin} for name, value in cookies.items()])
    yield context.new_page()
    context.close()


def chromium() -> str | None:
    """Where Debian's Chromium is, best the one without windows; None when it is not installed."""
    found = map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))
    return next(filter(None, found), None)


def settle(page: Any, loading_ms: int) -> None:
    """Wait for the parts that the page loads by itself. No text is run as code: the pages' own policy forbids it."""
    page.wait_for_timeout(loading_ms)
    page.wait_for_selector(".htmx-request:not([hidden])", state="detached", timeout=PATIENCE_MS)


def _shoot(page: Any, address: str, file: Path) -> None:
    page.goto(address)
    settle(page, LOADING_MS)
    page.screenshot(path=str(file), full_page=True)
