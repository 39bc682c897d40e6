"""Who operates one zone: its machines, what stands on them, and nothing of the rest."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from ledger import holds, inventory, odd_grants
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Forbidden
from ledger.inventory import SYNC_RULE, ZONE_PLAN_RULE
from ledger.models import Allocation, Attempt, AuditEvent, Hold, Job, Node, NodeZone, OddGrant, Project, User
from ledger.vocabulary import HoldKind, Resource
from scheduler import queue
from scheduler.models import Drift, Preemption
from tests import factories
from tests.portal.api.client import api
from tests.portal.views.lean import LeanClient
from tests.portal.views.test_odd_grant_access import person

pytestmark = pytest.mark.django_db
LONG = ["simulate", "--seconds", "3600"]


@pytest.fixture
def jobs(people: dict[str, User], turn: Callable[[], None]) -> dict[str, Job]:
    """One of outsider in each zone, one that waits, and one over both zones."""
    for name in ("here", "there"):
        factories.node(name, cards=2, in_zone=factories.zone(name), labels=[name])
    values = {"project": "outside", "command": LONG}
    asks = {"cards_per_node": 1, "memory_mib": 1024, "form": "container"}
    made = {
        name: factories.job(people["outsider"], name=f"work {name}", labels=[name], asks=[asks], **values)
        for name in ("here", "there")
    }
    made["both"] = factories.job(people["outsider"], name="work both", asks=[asks | {"nodes": 2}], **values)
    turn()
    made["waits"] = factories.any_job(
        people["outsider"], name="work waits", labels=["here"], asks=[asks | {"cards_per_node": 9}], **values
    )
    turn()
    found = {name: Job.objects.get(pk=job.pk) for name, job in made.items()}
    assert {name: job.state for name, job in found.items()} == {
        "here": "running",
        "there": "running",
        "both": "running",
        "waits": "queued",
    }
    return found


@pytest.fixture
def someone(jobs: dict[str, Job]) -> User:
    return person("someone", factories.zone("here"))


def browser(user: User) -> LeanClient:
    client = LeanClient()
    client.force_login(user)
    return client


def fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)


def test_they_see_what_stands_in_their_zone_and_cancel_what_stands_nowhere_else(
    jobs: dict[str, Job], someone: User
) -> None:
    caller, seen = api(someone), {}
    for name, job in jobs.items():
        got = caller.get(f"jobs/{job.pk}/").status_code
        may = queue.may_cancel(job, fresh(someone)) if got == 200 else None
        seen[name] = (got, may)
    assert seen == {"here": (200, True), "there": (404, None), "both": (200, False), "waits": (404, None)}
    listed = {row["id"] for row in caller.get("jobs/").json()["results"]}
    assert listed == {jobs["here"].pk, jobs["both"].pk}
    codes = {name: caller.post(f"jobs/{job.pk}/cancel/", {"reason": "drain"}).status_code for name, job in jobs.items()}
    assert codes == {"here": 200, "there": 404, "both": 403, "waits": 404}


def test_a_job_that_has_left_the_zone_is_no_longer_theirs_to_see(
    jobs: dict[str, Job], someone: User, turn: Callable[[], None]
) -> None:
    queue.cancel(job_id=jobs["here"].pk, actor=factories.user("outsider"), reason="x", via="test")
    for _ in range(3):
        turn()
    assert api(someone).get(f"jobs/{jobs['here'].pk}/").status_code == 404


def test_the_project_of_such_a_job_stays_hidden(jobs: dict[str, Job], someone: User) -> None:
    client = browser(someone)
    assert client.get(reverse("job", args=[jobs["here"].pk])).status_code == 200
    assert client.get(reverse("project", args=["outside"])).status_code == 404
    assert "outside" not in client.get(reverse("projects")).content.decode()


CODES = {"here": (200, 302, 302, 302), "there": (403, 403, 403, 403)}


@pytest.mark.parametrize("where", CODES)
def test_nodes_and_cards_are_held_and_returned_in_the_zone_alone(someone: User, where: str) -> None:
    client = browser(someone)
    said = {"reason": "fan", "confirm": "yes"}
    preview = client.get(f"{reverse('nodes-hold')}?key={where}").status_code
    hold = client.post(reverse("nodes-hold"), said | {"key": where, "kind": "fault"}).status_code
    card = client.post(reverse("cards-hold"), said | {"key": f"{where}-card-0", "kind": "fault"}).status_code
    back = client.post(reverse("nodes-return"), said | {"key": where}).status_code
    assert (preview, hold, card, back) == CODES[where]
    assert Hold.objects.count() == (2 if where == "here" else 0)


def test_one_node_of_another_zone_stops_the_whole_act(someone: User) -> None:
    answer = browser(someone).post(
        reverse("nodes-hold"), {"key": ["here", "there"], "kind": "fault", "reason": "fan", "confirm": "yes"}
    )
    assert answer.status_code == 403
    assert not Hold.objects.exists()


def test_holds_by_the_api_in_the_zone_alone(someone: User) -> None:
    caller = api(someone)
    codes = {}
    for where in ("here", "there"):
        for thing in ({"node": where}, {"card": f"{where}-card-1"}):
            codes[json.dumps(thing)] = caller.post("holds/", {**thing, "kind": "fault", "reason": "x"}).status_code
    assert list(codes.values()) == [201, 201, 403, 403]
    theirs = Hold.objects.order_by("pk").first()
    node = factories.node("far", in_zone=factories.zone("there"))
    other = Hold.objects.create(node=node, kind=HoldKind.DRILL, reason="x", period=(theirs.period.lower, None))  # type: ignore[union-attr]
    ends = [caller.post(f"holds/{hold.pk}/end/", {"reason": "x"}).status_code for hold in (theirs, other)]  # type: ignore[union-attr]
    assert ends == [200, 403]


def test_a_node_that_moved_to_another_zone_is_no_longer_theirs(someone: User) -> None:
    NodeZone.objects.filter(node__hostname="here").update(zone=factories.zone("there"))
    answer = api(someone).post("holds/", {"node": "here", "kind": "fault", "reason": "x"})
    assert answer.status_code == 403


@pytest.mark.parametrize("end", ["over", "withdrawn", "left"])
def test_nothing_is_left_when_it_is_over(jobs: dict[str, Job], someone: User, end: str) -> None:
    caller = api(someone)
    assert caller.get(f"jobs/{jobs['here'].pk}/").status_code == 200
    if end == "withdrawn":
        admin = Act(factories.user("admin"), "test", "x")
        odd_grants.withdraw(grant=OddGrant.objects.get(user=someone), act=admin)
    elif end == "left":
        User.objects.filter(pk=someone.pk).update(is_active=False)
    else:
        someone = person("another", factories.zone("here"), -7, -0.0001)
        caller = api(someone)
    code = 401 if end == "left" else 404
    assert caller.get(f"jobs/{jobs['here'].pk}/").status_code == code
    assert caller.post("holds/", {"node": "here", "kind": "fault", "reason": "x"}).status_code == min(code, 403)
    assert not fresh(someone).operates_somewhere


def test_the_queue_and_zone_plans_stay_with_the_site(jobs: dict[str, Job], someone: User) -> None:
    client = browser(someone)
    assert client.get(f"{reverse('queue-act', args=['hold'])}?key={jobs['waits'].pk}").status_code == 403
    assert client.get(reverse("zones-plan")).status_code == 403
    assert "work waits" not in client.get(reverse("queue")).content.decode()


def test_pages_offer_the_acts_where_they_are_theirs(someone: User) -> None:
    client = browser(someone)
    act = reverse("nodes-hold")
    offered = {name: act in client.get(reverse("node", args=[name])).content.decode() for name in ("here", "there")}
    assert offered == {"here": True, "there": False}
    card = reverse("cards-hold")
    offered = {
        name: card in client.get(reverse("card", args=[f"{name}-card-0"])).content.decode()
        for name in ("here", "there")
    }
    assert offered == {"here": True, "there": False}


def test_the_trail_tells_of_the_zone_s_machines_alone(someone: User, people: dict[str, User]) -> None:
    for where in ("here", "there"):
        assert (
            api(people["operator"]).post("holds/", {"node": where, "kind": "fault", "reason": where}).status_code == 201
        )
    seen = AuditEvent.objects.visible_to(fresh(someone)).filter(verb="hold.placed")
    assert [row.reason for row in seen] == ["here"]
    cards = AuditEvent.objects.visible_to(fresh(someone)).filter(target_type="card")
    assert {row.after["node"] for row in cards if row.after} == {"here"}


def test_key_work_stays_with_site_operators(someone: User) -> None:
    factories.join(factories.project("mine"), {someone: factories.ProjectRole.MEMBER})
    spec: dict[str, Any] = {"project": "mine", "name": "x", "asks": [{"form": "container"}], "command": ["x"]}
    answer = api(someone).post("jobs/", spec | {"key_work": True, "simulated": True})
    assert answer.status_code == 400
    assert "key_work" in answer.content.decode()


def test_drift_of_machines_is_told_of_the_zone_alone(jobs: dict[str, Job], someone: User) -> None:
    now = database_now()
    seen = {"detail": "d", "fix": "f", "first_seen": now, "last_seen": now}
    for where in ("here", "there"):
        Drift.objects.create(kind="agent_silent", subject=where, **seen)
        Drift.objects.create(kind="inventory", subject=f"{where}-card-0", **seen)
        Drift.objects.create(kind="attempt_unknown", subject=f"attempt {where}", job=jobs[where], **seen)
    told = {row["subject"] for row in api(someone).get("drift/").json()["results"]}
    assert told == {"here", "here-card-0", "attempt here"}
    assert api(factories.user("stranger")).get("drift/").json()["results"] == []


def test_of_a_job_in_the_zone_they_read_that_it_may_be_stopped_and_no_amounts_of_its_project(
    jobs: dict[str, Job], someone: User
) -> None:
    for slug, guaranteed in (("outside", 0), ("vision", 2000)):
        factories.project("vision")
        grant = factories.grant(Project.objects.get(slug=slug), Resource.CARD_MILLI, 64_000)
        grant.guaranteed = guaranteed
        grant.save(update_fields=["guaranteed"])
    amounts = {"guaranteed_milli", "held_milli", "borrowed_milli", "inference_milli", "owed"}
    told = {
        user.username: api(user).get(f"jobs/{jobs['here'].pk}/preemption/").json()["may_be_stopped"]
        for user in (someone, factories.user("outsider"), factories.user("auditor"))
    }
    assert {name: one["borrowed"] for name, one in told.items()} == dict.fromkeys(told, True)
    assert {name: one["held_milli"] is None for name, one in told.items()} == {
        "someone": True,
        "outsider": False,
        "auditor": False,
    }
    assert {name for name, value in told["someone"].items() if value is None} == amounts
    assert told["someone"]["grace_s"] == told["outsider"]["grace_s"]
    assert told["someone"]["not_before"] == told["outsider"]["not_before"]
    page = browser(someone).get(reverse("job", args=[jobs["here"].pk])).content.decode()
    assert "It may stand on borrowed cards. When those" in page
    assert "its project holds" not in page
    assert "guaranteed to others" not in page


def test_what_a_stop_was_chosen_by_is_read_by_who_sees_the_project_alone(jobs: dict[str, Job], someone: User) -> None:
    now = database_now()
    job = jobs["here"]
    attempt = Attempt.objects.get(job=job)
    member = Allocation.objects.get(attempt=attempt)
    values = {"nodes": [member.node_id], "ask_index": 0, "form": "container", "grace_s": 60, "cause": "guarantee"}
    moments = {"made_at": now, "kept_until": now + dt.timedelta(seconds=60)}
    Preemption.objects.create(job=job, rule="x", inputs={"guaranteed": 2000, "held": 0}, **values, **moments)
    read = {
        user.username: [row["inputs"] for row in api(user).get("preemptions/").json()["lately"]]
        for user in (someone, factories.user("outsider"))
    }
    assert read == {"someone": [None], "outsider": [{"guaranteed": 2000, "held": 0}]}


Do = Callable[[User, dict[str, Job]], Any]
WITH: dict[str, str] = {"reason": "fan", "via": "test"}


def _node(name: str = "here") -> Node:
    return Node.objects.get(hostname=name)


ACTS: dict[str, Do] = {
    "hold one": lambda user, _: holds.hold_one(kind=HoldKind.FAULT, node=_node(), actor=user, **WITH),
    "hold many": lambda user, _: holds.hold_many(kind=HoldKind.FAULT, nodes=[_node()], actor=user, **WITH),
    "return many": lambda user, _: holds.return_many(nodes=[_node()], actor=user, **WITH),
    "end one": lambda user, _: holds.end_one(hold=Hold.objects.get(), actor=user, **WITH),
    "cancel": lambda user, jobs: queue.cancel(job_id=jobs["here"].pk, actor=user, **WITH),
}


@pytest.mark.parametrize("withdrawn", [False, True])
@pytest.mark.parametrize("act", ACTS)
def test_a_right_that_is_withdrawn_after_the_page_let_them_in_does_nothing(
    jobs: dict[str, Job], someone: User, act: str, withdrawn: bool
) -> None:
    if act in ("return many", "end one"):
        holds.hold_one(kind=HoldKind.DRILL, node=_node(), actor=factories.user("operator"), **WITH)
    assert someone.operates_somewhere  # as the gate of the page asks it
    before = Hold.objects.filter(period__upper_inf=True).count()
    if not withdrawn:
        ACTS[act](someone, jobs)
        return
    admin = Act(factories.user("admin"), "test", "x")
    odd_grants.withdraw(grant=OddGrant.objects.get(user=someone), act=admin)
    with pytest.raises(Forbidden):
        ACTS[act](someone, jobs)
    assert Hold.objects.filter(period__upper_inf=True).count() == before
    assert Job.objects.get(pk=jobs["here"].pk).state == "running"


@pytest.mark.parametrize("who", ["someone", "operator"])
@pytest.mark.parametrize(("rule", "code"), [(SYNC_RULE, "by_rule"), (f"{ZONE_PLAN_RULE}/7", "zone_plan"), ("", None)])
def test_what_ends_by_itself_is_ended_neither_on_the_page_nor_by_the_api(
    someone: User, who: str, rule: str, code: str | None
) -> None:
    hold = inventory.place_hold(kind=HoldKind.OFFLINE, node=_node(), rule=rule, reason="silent", actor=None, via="test")
    user = factories.user(who)
    page = browser(user).post(reverse("nodes-return"), {"key": "here", "reason": "x", "confirm": "yes"})
    assert page.status_code == (422 if code else 302)
    if code is None:
        hold = inventory.place_hold(kind=HoldKind.DRILL, node=_node(), reason="x", actor=None, via="test")
    answer = api(user).post(f"holds/{hold.pk}/end/", {"reason": "x"})
    assert answer.status_code == (409 if code else 200)
    assert code is None or answer.json()["code"] == code
    assert Hold.objects.filter(period__upper_inf=True).count() == (1 if code else 0)
