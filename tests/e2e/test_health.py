"""The health board and the history of a card in a real browser: what changes comes by itself and takes nothing from under
a reader's hands; figures are drawn; nothing that axe finds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client

from ledger.clock import database_now
from ledger.models import Card, CardStatus, Fault, User
from tests import factories, sampled

pytestmark = pytest.mark.browser
HIDDEN = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => %s })"
LOOK = "htmx.trigger(document.getElementById('board'), 'look')"
ALONE = {"resultTypes": ["violations"]}


@pytest.fixture
def show(page: Any, live_server: Any, people: dict[str, User]) -> Iterator[Callable[[str], None]]:
    """Opens an address as the operator, on a fleet of two racks that reports."""
    for n in range(2):
        factories.node(f"n{n}", cards=4, simulated=False, rack=f"r{n}")
    sampled.fill(hours=2, cards=2)
    first, now = Card.objects.order_by("pk")[0], database_now()
    about = {"kind": "xid", "code": 48, "count": 3, "first_seen": now - dt.timedelta(hours=1), "last_seen": now}
    Fault.objects.create(node=first.seats.get().node, card=first, **about)
    client = Client()
    client.force_login(people["operator"])
    name = settings.SESSION_COOKIE_NAME
    page.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
    yield lambda path: page.goto(live_server.url + path)
    page.goto("about:blank")  # its next request would find the database gone


def violations(page: Any) -> list[str]:
    return [rule["id"] for rule in Axe().run(page, options=ALONE).response["violations"]]


def test_the_board_comes_anew_without_taking_focus_or_what_is_open(page: Any, show: Callable[[str], None]) -> None:
    show("/health/?sort=card")
    page.wait_for_selector("#map-view[data-drawn=health]")
    page.click("#health-racks > summary")
    page.focus("#board tbody tr:nth-child(3) a")
    held = page.evaluate("document.activeElement.getAttribute('href')")
    page.evaluate("document.querySelector('#board .table-responsive').scrollLeft = 40")
    CardStatus.objects.update(temperature_c=77, received_at=database_now())
    page.evaluate(LOOK)
    page.wait_for_selector("#health-summary >> text=77 °C")
    page.wait_for_selector("#board :focus")
    assert page.evaluate("document.activeElement.getAttribute('href')") == held
    assert page.evaluate("document.getElementById('health-racks').open")
    assert "77" in page.inner_text("#health-racks tbody tr")
    assert violations(page) == []


def test_nothing_is_asked_for_while_nobody_looks(page: Any, show: Callable[[str], None]) -> None:
    show("/health/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/health/part/" in request.url else None)
    page.evaluate(HIDDEN % "true")
    page.evaluate(LOOK)
    page.wait_for_timeout(300)
    assert asked == []
    page.evaluate(HIDDEN % "false")
    with page.expect_response("**/health/part/**"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_history_of_a_card_is_drawn_and_its_window_chosen(page: Any, show: Callable[[str], None]) -> None:
    show("/cards/n0-card-0/")
    page.wait_for_selector("#history .chart[data-drawn]")
    assert page.locator("#history .chart .scatterlayer .trace").count() >= 6
    page.click("#history-numbers > summary")
    assert page.locator("#history-numbers tbody tr").count() > 100
    page.click("#history button:has-text('7 days')")
    page.wait_for_selector("#history button.active:has-text('7 days')")
    page.wait_for_selector("#history .chart[data-drawn]")
    assert violations(page) == []
