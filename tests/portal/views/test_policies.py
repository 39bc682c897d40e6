"""The pages of policies: who sees what, the change with its preview, history, what holds for a project, and what a person
who submits is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from ledger.acts import Act
from ledger.models import AuditEvent, Department, Job, Project, User
from portal import sudo
from scheduler.policy import Scope, Terms
from scheduler.policy_changes import put_version
from scheduler.policy_rows import JobPolicy, PolicyVersion
from tests import factories
from tests.portal.views.conftest import ClientAs
from tests.portal.views.test_jobs import form as job_form

pytestmark = pytest.mark.django_db
CHANGE, CONFIRM = "/policies/change/", "/policies/change/confirm/"


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    return Act(people["admin"], "test", "as agreed")


def preview(client: Client, **values: Any) -> Any:
    return client.post(CHANGE, {"about": "project:vision"} | values)


def confirm(client: Client, shown: Any, **values: str) -> Any:
    change = str(shown.context["form"]["change"].value())
    return client.post(CONFIRM, {"change": change, "reason": "so that all fit"} | values)


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


class TestChange:
    def test_preview_confirm_and_the_page_afterwards(self, client_as: ClientAs, people: dict[str, User]) -> None:
        factories.node("n1", cards=2)
        factories.job(people["researcher"], priority=9, kind="training")
        client = client_as("manager")
        shown = preview(
            client, kind="training", form_1="container", form_2="whole", fallback_wait_min="10", priority_most="5",
            walltime_default_min="60", zones=["flexible"],
        )  # fmt: skip
        page = text_of(shown)
        assert "1 job of the last 30 days" in page
        assert "priority above the highest" in page
        assert "Container › Whole machine" in page or "container › whole machine" in page
        assert not PolicyVersion.objects.exists()
        made = confirm(client, shown)
        policy = JobPolicy.objects.get()
        assert made["Location"] == f"/policies/{policy.pk}/"
        version = policy.versions.get()
        assert (version.forms, version.fallback_wait_s, version.priority_most) == (["container", "whole"], 600, 5)
        assert (version.walltime_default_s, version.reason, version.by.username) == (3600, "so that all fit", "manager")
        row = AuditEvent.objects.get(verb="policy.set")
        assert (row.via, (row.after or {})["says"]["zones"]) == ("page", ["flexible"])
        page = text_of(client.get(made["Location"]))
        assert "project vision" in page
        assert "so that all fit" in page

    def test_history_tells_what_changed_in_each_version(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        client = client_as("admin")
        scope = Scope(project=vision.pk)
        put_version(scope=scope, terms=Terms(priority_most=5), act=act)
        put_version(scope=scope, terms=Terms(priority_most=7, walltime_most_s=3600), act=act)
        policy = JobPolicy.objects.get()
        form = client.get(f"{CHANGE}?policy={policy.pk}&withdraw=yes").context["form"]
        values = {
            name: form[name].value() for name in ("about", "kind", "priority_most", "walltime_most_min", "withdraw")
        }
        assert values == {
            "about": "project:vision", "kind": "", "priority_most": 7, "walltime_most_min": 60, "withdraw": True,
        }  # fmt: skip
        assert confirm(client, preview(client, withdraw="on")).status_code == 302
        past = client.get(f"/policies/{policy.pk}/").context["history"]
        told = [[(str(label), before, after) for label, before, after in one.changed] for one in past]
        assert told == [
            [("Highest priority", "7", "—"), ("Longest time limit", "1 h", "—")],
            [("Highest priority", "5", "7"), ("Longest time limit", "—", "1 h")],
            [("Highest priority", "—", "5")],
        ]
        assert "it is withdrawn" in text_of(client.get("/policies/"))

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({}, "form_1"),
            ({"about": "project:nowhere", "priority_most": "1"}, "about"),
            ({"form_1": "block", "form_2": "block"}, "form_1"),
            ({"form_1": "auto"}, "form_1"),
            ({"priority_most": "101"}, "priority_most"),
            ({"priority_default": "3", "priority_most": "2"}, "priority_default"),
            ({"walltime_default_min": "0"}, "walltime_default_min"),
            ({"walltime_default_min": "61", "walltime_most_min": "60"}, "walltime_default_min"),
            ({"walltime_most_min": "99999999"}, "walltime_most_min"),
            ({"fallback_wait_min": "-1"}, "fallback_wait_min"),
            ({"zones": ["nowhere"]}, "zones"),
            ({"withdraw": "on"}, "withdraw"),
            ({"kind": "nothing", "priority_most": "1"}, "kind"),
        ],
    )
    def test_what_is_wrong_is_named(
        self, client_as: ClientAs, vision: Project, values: dict[str, Any], field: str
    ) -> None:
        answer = preview(client_as("admin"), **values)
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]

    def test_somebody_else_was_first(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        client = client_as("admin")
        shown = preview(client, priority_most="3")
        put_version(scope=Scope(project=vision.pk), terms=Terms(priority_most=1), act=act)
        answer = confirm(client, shown)
        assert answer.status_code == 409
        assert "changed by somebody else since the preview" in text_of(answer)
        assert PolicyVersion.objects.get().priority_most == 1

    def test_nothing_to_change_and_a_text_that_is_not_ours(
        self, client_as: ClientAs, vision: Project, act: Act
    ) -> None:
        client = client_as("admin")
        put_version(scope=Scope(project=vision.pk), terms=Terms(priority_most=1), act=act)
        assert "says already" in text_of(preview(client, priority_most="1"))
        assert client.post(CONFIRM, {"change": "made up", "reason": "x"}).status_code == 422
        shown = preview(client, priority_most="2")
        assert confirm(client, shown, reason=" ").status_code == 422
        assert PolicyVersion.objects.count() == 1

    def test_confirming_asks_for_the_password(
        self, client_as: ClientAs, vision: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = client_as("admin")
        shown = preview(client, priority_most="2")
        monkeypatch.setattr(sudo, "is_fresh", lambda request: False)
        assert confirm(client, shown).status_code == 403
        assert confirm(client, shown, sudo_password=factories.PASSWORD).status_code == 302


class TestReading:
    def test_each_sees_what_bears_on_their_projects(
        self, client_as: ClientAs, people: dict[str, User], vision: Project, act: Act
    ) -> None:
        elsewhere = Department.objects.create(slug="elsewhere", title="Elsewhere")
        Project.objects.filter(slug="outside").update(department=elsewhere)
        for scope in (
            Scope(),
            Scope(project=vision.pk, kind="training"),
            Scope(department=vision.department_id),
            Scope(department=elsewhere.pk),
            Scope(project=Project.objects.get(slug="outside").pk),
        ):
            put_version(scope=scope, terms=Terms(priority_most=5), act=act)
        page = text_of(client_as("researcher").get("/policies/"))
        for told in ("everybody", "Training · project vision", "department Research"):
            assert told.lower() in page.lower(), told
        assert "outside" not in page
        assert "Elsewhere" not in page
        assert "/policies/change/" not in page
        assert "Elsewhere" in text_of(client_as("auditor").get("/policies/"))
        file = client_as("researcher").get("/policies/?export=csv").getvalue().decode()
        assert file.count("Highest priority: 5") == 3
        assert "outside" not in file

    def test_what_holds_names_the_version_of_each_thing(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        put_version(scope=Scope(), terms=Terms(priority_most=5, walltime_most_s=7200), act=act)
        put_version(scope=Scope(project=vision.pk), terms=Terms(priority_most=8), act=act)
        found = client_as("researcher").get("/policies/effective/?project=vision&kind=training").context["sources"]
        told = {one.field: (one.said, one.row and one.row.policy.project_id) for one in found}
        assert told["priority_most"] == ("8", vision.pk)
        assert told["walltime_most_s"] == ("2 h", None)
        assert told["priority_default"] == ("0", None)
        assert told["walltime_default_s"] == ("1 d", None)
        assert next(one for one in found if one.field == "walltime_default_s").row is None
        wrong = client_as("researcher").get("/policies/effective/?project=outside&kind=training")
        assert "sources" not in wrong.context
        assert list(wrong.context["form"].errors) == ["project"]

    def test_the_project_page_and_the_menu_lead_there(self, client_as: ClientAs, vision: Project) -> None:
        page = client_as("researcher").get("/projects/vision/").content.decode()
        assert "/policies/effective/?project=vision" in page
        assert 'href="/policies/"' not in page
        assert 'href="/policies/"' in client_as("manager").get("/projects/vision/").content.decode()


class TestSubmitting:
    def test_defaults_fill_what_the_page_leaves_open_and_the_job_says_so(
        self, client_as: ClientAs, vision: Project, act: Act
    ) -> None:
        factories.node("n1", cards=2)
        terms = Terms(
            forms=("container", "whole"), fallback_wait_s=600, zones=(factories.zone().pk,),
            priority_default=5, walltime_default_s=600,
        )  # fmt: skip
        version = put_version(scope=Scope(project=vision.pk, kind="training"), terms=terms, act=act)
        client = client_as("researcher")
        values = job_form(form="auto", priority="", walltime_min="")
        panel = text_of(client.post("/jobs/new/outlook/", values))
        assert "Decided by policies" in panel
        assert f"/policies/{version.policy_id}/" in panel
        assert client.post("/jobs/new/", values).status_code == 302
        job = Job.objects.get()
        assert (job.priority, job.walltime_s, job.zones) == (5, 600, [factories.zone().pk])
        assert [(ask["form"], ask["after_s"]) for ask in job.asks] == [("container", 0), ("whole", 600)]
        page = text_of(client.get(f"/jobs/{job.pk}/"))
        assert page.count("project vision, version 1") == 5

    @pytest.mark.parametrize(
        ("values", "field", "label"),
        [({"priority": "6"}, "priority", "Priority"), ({"walltime_min": "11"}, "walltime_min", "Time limit")],
    )
    def test_what_is_too_much_is_named_beside_its_field(
        self, client_as: ClientAs, vision: Project, act: Act, values: dict[str, str], field: str, label: str
    ) -> None:
        put_version(scope=Scope(), terms=Terms(priority_most=5, walltime_most_s=600), act=act)
        fits = job_form(priority="5", walltime_min="10")
        answer = client_as("researcher").post("/jobs/new/", fits | values)
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]
        panel = text_of(client_as("researcher").post("/jobs/new/outlook/", fits | values))
        assert label in panel
        assert "at most" in panel
        assert client_as("researcher").post("/jobs/new/", fits).status_code == 302

    def test_no_node_of_the_zones_is_told_as_such(self, client_as: ClientAs, vision: Project, act: Act) -> None:
        factories.node("n1", cards=1, memory_mib=1_000, in_zone=factories.zone("small"))
        factories.node("n2", cards=1, memory_mib=80_000, in_zone=factories.zone("large"))
        put_version(scope=Scope(), terms=Terms(zones=(factories.zone("small").pk,)), act=act)
        answer = client_as("researcher").post("/jobs/new/", job_form())
        assert list(answer.context["form"].errors) == ["project"]
        assert "keeps it inside small" in text_of(answer)

    def test_without_policies_what_is_left_open_is_the_portals(self, client_as: ClientAs, vision: Project) -> None:
        client_as("researcher").post("/jobs/new/", job_form(priority="", walltime_min=""))
        job = Job.objects.get()
        assert (job.priority, job.walltime_s, job.zones) == (0, 86_400, None)
        assert "Decided by policies" not in text_of(client_as("researcher").get(f"/jobs/{job.pk}/"))
