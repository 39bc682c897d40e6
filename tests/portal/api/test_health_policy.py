"""The health policy through the API, and that a report with an XID 79 closes its node at once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from ledger import health_policy, inventory
from ledger.clock import database_now
from ledger.health_defaults import DEFAULT
from ledger.models import Allocation, Case, Fault, HealthEvent, HealthVersion, Hold, User
from ledger.vocabulary import FaultKind, HoldKind, JobState
from scheduler import placing, snapshot
from tests import factories
from tests.portal.api.client import api, fields, is_problem
from tests.portal.api.reports import agent_of, card, fault, report

PATH = "health/policy/"


def body(**values: Any) -> dict[str, Any]:
    rules = [{"kind": kind, "action": "log"} for kind in FaultKind if kind is not FaultKind.XID]
    return {"rules": [*rules, {"kind": "xid", "code": 48, "action": "rma"}], "reason": "as agreed"} | values


@pytest.mark.django_db
def test_a_version_its_history_and_its_withdrawal(people: dict[str, User]) -> None:
    factories.node("n1", site="north")
    caller = api(people["admin"])
    told = caller.get(PATH).json()
    assert (told["version"], len(told["rules"])) == (0, len(DEFAULT.rules))
    made = caller.post(PATH, body(site="north", shown=0))
    assert made.status_code == 201, made.content
    assert made["Location"] == "/api/v1/health/policy/versions/1/"
    told = api(people["outsider"]).get(PATH, site="north").json()
    xid = [rule for rule in told["rules"] if rule["kind"] == "xid"]
    assert [(rule["code"], rule["action"], rule["by_hand"]) for rule in xid] == [(48, "rma", True)]
    assert caller.get(PATH).json()["version"] == 0
    stale = caller.post(PATH, body(site="north", shown=0, inspect_after=5))
    assert (stale.status_code, stale.json()["code"]) == (409, "changed")
    gone = caller.post(PATH, {"site": "north", "withdraw": True, "reason": "no need"})
    assert gone.json()["withdrawn"] is True
    listed = caller.get("health/policy/versions/").json()["results"]
    assert [(one["number"], one["withdrawn"]) for one in listed] == [(2, True), (1, False)]
    assert caller.get("health/policy/versions/1/").json()["reason"] == "as agreed"
    assert caller.get(PATH, site="nowhere").status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"rules": None}, "rules"),
        ({"rules": []}, "rules"),
        ({"rules": [{"kind": "xid", "code": 1, "action": "log"}]}, "rules"),
        ({"site": "nowhere"}, "site"),
        ({"inspect_after": 0}, "inspect_after"),
        ({"inspect_window_s": 59}, "inspect_window_s"),
        ({"withdraw": True}, "withdraw"),
        ({"unknown": 1}, "unknown"),
        ({"reason": ""}, "reason"),
    ],
)
def test_bad_versions_are_refused(people: dict[str, User], values: dict[str, Any], field: str) -> None:
    answer = api(people["admin"]).post(PATH, body(**values))
    assert answer.status_code == 400 or answer.status_code == 422, answer.content
    assert is_problem(answer)
    assert field in str(fields(answer)) or field in answer.content.decode()
    assert not HealthVersion.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_xid_79_closes_its_node_in_the_commit_that_counts_it(people: dict[str, User]) -> None:
    """By the database's clock under a second from the report to the hold, and the next round avoids the node."""
    factories.constant_rows()
    n1 = factories.node("n1", cards=2, simulated=False, driver="local")
    n2 = factories.node("n2", cards=2, simulated=False, driver="local")
    agent = agent_of(n1)
    job = factories.job(people["researcher"], simulated=False, asks=[{"form": "container", "memory_mib": 0}])
    snapshot.forget()
    sent = database_now()
    cards = [card(), card("n1-card-1", 1)]
    assert agent.post("agents/reports/", report(cards=cards, faults=[fault()])).status_code == 200
    hold, counted, event = Hold.objects.get(), Fault.objects.get(), HealthEvent.objects.get()
    assert (hold.node, hold.kind, hold.rule) == (n1, HoldKind.FAULT, "health/0")
    assert hold.period.lower - sent < dt.timedelta(seconds=1)
    assert (event.fault, event.hold, event.case) == (counted, hold, Case.objects.get())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT h.xmin::text, f.xmin::text, e.xmin::text FROM ledger_hold h, ledger_fault f, ledger_healthevent e"
        )
        assert len(set(cursor.fetchone())) == 1
    assert placing.place_queued()["placed"] == 1
    job.refresh_from_db()
    assert (job.state, Allocation.objects.get().node) == (JobState.STARTING, n2)
    other = factories.job(people["researcher"], simulated=False, asks=[{"form": "whole"}])
    placing.place_queued()
    other.refresh_from_db()
    assert other.state == JobState.QUEUED
    inventory.end_hold(hold_id=hold.pk, reason="back", actor=None, via="test")
    placing.place_queued()
    other.refresh_from_db()
    assert (other.state, Allocation.objects.latest("pk").node) == (JobState.STARTING, n1)


@pytest.mark.django_db
def test_a_version_that_another_site_has_is_not_this_ones(people: dict[str, User]) -> None:
    factories.node("n1", site="north")
    api(people["admin"]).post(PATH, body(site="north"))
    assert health_policy.in_force("south").number == 0
