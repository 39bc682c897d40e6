"""Policies through the API: what is told to whom, new versions, previews, and what is refused with which field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import AuditEvent, Job, User
from scheduler.policy_rows import JobPolicy, PolicyVersion
from tests import factories
from tests.portal.api.client import api, fields, is_problem

pytestmark = pytest.mark.django_db
Spec = Callable[..., dict[str, Any]]


def test_a_version_its_successor_and_its_withdrawal(people: dict[str, User]) -> None:
    caller = api(people["manager"])
    zone = factories.zone("home")
    body = {
        "project": "vision", "kind": "training", "forms": ["container", "whole"], "fallback_wait_s": 600,
        "zones": ["home"], "priority_default": 1, "priority_most": 5, "walltime_default_s": 60,
        "walltime_most_s": 3600, "reason": "as agreed", "shown": 0,
    }  # fmt: skip
    made = caller.post("policies/", body)
    assert made.status_code == 201, made.content
    told = made.json()
    assert made["Location"] == f"/api/v1/policies/{told['id']}/"
    assert {name: told[name] for name in ("project", "department", "kind")} == {
        "project": "vision", "department": None, "kind": "training",
    }  # fmt: skip
    says = told["version"]["says"]
    assert says == {name: body[name] for name in says}
    assert PolicyVersion.objects.get().zones == [zone.pk]
    stale = caller.post("policies/", body | {"priority_most": 6})
    assert (stale.status_code, stale.json()["code"]) == (409, "changed")
    assert caller.post("policies/", body | {"priority_most": 6, "shown": 1}).status_code == 201
    gone = {"project": "vision", "kind": "training", "withdraw": True, "reason": "no need"}
    assert caller.post("policies/", gone).json()["version"]["withdrawn"] is True
    detail = api(people["researcher"]).get(f"policies/{told['id']}/").json()
    assert [(one["number"], one["withdrawn"]) for one in detail["versions"]] == [(3, True), (2, False), (1, False)]
    assert [row.via for row in AuditEvent.objects.filter(verb__startswith="policy.")] == ["api"] * 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "forms"),
        ({"forms": []}, "forms"),
        ({"forms": ["auto"]}, "forms.0"),
        ({"forms": ["block", "block"]}, "forms"),
        ({"fallback_wait_s": -1}, "fallback_wait_s"),
        ({"zones": ["nowhere"]}, "zones"),
        ({"zones": []}, "zones"),
        ({"priority_most": 101}, "priority_most"),
        ({"priority_default": 2, "priority_most": 1}, "priority_default"),
        ({"walltime_most_s": 0}, "walltime_most_s"),
        ({"walltime_most_s": 1.5}, "walltime_most_s"),
        ({"project": "nowhere", "priority_most": 1}, "project"),
        ({"department": "nowhere", "priority_most": 1}, "department"),
        ({"project": "vision", "department": "research", "priority_most": 1}, "department"),
        ({"kind": "nothing", "priority_most": 1}, "kind"),
        ({"withdraw": True, "priority_most": 1}, "withdraw"),
        ({"priority_most": 1, "reason": ""}, "reason"),
        ({"priority_most": 1, "reason": "\u0000"}, "reason"),
        ({"priority_most": 1, "shown": -1}, "shown"),
        ({"priority_most": 1, "more": 1}, "more"),
    ],
)
def test_what_is_wrong_is_named(people: dict[str, User], body: dict[str, Any], field: str) -> None:
    answer = api(people["admin"]).post("policies/", {"reason": "r"} | body)
    assert answer.status_code == 400, answer.content
    assert is_problem(answer)
    assert fields(answer) == {field}
    assert not JobPolicy.objects.exists()


def test_what_holds_and_where_it_comes_from(people: dict[str, User]) -> None:
    caller = api(people["admin"])
    caller.post("policies/", {"department": "research", "priority_most": 9, "walltime_most_s": 60, "reason": "r"})
    caller.post("policies/", {"project": "vision", "priority_most": 7, "reason": "r"})
    told = api(people["researcher"]).get("policies/effective/", project="vision", kind="data").json()
    assert (told["project"], told["kind"]) == ("vision", "data")
    holds = {name: (one["value"], one["from"]["department"]) for name, one in told["holds"].items() if one}
    assert holds == {"priority_most": (7, None), "walltime_most_s": (60, "research")}
    assert api(people["researcher"]).get("policies/effective/", project="vision", kind="x").status_code == 400


def test_a_preview_counts_and_writes_nothing(people: dict[str, User]) -> None:
    factories.job(people["researcher"], priority=5)
    factories.job(people["researcher"])
    told = api(people["admin"]).post("policies/preview/", {"priority_most": 4, "priority_default": 1}).json()
    assert (told["jobs"], told["refused"], told["changed"], told["other"]) == (2, {"priority": 1}, {"priority": 1}, 1)
    assert [one["refused"] for one in told["examples"]] == [None, "priority"]
    assert not JobPolicy.objects.exists()
    assert api(people["admin"]).post("policies/preview/", {}).status_code == 400


def test_a_job_tells_what_policies_made_of_it(people: dict[str, User], spec: Spec) -> None:
    caller = api(people["admin"])
    home = factories.zone("home")
    factories.node("n1", cards=1, in_zone=home)
    body = {"project": "vision", "forms": ["whole", "block"], "fallback_wait_s": 60, "zones": ["home"], "reason": "r"}
    made = caller.post("policies/", body | {"priority_default": 3, "walltime_most_s": 600}).json()
    job = spec(asks=[{"form": "auto"}])
    tried = api(people["researcher"]).post("jobs/what-if/", job).json()
    assert (tried["verdict"], tried["nodes"], tried["job"]["priority"]) == ("now", ["n1"], 3)
    told = api(people["researcher"]).post("jobs/", job).json()
    assert told["policies"] == tried["policies"]
    lines = {line["field"]: (line["was"], line["now"], line["why"]) for line in told["policies"]["lines"]}
    assert lines == {
        "forms": ("auto", ["whole", "block"], "order"),
        "fallback_wait_s": (None, 60, "wait"),
        "priority": (None, 3, "default"),
        "walltime_s": (None, 600, "most"),
        "zones": (None, ["home"], "zones"),
    }
    assert {(line["from"]["policy"], line["from"]["version"]) for line in told["policies"]["lines"]} == {
        (made["id"], 1)
    }
    assert Job.objects.get().zones == [home.pk]


@pytest.mark.parametrize(("more", "field"), [({"priority": 6}, "priority"), ({"walltime_s": 601}, "walltime_s")])
def test_more_than_a_policy_allows_is_a_problem_of_its_field(
    people: dict[str, User], spec: Spec, more: dict[str, int], field: str
) -> None:
    api(people["admin"]).post("policies/", {"priority_most": 5, "walltime_most_s": 600, "reason": "r"})
    for path in ("jobs/", "jobs/what-if/"):
        answer = api(people["researcher"]).post(path, spec(priority=5, walltime_s=600) | more)
        assert (answer.status_code, answer.json()["code"], fields(answer)) == (400, "above_policy", {field})
        assert is_problem(answer)
    assert not Job.objects.exists()
