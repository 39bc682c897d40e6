"""What odd grants open, by the matrices of tests/data/access: who operates one zone gets an operator's answers in it and a
stranger's elsewhere; who audits one department gets an auditor's answers about it and those below, and a stranger's about
the rest; grants that are over, withdrawn, or of who has left give nothing.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.urls import reverse

from ledger import odd_grants
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import AuditEvent, Department, OddGrant, Project, ProjectRequest, User, Zone
from ledger.vocabulary import OddGrantKind
from scheduler.policy import Scope, Terms
from scheduler.policy_changes import put_version, withdraw
from scheduler.policy_rows import JobPolicy
from tests import factories
from tests.portal.api import test_access as of_api
from tests.portal.api.client import api
from tests.portal.views import test_matrix as of_pages

pytestmark = pytest.mark.django_db
Row = dict[str, str]
DAY = dt.timedelta(days=1)
# what belongs to a department: the rest of the rows (sessions, machines, people …) is nobody's part of it
DEPARTMENTAL = {
    *("job", "jobs", "project", "member", "invitation", "request", "quota", "reclaim", "receipt", "audit"),
    *("balance", "what", "department", "policies", "policy"),
}
OPENED = {"departments", "reclaim", "department", "department-change"}  # to auditors of a department, cut to their part
# what is out of the pool and drills, which they see and act on in their zone
OUT = {"out", "case", "case-done", "case-test", "case-release", "case-scrap", "case-acts"}
OUT |= {"drills", "drills-new", "drill", "drill-abort"}
MACHINES = {"nodes-hold", "nodes-drain", "nodes-return", "cards-hold", "cards-return", "holds", "hold-end"}


def _stranger(row: Row) -> str:
    """The column of somebody in none of the row's projects."""
    return row["researcher" if row["object"] in ("other", "mine") else "outsider"]


def of_auditor(row: Row) -> str:
    """Of the department of vision, nearby and over."""
    if row["name"] in OPENED:
        return row["auditor"]
    inside = row["object"] not in ("-", "none", "other") and row["name"].partition("-")[0] in DEPARTMENTAL
    return row["auditor"] if inside else _stranger(row)


def of_operator(row: Row) -> str:
    """Of the zone in which n1 and its card are, and over which the rights of the matrix are."""
    return row["operator"] if row["name"] in (*MACHINES, *OUT, "fault", "right", "right-withdraw") else _stranger(row)


_ASKING = MACHINES - {"holds", "hold-end"}  # previews, which name what they are about


def of_operator_elsewhere(row: Row) -> str:
    """Of a zone in which none of these machines is: they may ask, without naming any."""
    named = (row["name"], row["method"]) in {(name, "POST") for name in ("nodes-hold", "nodes-drain", "cards-hold")}
    if row["name"] in _ASKING and not named:
        return row["operator"]
    if row["name"] == "fault" and row["object"] == "none":
        return row["operator"]
    if row["name"] in ("holds", "hold-end") and row["object"] == "none" and row["method"] == "POST":
        return row["operator"]  # nothing is there, which everybody sees in the lists of machines
    if row["name"] in OUT and (row["name"], row["method"]) != ("drills", "POST"):
        return row["operator"] if row["object"] == "-" else "404"  # lists, cut to their zone
    return _stranger(row)


def person(name: str, place: Zone | Department, began: float = -1, ends: float = 7) -> User:
    """Somebody in no project, with an odd grant that began and ends so many days from now."""
    now, user = database_now(), factories.user(name)
    where = {"zone": place} if isinstance(place, Zone) else {"department": place}
    kind = OddGrantKind.ZONE_OPERATOR if isinstance(place, Zone) else OddGrantKind.AUDITOR
    period = (now + began * DAY, now + ends * DAY)
    OddGrant.objects.create(user=user, by=factories.user("admin"), kind=kind, reason="x", period=period, **where)
    return user


def research() -> Department:
    return Department.objects.get(slug="research")


def _apart() -> None:
    """Whatever is outsider's alone is of another department."""
    Project.objects.filter(slug="gone").update(department=Department.objects.get(slug="elsewhere"))


def page_faults(world: of_pages.World, user: User, wanted: Callable[[Row], str]) -> list[str]:
    browser, wrong = of_pages.World._browser(user), []
    for row in of_pages.rows():
        address = world.address(row["name"], row["object"])
        response = of_pages._undone(
            lambda r=row, a=address: of_pages._send(browser, r["method"], a, r["name"])  # type: ignore[misc]
        )
        if str(response.status_code) != wanted(row):
            wrong.append(f"{row['method']} {address} ({row['object']}): {response.status_code}, not {wanted(row)}")
    return wrong


def api_faults(world: of_api.World, user: User, wanted: Callable[[Row], str]) -> list[str]:
    caller, wrong = api(user), []
    for row in of_api.rows():
        path = world.path(row)
        response = of_api.undone(lambda r=row, p=path: world.send(caller, r, p))  # type: ignore[misc]
        if str(response.status_code) != wanted(row):
            wrong.append(f"{row['method']} {path} ({row['object']}): {response.status_code}, not {wanted(row)}")
    return wrong


def grants() -> dict[str, tuple[User, Callable[[Row], str]]]:
    """Each with what their matrix is."""
    admin = Act(factories.user("admin"), "test", "x")
    found: dict[str, tuple[User, Callable[[Row], str]]] = {
        "auditor": (person("one", research()), of_auditor),
        "operator": (person("two", factories.zone()), of_operator),
        "elsewhere": (person("three", factories.zone("far")), of_operator_elsewhere),
        "not yet": (person("four", research(), 1, 7), _stranger),
        "over": (person("five", research(), -7, -0.001), _stranger),
        "over, of a zone": (person("six", factories.zone(), -7, -0.001), _stranger),
    }
    for name, place in (("withdrawn", research()), ("withdrawn, of a zone", factories.zone())):
        user = person(name.replace(",", ""), place)
        odd_grants.withdraw(grant=OddGrant.objects.get(user=user), act=admin)
        found[name] = (user, _stranger)
    return found


WHICH = ["auditor", "operator", "elsewhere", "not yet", "over", "over, of a zone", "withdrawn", "withdrawn, of a zone"]


@pytest.mark.parametrize("which", WHICH)
def test_pages_answer_as_the_grant_says(people: dict[str, User], which: str) -> None:
    world = of_pages.World(people)
    _apart()
    assert page_faults(world, *grants()[which]) == []


@pytest.mark.parametrize("which", WHICH)
def test_the_api_answers_as_the_grant_says(people: dict[str, User], which: str) -> None:
    world = of_api.World(people)
    _apart()
    assert api_faults(world, *grants()[which]) == []


# -- lists, counts, filters, files, search, errors ---------------------------------------------------------------------

SECRET = re.compile(r"\boutside\b|hidden work|guest of other|Outside")
OF_RESEARCH = ("vision", "nearby", "over")


def _text(response: Any) -> str:
    return (b"".join(response) if response.streaming else response.content).decode()


def test_an_auditor_of_a_department_finds_its_part_and_no_more_in_lists_files_and_searches(
    people: dict[str, User],
) -> None:
    world = of_pages.World(people)
    _apart()
    browser = world._browser(person("one", research()))
    told = [
        f"{address}: {found.group()}"
        for address in of_pages._lists()
        if (found := SECRET.search(_text(browser.get(address)).replace("q=out", "")))
    ]
    assert told == []
    seen = {name: _text(browser.get(reverse(name))) for name in ("projects", "jobs", "requests", "audit", "quota")}
    assert "3 rows" in seen["projects"]
    assert "4 rows" in seen["jobs"]
    assert "4 rows" in seen["requests"]
    for slug in OF_RESEARCH:
        assert slug in seen["projects"]
        assert slug in seen["audit"]
    assert "nearby work" in _text(browser.get(reverse("search") + "?q=nearby"))
    assert "nearby work" in _text(browser.get(reverse("jobs") + "?export=csv"))
    assert "invitation.made" in seen["audit"]


def test_a_filter_by_a_project_of_another_department_says_what_it_says_of_none(people: dict[str, User]) -> None:
    world = of_pages.World(people)
    browser = world._browser(person("one", research()))
    for name in ("jobs", "audit", "queue", "books", "books-lines"):
        there, nowhere = (_text(browser.get(f"{reverse(name)}?project={slug}")) for slug in ("outside", "nowhere"))
        kept = [re.sub(r'nonce-[^"\']+|csrf[^>]+>|\b20\d\d-[^<"]+', "", text) for text in (there, nowhere)]
        assert re.sub(r"\boutside\b", "nowhere", kept[0]) == kept[1], name
    assert "No job matches" not in _text(browser.get(reverse("jobs") + "?project=nearby"))


def test_errors_of_another_department_are_those_of_nothing(people: dict[str, User]) -> None:
    world = of_api.World(people)
    caller = api(person("one", research()))
    for path in ("jobs/{}/", "jobs/{}/log/"):
        other, none = (caller.get(path.format(world.jobs[which])) for which in ("other", "none"))
        assert (other.status_code, other.json()) == (404, none.json())
    other, none = (caller.get("books/balance/", project=slug) for slug in ("outside", "nope"))
    assert (other.status_code, other.json()) == (400, none.json())
    other, none = (caller.post("jobs/", world.body("jobs", which)) for which in ("other", "none"))
    assert (other.status_code, other.json()) == (400, none.json())
    assert {row["slug"] for row in caller.get("projects/").json()["results"]} == {*OF_RESEARCH, "gone"}


def test_departments_show_the_audited_one_and_those_below_it(people: dict[str, User]) -> None:
    world = of_pages.World(people)
    top = Department.objects.create(slug="top", title="The whole house")
    Department.objects.filter(slug="research").update(parent=top)
    Department.objects.create(slug="lab", title="The lab", parent=research())
    browser = world._browser(person("one", research()))
    tree = _text(browser.get(reverse("departments")))
    assert "The lab" in tree
    assert "The whole house" not in tree
    assert "Elsewhere" not in tree
    page = _text(browser.get(reverse("department", args=["research"])))
    assert "below The whole house" in page  # its policies bear on what is audited, and name it
    assert reverse("department", args=["top"]) not in page
    codes = [
        browser.get(reverse("department", args=[slug])).status_code for slug in ("lab", "top", "elsewhere", "nope")
    ]
    assert codes == [200, 404, 404, 404]


def test_a_request_for_a_new_project_is_read_by_who_audits_its_department(people: dict[str, User]) -> None:
    world = of_pages.World(people)
    for slug, where in (("fresh", "research"), ("foreign", "elsewhere"), ("loose", None)):
        of_pages.relations.requests.ask(
            kind=of_pages.relations.RequestKind.NEW_PROJECT,
            project=None,
            details={"slug": slug, "title": slug.title(), "ends_on": "2199-01-01", "department": where},
            act=Act(people["outsider"], "test", f"for {slug}"),
        )
    caller = api(person("one", research()))
    asked = {row["details"].get("slug") for row in caller.get("requests/").json()["results"]}
    assert asked == {None, "fresh"}
    assert world  # the rest of the world is there as well


def test_use_of_other_departments_stands_together(people: dict[str, User], turn: Callable[[], None]) -> None:
    of_pages.World(people)
    turn()
    browser = of_pages.World._browser(person("one", research()))
    text = _text(browser.get(reverse("books-lines") + "?hardware=simulated&export=csv"))
    assert SECRET.search(text) is None


def _made_and_decided(slug: str, where: str, people: dict[str, User]) -> None:
    relations = of_pages.relations
    request = relations.requests.ask(
        kind=relations.RequestKind.NEW_PROJECT,
        project=None,
        details={"slug": slug, "title": slug.title(), "ends_on": "2199-01-01", "department": where},
        act=Act(people["outsider"], "test", f"for {slug}"),
    )
    relations.requests.comment(request=request, text="for what?", act=Act(people["manager"], "test"))
    for name in ("manager", "admin"):
        relations.requests.decide(request=request, approves=True, act=Act(people[name], "test", "fine"))


def test_the_trail_of_a_request_for_a_new_project_is_read_by_who_audits_its_department(
    people: dict[str, User],
) -> None:
    of_pages.World(people)
    for slug, where in (("fresh", "research"), ("foreign", "elsewhere")):
        _made_and_decided(slug, where, people)
    seen = AuditEvent.objects.visible_to(person("one", research()))
    for slug, verbs in (
        ("fresh", {"request.made", "request.comment", "request.verdict", "request.approved"}),
        ("foreign", set()),
    ):
        request = ProjectRequest.objects.get(details__slug=slug)
        rows = seen.filter(target_type="projectrequest", target_id=str(request.pk))
        assert set(rows.values_list("verb", flat=True)) == verbs, slug


def test_the_trail_of_policies_that_bear_on_the_department_is_read_by_who_audits_it(people: dict[str, User]) -> None:
    of_pages.World(people)
    top = Department.objects.create(slug="top", title="The whole house")
    Department.objects.filter(slug="research").update(parent=top)
    lab = Department.objects.create(slug="lab", title="The lab", parent=research())
    vision, outside = (Project.objects.get(slug=slug) for slug in ("vision", "outside"))
    elsewhere = Department.objects.get(slug="elsewhere")
    scopes = {
        "all": Scope(),
        "top": Scope(department=top.pk),
        "research": Scope(department=research().pk),
        "lab": Scope(department=lab.pk),
        "elsewhere": Scope(department=elsewhere.pk),
        "vision": Scope(project=vision.pk),
        "outside": Scope(project=outside.pk),
    }
    for name, scope in scopes.items():
        for how in (partial(put_version, terms=Terms(priority_most=7)), withdraw):
            how(scope=replace(scope, kind="data"), act=Act(people["manager"], "test", f"of {name}"))
    user = person("one", research())
    seen = AuditEvent.objects.visible_to(user).filter(target_type="jobpolicy", reason__startswith="of ")
    assert set(seen.values_list("reason", "verb")) == {
        (f"of {name}", verb)
        for name in ("all", "top", "research", "lab", "vision")
        for verb in ("policy.set", "policy.withdrawn")
    }
    told = {row.target_id for row in seen}
    known = JobPolicy.objects.visible_to(user).filter(kind="data")
    assert told == {str(pk) for pk in known.values_list("pk", flat=True)}
