"""The life of a project in a real browser, in both languages: its owner invites, the new member submits, a later end is
asked for and granted, and so is more quota. Its end is in test_project_end.py."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import AuditEvent, Membership, Project, ProjectRequest, QuotaGrant, User
from ledger.vocabulary import Resource
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
def test_more_quota_is_asked_for_granted_and_then_observed(
    page: Any, live_server: Any, people: dict[str, User], locale: str
) -> None:
    factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 4_000)
    start(page, live_server, "owner", locale)
    page.goto(f"{live_server.url}/projects/vision/")
    page.click("a[href$='/more/']")
    page.fill("[name=amount]", "2")
    page.fill("[name=reason]", "a wider sweep")
    page.click("main form button[type=submit]")
    page.wait_for_selector(".field-error")  # less than there is
    page.fill("[name=amount]", "6")
    page.click("main form button[type=submit]")
    page.wait_for_url(re.compile(r"/requests/\d+/$"))
    told = page.inner_text("main table")
    assert re.search(r"\b4\b.*\b6\b", told, re.DOTALL)
    leave(page, live_server)

    start(page, live_server, "manager", locale)
    page.goto(f"{live_server.url}/requests/{ProjectRequest.objects.get().pk}/")
    page.click("button[value=approve]")
    page.wait_for_selector(".alert-success")
    assert QuotaGrant.objects.get(period__upper_inf=True).amount == 6_000

    page.goto(f"{live_server.url}/projects/vision/quota/?resource=card_milli&model=#change")
    page.fill("[name=amount]", "8")
    page.click("#change button[type=submit]")
    page.fill("[name=reason]", "and again")
    page.eval_on_selector("[name=override_reason]", "field => field.removeAttribute('required')")
    page.click("form[action$='/quota/confirm/'] button[type=submit]")
    page.wait_for_selector(".field-error")  # it is observed: not without a reason of its own
    page.fill("[name=override_reason]", "the deadline is tomorrow")
    page.click("form[action$='/quota/confirm/'] button[type=submit]")
    page.wait_for_url(re.compile(r"/projects/vision/quota/"))
    assert QuotaGrant.objects.get(period__upper_inf=True).amount == 8_000
    assert AuditEvent.objects.filter(verb="quota.overridden").count() == 2
