"""Asking, deciding, and what an approval does: who may, what is refused, and that nobody decides their own."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import requests
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import (
    AuditEvent,
    Membership,
    Project,
    ProjectRequest,
    QuotaGrant,
    RequestComment,
    RequestVerdict,
    User,
)
from ledger.request_kinds import changes
from ledger.vocabulary import ProjectRole, RequestKind, Resource, SiteRole
from tests import factories

pytestmark = pytest.mark.django_db
QUOTA, EXTENSION, NEW_PROJECT, JOIN = RequestKind
MANAGER = ProjectRole.MANAGER
NAMES = ("owner", "deputy", "member", "outsider", "guest", "admin", "manager", "operator", "auditor")
GOVERNING = {"admin", "manager"}


@pytest.fixture
def people() -> dict[str, User]:
    found = factories.cast()
    more = factories.users(dict.fromkeys(("deputy", "guest"), SiteRole.RESEARCHER))
    more |= factories.users({"second": SiteRole.MANAGER})
    factories.join(Project.objects.get(slug="vision"), {more["deputy"]: MANAGER})
    return found | more


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


def day(after: int) -> str:
    return str(database_now().date() + dt.timedelta(days=after))


def asked(by: User, kind: RequestKind, project: Project | None = None, **details: Any) -> ProjectRequest:
    return requests.ask(kind=kind, project=project, details=details, act=Act(by, "page", "we need it"))


def later(by: User, project: Project, days: int = 400) -> ProjectRequest:
    return asked(by, EXTENSION, project, ends_on=day(days))


def yes(request: ProjectRequest, by: User) -> ProjectRequest:
    return requests.decide(request=request, approves=True, act=Act(by, "page"))


def no(request: ProjectRequest, by: User, reason: str = "not now") -> ProjectRequest:
    return requests.decide(request=request, approves=False, act=Act(by, "page", reason))


def of(request: ProjectRequest) -> tuple[str, ...]:
    rows = AuditEvent.objects.filter(target_type="projectrequest", target_id=str(request.pk)).order_by("pk")
    return tuple(rows.values_list("verb", flat=True))


@pytest.mark.parametrize("name", NAMES)
def test_an_extension_is_asked_for_by_the_projects_managers(
    people: dict[str, User], vision: Project, name: str
) -> None:
    if name in ("owner", "deputy"):
        assert later(people[name], vision).state == "open"
        return
    with pytest.raises(Forbidden):
        later(people[name], vision)
    assert not ProjectRequest.objects.exists()


@pytest.mark.parametrize("name", NAMES)
def test_an_extension_is_granted_by_the_site(people: dict[str, User], vision: Project, name: str) -> None:
    request = later(people["deputy"], vision)
    assert changes(request) == [("ends_on", str(vision.ends_on), day(400))]
    if name not in GOVERNING:
        with pytest.raises(Forbidden):
            yes(request, people[name])
        with pytest.raises(Forbidden):
            no(request, people[name])
        assert of(request) == ("request.made",)
        return
    assert yes(request, people[name]).state == "approved"
    ended = vision.ends_on
    vision.refresh_from_db()
    assert str(vision.ends_on) == day(400)
    row = AuditEvent.objects.get(project=vision, verb="project.changed")
    assert (row.actor, row.on_behalf_of, row.reason) == (people[name], people["deputy"], "we need it")
    assert of(request) == ("request.made", "request.verdict", "request.approved")
    assert changes(ProjectRequest.objects.get()) == [("ends_on", str(ended), day(400))]


@pytest.mark.parametrize("name", NAMES)
def test_to_join_is_granted_by_the_projects_managers(people: dict[str, User], vision: Project, name: str) -> None:
    request = asked(people["guest"], JOIN, vision)
    if name in ("owner", "deputy", "admin"):
        assert yes(request, people[name]).state == "approved"
        assert Membership.objects.get(project=vision, user=people["guest"]).role == "member"
        return
    with pytest.raises(Forbidden):
        yes(request, people[name])
    assert not Membership.objects.filter(project=vision, user=people["guest"]).exists()


def test_a_new_project_belongs_to_who_asked(people: dict[str, User]) -> None:
    request = asked(people["guest"], NEW_PROJECT, slug="fresh", title="Fresh", department="research", ends_on=day(90))
    assert yes(request, people["manager"]).project == Project.objects.get(slug="fresh")
    made = Project.objects.get(slug="fresh")
    assert (made.owner, made.title, str(made.ends_on)) == (people["guest"], "Fresh", day(90))
    assert made.department is not None


def test_a_large_one_needs_two_people(people: dict[str, User], vision: Project) -> None:
    request = later(people["owner"], vision, days=365 + 367)
    assert request.needs == 2
    assert yes(request, people["manager"]).state == "open"
    with pytest.raises(Conflict, match="somebody else"):
        yes(request, people["manager"])
    assert Project.objects.get(pk=vision.pk).ends_on == vision.ends_on
    assert yes(request, people["admin"]).state == "approved"
    assert str(Project.objects.get(pk=vision.pk).ends_on) == day(365 + 367)
    assert later(people["owner"], vision, days=365 + 367 + 366).needs == 1


def test_an_approval_counts_as_long_as_its_giver_may_decide(people: dict[str, User], vision: Project) -> None:
    request = later(people["owner"], vision, days=365 + 367)
    yes(request, people["second"])
    User.objects.filter(pk=people["second"].pk).update(is_active=False)
    assert requests.missing(request, requests.verdicts_on(request)) == 2
    assert yes(request, people["manager"]).state == "open"
    assert yes(request, people["admin"]).state == "approved"


def test_what_is_asked_for_is_more_when_it_is_approved_too(people: dict[str, User], vision: Project) -> None:
    """Else the later approval of an older request would take away what came meanwhile."""
    less, most = later(people["owner"], vision, days=400), later(people["deputy"], vision, days=500)
    yes(most, people["manager"])
    with pytest.raises(Conflict) as found:
        yes(less, people["manager"])
    assert found.value.code == "stale"
    assert str(Project.objects.get(pk=vision.pk).ends_on) == day(500)
    assert not RequestVerdict.objects.filter(request=less).exists()
    grant = factories.grant(vision, Resource.CARD_MILLI, 10_000)
    twelve = asked(people["owner"], QUOTA, vision, resource="card_milli", amount=12_000)
    QuotaGrant.objects.filter(pk=grant.pk).update(amount=20_000)
    with pytest.raises(Conflict) as found:
        yes(twelve, people["manager"])
    assert found.value.code == "stale"
    assert no(twelve, people["manager"]).state == "refused"


def test_a_step_that_became_a_large_one_needs_two_people(people: dict[str, User], vision: Project) -> None:
    grant = factories.grant(vision, Resource.CARD_MILLI, 100_000)
    request = asked(people["owner"], QUOTA, vision, resource="card_milli", amount=150_000)
    assert request.needs == 1
    QuotaGrant.objects.filter(pk=grant.pk).update(amount=10_000)
    assert yes(request, people["manager"]).state == "open"
    assert yes(request, people["admin"]).state == "approved"
    assert QuotaGrant.objects.get(project=vision, period__contains=database_now()).amount == 150_000


def test_more_of_a_budget_that_renews_renews_as_before(people: dict[str, User], vision: Project) -> None:
    grant = factories.grant(vision, Resource.CARD_MILLI_S, 1000)
    QuotaGrant.objects.filter(pk=grant.pk).update(renews="quarter")
    request = asked(people["owner"], QUOTA, vision, resource="card_milli_s", amount=2000)
    yes(request, people["admin"])
    now = QuotaGrant.objects.get(project=vision, period__contains=database_now())
    assert (now.amount, now.renews) == (2000, "quarter")


def test_one_refusal_ends_it_and_says_why(people: dict[str, User], vision: Project) -> None:
    request = later(people["owner"], vision, days=365 + 367)
    yes(request, people["manager"])
    with pytest.raises(Refused) as found:
        no(request, people["second"], reason=" ")
    assert found.value.field == "reason"
    assert no(request, people["second"]).state == "refused"
    with pytest.raises(Conflict):
        yes(request, people["admin"])
    assert Project.objects.get(pk=vision.pk).ends_on == vision.ends_on


def test_nobody_decides_their_own(people: dict[str, User]) -> None:
    request = asked(people["admin"], NEW_PROJECT, slug="mine", title="Mine", ends_on=day(9))
    with pytest.raises(Forbidden, match="their own"):
        yes(request, people["admin"])
    own = {"request": request, "asked_by": people["admin"], "approves": True, "at": database_now()}
    with pytest.raises(IntegrityError), transaction.atomic():
        RequestVerdict.objects.create(by=people["admin"], **own)
    with pytest.raises(IntegrityError), transaction.atomic():  # nor under another author's name
        RequestVerdict.objects.create(by=people["admin"], **own | {"asked_by": people["guest"]})
    assert yes(request, people["manager"]).state == "approved"


def test_what_was_decided_stays_decided(people: dict[str, User], vision: Project) -> None:
    request = yes(later(people["owner"], vision), people["admin"])
    with pytest.raises(IntegrityError), transaction.atomic():
        ProjectRequest.objects.filter(pk=request.pk).update(state="refused")
    with pytest.raises(Conflict):
        requests.withdraw(request=request, act=Act(people["owner"], "page"))


def test_who_asked_takes_it_back(people: dict[str, User], vision: Project) -> None:
    request = later(people["owner"], vision)
    with pytest.raises(Forbidden):
        requests.withdraw(request=request, act=Act(people["deputy"], "page"))
    assert requests.withdraw(request=request, act=Act(people["owner"], "page")).state == "withdrawn"
    with pytest.raises(Conflict):
        yes(request, people["admin"])


def test_a_request_that_nobody_decides_ends(people: dict[str, User], vision: Project) -> None:
    request = later(people["owner"], vision)
    assert requests.expire_requests() == 0
    ProjectRequest.objects.update(expires_at=database_now() - dt.timedelta(seconds=1))
    with pytest.raises(Conflict, match="time of this request"):
        yes(request, people["admin"])
    assert (requests.expire_requests(), requests.expire_requests()) == (1, 0)
    assert ProjectRequest.objects.get().state == "expired"


def test_who_asked_and_who_decides_talk_about_it(people: dict[str, User], vision: Project) -> None:
    request = later(people["owner"], vision)
    for name in ("owner", "manager"):
        requests.comment(request=request, text=f" from {name} ", act=Act(people[name], "page"))
    for name in ("member", "guest", "auditor"):
        with pytest.raises(Forbidden):
            requests.comment(request=request, text="me too", act=Act(people[name], "page"))
    for text in ("", " ", "x" * 2001):
        with pytest.raises(Refused) as found:
            requests.comment(request=request, text=text, act=Act(people["owner"], "page"))
        assert found.value.field == "text"
    assert list(RequestComment.objects.order_by("pk").values_list("text", flat=True)) == ["from owner", "from manager"]


@pytest.mark.parametrize(
    ("kind", "details", "field"),
    [
        (EXTENSION, {"ends_on": ""}, "ends_on"),
        (EXTENSION, {"ends_on": "soon"}, "ends_on"),
        (EXTENSION, {"ends_on": "2026-02-30"}, "ends_on"),
        (EXTENSION, {"ends_on": "2020-01-01"}, "ends_on"),
        (JOIN, {}, "project"),
        (JOIN, {"role": "owner"}, "role"),
        (NEW_PROJECT, {"title": "x", "ends_on": "2199-01-01"}, "slug"),
        (NEW_PROJECT, {"slug": "vision", "title": "x", "ends_on": "2199-01-01"}, "slug"),
        (NEW_PROJECT, {"slug": "fresh", "title": "", "ends_on": "2199-01-01"}, "title"),
        (NEW_PROJECT, {"slug": "fresh", "title": ["x"], "ends_on": "2199-01-01"}, "title"),
        (NEW_PROJECT, {"slug": "fresh", "title": "x"}, "ends_on"),
        (NEW_PROJECT, {"slug": "fresh", "title": "x", "ends_on": "2199-01-01", "starts_on": "2199-01-02"}, "ends_on"),
        (NEW_PROJECT, {"slug": "fresh", "title": "x", "ends_on": "2199-01-01", "department": "nope"}, "department"),
    ],
)
def test_what_is_wrong_is_named(
    people: dict[str, User], vision: Project, kind: RequestKind, details: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refused) as found:
        asked(people["owner"], kind, None if kind == NEW_PROJECT else vision, **details)
    assert found.value.field == field
    assert not ProjectRequest.objects.exists()


def test_one_asks_once_and_not_without_end(people: dict[str, User], vision: Project) -> None:
    asked(people["guest"], JOIN, vision)
    with pytest.raises(Conflict, match="no answer yet"):
        asked(people["guest"], JOIN, vision)
    for n in range(requests.MOST_OPEN - 1):
        asked(people["guest"], NEW_PROJECT, slug=f"p{n}", title="x", ends_on=day(9))
    with pytest.raises(Refused, match="the most"):
        asked(people["guest"], NEW_PROJECT, slug="more", title="x", ends_on=day(9))


def test_each_sees_their_part(people: dict[str, User], vision: Project) -> None:
    asked(people["guest"], JOIN, vision)
    later(people["owner"], vision)
    seen = {name: ProjectRequest.objects.visible_to(user).count() for name, user in people.items()}
    both = dict.fromkeys(("owner", "deputy", "admin", "manager", "second", "operator", "auditor"), 2)
    assert seen == dict.fromkeys(people, 0) | both | {"guest": 1}
    to_decide = {name: ProjectRequest.objects.decided_by(user).count() for name, user in people.items()}
    counts = {"owner": 1, "deputy": 1, "admin": 2, "manager": 1, "second": 1}
    assert to_decide == dict.fromkeys(people, 0) | counts
    for name, user in people.items():
        may = sum(requests.may_decide(request, user) for request in ProjectRequest.objects.all())
        assert may == counts.get(name, 0), name
