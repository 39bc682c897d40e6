"""Who may sign in: by admins alone, never without one, and what leaving ends and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import accounts
from ledger.acts import Act
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import ApiToken, AuditEvent, Job, User
from ledger.people import create_token
from ledger.vocabulary import SiteRole
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> dict[str, User]:
    return factories.cast()


def by(user: User | None, reason: str = "because") -> Act:
    return Act(user, "page", reason)


def made(people: dict[str, User], **values: Any) -> tuple[User, str]:
    given = {"username": "fresh", "email": "fresh@lab.example", "site_role": SiteRole.RESEARCHER} | values
    return accounts.create_account(act=by(people["admin"]), **given)


def test_a_new_person_signs_in_with_a_password_that_is_shown_once(people: dict[str, User]) -> None:
    user, password = made(people)
    assert User.objects.get(username="fresh").check_password(password)
    row = AuditEvent.objects.get(verb="user.created")
    assert row.after == {"username": "fresh", "email": "fresh@lab.example", "site_role": "researcher"}
    assert row.target_id == str(user.pk)


@pytest.mark.parametrize("name", ["owner", "operator", "manager", "auditor"])
def test_only_admins_decide(people: dict[str, User], name: str) -> None:
    act, member = by(people[name]), people["member"]
    for attempt in (
        lambda: accounts.create_account(username="x", email="", site_role=SiteRole.ADMIN, act=act),
        lambda: accounts.set_site_role(user=member, site_role=SiteRole.ADMIN, act=act),
        lambda: accounts.deactivate(user=member, act=act),
        lambda: accounts.reactivate(user=member, act=act),
    ):
        with pytest.raises(Forbidden):
            attempt()
    assert not AuditEvent.objects.filter(verb__startswith="user.").exists()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"username": ""}, "username"),
        ({"username": "with space"}, "username"),
        ({"username": "New"}, "username"),
        ({"username": ".."}, "username"),
        ({"username": "x" * 151}, "username"),
        ({"username": "member"}, "username"),
        ({"email": "nowhere"}, "email"),
    ],
)
def test_what_is_wrong_is_named(people: dict[str, User], values: dict[str, str], field: str) -> None:
    with pytest.raises(Refused) as found:
        made(people, **values)
    assert found.value.field == field


def test_who_leaves_loses_every_way_in_and_nothing_that_runs(people: dict[str, User]) -> None:
    member = people["member"]
    create_token(user=member, label="t", days=None, actor=member, via="test")
    job = factories.job(member)
    accounts.deactivate(user=member, act=by(people["admin"], "moved on"))
    assert not User.objects.get(pk=member.pk).is_active
    assert ApiToken.objects.get().revoked_at is not None
    assert Job.objects.get(pk=job.pk).state == "queued"
    row = AuditEvent.objects.get(verb="user.deactivated")
    assert (row.reason, row.after) == (
        "moved on",
        {"is_active": False, "sessions_ended": 0, "tokens_revoked": 1},
    )
    with pytest.raises(Conflict):
        accounts.deactivate(user=member, act=by(people["admin"]))
    accounts.reactivate(user=member, act=by(people["admin"]))
    assert User.objects.get(pk=member.pk).is_active
    assert ApiToken.objects.get().revoked_at is not None


def test_there_is_always_an_admin_and_nobody_changes_themselves(people: dict[str, User]) -> None:
    admin = people["admin"]
    for attempt in (
        lambda: accounts.deactivate(user=admin, act=by(admin)),
        lambda: accounts.set_site_role(user=admin, site_role=SiteRole.AUDITOR, act=by(admin)),
    ):
        with pytest.raises(Forbidden, match="own account"):
            attempt()
    for attempt in (
        lambda: accounts.deactivate(user=admin, act=by(None)),
        lambda: accounts.set_site_role(user=admin, site_role=SiteRole.AUDITOR, act=by(None)),
    ):
        with pytest.raises(Conflict, match="last admin"):
            attempt()
    second = accounts.set_site_role(user=people["owner"], site_role=SiteRole.ADMIN, act=by(admin))
    accounts.deactivate(user=admin, act=by(second))
    assert list(User.objects.filter(site_role="admin", is_active=True)) == [second]


def test_an_act_needs_its_reason(people: dict[str, User]) -> None:
    act = by(people["admin"], " ")
    for attempt in (
        lambda: accounts.set_site_role(user=people["member"], site_role=SiteRole.ADMIN, act=act),
        lambda: accounts.deactivate(user=people["member"], act=act),
    ):
        with pytest.raises(Refused) as found:
            attempt()
        assert found.value.field == "reason"
