"""The pages of extra rights: given by admins with a reason and a last day, listed, withdrawn, told to who has them."""

from __future__ import annotations

import csv
import datetime as dt
import io

import pytest
from django.test import Client
from django.urls import reverse

from ledger import letters, odd_grants
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import AuditEvent, Department, OddGrant, User
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db


def in_a_week() -> dt.date:
    return database_now().date() + dt.timedelta(days=7)


def give(admin: Client, **values: str) -> tuple[int, str]:
    said = {"user": "researcher", "department": "research", "ends_on": str(in_a_week()), "reason": "the yearly audit"}
    answer = admin.post(reverse("right-new"), said | values)
    return answer.status_code, answer.content.decode()


def exported(client: Client, query: str = "") -> str:
    answer = client.get(f"{reverse('rights')}?{query}&export=csv")
    text = b"".join(answer.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
    return "\n".join(line for line in text.splitlines() if not line.startswith('"#'))


def given(people: dict[str, User]) -> OddGrant:
    act = Act(people["admin"], "test", "night shift")
    return odd_grants.give(
        user=people["researcher"], place=factories.zone(), until=database_now() + dt.timedelta(days=2), act=act
    )


def test_a_right_holds_through_its_last_day(admin: Client) -> None:
    assert give(admin)[0] == 302
    made = OddGrant.objects.get()
    assert made.period.upper == dt.datetime.combine(in_a_week() + dt.timedelta(days=1), dt.time(), dt.UTC)
    row = AuditEvent.objects.get(verb="odd_grant.given")
    assert (row.actor, row.via, row.reason) == (User.objects.get(username="admin"), "page", "the yearly audit")


WRONG = [
    ("nobody", {"user": "who"}, 422, "There is nobody of this name."),
    ("neither place", {"department": ""}, 422, "Choose a zone or a department, one of the two."),
    ("both places", {"zone": "flexible"}, 422, "Choose a zone or a department, one of the two."),
    ("an unknown place", {"department": "nope"}, 422, "Select a valid choice"),
    ("yesterday", {"ends_on": "2020-01-01"}, 422, "The end lies in the past."),
    ("too long", {"ends_on": "2150-01-01"}, 422, "At most 366 days ahead."),
    ("no day", {"ends_on": "soon"}, 422, "Enter a valid date."),
    ("no reason", {"reason": ""}, 422, "This field is required."),
    ("themselves", {"user": "admin"}, 422, "Nobody gives rights to themselves"),
    ("who reads all", {"user": "auditor"}, 409, "by their site role"),
]


@pytest.mark.parametrize(("what", "values", "status", "said"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_said_and_nothing_is_given(
    admin: Client, what: str, values: dict[str, str], status: int, said: str
) -> None:
    factories.zone()
    code, text = give(admin, **values)
    assert (code, said in text) == (status, True)
    assert not OddGrant.objects.exists()


def test_a_second_one_is_a_conflict(admin: Client) -> None:
    give(admin)
    code, text = give(admin)
    assert (code, "has this right already" in text) == (409, True)


def test_links_fill_in_who_and_where(admin: Client) -> None:
    factories.zone()
    text = admin.get(reverse("right-new") + "?user=researcher&zone=flexible").content.decode()
    assert 'value="researcher"' in text
    assert '<option value="flexible" selected>' in text
    assert admin.get(reverse("right-new") + "?user=%00&zone=%00&department=x").status_code == 200


def test_it_stands_on_the_pages_of_the_person_the_zone_the_department_and_on_the_account(
    admin: Client, client_as: ClientAs, people: dict[str, User]
) -> None:
    given(people)
    give(admin)
    research = reverse("department", args=["research"])
    for address in (reverse("person", args=["researcher"]), reverse("rights"), research, reverse("zones")):
        text = admin.get(address).content.decode()
        assert "researcher" in text.partition('id="h-rights"')[2] or address == reverse("rights"), address
        assert reverse("right-withdraw", args=[OddGrant.objects.earliest("pk").pk]) in text or address == research
    text = client_as("researcher").get(reverse("account")).content.decode()
    assert "operator of a zone" in text
    assert "auditor of a department" in text
    assert "operator of a zone" not in client_as("member").get(reverse("account")).content.decode()


def test_the_list_shows_others_their_own_alone(client_as: ClientAs, people: dict[str, User]) -> None:
    given(people)
    seen = {name: "night shift" in client_as(name).get(reverse("rights")).content.decode() for name in people}
    assert seen == {name: name not in ("member", "outsider", "owner") for name in people}
    assert "researcher" not in exported(client_as("member"))


def test_the_list_is_filtered_and_exported(admin: Client, people: dict[str, User]) -> None:
    grant = given(people)
    give(admin, user="member")
    odd_grants.withdraw(grant=grant, act=Act(people["admin"], "test", "x"))
    for query, who in (
        ("q=resear", {"researcher", "member"}),
        ("q=flex", {"researcher"}),
        ("kind=auditor", {"member"}),
    ):
        assert {row["Person"] for row in csv.DictReader(io.StringIO(exported(admin, query)))} == who, query
    over = exported(admin, "standing=over")
    assert "withdrawn" in over
    assert "member" not in over


def test_an_admin_withdraws_it_with_a_reason_once(admin: Client, people: dict[str, User]) -> None:
    address = reverse("right-withdraw", args=[given(people).pk])
    assert admin.get(address).status_code == 200
    assert admin.post(address, {"reason": ""}).status_code == 422
    assert admin.post(address, {"reason": "shift is over"}).status_code == 302
    assert AuditEvent.objects.get(verb="odd_grant.withdrawn").reason == "shift is over"
    assert admin.post(address, {"reason": "again"}).status_code == 409
    assert not User.objects.get(username="researcher").operates_somewhere


def test_the_first_page_tells_of_it(client_as: ClientAs, people: dict[str, User]) -> None:
    given(people)
    letters.write_due()
    assert "You operate zone flexible until" in client_as("researcher").get(reverse("home")).content.decode()
    assert "You operate zone" not in client_as("member").get(reverse("home")).content.decode()


def test_leavers_and_their_rights_are_listed_to_site_roles(
    admin: Client, client_as: ClientAs, people: dict[str, User]
) -> None:
    given(people)
    User.objects.filter(username="researcher").update(is_active=False)
    assert "Extra rights (they give nothing now)" in admin.get(reverse("reclaim")).content.decode()
    assert "gives nothing: the person has left" in admin.get(reverse("rights")).content.decode()
    act = Act(people["admin"], "test", "x")
    research, soon = Department.objects.get(slug="research"), database_now() + dt.timedelta(days=2)
    odd_grants.give(user=people["outsider"], place=research, until=soon, act=act)
    text = client_as("outsider").get(reverse("reclaim")).content.decode()
    assert "Left by people who have gone" not in text
