"""The heat map of the books in a real browser: drawn under the strict policy, in the colours of the theme, and each
spot leads to its ledger lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from ledger.models import User
from tests import factories
from tests.e2e.test_journey import sign_in

pytestmark = pytest.mark.browser
BOX = ".chart[data-figure=hours-figure]"
MIDDLE = """(at) => {
  const box = document.querySelector(".chart[data-figure=hours-figure]");
  const { xaxis, yaxis } = box._fullLayout, spot = box.getBoundingClientRect();
  return [spot.x + xaxis._offset + xaxis.c2p(at[0]), spot.y + yaxis._offset + yaxis.c2p(at[1])];
}"""


def colours(page: Any) -> list[str]:
    scale = page.evaluate("() => document.querySelector('.chart[data-figure=hours-figure]').data[0].colorscale")
    return [colour for _, colour in scale]


@pytest.mark.parametrize("locale", ["en", "zh-hans"])
def test_the_heat_map_is_drawn_and_its_spots_lead_to_ledger_lines(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    factories.node("n1", cards=1, memory_mib=2048)
    factories.job(name="booked", command=["simulate", "--seconds", "3600"])
    turn()
    time.sleep(2.1)  # the book counts whole seconds
    User.objects.filter(username="manager").update(locale=locale, time_zone="Asia/Kolkata")
    sign_in(page, live_server, "manager")
    page.goto(f"{live_server.url}/books/?hardware=simulated&window=7d")
    page.wait_for_selector(f"{BOX}[data-drawn]")
    image = page.wait_for_selector(f"{BOX} .heatmaplayer image", state="attached")
    assert image.evaluate("(image) => image.href.baseVal").startswith("data:image/png")
    light = colours(page)
    assert len(set(light)) == 5 == len([colour for colour in light if colour.startswith("#")])
    page.evaluate("() => { document.documentElement.dataset.bsTheme = 'dark'; }")
    for _ in range(50):  # the chart follows the theme in its own time
        if colours(page) != light:
            break
        page.wait_for_timeout(100)
    assert not set(colours(page)) & set(light)

    page.click(".hours-numbers summary")
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.bsTheme = theme; }", theme)
        page.wait_for_timeout(400)  # colours fade into each other
        assert [(rule["id"], rule["nodes"][0]["target"]) for rule in Axe().run(page).response["violations"]] == []
    address = page.get_attribute(".hours-numbers tbody tr:last-child td a", "href")
    shares = page.evaluate("() => document.querySelector('.chart[data-figure=hours-figure]').data[0].z")
    day = len(shares[0]) - 1
    hour = next(hour for hour in range(24) if shares[hour][day] is not None)
    x, y = page.evaluate(MIDDLE, [day, hour])
    page.mouse.move(x - 1, y - 1)
    page.mouse.move(x, y)
    page.wait_for_selector(f"{BOX} .hoverlayer text")
    assert f"{hour:02}:00" in page.text_content(f"{BOX} .hoverlayer")
    page.mouse.click(x, y)
    page.wait_for_url("**/books/lines/**")
    assert page.url == live_server.url + address
