"""Pages of projects, who is in them, and requests: what a person reads there, and what their forms do."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import AuditEvent, Invitation, Membership, Project, ProjectRequest, User
from ledger.vocabulary import ProjectRole, ProjectState
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db


def day(after: int) -> str:
    return str(database_now().date() + dt.timedelta(days=after))


def text(response: Any) -> str:
    return str(response.content.decode())


def role_of(name: str, project: str = "vision") -> str | None:
    found = Membership.objects.filter(project__slug=project, user__username=name)
    return found.values_list("role", flat=True).first()


def test_the_list_shows_ones_projects_with_role_end_and_work(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.job(people["member"])
    page = text(client_as("researcher").get("/projects/"))
    assert "Vision" in page
    assert "Outside" not in page
    assert "/jobs/?project=vision&amp;state=live" in page
    assert "Open a project" not in page
    assert {"Vision", "Outside"} <= set(text(client_as("manager").get("/projects/")).replace("<", ">").split(">"))
    found = client_as("auditor").get("/projects/?q=outs&state=active")
    assert "Outside" in text(found)
    assert "Vision" not in text(found)
    file = b"".join(client_as("owner").get("/projects/?export=csv")).decode()
    assert '"vision","active","owner","Research","owner"' in file


def test_an_invitation_goes_from_the_owner_to_a_member_who_submits(
    client_as: ClientAs, people: dict[str, User]
) -> None:
    owner, guest = client_as("owner"), client_as("outsider")
    sent = {"user": "outsider", "role": "member", "reason": "help us"}
    assert owner.post("/projects/vision/invite/", sent)["Location"] == "/projects/vision/"
    assert "not answered yet" in text(owner.get("/projects/vision/"))
    home = text(guest.get("/"))
    assert "You are invited" in home
    assert "help us" in home
    pk = Invitation.objects.get().pk
    assert guest.post(f"/invitations/{pk}/accept/")["Location"] == "/projects/vision/"
    assert role_of("outsider") == "member"
    assert "your role:" in text(guest.get("/projects/vision/"))
    assert "You are invited" not in text(guest.get("/"))
    assert guest.post(f"/invitations/{pk}/decline/")["Location"] == "/projects/"
    assert role_of("outsider") == "member"


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"user": "nobody", "role": "member"}, "There is nobody of this name"),
        ({"user": "", "role": "member"}, "This field is required"),
        ({"user": "outsider", "role": "owner"}, "Select a valid choice"),
        ({"user": "member", "role": "member"}, "in the project already"),
    ],
)
def test_what_is_wrong_with_an_invitation_stands_beside_its_field(
    client_as: ClientAs, people: dict[str, User], sent: dict[str, str], field: str
) -> None:
    response = client_as("owner").post("/projects/vision/invite/", sent)
    assert response.status_code == 422
    assert field in text(response)
    assert not Invitation.objects.exists()


def test_a_role_is_changed_and_a_member_taken_out_with_a_word(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.job(people["member"], name="goes on")
    owner = client_as("owner")
    page = text(owner.get("/projects/vision/members/member/"))
    assert "goes on" in page
    assert "Take out of the project" in page
    owner.post("/projects/vision/members/member/", {"role": "viewer"})
    assert role_of("member") == "viewer"
    owner.post("/projects/vision/members/member/remove/", {"reason": "moved on"})
    assert role_of("member") is None
    row = AuditEvent.objects.get(verb="member.removed")
    assert (row.actor, row.via, row.reason) == (people["owner"], "page", "moved on")
    assert client_as("member").get("/projects/vision/").status_code == 404


def test_a_member_leaves_and_the_owner_can_not(client_as: ClientAs, people: dict[str, User]) -> None:
    assert "Leave the project" in text(client_as("member").get("/projects/vision/members/member/"))
    assert client_as("member").post("/projects/vision/members/member/remove/")["Location"] == "/projects/"
    owner = client_as("owner")
    assert "hand the project over first" in text(owner.get("/projects/vision/members/owner/"))
    told = owner.post("/projects/vision/members/owner/remove/", follow=True)
    assert "Hand it over to somebody else first" in text(told)
    assert role_of("owner") == "owner"


def test_handing_over_makes_the_old_owner_a_manager(client_as: ClientAs, people: dict[str, User]) -> None:
    owner = client_as("owner")
    assert owner.post("/projects/vision/hand-over/", {"to": "member"}).status_code == 422  # without a reason
    owner.post("/projects/vision/hand-over/", {"to": "member", "reason": "I leave"})
    assert (role_of("member"), role_of("owner")) == ("owner", "manager")
    assert owner.get("/projects/vision/hand-over/").status_code == 403


def test_a_project_is_opened_and_changed_by_the_site(client_as: ClientAs, people: dict[str, User]) -> None:
    manager = client_as("manager")
    sent = {"slug": "fresh", "title": "New", "owner": "outsider", "department": "research", "grace_days": "3"}
    assert "Last day" in text(manager.post("/projects/new/", sent))
    assert manager.post("/projects/new/", sent | {"ends_on": day(9)})["Location"] == "/projects/fresh/"
    made = Project.objects.get(slug="fresh")
    assert (made.owner, made.grace_days, str(made.ends_on)) == (people["outsider"], 3, day(9))
    page = manager.get("/projects/fresh/change/")
    assert f'value="{day(9)}"' in text(page)
    later = {"title": "New", "ends_on": day(30), "starts_on": day(0), "grace_days": "3", "reason": "more to do"}
    manager.post("/projects/fresh/change/", later)
    made.refresh_from_db()
    assert str(made.ends_on) == day(30)
    assert AuditEvent.objects.get(verb="project.changed").reason == "more to do"
    wrong = manager.post("/projects/fresh/change/", later | {"ends_on": day(-1)})
    assert wrong.status_code == 422
    assert "before the start" in text(wrong)


def test_its_own_managers_change_what_it_is_called_alone(client_as: ClientAs, people: dict[str, User]) -> None:
    owner = client_as("owner")
    page = text(owner.get("/projects/vision/change/"))
    assert "id_title" in page
    assert "id_ends_on" not in page
    owner.post("/projects/vision/change/", {"title": "Seeing", "purpose": "Eyes", "ends_on": day(9)})
    project = Project.objects.get(slug="vision")
    assert (project.title, project.purpose) == ("Seeing", "Eyes")
    assert str(project.ends_on) == day(365)


def test_an_extension_is_asked_for_talked_about_and_granted(client_as: ClientAs, people: dict[str, User]) -> None:
    owner, manager = client_as("owner"), client_as("manager")
    wrong = owner.post("/projects/vision/extension/", {"ends_on": day(10), "reason": "x"})
    assert "after the present end" in text(wrong)
    where = owner.post("/projects/vision/extension/", {"ends_on": day(400), "reason": "not ready"})["Location"]
    pk = ProjectRequest.objects.get().pk
    assert where == f"/requests/{pk}/"
    assert "1 request waits for your decision" in text(manager.get("/"))
    assert "waits for your decision" not in text(owner.get("/"))
    page = text(manager.get(where))
    assert day(365) in page
    assert day(400) in page
    manager.post(f"/requests/{pk}/comment/", {"text": "Why <b>so</b> long?"})
    assert "Why &lt;b&gt;so&lt;/b&gt; long?" in text(owner.get(where))
    assert "Approve or refuse" in text(manager.post(f"/requests/{pk}/verdict/", {}))
    refused = manager.post(f"/requests/{pk}/verdict/", {"verdict": "refuse"})
    assert refused.status_code == 422
    assert "Give a reason" in text(refused)
    done = manager.post(f"/requests/{pk}/verdict/", {"verdict": "approve"}, follow=True)
    assert "approved and done" in text(done)
    assert str(Project.objects.get(slug="vision").ends_on) == day(400)
    late = manager.post(f"/requests/{pk}/verdict/", {"verdict": "approve"})
    assert late.status_code == 422
    assert "no longer open" in text(late)


def test_asking_to_be_in_a_project_tells_nothing_of_projects(client_as: ClientAs, people: dict[str, User]) -> None:
    guest = client_as("outsider")
    answers = [
        text(guest.post("/requests/join/", {"project": slug, "role": "member", "reason": "x"}, follow=True))
        for slug in ("vision", "vision", "nothing")
    ]
    assert all("If there is a project of this name" in answer for answer in answers)
    assert ProjectRequest.objects.count() == 1
    owner = client_as("owner")
    owner.post(f"/requests/{ProjectRequest.objects.get().pk}/verdict/", {"verdict": "approve"})
    assert role_of("outsider") == "member"
    again = guest.post("/requests/join/", {"project": "vision", "role": "member", "reason": "x"})
    assert "in this project already" in text(again)


def test_a_new_project_is_asked_for_and_owned_by_who_asked(client_as: ClientAs, people: dict[str, User]) -> None:
    guest = client_as("outsider")
    sent = {"slug": "mine", "title": "Mine", "purpose": "To try", "ends_on": day(50), "reason": "a paper"}
    assert guest.post("/requests/project/", sent | {"slug": "vision"}).status_code == 422
    where = guest.post("/requests/project/", sent)["Location"]
    assert "short name" in text(guest.get(where))
    pk = ProjectRequest.objects.get().pk
    client_as("admin").post(f"/requests/{pk}/verdict/", {"verdict": "approve", "reason": "fine"})
    assert Project.objects.get(slug="mine").owner == people["outsider"]
    assert "/projects/mine/" in text(guest.get(where))


def test_who_asked_takes_it_back(client_as: ClientAs, people: dict[str, User]) -> None:
    owner = client_as("owner")
    where = owner.post("/projects/vision/extension/", {"ends_on": day(400), "reason": "x"})["Location"]
    assert "Take it back" in text(owner.get(where))
    assert "is taken back" in text(owner.post(f"{where}withdraw/", follow=True))
    assert ProjectRequest.objects.get().state == "withdrawn"


def test_an_ended_project_is_read_and_nothing_in_it_is_offered(client_as: ClientAs, people: dict[str, User]) -> None:
    Project.objects.filter(slug="vision").update(state=ProjectState.ENDED)
    page = text(client_as("owner").get("/projects/vision/"))
    assert "ended" in page
    assert "Invite somebody" not in page
    assert "Hand over" not in page
    told = client_as("owner").post("/projects/vision/invite/", {"user": "outsider", "role": "member"})
    assert told.status_code == 422
    assert "has ended" in text(told)
    assert ProjectRole(role_of("owner") or "") == ProjectRole.OWNER


def test_in_chinese_too(client_as: ClientAs, people: dict[str, User]) -> None:
    User.objects.filter(username="owner").update(locale="zh-hans")
    owner = client_as("owner")
    assert "邀请成员" in text(owner.get("/projects/vision/"))
    wrong = owner.post("/projects/vision/invite/", {"user": "member", "role": "member"})
    assert "member 已在项目中" in text(wrong)
