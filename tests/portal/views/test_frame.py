"""The frame: menu by role, search that finds what one may see alone, help in both languages, news of the home page."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from ledger.clock import database_now
from ledger.models import Job, User
from portal.views import home
from portal.views.help import TOPICS
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db


# -- search -----------------------------------------------------------------------------------------------------------


def test_search_finds_what_one_may_see(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.node("alpha-1", cards=1)
    mine = factories.job(name="alpha run")
    other = factories.job(people["outsider"], project="outside", name="alpha secret")
    page = client_as("researcher").get("/search/?q=alpha").content.decode()
    assert f"/jobs/{mine.pk}/" in page
    assert "/nodes/alpha-1/" in page
    assert "alpha-1-card-0" in page
    assert f"/jobs/{other.pk}/" not in page
    assert "secret" not in page
    assert f"/jobs/{other.pk}/" in client_as("auditor").get("/search/?q=alpha").content.decode()
    assert "/projects/vision/" in client_as("researcher").get("/search/?q=visio").content.decode()
    assert "project=outside" not in client_as("researcher").get("/search/?q=outside").content.decode()


@pytest.mark.parametrize("text", ["", "alpha"])
def test_the_page_of_the_search_has_a_field_of_its_own(client_as: ClientAs, text: str) -> None:
    """On a phone the one in the menu is folded away."""
    page = client_as("researcher").get(f"/search/?q={text}").content.decode()
    main = page.partition("<main")[2]
    assert re.search(rf'<input[^>]*name="q"[^>]*value="{text}"', main)
    assert re.search(r'<button[^>]*type="submit">Search<', main)


@pytest.mark.parametrize("path", ["/nodes/", "/cards/", "/machines/cards/hold/"])
def test_pages_of_machines_are_under_nodes(client_as: ClientAs, path: str) -> None:
    page = client_as("operator").get(path).content.decode()
    assert re.findall(r'aria-current="page">(\w+)<', page.partition("</header>")[0]) == ["Nodes"]


def test_a_number_or_a_node_goes_straight_there(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    job = factories.job(name="x")
    other = factories.job(people["outsider"], project="outside")
    client = client_as("researcher")
    assert client.get(f"/search/?q={job.pk}")["Location"] == f"/jobs/{job.pk}/"
    assert client.get("/search/?q=n1")["Location"] == "/nodes/n1/"
    assert client.get(f"/search/?q={other.pk}").status_code == 200


@pytest.mark.parametrize("text", ["", " ", "%00", "%27%22%3C", "9" * 400, "%E2%80%AE" * 50, "%", "_", "\\"])
def test_nothing_typed_breaks_the_search(client_as: ClientAs, text: str) -> None:
    assert client_as("researcher").get(f"/search/?q={text}").status_code == 200


def test_hostile_text_stays_text(client_as: ClientAs) -> None:
    page = client_as("researcher").get("/search/?q=<script>alert(1)</script>").content.decode()
    assert "<script>alert" not in page


# -- menu and help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "sees"), [("researcher", False), ("outsider", False), ("operator", True), ("manager", True)]
)
def test_the_menu_follows_the_role(client_as: ClientAs, who: str, sees: bool) -> None:
    page = client_as(who).get("/help/").content.decode()
    assert ('data-go="o"' in page) is sees
    assert 'data-go="j"' in page


@pytest.mark.parametrize("topic", TOPICS)
def test_help_is_there_in_both_languages(client_as: ClientAs, topic: str) -> None:
    client = client_as("researcher")
    english = client.get(f"/help/{topic}/").content.decode()
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    User.objects.filter(username="researcher").update(locale="zh-hans")
    chinese = client.get(f"/help/{topic}/").content.decode()
    folder = Path(settings.BASE_DIR) / "templates" / "help"
    for page, name in ((english, "en"), (chinese, "zh_Hans")):
        heading = (folder / name / f"{topic}.html").read_text(encoding="utf-8").splitlines()[0]
        assert heading in page


# -- home -------------------------------------------------------------------------------------------------------------


def test_home_tells_what_changed_since_the_visit_before(
    client_as: ClientAs, running: Job, turn: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_as("researcher")
    assert client.get("/").context["news"] == []  # the first visit
    client.post(f"/jobs/{running.pk}/cancel/", {"reason": "done"})
    turn()
    turn()
    later = database_now() + dt.timedelta(hours=2)
    monkeypatch.setattr(home, "database_now", lambda: later)
    assert [job.pk for job in client.get("/").context["news"]] == [running.pk]
    assert [job.pk for job in client.get("/").context["news"]] == [running.pk]  # all through this visit
    evening = later + dt.timedelta(hours=3)
    monkeypatch.setattr(home, "database_now", lambda: evening)
    assert client.get("/").context["news"] == []


def test_a_forged_visit_is_ignored(client_as: ClientAs) -> None:
    client: Client = client_as("researcher")
    client.cookies[home.VISIT] = "2020-01-01T00:00:00+00:00|2020-01-01T00:00:00+00:00:forged"
    response = client.get("/")
    assert (response.status_code, response.context["since"]) == (200, None)


def test_a_project_that_ends_soon_says_so(client_as: ClientAs, people: dict[str, User]) -> None:
    project = factories.project("vision")
    project.ends_on = database_now().date() + dt.timedelta(days=3)
    project.save()
    assert "3 days left" in client_as("researcher").get("/").content.decode()
