"""Pictures of every page, light and dark, English and Chinese, wide and narrow, from the portal that runs here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from http import HTTPStatus
from itertools import product
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.test import Client

from ledger.models import User
from portal.sample_pages import sample_addresses

WIDTHS: Final = (1440, 390)
THEMES: Final = ("light", "dark")
LOCALES: Final = ("en", "zh-hans")


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
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        if path is None:
            raise CommandError("there is no chromium on this machine: apt-get install chromium")
        addresses = [a for a in sample_addresses(user) if options["only"] in a]
        client = Client()
        client.force_login(user)  # a session as signing in makes it
        before, key = (user.locale, user.theme), str(client.cookies[settings.SESSION_COOKIE_NAME].value)
        options["folder"].mkdir(parents=True, exist_ok=True)
        jobs, done = list(_shots(addresses)), 0
        try:
            for locale, theme in product(LOCALES, THEMES):
                User.objects.filter(pk=user.pk).update(locale=locale, theme=theme)
                with sync_playwright() as playwright:  # inside it the database is out of reach
                    browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--no-first-run"])
                    for address, width, name in jobs:
                        file = options["folder"] / f"{name}-{locale}-{theme}-{width}.png"
                        done += _shoot(browser, options["url"] + address, key, locale, width, file)
                    browser.close()
        except Error as error:
            raise CommandError(str(error).splitlines()[0]) from None
        finally:
            User.objects.filter(pk=user.pk).update(locale=before[0], theme=before[1])
            client.logout()
        self.stdout.write(f"{done} pictures in {options['folder']}")


def _shots(addresses: list[str]) -> Iterator[tuple[str, int, str]]:
    for address in addresses:
        name = re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-") or "home"
        for width in WIDTHS:
            yield address, width, name[:60]


def _shoot(browser: Any, address: str, key: str, locale: str, width: int, file: Path) -> bool:
    context = browser.new_context(viewport={"width": width, "height": 900}, locale=locale)
    context.add_cookies(
        [
            {"name": settings.SESSION_COOKIE_NAME, "value": key, "url": address},
            {"name": settings.LANGUAGE_COOKIE_NAME, "value": locale, "url": address},
        ]
    )
    page = context.new_page()
    answer = context.request.get(address)
    if answer.status == HTTPStatus.METHOD_NOT_ALLOWED or not answer.text().lstrip().lower().startswith(
        "<!doctype html"
    ):
        context.close()  # for POST alone, a part of a page, data or a file
        return False
    page.goto(address)
    page.wait_for_timeout(700)  # parts that the page loads by itself
    page.screenshot(path=str(file), full_page=True)
    context.close()
    return True
