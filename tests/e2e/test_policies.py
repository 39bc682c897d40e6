"""A policy in a real browser: who governs previews and saves it, a researcher's open fields are filled by it, too much is
refused beside its field, and the job names the version."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ledger.models import Job, User
from scheduler.policy_rows import PolicyVersion
from tests import factories
from tests.e2e.test_admin_and_manager import LANGUAGES, start
from tests.e2e.test_projects import leave

pytestmark = pytest.mark.browser


@LANGUAGES
def test_a_policy_is_previewed_saved_and_decides(
    page: Any, live_server: Any, people: dict[str, User], locale: str
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000)
    old = factories.job(people["researcher"], priority=50)
    start(page, live_server, "manager", locale)
    page.click("a.nav-link[href='/policies/']")
    page.click("a[href='/policies/change/']")
    page.select_option("[name=about]", "project:vision")
    page.select_option("[name=form_1]", "container")
    page.select_option("[name=form_2]", "whole")
    page.fill("[name=fallback_wait_min]", "10")
    page.fill("[name=priority_default]", "3")
    page.fill("[name=priority_most]", "5")
    page.click("main form button[type=submit]")
    page.wait_for_selector("[name=reason]")
    assert page.inner_text("section[aria-labelledby=h-examples]").count(f"{old.pk} ") >= 1
    assert not PolicyVersion.objects.exists()
    page.fill("[name=reason]", "so that all fit")
    page.click("main form button[type=submit]")
    page.wait_for_url(re.compile(r"/policies/\d+/$"))
    assert "so that all fit" in page.inner_text("main")
    leave(page, live_server)

    start(page, live_server, "researcher", locale)
    page.goto(f"{live_server.url}/jobs/new/?template=inference&project=vision")
    page.click("#submit-form summary")
    page.check("[name=simulated]")
    page.fill("[name=memory_mib]", "1024")
    page.wait_for_selector("#outlook a[href^='/policies/']")
    page.fill("[name=priority]", "6")
    page.click("#submit-form .submit-foot button.btn-primary")
    page.wait_for_selector(".has-error [name=priority]")
    page.fill("[name=priority]", "")
    page.click("#submit-form .submit-foot button.btn-primary")
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    job = Job.objects.latest("pk")
    assert (job.priority, [(ask["form"], ask["after_s"]) for ask in job.asks]) == (
        3,
        [("container", 0), ("whole", 600)],
    )
    page.click("dd a[href^='/policies/'] >> nth=0")
    page.wait_for_url(re.compile(r"/policies/\d+/$"))
    assert page.locator(f"a[href='/audit/jobpolicy/{PolicyVersion.objects.get().policy_id}/']").count() == 1
