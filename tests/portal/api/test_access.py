"""Who may do what, as data (tests/data/access/api.csv), and that no list, error or name tells of other projects."""

from __future__ import annotations

import csv
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from ledger.clock import database_now
from ledger.models import ApiToken, Hold, Job, Node, User
from ledger.people import create_node_token
from ledger.vocabulary import FaultKind, HoldKind, ProjectRole
from portal.api import urls
from scheduler.models import Drift
from tests import factories
from tests.portal import relations
from tests.portal.api.client import Api, api, is_problem, row_counts, token_of
from tests.portal.api.reports import report

MATRIX = Path(__file__).parents[2] / "data" / "access" / "api.csv"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NOWHERE_ID = 999_999_999
SLUGS = {"project": "vision", "same": "nearby", "other": "outside", "ended": "over", "none": "nope"}
BODIES: dict[str, dict[str, Any]] = {
    "projects": {"slug": "t", "title": "T", "owner": "owner", "ends_on": "2199-01-01"},
    "project": {"title": "test"},
    "member": {"role": "viewer"},
    "project-hand-over": {"to": "viewer", "reason": "test"},
    "project-invitations": {"user": "auditor"},
    "requests": {
        "kind": "new_project",
        "details": {"slug": "t", "title": "T", "ends_on": "2199-01-01"},
        "reason": "test",
    },
    "request-verdict": {"approve": True},
    "request-comments": {"text": "test"},
    "job-metrics": {"p99_ms": 1},
    "policies": {"priority_most": 5, "reason": "test"},
    "health-policy": {
        "rules": [{"kind": kind, "action": "log"} for kind in FaultKind],
        "reason": "test",
    },
    "silences": {"matchers": ["node=n1"], "until": str(relations.in_a_week()) + "T00:00:00Z", "reason": "test"},
    "silence-end": {"reason": "test"},
    "policies-preview": {"priority_most": 5},
    "case-acts": {"act": "test", "reason": "test"},
    "drills": {"node": "n1", "reason": "test"},
    "drill-abort": {"reason": "test"},
    "rights": {
        "user": "guest of other",
        "department": "research",
        "until": f"{relations.in_a_week()}T00:00:00Z",
        "reason": "test",
    },
    "right-withdraw": {"reason": "test"},
}
SECRET_NAMES = relations.SECRETS


def rows() -> list[dict[str, str]]:
    lines = [line for line in MATRIX.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


class World:
    """Objects of each relation and a token of each role."""

    def __init__(self, people: dict[str, User]) -> None:
        factories.project("vision", viewer=ProjectRole.VIEWER, deputy=ProjectRole.MANAGER)
        relations.neighbours()
        everyone = people | {name: factories.user(name) for name in ("viewer", "deputy")}
        self.node = factories.node("n1", cards=1)
        other_node = factories.node("n2", cards=1)
        self.other_host = other_node.hostname
        self.jobs = {
            "own": factories.job(people["researcher"], name="own work").pk,
            "project": factories.job(people["member"], name="project work").pk,
            "same": factories.job(factories.user("stranger"), project="nearby", name="nearby work").pk,
            "other": factories.job(people["outsider"], project="outside", name="hidden work").pk,
            "ended": factories.job(people["researcher"], project="over", name="old work").pk,
            "none": NOWHERE_ID,
        }
        self.about = relations.projects(people)
        hold = Hold.objects.create(node=other_node, kind=HoldKind.DRILL, period=(database_now(), None), reason="drill")
        self.holds = {"own": hold.pk, "none": NOWHERE_ID}
        self.callers = {name: api(user) for name, user in everyone.items()}
        self.callers["agent"] = Api(create_node_token(node=self.node, actor=None, via="test"), "Agent")

    def send(self, caller: Api, row: dict[str, str], path: str) -> Any:
        body = self.body(row["name"], row["object"])
        if row["method"] == "POST" and body is not None:
            return caller.post(path, body)
        if row["method"] in ("PUT", "PATCH"):
            return caller.send(row["method"], path, json.dumps(body).encode())
        return caller.send(row["method"], path)

    def path(self, row: dict[str, str]) -> str:
        name, which = row["name"], row["object"]
        route = {p.name: str(p.pattern) for p in urls.urlpatterns}[name] or "no/such/address/"
        if (kind := name.partition("-")[0]) in self.about and "<" in route:
            found = self.about[kind].get(which, self.about[kind]["own"])
            return reverse(f"api:{name}", args=found if isinstance(found, list) else [found]).removeprefix("/api/v1/")
        ids = {
            **{n: self.jobs for n in ("job", "job-cancel", "job-log", "job-logs", "job-preemption", "job-metrics")},
            "hold-end": self.holds,
            "node": {"own": self.node.pk, "none": NOWHERE_ID},
        }
        slug = SLUGS.get(which)
        query = f"?project={slug}" if name in ("balance", "policies-effective") and slug else ""
        number = str(NOWHERE_ID if which == "none" else 0)
        route = route.replace("<int:number>", number)
        return route.replace("<int:pk>", str(ids.get(name, {}).get(which, 1))) + query

    def body(self, name: str, which: str) -> dict[str, Any] | None:
        slug = SLUGS.get(which, "vision")
        spec = {"project": slug, "name": "x", "asks": [{"form": "container"}], "command": ["x"], "simulated": True}
        return {
            "jobs": spec,
            "invitation-answer": {"answer": "withdraw" if which != "mine" else "accept"},
            "what-if": spec,
            "project-quota": {"resource": "cpu_milli", "amount": 5, "reason": "test"},
            "holds": {"node": "n1" if which == "own" else "nope", "reason": "test"},
            "hold-end": {"reason": "test"},
            **BODIES,
            "agent-reports": report(hostname="n1" if which == "own" else self.other_host),
        }.get(name)


@pytest.fixture
def world(people: dict[str, User]) -> World:
    return World(people)


def undone(act: Callable[[], Any]) -> Any:
    """Do it and take the database back to where it was."""
    point = transaction.savepoint()
    try:
        return act()
    finally:
        transaction.savepoint_rollback(point)


def test_every_address_has_its_rows() -> None:
    listed = {row["name"] for row in rows()}
    assert listed == {pattern.name for pattern in urls.urlpatterns}


@pytest.mark.django_db
def test_each_role_gets_what_the_matrix_says(world: World) -> None:
    wrong = []
    for row in rows():
        path = world.path(row)
        for role, caller in world.callers.items():
            response = undone(lambda caller=caller, row=row, path=path: world.send(caller, row, path))  # type: ignore[misc]
            if str(response.status_code) != row[role]:
                wrong.append(
                    f"{role} {row['method']} {path} ({row['object']}): {response.status_code}, not {row[role]}"
                )
            elif response.status_code >= 400 and not is_problem(response):
                wrong.append(f"{role} {row['method']} {path}: {response.status_code} without a problem document")
    assert wrong == []


@pytest.mark.django_db
def test_methods_that_the_matrix_does_not_name_are_refused(world: World) -> None:
    named = {(row["name"], row["method"]) for row in rows()}
    caller, before, wrong = world.callers["admin"], row_counts(), []
    for pattern in urls.urlpatterns:
        scheme = world.callers["agent"] if pattern.name == "agent-reports" else caller
        path = world.path({"name": str(pattern.name), "object": "own"})
        for method in METHODS:
            if (pattern.name, method) not in named and scheme.send(method, path).status_code != 405:
                wrong.append(f"{method} {path}")
    assert wrong == []
    assert row_counts() == before


def bad_tokens(people: dict[str, User], node: Node) -> Iterator[tuple[str, Api]]:
    yield "anonymous", Api()
    for name, changes in {
        "revoked": {"revoked_at": database_now()},
        "expired": {"expires_at": database_now() - dt.timedelta(seconds=1)},
    }.items():
        secret = token_of(people["admin"])
        ApiToken.objects.filter(pk=ApiToken.objects.order_by("-pk").values("pk")[:1]).update(**changes)
        yield name, Api(secret)
    suspended = factories.user("suspended")
    secret = token_of(suspended)
    User.objects.filter(pk=suspended.pk).update(is_active=False, site_role="admin")
    yield "suspended", Api(secret)
    yield "unknown", Api("gpc_" + "x" * 43)
    yield "empty", Api("")
    yield "two words", Api("a b")
    yield "not ASCII", Api("gpc_é")
    yield "a person's token as an agent's", Api(token_of(people["admin"]), "Agent")
    yield "an agent's token as a person's", Api(create_node_token(node=node, actor=None, via="test"), "Bearer")
    yield "basic", Api("YWRtaW46YWRtaW4=", "Basic")
    yield "a digest instead of its secret", Api(ApiToken.objects.latest("pk").digest)


@pytest.mark.django_db
def test_without_a_good_token_every_address_is_401(world: World, people: dict[str, User]) -> None:
    wrong = []
    callers = list(bad_tokens(people, world.node))
    before = row_counts()
    for row in rows():
        for name, caller in callers:
            response = world.send(caller, row, world.path(row))
            if response.status_code != 401 or not is_problem(response) or "WWW-Authenticate" not in response.headers:
                wrong.append(f"{name} {row['method']} {world.path(row)}: {response.status_code}")
    assert wrong == []
    assert row_counts() == before


@pytest.mark.django_db
def test_other_projects_and_absent_ones_answer_alike(world: World) -> None:
    """Nothing but the number itself may differ, so that a stranger can't find out what exists."""
    caller = world.callers["researcher"]
    for path in ("jobs/{}/", "jobs/{}/log/", "jobs/{}/logs/"):
        other, none = (caller.get(path.format(world.jobs[which])) for which in ("other", "none"))
        assert other.json() == none.json()
    other, none = (caller.post(f"jobs/{world.jobs[which]}/cancel/") for which in ("other", "none"))
    assert other.json() == none.json()
    other, none = (caller.post("jobs/", world.body("jobs", which)) for which in ("other", "none"))
    assert other.json() == none.json()
    other, none = (caller.get("books/balance/", project=slug) for slug in ("outside", "nope"))
    assert other.json() == none.json()
    other, none = (caller.get("jobs/", project=slug) for slug in ("outside", "nope"))
    assert other.json() == none.json()
    other, none = (world.callers["member"].post(f"holds/{pk}/end/", {"reason": "x"}) for pk in world.holds.values())
    assert other.json() == none.json()


@pytest.mark.django_db
def test_no_list_tells_of_other_projects(world: World, people: dict[str, User], turn: Callable[[], None]) -> None:
    turn()
    hidden = Job.objects.get(pk=world.jobs["other"])
    now = database_now()
    Drift.objects.create(
        kind="attempt_unknown", subject="secret", detail="d", fix="f", job=hidden, first_seen=now, last_seen=now
    )
    Drift.objects.create(kind="agent_silent", subject="n9", detail="d", fix="f", first_seen=now, last_seen=now)
    caller = world.callers["researcher"]
    for path in (
        "jobs/",
        "projects/",
        "invitations/",
        "requests/",
        "drift/",
        "nodes/",
        "cards/",
        "holds/",
        "zones/",
        "reclaim/",
        "policies/",
        "receipts/",
        "books/balance/?simulated=true",
    ):
        text = caller.send("GET", path).content.decode()
        assert not [name for name in (*SECRET_NAMES, "secret") if name in text], path
    seen = {world.jobs[which] for which in ("own", "project", "ended")}
    assert {row["id"] for row in caller.get("jobs/").json()["results"]} == seen
    assert {row["slug"] for row in caller.get("projects/").json()["results"]} == {"vision", "over"}
    assert caller.get("requests/").json()["results"] == caller.get("invitations/").json()["results"] == []
    assert caller.get("drift/").json()["results"] == []
    seen = world.callers["auditor"].get("drift/").json()["results"]
    assert {row["subject"] for row in seen} == {"secret", "n9"}
    every = {"vision", "outside", "nearby", "over", "gone"}
    assert {row["slug"] for row in world.callers["auditor"].get("projects/").json()["results"]} == every


@pytest.mark.django_db
def test_use_of_other_projects_stands_together_in_the_balance(
    running: Job, people: dict[str, User], turn: Callable[[], None]
) -> None:
    factories.job(people["outsider"], project="outside", command=["simulate", "--seconds", "3600"])
    turn()
    time.sleep(1.1)  # the book counts whole seconds
    for job in Job.objects.all():
        api(people["admin"]).post(f"jobs/{job.pk}/cancel/")
    turn()

    def by_project(name: str) -> dict[str, int]:
        told = api(people[name]).get("books/balance/", simulated="true").json()
        found: dict[str, int] = told["exact"]["used"]["by_project"]
        return found

    assert set(by_project("researcher")) == {"vision", "(others)"}
    assert set(by_project("admin")) == {"vision", "outside"}
    assert by_project("researcher")["(others)"] == by_project("admin")["outside"]


@pytest.mark.django_db
def test_leaving_a_project_ends_the_right_to_submit_at_once(people: dict[str, User], spec: Callable[..., Any]) -> None:
    caller = api(people["researcher"])
    job = factories.job(people["researcher"])
    factories.leave(job.project, people["researcher"])
    assert caller.post("jobs/", spec()).status_code == 400
    assert caller.get("books/balance/", project="vision").status_code == 400


@pytest.mark.django_db
def test_suspending_a_person_ends_their_token_at_the_next_request(people: dict[str, User]) -> None:
    caller = api(people["admin"])
    assert caller.get("jobs/").status_code == 200
    User.objects.filter(pk=people["admin"].pk).update(is_active=False)
    assert caller.get("jobs/").status_code == 401


@pytest.mark.django_db
def test_a_session_may_write_only_with_its_csrf_token(people: dict[str, User], spec: Callable[..., Any]) -> None:
    caller = Api()
    caller.http = type(caller.http)(enforce_csrf_checks=True)
    caller.http.force_login(people["researcher"])
    assert caller.get("jobs/").status_code == 200
    refused = caller.post("jobs/", spec())
    assert refused.status_code == 403
    assert is_problem(refused)
    assert Job.objects.count() == 0


@pytest.mark.django_db
def test_answers_to_tokens_are_not_kept_by_caches(researcher: Api) -> None:
    for response in (researcher.get("jobs/"), researcher.get("jobs/1/"), Api("gpc_wrong").get("jobs/")):
        assert response["Cache-Control"] == "no-store"
