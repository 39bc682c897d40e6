"""Saving the values of the submit form in a real browser: Enter in the name saves and never submits a job."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ledger.models import Job, SavedValues, User
from tests import factories
from tests.e2e.test_journey import sign_in

pytestmark = pytest.mark.browser


def test_a_researcher_saves_loads_and_removes_values(page: Any, live_server: Any, people: dict[str, User]) -> None:
    factories.node("n1", cards=4, memory_mib=16_000)
    sign_in(page, live_server, "researcher")
    page.goto(f"{live_server.url}/jobs/new/")
    page.fill("[name=name]", "nightly")
    page.fill("[name=command]", "python train.py")
    page.fill("[name=save_as]", "night run")
    page.press("[name=save_as]", "Enter")
    page.wait_for_url(re.compile(r"\?saved=\d+$"))
    assert not Job.objects.exists()
    assert SavedValues.objects.get().values["command"] == "python train.py"
    assert page.input_value("[name=name]") == "nightly"

    page.goto(f"{live_server.url}/jobs/new/")
    page.click("#saved summary")
    page.click("#saved a >> text=night run")
    page.wait_for_url(re.compile(r"\?saved=\d+$"))
    assert page.input_value("[name=command]") == "python train.py"

    page.fill("[name=name]", "typed since")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("#saved summary")
    page.click("#saved button")
    page.wait_for_selector("#saved:has-text('are removed')")
    assert page.input_value("[name=name]") == "typed since"
    assert page.url == f"{live_server.url}/jobs/new/"
    assert not SavedValues.objects.exists()


def test_without_scripts_it_works_too(browser: Any, live_server: Any, people: dict[str, User]) -> None:
    factories.node("n1", cards=4, memory_mib=16_000)
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        sign_in(page, live_server, "researcher")
        page.goto(f"{live_server.url}/jobs/new/")
        page.fill("[name=command]", "echo 'half")
        page.fill("[name=save_as]", "half")
        page.click("#save-values")
        page.wait_for_url(re.compile(r"\?saved=\d+$"))
        assert page.input_value("[name=command]") == "echo 'half"
        page.click("#saved summary")
        page.click("#saved button")
        page.wait_for_selector(".alert-success")
    finally:
        context.close()
    assert not SavedValues.objects.exists()
    assert not Job.objects.exists()
