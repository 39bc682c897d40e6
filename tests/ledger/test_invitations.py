"""Into a project by invitation: who invites whom, who answers, and what becomes of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from ledger import invitations, projects
from ledger.acts import Act
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent, Invitation, Membership, Project, User
from ledger.vocabulary import ProjectRole, ProjectState, SiteRole
from tests import factories

pytestmark = pytest.mark.django_db
OWNER, MANAGER, MEMBER, VIEWER = ProjectRole


@pytest.fixture
def people() -> dict[str, User]:
    found = factories.cast()
    more = factories.users(dict.fromkeys(("deputy", "guest"), SiteRole.RESEARCHER))
    factories.join(Project.objects.get(slug="vision"), {more["deputy"]: MANAGER})
    return found | more


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


def invited(people: dict[str, User], by: str = "owner", whom: str = "guest", role: ProjectRole = MEMBER) -> Invitation:
    act = Act(people[by], "page", "come in")
    return invitations.invite(project=Project.objects.get(slug="vision"), user=people[whom], role=role, act=act)


def role_of(user: User) -> str | None:
    return Membership.objects.filter(project__slug="vision", user=user).values_list("role", flat=True).first()


def verbs() -> list[str]:
    rows = AuditEvent.objects.filter(target_type="invitation").order_by("pk")
    return list(rows.values_list("verb", flat=True))


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("owner", True),
        ("deputy", True),
        ("admin", True),
        ("member", False),
        ("outsider", False),
        ("manager", False),
        ("operator", False),
        ("auditor", False),
    ],
)
def test_the_projects_managers_and_site_admins_invite(people: dict[str, User], name: str, may: bool) -> None:
    if not may:
        with pytest.raises(Forbidden):
            invited(people, by=name)
        assert not Invitation.objects.exists()
        return
    made = invited(people, by=name)
    assert (made.by, made.role, made.state, made.reason) == (people[name], "member", "open", "come in")
    assert verbs() == ["invitation.made"]
    assert role_of(people["guest"]) is None


def test_who_accepts_is_in_with_that_role_from_then_on(people: dict[str, User]) -> None:
    invitations.answer(invitation=invited(people, role=VIEWER), accept=True, act=Act(people["guest"], "page"))
    assert role_of(people["guest"]) == "viewer"
    assert verbs() == ["invitation.made", "invitation.accepted"]


def test_who_declines_is_not_in_and_may_be_asked_again(people: dict[str, User]) -> None:
    invitations.answer(invitation=invited(people), accept=False, act=Act(people["guest"], "page"))
    assert role_of(people["guest"]) is None
    assert invited(people).state == "open"


def test_managers_take_back_and_then_nobody_can_accept(people: dict[str, User]) -> None:
    made = invited(people)
    with pytest.raises(Forbidden):
        invitations.withdraw(invitation=made, act=Act(people["member"], "page"))
    invitations.withdraw(invitation=made, act=Act(people["deputy"], "page"))
    with pytest.raises(Conflict, match="no longer open"):
        invitations.answer(invitation=made, accept=True, act=Act(people["guest"], "page"))
    assert role_of(people["guest"]) is None


def test_only_who_is_invited_answers(people: dict[str, User]) -> None:
    made = invited(people)
    for name in ("owner", "admin", "outsider"):
        with pytest.raises(Forbidden):
            invitations.answer(invitation=made, accept=True, act=Act(people[name], "page"))
    assert role_of(people["guest"]) is None


def test_an_invitation_does_not_wait_for_ever(people: dict[str, User]) -> None:
    made = invited(people)
    Invitation.objects.update(expires_at=made.made_at - dt.timedelta(seconds=1))
    with pytest.raises(Conflict, match="was open until"):
        invitations.answer(invitation=made, accept=True, act=Act(people["guest"], "page"))
    assert invited(people).pk != made.pk
    assert Invitation.objects.get(pk=made.pk).state == "withdrawn"


def test_who_came_in_by_another_way_keeps_that_role(people: dict[str, User], vision: Project) -> None:
    made = invited(people, role=VIEWER)
    projects.set_role(project=vision, user=people["guest"], role=MANAGER, act=Act(people["admin"], "page"))
    invitations.answer(invitation=made, accept=True, act=Act(people["guest"], "page"))
    assert role_of(people["guest"]) == "manager"


def test_what_can_not_be_is_refused(people: dict[str, User], vision: Project) -> None:
    def gone() -> object:
        User.objects.filter(pk=people["outsider"].pk).update(is_active=False)
        people["outsider"].refresh_from_db()
        return invited(people, whom="outsider")

    cases: list[tuple[Callable[[], object], type[Refused], str]] = [
        (lambda: invited(people, role=OWNER), Forbidden, "role"),
        (lambda: invited(people, whom="member"), Conflict, "user"),
        (lambda: (invited(people), invited(people)), Conflict, "user"),
        (gone, Refused, "user"),
    ]
    for act, kind, field in cases:
        with pytest.raises(kind) as found:
            act()
        assert found.value.field == field
    Project.objects.filter(pk=vision.pk).update(state=ProjectState.ENDED)
    open_one = Invitation.objects.get()
    for act in (
        lambda: invited(people, whom="manager"),
        lambda: invitations.answer(invitation=open_one, accept=True, act=Act(people["guest"], "page")),
    ):
        with pytest.raises(Conflict, match="has ended"):
            act()


def test_each_sees_their_part(people: dict[str, User]) -> None:
    invited(people)
    seen = {name for name, user in people.items() if Invitation.objects.visible_to(user).exists()}
    assert seen == {"owner", "deputy", "guest", "admin", "manager", "operator", "auditor"}


@pytest.mark.parametrize("taken_out", ["guest", "deputy"])
def test_nobody_comes_back_by_an_invitation_from_before_they_were_taken_out(
    people: dict[str, User], vision: Project, taken_out: str
) -> None:
    """To the one who is taken out, or by them."""
    before = invited(people, by="deputy", whom="guest", role=MANAGER)
    act = Act(people["owner"], "page", "they left us")
    projects.set_role(project=vision, user=people["guest"], role=MEMBER, act=act)
    assert projects.remove_member(project=vision, user=people[taken_out], act=act)
    with pytest.raises(Conflict) as found:
        invitations.answer(invitation=before, accept=True, act=Act(people["guest"], "page"))
    assert found.value.code == "answered"
    before.refresh_from_db()
    assert before.state == "withdrawn"
    assert verbs() == ["invitation.made", "invitation.withdrawn"]


def test_an_invitation_counts_as_long_as_its_author_may_give_the_role(people: dict[str, User], vision: Project) -> None:
    made, act = invited(people, by="deputy"), Act(people["owner"], "page", "less to do")
    projects.set_role(project=vision, user=people["deputy"], role=VIEWER, act=act)
    with pytest.raises(Conflict) as found:
        invitations.answer(invitation=made, accept=True, act=Act(people["guest"], "page"))
    assert (found.value.code, role_of(people["guest"])) == ("inviter", None)
    projects.set_role(project=vision, user=people["deputy"], role=MANAGER, act=act)
    invitations.answer(invitation=made, accept=True, act=Act(people["guest"], "page"))
    assert role_of(people["guest"]) == MEMBER
