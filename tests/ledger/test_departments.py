"""The tree of departments, their ceilings, and the limits of members: who may, what is refused, what the database holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from ledger import departments, limits, member_limits, projects, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Allocation, AuditEvent, Department, DepartmentCeiling, MemberLimit, Project, User
from ledger.projects import Details
from ledger.quota import Terms
from ledger.vocabulary import ProjectRole, Resource, SiteRole
from scheduler.placing import place_queued
from tests import factories
from tests.ledger.raw import refused, run
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
MILLI, MIB, WHOLE, CPU, HOST, BUDGET = Resource
CARD = {"form": "container", "memory_mib": 0}
ALL = ("owner", "deputy", "member", "outsider", "admin", "manager", "operator", "auditor")


@pytest.fixture
def people() -> dict[str, User]:
    found = factories.cast()
    deputy = factories.user("deputy")
    factories.join(Project.objects.get(slug="vision"), {deputy: ProjectRole.MANAGER})
    return found | {"deputy": deputy}


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    return Act(people["admin"], "page", "because", "r-1")


@pytest.fixture
def research(people: dict[str, User]) -> Department:
    return Department.objects.get(slug="research")


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


def department(slug: str, parent: Department | None = None) -> Department:
    act = Act(factories.user("admin", SiteRole.ADMIN), "test", "because")
    return departments.create_department(slug=slug, title=slug.title(), parent=parent, act=act)


def running(cards: int, project: str = "vision") -> None:
    for _ in range(cards):
        flow.long_job(asks=[CARD], project=project)
    assert place_queued()["placed"] == cards


def allowed(change: Callable[[], object]) -> bool:
    try:
        change()
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("name", ALL)
def test_site_admins_and_managers_alone_write_departments(
    people: dict[str, User], research: Department, name: str
) -> None:
    act, may = Act(people[name], "page", "because"), name in {"admin", "manager"}
    new = {"slug": "new", "title": "New", "parent": research}
    assert allowed(lambda: departments.create_department(**new, act=act)) == may  # type: ignore[arg-type]
    assert allowed(lambda: departments.rename_department(department=research, title="R", act=act)) == may
    assert allowed(lambda: departments.move_department(department=research, parent=None, act=act)) == may
    assert allowed(lambda: departments.set_ceiling(department=research, cap=Cap(MILLI, 5), act=act)) == may
    assert allowed(lambda: departments.lift_ceiling(department=research, resource=MILLI, act=act)) == may
    assert Department.objects.filter(slug="new").exists() == may


def test_each_change_has_one_audit_row_with_before_and_after(research: Department, act: Act) -> None:
    top = departments.create_department(slug="top", title="Top", parent=None, act=act)
    departments.rename_department(department=research, title="Research and more", act=act)
    departments.move_department(department=research, parent=top, act=act)
    departments.set_ceiling(department=research, cap=Cap(CPU, 4000), act=act)
    departments.set_ceiling(department=research, cap=Cap(CPU, 5000), act=act)
    departments.lift_ceiling(department=research, resource=CPU, act=act)
    rows = AuditEvent.objects.filter(target_type="department").order_by("pk")
    assert [(row.verb, row.before, row.after) for row in rows] == [
        ("department.created", None, {"slug": "top", "title": "Top", "parent": None}),
        ("department.renamed", {"title": "Research"}, {"title": "Research and more"}),
        ("department.moved", {"parent": None}, {"parent": "top"}),
        ("ceiling.set", None, {"resource": "cpu_milli", "amount": 4000, "drain_at": None}),
        ("ceiling.set", rows[3].after, {"resource": "cpu_milli", "amount": 5000, "drain_at": None}),
        ("ceiling.lifted", rows[4].after, {"resource": "cpu_milli", "amount": None}),
    ]
    assert {row.reason for row in rows} == {"because"}
    assert DepartmentCeiling.objects.filter(period__contains=database_now()).count() == 0
    assert DepartmentCeiling.objects.count() == 2  # what was is kept


@pytest.mark.parametrize(
    ("slug", "title", "field"), [("a b", "A", "slug"), ("", "A", "slug"), ("a", " ", "title"), ("a", "x" * 201, "title"),
                                 ("research", "R", "slug")]
)  # fmt: skip
def test_what_is_wrong_with_a_department_is_named(
    research: Department, act: Act, slug: str, title: str, field: str
) -> None:
    with pytest.raises(Refused) as found:
        departments.create_department(slug=slug, title=title, parent=None, act=act)
    assert found.value.field == field
    assert Department.objects.count() == 1


def test_a_department_never_stands_below_itself(research: Department, act: Act) -> None:
    lab = department("lab", research)
    bench = department("bench", lab)
    for parent in (research, lab, bench):
        with pytest.raises(Refused) as found:
            departments.move_department(department=research, parent=parent, act=act)
        assert (found.value.field, found.value.code) == ("parent", "cyclic")
    assert limits.chain(bench.pk) == [research.pk, lab.pk, bench.pk]
    for parent_id in (research.pk, bench.pk):
        with refused("departments_form_a_tree", at_once=True):
            run("UPDATE ledger_department SET parent_id = %s WHERE id = %s", parent_id, research.pk)


def test_a_ceiling_holds_all_projects_below_and_no_others(research: Department, act: Act) -> None:
    flow.world(nodes=2, cards=4)
    lab = department("lab", research)
    speech = factories.project("speech", researcher=ProjectRole.MEMBER)
    Project.objects.filter(pk=speech.pk).update(department=lab)
    apart = factories.project("apart", researcher=ProjectRole.MEMBER)
    Project.objects.filter(pk=apart.pk).update(department=department("else"))
    departments.set_ceiling(department=research, cap=Cap(MILLI, 2000), act=act)
    running(1)
    running(1, "speech")
    jobs = [flow.long_job(asks=[CARD], project=project) for project in ("vision", "speech", "apart")]
    assert place_queued()["placed"] == 1
    assert [len(flow.open_allocations(job)) for job in jobs] == [0, 0, 1]


def test_a_ceiling_below_use_needs_a_date(vision: Project, research: Department, act: Act) -> None:
    flow.world(cards=4)
    running(2)
    with pytest.raises(Refused) as found:
        departments.set_ceiling(department=research, cap=Cap(MILLI, 1000), act=act)
    assert (found.value.field, found.value.code) == ("amount", "below_use")
    later = database_now() + dt.timedelta(hours=30)
    assert departments.set_ceiling(department=research, cap=Cap(MILLI, 1000, later), act=act).drain_at == later


def test_guarantees_fit_under_a_ceiling(vision: Project, research: Department, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 4000, guaranteed=3000), act=act)
    with pytest.raises(Refused) as found:
        departments.set_ceiling(department=research, cap=Cap(MILLI, 2999), act=act)
    assert (found.value.field, found.value.code) == ("amount", "guarantees_above_ceiling")
    departments.set_ceiling(department=research, cap=Cap(MILLI, 3000), act=act)
    narrow = department("narrow")
    departments.set_ceiling(department=narrow, cap=Cap(MILLI, 2000), act=act)
    with pytest.raises(Refused) as found:
        departments.move_department(department=research, parent=narrow, act=act)
    assert (found.value.field, found.value.code) == ("parent", "guarantees_above_ceiling")


def test_nothing_moves_under_a_ceiling_without_room(vision: Project, research: Department, act: Act) -> None:
    flow.world(cards=4)
    running(2)
    narrow = department("narrow")
    departments.set_ceiling(department=narrow, cap=Cap(MILLI, 1999), act=act)
    with pytest.raises(Conflict) as found:
        departments.move_department(department=research, parent=narrow, act=act)
    assert (found.value.field, found.value.code) == ("parent", "above_ceiling")
    with pytest.raises(Conflict) as found:
        projects.change_project(project=vision, details=Details(department=narrow), act=act)
    assert (found.value.field, found.value.code) == ("department", "above_ceiling")
    with refused("ceiling_never_exceeded", at_once=True):
        run("UPDATE ledger_project SET department_id = %s WHERE id = %s", narrow.pk, vision.pk)
    with refused("ceiling_never_exceeded", at_once=True):
        run("UPDATE ledger_department SET parent_id = %s WHERE id = %s", narrow.pk, research.pk)
    departments.set_ceiling(department=narrow, cap=Cap(MILLI, 2000), act=act)
    departments.move_department(department=research, parent=narrow, act=act)
    flow.long_job(asks=[CARD])
    assert place_queued()["placed"] == 0  # it is full with what has come


def test_a_project_moves_with_what_it_is_guaranteed(vision: Project, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 4000, guaranteed=3000), act=act)
    narrow = department("narrow")
    departments.set_ceiling(department=narrow, cap=Cap(MILLI, 2999), act=act)
    with pytest.raises(Refused) as found:
        projects.change_project(project=vision, details=Details(department=narrow), act=act)
    assert (found.value.field, found.value.code) == ("department", "guarantees_above_ceiling")
    departments.set_ceiling(department=narrow, cap=Cap(MILLI, 3000), act=act)
    assert projects.change_project(project=vision, details=Details(department=narrow), act=act).department == narrow


def test_what_moves_inside_the_reach_of_a_draining_ceiling_changes_nothing_for_it(
    vision: Project, research: Department, act: Act
) -> None:
    flow.world(cards=4)
    running(2)
    left, right = department("left", research), department("right", research)
    draining = Cap(MILLI, 1000, database_now() + dt.timedelta(days=2))
    departments.set_ceiling(department=research, cap=draining, act=act)
    assert projects.change_project(project=vision, details=Details(department=left), act=act).department == left
    assert departments.move_department(department=left, parent=right, act=act).parent == right
    departments.set_ceiling(department=right, cap=draining, act=act)
    departments.move_department(department=left, parent=research, act=act)  # out of it
    with pytest.raises(Conflict) as found:
        departments.move_department(department=left, parent=right, act=act)
    assert (found.value.field, found.value.code) == ("parent", "above_ceiling")
    with pytest.raises(Conflict) as found:
        projects.change_project(project=vision, details=Details(department=right), act=act)
    assert (found.value.field, found.value.code) == ("department", "above_ceiling")
    vision.refresh_from_db()
    assert vision.department == left


def test_a_budget_over_a_department(research: Department, act: Act) -> None:
    flow.world(cards=4)
    departments.set_ceiling(department=research, cap=Cap(BUDGET, 1000 * 3600 * 2), act=act)
    for _ in range(3):
        flow.long_job(asks=[CARD], walltime_s=3600)
    assert place_queued()["placed"] == 2
    ceiling = DepartmentCeiling.objects.get()
    assert ceiling.used_at_most == 1000 * 3600 * 2
    assert ceiling.bound_until == Allocation.objects.earliest("period").period.lower + dt.timedelta(hours=1)
    with pytest.raises(Refused) as found:
        departments.set_ceiling(department=research, cap=Cap(BUDGET, 1000 * 3600), act=act)
    assert found.value.code == "below_use"


# -- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_the_projects_own_people_limit_its_members(people: dict[str, User], vision: Project, name: str) -> None:
    act, may = Act(people[name], "page", "because"), name in {"owner", "deputy", "admin"}
    who = {"project": vision, "user": people["member"], "resource": CPU, "act": act}
    assert allowed(lambda: member_limits.set_limit(**who, amount=1000)) == may  # type: ignore[arg-type]
    assert MemberLimit.objects.exists() == may
    assert allowed(lambda: member_limits.lift_limit(**who)) == may  # type: ignore[arg-type]
    assert not MemberLimit.objects.exists()


def test_a_limit_holds_one_person_in_one_project(people: dict[str, User], vision: Project, act: Act) -> None:
    flow.world(cards=4)
    member_limits.set_limit(project=vision, user=people["researcher"], resource=MILLI, amount=1000, act=act)
    jobs = [flow.long_job(actor=people[name], asks=[CARD]) for name in ("researcher", "researcher", "member")]
    assert place_queued()["placed"] == 2
    assert [len(flow.open_allocations(job)) for job in jobs] == [1, 0, 1]
    member_limits.set_limit(project=vision, user=people["researcher"], resource=MILLI, amount=2000, act=act)
    assert place_queued()["placed"] == 1
    member_limits.set_limit(project=vision, user=people["researcher"], resource=MILLI, amount=0, act=act)
    assert member_limits.used(vision.pk, people["researcher"].pk, MILLI) == 2000  # what runs goes on
    rows = AuditEvent.objects.filter(verb="member.limit.set").order_by("pk")
    assert [((row.before or {})["amount"], (row.after or {})["amount"]) for row in rows] == [
        (None, 1000), (1000, 2000), (2000, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("who", "resource", "amount", "field"),
    [
        ("outsider", CPU, 5, "user"),
        ("member", CPU, -1, "amount"),
        ("member", BUDGET, 5, "resource"),
        ("member", "cards", 5, "resource"),
    ],
)
def test_what_is_wrong_with_a_limit_is_named(
    people: dict[str, User], vision: Project, act: Act, who: str, resource: Resource, amount: int, field: str
) -> None:
    with pytest.raises(Refused) as found:
        member_limits.set_limit(project=vision, user=people[who], resource=resource, amount=amount, act=act)
    assert found.value.field == field
    assert not MemberLimit.objects.exists()


def test_the_limit_of_who_leaves_waits_for_them(people: dict[str, User], vision: Project, act: Act) -> None:
    member_limits.set_limit(project=vision, user=people["member"], resource=CPU, amount=5, act=act)
    factories.leave(vision, people["member"])
    assert MemberLimit.objects.filter(user=people["member"]).exists()
