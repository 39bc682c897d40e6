"""The fleet map in a real browser: drawn from one answer, moved over by keyboard, told in words, coloured by choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from ledger import fleet
from ledger.fleet_file import Fleet, FleetNode
from ledger.models import User
from scheduler import snapshot
from tests import factories

pytestmark = pytest.mark.browser
MAP = "/ops/map/?hardware=simulated"
SLOWEST_FRAME_MS = 250  # on a shared machine; a page of DOM nodes takes seconds


@pytest.fixture
def as_researcher(page: Any, live_server: Any, people: dict[str, User]) -> Iterator[Callable[[str], None]]:
    """Opens an address as the researcher and waits until the map is drawn."""
    client = Client()
    client.force_login(people["researcher"])
    name = settings.SESSION_COOKIE_NAME
    page.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])

    def show(path: str) -> None:
        page.goto(live_server.url + path)
        page.wait_for_selector("#map-view[data-drawn]")

    yield show
    page.goto("about:blank")  # its next request would find the database gone


def said(page: Any) -> str:
    return str(page.inner_text("#map-facts"))


def test_the_map_is_told_in_words_and_opens_the_node(
    page: Any, live_server: Any, as_researcher: Callable[[str], None], turn: Callable[[], None]
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000, rack="r1")
    factories.node("n2", cards=2, rack="r2", model="<b>H100</b>")
    factories.node("bare", cards=0)
    ask = {"form": "container", "memory_mib": 1024, "model": "A100"}
    factories.job(name="steady", asks=[ask], command=["simulate", "--seconds", "3600"])
    turn()
    as_researcher(MAP)
    assert page.inner_text("#map-count") == "cards: 4, nodes: 2; nodes without cards, not drawn: 1"
    assert "partly given out" in page.inner_text("#map-legend")

    page.focus("#map-view")
    page.keyboard.press("Home")
    assert "n1 · up" in said(page)
    assert "1 GiB" in said(page)
    assert "vision" in said(page)
    assert "n1" in page.inner_text("#map-said")
    page.keyboard.press("ArrowRight")
    assert "slot 1" in said(page)
    page.keyboard.press("End")
    assert "n2 · up" in said(page)
    assert "<b>H100</b>" in said(page)  # as text
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_server.url}/nodes/n2/")


def test_colours_legend_and_address_follow_the_choice(
    page: Any, as_researcher: Callable[[str], None], turn: Callable[[], None]
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000, rack="r1")
    as_researcher(f"{MAP}&show=7")
    pressed = page.locator(".map-class[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["free\n2"]
    for name in ("form", "owner", "temperature", "given", "memory", "faults"):
        page.select_option("[name=colour]", name)
        page.wait_for_selector(f"#map-view[data-drawn={name}]")
        assert f"colour={name}" in page.url
        assert "show=" not in page.url
        assert pressed.count() == 0
    page.select_option("[name=rack]", label="r1")
    page.wait_for_url("**rack=**")
    page.wait_for_selector("#map-view[data-drawn]")


def test_pointing_at_a_card_tells_of_it(page: Any, as_researcher: Callable[[str], None]) -> None:
    factories.node("n1", cards=8, rack="r1")
    as_researcher(MAP)
    page.hover("#map-view", position={"x": 40, "y": 28})
    assert "slot 1" in said(page)
    assert page.evaluate("document.getElementById('map-view').clientHeight") == 160  # few cards, a low map
    page.hover("#map-view", position={"x": 5, "y": 120})
    page.click("#map-view", position={"x": 8, "y": 28})
    assert "slot 0" in said(page)
    assert page.get_attribute("#map-open a", "href") == "/nodes/n1/"


@pytest.mark.slow
def test_ten_thousand_cards_stay_fluid(page: Any, as_researcher: Callable[[str], None]) -> None:
    factories.zone()
    nodes = [
        FleetNode(
            line=n,
            hostname=f"node-{n:04d}",
            rack=f"rack-{n // 8:03d}",
            cards=8,
            model="A100",
            card_memory_mib=80_000,
            cpu_milli=64_000,
            host_memory_mib=256_000,
            simulated=True,
        )
        for n in range(1_250)
    ]
    fleet.apply(Fleet(nodes=nodes), actor=None, via="test")
    snapshot.forget()
    as_researcher(MAP)
    assert page.evaluate("document.querySelectorAll('#map-view *').length") == 2  # the room and its canvas
    longest = page.evaluate(
        """async () => {
          const view = document.getElementById("map-view");
          let longest = 0;
          for (let at = 0; at < 40; at += 1) {
            const from = performance.now();
            view.scrollTop = (at % 2 ? 1 : 0) * view.scrollHeight + at * 20;
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            longest = Math.max(longest, performance.now() - from);
          }
          return longest;
        }"""
    )
    assert longest < SLOWEST_FRAME_MS
    page.focus("#map-view")
    page.keyboard.press("End")
    assert "node-1249" in said(page)
