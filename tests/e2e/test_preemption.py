"""Pre-emption in a browser, shown before it happens and while it does: to who waits, to whose work would go, and to
operators. Each page keeps the rules of accessibility on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Job, Project, User
from ledger.vocabulary import Resource
from scheduler import placing
from tests import factories
from tests.e2e.test_journey import sign_in
from tests.e2e.test_project_end import Reader
from tests.scheduler import flow

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]
CARD = {"form": "container", "memory_mib": 0}


@pytest.fixture
def waits(people: dict[str, User], settings: Any) -> Job:
    """A job of vision, which is guaranteed half of a node that a project of outsider has filled."""
    settings.PREEMPT_MIN_RUN_S, settings.PREEMPT_GRACE_S = 30, 600
    factories.node("n1", cards=4)
    for slug, guaranteed in (("vision", 2000), ("outside", 1000)):
        grant = factories.grant(Project.objects.get(slug=slug), Resource.CARD_MILLI, 4000)
        grant.guaranteed = guaranteed
        grant.save(update_fields=["guaranteed"])
    simulate = ["simulate", "--seconds", "3600"]
    running = [
        factories.job(people["outsider"], project="outside", name=f"fills {n}", asks=[CARD], command=simulate)
        for n in range(4)
    ]
    flow.start(*running)
    flow.grow_old()
    return factories.job(people["researcher"], name="comes back", asks=[CARD], command=simulate)


def test_both_sides_and_operators_are_shown_it(
    page: Any, live_server: Any, waits: Job, make_window: Callable[[], Any]
) -> None:
    reader = Reader(page, live_server)
    sign_in(page, live_server, "researcher")
    page.goto(f"{live_server.url}/jobs/{waits.pk}/")
    page.wait_for_selector("text=1 running job would be stopped for it, with 10 min notice")
    page.click("text=Who, and what it would lose")
    assert "a job of another project" in reader.look()
    assert "fills" not in page.inner_text("main")

    borrower = Reader(make_window(), live_server)
    sign_in(borrower.page, live_server, "outsider")
    job = Job.objects.filter(name="fills 0").get()
    assert "It may stand on borrowed cards" in borrower.open(f"/jobs/{job.pk}/")
    assert "4 running jobs of the project stand on borrowed cards" in borrower.open("/projects/outside/quota/")

    operator = Reader(make_window(), live_server)
    sign_in(operator.page, live_server, "admin")
    assert "1 of 1 waiting jobs looked at" in operator.open("/ops/preemptions/")
    placing.place_queued()
    said = operator.open("/ops/preemptions/")
    assert "The next round would stop nobody." in said
    assert "not gone yet" in said
    assert "a job of another project" in borrower.open("/ops/preemptions/")
    assert [*reader.wrong, *borrower.wrong, *operator.wrong] == []


@pytest.fixture
def make_window(browser: Any) -> Any:
    """Another person's browser."""
    contexts: list[Any] = []

    def make() -> Any:
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US"))
        return contexts[-1].new_page()

    yield make
    for context in contexts:
        context.close()
