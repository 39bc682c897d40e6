"""The job page tells what was promised, whether it was kept, who came later, and what the cards report."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Card, CardStatus, Job, NodeBoot, User
from scheduler import queue
from scheduler.models import Promise
from scheduler.queue_control import Order, hold_jobs
from tests import factories
from tests.portal.views.conftest import ClientAs
from tests.portal.views.test_outlook import TYPED

pytestmark = pytest.mark.django_db
Turn = Callable[[], None]


def submitted(client_as: ClientAs, **values: str) -> Job:
    typed = TYPED | {"client_key": "c", "name": "mine", "command": "simulate --seconds 3600"} | values
    response = client_as("researcher").post("/jobs/new/", typed)
    assert response.status_code == 302, response.content.decode()
    return Job.objects.get(name="mine")


def page(client_as: ClientAs, job: Job, who: str = "researcher") -> str:
    return re.sub(r"\s+", " ", client_as(who).get(f"/jobs/{job.pk}/").content.decode())


def stranger(people: dict[str, User], **values: Any) -> Job:
    return factories.job(
        people["outsider"], project="outside", name="hidden", command=["simulate", "--seconds", "3600"], **values
    )


def test_the_page_keeps_what_it_told_and_says_that_it_was_kept(client_as: ClientAs, turn: Turn) -> None:
    factories.node("n1", cards=2)
    job = submitted(client_as)
    assert Promise.objects.get(job=job).verdict == "now"
    assert "as told" not in page(client_as, job)  # nothing to judge before it is placed
    turn()
    text = page(client_as, job)
    assert "Told before submitting" in text
    assert "nobody else there" in text
    assert "as told" in text
    assert "not as told" not in text


def test_a_breach_is_shown_without_the_names_of_hidden_projects(
    client_as: ClientAs, people: dict[str, User], turn: Turn
) -> None:
    factories.node("n1", cards=2)
    job = submitted(client_as)
    stranger(people, priority=9)
    turn()
    text = page(client_as, job)
    assert "not as told" in text
    assert "others were there at placement" in text
    assert "another project" in text
    assert "outside" not in text
    assert "outside" in page(client_as, job, "admin")


def test_whoever_came_later_is_listed_with_the_time(client_as: ClientAs, people: dict[str, User], turn: Turn) -> None:
    factories.node("n1", cards=2)
    job = submitted(client_as)
    turn()
    assert "Came later" not in page(client_as, job)
    stranger(people)
    turn()
    text = page(client_as, job)
    assert "Came later" in text
    assert "not as told" not in text


def test_a_job_that_was_told_to_wait_shows_until_when(client_as: ClientAs, people: dict[str, User], turn: Turn) -> None:
    factories.node("n1", cards=1)
    stranger(people, asks=[{"form": "whole"}])
    turn()
    job = submitted(client_as, form="whole", memory_mib="0")
    assert Promise.objects.get(job=job).verdict == "later"
    queue.cancel(job_id=Job.objects.get(name="hidden").pk, actor=people["admin"], reason="", via="test")
    for _ in range(4):  # stop, see it end, clean, place
        turn()
    text = page(client_as, job)
    assert "to wait, until about" in text
    assert "as told" not in text  # an expectation is no promise
    assert client_as("researcher").get(f"/api/v1/jobs/{job.pk}/").json()["promise"]["kept"] is None


def test_the_cards_of_a_live_job_tell_their_use(client_as: ClientAs, running: Job) -> None:
    card = Card.objects.get(shares__allocation__attempt__job=running)
    assert "card-use" not in page(client_as, running)  # nothing was heard of the card yet
    boot = NodeBoot.objects.create(node_id=card.seats.get().node_id, boot_id="b", first_seen=database_now())
    CardStatus.objects.create(
        card=card, boot=boot, sequence=1, received_at=database_now(), utilisation_pct=None, memory_used_mib=3072,
        temperature_c=61,
    )  # fmt: skip
    text = page(client_as, running)
    assert "61 °C" in text
    assert "3 GiB" in text
    assert re.search(r"card-use[^>]*>busy —", text)  # not told, never 0


def test_the_nodes_of_a_live_job_are_drawn_with_its_own_part(
    client_as: ClientAs, people: dict[str, User], running: Job, turn: Turn
) -> None:
    stranger(people)
    turn()
    text = page(client_as, running)
    assert len(re.findall(r'<rect class="part-mine" x=', text)) == 1
    assert len(re.findall(r'<rect class="part-other" x=', text)) == 1
    assert "hidden (outside)" not in text  # the job of the other project has no name here
    assert client_as("researcher").get(f"/jobs/{running.pk}/status/").content.count(b"part-mine") >= 1


def test_the_outlook_goes_when_the_job_is_placed(client_as: ClientAs, turn: Turn) -> None:
    factories.node("n1", cards=1)
    job = submitted(client_as)
    assert 'id="job-outlook"' in page(client_as, job)
    gone = b'<div id="outlook-place" hx-swap-oob="true"></div>'
    assert gone not in client_as("researcher").get(f"/jobs/{job.pk}/status/").content
    turn()
    assert gone in client_as("researcher").get(f"/jobs/{job.pk}/status/").content
    assert 'id="job-outlook"' not in page(client_as, job)


def test_a_gang_draws_its_first_nodes_and_counts_the_rest(
    client_as: ClientAs, people: dict[str, User], turn: Turn
) -> None:
    for n in range(6):
        factories.node(f"n{n}", cards=1)
    job = factories.job(
        people["researcher"], asks=[{"form": "whole", "nodes": 6}], command=["simulate", "--seconds", "3600"]
    )
    turn()
    text = page(client_as, job)
    assert text.count('class="drawn-node"') == 4
    assert "2 more nodes are not drawn." in text


def test_a_job_that_is_held_back_says_by_whom_and_why(client_as: ClientAs, people: dict[str, User]) -> None:
    job = factories.job(people["researcher"], name="mine")
    hold_jobs(job_ids=[job.pk], order=Order(actor=people["operator"], reason="<b>cooling</b>", via="test"))
    text = page(client_as, job)
    assert "Held back by operator: &lt;b&gt;cooling&lt;/b&gt;" in text
    assert f"/audit/job/{job.pk}/" in text


def test_the_menu_leads_researchers_to_map_and_queue_and_operators_to_operations(client_as: ClientAs) -> None:
    mine, theirs = (client_as(who).get("/").content.decode() for who in ("researcher", "operator"))
    assert ('href="/ops/map/"' in mine, 'href="/ops/queue/"' in mine, 'href="/ops/"' in mine) == (True, True, False)
    assert 'href="/ops/"' in theirs
