"""The journeys of an administrator and a manager, in both languages: hold a card and see the next job avoid it, move
nodes and be stopped by the window, read the books down to a line and take them away as a file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import openpyxl
import pytest

from ledger import reports
from ledger.clock import database_now
from ledger.models import Allocation, Card, Hold, Job, NodeZone, User
from scheduler import zones
from scheduler.models import ZonePlan
from tests import factories
from tests.e2e.test_journey import sign_in
from tests.portal.api.client import api

pytestmark = pytest.mark.browser
LANGUAGES = pytest.mark.parametrize("locale", ["en", "zh-hans"])


def start(page: Any, server: Any, who: str, locale: str) -> None:
    User.objects.filter(username=who).update(locale=locale)
    sign_in(page, server, who)
    assert page.get_attribute("html", "lang") == locale


@LANGUAGES
def test_an_administrator_holds_a_card_and_the_next_job_avoids_it(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    factories.node("n1", cards=2)
    start(page, live_server, "admin", locale)
    page.goto(f"{live_server.url}/cards/?hardware=simulated")
    page.check("input[name=key][value='n1-card-0']")
    page.click(".bulk button[formaction*='/machines/cards/hold/']")
    page.fill("[name=reason]", "fan is loud")
    page.click("main form.cancel button[type=submit]")
    page.wait_for_selector(".alert-success")
    hold = Hold.objects.get(card__uuid="n1-card-0")
    assert (hold.reason, hold.by) == ("fan is loud", people["admin"])

    factories.job(name="avoids", command=["simulate", "--seconds", "3600"])
    turn()
    held = Allocation.objects.get(attempt__job__name="avoids")
    assert [share.card.uuid for share in held.shares.select_related("card")] == ["n1-card-1"]

    page.goto(f"{live_server.url}/audit/?q=fan")
    assert "fan is loud" in page.inner_text("main")
    page.goto(f"{live_server.url}/cards/n1-card-0/")
    assert "fan is loud" in page.inner_text("main")


@LANGUAGES
def test_an_administrator_moves_nodes_and_is_stopped_by_the_window(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    for name in ("n1", "n2", "n3", "n4"):
        factories.node(name, cards=1)
    factories.zone("whole")
    factories.job(command=["simulate", "--seconds", "3600"])
    turn()
    busy = Allocation.objects.get().node.hostname
    moved = sorted({"n1", "n2", "n3", busy})[:3]
    start(page, live_server, "admin", locale)

    def plan(nodes: list[str]) -> None:
        page.goto(f"{live_server.url}/zones/plan/")
        page.fill("textarea[name=nodes]", " ".join(nodes))
        page.select_option("[name=to_zone]", "whole")
        page.click("form:has(textarea[name=nodes]) button[type=submit]")
        page.fill("[name=reason]", "more whole machines")
        page.click("form[action*='/confirm/'] button[type=submit]")

    plan(moved)
    page.wait_for_url(re.compile(r"/zones/plans/\d+/"))
    zones.advance_all()
    where = dict(NodeZone.objects.filter(period__upper_inf=True).values_list("node__hostname", "zone__slug"))
    assert {name for name, zone in where.items() if zone == "whole"} == set(moved) - {busy}
    assert Hold.objects.filter(node__hostname=busy, kind="drain", period__upper_inf=True).exists() is (busy in moved)
    plan(["n4"] if "n4" not in moved else ["n3"])
    page.wait_for_selector("[name=override_reason]:invalid")  # the browser sends nothing without it
    page.eval_on_selector("[name=override_reason]", "field => field.removeAttribute('required')")
    page.click("form[action*='/confirm/'] button[type=submit]")
    page.wait_for_selector(".field-error")
    assert ZonePlan.objects.count() == 1


@LANGUAGES
def test_a_manager_reads_the_books_down_to_a_line_and_takes_them_away(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str, tmp_path: Any
) -> None:
    factories.node("n1", cards=2)
    job = factories.job(name="booked", command=["simulate", "--seconds", "3600"])
    turn()
    time.sleep(2.1)  # the book counts whole seconds
    end = database_now().replace(microsecond=0)
    start(page, live_server, "manager", locale)
    window = f"window=own&start={job.submitted_at:%Y-%m-%dT%H:%M}&end={end:%Y-%m-%dT%H:%M:%S}"
    books = f"{live_server.url}/books/?hardware=simulated&unit=mib_seconds&project=vision&{window}"
    page.goto(books)
    with page.expect_download() as saved:
        page.click("a[href*='export=xlsx'] >> nth=0")
    file = tmp_path / "balance.xlsx"
    saved.value.save_as(file)
    rows = list(openpyxl.load_workbook(file)["Data"].iter_rows(values_only=True))
    capacity = next(row[2] for row in rows[1:])
    answer = api(people["manager"]).get(
        "books/balance/", simulated="true", project="vision",
        **{"from": job.submitted_at.replace(second=0, microsecond=0).isoformat(), "to": end.isoformat()},
    ).json()  # fmt: skip
    assert capacity == answer["exact"]["capacity"] > 0

    page.goto(books)
    page.click("td.num a[href*='/books/lines/'] >> nth=0")
    page.wait_for_selector(".ledger-lines tbody tr")
    assert page.query_selector(f".ledger-lines a[href='/jobs/{job.pk}/']") is not None
    assert f"{answer['exact']['capacity']:,}".replace(",", "\u202f") in page.inner_text(".total")
    assert reports.balance(job.submitted_at, end, simulated=True, project="vision")["exact"]["capacity"] == capacity
    assert Job.objects.get(pk=job.pk).state == "running"
    assert Card.objects.count() == 2
