"""What the factories write in one statement is what the writers write one by one."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import projects
from ledger.acts import Act
from ledger.models import AuditEvent, Membership, Project, ProjectUserPermission, User
from ledger.vocabulary import ProjectRole
from tests import factories

pytestmark = pytest.mark.django_db
OWNER = ProjectRole.OWNER
ROLES = {str(role): role for role in ProjectRole}
MOMENTS_AND_NUMBERS = ("id", "at", "target_id", "project_id")


def written(project: Project) -> tuple[list[Any], ...]:
    members = Membership.objects.filter(project=project).order_by("pk")
    rights = ProjectUserPermission.objects.filter(content_object=project).order_by("user_id", "permission_id")
    events = list(AuditEvent.objects.filter(project=project).order_by("pk"))
    assert [event.target_id for event in events] == [str(member.pk) for member in members]
    fields = [f.attname for f in AuditEvent._meta.concrete_fields if f.attname not in MOMENTS_AND_NUMBERS]
    return (
        list(members.values_list("user", "role")),
        list(rights.values_list("user", "permission__codename", "permission__content_type")),
        [[getattr(event, field) for field in fields] for event in events],
    )


def test_people_join_a_project_as_if_each_had_been_granted_their_role() -> None:
    people = factories.users(dict.fromkeys([*ROLES, "owner"], factories.SiteRole.RESEARCHER))
    by_factory, by_writer = (
        factories._project(slug, people["owner"], {people["owner"]: OWNER}) for slug in ("one", "other")
    )
    factories.join(by_factory, {people[name]: role for name, role in ROLES.items()})
    for name, role in ROLES.items():
        if role != OWNER:
            projects.set_role(project=by_writer, user=people[name], role=role, act=Act(None, "system"))
    assert written(by_factory) == written(by_writer)
    assert len(written(by_factory)[0]) == len(ProjectRole)


def test_who_is_inside_changes_role_and_is_there_once() -> None:
    project = factories.project("one", researcher=ProjectRole.MEMBER)
    factories.project("one", researcher=ProjectRole.VIEWER)
    found = Membership.objects.filter(project=project, user__username="researcher")
    assert [member.role for member in found] == [ProjectRole.VIEWER]


def test_the_cast_has_one_person_a_role_and_the_owner_in_one_project_alone() -> None:
    people = factories.cast()
    assert {name: user.site_role for name, user in people.items() if user.sees_everything} == {
        name: name for name in ("operator", "admin", "manager", "auditor")
    }
    assert all(user.check_password(factories.PASSWORD) for user in people.values())
    inside = Membership.objects.values_list("project__slug", "user__username", "role")
    assert set(inside) == {
        ("vision", "owner", "owner"),
        ("vision", "researcher", "member"),
        ("vision", "member", "member"),
        ("outside", "outsider", "owner"),
    }
    assert set(factories.cast().values()) == set(people.values()) == set(User.objects.all())
