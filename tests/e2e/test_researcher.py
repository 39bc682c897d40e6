"""The journey of a researcher in both languages: submit with the panel's advice, watch, cancel, clone, see why it waits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Job, User
from tests import factories
from tests.e2e.test_journey import sign_in

pytestmark = pytest.mark.browser
NOW = {"en": "Starts now", "zh-hans": "立即开始"}
WAITS = {"en": "Waits", "zh-hans": "等待"}
RUNNING = {"en": "running", "zh-hans": "运行"}


@pytest.mark.parametrize("locale", ["en", "zh-hans"])
def test_a_researcher_submits_watches_cancels_and_clones(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    factories.node("n1", cards=4, memory_mib=16_000)
    User.objects.filter(username="researcher").update(locale=locale)
    sign_in(page, live_server, "researcher")
    page.keyboard.press("c")
    page.wait_for_url(re.compile("/jobs/new/"))
    page.click(".more summary")
    page.check("[name=simulated]")
    page.fill("[name=name]", "journey")
    page.fill("[name=command]", "simulate --seconds 3600")
    page.select_option("[name=form]", "container")
    page.fill("[name=cards_per_node]", "3")
    page.fill("[name=memory_mib]", "0")
    page.wait_for_selector(f"#outlook .verdict-now >> text={NOW[locale]}")
    assert "n1" in page.inner_text("#outlook .spots")
    page.click("#submit-form .card-footer button")
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    job = Job.objects.get(name="journey")
    turn()
    page.wait_for_selector(f"[aria-current=step] >> text={RUNNING[locale]}")
    page.wait_for_selector("#log:has-text('starts on n1')")
    page.fill("#log-search", "STARTS")
    page.wait_for_selector("#log-found:text-is('1 / 1')")

    page.click("a[href*='clone=']")  # two cards more than are free now
    page.wait_for_selector(f"#outlook .verdict-later >> text={WAITS[locale]}")
    assert "journey" in page.inner_text("#outlook")  # the job that must end first
    page.click("#outlook [data-apply] >> nth=0")
    page.wait_for_selector("#outlook .verdict-now")

    page.goto(f"{live_server.url}/jobs/{job.pk}/")
    page.fill("[name=reason]", "seen enough")
    page.click("#cancel button")
    turn()
    turn()
    page.wait_for_selector("#status:not([hx-get])")
    job.refresh_from_db()
    assert (job.state, job.cancel_reason) == ("cancelled", "seen enough")


@pytest.mark.parametrize("locale", ["en", "zh-hans"])
def test_an_outsider_finds_nothing_anywhere(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    factories.node("n1", cards=4)
    job = factories.job(people["researcher"], name="confidential work", command=["simulate", "--seconds", "3600"])
    turn()
    User.objects.filter(username="outsider").update(locale=locale)
    sign_in(page, live_server, "outsider")
    for address in ("/", "/jobs/", "/search/?q=confidential", "/nodes/n1/", "/books/?hardware=simulated", "/audit/"):
        page.goto(live_server.url + address)
        page.wait_for_load_state("networkidle")
        text = page.content()
        assert "confidential" not in text.replace("q=confidential", "").replace('value="confidential"', "").replace(
            "“confidential”", ""
        ), address
        assert f"/jobs/{job.pk}/" not in text, address
    assert page.goto(f"{live_server.url}/jobs/{job.pk}/").status == 404
