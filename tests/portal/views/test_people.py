"""The people's pages: a new account, roles, leaving and what stands in a leaver's name."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from ledger.models import AuditEvent, User
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db


def text(response: Any) -> str:
    return str(response.content.decode())


def test_a_new_person_signs_in_with_what_the_page_showed_once(client_as: ClientAs, people: dict[str, User]) -> None:
    admin = client_as("admin")
    sent = {"username": "fresh", "email": "f@lab.example", "site_role": "researcher"}
    made = admin.post("/people/new/", sent)
    password = made.context["password"]
    assert password in text(made)
    assert password not in text(admin.get("/people/new/"))
    assert "no-store" in made["Cache-Control"]
    signed = Client().post("/sign-in/", {"username": "fresh", "password": password})
    assert signed.status_code == 302
    again = admin.post("/people/new/", sent)
    assert again.status_code == 422
    assert "already" in text(again)


def test_leaving_closes_every_way_in_and_lists_what_stands(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.job(people["owner"], name="left alone")
    admin, owner = client_as("admin"), client_as("owner")
    page = text(admin.get("/people/owner/"))
    assert "left alone" in page
    assert "/projects/vision/hand-over/" in page
    assert owner.get("/jobs/").status_code == 200
    without = admin.post("/people/owner/leave/", {"leave-reason": ""})
    assert without.status_code == 422
    assert User.objects.get(username="owner").is_active
    done = admin.post("/people/owner/leave/", {"leave-reason": "retired"}, follow=True)
    assert "has left" in text(done)
    assert owner.get("/jobs/").status_code == 302
    assert AuditEvent.objects.get(verb="user.deactivated").reason == "retired"
    assert "has left" in text(client_as("member").get("/projects/vision/"))
    back = admin.post("/people/owner/leave/", {"leave-reason": "came back"}, follow=True)
    assert "is back" in text(back)
    assert User.objects.get(username="owner").is_active


def test_a_site_role_changes_with_a_reason(client_as: ClientAs, people: dict[str, User]) -> None:
    admin = client_as("admin")
    assert admin.post("/people/member/role/", {"site_role": "auditor"}).status_code == 422
    admin.post("/people/member/role/", {"site_role": "auditor", "reason": "audits"})
    assert User.objects.get(username="member").site_role == "auditor"
    own = admin.post("/people/admin/role/", {"site_role": "auditor", "reason": "x"})
    assert own.status_code == 422
    assert "ask another admin" in text(own)
    assert "This is you" in text(admin.get("/people/admin/"))


def test_the_list_is_filtered_and_exported(client_as: ClientAs, people: dict[str, User]) -> None:
    User.objects.filter(username="outsider").update(is_active=False)
    admin = client_as("admin")
    assert "outsider" not in text(admin.get("/people/?state=here"))
    assert "outsider" in text(admin.get("/people/?state=left"))
    assert "auditor" in text(admin.get("/people/?q=audi&role=auditor"))
    assert '"member","researcher","here"' in b"".join(admin.get("/people/?export=csv")).decode()
