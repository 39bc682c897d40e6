"""Alerts, their rules and silences through the API."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import User
from ledger.vocabulary import HoldKind
from scheduler import alerting
from scheduler.alert_rows import Silence
from tests import factories
from tests.portal.api.client import api

pytestmark = pytest.mark.django_db


def fires(name: str = "n1", *, simulated: bool = False) -> None:
    node = factories.node(name, cards=1, simulated=simulated)
    place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", node=node)
    alerting.evaluate()


def test_alerts_by_state_severity_rule_and_hardware(people: dict[str, User]) -> None:
    fires("n1")
    fires("s1", simulated=True)
    caller = api(people["auditor"])

    def subjects(query: str) -> list[str]:
        return [row["subject"] for row in caller.get(f"alerts/{query}").json()["results"]]

    assert subjects("") == ["s1", "n1"]
    assert subjects("?state=firing&simulated=false") == ["n1"]
    assert subjects("?state=resolved") == subjects("?state=pending") == subjects("?severity=page") == []
    assert subjects("?rule=taken-out&severity=warn&simulated=true") == ["s1"]
    for query in ("?state=loud", "?severity=x", "?simulated=maybe", "?colour=red", "?rule=%00"):
        assert caller.get(f"alerts/{query}").status_code == 400, query


def test_one_alert_with_its_messages(people: dict[str, User]) -> None:
    fires()
    caller = api(people["operator"])
    (listed,) = caller.get("alerts/").json()["results"]
    found = caller.get(f"alerts/{listed['id']}/").json()
    assert found["text"] == "n1 is taken out of the pool (fault)."
    assert {(m["channel"], m["state"]) for m in found["messages"]} == {
        ("alertmanager", "not_configured"),
        ("webhook", "not_configured"),
    }
    assert caller.get(f"alerts/{2**64}/").status_code == 404


def test_rules_are_listed(people: dict[str, User]) -> None:
    alerting.evaluate()
    rows = api(people["manager"]).get("alert-rules/?page_size=100").json()["results"]
    assert {"temperature-high", "taken-out"} <= {row["key"] for row in rows}


def test_a_silence_is_made_listed_and_ended(people: dict[str, User]) -> None:
    caller = api(people["operator"])
    until = database_now() + dt.timedelta(hours=1)
    body = {"matchers": ["node=n1|n2", "severity!=page"], "until": until.isoformat(), "reason": "fan"}
    made = caller.post("silences/", body)
    assert (made.status_code, made.json()["matchers"]) == (201, ["node=n1|n2", "severity!=page"])
    pk = made.json()["id"]
    assert api(people["auditor"]).get("silences/").json()["results"][0]["in_force"] is True
    ended = caller.post(f"silences/{pk}/end/", {"reason": "done"}).json()
    assert (ended["ended_by"], ended["in_force"]) == ("operator", False)
    assert caller.post(f"silences/{pk}/end/", {"reason": "done"}).status_code == 409


@pytest.mark.parametrize(
    "change",
    [
        {"matchers": []},
        {"matchers": ["node"]},
        {"matchers": ["no de=x"]},
        {"matchers": "node=n1"},
        {"matchers": [1]},
        {"matchers": ["node=x"] * 21},
        {"matchers": ["priority>=high"]},
        {"until": "2020-01-01T00:00:00Z"},
        {"until": "2199-01-01T00:00:00Z"},
        {"until": "soon"},
        {"until": None},
        {"reason": ""},
        {"reason": "x" * 501},
        {"colour": "red"},
    ],
)
def test_bad_silences_are_400_and_leave_nothing(people: dict[str, User], change: dict[str, object]) -> None:
    until = (database_now() + dt.timedelta(hours=1)).isoformat()
    body = {"matchers": ["node=n1"], "until": until, "reason": "fan"} | change
    answer = api(people["operator"]).post("silences/", body)
    assert answer.status_code in (400, 422), answer.content
    assert Silence.objects.count() == 0
