"""Who may do what to a project and its members, what is refused and why, and what the database itself refuses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import projects, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent, Department, Job, Membership, Project, ProjectUserPermission, User
from ledger.projects import Details
from ledger.vocabulary import ProjectRole, ProjectState, SiteRole
from scheduler.placing import place_queued
from tests import factories

pytestmark = pytest.mark.django_db
OWNER, MANAGER, MEMBER, VIEWER = ProjectRole
DAY = dt.timedelta(days=1)
GOVERNING = {"admin", "manager"}
ALL = ("owner", "deputy", "member", "reader", "outsider", "admin", "manager", "operator", "auditor")


@pytest.fixture
def people() -> dict[str, User]:
    found = factories.cast()
    site = Project.objects.get(slug="vision")
    more = factories.users(dict.fromkeys(("deputy", "reader"), SiteRole.RESEARCHER))
    factories.join(site, {more["deputy"]: MANAGER, more["reader"]: VIEWER})
    return found | more


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


def by(actor: User | None) -> Act:
    return Act(actor, "page", "because", "r-1")


def today() -> dt.date:
    return database_now().date()


def members(project: Project) -> dict[str, str]:
    return dict(Membership.objects.filter(project=project).values_list("user__username", "role"))


def rights(project: Project, user: User) -> set[str]:
    rows = ProjectUserPermission.objects.filter(content_object=project, user=user)
    return set(rows.values_list("permission__codename", flat=True))


def allowed(act: Callable[[], object]) -> bool:
    try:
        act()
    except Forbidden:
        return False
    return True


def opened(people: dict[str, User], slug: str = "fresh", **values: Any) -> Project:
    details = Details(**{"title": "New", "ends_on": today() + 30 * DAY} | values)
    return projects.open_project(slug=slug, owner=people["member"], details=details, act=by(people["admin"]))


def test_a_project_is_opened_with_its_owner_inside_and_one_audit_row_a_change(people: dict[str, User]) -> None:
    made = opened(people, purpose="To see", cost_centre="K1", department=Department.objects.get(slug="research"))
    assert (made.title, made.purpose, made.cost_centre, made.grace_days) == ("New", "To see", "K1", 7)
    assert members(made) == {"member": "owner"}
    assert rights(made, people["member"]) == {roles.VIEW, roles.CHANGE}
    rows = AuditEvent.objects.filter(project=made).order_by("pk")
    said = [(row.verb, row.actor, row.via, row.reason, row.request_id) for row in rows]
    same = (people["admin"], "page", "because", "r-1")
    assert said == [("project.created", *same), ("member.role", *same)]
    assert rows[0].after is not None
    assert rows[0].after["owner"] == "member"


@pytest.mark.parametrize("name", ALL)
def test_site_admins_and_managers_open_projects_and_set_dates(
    people: dict[str, User], vision: Project, name: str
) -> None:
    actor = people[name]
    details = Details(title="T", ends_on=today() + DAY)
    done = allowed(lambda: projects.open_project(slug="t", owner=actor, details=details, act=by(actor)))
    assert done == Project.objects.filter(slug="t").exists() == (name in GOVERNING)
    later = Details(ends_on=today() + 500 * DAY)
    assert allowed(lambda: projects.change_project(project=vision, details=later, act=by(actor))) == (name in GOVERNING)


@pytest.mark.parametrize("name", ALL)
def test_a_projects_own_people_say_what_it_is_for(people: dict[str, User], vision: Project, name: str) -> None:
    actor, text = people[name], Details(title="Seen", purpose="Eyes")
    done = allowed(lambda: projects.change_project(project=vision, details=text, act=by(actor)))
    assert done == (name in {"owner", "deputy", "admin", "manager"})
    vision.refresh_from_db()
    assert (vision.title == "Seen") == done


@pytest.mark.parametrize("name", ALL)
def test_who_decides_who_is_in_a_project(people: dict[str, User], vision: Project, name: str) -> None:
    actor, may = people[name], name in {"owner", "deputy", "admin"}
    new = factories.user("newcomer")
    act = by(actor)
    assert allowed(lambda: projects.set_role(project=vision, user=new, role=MEMBER, act=act)) == may
    assert ("newcomer" in members(vision)) == may
    assert allowed(lambda: projects.remove_member(project=vision, user=people["researcher"], act=act)) == may
    assert ("researcher" in members(vision)) != may
    assert rights(vision, people["researcher"]) == (set() if may else {roles.VIEW})


@pytest.mark.parametrize("name", ALL)
def test_a_project_is_handed_over_by_its_owner_or_a_site_admin(
    people: dict[str, User], vision: Project, name: str
) -> None:
    done = allowed(lambda: projects.hand_over(project=vision, to=people["member"], act=by(people[name])))
    assert done == (name in {"owner", "admin"})
    vision.refresh_from_db()
    assert vision.owner == people["member" if done else "owner"]
    roles_now = members(vision)
    assert (roles_now["owner"], roles_now["member"]) == (("manager", "owner") if done else ("owner", "member"))
    assert roles.CHANGE in rights(vision, vision.owner)


def test_a_role_changes_and_with_it_the_rights(people: dict[str, User], vision: Project) -> None:
    act = by(people["owner"])
    projects.set_role(project=vision, user=people["member"], role=MANAGER, act=act)
    assert rights(vision, people["member"]) == {roles.VIEW, roles.CHANGE}
    projects.set_role(project=vision, user=people["member"], role=VIEWER, act=act)
    assert rights(vision, people["member"]) == {roles.VIEW}
    rows = AuditEvent.objects.filter(project=vision, verb="member.role", actor=people["owner"]).order_by("pk")
    assert [(row.before or {})["role"] for row in rows] == ["member", "manager"]
    projects.set_role(project=vision, user=people["member"], role=VIEWER, act=act)  # as it is: no row
    assert rows.count() == 2


def test_a_member_leaves_and_what_they_run_goes_on(people: dict[str, User], vision: Project) -> None:
    factories.node()
    job = factories.job(people["member"])
    assert projects.remove_member(project=vision, user=people["member"], act=by(people["member"]))
    assert not projects.remove_member(project=vision, user=people["member"], act=by(people["owner"]))
    assert AuditEvent.objects.filter(project=vision, verb="member.removed").count() == 1
    assert place_queued()["placed"] == 1
    assert Job.objects.get(pk=job.pk).by == people["member"]
    assert not Job.objects.visible_to(people["member"]).exists()


def test_a_change_says_what_it_changed_and_nothing_when_it_changed_nothing(
    people: dict[str, User], vision: Project
) -> None:
    until = today() + 40 * DAY
    for _ in range(2):
        projects.change_project(project=vision, details=Details(ends_on=until), act=by(people["manager"]))
    row = AuditEvent.objects.get(project=vision, verb="project.changed")
    assert row.before == {"ends_on": str(vision.ends_on)}
    assert row.after == {"ends_on": str(until)}


def test_a_later_end_takes_a_project_back_to_work_before_it_is_reclaimed(
    people: dict[str, User], vision: Project
) -> None:
    Project.objects.filter(pk=vision.pk).update(state=ProjectState.ENDING, ends_on=today() - DAY)
    details = Details(ends_on=today() + DAY)
    assert projects.change_project(project=vision, details=details, act=by(people["admin"])).state == "active"
    row = AuditEvent.objects.get(project=vision, verb="project.changed")
    assert row.after is not None
    assert row.after["state"] == "active"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"slug": "with space"}, "slug"),
        ({"slug": ""}, "slug"),
        ({"slug": "x" * 51}, "slug"),
        ({"slug": "vision"}, "slug"),
        ({"title": "  "}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"purpose": "x" * 2001}, "purpose"),
        ({"cost_centre": "x" * 65}, "cost_centre"),
        ({"grace_days": 91}, "grace_days"),
        ({"grace_days": -1}, "grace_days"),
        ({"ends_on": None}, "ends_on"),
        ({"starts_on": dt.date(2199, 1, 2), "ends_on": dt.date(2199, 1, 1)}, "ends_on"),
        ({"starts_on": dt.date(2020, 1, 1), "ends_on": dt.date(2020, 1, 2)}, "ends_on"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    people: dict[str, User], values: dict[str, Any], field: str
) -> None:
    before = AuditEvent.objects.count()
    with pytest.raises(Refused) as found:
        opened(people, **values)
    assert found.value.field == field
    assert AuditEvent.objects.count() == before


def test_one_owner_who_goes_by_hand_over_alone(people: dict[str, User], vision: Project) -> None:
    owner, deputy = people["owner"], people["deputy"]
    for act in (
        lambda: projects.remove_member(project=vision, user=owner, act=by(owner)),
        lambda: projects.set_role(project=vision, user=owner, role=MEMBER, act=by(deputy)),
        lambda: projects.hand_over(project=vision, to=owner, act=by(owner)),
    ):
        with pytest.raises(Conflict, match="own"):
            act()
    with pytest.raises(Refused, match="Hand it over"):
        projects.set_role(project=vision, user=people["member"], role=OWNER, act=by(owner))


def test_who_has_left_gets_nothing_and_gives_nothing(people: dict[str, User], vision: Project) -> None:
    User.objects.filter(username__in=["outsider", "owner", "admin"]).update(is_active=False)
    gone, owner, admin = (User.objects.get(username=name) for name in ("outsider", "owner", "admin"))
    with pytest.raises(Refused, match="has left"):
        projects.set_role(project=vision, user=gone, role=MEMBER, act=by(people["deputy"]))
    for actor in (owner, admin):
        for act in (
            lambda actor=actor: projects.hand_over(project=vision, to=people["member"], act=by(actor)),
            lambda actor=actor: projects.set_role(project=vision, user=people["member"], role=VIEWER, act=by(actor)),
            lambda actor=actor: projects.change_project(project=vision, details=Details(title="x"), act=by(actor)),
        ):
            with pytest.raises(Forbidden):
                act()
    with pytest.raises(Refused, match="has left"):
        projects.hand_over(project=vision, to=gone, act=by(None))


def test_in_a_project_that_has_ended_nothing_changes_and_all_read(people: dict[str, User], vision: Project) -> None:
    Project.objects.filter(pk=vision.pk).update(state=ProjectState.ENDED)
    vision.refresh_from_db()
    roles.derive(vision)
    assert {frozenset(rights(vision, people[name])) for name in ("owner", "deputy", "reader")} == {
        frozenset({roles.VIEW})
    }
    admin = by(people["admin"])
    for act in (
        lambda: projects.change_project(project=vision, details=Details(title="x"), act=admin),
        lambda: projects.set_role(project=vision, user=people["outsider"], role=MEMBER, act=admin),
        lambda: projects.remove_member(project=vision, user=people["member"], act=admin),
        lambda: projects.hand_over(project=vision, to=people["member"], act=admin),
    ):
        with pytest.raises(Conflict, match="ended"):
            act()


def test_rights_are_made_equal_to_the_roles_whatever_was_there(people: dict[str, User], vision: Project) -> None:
    ProjectUserPermission.objects.filter(content_object=vision, user=people["owner"]).delete()
    change = ProjectUserPermission.objects.filter(permission__codename=roles.CHANGE).first()
    assert change is not None
    for name in ("outsider", "reader"):
        ProjectUserPermission.objects.create(
            content_object=vision, user=people[name], permission_id=change.permission_id
        )
    roles.derive(vision)
    found = {name: rights(vision, people[name]) for name in ("owner", "outsider", "reader")}
    assert found == {"owner": {roles.VIEW, roles.CHANGE}, "outsider": set(), "reader": {roles.VIEW}}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ledger_membership WHERE role = 'owner' AND project_id = %(p)s",
        "UPDATE ledger_membership SET role = 'member' WHERE role = 'owner' AND project_id = %(p)s",
        "UPDATE ledger_project SET owner_id = %(u)s WHERE id = %(p)s",
        "UPDATE ledger_membership SET role = 'owner' WHERE project_id = %(p)s",
    ],
)
def test_the_database_keeps_the_one_owner_among_the_members(
    people: dict[str, User], vision: Project, statement: str
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, {"p": vision.pk, "u": people["outsider"].pk})
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.parametrize("slug", ["new", "New"])
def test_no_short_name_hides_a_page(people: dict[str, User], slug: str) -> None:
    with pytest.raises(Refused) as found:
        opened(people, slug)
    assert (found.value.field, found.value.code) == ("slug", "reserved")


@pytest.mark.parametrize("name", ["starts_on", "ends_on"])
@pytest.mark.parametrize("day", [dt.date(1969, 12, 31), dt.date(2200, 1, 1), dt.date.max])
def test_days_lie_where_every_clock_can_show_them(people: dict[str, User], name: str, day: dt.date) -> None:
    with pytest.raises(Refused) as found:
        opened(people, **{name: day})
    assert (found.value.field, found.value.code) == (name, "out_of_range")
