"""The pages of quota and departments: who sees what, the change with its preview, the window, and the limits of members."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client

from ledger import departments, limits, member_limits, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.models import AuditEvent, Department, DepartmentCeiling, MemberLimit, Project, QuotaGrant, User
from ledger.quota import Terms
from ledger.vocabulary import ProjectRole, Resource
from portal import quota_words, sudo
from scheduler.placing import place_queued
from tests import factories
from tests.moving import move_to
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db
MILLI, MIB, WHOLE, CPU, HOST, BUDGET = Resource
PAGE, CONFIRM, LIMITS = (f"/projects/vision/quota/{part}" for part in ("", "confirm/", "members/"))


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    return Act(people["admin"], "test", "as agreed")


def preview(client: Client, **values: str) -> Any:
    return client.post(PAGE, {"resource": "card_milli", "amount": "4"} | values)


def confirm(client: Client, shown: Any, **values: str) -> Any:
    change = str(shown.context["form"]["change"].value())
    return client.post(CONFIRM, {"change": change, "reason": "a new grant of money"} | values)


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


def running(people: dict[str, User], cards: int) -> None:
    factories.node("n1", cards=4)
    for _ in range(cards):
        factories.job(people["researcher"], asks=[{"form": "container", "memory_mib": 0}], walltime_s=36_000)
    assert place_queued()["placed"] == cards


class TestList:
    def test_each_sees_their_projects_with_use_and_clock(
        self, client_as: ClientAs, people: dict[str, User], vision: Project, act: Act
    ) -> None:
        running(people, 2)
        quota.set_grant(project=vision, terms=Terms(MILLI, 3000, guaranteed=1000), act=act)
        quota.set_grant(project=Project.objects.get(slug="outside"), terms=Terms(CPU, 5000), act=act)
        page = text_of(client_as("researcher").get("/quota/"))
        assert "vision" in page
        assert "outside" not in page
        assert "2 cards of 3 cards used" in page
        everything = text_of(client_as("auditor").get("/quota/"))
        assert "outside" in everything
        assert "/departments/" in everything
        assert "/departments/" not in page

    def test_the_file_has_the_same_rows(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        quota.set_grant(project=vision, terms=Terms(BUDGET, 3_600_000 * 7, model="A100"), act=act)
        lines = client_as("researcher").get("/quota/?export=csv").getvalue().decode().splitlines()
        [row] = [line for line in lines if "vision" in line]
        assert '"card-hours","A100","card-hours",7.0,0.0,1,0.0' in row
        assert client_as("outsider").get("/quota/?export=csv").getvalue().decode().count("A100") == 0

    def test_nothing_limited(self, client_as: ClientAs, people: dict[str, User]) -> None:
        assert "Nothing is limited." in text_of(client_as("researcher").get("/quota/"))


class TestChange:
    def test_preview_confirm_and_the_page_afterwards(self, client_as: ClientAs, vision: Project) -> None:
        client = client_as("manager")
        shown = preview(client, amount="4.5", guaranteed="1", weight="3")
        page = text_of(shown)
        assert "no limit" in page
        assert "4.5 cards" in page
        assert not QuotaGrant.objects.exists()
        assert confirm(client, shown)["Location"] == PAGE
        grant = QuotaGrant.objects.get()
        assert (grant.amount, grant.guaranteed, grant.weight, grant.reason) == (4500, 1000, 3, "a new grant of money")
        row = AuditEvent.objects.get(verb="quota.set")
        assert (row.actor.username if row.actor else "", row.via) == ("manager", "page")
        assert "Effect of the last change" in text_of(client.get(PAGE))

    def test_inside_the_window_an_override_is_asked_for_and_kept(self, client_as: ClientAs, vision: Project) -> None:
        client = client_as("admin")
        confirm(client, preview(client))
        shown = preview(client, amount="8")
        assert "observed until" in text_of(shown)
        assert "Reason for not waiting" in text_of(shown)
        refused = confirm(client, shown)
        assert (refused.status_code, list(refused.context["form"].errors)) == (409, ["override_reason"])
        assert confirm(client, shown, override_reason="a deadline").status_code == 302
        row = AuditEvent.objects.get(verb="quota.overridden")
        assert (row.after or {})["override_reason"] == "a deadline"

    def test_somebody_else_was_first(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        client = client_as("admin")
        shown = preview(client)
        quota.set_grant(project=vision, terms=Terms(MILLI, 1), act=act)
        answer = confirm(client, shown, override_reason="x")
        assert answer.status_code == 409
        assert "changed by somebody else since the preview" in text_of(answer)
        assert QuotaGrant.objects.get().amount == 1

    def test_a_cut_tells_who_would_be_ended_and_needs_a_date(
        self, client_as: ClientAs, people: dict[str, User], vision: Project
    ) -> None:
        running(people, 2)
        client = client_as("admin")
        refused = preview(client, amount="1")
        assert refused.status_code == 422
        assert "in use now" in text_of(refused)
        early = preview(client, amount="1", drain_at=_in(hours=2))
        assert "at least 24 hours" in text_of(early)
        page = text_of(preview(client, amount="1", drain_at=_in(hours=26)))
        assert "Theirs: researcher" in page
        assert page.count("gives back 1 card,") == 1

    def test_lifted_and_back_again(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        client = client_as("admin")
        assert preview(client, amount="", lift="on").status_code == 422
        quota.set_grant(project=vision, terms=Terms(MILLI, 5000), act=act)
        shown = preview(client, amount="", lift="on")
        assert confirm(client, shown, override_reason="not needed").status_code == 302
        assert limits_now(vision) == []
        assert "5 cards" in text_of(client.get(PAGE))  # before

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"amount": ""}, "amount"),
            ({"amount": "-1"}, "amount"),
            ({"amount": "x"}, "amount"),
            ({"amount": "1e99"}, "amount"),
            ({"amount": "1.0001"}, "amount"),
            ({"resource": "whole_nodes", "amount": "1.5"}, "amount"),
            ({"resource": "nothing"}, "resource"),
            ({"model": "of another make"}, "model"),
            ({"guaranteed": "5"}, "guaranteed"),
            ({"weight": "0"}, "weight"),
            ({"weight": "1001"}, "weight"),
            ({"until": "2020-01-01T00:00"}, "until"),
            ({"until": "9999-12-31T23:59"}, "until"),
            ({"until": "yesterday"}, "until"),
            ({"drain_at": "x"}, "drain_at"),
        ],
    )
    def test_what_is_wrong_stands_beside_its_field(
        self, client_as: ClientAs, vision: Project, values: dict[str, str], field: str
    ) -> None:
        answer = preview(client_as("admin"), **values)
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]
        assert not QuotaGrant.objects.exists()

    def test_what_others_sealed_or_time_has_passed_is_not_ours(self, client_as: ClientAs, vision: Project) -> None:
        client = client_as("admin")
        change = str(preview(client).context["form"]["change"].value())
        for text in ("", "x", change[:-1] + ("B" if change.endswith("A") else "A")):
            answer = client.post(CONFIRM, {"change": text, "reason": "x"})
            assert answer.status_code == 422
        other = client.post("/projects/outside/quota/confirm/", {"change": change, "reason": "x"})
        assert other.status_code == 422
        assert not QuotaGrant.objects.exists()

    def test_the_password_is_asked_again(
        self, client_as: ClientAs, vision: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = client_as("admin")
        shown = preview(client)
        monkeypatch.setattr(sudo, "FRESH_S", 0)
        assert confirm(client, shown).status_code == 403
        assert confirm(client, shown, sudo_password=factories.PASSWORD).status_code == 302

    def test_a_form_that_is_opened_from_a_row_has_what_stands(
        self, client_as: ClientAs, vision: Project, act: Act
    ) -> None:
        quota.set_grant(project=vision, terms=Terms(CPU, 5500, guaranteed=500, weight=2), act=act)
        page = text_of(client_as("admin").get(f"{PAGE}?resource=cpu_milli"))
        assert 'name="amount" value="5.5"' in page
        assert 'name="weight" value="2"' in page
        assert client_as("admin").get(f"{PAGE}?resource=<script>&model=%00").status_code == 200


def limits_now(project: Project) -> list[int]:
    return list(
        QuotaGrant.objects.filter(project=project, period__contains=database_now()).values_list("amount", flat=True)
    )


class TestRenewing:
    def test_it_is_chosen_previewed_and_shown_with_its_day(self, client_as: ClientAs, vision: Project) -> None:
        move_to(dt.datetime(2026, 12, 5, tzinfo=dt.UTC))
        Project.objects.update(starts_on=dt.date(2026, 10, 9), ends_on=dt.date(2028, 1, 1))
        client = client_as("manager")
        shown = preview(client, resource="card_milli_s", amount="100", renews="quarter")
        page = text_of(shown)
        assert "each quarter of the calendar" in page
        assert "next on Jan. 1, 2027" in page
        confirm(client, shown)
        grant = QuotaGrant.objects.get()
        assert (grant.renews, grant.amount) == ("quarter", 360_000_000)
        page = text_of(client.get(f"{PAGE}?resource=card_milli_s"))
        assert "starts anew on Jan. 1, 2027 (UTC)" in page
        assert '<option value="quarter" selected>' in page
        assert "Spent in the periods before" not in page
        move_to(dt.datetime(2027, 1, 1, 0, 1, tzinfo=dt.UTC))
        page = text_of(client.get(PAGE))
        assert "starts anew on April 1, 2027 (UTC)" in page
        assert "<td>Oct. 1, 2026</td>" in page
        assert "<td>July 1, 2026</td>" not in page
        row = AuditEvent.objects.get(verb="quota.set")
        assert (row.after or {})["renews"] == "quarter"

    def test_a_job_that_waits_for_it_is_told_the_day(
        self, client_as: ClientAs, people: dict[str, User], vision: Project, act: Act
    ) -> None:
        factories.node("n1")
        quota.set_grant(project=vision, terms=Terms(BUDGET, 1, renews="year"), act=act)
        job = factories.job(people["researcher"], asks=[{"form": "container", "memory_mib": 0}], walltime_s=3600)
        page = text_of(client_as("researcher").get(f"/jobs/{job.pk}/outlook/"))
        assert f"starts anew on Jan. 1, {database_now().year + 1} (UTC)" in page

    def test_what_else_renews_is_refused(self, client_as: ClientAs, vision: Project) -> None:
        answer = preview(client_as("manager"), renews="month")
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == ["renews"]
        assert list(preview(client_as("manager"), renews="week").context["form"].errors) == ["renews"]

    def test_a_department_renews_too(self, client_as: ClientAs, people: dict[str, User]) -> None:
        client, change = client_as("manager"), "/departments/research/change/"
        cap = {"what": "ceiling", "resource": "card_milli_s", "amount": "12", "renews": "year"}
        assert "each calendar year" in text_of(capped(client, **cap))
        assert DepartmentCeiling.objects.get().renews == "year"
        assert f"starts anew on Jan. 1, {database_now().year + 1} (UTC)" in text_of(
            client.get("/departments/research/")
        )
        answer = client.post(change, cap | {"resource": "cpu_milli"})
        assert list(answer.context["forms"]["ceiling"].errors) == ["renews"]


def capped(client: Client, slug: str = "research", **values: str) -> Any:
    """The preview of a ceiling, which is then confirmed."""
    change = f"/departments/{slug}/change/"
    shown = client.post(change, {"what": "ceiling"} | values)
    assert shown.status_code == 200, shown.context["forms"]["ceiling"].errors
    sent = {"what": "confirm", "change": str(shown.context["form"]["change"].value()), "reason": "small"}
    assert client.post(change, sent)["Location"] == f"/departments/{slug}/"
    return shown


def _in(**time: float) -> str:
    return (database_now() + dt.timedelta(**time)).strftime("%Y-%m-%dT%H:%M")


class TestMembers:
    def test_the_owner_limits_and_lifts(self, client_as: ClientAs, people: dict[str, User], vision: Project) -> None:
        client = client_as("owner")
        values = {"user": "researcher", "resource": "card_milli", "amount": "2", "reason": "fair"}
        assert client.post(LIMITS, values).status_code == 302
        assert MemberLimit.objects.get().amount == 2000
        assert "2 cards" in text_of(client.get(PAGE))
        assert client.post(LIMITS, values | {"amount": ""}).status_code == 302
        assert not MemberLimit.objects.exists()

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"user": "outsider"}, "user"),
            ({"resource": "card_milli_s"}, "resource"),
            ({"amount": "-1"}, "amount"),
            ({"reason": ""}, "reason"),
            ({"reason": "x" * 501}, "reason"),
        ],
    )
    def test_what_is_wrong(self, client_as: ClientAs, vision: Project, values: dict[str, str], field: str) -> None:
        sent = {"user": "researcher", "resource": "card_milli", "amount": "2", "reason": "fair"} | values
        answer = client_as("owner").post(LIMITS, sent)
        assert answer.status_code == 422
        assert list(answer.context["limit_form"].errors) == [field]

    def test_each_sees_their_own_limit_and_managers_all(
        self, client_as: ClientAs, people: dict[str, User], vision: Project, act: Act
    ) -> None:
        for name, amount in (("researcher", 1234), ("member", 4321)):
            member_limits.set_limit(project=vision, user=people[name], resource=CPU, amount=amount, act=act)
        seen = {name: text_of(client_as(name).get(PAGE)) for name in ("researcher", "member", "owner", "auditor")}
        assert {name: ("1.234" in page, "4.321" in page) for name, page in seen.items()} == {
            "researcher": (True, False),
            "member": (False, True),
            "owner": (True, True),
            "auditor": (True, True),
        }


class TestDepartments:
    def test_the_tree_shows_ceilings_with_their_use(
        self, client_as: ClientAs, people: dict[str, User], act: Act
    ) -> None:
        running(people, 2)
        research = Department.objects.get(slug="research")
        departments.create_department(slug="lab", title="Lab", parent=research, act=act)
        departments.set_ceiling(department=research, cap=Cap(MILLI, 3000), act=act)
        page = text_of(client_as("auditor").get("/departments/"))
        assert "2 cards of 3 cards used" in page
        assert page.index("Research") < page.index("Lab")
        assert "New department" not in page
        assert "New department" in text_of(client_as("manager").get("/departments/"))
        assert "Ceilings over it" in text_of(client_as("researcher").get(PAGE))

    def test_the_forms_of_one(self, client_as: ClientAs, people: dict[str, User], settings: Any) -> None:
        client = client_as("manager")
        assert client.post("/departments/", {"slug": "lab", "title": "Lab", "parent": "research"}).status_code == 302
        change = "/departments/lab/change/"
        assert client.post(change, {"what": "rename", "title": "Laboratory"}).status_code == 302
        assert client.post(change, {"what": "move", "parent": ""}).status_code == 302
        cap = {"resource": "cpu_milli", "amount": "12"}
        capped(client, "lab", **cap)
        lab = Department.objects.get(slug="lab")
        assert (lab.title, lab.parent) == ("Laboratory", None)
        assert DepartmentCeiling.objects.get(department=lab).amount == 12_000
        assert "12 cores" in text_of(client.get("/departments/lab/"))
        settings.QUOTA_WINDOW_HOURS = 0
        assert "no ceiling" in text_of(capped(client, "lab", **cap | {"amount": ""}))
        assert limits.chain(lab.pk) == [lab.pk]
        assert not DepartmentCeiling.objects.filter(period__contains=database_now()).exists()

    @pytest.mark.parametrize(
        ("values", "name", "field"),
        [
            ({"what": "rename", "title": ""}, "rename", "title"),
            ({"what": "move", "parent": "research"}, "move", "parent"),
            ({"what": "move", "parent": "nowhere"}, "move", "parent"),
            ({"what": "ceiling", "resource": "x", "amount": "1"}, "ceiling", "resource"),
            ({"what": "ceiling", "resource": "cpu_milli", "amount": "1", "model": "T4"}, "ceiling", "model"),
            ({"what": "ceiling", "resource": "cpu_milli", "amount": ""}, "ceiling", "amount"),
            ({"what": "ceiling", "resource": "whole_nodes", "amount": "1.5"}, "ceiling", "amount"),
        ],
    )
    def test_what_is_wrong(
        self, client_as: ClientAs, people: dict[str, User], values: dict[str, str], name: str, field: str
    ) -> None:
        answer = client_as("admin").post("/departments/research/change/", values)
        assert answer.status_code == 422
        assert list(answer.context["forms"][name].errors) == [field]

    def test_a_ceiling_is_previewed_with_who_is_under_it_and_who_would_be_ended(
        self, client_as: ClientAs, people: dict[str, User], vision: Project, act: Act
    ) -> None:
        running(people, 2)
        client = client_as("admin")
        change, cap = "/departments/research/change/", {"what": "ceiling", "resource": "card_milli", "model": "A100"}
        assert "in use now" in text_of(client.post(change, cap | {"amount": "1"}))
        shown = client.post(change, cap | {"amount": "1", "drain_at": _in(hours=30)})
        page = text_of(shown)
        assert "cards at once (A100)" in page
        assert re.search(r'/projects/vision/quota/">vision</a>: 2 cards', page)
        assert "these would be ended" in page
        assert "gives back 1 card" in page
        assert not DepartmentCeiling.objects.exists()
        sent = {"what": "confirm", "change": str(shown.context["form"]["change"].value())}
        assert list(client.post(change, sent).context["form"].errors) == ["reason"]
        assert client.post(change, sent | {"reason": "as decided"}).status_code == 302
        ceiling = DepartmentCeiling.objects.get()
        assert (ceiling.model, ceiling.amount, ceiling.reason) == ("A100", 1000, "as decided")
        assert ceiling.drain_at is not None
        assert AuditEvent.objects.get(verb="ceiling.set").via == "page"

    def test_a_change_of_a_ceiling_is_observed(self, client_as: ClientAs, people: dict[str, User]) -> None:
        client, change = client_as("manager"), "/departments/research/change/"
        capped(client, resource="card_milli", amount="4")
        page = text_of(client.get("/departments/research/?resource=card_milli"))
        assert "Effect of the last change" in page
        assert 'value="4"' in page
        again = {"what": "ceiling", "resource": "card_milli", "amount": "8", "model": "A100"}
        factories.node("n1")
        shown = client.post(change, again)
        assert "observed until" in text_of(shown)
        sent = {"what": "confirm", "change": str(shown.context["form"]["change"].value()), "reason": "more"}
        refused = client.post(change, sent)
        assert (refused.status_code, list(refused.context["form"].errors)) == (409, ["override_reason"])
        assert client.post(change, sent | {"override_reason": "a deadline"}).status_code == 302
        row = AuditEvent.objects.get(verb="ceiling.overridden")
        assert (row.after or {})["override_reason"] == "a deadline"
        page = text_of(client_as("auditor").get("/departments/"))
        assert "cards at once (A100)" in page

    def test_a_sealed_ceiling_is_of_its_department_and_of_what_was_shown(
        self, client_as: ClientAs, people: dict[str, User], act: Act
    ) -> None:
        client, change = client_as("admin"), "/departments/research/change/"
        lab = departments.create_department(slug="lab", title="Lab", parent=None, act=act)
        shown = client.post(change, {"what": "ceiling", "resource": "card_milli", "amount": "4"})
        sealed = str(shown.context["form"]["change"].value())
        for text in ("", "x", sealed[:-1] + ("B" if sealed.endswith("A") else "A")):
            answer = client.post(change, {"what": "confirm", "change": text, "reason": "x"})
            assert answer.status_code == 422
        other = client.post("/departments/lab/change/", {"what": "confirm", "change": sealed, "reason": "x"})
        assert other.status_code == 422
        departments.set_ceiling(department=lab, cap=Cap(MILLI, 1), act=act)
        departments.set_ceiling(department=Department.objects.get(slug="research"), cap=Cap(MILLI, 1), act=act)
        late = client.post(change, {"what": "confirm", "change": sealed, "reason": "x", "override_reason": "y"})
        assert late.status_code == 409
        assert "changed by somebody else since the preview" in text_of(late)

    def test_nothing_chosen_and_a_name_that_is_taken(self, client_as: ClientAs, people: dict[str, User]) -> None:
        client = client_as("admin")
        assert client.post("/departments/research/change/", {"what": "burn"}).status_code == 422
        assert client.post("/departments/", {"slug": "research", "title": "R"}).status_code == 409


def test_the_outlook_tells_what_a_job_takes_of_what_is_left(
    client_as: ClientAs, people: dict[str, User], vision: Project, act: Act
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000)
    quota.set_grant(project=vision, terms=Terms(MILLI, 1500), act=act)
    quota.set_grant(project=vision, terms=Terms(BUDGET, 3_600_000), act=act)
    departments.set_ceiling(department=Department.objects.get(slug="research"), cap=Cap(CPU, 8000), act=act)
    member_limits.set_limit(project=vision, user=people["researcher"], resource=MIB, amount=8000, act=act)
    typed = {
        "client_key": "k", "project": "vision", "form": "container", "nodes": "1", "cards_per_node": "1",
        "memory_mib": "8000", "cpu_cores": "2", "host_memory_mib": "512", "walltime_min": "60", "then_after_min": "10",
        "kind": "other", "interconnect": "any", "distance": "any", "priority": "0", "simulated": "on",
    }  # fmt: skip
    page = text_of(client_as("researcher").post("/jobs/new/outlook/", typed))
    assert "takes 0.5 cards of 1.5 cards left (the project&#x27;s quota: 1.5)" in page
    assert "takes 0.5 card-hours of 1 card-hour left" in page
    assert "takes 2 cores of 8 cores left (the department&#x27;s ceiling: 8)" in page
    assert "takes 8 000 MiB of 8 000 MiB left (your own limit: 8 000)" in page
    wide = text_of(
        client_as("researcher").post("/jobs/new/outlook/", typed | {"memory_mib": "0", "cards_per_node": "2"})
    )
    assert "takes at least 2 cards of 1.5 cards left" in wide
    assert "quota is used up" in wide


@pytest.mark.parametrize(
    ("resource", "amount", "told"),
    [
        (MILLI, 1500, "1.5 cards"),
        (MILLI, 1000, "1 card"),
        (MILLI, 0, "0 cards"),
        (MILLI, 1_234_567_000, "1\u202f234\u202f567 cards"),
        (MIB, 16_384, "16\u202f384 MiB"),
        (WHOLE, 2, "2 machines"),
        (CPU, 500, "0.5 cores"),
        (BUDGET, 3_600_000 * 100, "100 card-hours"),
        (BUDGET, 1, "0 card-hours"),
    ],
)
def test_amounts_in_peoples_units(resource: Resource, amount: int, told: str) -> None:
    assert quota_words.told(resource, amount) == told
    back = quota_words.book_units(resource, quota_words.people_units(resource, amount))
    assert back == (0 if amount == 1 else amount)


def test_a_viewer_reads(client_as: ClientAs, people: dict[str, User], vision: Project) -> None:
    factories.join(vision, {people["outsider"]: ProjectRole.VIEWER})
    page = text_of(client_as("outsider").get(PAGE))
    assert "Change the quota" not in page
    assert "Limit a member" not in page
