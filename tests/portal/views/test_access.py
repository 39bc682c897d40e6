"""Signing in and out, and what a page says to whom. Every address by role is in test_matrix.py."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Job
from tests.factories import PASSWORD
from tests.portal.views.conftest import ClientAs

PLAIN = ["home", "account", "jobs", "submit", "nodes", "books", "books-chart"]
OF_A_JOB = ["job", "job-status", "job-application", "job-log", "job-log-file"]
POSTED = ["theme", "job-cancel"]
PEOPLE = ["researcher", "member", "outsider", "owner", "operator", "manager", "auditor", "admin"]


def address(name: str, job: Job) -> str:
    if name == "node":
        return reverse("node", args=["n1"])
    return reverse(name, args=[job.pk] if name.startswith("job") and name != "jobs" else [])


def test_a_stranger_is_sent_to_the_sign_in_page_and_back(client: Client, running: Job) -> None:
    for page in (address(name, running) for name in [*PLAIN, *OF_A_JOB, "node"]):
        response = client.get(page)
        assert (response.status_code, response["Location"]) == (302, f"/sign-in/?next={page}")


def test_a_stranger_can_post_nothing(client: Client, running: Job) -> None:
    assert {client.post(address(name, running)).status_code for name in POSTED} == {302}
    running.refresh_from_db()
    assert running.state == "running"


@pytest.mark.parametrize("who", PEOPLE)
def test_everybody_signed_in_opens_the_common_pages(client_as: ClientAs, running: Job, who: str) -> None:
    client = client_as(who)
    codes = {name: client.get(address(name, running)).status_code for name in [*PLAIN, "node"]}
    assert codes == dict.fromkeys(codes, 200)


@pytest.mark.parametrize("who", [p for p in PEOPLE if p != "outsider"])
def test_members_and_site_roles_open_a_job(client_as: ClientAs, running: Job, who: str) -> None:
    client = client_as(who)
    assert {name: client.get(address(name, running)).status_code for name in OF_A_JOB} == dict.fromkeys(OF_A_JOB, 200)


def test_a_job_of_another_project_is_not_there_for_an_outsider(client_as: ClientAs, running: Job) -> None:
    client = client_as("outsider")
    assert {name: client.get(address(name, running)).status_code for name in OF_A_JOB} == dict.fromkeys(OF_A_JOB, 404)


def test_an_outsider_cannot_cancel_what_they_cannot_see(client_as: ClientAs, running: Job) -> None:
    response = client_as("outsider").post(address("job-cancel", running), {"reason": "mine now"})
    running.refresh_from_db()
    assert (response.status_code, running.state) == (404, "running")


def test_pages_are_read_with_get_and_head_alone(client_as: ClientAs, running: Job) -> None:
    client = client_as("researcher")
    for page in (address(name, running) for name in [*PLAIN, "node", "job"]):
        assert (client.head(page).status_code, client.delete(page).status_code) == (200, 405)


def test_a_poll_after_the_session_ended_reloads_the_page(client: Client, running: Job) -> None:
    response = client.get(address("job-status", running), headers={"HX-Request": "true"})
    assert (response.status_code, response["HX-Refresh"]) == (200, "true")


def test_signing_in_and_out(client: Client, people: dict[str, object]) -> None:
    response = client.post("/sign-in/?next=/jobs/", {"username": "researcher", "password": PASSWORD, "next": "/jobs/"})
    assert response["Location"] == "/jobs/"
    assert client.get("/").status_code == 200
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/")["Location"] == "/sign-in/"
    assert client.get("/").status_code == 302


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_signing_in_never_leads_to_another_site(client: Client, people: dict[str, object], target: str) -> None:
    response = client.post("/sign-in/", {"username": "researcher", "password": PASSWORD, "next": target})
    assert response["Location"] == "/"
