"""The contract of nodes, cards, zones, projects, holds and drift, and that lists need no query a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.clock import database_now
from ledger.models import AuditEvent, Hold, Job, NodeZone, Project, User
from ledger.vocabulary import Form, HoldKind, ProjectRole
from scheduler.models import Drift
from tests import factories
from tests.portal.api.client import Api, api, is_problem, row_counts
from tests.portal.api.reports import agent_of, card, report


@pytest.mark.django_db
def test_nodes_tell_their_place_size_use_and_cards(running: Job, researcher: Api) -> None:
    (row,) = researcher.get("nodes/").json()["results"]
    assert set(row) == {
        "id", "hostname", "state", "held", "simulated", "used_form", "zone", "forms", "site", "room", "rack", "leaf",
        "cpu_milli", "host_memory_mib", "interconnect", "network", "labels", "supply", "managers", "seen_at", "cards",
    }  # fmt: skip
    assert (row["hostname"], row["zone"], row["used_form"], row["held"]) == ("n1", "flexible", "container", False)
    assert [c["slot"] for c in row["cards"]] == [0, 1]
    assert researcher.get(f"nodes/{row['id']}/").json() == row


@pytest.mark.django_db
def test_nodes_filter_by_kind_zone_and_name(people: dict[str, User], researcher: Api) -> None:
    factories.node("n1", cards=1)
    factories.node("n2", cards=1, simulated=False, in_zone=factories.zone("whole", [Form.WHOLE]))
    names = lambda **query: [row["hostname"] for row in researcher.get("nodes/", **query).json()["results"]]  # noqa: E731
    assert names() == ["n2", "n1"]
    assert names(simulated="true") == ["n1"]
    assert names(zone="whole") == ["n2"]
    assert names(hostname="n1") == ["n1"]
    assert names(zone="nope") == []


@pytest.mark.django_db
def test_cards_tell_what_is_taken_free_held_and_reported(
    running: Job, people: dict[str, User], researcher: Api
) -> None:
    node = running.attempts.get().allocations.get().node
    agent_of(node).post("agents/reports/", report(cards=[card(temperature_c=44), card("n1-card-1", slot=1)]))
    Hold.objects.create(
        card=node.seats.get(slot=1).card, kind=HoldKind.FAULT, period=(database_now(), None), reason="ecc", by=None
    )
    rows = {row["uuid"]: row for row in researcher.get("cards/", node="n1").json()["results"]}
    assert set(rows) == {"n1-card-0", "n1-card-1"}
    taken = {row["taken_mib"] for row in rows.values()}
    assert taken == {0, 1024}
    assert all(row["free_mib"] == row["memory_mib"] - row["taken_mib"] for row in rows.values())
    assert rows["n1-card-1"]["held"] == {"kind": "fault", "reason": "ecc"}
    assert rows["n1-card-0"]["status"]["temperature_c"] == 44
    assert rows["n1-card-0"]["status"]["power_mw"] is None
    assert (rows["n1-card-0"]["node"], rows["n1-card-0"]["simulated"]) == ("n1", True)
    assert researcher.get("cards/", model="H100").json()["results"] == []
    assert researcher.get("cards/", simulated="false").json()["results"] == []


@pytest.mark.django_db
def test_zones_count_their_nodes_and_cards(people: dict[str, User], researcher: Api) -> None:
    whole = factories.zone("whole", [Form.WHOLE])
    factories.zone("empty", [Form.BLOCK])
    factories.node("n1", cards=2, in_zone=whole)
    factories.node("n2", cards=4, in_zone=whole)
    factories.node("n3", cards=0, in_zone=whole)
    left = factories.node("n4", cards=8, in_zone=whole)
    NodeZone.objects.filter(node=left).delete()
    rows = {row["slug"]: row for row in researcher.get("zones/").json()["results"]}
    assert (rows["whole"]["nodes"], rows["whole"]["cards"], rows["whole"]["forms"]) == (3, 6, ["whole"])
    assert (rows["empty"]["nodes"], rows["empty"]["cards"]) == (0, 0)


@pytest.mark.django_db
def test_projects_tell_owner_time_and_members(people: dict[str, User], researcher: Api) -> None:
    (row,) = researcher.get("projects/").json()["results"]
    assert (row["slug"], row["owner"], row["department"], row["state"]) == ("vision", "owner", "research", "active")
    assert {m["user"]: m["role"] for m in row["members"]} == {
        "owner": "owner",
        "researcher": "member",
        "member": "member",
    }
    assert row["starts_on"] < row["ends_on"]


@pytest.mark.django_db
def test_an_operator_holds_and_returns_a_card_and_each_act_is_audited(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    operator = api(people["operator"])
    made = operator.post("holds/", {"card": "n1-card-0", "reason": "hot", "kind": "maintenance"})
    assert made.status_code == 201
    row = made.json()
    assert (row["card"], row["node"], row["kind"], row["by"], row["to"]) == (
        "n1-card-0",
        None,
        "maintenance",
        "operator",
        None,
    )
    assert row["from"] is not None
    again = operator.post("holds/", {"card": "n1-card-0", "reason": "hot", "kind": "maintenance"})
    assert again.json()["id"] == row["id"]  # an equal hold that stands is given back
    assert [r["id"] for r in operator.get("holds/").json()["results"]] == [row["id"]]
    ended = operator.post(f"holds/{row['id']}/end/", {"reason": "cool"})
    assert ended.json()["to"] is not None
    assert operator.get("holds/").json()["results"] == []
    before = row_counts()
    twice = operator.post(f"holds/{row['id']}/end/", {"reason": "cool"})
    assert twice.status_code == 409
    assert is_problem(twice)
    assert row_counts() == before
    assert list(
        AuditEvent.objects.filter(verb__startswith="hold").order_by("id").values_list("verb", "reason", "via")
    ) == [
        ("hold.placed", "hot", "api"),
        ("hold.ended", "cool", "api"),
    ]


@pytest.mark.django_db
def test_a_held_node_is_not_offered(people: dict[str, User], turn: Callable[[], None]) -> None:
    factories.node("n1", cards=1)
    api(people["operator"]).post("holds/", {"node": "n1", "reason": "drill", "kind": "drill"})
    job = factories.job(people["researcher"])
    turn()
    told = api(people["researcher"]).get(f"jobs/{job.pk}/").json()
    assert (told["state"], told["reasons"]["by_ask"]) == ("queued", [{"node_held": 1}])


@pytest.mark.django_db
def test_drift_tells_kind_subject_age_and_fix(people: dict[str, User]) -> None:
    now = database_now()
    Drift.objects.create(kind="agent_silent", subject="n1", detail="d", fix="start it", first_seen=now, last_seen=now)
    Drift.objects.create(
        kind="agent_silent", subject="n2", detail="d", fix="f", first_seen=now, last_seen=now, resolved_at=now
    )
    (row,) = api(people["auditor"]).get("drift/").json()["results"]
    assert (row["kind"], row["subject"], row["fix"], row["job"]) == ("agent_silent", "n1", "start it", None)
    assert row["age_s"] >= 0


def fill(people: dict[str, User], first: int, last: int) -> None:
    """A row more of everything for each number."""
    for i in range(first, last):
        node = factories.node(f"n{i}", cards=2, in_zone=factories.zone(f"z{i}"))
        factories.project(f"p{i}", researcher=ProjectRole.MEMBER, member=ProjectRole.MEMBER)
        job = factories.job(people["researcher"], project=f"p{i}")
        now = database_now()
        Hold.objects.create(node=node, kind=HoldKind.DRILL, period=(now, None), reason="x", by=people["admin"])
        Drift.objects.create(kind="k", subject=f"s{i}", detail="d", fix="f", job=job, first_seen=now, last_seen=now)


LISTS = ("jobs/", "nodes/", "cards/", "zones/", "projects/", "holds/", "drift/")


@pytest.mark.django_db
def test_lists_need_as_many_queries_for_twenty_rows_as_for_two(people: dict[str, User]) -> None:
    callers = {name: api(people[name]) for name in ("researcher", "admin")}

    def counts() -> dict[tuple[str, str], int]:
        found = {}
        for name, caller in callers.items():
            for path in LISTS:
                caller.get(path)  # whatever is cached, is now
                with CaptureQueriesContext(
                    connection,
                ) as queries:
                    assert caller.get(path).status_code == 200
                found[name, path] = len(queries)
        return found

    fill(people, 0, 2)
    few = counts()
    fill(people, 2, 20)
    assert counts() == few
    assert max(few.values()) <= 9, few


@pytest.mark.django_db
def test_a_gang_needs_as_many_queries_as_a_single_job(people: dict[str, User], turn: Callable[[], None]) -> None:
    for i in range(6):
        factories.node(f"n{i}", cards=2)
    long = {"command": ["simulate", "--seconds", "3600"]}
    one = factories.job(people["researcher"], **long)
    five = factories.job(people["researcher"], asks=[{"form": "container", "nodes": 5, "memory_mib": 1024}], **long)
    turn()
    caller = api(people["researcher"])
    needed = []
    for pk in (one.pk, five.pk):
        assert caller.get(f"jobs/{pk}/").json()["state"] == "running"
        caller.post(f"jobs/{pk}/cancel/")
        with CaptureQueriesContext(connection) as queries:
            told = caller.get(f"jobs/{pk}/")
        needed.append(len(queries))
    assert len(told.json()["placement"]) == 5
    assert needed[0] == needed[1]


@pytest.mark.django_db
def test_members_who_leave_are_not_listed(people: dict[str, User], researcher: Api) -> None:
    factories.leave(Project.objects.get(slug="vision"), people["member"])
    row: dict[str, Any] = researcher.get("projects/").json()["results"][0]
    assert "member" not in {m["user"] for m in row["members"]}
