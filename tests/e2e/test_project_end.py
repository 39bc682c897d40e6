"""The end of a project in a browser: what will be taken back, the dry run, an extension, the end with its preview, the
receipt; and what its people see meanwhile. Each page keeps the rules of accessibility on the way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Project, Receipt, User
from ledger.vocabulary import ProjectState
from scheduler import reclaim
from tests import factories
from tests.e2e.test_journey import sign_in
from tests.e2e.test_pages import _troubles
from tests.scheduler import ending

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def vision(people: dict[str, User], turn: Callable[[], None]) -> Project:
    """It ends in three days, a job of it runs and one waits; somebody has left a project behind."""
    factories.node("n1", cards=2)
    project = ending.ends_in(3)
    whole = {"asks": [{"form": "container", "cards_per_node": 2, "memory_mib": 0}], "data_paths": ["/data/faces"]}
    factories.job(people["researcher"], name="long run", command=["simulate", "--seconds", "3600"], **whole)
    turn()
    turn()
    factories.job(people["researcher"], name="next run", **whole)
    User.objects.filter(username="outsider").update(is_active=False)
    return project


class Reader:
    """A browser that looks at each page it comes to."""

    def __init__(self, page: Any, server: Any) -> None:
        self.page, self.url = page, server.url
        self.wrong: list[str] = []

    def open(self, address: str) -> str:
        self.page.goto(self.url + address)
        return self.look()

    def look(self) -> str:
        self.wrong += [f"{self.page.url}: {line}" for line in _troubles(self.page)]
        return str(self.page.inner_text("main"))

    def send(self, button: str, **fields: str) -> str:
        for name, text in fields.items():
            self.page.fill(f"#id_{name}", text)
        return self.click("button", button)

    def click(self, role: str, name: str) -> str:
        """What the page says to which a link or a button leads."""
        with self.page.expect_navigation():
            self.page.get_by_role(role, name=name, exact=True).click()
        return self.look()


def test_a_project_is_extended_ended_and_has_its_receipt(
    page: Any, live_server: Any, vision: Project, turn: Callable[[], None]
) -> None:
    sign_in(page, live_server, "admin")
    reader = Reader(page, live_server)
    text = reader.open("/reclaim/")
    assert "give notice" in text
    assert "outside" in text  # left by somebody who has gone
    reclaim.reclaim_all()
    later = vision.ends_on + dt.timedelta(days=5)
    assert "Left until its end" in reader.click("link", "Extend")
    assert f"Project vision works through {later}." in reader.send(
        "Extend the project", ends_on=later.isoformat(), reason="the paper needs a week"
    )
    text = reader.click("link", "End now")
    assert "long run" in text
    assert "next run" in text
    text = reader.send("End the project now", reason="the work is done")
    assert "Project vision ends now." in text
    assert "stop what runs" in text
    assert "long run" in text
    ending.passes(database_now())
    vision.refresh_from_db()
    assert vision.state == ProjectState.ENDED
    reader.open("/receipts/")
    text = reader.click("link", "Vision")
    for told in ("long run", "next run", "2 × A100", "/data/faces", "Not enforced"):
        assert told in text
    assert reader.wrong == []


def test_its_people_see_the_countdown_and_the_receipt(page: Any, live_server: Any, vision: Project) -> None:
    Project.objects.filter(pk=vision.pk).update(ends_on=database_now().date() - dt.timedelta(days=2))
    reclaim.reclaim_all()
    sign_in(page, live_server, "researcher")
    reader = Reader(page, live_server)
    assert "What runs is stopped at" in reader.open("/")
    Project.objects.filter(pk=vision.pk).update(grace_days=0)
    ending.passes(database_now())
    reader.open("/")
    assert "Receipt of vision" in reader.click("link", "Receipt")
    assert page.url.endswith(f"/receipts/{Receipt.objects.get().pk}/")
    assert reader.wrong == []
