"""Random JSON to every address that takes some: answered or refused, never a server error. The seed is fixed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.models import User
from tests import factories
from tests.portal.api.client import Api, api, is_problem
from tests.portal.api.reports import agent_of, card, fault, report

GIVEN_JOB = {"project": "vision", "name": "x", "asks": [{"form": "container"}], "command": ["x"], "simulated": True}
ASK_FIELDS = ("form", "nodes", "cards_per_node", "memory_mib", "after_s", "model", "compute_milli", "profile", "other")
JOB_FIELDS = (
    *[
        "project",
        "name",
        "kind",
        "asks",
        "cpu_milli",
        "host_memory_mib",
        "interconnect",
        "distance",
        "labels",
        "reproducible",
        "like_job",
        "command",
        "environment",
        "image",
    ],
    *["data_paths", "walltime_s", "priority", "preemptible", "checkpoint", "key_work", "simulated", "other"],
)
REPORT_FIELDS = ("hostname", "boot_id", "sequence", "sent_at", "virtual", "node", "cards", "links", "faults")
CARD_FIELDS = ("uuid", "slot", "model", "memory_mib", "memory_used_mib", "temperature_c", "ecc", "processes", "lost")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-2, 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(
        ["container", "block", "whole", "auto", "any", "vision", "n1", "n1-card-0", "1g.10gb", "2026-01-01T00:00:00Z"]
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
fuzz = settings(
    max_examples=80,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def changes(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), VALUES, min_size=1, max_size=3)


@pytest.fixture
def caller(people: dict[str, User]) -> Api:
    return api(people["researcher"])


def check(response: Any) -> None:
    assert response.status_code < 500, response.content[:500]
    assert response.status_code < 400 or is_problem(response)


@pytest.mark.django_db
@fuzz
@given(body=VALUES | changes(JOB_FIELDS).map(lambda c: GIVEN_JOB | c))
def test_jobs(caller: Api, body: Any) -> None:
    check(caller.post("jobs/", body))


@pytest.mark.django_db
@fuzz
@given(ask=changes(ASK_FIELDS))
def test_asks(caller: Api, ask: dict[str, Any]) -> None:
    check(caller.post("jobs/", GIVEN_JOB | {"asks": [{"form": "container"} | ask]}))


@pytest.mark.django_db
@fuzz
@given(body=VALUES)
def test_cancelling(caller: Api, people: dict[str, User], body: Any) -> None:
    check(caller.post(f"jobs/{factories.job(people['researcher']).pk}/cancel/", body))


@pytest.mark.django_db
def test_holds(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    operator = api(people["operator"])

    @fuzz
    @given(body=VALUES | changes(("node", "card", "kind", "reason", "other")))
    def run(body: Any) -> None:
        made = operator.post("holds/", body)
        check(made)
        if made.status_code == 201:
            check(operator.post(f"holds/{made.json()['id']}/end/", body))

    run()


@pytest.mark.django_db
def test_reports(people: dict[str, User]) -> None:
    agent = agent_of(factories.node("n1", cards=1))
    good = report(faults=[fault()])
    parts = (
        VALUES
        | changes(REPORT_FIELDS).map(lambda c: good | c)
        | changes(CARD_FIELDS).map(lambda c: good | {"cards": [card() | c]})
        | changes(("id", "kind", "code", "card_uuid", "at", "message")).map(lambda c: good | {"faults": [fault() | c]})
        | changes(("a", "b", "kind", "gbps")).map(lambda c: good | {"links": [{"a": "x", "b": "y", "kind": "z"} | c]})
    )

    @fuzz
    @given(body=parts)
    def run(body: Any) -> None:
        check(agent.post("agents/reports/", body))

    run()


@pytest.mark.django_db
@fuzz
@given(
    path=st.sampled_from(["jobs/", "nodes/", "cards/", "holds/", "drift/", "books/balance/", "projects/"]),
    query=st.dictionaries(
        st.sampled_from(
            [
                "state",
                "project",
                "simulated",
                "zone",
                "hostname",
                "node",
                "model",
                "cursor",
                "page_size",
                "from",
                "to",
                "rank",
                "x",
            ]
        )
        | st.text(max_size=5),
        st.text(max_size=12) | st.sampled_from(["true", "1", "queued", "2026-01-01T00:00:00Z", "cD0x"]),
        max_size=3,
    ),
)
def test_queries(caller: Api, path: str, query: dict[str, str]) -> None:
    check(caller.get(path, **{k: v.encode("utf-8", "replace") for k, v in query.items() if k.isprintable()}))
