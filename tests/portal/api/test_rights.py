"""Extra rights through the API: given, listed and withdrawn, and what is refused with which field and status."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import AuditEvent, OddGrant, User
from tests import factories
from tests.portal.api.client import Api, api, fields, is_problem

pytestmark = pytest.mark.django_db


def body(**values: Any) -> dict[str, Any]:
    until = (database_now() + dt.timedelta(days=7)).isoformat()
    said = {"user": "researcher", "zone": "flexible", "until": until, "reason": "night shift"} | values
    return {name: value for name, value in said.items() if value is not None}


@pytest.fixture
def admin(people: dict[str, User]) -> Api:
    factories.zone()
    return api(people["admin"])


def test_a_right_is_given_read_and_withdrawn(admin: Api, people: dict[str, User]) -> None:
    sent = body()
    made = admin.post("rights/", sent)
    assert made.status_code == 201
    found = made.json()
    assert made["Location"] == f"/api/v1/rights/{found['id']}/"
    told = {
        name: found[name] for name in ("user", "kind", "zone", "department", "state", "reason", "by", "withdrawn_by")
    }
    assert told == {
        "user": "researcher",
        "kind": "zone_operator",
        "zone": "flexible",
        "department": None,
        "state": "in_force",
        "reason": "night shift",
        "by": "admin",
        "withdrawn_by": None,
    }
    assert dt.datetime.fromisoformat(found["until"]) == dt.datetime.fromisoformat(sent["until"])
    assert api(people["researcher"]).get(f"rights/{found['id']}/").json() == found
    ended = admin.post(f"rights/{found['id']}/withdraw/", {"reason": "over"}).json()
    assert (ended["state"], ended["withdrawn_by"]) == ("withdrawn", "admin")
    assert admin.post(f"rights/{found['id']}/withdraw/", {"reason": "over"}).status_code == 409
    assert [row.via for row in AuditEvent.objects.filter(target_type="oddgrant").order_by("pk")] == ["api", "api"]


def test_each_lists_what_they_may_see(admin: Api, people: dict[str, User]) -> None:
    for name in ("researcher", "member"):
        admin.post("rights/", body(user=name, zone=None, department="research"))
    seen = {
        name: sorted(row["user"] for row in api(people[name]).get("rights/").json()["results"])
        for name in ("researcher", "outsider", "auditor")
    }
    # who audits the department sees who else does
    assert seen == {"researcher": ["member", "researcher"], "outsider": [], "auditor": ["member", "researcher"]}
    only = api(people["auditor"]).get("rights/", user="member").json()["results"]
    assert [row["user"] for row in only] == ["member"]


WRONG: list[tuple[str, dict[str, Any], int, set[str]]] = [
    ("no place", {"zone": None}, 400, {"zone"}),
    ("two places", {"department": "research"}, 400, {"zone"}),
    ("an unknown zone", {"zone": "nope"}, 400, {"zone"}),
    ("an unknown person", {"user": "nope"}, 400, {"user"}),
    ("no time zone", {"until": "2027-01-01T00:00:00"}, 400, {"until"}),
    ("in the past", {"until": "2020-01-01T00:00:00Z"}, 400, {"until"}),
    ("too long", {"until": "2150-01-01T00:00:00Z"}, 400, {"until"}),
    ("no reason", {"reason": None}, 400, {"reason"}),
    ("themselves", {"user": "admin"}, 403, {"user"}),
    ("an operator", {"user": "operator"}, 409, {"user"}),
    ("more than it takes", {"kind": "auditor"}, 400, {"kind"}),
]


@pytest.mark.parametrize(("what", "values", "status", "named"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_refused_with_its_field(
    admin: Api, what: str, values: dict[str, Any], status: int, named: set[str]
) -> None:
    answer = admin.post("rights/", body(**values))
    assert (answer.status_code, fields(answer)) == (status, named)
    assert is_problem(answer)
    assert not OddGrant.objects.exists()
