"""Odd grants: who gives what to whom until when, what they give at each moment, and what the database refuses."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import ProtectedError

from ledger import accounts, holds, leavers, odd_grants, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import (
    AuditEvent,
    Department,
    DepartmentUserPermission,
    Hold,
    OddGrant,
    Project,
    User,
    Zone,
    ZoneUserPermission,
)
from ledger.models.people import Powers
from ledger.vocabulary import HoldKind, OddGrantKind, ProjectRole, SiteRole
from tests import factories

pytestmark = pytest.mark.django_db
DAY = dt.timedelta(days=1)


def by(name: str = "admin", reason: str = "night shift") -> Act:
    return Act(
        factories.user(name, SiteRole.ADMIN if name.startswith("admin") else SiteRole.RESEARCHER), "test", reason
    )


def department(slug: str = "research", parent: Department | None = None) -> Department:
    return Department.objects.get_or_create(slug=slug, defaults={"title": slug, "parent": parent})[0]


def give(
    name: str = "researcher", place: Zone | Department | None = None, days: float = 7, act: Act | None = None
) -> Any:
    user, until = factories.user(name), database_now() + days * DAY
    return odd_grants.give(user=user, place=place or factories.zone(), until=until, act=act or by())


def old(name: str, place: Zone | Department, began: float, ended: float) -> OddGrant:
    """As it stands some days after it was given, ended and was forgotten by every pass."""
    now, kind = database_now(), OddGrantKind.ZONE_OPERATOR if isinstance(place, Zone) else OddGrantKind.AUDITOR
    where = {"zone": place} if isinstance(place, Zone) else {"department": place}
    period = (now - began * DAY, now - ended * DAY)
    by_admin = by().actor
    assert by_admin is not None
    values = {"kind": kind, "period": period, "reason": "x", **where}
    return OddGrant.objects.create(user=factories.user(name), by=by_admin, **values)


def powers(name: str = "researcher") -> Powers:
    """As the next request finds them."""
    return User.objects.get(username=name).odd_powers


def permitted(name: str = "researcher") -> set[tuple[str, str]]:
    """By django-guardian's rows."""
    rows = ZoneUserPermission.objects.filter(user__username=name)
    more = DepartmentUserPermission.objects.filter(user__username=name)
    return {(row.permission.codename, str(row.content_object)) for row in (*rows, *more)}


def test_a_grant_gives_its_zone_and_nothing_else_from_now_on() -> None:
    here, _there = factories.zone("here"), factories.zone("there")
    give(place=here)
    user = User.objects.get(username="researcher")
    assert powers() == Powers(frozenset({here.pk}), frozenset())
    assert (user.operates, user.operates_somewhere, user.sees_everything, user.audits_somewhere) == (
        False,
        True,
        False,
        False,
    )
    assert permitted() == {("operate_zone", "here")}
    assert user.has_perm("ledger.operate_zone", here)
    assert not user.has_perm("ledger.operate_zone", _there)


def test_an_auditor_has_the_department_and_those_below_it() -> None:
    top = department("top")
    middle = department("middle", top)
    low = department("low", middle)
    beside = department("beside", top)
    give(place=middle)
    assert powers().departments == {middle.pk, low.pk}
    assert permitted() == {("audit_department", "middle")}
    Department.objects.filter(pk=beside.pk).update(parent=middle)
    assert powers().departments == {middle.pk, low.pk, beside.pk}


def test_whatever_moves_below_is_seen_and_whatever_leaves_is_not() -> None:
    research, other = department(), department("other")
    project = factories.project("vision")
    give("guest", research)
    guest = User.objects.get(username="guest")
    assert list(Project.objects.visible_to(guest)) == [project]
    Project.objects.update(department=other)
    assert list(Project.objects.visible_to(guest)) == []


def test_the_audit_row_says_who_gave_what_until_when_and_why() -> None:
    grant = give()
    row = AuditEvent.objects.get(verb="odd_grant.given")
    assert (row.actor, row.target_type, row.target_id, row.reason) == (
        by().actor,
        "oddgrant",
        str(grant.pk),
        "night shift",
    )
    until = grant.period.upper.isoformat()
    assert row.after == {"user": "researcher", "kind": "zone_operator", "zone": "flexible", "until": until}


def test_its_end_counts_at_the_next_request_though_no_pass_ran() -> None:
    zone, research = factories.zone(), department()
    for place in (zone, research):
        old("researcher", place, 9, 0.001)
    roles.derive_odd(factories.user("researcher").pk, database_now() - DAY)
    assert powers() == Powers()
    assert permitted() == {("operate_zone", "flexible"), ("audit_department", "research")}
    assert odd_grants.tidy() == {"tidied": 1}
    assert permitted() == set()
    assert odd_grants.tidy() == {"tidied": 0}
    row = AuditEvent.objects.get(verb="odd_grant.over")
    assert (row.actor, row.target_type, row.before, row.after) == (
        None,
        "user",
        {"zones": ["flexible"], "departments": ["research"]},
        {"zones": [], "departments": []},
    )


def test_a_pass_goes_on_after_an_odd_person(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ada", "ben"):
        old(name, factories.zone(), 9, 0.001)
        roles.derive_odd(factories.user(name).pk, database_now() - DAY)
    real, ada = roles.derive_odd, factories.user("ada").pk

    def derive(user_id: int, now: dt.datetime) -> None:
        if user_id == ada:
            raise RuntimeError("odd")
        real(user_id, now)

    monkeypatch.setattr(roles, "derive_odd", derive)
    assert odd_grants.tidy() == {"tidied": 1}
    assert (permitted("ada"), permitted("ben")) == ({("operate_zone", "flexible")}, set())


def test_a_withdrawn_grant_gives_nothing_and_keeps_when_and_by_whom() -> None:
    grant = give()
    ended = odd_grants.withdraw(grant=grant, act=by("admin-2", "no longer needed"))
    assert (powers(), permitted()) == (Powers(), set())
    assert ended.period.upper == ended.withdrawn_at
    assert ended.withdrawn_by == factories.user("admin-2")
    row = AuditEvent.objects.get(verb="odd_grant.withdrawn")
    assert (row.before, row.reason) == ({"until": grant.period.upper.isoformat()}, "no longer needed")
    with pytest.raises(Conflict) as refused:
        odd_grants.withdraw(grant=grant, act=by())
    assert refused.value.code == "ended"
    assert give(days=3).pk != grant.pk


def test_who_has_left_has_nothing_until_they_are_back() -> None:
    grant = give()
    accounts.deactivate(user=factories.user("researcher"), act=by())
    assert powers() == Powers()
    (standing,) = leavers.leavers()
    assert standing.odd_grants == [grant]
    accounts.reactivate(user=factories.user("researcher"), act=by())
    assert powers().zones == {grant.zone_id}


def test_a_role_that_has_it_everywhere_reads_all_still() -> None:
    """Who becomes an auditor of the site keeps the smaller right, which adds nothing."""
    give("researcher", department())
    accounts.set_site_role(user=factories.user("researcher"), site_role=SiteRole.AUDITOR, act=by())
    user = User.objects.get(username="researcher")
    assert (user.sees_everything, user.audited_departments, user.audits(None)) == (True, frozenset(), True)


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str, str]] = [
    ("by a researcher", {"act": "researcher"}, Forbidden, "", "role"),
    ("by a researcher to another", {"act": "owner"}, Forbidden, "", "role"),
    ("to themselves", {"name": "admin"}, Forbidden, "user", "self"),
    ("without a reason", {"reason": " "}, Refused, "reason", "reason"),
    ("that is over", {"days": -0.001}, Refused, "until", "past"),
    ("of more than a year", {"days": 367}, Refused, "until", "too_long"),
    ("to who has left", {"name": "gone"}, Refused, "user", "inactive"),
    ("of a zone to an operator", {"name": "operator"}, Conflict, "user", "by_role"),
    ("of a department to an auditor", {"name": "auditor", "place": "research"}, Conflict, "user", "by_role"),
    ("that stands already", {"name": "member"}, Conflict, "user", "granted"),
]


@pytest.mark.parametrize(("what", "values", "error", "field", "code"), REFUSED, ids=[row[0] for row in REFUSED])
def test_no_grant_is_given(what: str, values: dict[str, Any], error: type[Exception], field: str, code: str) -> None:
    factories.cast()
    factories.user("gone")
    User.objects.filter(username="gone").update(is_active=False)
    give("member")
    before = (OddGrant.objects.count(), AuditEvent.objects.count())
    place = department() if values.get("place") else factories.zone()
    act = by(values.get("act", "admin"), values.get("reason", "night shift"))
    with pytest.raises(error) as refused:
        give(values.get("name", "researcher"), place, values.get("days", 7), act)
    assert (refused.value.field, refused.value.code) == (field, code)  # type: ignore[attr-defined]
    assert (OddGrant.objects.count(), AuditEvent.objects.count()) == before


def test_the_system_itself_gives_none_and_only_admins_withdraw() -> None:
    with pytest.raises(Forbidden):
        give(act=Act(None, "task", "x"))
    grant = give()
    for act in (
        Act(None, "task", "x"),
        by("researcher"),
        Act(factories.user("manager", SiteRole.MANAGER), "test", "x"),
    ):
        with pytest.raises(Forbidden):
            odd_grants.withdraw(grant=grant, act=act)


BROKEN: list[tuple[str, str, dict[str, Any]]] = [
    ("a place of both kinds", "odd_grant_of_one_place", {"department": "research"}),
    ("no place", "odd_grant_of_one_place", {"zone": None}),
    ("the wrong kind", "odd_grant_of_one_place", {"kind": OddGrantKind.AUDITOR}),
    ("no end", "odd_grant_has_an_end", {"period": "open"}),
    ("to themselves", "nobody_grants_to_themselves", {"by": "researcher"}),
    ("no reason", "odd_grant_says_why", {"reason": ""}),
    ("twice", "one_odd_grant_of_a_zone", {"twice": True}),
]


@pytest.mark.parametrize(("what", "constraint", "values"), BROKEN, ids=[row[0] for row in BROKEN])
def test_the_database_refuses(what: str, constraint: str, values: dict[str, Any]) -> None:
    now = database_now()
    about: dict[str, Any] = {"user": factories.user("researcher"), "zone": factories.zone(), "reason": "x"}
    about |= {"kind": OddGrantKind.ZONE_OPERATOR, "by": by().actor, "period": (now, now + DAY)}
    if values.get("twice"):
        OddGrant.objects.create(**about)
    about |= {name: value for name, value in values.items() if name in ("zone", "kind", "reason")}
    if "by" in values:
        about["by"] = factories.user("researcher")
    if "department" in values:
        about["department"] = department()
    if "period" in values:
        about["period"] = (now, None)
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        OddGrant.objects.create(**about)
    assert constraint in str(refused.value)


CHANGES = {
    "longer": "period = tstzrange(lower(period), upper(period) + interval '1 day')",
    "another person": "user_id = by_id, by_id = user_id",
    "shorter without saying so": "period = tstzrange(lower(period), clock_timestamp())",
    "another reason": "reason = 'better'",
    "into the past": "period = tstzrange(lower(period), lower(period) + interval '1 microsecond'), withdrawn_by_id = by_id, "
    "withdrawn_at = lower(period) + interval '1 microsecond'",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_grant_is_never_changed(change: str) -> None:
    grant = old("researcher", factories.zone(), 9, -9)
    _refused(f"UPDATE ledger_oddgrant SET {change} WHERE id = {grant.pk}")


def _refused(statement: str) -> None:
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert "odd_grant_stays" in str(refused.value) or "stays as it is" in str(refused.value)


def test_a_withdrawn_grant_does_not_come_back() -> None:
    grant = odd_grants.withdraw(grant=give(), act=by())
    _refused(
        "UPDATE ledger_oddgrant SET withdrawn_at = NULL, withdrawn_by_id = NULL, "
        f"period = tstzrange(lower(period), upper(period) + interval '1 day') WHERE id = {grant.pk}"
    )


def test_no_number_is_used_again_by_somebody_or_something_else() -> None:
    """While there is a grant its person, zone and department stay, so that nobody inherits a right with a number; that
    the grant stays is told in test_application_role."""
    zone, research = factories.zone(), department()
    old("researcher", zone, 9, 1)
    old("researcher", research, 9, 1)
    for thing in (zone, research, factories.user("researcher")):
        with pytest.raises(ProtectedError), transaction.atomic():
            thing.delete()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for table, pk in (("zone", zone.pk), ("department", research.pk), ("user", factories.user("researcher").pk)):
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM ledger_{table} WHERE id = %s", [pk])


def test_permissions_follow_grants_whatever_stood_before() -> None:
    user, zone = factories.user("researcher"), factories.zone("never")
    permission = Permission.objects.get(codename="operate_zone")
    ZoneUserPermission.objects.create(user=user, content_object=zone, permission=permission)
    give(place=factories.zone("here"))
    assert permitted() == {("operate_zone", "here")}


def test_without_grants_the_question_is_asked_once_and_never_for_who_sees_all(
    django_assert_num_queries: Any,
) -> None:
    factories.project("vision", researcher=ProjectRole.MEMBER)
    user, auditor = User.objects.get(username="researcher"), factories.user("auditor", SiteRole.AUDITOR)
    with django_assert_num_queries(3):
        for _ in range(2):
            list(Project.objects.visible_to(user))
    with django_assert_num_queries(1):
        list(Project.objects.visible_to(auditor))


@pytest.mark.django_db(transaction=True)
def test_who_acts_by_a_right_waits_for_its_withdrawal_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    grant, node = give(), factories.node("n1", in_zone=factories.zone())
    user, begun, may_end = User.objects.get(username="researcher"), threading.Event(), threading.Event()
    assert user.operated_zones
    real, answers = roles.derive_odd, list[Any]()

    def slowly(*values: Any) -> None:
        begun.set()
        may_end.wait(2)
        real(*values)

    def run(work: Callable[[], Any]) -> None:
        try:
            answers.append(work())
        except Exception as error:
            answers.append(error)
        finally:
            connection.close()

    monkeypatch.setattr(roles, "derive_odd", slowly)
    hold = partial(holds.hold_one, kind=HoldKind.FAULT, node=node, reason="fan", actor=user, via="test")
    works = [partial(odd_grants.withdraw, grant=grant, act=by()), hold]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    threads[0].start()
    assert begun.wait(2)
    threads[1].start()
    threads[1].join(0.3)
    assert answers == []
    may_end.set()
    for thread in threads:
        thread.join()
    assert {type(answer) for answer in answers} == {OddGrant, Forbidden}  # which thread tells first is chance
    assert not Hold.objects.exists()
