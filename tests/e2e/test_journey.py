"""What a researcher does on the first day, in a real browser: sign in, submit, wait, watch, cancel, read the books."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Job, User
from ledger.vocabulary import Account
from scheduler import logs
from scheduler.drivers.base import LogChunk
from tests import factories

pytestmark = pytest.mark.browser


def sign_in(page: Any, server: Any, name: str) -> None:
    page.goto(f"{server.url}/sign-in/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", factories.PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(f"{server.url}/")


def send(page: Any, name: str, cards: int) -> None:
    page.click("text=Submit a job")
    page.fill("[name=name]", name)
    page.fill("[name=command]", "simulate --seconds 3600")
    page.select_option("[name=form]", "container")
    page.fill("[name=cards_per_node]", str(cards))
    page.fill("[name=memory_mib]", "1024")
    page.click("summary")
    page.check("[name=simulated]")
    page.click("main button[type=submit]")


def submit(page: Any, name: str, cards: int) -> Job:
    send(page, name, cards)
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    return Job.objects.get(name=name)


def test_the_first_day_of_a_researcher(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None]
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000)
    sign_in(page, live_server, "researcher")

    send(page, "too wide", cards=4)
    page.wait_for_selector("main form >> text=No node has 4 such cards; the most is 2 (n1). Nearest that could run")
    assert not Job.objects.exists()

    wide = factories.any_job(people["researcher"], asks=[{"form": "container", "cards_per_node": 4}])
    page.goto(f"{live_server.url}/jobs/{wide.pk}/")
    turn()
    page.wait_for_selector("text=position 1 in the queue")
    assert "fewer cards than asked" in page.inner_text("#status")

    job = submit(page, "fits", cards=1)
    turn()
    page.wait_for_selector("#status >> text=n1")
    page.wait_for_selector("[aria-current=step] >> text=running")
    page.wait_for_selector("#log:has-text('starts on n1')")

    page.fill("[name=reason]", "seen enough")
    page.click("text=Cancel the job")
    turn()
    turn()
    page.wait_for_selector("#status:not([hx-get])")  # it asks no more
    assert "cancelled" in page.inner_text(".state-big")
    assert page.query_selector("[name=reason]") is None
    job.refresh_from_db()
    assert (job.state, job.cancel_reason) == ("cancelled", "seen enough")

    page.click("#user-menu")
    page.click("text=简体中文")
    page.wait_for_selector("h1, h2 >> text=状态")
    assert page.get_attribute("html", "lang") == "zh-hans"

    page.goto(f"{live_server.url}/books/?hardware=simulated")
    page.wait_for_selector(".chart[data-drawn]")
    assert len(page.query_selector_all(".chart .trace.bars")) == len(Account)
    assert "卡数（平均）" in page.text_content(".chart")

    page.click("#user-menu")
    page.click("text=深色")
    page.wait_for_selector("html[data-bs-theme=dark] .chart[data-drawn]")


def test_what_a_job_writes_is_text_and_terminal_codes_are_dropped(
    page: Any, live_server: Any, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    whole = f"\x1b[1;31m训练\x1b[0m begins\n 10%\r 50%\r100%\n{hostile}\n\x1b]0;title\x07last".encode()

    def read(job: Job, cursor: int = 0, rank: int = 0) -> LogChunk:
        """A few bytes at a time, so that letters and codes are cut in the middle."""
        return LogChunk(whole[cursor : cursor + 9], min(cursor + 9, len(whole)), end=False)

    monkeypatch.setattr(logs, "read", read)
    job = factories.job(people["researcher"])
    sign_in(page, live_server, "researcher")
    page.goto(f"{live_server.url}/jobs/{job.pk}/")
    for _ in range(len(whole) // 9 + 1):
        with page.expect_response(re.compile("/log/")):
            page.evaluate("htmx.trigger('#log-poll', 'more')")
    page.wait_for_selector("#log:has-text('last')")
    assert page.text_content("#log") == f"训练 begins\n100%\n{hostile}\nlast"
    assert page.title().startswith("Job")
    assert page.query_selector("#log img") is None


def test_a_narrow_window_needs_no_sideways_scrolling(page: Any, live_server: Any, people: dict[str, User]) -> None:
    factories.node("n1", cards=2)
    job = factories.job(people["researcher"])
    page.set_viewport_size({"width": 390, "height": 800})
    sign_in(page, live_server, "researcher")
    for path in (
        "/",
        "/jobs/",
        "/jobs/new/",
        f"/jobs/{job.pk}/",
        "/nodes/?hardware=simulated",
        "/nodes/n1/",
        "/books/",
    ):
        page.goto(live_server.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
