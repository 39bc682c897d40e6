"""A page whose parts get no answer any more says so, and stops saying so when they come again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import User
from tests import factories
from tests.e2e.test_journey import sign_in

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("failure", ["error", "silence"])
def test_a_job_page_says_when_it_may_be_old(
    page: Any, live_server: Any, people: dict[str, User], turn: Callable[[], None], failure: str
) -> None:
    factories.node("n1", cards=1)
    job = factories.job(people["researcher"], command=["simulate", "--seconds", "3600"])
    turn()
    sign_in(page, live_server, "researcher")
    page.goto(f"{live_server.url}/jobs/{job.pk}/")
    page.wait_for_selector("#status")
    assert page.is_hidden("#no-answer")
    address = f"**/jobs/{job.pk}/status/"
    page.route(address, lambda route: route.fulfill(status=502) if failure == "error" else route.abort())
    page.wait_for_selector("#no-answer:not([hidden])", timeout=10_000)
    assert ("HTTP 502" in page.inner_text("#no-answer")) == (failure == "error")
    page.unroute(address)
    page.wait_for_selector("#no-answer", state="hidden", timeout=10_000)
