"""Every page in a real browser, light and dark: no accessibility violation, no request that leaves the host, nothing
that breaks the content policy, and on a narrow screen no sideways scrolling."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from ledger import letters, odd_grants
from ledger.acts import Act
from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Department, Node, User
from ledger.vocabulary import HoldKind
from portal.management.commands.screenshots import settle
from portal.sample_pages import sample_addresses
from scheduler import alert_changes, alerting
from scheduler.zone_proposals import propose_list
from scheduler.zones import make_plan
from tests import factories
from tests.e2e.test_journey import sign_in

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
NARROW = 390
LOADING_MS = 200  # until a page has begun to load its parts
# Colours fade into each other; what turns for ever is not waited for.
FADED = """() => Promise.all(document.getAnimations()
  .filter((one) => Number.isFinite(one.effect.getComputedTiming().endTime))
  .map((one) => one.finished.catch(() => {})))"""
ALONE = {"resultTypes": ["violations"]}  # what passes is not described
THEMES: dict[str, list[str]] = {"light": [], "dark": ["color-contrast"]}  # rules to look at, empty = all
RESEARCHERS = ("/jobs/", "/account/", "/books/", "/help/", "/departments/")  # pages that differ for a researcher
LOOKED = {"admin": 20, "researcher": 5}


@pytest.fixture
def world(people: dict[str, User], turn: Callable[[], None]) -> dict[str, User]:
    """One of everything: a running job, a waiting one, an ended one, a zone plan, extra rights and their letters."""
    factories.node("n1", cards=4, block=2)
    factories.node("real", cards=1, simulated=False)
    factories.job(people["researcher"], name="short")
    turn()
    turn()
    factories.job(people["researcher"], name="long", command=["simulate", "--seconds", "3600"])
    turn()
    factories.any_job(people["researcher"], name="too wide", asks=[{"form": "container", "cards_per_node": 9}])
    turn()
    factories.node("n2", cards=1)
    proposal = propose_list(hostnames=["n2"], to_zone=factories.zone("elsewhere"))
    make_plan(proposal=proposal, reason="more room there", actor=people["admin"], via="test")
    act, soon = Act(people["admin"], "test", "night shift of the whole month"), database_now() + dt.timedelta(days=2)
    research = Department.objects.get(slug="research")
    for user, place in (("member", factories.zone()), ("member", research), ("researcher", research)):
        odd_grants.give(user=people[user], place=place, until=soon, act=act)
    letters.write_due()
    place_hold(kind=HoldKind.DRILL, reason="drill", actor=None, via="test", node=Node.objects.get(hostname="real"))
    alerting.evaluate()
    until = database_now() + dt.timedelta(hours=1)
    alert_changes.silence(matchers=[["node", "=", ["n9"]]], until=until, act=act)
    return people


def _leaves(page: Any, host: str) -> list[str]:
    """Requests to other hosts than the portal's, as they happen."""
    found: list[str] = []

    def look(request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https") and address.netloc != host:
            found.append(request.url)

    page.on("request", look)
    return found


@pytest.mark.parametrize("who", ["admin", "researcher"])
def test_every_page_keeps_the_rules(page: Any, live_server: Any, world: dict[str, User], who: str) -> None:
    user = world[who]
    sign_in(page, live_server, who)
    page.emulate_media(reduced_motion="reduce")  # what fades would be waited for
    leaves = _leaves(page, urlsplit(live_server.url).netloc)
    looked, wrong = 0, []
    for address in sample_addresses(user):
        if who != "admin" and not address.startswith(RESEARCHERS) and address != "/":
            continue
        answer = page.request.get(live_server.url + address)
        if answer.status == 405 or not answer.text().lstrip().lower().startswith("<!doctype html"):
            continue  # for POST alone, a part of a page, data or a file
        if answer.status != 200:
            wrong.append(f"{address}: {answer.status}")
            continue
        looked += 1
        page.goto(live_server.url + address)
        settle(page, LOADING_MS)
        wrong += [f"{address}: {line}" for line in _troubles(page)]
    assert not wrong, "\n".join(wrong)
    assert leaves == []
    assert looked >= LOOKED[who]


def _troubles(page: Any) -> list[str]:
    """What axe finds: everything in one theme, colours alone in the other; and whether a narrow screen must scroll
    sideways."""
    found = []
    for theme, only in THEMES.items():
        if page.evaluate("document.documentElement.dataset.bsTheme") != theme:
            page.evaluate("(theme) => { document.documentElement.dataset.bsTheme = theme; }", theme)
            page.evaluate(FADED)
        rules = Axe().run(page, options=ALONE | ({"runOnly": only} if only else {})).response["violations"]
        found += [f"{theme}: {rule['id']} {rule['nodes'][0]['target']} ({len(rule['nodes'])})" for rule in rules]
    page.set_viewport_size({"width": NARROW, "height": 800})
    if (width := page.evaluate("document.documentElement.scrollWidth")) > NARROW:
        found.append(f"{width} wide on a screen of {NARROW}")
    page.set_viewport_size({"width": 1280, "height": 900})
    return found
