"""The contract of /jobs/: what it takes, what it tells, keys that repeat, cancelling and logs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import AuditEvent, Job, Membership, User
from ledger.vocabulary import ProjectRole
from scheduler.drivers.base import DriverError, LogChunk
from scheduler.drivers.registry import driver
from tests import factories
from tests.portal.api.client import Api, api, fields, is_problem, row_counts

Spec = Callable[..., dict[str, Any]]
EVERYTHING = {
    "project": "vision",
    "name": "训练 run 1",
    "kind": "training",
    "asks": [
        {"form": "whole", "nodes": 2, "cards_per_node": 4, "memory_mib": 8000, "model": "A100"},
        {"form": "auto", "nodes": 1, "cards_per_node": 2, "memory_mib": 8000, "after_s": 60, "compute_milli": 500},
    ],
    "cpu_milli": 4000,
    "host_memory_mib": 8192,
    "interconnect": "nvlink",
    "distance": "near",
    "labels": ["rack-a"],
    "command": ["python", "-c", "print('a\tb\n')", ""],
    "environment": {"EPOCHS": "3", "EMPTY": "", "LINES": "a\nb"},
    "image": "registry.example:5000/team/train:v1.2",
    "data_paths": ["/data/sets/a..b"],
    "walltime_s": 3600,
    "priority": -5,
    "preemptible": True,
    "checkpoint": "SIGUSR1",
    "simulated": True,
}
GIVEN_BACK = [
    "project",
    "name",
    "kind",
    "cpu_milli",
    "host_memory_mib",
    "interconnect",
    "distance",
    "labels",
    "command",
    "environment",
    "image",
    "data_paths",
    "walltime_s",
    "priority",
    "preemptible",
    "checkpoint",
    "simulated",
]


@pytest.mark.django_db
def test_every_field_of_a_job_is_taken_and_given_back(researcher: Api) -> None:
    made = researcher.post("jobs/", EVERYTHING)
    assert made.status_code == 201, made.content
    assert made["Location"] == f"/api/v1/jobs/{made.json()['id']}/"
    told = researcher.get(f"jobs/{made.json()['id']}/").json()
    assert {name: told[name] for name in GIVEN_BACK} == {name: EVERYTHING[name] for name in GIVEN_BACK}
    for asked, answer in zip(EVERYTHING["asks"], told["asks"], strict=True):  # type: ignore[call-overload]
        assert asked.items() <= answer.items()


@pytest.mark.django_db
def test_a_slice_is_told_with_its_memory_compute_and_model(
    researcher: Api, spec: Spec, turn: Callable[[], None]
) -> None:
    factories.node("h1", cards=1, memory_mib=81_920, model="H100")
    body = spec(asks=[{"form": "container", "profile": "3g.40gb"}])
    assert researcher.post("jobs/what-if/", body).json()["nodes"] == ["h1"]
    made = researcher.post("jobs/", body).json()
    told = {"profile": "3g.40gb", "memory_mib": 40_960, "compute_milli": 428, "model": "H100"}
    turn()
    for answer in (researcher.get(f"jobs/{made['id']}/").json(), researcher.get("jobs/").json()["results"][0]):
        assert told.items() <= answer["asks"][0].items()
    [card] = researcher.get(f"jobs/{made['id']}/").json()["placement"][0]["cards"]
    assert (card["model"], card["memory_mib"]) == ("H100", 40_960)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ask", "field"),
    [
        ({"form": "container", "profile": "9g.1gb"}, "asks.0.profile"),
        ({"form": "container", "profile": "1g.18gb"}, "asks.0.profile"),
        ({"form": "whole", "profile": "1g.10gb"}, "asks.0.profile"),
        ({"form": "container", "profile": "1g.10gb", "memory_mib": 5}, "asks.0.profile"),
        ({"form": "container", "profile": None}, "asks.0.profile"),
        ({"form": "container", "profile": 1}, "asks.0.profile"),
    ],
)
def test_what_is_no_slice_is_refused_at_its_field(researcher: Api, spec: Spec, ask: dict[str, Any], field: str) -> None:
    factories.node("h1", cards=1, memory_mib=81_920, model="H100")
    answer = researcher.post("jobs/", spec(asks=[ask]))
    assert (answer.status_code, fields(answer)) == (400, {field})
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_a_minimal_job_gets_the_documented_defaults(researcher: Api, spec: Spec) -> None:
    told = researcher.post("jobs/", spec(asks=[{"form": "container"}])).json()
    assert told["state"] == "queued"
    assert told["asks"] == [
        {
            "form": "container",
            "nodes": 1,
            "cards_per_node": 1,
            "memory_mib": 0,
            "after_s": 0,
            "model": "",
            "compute_milli": 0,
        }
    ]
    assert (told["cpu_milli"], told["host_memory_mib"], told["walltime_s"]) == (500, 512, 86_400)
    assert (told["interconnect"], told["distance"], told["priority"]) == ("any", "any", 0)
    assert (told["reproducible"], told["like_job"], told["comparison"]) == (False, None, None)
    assert told["placement"] == []
    assert told["neighbours"] == {"at_placement": [], "now": [], "since": []}
    assert told["promise"] is None
    assert told["usage"] == {"unit": "mib_seconds", "used": 0, "final": False}
    assert set(told["times"]) == {"submitted", "queued", "placed", "started", "ended"}
    assert told["times"]["submitted"] is not None
    assert told["times"]["ended"] is None


@pytest.mark.django_db
def test_a_running_job_tells_where_it_runs_beside_whom_and_why(
    running: Job, researcher: Api, turn: Callable[[], None]
) -> None:
    told = researcher.get(f"jobs/{running.pk}/").json()
    assert told["state"] == "running"
    (member,) = told["placement"]
    assert (member["node"], member["driver"], member["simulated"]) == ("n1", "simulated", True)
    assert (member["rank"], member["form"], member["zone"]) == (0, "container", "flexible")
    (card,) = member["cards"]
    assert card["uuid"].startswith("n1-card-")
    assert (card["memory_mib"], card["card_memory_mib"], card["virtual"]) == (1024, 16_000, False)
    assert told["reasons"]["placed"] is True
    assert told["reasons"]["ask_index"] == 0
    assert told["reasons"]["best"]
    assert all(told["times"][name] for name in ("submitted", "queued", "placed", "started"))
    assert [a["state"] for a in told["attempts"]] == ["running"]


@pytest.mark.django_db
def test_a_waiting_job_tells_how_many_nodes_refused_it_and_why(
    people: dict[str, User], researcher: Api, spec: Spec, turn: Callable[[], None]
) -> None:
    pk = researcher.post("jobs/", spec(asks=[{"form": "container", "memory_mib": 20_000}])).json()["id"]
    factories.node("n1", cards=2, memory_mib=16_000)
    turn()
    reasons = researcher.get(f"jobs/{pk}/").json()["reasons"]
    assert (reasons["placed"], reasons["never"], reasons["position"]) == (False, True, 1)
    assert reasons["by_ask"] == [{"card_memory_total": 1}]


@pytest.mark.django_db
def test_what_no_node_could_ever_give_is_refused_with_the_nearest(
    people: dict[str, User], researcher: Api, spec: Spec
) -> None:
    factories.node("n1", cards=2, memory_mib=16_000)
    before = row_counts()
    refused = researcher.post("jobs/", spec(asks=[{"form": "container", "memory_mib": 20_000}]))
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "asks.0.memory_mib")
    assert refused.json()["errors"][0]["code"] == "never_runs"
    for word in ("No card has", "n1", "Nearest that could run"):
        assert word in refused.json()["detail"]
    assert row_counts() == before


@pytest.mark.django_db
def test_neighbours_of_other_projects_have_no_name(
    running: Job, people: dict[str, User], spec: Spec, turn: Callable[[], None]
) -> None:
    factories.job(people["outsider"], project="outside", command=["simulate", "--seconds", "3600"])
    turn()
    told = api(people["researcher"]).get(f"jobs/{running.pk}/")
    assert told.json()["neighbours"]["now"] == ["(another project)"]
    assert "outside" not in told.content.decode()
    assert api(people["admin"]).get(f"jobs/{running.pk}/").json()["neighbours"]["now"] == ["outside"]
    (guest,) = told.json()["neighbours"]["since"]
    assert (guest["project"], guest["node"], guest["until"]) == ("(another project)", "n1", None)


@pytest.mark.django_db
def test_the_same_key_and_body_give_the_same_job_and_no_second_row(researcher: Api, spec: Spec) -> None:
    first = researcher.post("jobs/", spec(), Idempotency_Key="k-1")
    before = row_counts()
    again = researcher.post("jobs/", spec(priority=0), Idempotency_Key="k-1")  # 0 is the default: the same job
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert row_counts() == before


@pytest.mark.django_db
def test_the_same_key_with_another_body_is_refused(researcher: Api, spec: Spec) -> None:
    researcher.post("jobs/", spec(), Idempotency_Key="k-1")
    before = row_counts()
    refused = researcher.post("jobs/", spec(name="another"), Idempotency_Key="k-1")
    assert refused.status_code == 422
    assert is_problem(refused)
    assert fields(refused) == {"Idempotency-Key"}
    assert row_counts() == before


@pytest.mark.django_db
def test_a_key_belongs_to_its_person(people: dict[str, User], spec: Spec) -> None:
    first = api(people["researcher"]).post("jobs/", spec(), Idempotency_Key="k-1").json()["id"]
    second = api(people["member"]).post("jobs/", spec(name="other"), Idempotency_Key="k-1")
    assert second.status_code == 201
    assert second.json()["id"] != first


@pytest.mark.django_db
def test_a_key_does_not_open_a_project_that_was_left(people: dict[str, User], spec: Spec) -> None:
    caller = api(people["researcher"])
    pk = caller.post("jobs/", spec(), Idempotency_Key="k-1").json()["id"]
    factories.leave(Job.objects.get(pk=pk).project, people["researcher"])
    again = caller.post("jobs/", spec(), Idempotency_Key="k-1")
    assert again.status_code == 400
    assert fields(again) == {"project"}
    assert caller.post("jobs/", spec(name="x"), Idempotency_Key="k-1").status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["", " ", "a" * 201, "a\tb"])
def test_a_key_that_is_not_printable_text_is_refused(researcher: Api, spec: Spec, key: str) -> None:
    before = row_counts()
    refused = researcher.post("jobs/", spec(), Idempotency_Key=key)
    assert refused.status_code == 400
    assert fields(refused) == {"Idempotency-Key"}
    assert row_counts() == before


@pytest.mark.django_db
def test_pages_of_jobs_are_whole_while_new_jobs_arrive(people: dict[str, User], researcher: Api) -> None:
    ids = [factories.job(people["researcher"], name=f"j{i}").pk for i in range(7)]
    seen: list[int] = []
    page = researcher.get("jobs/", page_size=3).json()
    while True:
        seen += [row["id"] for row in page["results"]]
        factories.job(people["researcher"], name="late")
        if page["next"] is None:
            break
        page = researcher.send("GET", page["next"].removeprefix("http://testserver")).json()
    assert seen == ids[::-1]


@pytest.mark.django_db
def test_the_list_filters_by_state_project_and_kind_of_machine(people: dict[str, User], researcher: Api) -> None:
    real = factories.job(people["researcher"], simulated=False).pk
    made_up = factories.job(people["researcher"], simulated=True).pk
    rows = lambda **query: [row["id"] for row in researcher.get("jobs/", **query).json()["results"]]  # noqa: E731
    assert rows(simulated="false") == [real]
    assert rows(simulated="true") == [made_up]
    assert rows(state="queued", project="vision") == [made_up, real]
    assert rows(state="failed") == []
    assert rows(project="outside") == []


@pytest.mark.django_db
def test_cancelling_a_queued_job_ends_it_once(people: dict[str, User], researcher: Api) -> None:
    pk = factories.job(people["researcher"]).pk
    ended = researcher.post(f"jobs/{pk}/cancel/", {"reason": "two\nlines"})
    assert (ended.status_code, ended.json()["state"]) == (200, "cancelled")
    before = row_counts()
    again = researcher.post(f"jobs/{pk}/cancel/")
    assert again.status_code == 409
    assert is_problem(again)
    assert row_counts() == before
    assert AuditEvent.objects.get(verb="job.cancelled").reason == "two\nlines"


@pytest.mark.django_db
@pytest.mark.parametrize("body", [b"[]", b"null", b"0", b'""', b"false", b'{"reasons": "x"}', b'{"reason": 3}'])
def test_a_cancel_that_says_nonsense_cancels_nothing(people: dict[str, User], researcher: Api, body: bytes) -> None:
    pk = factories.job(people["researcher"]).pk
    before = row_counts()
    assert researcher.raw(f"jobs/{pk}/cancel/", body).status_code == 400
    assert row_counts() == before
    assert Job.objects.get(pk=pk).state == "queued"


@pytest.mark.django_db
def test_cancelling_without_a_body_works(people: dict[str, User], researcher: Api) -> None:
    pk = factories.job(people["researcher"]).pk
    assert researcher.send("POST", f"jobs/{pk}/cancel/").status_code == 200


@pytest.mark.django_db
def test_cancelling_a_running_job_stops_it_and_books_its_use(
    running: Job, researcher: Api, turn: Callable[[], None]
) -> None:
    assert researcher.post(f"jobs/{running.pk}/cancel/", {"reason": "enough"}).json()["state"] == "stopping"
    assert researcher.post(f"jobs/{running.pk}/cancel/").status_code == 200  # again changes nothing
    turn()
    told = researcher.get(f"jobs/{running.pk}/").json()
    assert (told["state"], told["outcome"]) == ("cancelled", "cancelled")
    assert told["usage"]["final"] is True
    assert told["usage"]["used"] % 1024 == 0
    assert told["placement"][0]["until"] is not None


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["log", "logs"])
def test_the_log_is_read_from_a_cursor(running: Job, researcher: Api, address: str) -> None:
    whole = researcher.get(f"jobs/{running.pk}/{address}/").json()
    assert whole["text"].startswith("[simulated]")
    assert base64.b64decode(whole["base64"]).decode() == whole["text"]
    assert whole["cursor"] == len(whole["text"])
    assert whole["end"] is False
    rest = researcher.get(f"jobs/{running.pk}/{address}/", cursor=12).json()
    assert rest["text"] == whole["text"][12:]
    assert researcher.get(f"jobs/{running.pk}/{address}/", cursor=10**14).json()["text"] == ""
    assert researcher.get(f"jobs/{running.pk}/{address}/", rank=5).json()["text"] == ""
    assert researcher.get(f"jobs/{running.pk}/{address}/", attempt=10**14).json()["text"] == ""


@pytest.mark.django_db
def test_a_log_that_the_node_does_not_give_now_is_not_the_callers_fault(
    running: Job, researcher: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> LogChunk:
        raise DriverError("the node does not answer")

    monkeypatch.setattr(driver("simulated"), "logs", silent)
    answer = researcher.get(f"jobs/{running.pk}/log/")
    assert answer.status_code == 503
    assert "the node does not answer" in answer.json()["detail"]


@pytest.mark.django_db
def test_a_job_that_never_ran_has_an_empty_log(people: dict[str, User], researcher: Api) -> None:
    pk = factories.job(people["researcher"]).pk
    assert researcher.get(f"jobs/{pk}/log/").json() == {"text": "", "base64": "", "cursor": 0, "end": False}


@pytest.mark.django_db
def test_leaving_a_project_ends_access_at_once_and_running_work_stays(running: Job, people: dict[str, User]) -> None:
    caller = api(people["researcher"])
    assert caller.get(f"jobs/{running.pk}/").status_code == 200
    factories.leave(running.project, people["researcher"])
    for path in (f"jobs/{running.pk}/", f"jobs/{running.pk}/log/"):
        assert caller.get(path).status_code == 404
    assert caller.post(f"jobs/{running.pk}/cancel/").status_code == 404
    assert caller.get("jobs/").json()["results"] == []
    assert caller.get("projects/").json()["results"] == []
    assert Job.objects.get(pk=running.pk).state == "running"
    assert api(people["owner"]).get(f"jobs/{running.pk}/").json()["state"] == "running"


@pytest.mark.django_db
def test_a_viewer_reads_and_may_not_submit(people: dict[str, User], spec: Spec) -> None:
    Membership.objects.filter(project__slug="vision", user=people["member"]).update(role=ProjectRole.VIEWER)
    caller = api(people["member"])
    pk = factories.job(people["researcher"]).pk
    assert caller.get(f"jobs/{pk}/").status_code == 200
    refused = caller.post("jobs/", spec())
    assert refused.status_code == 403
    assert refused.json()["errors"][0]["code"] == "role"


@pytest.mark.django_db
def test_a_project_that_is_over_takes_no_work(people: dict[str, User], researcher: Api, spec: Spec) -> None:
    project = factories.project("old", researcher=ProjectRole.MEMBER)
    project.ends_on = project.starts_on
    project.save(update_fields=["ends_on"])
    before = row_counts()
    refused = researcher.post("jobs/", spec(project="old"))
    assert refused.status_code == 400
    assert (fields(refused), refused.json()["code"]) == ({"project"}, "project_ended")
    assert row_counts() == before


@pytest.mark.django_db
def test_only_operators_mark_key_work(people: dict[str, User], researcher: Api, spec: Spec) -> None:
    refused = researcher.post("jobs/", spec(key_work=True))
    assert fields(refused) == {"key_work"}
    assert api(people["admin"]).post("jobs/", spec(key_work=True)).status_code == 201
