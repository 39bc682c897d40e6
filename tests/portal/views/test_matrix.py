"""Who may do what on the pages, as data (tests/data/access/pages/*.csv): address × verb × object × role → status.

Objects: own = by researcher in vision, project = by member in vision, same = in another project of its department, other =
in outside, of another department, ended = in a project of the people of vision that has ended, none = not there, - = none
needed. deputy = a manager of vision and of the project that has ended. A person who is not signed in gets 302 to the sign-in page everywhere, so only people are columns. An address
without a row fails, and so does a verb that no row names and that is not answered with 405. BODIES holds what a POST
sends; without an entry it is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, reverse

from ledger import saved_values
from ledger.models import ApiToken, Job, User
from ledger.people import create_token
from ledger.vocabulary import ProjectRole
from portal.api import urls as api_urls
from portal.urls import urlpatterns
from scheduler.zone_proposals import propose_list
from scheduler.zones import make_plan
from tests import factories
from tests.portal import relations
from tests.portal.api import test_access
from tests.portal.views.lean import LeanClient

FOLDER = Path(__file__).parents[2] / "data" / "access" / "pages"
ROLES = ("researcher", "member", "viewer", "deputy", "owner", "outsider", "operator", "admin", "manager", "auditor")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
OPEN = {"sign-in", "sign-out", "language", "healthz", "readyz", "metrics"}
NOWHERE_ID = 999_999_999
RULE = {
    "name": "T",
    "metric": "dwell",
    "comparison": "above",
    "severity": "warn",
    "threshold": "9",
    "for_s": "0",
    "keep_s": "0",
}
BODIES: dict[str, dict[str, str]] = {
    "job-cancel": {"reason": "test"},
    "theme": {"theme": "dark"},
    "nodes-hold": {"key": "n1", "confirm": "yes", "kind": "drill", "reason": "test"},
    "nodes-drain": {"key": "n1", "confirm": "yes", "reason": "test"},
    "cards-hold": {"key": "n1-card-0", "confirm": "yes", "kind": "drill", "reason": "test"},
    "zones-plan": {"mode": "list", "nodes": "n1", "to_zone": "elsewhere"},
    "plan-cancel": {"reason": "test"},
    "reclaim-extend": {"reason": "test", "ends_on": "2150-01-01"},
    "reclaim-end": {"reason": "test"},
    "saved-add": {"save_as": "test"},
    "project-change": {"title": "test", "starts_on": "2026-01-01", "ends_on": "2199-01-01", "grace_days": "1"},
    "projects-new": {"slug": "t", "title": "T", "owner": "owner", "ends_on": "2199-01-01", "grace_days": "1"},
    "project-invite": {"user": "auditor", "role": "member"},
    "project-hand-over": {"to": "viewer", "reason": "test"},
    "project-extension": {"ends_on": "2199-01-01", "reason": "test"},
    "project-more": {"grant": "cpu_milli:", "amount": "1", "reason": "test"},
    "member": {"role": "viewer"},
    "requests-join": {"project": "vision", "role": "member", "reason": "test"},
    "requests-project": {"slug": "t", "title": "T", "purpose": "t", "ends_on": "2199-01-01", "reason": "test"},
    "request-verdict": {"verdict": "approve"},
    "request-comment": {"text": "test"},
    "people-new": {"username": "fresh", "site_role": "researcher"},
    "person-role": {"site_role": "auditor", "reason": "test"},
    "person-leave": {"leave-reason": "test"},
    "quota-project": {"resource": "cpu_milli", "amount": "5"},
    "quota-member": {"user": "researcher", "resource": "cpu_milli", "amount": "1", "reason": "test"},
    "silences": {"matchers": "node=n1", "until": f"{relations.in_a_week()}T00:00", "reason": "test"},
    "silence-end": {"reason": "test"},
    "alert-rule-new": RULE,
    "alertrule": RULE | {"confirm": "yes", "reason": "test"},
    "alertrung": {"version": "1", "matchers": "kind=data", "channels": "mail", "reason": "test"},
    "policies-change": {"about": "site", "priority_most": "5"},
    "right-new": {
        "user": "guest of other",
        "department": "research",
        "ends_on": str(relations.in_a_week()),
        "reason": "test",
    },
    "right-withdraw": {"reason": "test"},
    "departments": {"slug": "another", "title": "Another"},
    "department-change": {"what": "rename", "title": "Renamed"},
}


def rows() -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for file in sorted(FOLDER.glob("*.csv")):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        found += csv.DictReader(lines)
    return found


def pages() -> dict[str, URLPattern]:
    return {str(p.name): p for p in urlpatterns if isinstance(p, URLPattern) and p.name not in OPEN}


class World:
    """Objects of each relation and a browser for each role."""

    def __init__(self, people: dict[str, User]) -> None:
        factories.project("vision", viewer=ProjectRole.VIEWER, deputy=ProjectRole.MANAGER)
        relations.neighbours()
        factories.node("n1", cards=1)
        self.ids: dict[str, dict[str, Any]] = {
            "job": {
                "own": factories.job(people["researcher"], name="own work").pk,
                "project": factories.job(people["member"], name="project work").pk,
                "same": factories.job(factories.user("stranger"), project="nearby", name="nearby work").pk,
                "other": factories.job(people["outsider"], project="outside", name="hidden work").pk,
                "ended": factories.job(people["researcher"], project="over", name="old work").pk,
                "none": NOWHERE_ID,
            },
            "node": {"own": "n1", "none": "nowhere"},
            "card": {"own": "n1-card-0", "none": "nowhere"},
            "plan": {"own": _plan(people["admin"]), "none": NOWHERE_ID},
            "help": {"own": "researcher", "none": "nothing"},
            "queue": {"own": "hold", "none": "nothing"},
            "quota": {"own": "vision", "other": "outside", "none": "nowhere"},
            "department": {"own": "research", "none": "nowhere"},
            "session": {
                "own": self._browser(people["researcher"]).session.digest,  # type: ignore[attr-defined]
                "other": self._browser(people["outsider"]).session.digest,  # type: ignore[attr-defined]
                "none": "0" * 64,
            },
            "token": {"own": _token(people["researcher"]), "other": _token(people["outsider"]), "none": NOWHERE_ID},
            "saved": {"own": _saved(people["researcher"]), "other": _saved(people["outsider"]), "none": NOWHERE_ID},
        }
        self.ids["audit"] = {which: ["job", pk] for which, pk in self.ids["job"].items()}
        self.ids |= relations.projects(people)
        everyone = people | {name: factories.user(name) for name in ("viewer", "deputy")}
        self.browsers = {name: self._browser(everyone[name]) for name in ROLES}

    @staticmethod
    def _browser(user: User) -> Client:
        client = LeanClient()
        client.force_login(user)
        return client

    def address(self, name: str, which: str) -> str:
        route = str(pages()[name].pattern)
        if "<" not in route:
            return reverse(name)
        kind = name.partition("-")[0]
        found = self.ids[kind].get(which, self.ids[kind]["own"])
        return reverse(name, args=found if isinstance(found, list) else [found])


def _plan(admin: User) -> int:
    """A zone plan that has moved a node."""
    factories.node("n2", cards=1)
    proposal = propose_list(hostnames=["n2"], to_zone=factories.zone("elsewhere"))
    return make_plan(proposal=proposal, reason="test", actor=admin, via="test").pk


def _token(user: User) -> int:
    create_token(user=user, label="test", days=1, actor=user, via="test")
    return ApiToken.objects.get(user=user).pk


def _saved(user: User) -> int:
    return saved_values.save(user=user, name="mine", values={"name": "x"}, via="test")[0].pk


@pytest.fixture
def world(people: dict[str, User]) -> World:
    return World(people)


def _undone(act: Callable[[], Any]) -> Any:
    """Do it and take the database back to where it was."""
    point = transaction.savepoint()
    try:
        return act()
    finally:
        transaction.savepoint_rollback(point)


def _send(browser: Client, method: str, address: str, name: str) -> Any:
    return browser.generic(method, address) if method != "POST" else browser.post(address, BODIES.get(name, {}))


def test_every_address_has_its_rows() -> None:
    assert {row["name"] for row in rows()} == set(pages())


@pytest.mark.django_db
def test_every_act_on_an_object_is_tried_on_an_object_of_each_relation(world: World) -> None:
    tried: dict[tuple[str, str], set[str]] = {}
    for row in rows():
        if "<" in str(pages()[row["name"]].pattern):
            tried.setdefault((row["name"], row["method"]), set()).add(row["object"])
    missing = {act: set(world.ids[act[0].partition("-")[0]]) - objects for act, objects in tried.items()}
    assert {act: objects for act, objects in missing.items() if objects} == {}


def unnamed(addresses: Iterable[str], matrix: list[dict[str, str]]) -> list[tuple[str, str]]:
    """(address, verb) that no row names."""
    named = {(row["name"], row["method"]) for row in matrix}
    return [(name, method) for name in addresses for method in METHODS if (name, method) not in named]


def test_the_matrices_of_pages_and_api_make_five_thousand_assertions() -> None:
    """What the tests here and in tests/portal/api/test_access.py send: each row once a role, each other verb once a role
    (in the API once). Who is not signed in comes on top."""
    of_pages = (len(rows()) + len(unnamed(pages(), rows()))) * len(ROLES)
    api = test_access.rows()
    of_api = len(api) * (len(api[0]) - len(("name", "method", "object")))
    of_api += len(unnamed([str(pattern.name) for pattern in api_urls.urlpatterns], api))
    assert of_pages + of_api >= 5000


@pytest.mark.django_db
def test_each_role_gets_what_the_matrix_says(world: World) -> None:
    wrong, count = [], 0
    for row in rows():
        address = world.address(row["name"], row["object"])
        for role in ROLES:
            browser = world.browsers[role]
            response = _undone(lambda b=browser, r=row, a=address: _send(b, r["method"], a, r["name"]))  # type: ignore[misc]
            count += 1
            if str(response.status_code) != row[role]:
                wrong.append(f"{role} {row['method']} {address} ({row['object']}): {response.status_code}")
    assert wrong == []
    assert count == len(rows()) * len(ROLES)


def _lists() -> list[str]:
    """Every page and part that needs no object, as it is and as a file, and a search that would find what is hidden."""
    named = [reverse(name) for name, page in pages().items() if "<" not in str(page.pattern)]
    files = [f"{address}?export=csv" for address in named]
    return [*named, *files, *(f"{reverse('search')}?q={text}" for text in ("near", "out", "hidde", "strange"))]


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["researcher", "member", "viewer"])
def test_no_list_count_or_file_tells_of_projects_of_others(world: World, role: str) -> None:
    told = []
    for address in _lists():
        response = world.browsers[role].get(address)
        content = b"".join(response) if response.streaming else response.content
        told += [f"{address}: {secret}" for secret in relations.SECRETS if secret in content.decode()]
    assert told == []
    for name, said in (("projects", "2 rows"), ("jobs", "3 rows"), ("requests", "No request yet")):
        assert said in world.browsers[role].get(reverse(name)).content.decode(), name


@pytest.mark.django_db
def test_verbs_that_the_matrix_does_not_name_are_refused(world: World) -> None:
    wrong = []
    for name, method in unnamed(pages(), rows()):
        for role in ROLES:
            response = _send(world.browsers[role], method, world.address(name, "own"), name)
            if response.status_code not in (403, 405):
                wrong.append(f"{role} {method} {name}: {response.status_code}")
    assert wrong == []


@pytest.mark.django_db
def test_who_is_not_signed_in_is_sent_to_the_sign_in_page_whatever_they_ask_for(world: World) -> None:
    wrong, before = [], Job.objects.count()
    for row in rows():
        address = world.address(row["name"], row["object"])
        response = _send(LeanClient(), row["method"], address, row["name"])
        if response.status_code != 302 or not response["Location"].startswith("/sign-in/"):
            wrong.append(f"{row['method']} {address}: {response.status_code}")
    assert wrong == []
    assert Job.objects.count() == before
