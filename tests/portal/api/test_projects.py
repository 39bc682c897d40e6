"""Projects, who is in them, and requests through the API: answers, and what is refused with which field."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given

from ledger.clock import database_now
from ledger.models import AuditEvent, Membership, Project, ProjectRequest, User
from tests.portal.api.client import Api, api, fields, is_problem
from tests.portal.api.test_fuzz import VALUES, changes, check, fuzz

pytestmark = pytest.mark.django_db


def day(after: int) -> str:
    return str(database_now().date() + dt.timedelta(days=after))


def put(caller: Api, path: str, body: Any, method: str = "PUT") -> Any:
    return caller.send(method, path, json.dumps(body).encode())


def test_a_project_is_opened_read_and_changed(people: dict[str, User]) -> None:
    admin = api(people["admin"])
    body = {"slug": "fresh", "title": "New", "owner": "outsider", "ends_on": day(30), "reason": "a grant"}
    made = admin.post("projects/", body)
    assert (made.status_code, made["Location"]) == (201, "/api/v1/projects/fresh/")
    assert made.json()["members"] == [{"user": "outsider", "role": "owner"}]
    assert admin.post("projects/", body).status_code == 409
    changed = put(admin, "projects/fresh/", {"ends_on": day(60), "grace_days": 1}, "PATCH")
    assert (changed.json()["ends_on"], changed.json()["grace_days"]) == (day(60), 1)
    assert AuditEvent.objects.get(verb="project.created").via == "api"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"slug": "no spaces"}, "slug"),
        ({"slug": "x" * 51}, "slug"),
        ({"slug": None}, "slug"),
        ({"title": ""}, "title"),
        ({"title": 5}, "title"),
        ({"owner": "nobody"}, "owner"),
        ({"owner": 7}, "owner"),
        ({"owner": None}, "owner"),
        ({"ends_on": "2026-02-30"}, "ends_on"),
        ({"ends_on": "3000-01-01"}, "ends_on"),
        ({"ends_on": "2001-01-01"}, "ends_on"),
        ({"ends_on": 20260101}, "ends_on"),
        ({"grace_days": -1}, "grace_days"),
        ({"grace_days": 91}, "grace_days"),
        ({"grace_days": "7"}, "grace_days"),
        ({"department": "nope"}, "department"),
        ({"starts_on": "2190-01-01", "ends_on": "2189-01-01"}, "ends_on"),
        ({"other": 1}, "other"),
    ],
)
def test_what_is_wrong_with_a_new_project_is_named(
    people: dict[str, User], changed: dict[str, Any], field: str
) -> None:
    body = {"slug": "fresh", "title": "New", "owner": "outsider", "ends_on": day(30)} | changed
    refused = api(people["admin"]).post("projects/", body)
    assert refused.status_code == 400
    assert fields(refused) == {field}
    assert not Project.objects.filter(slug="fresh").exists()


def test_members_come_by_invitation_and_change_and_go(people: dict[str, User]) -> None:
    owner, guest = api(people["owner"]), api(people["outsider"])
    refused = put(owner, "projects/vision/members/outsider/", {"role": "member"})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_member")
    made = owner.post("projects/vision/invitations/", {"user": "outsider"})
    assert (made.status_code, made.json()["role"]) == (201, "member")
    listed = guest.get("invitations/").json()["results"]
    assert [(one["project"], one["state"]) for one in listed] == [("vision", "open")]
    answered = guest.post(f"invitations/{made.json()['id']}/answer/", {"answer": "accept"})
    assert answered.json()["state"] == "accepted"
    assert put(owner, "projects/vision/members/outsider/", {"role": "manager"}).status_code == 200
    assert guest.send("DELETE", "projects/vision/members/member/").status_code == 204
    assert guest.send("DELETE", "projects/vision/members/owner/").status_code == 409
    assert guest.send("DELETE", "projects/vision/members/outsider/").status_code == 204
    assert guest.get("projects/vision/").status_code == 404
    assert put(api(people["admin"]), "projects/vision/members/outsider/", {"role": "viewer"}).status_code == 200


def test_a_request_is_made_read_and_decided(people: dict[str, User]) -> None:
    owner, manager = api(people["owner"]), api(people["manager"])
    body = {"kind": "extension", "project": "vision", "details": {"ends_on": day(400)}, "reason": "more to do"}
    made = owner.post("requests/", body)
    assert made.status_code == 201
    assert made.json()["changes"] == [{"field": "ends_on", "before": day(365), "after": day(400)}]
    path = f"requests/{made.json()['id']}/"
    assert owner.post(f"{path}verdict/", {"approve": True}).status_code == 403
    assert manager.post(f"{path}comments/", {"text": "why?"}).json()["comments"][0]["text"] == "why?"
    assert fields(manager.post(f"{path}verdict/", {"approve": False})) == {"reason"}
    assert manager.post(f"{path}verdict/", {"approve": True}).json()["state"] == "approved"
    assert owner.post(f"{path}withdraw/").status_code == 409
    assert str(Project.objects.get(slug="vision").ends_on) == day(400)
    listed = manager.get("requests/", state="approved", kind="extension", project="vision").json()["results"]
    assert [one["id"] for one in listed] == [made.json()["id"]]


def test_to_join_is_answered_the_same_whatever_there_is(people: dict[str, User]) -> None:
    guest = api(people["outsider"])
    answers = {
        (found.status_code, found.content)
        for found in (
            guest.post("requests/", {"kind": "join", "project": slug, "reason": "x"})
            for slug in ("vision", "vision", "nothing")
        )
    }
    assert {status for status, _body in answers} == {202}
    assert len(answers) == 1
    assert ProjectRequest.objects.count() == 1
    for slug in ("vision", "nothing"):
        body = {"kind": "join", "project": slug, "reason": "x", "details": {"role": "owner"}}
        assert fields(guest.post("requests/", body)) == {"role"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "wish", "reason": "x"}, "kind"),
        ({"kind": "extension", "reason": "x"}, "project"),
        ({"kind": "extension", "project": "outside", "details": {"ends_on": "2199-01-01"}, "reason": "x"}, "project"),
        ({"kind": "extension", "project": "vision", "reason": "x"}, "ends_on"),
        ({"kind": "extension", "project": "vision", "details": {"ends_on": "x"}, "reason": "x"}, "ends_on"),
        ({"kind": "extension", "project": "vision", "details": {"ends_on": [1]}, "reason": "x"}, "details"),
        ({"kind": "extension", "project": "vision", "details": {"ends_on": "2199-01-01"}}, "reason"),
        (
            {
                "kind": "new_project",
                "details": {"slug": "vision", "title": "x", "ends_on": "2199-01-01"},
                "reason": "x",
            },
            "slug",
        ),
        ({"kind": "new_project", "details": "x", "reason": "x"}, "details"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(people: dict[str, User], body: dict[str, Any], field: str) -> None:
    refused = api(people["owner"]).post("requests/", body)
    assert refused.status_code in (400, 409)
    assert is_problem(refused)
    assert fields(refused) == {field}
    assert not ProjectRequest.objects.exists()


NEW = {"slug": "fresh", "title": "New", "owner": "outsider", "ends_on": "2199-01-01"}
ASK = {"kind": "new_project", "details": {"slug": "n", "title": "N", "ends_on": "2199-01-01"}, "reason": "x"}


@fuzz
@given(body=VALUES | changes((*NEW, "department", "grace_days", "starts_on", "other")).map(lambda c: NEW | c))
def test_any_new_project(people: dict[str, User], body: Any) -> None:
    check(api(people["admin"]).post("projects/", body))


@fuzz
@given(body=VALUES | changes(("title", "purpose", "ends_on", "grace_days", "department", "reason", "other")))
def test_any_change(people: dict[str, User], body: Any) -> None:
    check(put(api(people["admin"]), "projects/vision/", body, "PATCH"))


@fuzz
@given(
    body=VALUES
    | changes((*ASK, "project", "other")).map(lambda c: ASK | c)
    | VALUES.map(lambda v: ASK | {"details": v})
)
def test_any_request(people: dict[str, User], body: Any) -> None:
    check(api(people["owner"]).post("requests/", body))
    ProjectRequest.objects.all().delete()


@fuzz
@given(body=VALUES | changes(("user", "role", "to", "reason", "answer", "approve", "text")))
def test_any_act(people: dict[str, User], body: Any) -> None:
    owner = api(people["owner"])
    for path in (
        "projects/vision/invitations/",
        "projects/vision/hand-over/",
        "requests/1/verdict/",
        "requests/1/comments/",
    ):
        check(owner.post(path, body))
    check(put(owner, "projects/vision/members/member/", body))
    Membership.objects.filter(project__slug="vision").exists()
