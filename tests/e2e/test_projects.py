"""The life of a project in a real browser, in both languages: its owner invites, the new member submits, a later end is
asked for and granted, and at its end everything is taken back, with a receipt."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Allocation, Job, Membership, Project, ProjectRequest, Receipt, User
from scheduler import reclaim
from tests import factories
from tests.e2e.test_admin_and_manager import LANGUAGES, start
from tests.e2e.test_journey import submit

pytestmark = pytest.mark.browser


def leave(page: Any, server: Any) -> None:
    """Sign out, so that somebody else may sign in."""
    page.context.clear_cookies()
    page.goto(f"{server.url}/sign-in/")


@LANGUAGES
def test_an_owner_invites_and_the_new_member_submits(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000)
    start(page, live_server, "owner", locale)
    page.goto(f"{live_server.url}/projects/vision/")
    page.fill("[name=user]", "nobody at all")
    page.click("form[action$='/invite/'] button[type=submit]")
    page.wait_for_selector(".field-error")
    page.fill("[name=user]", "outsider")
    page.fill("[name=reason]", "label the last set")
    page.click("form[action$='/invite/'] button[type=submit]")
    page.wait_for_selector(".alert-success")
    leave(page, live_server)

    start(page, live_server, "outsider", locale)
    assert "label the last set" in page.inner_text("main")
    page.click("form[action$='/accept/'] button")
    page.wait_for_url(re.compile(r"/projects/vision/$"))
    assert Membership.objects.get(user=people["outsider"], project__slug="vision").role == "member"
    if locale == "en":
        page.click("text=Submit a job")
        page.select_option("[name=project]", "vision")
        page.goto(f"{live_server.url}/")
        job = submit(page, "labels", cards=1)
        turn()
        page.wait_for_selector("#status >> text=n1")
        assert job.by == people["outsider"]


@LANGUAGES
def test_a_later_end_is_asked_for_and_granted(
    page: Any, live_server: Any, people: dict[str, User], locale: str
) -> None:
    later = database_now().date() + dt.timedelta(days=500)
    start(page, live_server, "owner", locale)
    page.goto(f"{live_server.url}/projects/vision/")
    page.click("a[href$='/extension/']")
    page.fill("[name=ends_on]", str(later))
    page.fill("[name=reason]", "the data came late")
    page.click("main form button[type=submit]")
    page.wait_for_url(re.compile(r"/requests/\d+/$"))
    leave(page, live_server)

    start(page, live_server, "manager", locale)
    page.click("a[href$='/requests/?mine=decide']")
    page.click(f"table a[href='/requests/{ProjectRequest.objects.get().pk}/']")
    page.fill("[name=text]", "until when exactly?")
    page.click("form[action$='/comment/'] button")
    page.wait_for_selector("text=until when exactly?")
    page.click("button[value=approve]")
    page.wait_for_selector(".alert-success")
    assert Project.objects.get(slug="vision").ends_on == later
    page.goto(f"{live_server.url}/projects/vision/")
    assert str(later) in page.inner_text("main")


@LANGUAGES
def test_at_its_end_all_is_taken_back_with_a_receipt(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], locale: str
) -> None:
    factories.node("n1", cards=1)
    long = ["simulate", "--seconds", "3600"]
    for name in ("runs on", "waits"):
        factories.job(name=name, command=long, asks=[{"form": "container"}])
    turn()
    start(page, live_server, "admin", locale)
    page.goto(f"{live_server.url}/reclaim/vision/end/")
    assert "runs on" in page.inner_text("main")  # what it would stop
    page.fill("[name=reason]", "the grant is over")
    page.click("main form button[type=submit]")
    page.wait_for_url(re.compile(r"/reclaim/$"))
    assert "vision" in page.inner_text("main")
    for _ in range(4):
        reclaim.reclaim_all()
        turn()
    assert Project.objects.get(slug="vision").state == "ended"
    assert not Allocation.objects.filter(period__upper_inf=True).exists()
    assert set(Job.objects.values_list("state", flat=True)) == {"cancelled"}
    page.goto(f"{live_server.url}/receipts/{Receipt.objects.get().pk}/")
    told = page.inner_text("main")
    assert "runs on" in told
    assert "waits" in told
    leave(page, live_server)

    start(page, live_server, "owner", locale)
    page.goto(f"{live_server.url}/projects/vision/")
    assert page.query_selector("form[action$='/invite/']") is None
    page.click("a[href^='/receipts/'] >> nth=0")
    page.wait_for_url(re.compile(r"/receipts/\d+/$"))
