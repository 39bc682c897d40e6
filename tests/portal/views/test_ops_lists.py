"""The lists of the operators: drift, commands that wait, scheduled tasks. Filters, sorting, files, hostile text."""

from __future__ import annotations

import csv
import datetime as dt
import itertools
from typing import Any
from urllib.parse import urlencode

import pytest

from ledger.clock import database_now
from ledger.models import Job, User
from scheduler import placing
from scheduler.models import Command, Drift, TaskRun
from tests import factories
from tests.portal.views.conftest import ClientAs

HOSTILE = '<script>alert(1)</script>"\u202e' + "x" * 400
BAD = ["-1", "abc", "\x00", "9" * 40, "' OR 1=1 --", "a" * 5000, "💥", "<b>"]
FIELDS = {
    "/ops/drift/": ["q", "state", "kind", "hardware", "page", "sort", "columns", "export"],
    "/ops/commands/": ["q", "waiting", "hardware", "page", "sort", "columns", "export"],
    "/ops/tasks/": ["page", "sort", "columns", "export"],
    "/ops/queue/": ["q", "cause", "project", "hardware", "held", "page", "sort", "columns", "export"],
    "/ops/map/": ["hardware", "rack", "colour", "show"],
    "/ops/map/cards.json": ["hardware", "rack", "colour"],
    "/audit/": ["who", "verb", "kind", "number", "project", "start", "end", "q", "page", "sort", "columns", "export"],
}


def shown(response: Any) -> list[Any]:
    return [row for _key, row in response.context["t"]["rows"]]


def lines(response: Any) -> list[list[str]]:
    text = b"".join(response.streaming_content).decode("utf-8-sig")
    return [row for row in csv.reader(text.splitlines()) if row and not row[0].startswith("#")]


@pytest.fixture
def drifts(people: dict[str, User]) -> dict[str, Drift]:
    now = database_now()

    def made(kind: str, subject: str, hours: int, **values: Any) -> Drift:
        first = now - dt.timedelta(hours=hours)
        facts = {"detail": "last report: never", "fix": "stop it", "first_seen": first, "last_seen": now}
        return Drift.objects.create(kind=kind, subject=subject, **facts | values)

    return {
        "open": made("agent_silent", "r1", 5, fix="start the agent; the node gets no new work until then"),
        "hostile": made("member_missing", HOSTILE[:200], 2, detail=HOSTILE, simulated=True),
        "past": made("orphan_member", "a7", 30, resolved_at=now - dt.timedelta(hours=20)),
        "strange": made("of_a_newer_version", "n9", 1),
    }


class TestDrift:
    def test_open_ones_come_first_with_age_and_proposed_fix(
        self, client_as: ClientAs, drifts: dict[str, Drift]
    ) -> None:
        response = client_as("operator").get("/ops/drift/")
        found = {row.drift.subject: row for row in shown(response)}
        assert shown(response)[-1].drift == drifts["past"]
        assert 5 * 3600 <= found["r1"].age_s < 5 * 3600 + 60
        assert found["a7"].age_s == 10 * 3600
        assert "start the agent; the node gets no new work until then" in response.content.decode()

    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ("state=open", {"open", "hostile", "strange"}),
            ("state=past", {"past"}),
            ("kind=agent_silent", {"open"}),
            ("hardware=simulated", {"hostile"}),
            ("q=A7", {"past"}),
            ("q=never&state=open", {"open", "strange"}),
        ],
    )
    def test_filters(self, client_as: ClientAs, drifts: dict[str, Drift], query: str, names: set[str]) -> None:
        response = client_as("operator").get(f"/ops/drift/?{query}")
        assert {row.drift.pk for row in shown(response)} == {drifts[name].pk for name in names}

    def test_sorted_by_first_seen_both_ways(self, client_as: ClientAs, drifts: dict[str, Drift]) -> None:
        client = client_as("operator")
        up = [row.drift.pk for row in shown(client.get("/ops/drift/?sort=first"))]
        down = [row.drift.pk for row in shown(client.get("/ops/drift/?sort=-first"))]
        assert up == down[::-1] == [drifts[n].pk for n in ("past", "open", "hostile", "strange")]

    def test_the_file_has_the_filtered_rows(self, client_as: ClientAs, drifts: dict[str, Drift]) -> None:
        rows = lines(client_as("auditor").get("/ops/drift/?state=past&export=csv"))
        assert rows[0][:4] == ["Kind", "Subject", "Detail", "Proposed fix"]
        assert [row[1] for row in rows[1:]] == ["a7"]
        assert rows[1][4] == "600"

    def test_hostile_text_stays_text_and_short(self, client_as: ClientAs, drifts: dict[str, Drift]) -> None:
        page = client_as("operator").get("/ops/drift/?hardware=simulated").content.decode()
        assert "<script>alert" not in page
        assert ">" + "x" * 130 not in page

    def test_empty_lists_say_the_next_step(self, client_as: ClientAs, people: dict[str, User]) -> None:
        client = client_as("operator")
        assert b"compared every ten seconds" in client.get("/ops/drift/").content
        assert b"Clear the filter" in client.get("/ops/drift/?state=past").content


class TestCommands:
    @pytest.fixture
    def waiting(self, people: dict[str, User]) -> list[Command]:
        factories.node("n1", cards=4)
        for n in range(3):
            factories.job(name=f"job {n}")
        placing.place_queued()
        found = list(Command.objects.order_by("pk"))
        later = database_now() + dt.timedelta(seconds=60)
        Command.objects.filter(pk=found[0].pk).update(tries=3, due_at=later, last_error=f"timeout {HOSTILE}"[:500])
        return found

    def test_what_drivers_must_still_be_told(self, client_as: ClientAs, waiting: list[Command]) -> None:
        response = client_as("operator").get("/ops/commands/")
        assert [row.pk for row in shown(response)] == [waiting[1].pk, waiting[2].pk, waiting[0].pk]
        page = response.content.decode()
        assert "<script>alert" not in page
        assert 'href="/nodes/n1/"' in page

    @pytest.mark.parametrize(
        ("query", "places"),
        [
            ("waiting=backoff", {0}),
            ("waiting=first", {1, 2}),
            ("hardware=real", set()),
            ("hardware=simulated", {0, 1, 2}),
            ("q=timeout", {0}),
            ("q=N1", {0, 1, 2}),
        ],
    )
    def test_filters(self, client_as: ClientAs, waiting: list[Command], query: str, places: set[int]) -> None:
        response = client_as("operator").get(f"/ops/commands/?{query}")
        assert {row.pk for row in shown(response)} == {waiting[n].pk for n in places}

    def test_commands_that_were_carried_out_are_not_listed(self, client_as: ClientAs, running: Job) -> None:
        response = client_as("operator").get("/ops/commands/")
        assert shown(response) == []
        assert b"Drivers have been told everything." in response.content


class TestTasks:
    @pytest.fixture
    def runs(self, people: dict[str, User]) -> dict[str, TaskRun]:
        now = database_now()
        values = {"runs": 12_345, "failures": 2, "result": {"placed": 3, "note": HOSTILE}}
        tick = TaskRun.objects.create(
            name="scheduler.tick", started_at=now - dt.timedelta(milliseconds=250), ended_at=now, ok=True, **values
        )
        gone = TaskRun.objects.create(name="of.an.older.version", started_at=now - dt.timedelta(days=9), ok=None)
        return {"tick": tick, "gone": gone}

    def test_each_task_with_its_last_run(self, client_as: ClientAs, runs: dict[str, TaskRun]) -> None:
        response = client_as("auditor").get("/ops/tasks/")
        page = response.content.decode()
        row = next(row for row in shown(response) if row.name == "scheduler.tick")
        assert (row.duration_ms, row.every_s, row.late) == (250, 2.0, False)
        assert "places jobs that wait" in page
        assert "12\u202f345" in page
        assert "<script>alert" not in page

    def test_tasks_that_never_ran_are_named_and_old_ones_still_listed(
        self, client_as: ClientAs, runs: dict[str, TaskRun]
    ) -> None:
        response = client_as("operator").get("/ops/tasks/")
        assert {line.name for line in response.context["never"]} >= {"ledger.check_books", "scheduler.reconcile"}
        assert "scheduler.tick" not in {line.name for line in response.context["never"]}
        assert [row.name for row in shown(response)] == ["of.an.older.version", "scheduler.tick"]

    def test_the_file_has_the_results(self, client_as: ClientAs, runs: dict[str, TaskRun]) -> None:
        rows = lines(client_as("operator").get("/ops/tasks/?export=csv&sort=-runs"))
        facts = dict(zip(rows[0], rows[1], strict=True))
        assert (facts["Task"], facts["Took (ms)"], facts["Runs"], facts["Failures"]) == (
            "scheduler.tick",
            "250",
            "12345",
            "2",
        )
        assert '"placed": 3' in facts["Result"]


@pytest.mark.parametrize("page", FIELDS)
def test_bad_values_never_break_a_page(client_as: ClientAs, running: Job, page: str) -> None:
    client = client_as("operator")
    for field, value in itertools.product(FIELDS[page], BAD):
        assert client.get(f"{page}?{urlencode({field: value})}").status_code == 200, (field, value)


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00", "9999-12-31T23:59", "2026-02-30T00:00", "1969-01-01T00:00", "x"]
)
def test_times_that_cannot_be_are_named_beside_their_field(client_as: ClientAs, running: Job, moment: str) -> None:
    client = client_as("operator")
    User.objects.filter(username="operator").update(time_zone="America/New_York")
    for field in ("start", "end"):
        response = client.get(f"/audit/?{urlencode({field: moment})}")
        assert response.context["form"].errors[field]
        assert shown(response) != []  # and not applied


@pytest.mark.parametrize("page", [page for page in FIELDS if page != "/ops/map/cards.json"])
def test_pages_have_no_inline_script(client_as: ClientAs, running: Job, page: str) -> None:
    text = client_as("operator").get(page).content.decode()
    assert "<script>" not in text
    assert " onclick=" not in text


@pytest.mark.parametrize(("page", "golden"), [("/ops/drift/", 5), ("/ops/commands/", 4), ("/ops/tasks/", 6)])
def test_the_number_of_queries_does_not_grow(
    client_as: ClientAs, people: dict[str, User], django_assert_num_queries: Any, page: str, golden: int
) -> None:
    client = client_as("operator")
    now = database_now()
    factories.node("n1", cards=8)

    def more(word: str) -> None:
        for n in range(3):
            TaskRun.objects.create(name=f"{word}{n}", started_at=now, ended_at=now, ok=True)
            moments = {"first_seen": now, "last_seen": now}
            Drift.objects.create(kind="inventory", subject=f"{word}{n}", detail="d", fix="f", **moments)
            factories.job(name=f"{word}{n}")
        placing.place_queued()

    more("a")
    client.get(page)
    with django_assert_num_queries(golden):
        client.get(page)
    more("b")
    with django_assert_num_queries(golden):
        client.get(page)
