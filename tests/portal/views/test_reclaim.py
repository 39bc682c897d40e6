"""The reclaim's pages: what will be taken back when, the dry run, extend and end now; receipts; what a project's own
people see of its end."""

from __future__ import annotations

import csv
import datetime as dt
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.utils import translation

from ledger.clock import database_now
from ledger.models import AuditEvent, Delivery, Job, Project, Receipt, User
from ledger.people import create_token
from ledger.vocabulary import DeliveryState, ProjectRole, ProjectState
from portal import reclaim_rows, sudo
from portal.reclaim_rows import Phase
from portal.views import project_end
from scheduler import reclaim
from scheduler.models import TaskRun
from scheduler.reclaim_plan import Facts
from tests import factories
from tests.portal.api.client import api
from tests.portal.views.conftest import ClientAs
from tests.scheduler import ending, flow

HOSTILE = '<script>alert(1)</script>"\u202e' + "x" * 150


@pytest.fixture
def vision(running: Job) -> Project:
    """It ends in three days and has a job that runs."""
    return ending.ends_in(3)


def move(project: Project, days: int, **values: Any) -> None:
    """Its last day is so many days from now, on the database's clock."""
    values = {"ends_on": database_now().date() + dt.timedelta(days=days)} | values
    Project.objects.filter(pk=project.pk).update(**values)


def row(response: Any, slug: str = "vision") -> reclaim_rows.EndRow:
    found = [row for row in response.context["rows"] if row.project.slug == slug]
    assert len(found) == 1
    return found[0]


class TestList:
    @pytest.mark.parametrize(
        ("days", "phase", "steps"),
        [
            (30, Phase.AHEAD, []),
            (3, Phase.AHEAD, ["tell"]),
            (-1, Phase.GRACE, ["begin"]),
            (-9, Phase.STOPPING, ["begin", "stop"]),
        ],
    )
    def test_each_project_with_its_phase_and_the_dry_run(
        self, admin: Client, vision: Project, days: int, phase: Phase, steps: list[str]
    ) -> None:
        move(vision, days)
        response = admin.get("/reclaim/")
        shown = row(response)
        assert (shown.phase, [str(step.step) for step in shown.steps]) == (phase, steps)
        assert len(shown.facts.held) == 1
        assert ("steady" in response.content.decode()) == ("stop" in steps)

    def test_what_ends_later_is_not_listed(self, admin: Client, vision: Project) -> None:
        move(vision, 31)
        response = admin.get("/reclaim/")
        assert response.context["rows"] == []
        assert "No project ends within 30 days." in response.content.decode()

    def test_the_dry_run_is_what_the_next_pass_does(self, admin: Client, vision: Project) -> None:
        factories.job(name="waits")
        for days in (3, -1, -9):
            move(vision, days)
            planned = {str(step.step) for step in row(admin.get("/reclaim/")).steps}
            done = {name for name, count in reclaim.reclaim_all().items() if count}
            assert planned == done
        ending.passes(database_now())

    def test_what_a_driver_has_not_confirmed_is_named(self, admin: Client, vision: Project) -> None:
        move(vision, -9)
        reclaim.reclaim_all()
        response = admin.get("/reclaim/")
        assert [held.name for held in row(response).plan.stuck] == ["steady"]
        assert row(response).steps == []
        ending.passes(database_now())

    def test_jobs_over_their_time_limit_that_still_hold_and_what_leavers_left(
        self, admin: Client, vision: Project, running: Job
    ) -> None:
        Job.objects.filter(pk=running.pk).update(walltime_s=60)
        flow.grow_old(200)
        researcher = factories.user("researcher")
        create_token(user=researcher, label="x", days=1, actor=None, via="test")
        User.objects.filter(pk=researcher.pk).update(is_active=False)
        response = admin.get("/reclaim/")
        assert [held.job_id for held in response.context["overdue"]] == [running.pk]
        (left,) = response.context["leavers"]
        assert (left.user, left.running, len(left.tokens)) == (researcher, [running], 1)

    def test_an_odd_project_hides_no_other(
        self, admin: Client, vision: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = factories.project("other")
        move(other, 3)
        plan_of = reclaim_rows.reclaim_plan.plan_of

        def fails(facts: Facts, now: dt.datetime) -> Any:
            if facts.project.pk == vision.pk:
                raise ValueError("odd dates")
            return plan_of(facts, now)

        monkeypatch.setattr(reclaim_rows.reclaim_plan, "plan_of", fails)
        TaskRun.objects.create(
            name="scheduler.reclaim", started_at=database_now(), result={"odd": {"vision": "ValueError: last time"}}
        )
        response = admin.get("/reclaim/")
        page = response.content.decode()
        assert "ValueError: odd dates" in page
        assert "The last pass left vision as it is: ValueError: last time" in page
        assert [str(step.step) for step in row(response, "other").steps] == ["tell"]

    def test_hostile_names_are_text(self, admin: Client, vision: Project, running: Job) -> None:
        Project.objects.filter(pk=vision.pk).update(title=HOSTILE[:190])
        Job.objects.filter(pk=running.pk).update(name=HOSTILE[:190])
        move(vision, -9)
        assert "<script>alert" not in admin.get("/reclaim/").content.decode()
        assert "<script>alert" not in admin.get("/reclaim/vision/end/").content.decode()

    @pytest.mark.parametrize("who", ["operator", "manager", "auditor"])
    def test_others_of_the_site_read_and_find_no_acts(self, client_as: ClientAs, vision: Project, who: str) -> None:
        page = client_as(who).get("/reclaim/").content.decode()
        assert "vision" in page
        assert "/reclaim/vision/extend/" not in page


class TestExtend:
    def test_with_a_reason_and_a_later_day(self, admin: Client, vision: Project) -> None:
        later = vision.ends_on + dt.timedelta(days=30)
        response = admin.post("/reclaim/vision/extend/", {"ends_on": later.isoformat(), "reason": "paper"})
        assert (response.status_code, response["Location"]) == (302, "/reclaim/")
        vision.refresh_from_db()
        assert vision.ends_on == later
        event = AuditEvent.objects.get(verb="project.changed")
        assert (event.actor.username, event.reason, event.via) == ("admin", "paper", "page")  # type: ignore[union-attr]

    def test_in_its_grace_it_goes_back_to_work(self, admin: Client, vision: Project) -> None:
        move(vision, -2)
        reclaim.reclaim_all()
        assert "takes work again at once" in admin.get("/reclaim/vision/extend/").content.decode()
        later = database_now().date() + dt.timedelta(days=9)
        admin.post("/reclaim/vision/extend/", {"ends_on": later.isoformat(), "reason": "paper"})
        vision.refresh_from_db()
        assert (vision.state, vision.ends_on) == (ProjectState.ACTIVE, later)

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({}, "ends_on"),
            ({"ends_on": "2150-01-01"}, "reason"),
            ({"ends_on": "2150-01-01", "reason": " "}, "reason"),
            ({"ends_on": "2150-02-30", "reason": "x"}, "ends_on"),
            ({"ends_on": "2001-01-01", "reason": "x"}, "ends_on"),
            ({"ends_on": "\x00", "reason": "x"}, "ends_on"),
            ({"ends_on": "99999-01-01", "reason": "x"}, "ends_on"),
            ({"ends_on": "2150-01-01", "reason": "x" * 501}, "reason"),
        ],
    )
    def test_what_is_wrong_stands_beside_its_field(
        self, admin: Client, vision: Project, data: dict[str, str], field: str
    ) -> None:
        response = admin.post("/reclaim/vision/extend/", data)
        assert (response.status_code, field in response.context["form"].errors) == (422, True)
        before = vision.ends_on
        vision.refresh_from_db()
        assert vision.ends_on == before


class TestEndNow:
    def test_the_preview_names_what_it_stops_and_changes_nothing(self, admin: Client, vision: Project) -> None:
        factories.job(name="waiting work")
        page = admin.get("/reclaim/vision/end/").content.decode()
        assert "steady" in page
        assert "waiting work" in page
        vision.refresh_from_db()
        assert vision.state == ProjectState.ACTIVE

    def test_with_a_reason_it_ends_at_once(self, admin: Client, vision: Project, running: Job) -> None:
        response = admin.post("/reclaim/vision/end/", {"reason": "fraud"})
        assert (response.status_code, response["Location"]) == (302, "/reclaim/")
        ending.passes(database_now())
        vision.refresh_from_db()
        running.refresh_from_db()
        assert (vision.state, running.state) == (ProjectState.ENDED, "cancelled")

    def test_it_needs_a_fresh_password(self, admin: Client, vision: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sudo, "is_fresh", lambda _request: False)
        response = admin.post("/reclaim/vision/end/", {"reason": "fraud"})
        assert response.status_code == 403
        vision.refresh_from_db()
        assert vision.state == ProjectState.ACTIVE
        response = admin.post("/reclaim/vision/end/", {"reason": "fraud", sudo.FIELD: factories.PASSWORD})
        assert response.status_code == 302

    def test_without_a_reason_or_twice_it_is_refused(self, admin: Client, vision: Project) -> None:
        assert admin.post("/reclaim/vision/end/", {}).status_code == 422
        admin.post("/reclaim/vision/end/", {"reason": "fraud"})
        response = admin.post("/reclaim/vision/end/", {"reason": "fraud"})
        assert response.status_code == 422
        assert "has been ordered already" in response.content.decode()

    def test_a_project_that_has_ended_is_not_there(self, admin: Client, people: dict[str, User]) -> None:
        factories.ended("archive")
        for act in ("extend", "end"):
            assert admin.get(f"/reclaim/archive/{act}/").status_code == 404


class TestReceipts:
    @pytest.fixture
    def receipts(self, people: dict[str, User]) -> dict[str, Receipt]:
        mine = factories.ended("archive", researcher=ProjectRole.MEMBER)
        return {"mine": mine.receipt, "theirs": factories.ended("elsewhere", outsider=ProjectRole.MEMBER).receipt}

    def test_a_list_with_filter_and_file_of_what_one_may_see(
        self, client_as: ClientAs, receipts: dict[str, Receipt]
    ) -> None:
        def shown(who: str, query: str = "") -> list[str]:
            table = client_as(who).get(f"/receipts/{query}").context["t"]
            return [row.project.slug for _key, row in table["rows"]]

        today = database_now().date()
        assert shown("auditor") == ["elsewhere", "archive"]
        assert shown("researcher") == ["archive"]
        assert shown("researcher", "?q=else") == []
        assert shown("auditor", "?q=ELSE") == ["elsewhere"]
        assert shown("auditor", f"?start={today}&end={today}") == ["elsewhere", "archive"]
        assert shown("auditor", f"?start={today + dt.timedelta(days=1)}") == []
        assert shown("auditor", "?left=yes") == []
        assert shown("auditor", "?sort=project&q=&start=nonsense") == ["archive", "elsewhere"]
        response = client_as("researcher").get("/receipts/?export=csv")
        text = b"".join(response.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
        lines = [line for line in csv.reader(text.splitlines()) if not line[0].startswith("#")]
        assert [line[0] for line in lines] == ["Project", "archive"]

    def test_its_page_says_everything(self, admin: Client, vision: Project, running: Job) -> None:
        Job.objects.filter(pk=running.pk).update(name=HOSTILE[:190], data_paths=["/data/<b>"])
        factories.job(name="waits", asks=[{"form": "container", "memory_mib": 1}])
        move(vision, -9)
        ending.passes(database_now())
        receipt = Receipt.objects.get()
        page = admin.get(f"/receipts/{receipt.pk}/").content.decode()
        for text in ("/data/&lt;b&gt;", "waits", "1 × A100", "simulated", "Not enforced"):
            assert text in page
        assert "<script>alert" not in page

    def test_an_outsider_finds_none_even_by_number(self, client_as: ClientAs, receipts: dict[str, Receipt]) -> None:
        researcher = client_as("researcher")
        answers = [researcher.get(f"/receipts/{pk}/") for pk in (receipts["theirs"].pk, 999_999, 10**15)]
        assert [answer.status_code for answer in answers] == [404, 404, 404]
        assert "elsewhere" not in answers[0].content.decode()


class TestOwnersView:
    def part(self, project: Project, user: User) -> str:
        project.refresh_from_db()
        request = RequestFactory().get("/")
        request.user = user
        context = project_end.end_context(project, user, database_now())
        return render_to_string("projects/end_part.html", context | {"user": user}, request)

    def test_the_countdown_what_will_be_stopped_and_the_notices(self, vision: Project, people: dict[str, User]) -> None:
        reclaim.reclaim_all()
        page = self.part(vision, people["owner"])
        assert "Left until its end" in page
        assert "steady" in page
        assert "3 days before the end" in page
        assert "not sent: not configured" in page
        move(vision, -2)
        reclaim.reclaim_all()
        page = self.part(vision, people["owner"])
        assert "Left of its grace" in page
        assert "the last day is over" in page

    def test_how_a_delivery_failed_is_told_to_who_manages_it(self, vision: Project, people: dict[str, User]) -> None:
        reclaim.reclaim_all()
        Delivery.objects.update(state=DeliveryState.FAILED, last_error="550 no such box")
        assert "550 no such box" in self.part(vision, people["owner"])
        assert "550 no such box" in self.part(vision, people["auditor"])
        assert "550 no such box" not in self.part(vision, people["researcher"])

    def test_the_receipt_takes_the_place_of_the_countdown(self, vision: Project, people: dict[str, User]) -> None:
        move(vision, -9)
        ending.passes(database_now())
        page = self.part(vision, people["owner"])
        assert f"/receipts/{Receipt.objects.get().pk}/" in page
        assert "Left of its grace" not in page

    def test_a_project_without_an_end_says_so(self, vision: Project, people: dict[str, User]) -> None:
        Project.objects.filter(pk=vision.pk).update(ends_on=None)
        assert "It has no last day." in self.part(vision, people["owner"])

    def test_a_project_that_ends_at_the_end_of_days(self, vision: Project, people: dict[str, User]) -> None:
        Project.objects.filter(pk=vision.pk).update(ends_on=dt.date.max)
        assert "9999-12-31" in self.part(vision, people["owner"])


class TestBanners:
    def texts(self, client: Client) -> list[str]:
        return [banner.text for banner in client.get("/").context["banners"]]

    def test_members_read_the_newest_notice_that_holds(self, client_as: ClientAs, vision: Project) -> None:
        researcher, outsider = client_as("researcher"), client_as("outsider")
        assert self.texts(researcher) == []
        reclaim.reclaim_all()
        assert self.texts(researcher) == [f"Project Vision ends after {vision.ends_on}."]
        assert self.texts(outsider) == []
        move(vision, -2)
        assert self.texts(researcher) == []  # that notice spoke of another end
        reclaim.reclaim_all()
        page = researcher.get("/").content.decode()
        assert "is over since its last day" in page
        assert "What runs is stopped at" in page
        move(vision, -9)
        Project.objects.filter(pk=vision.pk).update(grace_days=0)
        ending.passes(database_now())
        page = researcher.get("/").content.decode()
        assert "its receipt says what was reclaimed" in page
        assert f"/receipts/{Receipt.objects.get().pk}/" in page


class TestApi:
    def test_the_same_rows_as_the_page(self, people: dict[str, User], vision: Project, running: Job) -> None:
        move(vision, -9)
        told = api(people["auditor"]).get("reclaim/").json()
        (project,) = told["projects"]
        assert (project["project"], project["phase"], project["left_s"]) == ("vision", "stopping", 0)
        assert [held["job"] for held in project["holds"]] == [running.pk]
        assert project["next_pass"] == [
            {"step": "begin", "notice": "over", "jobs": []},
            {"step": "stop", "notice": None, "jobs": [running.pk]},
        ]
        assert (told["over_walltime"], told["leavers"], told["odd"]) == ([], [], {})

    def test_members_see_their_projects_and_no_leavers(self, people: dict[str, User], vision: Project) -> None:
        other = factories.project("other")
        move(other, 3)
        User.objects.filter(username="outsider").update(is_active=False)

        def seen(who: str) -> tuple[set[str], int]:
            told = api(people[who]).get("reclaim/").json()
            return {project["project"] for project in told["projects"]}, len(told["leavers"])

        assert seen("researcher") == ({"vision"}, 0)
        assert seen("auditor") == ({"vision", "other"}, 1)

    def test_a_receipt_with_its_content(self, people: dict[str, User], vision: Project, running: Job) -> None:
        move(vision, -9)
        ending.passes(database_now())
        told = api(people["researcher"]).get(f"receipts/{Receipt.objects.get().pk}/").json()
        assert (told["project"], told["jobs_stopped"]) == ("vision", 1)
        assert [line["job"] for line in told["content"]["stopped"]] == [running.pk]
        (brief,) = api(people["researcher"]).get("receipts/").json()["results"]
        assert "content" not in brief


def test_chinese_pages_answer(admin: Client, vision: Project) -> None:
    factories.ended("archive")
    with translation.override("zh-hans"):
        admin.cookies["django_language"] = "zh-hans"
        for address in ("/reclaim/", "/reclaim/vision/end/", "/receipts/", f"/receipts/{Receipt.objects.get().pk}/"):
            assert admin.get(address).status_code == 200
