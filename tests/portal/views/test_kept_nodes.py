"""Nodes that are kept for a waiting job: told on its page, in the queue, to those they are kept from, and by the API."""

from __future__ import annotations

import csv
from collections.abc import Callable

import pytest

from ledger.models import Job, User
from tests import factories
from tests.portal.api.client import api
from tests.portal.views.conftest import ClientAs
from tests.portal.views.test_outlook import panel

LONG = ["simulate", "--seconds", "3600"]


@pytest.fixture
def running(people: dict[str, User], turn: Callable[[], None]) -> Job:
    """Work of another project, on one of the two cards of the only node."""
    factories.node("n1", cards=2, memory_mib=16_000)
    job = factories.job(
        people["outsider"], project="outside", name="classified", command=LONG,
        asks=[{"form": "container", "memory_mib": 0}], walltime_s=600,
    )  # fmt: skip
    turn()
    return job


@pytest.fixture
def machine(running: Job, turn: Callable[[], None]) -> Job:
    """A job that waits for the whole of it."""
    job = factories.job(name="whole", asks=[{"form": "whole"}], command=LONG, priority=5)
    turn()
    return job


def test_its_page_tells_which_nodes_and_from_when(client_as: ClientAs, machine: Job) -> None:
    page = client_as("researcher").get(f"/jobs/{machine.pk}/").content.decode()
    assert "A node is kept for it:" in page
    assert '<a href="/nodes/n1/">n1</a>' in page
    assert "until then only work that should be over by then runs there" in page
    assert "small-first/1" in page
    outlook = client_as("researcher").get(f"/jobs/{machine.pk}/outlook/").content.decode()
    assert "Expected to start about" in outlook
    assert "a job of another project" in outlook


def test_the_api_names_only_jobs_that_the_person_may_see(people: dict[str, User], running: Job, machine: Job) -> None:
    mine = api(people["researcher"]).get(f"jobs/{machine.pk}/").json()["reasons"]
    kept = mine["kept"]
    assert (kept["nodes"], kept["ask_index"], kept["awaits"], kept["awaits_others"]) == (["n1"], 0, [], 1)
    assert kept["from"] > mine["at"]
    assert mine["policy"] == "small-first/1"
    assert mine["expected_s"] > 0
    all_seen = api(people["admin"]).get(f"jobs/{machine.pk}/").json()["reasons"]["kept"]
    assert (all_seen["awaits"], all_seen["awaits_others"]) == ([running.pk], 0)
    assert api(people["admin"]).get(f"jobs/{running.pk}/").json()["reasons"]["kept"] is None


def test_the_queue_has_a_column_for_it(client_as: ClientAs, machine: Job) -> None:
    page = client_as("operator").get("/ops/queue/").content.decode()
    assert "Kept for it" in page
    assert "from about" in page
    file = client_as("operator").get("/ops/queue/?export=csv")
    rows = list(csv.reader(b"".join(file).decode().splitlines()))
    [head] = [n for n, row in enumerate(rows) if row and row[0] == "Position"]
    assert rows[head + 1][rows[head].index("Kept for it")] == "n1"


def test_who_is_kept_out_is_told_why(client_as: ClientAs, machine: Job, turn: Callable[[], None]) -> None:
    text = panel(client_as, walltime_min="60")
    assert "kept for a job that has waited longer" in text
    assert "Starts now" in panel(client_as, walltime_min="1")  # it will have ended by then
    assert "Starts now" in panel(client_as, "admin", priority="9")  # before the other's turn
    late = factories.job(name="late", command=LONG, asks=[{"form": "container", "memory_mib": 1024}])
    turn()
    assert "kept for a job that has waited longer" in client_as("researcher").get(f"/jobs/{late.pk}/").content.decode()


def test_a_machine_that_is_asked_for_is_told_what_would_be_kept(client_as: ClientAs, running: Job) -> None:
    text = panel(client_as, form="whole", memory_mib="0")
    assert "Would be kept for it until then: n1" in text
    assert "Expected to start about" in text


def test_the_node_tells_whom_it_is_kept_for(client_as: ClientAs, machine: Job) -> None:
    mine = client_as("researcher").get("/nodes/n1/").content.decode()
    assert "Kept for <a" in mine
    assert f"/jobs/{machine.pk}/" in mine
    theirs = client_as("outsider").get("/nodes/n1/").content.decode()
    assert "Kept for a job of another project" in theirs
    assert f"/jobs/{machine.pk}/" not in theirs
