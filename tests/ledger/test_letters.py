"""What single people are told: each thing once, whoever it concerns and nobody else, in words that hold when they are read;
whatever a pass was killed at, the next one goes on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import translation

from ledger import audit, invitations, letters, odd_grants, requests
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import (
    AuditEvent,
    Delivery,
    Department,
    Invitation,
    Letter,
    OddGrant,
    Project,
    ProjectRequest,
    User,
)
from ledger.models.letters import LetterKind
from ledger.vocabulary import DeliveryState, OddGrantKind, ProjectRole, RequestKind, SiteRole
from tests import factories

pytestmark = pytest.mark.django_db
DAY = dt.timedelta(days=1)
Told = set[tuple[str, str]]


@pytest.fixture
def vision(db: None) -> Project:
    factories.cast()
    return factories.project("vision", deputy=ProjectRole.MANAGER)


def act(name: str, reason: str = "because") -> Act:
    return Act(User.objects.get(username=name), "test", reason)


def told(kind: LetterKind | None = None) -> Told:
    """(person, kind) of all letters, or the people of those of a kind."""
    rows = Letter.objects.filter(kind=kind) if kind else Letter.objects.all()
    return set(rows.values_list("to__username", "kind"))


def asked(vision: Project, days: int = 9, by: str = "owner") -> ProjectRequest:
    later = {"ends_on": vision.ends_on + days * DAY}
    return requests.ask(kind=RequestKind.EXTENSION, project=vision, details=later, act=act(by))


def joining(vision: Project, by: str = "outsider") -> ProjectRequest:
    return requests.ask(kind=RequestKind.JOIN, project=vision, details={}, act=act(by))


def invited(vision: Project, name: str = "outsider") -> Invitation:
    user = User.objects.get(username=name)
    return invitations.invite(project=vision, user=user, role=ProjectRole.MEMBER, act=act("owner"))


def given(name: str = "researcher", began: float = 1, ends: float = 7) -> OddGrant:
    now = database_now()
    period = (now - began * DAY, now + ends * DAY)
    user, admin = User.objects.get(username=name), User.objects.get(username="admin")
    values = {"kind": OddGrantKind.ZONE_OPERATOR, "zone": factories.zone(), "reason": "x", "period": period}
    return OddGrant.objects.create(user=user, by=admin, **values)


# -- who is told of what -----------------------------------------------------------------------------------------------


def test_who_is_invited_is_told_once(vision: Project) -> None:
    invited(vision)
    assert letters.write_due() == {"letters": 1, "odd": 0}
    assert told() == {("outsider", "invited")}
    assert letters.write_due() == {"letters": 0, "odd": 0}
    row = AuditEvent.objects.get(verb="letter.written")
    assert row.after == {"to": "outsider", "kind": "invited", "invitation": Invitation.objects.get().pk}


def test_who_may_decide_is_told_and_nobody_else(vision: Project) -> None:
    asked(vision)
    joining(vision)
    letters.write_due()
    by_request = {
        kind: set(Letter.objects.filter(request__kind=kind).values_list("to__username", flat=True))
        for kind in (RequestKind.EXTENSION, RequestKind.JOIN)
    }
    assert by_request == {
        RequestKind.EXTENSION: {"admin", "manager"},
        RequestKind.JOIN: {"owner", "deputy", "admin"},
    }


@pytest.mark.parametrize(
    "who", ["owner", "deputy", "researcher", "outsider", "manager", "admin", "operator", "auditor"]
)
def test_they_are_those_that_the_list_of_requests_waits_for(vision: Project, who: str) -> None:
    """The query of letters and RequestQuerySet.decided_by say the same."""
    asked(vision)
    joining(vision)
    requests.ask(
        kind=RequestKind.NEW_PROJECT,
        project=None,
        details={"slug": "fresh", "title": "Fresh", "ends_on": "2199-01-01"},
        act=act("researcher"),
    )
    letters.write_due()
    user = User.objects.get(username=who)
    wanted = set(ProjectRequest.objects.decided_by(user).values_list("pk", flat=True))
    assert set(Letter.objects.filter(to=user, kind="to_decide").values_list("request", flat=True)) == wanted


def test_a_manager_who_comes_later_is_told_of_what_still_waits(vision: Project) -> None:
    joining(vision)
    letters.write_due()
    factories.project("vision", researcher=ProjectRole.MANAGER)
    assert letters.write_due()["letters"] == 1
    assert ("researcher", "to_decide") in told()


def test_who_asked_is_told_of_comments_by_others(vision: Project) -> None:
    request = asked(vision)
    for name in ("owner", "manager", "manager"):
        requests.comment(request=request, text="why?", act=act(name))
    letters.write_due()
    assert [letter.to.username for letter in Letter.objects.filter(kind="commented")] == ["owner", "owner"]


def test_who_asked_is_told_what_became_of_it(vision: Project) -> None:
    requests.decide(request=asked(vision), approves=True, act=act("manager"))
    requests.decide(request=asked(vision, 40), approves=False, act=act("manager"))
    late = joining(vision)
    ProjectRequest.objects.filter(pk=late.pk).update(expires_at=database_now())
    requests.expire_requests()
    requests.withdraw(request=asked(vision, 50), act=act("owner"))
    letters.write_due()
    assert told() == {("owner", "approved"), ("owner", "refused"), ("outsider", "expired")}


def test_a_first_of_two_approvals_is_not_yet_an_answer(vision: Project, settings: Any) -> None:
    settings.TWO_PERSONS_DAYS = 1
    requests.decide(request=asked(vision), approves=True, act=act("manager"))
    letters.write_due()
    assert told(LetterKind.APPROVED) == set()


GRANTS: list[tuple[str, float, float, Told]] = [
    ("just given", 0, 7, {("researcher", "grant_given")}),
    ("about to end", 9, 2.9, {("researcher", "grant_given"), ("researcher", "grant_ends")}),
    ("not yet about to end", 9, 3.1, {("researcher", "grant_given")}),
    ("so short that its end is no news", 0, 2, {("researcher", "grant_given")}),
    ("over", 9, -0.001, {("researcher", "grant_over")}),
    ("long over", 40, -15, set()),
]


@pytest.mark.parametrize(("what", "began", "ends", "expected"), GRANTS, ids=[row[0] for row in GRANTS])
def test_of_a_right_its_person_is_told(vision: Project, what: str, began: float, ends: float, expected: Told) -> None:
    given(began=began, ends=ends)
    letters.write_due()
    assert told() == expected


def test_a_withdrawn_right_is_told_as_over(vision: Project) -> None:
    grant = given()
    letters.write_due()
    odd_grants.withdraw(grant=grant, act=act("admin"))
    letters.write_due()
    assert told() == {("researcher", "grant_given"), ("researcher", "grant_over")}


def test_nothing_is_told_to_who_has_left_or_of_what_is_long_over(vision: Project) -> None:
    invited(vision)
    request = asked(vision)
    requests.decide(request=request, approves=False, act=act("manager"))
    old = database_now() - letters.RECENT
    ProjectRequest.objects.update(decided_at=old)
    User.objects.filter(username="outsider").update(is_active=False)
    assert letters.write_due() == {"letters": 0, "odd": 0}


# -- whatever happens --------------------------------------------------------------------------------------------------


def test_a_pass_that_is_killed_leaves_whole_letters_and_the_next_one_goes_on(
    vision: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(vision)
    real, calls = audit.record, iter(range(9))

    def killed(**values: Any) -> None:
        real(**values)
        if next(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(audit, "record", killed)
    with pytest.raises(KeyboardInterrupt):
        letters.write_due()
    assert Letter.objects.count() == Delivery.objects.count() == 1
    monkeypatch.setattr(audit, "record", real)
    letters.write_due()
    assert told() == {("admin", "to_decide"), ("manager", "to_decide")}
    assert (
        Letter.objects.count() == Delivery.objects.count() == AuditEvent.objects.filter(verb="letter.written").count()
    )


def test_an_odd_one_stops_no_other(vision: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(vision)
    real = audit.record

    def odd(**values: Any) -> None:
        if values["after"]["to"] == "admin":
            raise RuntimeError("odd")
        real(**values)

    monkeypatch.setattr(audit, "record", odd)
    assert letters.write_due() == {"letters": 1, "odd": 1}
    assert told() == {("manager", "to_decide")}


def test_two_passes_at_once_write_one_letter(vision: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    invited(vision)
    found = letters._missing(LetterKind.INVITED, database_now())
    letters.write_due()
    assert [letters._write(LetterKind.INVITED, one.thing, one.person, database_now()) for one in found] == [0]
    assert Letter.objects.count() == 1


def test_a_letter_has_its_delivery_or_says_why_not(vision: Project, settings: Any) -> None:
    asked(vision)
    User.objects.filter(username="admin").update(email="admin@lab.example")
    settings.EMAIL_HOST = "mail.lab.example"
    letters.write_due()
    invited(vision)
    settings.EMAIL_HOST = ""
    letters.write_due()
    states = dict(Delivery.objects.values_list("to__username", "state"))
    assert states == {
        "admin": DeliveryState.PENDING,
        "manager": DeliveryState.FAILED,
        "outsider": DeliveryState.NOT_CONFIGURED,
    }


# -- what is read ------------------------------------------------------------------------------------------------------


def _hand_in(vision: Project) -> None:
    requests.withdraw(request=ProjectRequest.objects.get(), act=act("owner"))


def _decide(vision: Project) -> None:
    requests.decide(request=ProjectRequest.objects.get(), approves=False, act=act("manager"))


def _lower(vision: Project) -> None:
    User.objects.filter(username="admin").update(site_role=SiteRole.RESEARCHER)


def _leave(vision: Project) -> None:
    User.objects.filter(username="admin").update(is_active=False)


@pytest.mark.parametrize("change", [_hand_in, _decide, _lower, _leave])
def test_what_is_no_longer_so_or_no_longer_theirs_is_not_told(
    vision: Project, change: Callable[[Project], None]
) -> None:
    asked(vision)
    letters.write_due()
    rows = letters.with_things(Letter.objects.filter(to__username="admin", kind="to_decide"))
    assert letters.holds(rows.get(), database_now())
    change(vision)
    assert not letters.holds(rows.get(), database_now())


def test_an_invitation_that_is_taken_back_is_not_told(vision: Project) -> None:
    invitation = invited(vision)
    letters.write_due()
    rows = letters.with_things(Letter.objects)
    assert letters.holds(rows.get(), database_now())
    assert not letters.holds(rows.get(), database_now() + 31 * DAY)
    invitations.withdraw(invitation=invitation, act=act("owner"))
    assert not letters.holds(rows.get(), database_now())


def test_the_first_page_shows_news_for_two_weeks_and_not_what_it_lists_anyway(vision: Project) -> None:
    invited(vision, "auditor")
    requests.decide(request=asked(vision), approves=True, act=act("manager"))
    asked(vision, 40)
    given("owner")
    letters.write_due()
    now = database_now()
    shown = {
        name: [letters.headline(one) for one in letters.shown_to(User.objects.get(username=name), now)]
        for name in ("owner", "manager", "auditor")
    }
    first = ProjectRequest.objects.earliest("pk").pk
    until = f"{OddGrant.objects.get().period.upper:%Y-%m-%d %H:%M} UTC"
    assert shown == {
        "owner": [f"You operate zone flexible until {until}.", f"Your request {first} is approved."],
        "manager": [],
        "auditor": [],
    }
    assert letters.shown_to(User.objects.get(username="owner"), now + letters.RECENT) == []


def test_every_kind_has_its_words_in_both_languages(vision: Project) -> None:
    invited(vision)
    request = asked(vision)
    requests.comment(request=request, text="why?", act=act("manager"))
    requests.decide(request=request, approves=True, act=act("manager"))
    requests.decide(request=asked(vision, 40), approves=False, act=act("manager"))
    joining(vision, "auditor")
    late = asked(vision, 50)
    ProjectRequest.objects.filter(pk=late.pk).update(expires_at=database_now())
    requests.expire_requests()
    given(began=9, ends=1)
    given("member", 9, -0.001)
    letters.write_due()
    rows = list(letters.with_things(Letter.objects))
    assert {letter.kind for letter in rows} == set(LetterKind)
    for language in ("en", "zh-hans"):
        with translation.override(language):
            for letter in rows:
                said = letters.headline(letter), letters.meaning(letter)
                assert all(said), letter
                assert "%(" not in "".join(said), letter


# -- no flood ----------------------------------------------------------------------------------------------------------


def pass_at(hours: float) -> dict[str, int]:
    return letters.write_due(database_now() + dt.timedelta(hours=hours))


def test_an_invitation_that_is_made_again_and_again_is_told_once_a_day(vision: Project) -> None:
    for _ in range(5):
        invitation = invited(vision)
        letters.write_due()
        invitations.withdraw(invitation=invitation, act=act("owner"))
    assert Letter.objects.filter(kind="invited").count() == 1
    last = invited(vision)
    assert pass_at(23)["letters"] == 0
    assert pass_at(25)["letters"] == 1
    assert Letter.objects.latest("pk").invitation == last


def test_one_person_brings_another_so_many_letters_of_a_kind_a_day(
    vision: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By asking and taking it back between two passes, by commenting, by inviting into many projects."""
    monkeypatch.setattr(letters, "MOST_A_DAY", 3)
    kept = asked(vision, 99)
    for number in range(5):
        request = asked(vision, 9 + number)
        requests.comment(request=kept, text="why?", act=act("manager"))
        mine = factories.project(f"p{number}")
        user = User.objects.get(username="outsider")
        invitations.invite(project=mine, user=user, role=ProjectRole.MEMBER, act=act("owner"))
        letters.write_due()
        requests.withdraw(request=request, act=act("owner"))
    counts = {
        (name, kind): Letter.objects.filter(to__username=name, kind=kind).count()
        for name, kind in (
            ("admin", "to_decide"),
            ("manager", "to_decide"),
            ("owner", "commented"),
            ("outsider", "invited"),
        )
    }
    assert set(counts.values()) == {3}, counts
    joining(vision)
    letters.write_due()
    assert Letter.objects.filter(to__username="admin", kind="to_decide").count() == 4  # of somebody else
    assert pass_at(25)["letters"] == 4  # what is still so: two comments, two invitations


def test_so_many_at_once_are_told_in_turns(vision: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_A_DAY", 3)
    request = asked(vision)
    for _ in range(5):
        requests.comment(request=request, text="why?", act=act("manager"))
    letters.write_due()
    assert Letter.objects.filter(kind="commented").count() == 3
    pass_at(25)
    assert Letter.objects.filter(kind="commented").count() == 5


def test_what_can_never_be_written_keeps_nothing_newer_waiting(
    vision: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "BATCH", 2)
    monkeypatch.setattr(letters, "MOST_A_DAY", 2)
    request, real = asked(vision), audit.record
    odd = [requests.comment(request=request, text="odd", act=act("manager")).pk for _ in range(5)]
    good = requests.comment(request=request, text="good", act=act("manager")).pk

    def fails(**values: Any) -> None:
        if values["after"].get("comment") in odd:
            raise RuntimeError("odd")
        real(**values)

    monkeypatch.setattr(audit, "record", fails)
    assert letters.write_due()["odd"] == 5
    assert [letter.comment_id for letter in Letter.objects.filter(kind="commented")] == [good]


def test_who_has_given_their_verdict_is_not_asked_for_it(vision: Project, settings: Any) -> None:
    settings.TWO_PERSONS_DAYS = 1
    request = asked(vision)
    requests.decide(request=request, approves=True, act=act("manager"))
    letters.write_due()
    assert told(LetterKind.TO_DECIDE) == {("admin", "to_decide")}
    waits = ProjectRequest.objects.decided_by
    manager, admin = (User.objects.get(username=name) for name in ("manager", "admin"))
    assert (waits(manager).count(), waits(admin).count()) == (0, 1)


# -- a right that goes on ----------------------------------------------------------------------------------------------


def _again(user: User) -> None:
    given(began=0, ends=7)


def _by_role(user: User) -> None:
    User.objects.filter(pk=user.pk).update(site_role=SiteRole.OPERATOR)


def _nothing(user: User) -> None:
    pass


@pytest.mark.parametrize(("change", "over"), [(_nothing, True), (_again, False), (_by_role, False)])
@pytest.mark.parametrize("first", [True, False])
def test_who_may_still_do_it_is_not_told_that_it_is_over(
    vision: Project, change: Callable[[User], None], over: bool, first: bool
) -> None:
    """Neither written afterwards nor shown or sent where it was written before."""
    given(began=9, ends=-0.001)
    user = User.objects.get(username="researcher")
    if not first:
        letters.write_due()
    change(user)
    letters.write_due()
    assert (("researcher", "grant_over") in told()) is (over or not first)
    now = database_now()
    shown = letters.shown_to(User.objects.get(pk=user.pk), now)
    assert (LetterKind.GRANT_OVER in {letter.kind for letter in shown}) is over
    rows = letters.with_things(Letter.objects.filter(kind="grant_over"))
    assert [letters.holds(letter, now) for letter in rows] == ([over] if over or not first else [])


def test_who_audits_the_department_above_still_audits_the_one_below(vision: Project) -> None:
    now, admin = database_now(), User.objects.get(username="admin")
    top = Department.objects.create(slug="top", title="Top")
    below = Department.objects.create(slug="below", title="Below", parent=top)
    user = User.objects.get(username="researcher")
    values = {"user": user, "by": admin, "kind": OddGrantKind.AUDITOR, "reason": "x"}
    OddGrant.objects.create(department=top, period=(now - 9 * DAY, now + DAY), **values)
    OddGrant.objects.create(department=below, period=(now - 9 * DAY, now), **values)
    assert letters.write_due(now)["letters"] == 2
    assert told() == {("researcher", "grant_given"), ("researcher", "grant_ends")}
    late = OddGrant.objects.get(department=below)
    letters.write_due(now + 2 * DAY)
    [letter] = letters.with_things(Letter.objects.filter(kind="grant_over", grant=late))
    assert not letters.holds(letter, now)  # written when both are over, read while one is not
