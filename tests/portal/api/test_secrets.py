"""Canaries: no token or password appears in a log line, an answer, an audit row or any other row of the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from ledger.audit import record
from ledger.models import ApiToken, User
from ledger.people import create_node_token
from portal.api import answers
from tests import factories
from tests.portal.api.client import Api, token_of
from tests.portal.api.reports import report

PASSWORD = "canary-password-4f1c"


def every_row() -> str:
    """All rows of all tables as text."""
    text = []
    with connection.cursor() as cursor:
        for model in apps.get_models():
            cursor.execute(f"SELECT t::text FROM {model._meta.db_table} t")
            text += [row[0] for row in cursor.fetchall()]
    return "\n".join(text)


@pytest.mark.django_db
def test_secrets_stay_where_they_are(
    people: dict[str, User], spec: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    node = factories.node("n1", cards=1)
    people["researcher"].set_password(PASSWORD)
    people["researcher"].save(update_fields=["password"])
    token, agent_token = token_of(people["researcher"]), create_node_token(node=node, actor=None, via="test")
    caller, agent = Api(token), Api(agent_token, "Agent")
    answers_given = [
        caller.post("jobs/", spec(), Idempotency_Key="k"),
        caller.post("jobs/", spec(name="other"), Idempotency_Key="k"),
        caller.post("jobs/", {}),
        caller.get("jobs/999/"),
        caller.get("jobs/", token=token),
        caller.send("DELETE", "jobs/"),
        Api(token + "x").get("jobs/"),
        Api(token, "Agent").post("agents/reports/", report()),
        Api(agent_token).get("jobs/"),
        agent.post("agents/reports/", report()),
        agent.post("agents/reports/", report(hostname="n2")),
        agent.post("agents/reports/", {"hostname": 1}),
        Api().http.post("/sign-in/", {"username": "researcher", "password": PASSWORD}),
        Api().http.post("/sign-in/", {"username": "nobody", "password": PASSWORD}),
    ]
    monkeypatch.setattr(answers, "job_brief", broken)
    answers_given.append(caller.get("jobs/"))
    assert answers_given[-1].status_code == 500
    told = [response.content.decode("utf-8", "replace") for response in answers_given]
    places = {"log": caplog.text, "rows": every_row(), "answers": "\n".join(told)}
    secrets = {"token": token, "agent token": agent_token, "password": PASSWORD}
    found = [(name, place) for place, text in places.items() for name, secret in secrets.items() if secret in text]
    assert found == []
    assert "the page breaks" in places["log"]  # the log was really read


def broken(job: Any) -> Any:
    raise RuntimeError("the page breaks")


@pytest.mark.django_db
def test_the_search_for_secrets_finds_a_planted_one(people: dict[str, User]) -> None:
    record(actor=None, via="test", verb="x", target=people["admin"], after={"token": "canary-planted"})
    assert "canary-planted" in every_row()


@pytest.mark.django_db
def test_only_digests_of_tokens_are_stored(people: dict[str, User]) -> None:
    secret = token_of(people["researcher"])
    row = ApiToken.objects.get()
    assert len(row.digest) == 64
    assert secret not in (row.digest, row.label, str(row), repr(row))


@pytest.mark.django_db
def test_a_servers_error_tells_nothing_of_its_inside(people: dict[str, User], monkeypatch: Any) -> None:
    monkeypatch.setattr(answers, "job_brief", broken)
    factories.job(people["researcher"])
    answer = Api(token_of(people["researcher"])).get("jobs/")
    assert answer.status_code == 500
    assert not [
        word for word in ("the page breaks", "Traceback", "RuntimeError", "/portal/") if word in answer.content.decode()
    ]
