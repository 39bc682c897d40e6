"""The queue and what operators do to it: who sees which jobs, why each waits, acts with a preview and a reason."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from django.test import Client

from ledger.models import AuditEvent, Job, User
from portal import sudo
from scheduler import placing, queue_control
from scheduler.queue_control import Order
from tests import factories
from tests.portal.views.conftest import ClientAs

HOSTILE = '<img src=x onerror=alert(1)>"مرحبا' + "y" * 120
GOLDEN = 5


@pytest.fixture
def jobs(people: dict[str, User], queued: Job) -> list[Job]:
    """Three jobs that wait: one can never be met, one is of another project, one has a hostile name."""
    wide = [{"form": "container", "cards_per_node": 4}]
    outside = factories.any_job(people["outsider"], project="outside", name="hidden work", asks=wide)
    hostile = factories.any_job(name=HOSTILE, asks=wide, priority=5)
    placing.place_queued()
    return [queued, outside, hostile]


def shown(response: Any) -> list[Job]:
    return [row for _key, row in response.context["t"]["rows"]]


def post(client: Client, act: str, *jobs: Job, **data: Any) -> Any:
    return client.post(f"/ops/queue/{act}/confirm/", {"key": [str(job.pk) for job in jobs], **data})


def waiting(job: Job) -> tuple[Any, ...]:
    job.refresh_from_db()
    return job.state, job.held_at is not None, job.priority


class TestList:
    def test_in_the_order_of_the_queue_with_positions_and_causes(self, client_as: ClientAs, jobs: list[Job]) -> None:
        response = client_as("operator").get("/ops/queue/")
        assert [(row.pk, row.place) for row in shown(response)] == [
            (jobs[2].pk, 1),
            (jobs[0].pk, 2),
            (jobs[1].pk, 3),
        ]
        assert {row.cause for row in shown(response)} == {"never"}
        assert "as the fleet is now, nothing can ever meet it" in response.content.decode()

    def test_people_see_their_projects_with_their_place_in_the_whole_queue(
        self, client_as: ClientAs, jobs: list[Job]
    ) -> None:
        response = client_as("outsider").get("/ops/queue/")
        page = response.content.decode()
        assert [(row.pk, row.place) for row in shown(response)] == [(jobs[1].pk, 3)]
        assert "too wide" not in page
        assert "vision" not in page
        assert "/ops/queue/hold/" not in page

    def test_only_who_may_act_gets_boxes_and_acts(self, client_as: ClientAs, jobs: list[Job]) -> None:
        for who, may in {"operator": True, "admin": True, "manager": False, "auditor": False, "member": False}.items():
            page = client_as(who).get("/ops/queue/").content.decode()
            assert (f"/ops/queue/hold/?key={jobs[0].pk}" in page, 'name="key"' in page) == (may, may), who

    @pytest.mark.parametrize(
        ("query", "places"),
        [
            ("cause=never", {0, 1, 2}),
            ("cause=quota", set()),
            ("project=outside", {1}),
            ("hardware=real", set()),
            ("q=WIDE", {0}),
            ("held=yes", set()),
            ("held=no", {0, 1, 2}),
        ],
    )
    def test_filters(self, client_as: ClientAs, jobs: list[Job], query: str, places: set[int]) -> None:
        response = client_as("operator").get(f"/ops/queue/?{query}")
        assert {row.pk for row in shown(response)} == {jobs[n].pk for n in places}

    def test_a_job_is_found_by_its_number(self, client_as: ClientAs, jobs: list[Job]) -> None:
        response = client_as("operator").get(f"/ops/queue/?q={jobs[1].pk}")
        assert [row.pk for row in shown(response)] == [jobs[1].pk]

    def test_a_project_out_of_sight_is_no_choice(self, client_as: ClientAs, jobs: list[Job]) -> None:
        response = client_as("outsider").get("/ops/queue/?project=vision")
        assert response.context["form"].errors["project"]
        assert [row.pk for row in shown(response)] == [jobs[1].pk]

    def test_hostile_names_stay_text(self, client_as: ClientAs, jobs: list[Job]) -> None:
        for page in ("/ops/queue/", f"/ops/queue/hold/?key={jobs[2].pk}"):
            text = client_as("operator").get(page).content.decode()
            assert "<img src=x" not in text
            assert "y" * 100 + "<" not in text  # cut; the whole name is in the title

    def test_the_file_has_what_is_filtered_and_no_acts(self, client_as: ClientAs, jobs: list[Job]) -> None:
        response = client_as("operator").get("/ops/queue/?project=vision&export=csv")
        text = b"".join(response.streaming_content).decode("utf-8-sig")
        rows = [row for row in csv.reader(text.splitlines()) if row and not row[0].startswith("#")]
        assert rows[0] == [
            "Position",
            "Job",
            "Project",
            "By",
            "Asked for",
            "Cause",
            "Kept for it",
            "Waits since",
            "Priority",
        ]
        assert [row[0] for row in rows[1:]] == ["1", "2"]

    def test_an_empty_queue_says_so(self, client_as: ClientAs, people: dict[str, User]) -> None:
        assert b"No job waits." in client_as("operator").get("/ops/queue/").content

    def test_the_number_of_queries_does_not_grow(
        self, client_as: ClientAs, jobs: list[Job], django_assert_num_queries: Any
    ) -> None:
        client = client_as("operator")
        client.get("/ops/queue/")
        with django_assert_num_queries(GOLDEN):
            client.get("/ops/queue/")
        for n in range(5):
            factories.job(name=f"more {n}")
        with django_assert_num_queries(GOLDEN):
            client.get("/ops/queue/")


class TestActs:
    def test_the_preview_shows_the_jobs_and_changes_nothing(self, client_as: ClientAs, jobs: list[Job]) -> None:
        client = client_as("operator")
        one = client.get(f"/ops/queue/hold/?key={jobs[0].pk}")
        many = client.post("/ops/queue/hold/", {"key": [str(j.pk) for j in jobs] + ["999999999", "x"]})
        assert [job.pk for job in one.context["chosen"].jobs] == [jobs[0].pk]
        assert {job.pk for job in many.context["chosen"].jobs} == {j.pk for j in jobs}
        assert many.context["chosen"].others == ["999999999", "x"]
        assert "Left out, because no job of that number waits now: 999999999, x" in many.content.decode()
        assert {waiting(job) for job in jobs} == {("queued", False, 0), ("queued", False, 5)}

    def test_no_choice_is_told_from_a_choice_that_does_not_wait(self, client_as: ClientAs, jobs: list[Job]) -> None:
        client = client_as("operator")
        assert "No job is chosen." in client.get("/ops/queue/hold/").content.decode()
        assert "None of the chosen jobs waits." in client.get("/ops/queue/hold/?key=999999999").content.decode()

    def test_hold_and_release(self, client_as: ClientAs, jobs: list[Job]) -> None:
        client = client_as("operator")
        done = post(client, "hold", *jobs[:2], reason="storage is full")
        assert (done.status_code, done["Location"]) == (302, "/ops/queue/")
        page = client.get("/ops/queue/")
        assert "Hold jobs: done for 2 jobs." in page.content.decode()
        assert "storage is full" in page.content.decode()
        assert {row.pk: row.cause for row in shown(page)} == {
            jobs[0].pk: "held_by_operator",
            jobs[1].pk: "held_by_operator",
            jobs[2].pk: "never",
        }
        assert {row.pk: row.place for row in shown(page)}[jobs[0].pk] is None
        assert f"/ops/queue/release/?key={jobs[0].pk}" in page.content.decode()
        post(client, "release", jobs[0], reason="storage is back")
        assert (waiting(jobs[0]), waiting(jobs[1])) == (("queued", False, 0), ("queued", True, 0))

    def test_the_job_page_says_that_it_is_held(self, client_as: ClientAs, jobs: list[Job]) -> None:
        post(client_as("operator"), "hold", jobs[0], reason="storage is full")
        page = client_as("researcher").get(f"/jobs/{jobs[0].pk}/").content.decode()
        assert "an operator holds the job back until it is released" in page

    def test_bump(self, client_as: ClientAs, jobs: list[Job]) -> None:
        client = client_as("admin")
        assert post(client, "bump", jobs[0], priority="50", reason="deadline").status_code == 302
        assert waiting(jobs[0]) == ("queued", False, 50)
        assert shown(client.get("/ops/queue/"))[0].pk == jobs[0].pk

    def test_cancel_leaves_what_has_started(self, client_as: ClientAs, jobs: list[Job], turn: Any) -> None:
        started = factories.job(name="started meanwhile", command=["simulate", "--seconds", "3600"])
        turn()
        started.refresh_from_db()
        assert started.state == "running"
        client = client_as("operator")
        post(client, "cancel", jobs[0], started, reason="asked to")
        assert waiting(jobs[0])[0] == "cancelled"
        assert waiting(started)[0] == "running"

    def test_each_act_is_audited_with_its_reason(self, client_as: ClientAs, jobs: list[Job]) -> None:
        post(client_as("operator"), "hold", jobs[0], reason="storage is full")
        event = AuditEvent.objects.get(verb="job.held")
        assert (event.actor and event.actor.username, event.via, event.reason) == (
            "operator",
            "page",
            "storage is full",
        )
        assert event.request_id

    @pytest.mark.parametrize(
        ("act", "data", "field"),
        [
            ("hold", {}, "reason"),
            ("hold", {"reason": "   "}, "reason"),
            ("hold", {"reason": "r" * 501}, "reason"),
            ("bump", {"reason": "why"}, "priority"),
            ("bump", {"reason": "why", "priority": "101"}, "priority"),
            ("bump", {"reason": "why", "priority": "high"}, "priority"),
            ("bump", {"reason": "why", "priority": "9" * 30}, "priority"),
        ],
    )
    def test_what_is_wrong_is_named_and_nothing_typed_is_lost(
        self, client_as: ClientAs, jobs: list[Job], act: str, data: dict[str, str], field: str
    ) -> None:
        response = post(client_as("operator"), act, *jobs[:2], **data)
        assert response.status_code == 422
        assert response.context["form"].errors[field]
        assert [job.pk for job in response.context["chosen"].jobs] == [jobs[0].pk, jobs[1].pk]
        if data.get("reason", "").strip():
            assert data["reason"] in response.content.decode()
        assert waiting(jobs[0]) == ("queued", False, 0)

    @pytest.mark.parametrize("key", ["", "x", "-1", "9" * 30, "٣", "999999999"])
    def test_keys_that_name_no_waiting_job_are_refused(self, client_as: ClientAs, jobs: list[Job], key: str) -> None:
        client = client_as("operator")
        response = client.post("/ops/queue/hold/confirm/", {"key": key, "reason": "why"})
        assert response.status_code == 422
        assert "Choose at least one job." in response.content.decode()
        assert client.get("/ops/queue/hold/", {"key": key}).status_code == 200

    def test_more_jobs_than_one_act_takes_are_refused(
        self, client_as: ClientAs, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue_control, "MOST", 2)
        response = post(client_as("operator"), "hold", *jobs, reason="why")
        assert response.status_code == 422
        assert "Choose at most 2 jobs at once." in response.content.decode()
        assert not Job.objects.exclude(held_at=None).exists()

    def test_a_job_that_is_held_already_is_named(self, client_as: ClientAs, jobs: list[Job], people: Any) -> None:
        order = Order(actor=people["admin"], reason="first", via="test")
        queue_control.hold_jobs(job_ids=[jobs[0].pk], order=order)
        client = client_as("operator")
        post(client, "hold", *jobs[:2], reason="second")
        page = client.get("/ops/queue/").content.decode()
        assert f"Job {jobs[0].pk} is left as it is: it is held already." in page
        jobs[0].refresh_from_db()
        assert jobs[0].held_reason == "first"

    @pytest.mark.parametrize("who", ["researcher", "owner", "manager", "auditor", "outsider"])
    def test_others_can_not_act(self, client_as: ClientAs, jobs: list[Job], who: str) -> None:
        client = client_as(who)
        codes = {post(client, act, jobs[0], reason="x", priority="9").status_code for act in ("hold", "bump", "cancel")}
        assert codes == {403}
        assert waiting(jobs[0]) == ("queued", False, 0)

    def test_an_act_asks_for_the_password_when_it_was_not_given_lately(
        self, client_as: ClientAs, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = client_as("operator")
        monkeypatch.setattr(sudo, "is_fresh", lambda request: False)
        asked = post(client, "hold", jobs[0], reason="why")
        assert asked.status_code == 403
        assert f'value="{jobs[0].pk}"' in asked.content.decode()  # the form is carried along
        assert waiting(jobs[0]) == ("queued", False, 0)
        post(client, "hold", jobs[0], reason="why", sudo_password=factories.PASSWORD)
        assert waiting(jobs[0]) == ("queued", True, 0)
