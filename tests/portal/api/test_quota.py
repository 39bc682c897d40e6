"""Quota through the API: what is told to whom, changes, and what is refused with which field and status."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger import member_limits, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import AuditEvent, Job, Project, QuotaGrant, User
from ledger.quota import Terms
from ledger.vocabulary import Resource
from scheduler.placing import place_queued
from tests import factories
from tests.portal.api.client import api, fields, is_problem

pytestmark = pytest.mark.django_db
ONE = "projects/vision/quota/"
MILLI, CPU = Resource.CARD_MILLI, Resource.CPU_MILLI


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    return Act(people["admin"], "test", "as agreed")


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


def test_each_reads_what_they_may_see(people: dict[str, User], vision: Project, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 3000, guaranteed=1000), act=act)
    quota.set_grant(project=Project.objects.get(slug="outside"), terms=Terms(CPU, 3000), act=act)
    seen = {name: api(people[name]).get("quota/").json()["results"] for name in ("researcher", "outsider", "auditor")}
    assert {name: sorted(row["project"] for row in rows) for name, rows in seen.items()} == {
        "researcher": ["vision"],
        "outsider": ["outside"],
        "auditor": ["outside", "vision"],
    }
    [row] = seen["researcher"]
    assert {name: row[name] for name in ("resource", "amount", "guaranteed", "used")} == {
        "resource": "card_milli", "amount": 3000, "guaranteed": 1000, "used": 0,
    }  # fmt: skip
    assert row["observed_until"] is not None
    assert api(people["auditor"]).get("quota/", resource="cpu_milli").json()["results"][0]["project"] == "outside"
    assert api(people["researcher"]).get("quota/", project="outside").json()["results"] == []
    assert api(people["researcher"]).get("quota/", resource="x").status_code == 400


def test_a_change_and_its_lifting(people: dict[str, User], vision: Project) -> None:
    caller = api(people["manager"])
    until = (database_now() + dt.timedelta(days=9)).isoformat()
    body = {"resource": "card_milli", "amount": 4000, "guaranteed": 1000, "until": until, "reason": "money"}
    answer = caller.post(ONE, body)
    assert answer.status_code == 200
    [grant] = answer.json()["grants"]
    assert (grant["amount"], grant["guaranteed"]) == (4000, 1000)
    assert dt.datetime.fromisoformat(grant["until"]) == dt.datetime.fromisoformat(until)
    again = caller.post(ONE, body | {"amount": 5000})
    assert (again.status_code, fields(again)) == (409, {"override_reason"})
    assert again.json()["code"] == "observation_window"
    lift = {"resource": "card_milli", "lift": True, "reason": "no need", "override_reason": "really"}
    assert caller.post(ONE, lift).json()["grants"] == []
    assert [row.via for row in AuditEvent.objects.filter(verb__startswith="quota.")] == ["api", "api"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"amount": -1}, "amount"),
        ({"amount": 2**53 + 1}, "amount"),
        ({"amount": 1.5}, "amount"),
        ({"amount": None}, "amount"),
        ({"lift": True}, "amount"),
        ({"guaranteed": 4001}, "guaranteed"),
        ({"weight": 0}, "weight"),
        ({"resource": "cards"}, "resource"),
        ({"resource": "cpu_milli", "model": "A100"}, "model"),
        ({"until": "2020-01-01T00:00:00Z"}, "until"),
        ({"until": "soon"}, "until"),
        ({"reason": ""}, "reason"),
        ({"reason": "\u0000"}, "reason"),
        ({"renews": "month"}, "renews"),
        ({"renews": "week"}, "renews"),
        ({"more": 1}, "more"),
    ],
)
def test_what_is_wrong_is_named(people: dict[str, User], vision: Project, body: dict[str, Any], field: str) -> None:
    answer = api(people["admin"]).post(ONE, {"resource": "card_milli", "amount": 4000, "reason": "r"} | body)
    assert answer.status_code == 400
    assert is_problem(answer)
    assert fields(answer) == {field}
    assert not QuotaGrant.objects.exists()


def test_a_budget_that_renews(people: dict[str, User], vision: Project) -> None:
    body = {"resource": "card_milli_s", "amount": 10**9, "renews": "month", "reason": "money"}
    [grant] = api(people["admin"]).post(ONE, body).json()["grants"]
    assert grant["renews"] == "month"
    now = database_now()
    renews_on = dt.datetime.fromisoformat(grant["renews_on"])
    assert (renews_on.day, renews_on.hour, renews_on.utcoffset()) == (1, 0, dt.timedelta())
    assert now < renews_on <= now + dt.timedelta(days=31)
    over = {"until": (now + dt.timedelta(minutes=1)).isoformat(), "override_reason": "r"}
    [grant] = api(people["admin"]).post(ONE, body | over | {"amount": 2 * 10**9}).json()["grants"]
    assert grant["renews"] == "month"


def test_a_cut_below_use(people: dict[str, User], vision: Project) -> None:
    factories.node("n1", cards=2)
    factories.job(people["researcher"], asks=[{"form": "container", "memory_mib": 0}])
    assert place_queued()["placed"] == 1
    body = {"resource": "card_milli", "amount": 0, "reason": "r"}
    refused = api(people["admin"]).post(ONE, body)
    assert (refused.status_code, refused.json()["code"], fields(refused)) == (400, "below_use", {"amount"})
    later = (database_now() + dt.timedelta(hours=25)).isoformat()
    assert api(people["admin"]).post(ONE, body | {"drain_at": later}).status_code == 200
    [grant] = api(people["researcher"]).get(ONE).json()["grants"]
    assert (grant["used"], grant["amount"]) == (1000, 0)
    assert grant["drain_at"] is not None


def test_limits_of_members_are_their_own(people: dict[str, User], vision: Project, act: Act) -> None:
    member_limits.set_limit(project=vision, user=people["member"], resource=CPU, amount=5, act=act)
    told = {name: api(people[name]).get(ONE).json()["member_limits"] for name in ("researcher", "member", "owner")}
    assert {name: len(rows) for name, rows in told.items()} == {"researcher": 0, "member": 1, "owner": 1}


def test_what_if(people: dict[str, User], vision: Project, act: Act) -> None:
    factories.node("n1", cards=2, memory_mib=16_000)
    quota.set_grant(project=vision, terms=Terms(MILLI, 1500), act=act)
    asks = [{"form": "container", "memory_mib": 4000}]
    spec = {"project": "vision", "name": "x", "asks": asks, "command": ["x"], "simulated": True}
    answer = api(people["researcher"]).post("jobs/what-if/", spec).json()
    assert (answer["verdict"], answer["nodes"]) == ("now", ["n1"])
    assert answer["takes"] == [
        {
            "limit": "quota", "resource": "card_milli", "model": "", "takes": 250, "left": 1500, "amount": 1500,
            "exact": True, "renews_on": None,
        }
    ]  # fmt: skip
    wide = api(people["researcher"]).post(
        "jobs/what-if/", spec | {"asks": [{"form": "container", "cards_per_node": 2}]}
    )
    assert wide.json()["verdict"] == "later"
    assert wide.json()["reasons"] == [{"quota": 1}]
    assert wide.json()["takes"][0] | {"takes": 2000, "exact": False} == wide.json()["takes"][0]
    assert not Job.objects.exists()
