"""The pages of jobs: list, submit, one job, its log, cancelling."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import AuditEvent, Job, User
from scheduler import logs
from scheduler.drivers.base import DriverError, LogChunk
from tests import factories
from tests.portal.views.conftest import ClientAs

HOSTILE = "<script>alert(1)</script>\"'&"


def form(**values: Any) -> dict[str, Any]:
    return {
        "client_key": "k1",
        "project": "vision",
        "name": "from the page",
        "command": "python train.py --name 'two words'",
        "form": "container",
        "nodes": 1,
        "cards_per_node": 1,
        "memory_mib": 2048,
        "model": "",
        "then_form": "",
        "then_after_min": 10,
        "cpu_cores": "1.5",
        "host_memory_mib": 4096,
        "walltime_min": 90,
        "kind": "training",
        "environment": "EPOCHS=3\nNAME=a=b\n",
        "data_paths": "/data/a\n\n/data/b\n",
        "interconnect": "any",
        "distance": "any",
        "priority": 5,
        "simulated": "on",
    } | values


def test_a_job_of_the_page_is_the_job_of_the_api(client_as: ClientAs) -> None:
    response = client_as("researcher").post("/jobs/new/", form(then_form="whole", then_after_min=30))
    job = Job.objects.get()
    assert response["Location"] == f"/jobs/{job.pk}/"
    assert job.command == ["python", "train.py", "--name", "two words"]
    assert (job.cpu_milli, job.host_memory_mib, job.walltime_s, job.priority) == (1500, 4096, 5400, 5)
    assert job.environment == {"EPOCHS": "3", "NAME": "a=b"}
    assert job.data_paths == ["/data/a", "/data/b"]
    assert [(ask["form"], ask["memory_mib"], ask["after_s"]) for ask in job.asks] == [
        ("container", 2048, 0),
        ("whole", 2048, 1800),
    ]
    assert AuditEvent.objects.get(verb="job.submitted").via == "page"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"command": "echo 'open"}, "command"),
        ({"command": "''"}, "command"),
        ({"project": "outside"}, "project"),
        ({"nodes": "-1"}, "nodes"),
        ({"nodes": "5000"}, "nodes"),
        ({"memory_mib": "1000000000"}, "memory_mib"),
        ({"cpu_cores": "NaN"}, "cpu_cores"),
        ({"cpu_cores": "1.00001"}, "cpu_cores"),
        ({"form": "block", "cards_per_node": "0"}, "cards_per_node"),
        ({"then_form": "block", "cards_per_node": "0", "memory_mib": "0"}, "then_form"),
        ({"environment": "LD_PRELOAD=/x.so"}, "environment"),
        ({"environment": "no equals sign"}, "environment"),
        ({"environment": "A=1\nA=2"}, "environment"),
        ({"data_paths": "/data/../etc"}, "data_paths"),
        ({"image": "two words"}, "image"),
        ({"walltime_min": "0"}, "walltime_min"),
        ({"walltime_min": "9000000"}, "walltime_min"),
    ],
)
def test_what_is_not_right_is_named_beside_its_field(client_as: ClientAs, values: dict[str, str], field: str) -> None:
    response = client_as("researcher").post("/jobs/new/", form(**values))
    assert response.status_code == 422
    assert field in response.context["form"].errors
    assert not Job.objects.exists()


def test_a_slice_is_chosen_by_its_profile_and_shown_as_one(client_as: ClientAs) -> None:
    factories.node("h1", cards=1, memory_mib=81_920, model="H100")
    factories.node("a1", cards=1, memory_mib=81_920, model="A100")
    client = client_as("researcher")
    page = client.get("/jobs/new/").content.decode()
    assert '<option value="3g.40gb">3g.40gb: 40960 MiB and 428/1000 of the compute (A100, H100)</option>' in page
    assert "not switched to MIG mode by any driver yet" in page
    client.post("/jobs/new/", form(profile="3g.40gb", memory_mib=0, then_form="whole", then_after_min=30))
    job = Job.objects.get()
    assert [(ask["form"], ask["model"], ask["memory_mib"], ask.get("profile")) for ask in job.asks] == [
        ("container", "A100", 40_960, "3g.40gb"),
        ("container", "H100", 40_960, "3g.40gb"),
        ("whole", "", 0, None),
    ]
    shown = client.get(f"/jobs/{job.pk}/").content.decode()
    assert "slice 3g.40gb, 428/1000 of the compute" in shown
    assert "not switched to MIG mode by any driver yet" in shown
    assert "slice 3g.40gb" in client.get("/jobs/").content.decode()
    assert b"40960 MiB 3g.40gb A100" in b"".join(client.get("/jobs/?export=csv"))  # type: ignore[arg-type]
    cloned = client.get(f"/jobs/new/?clone={job.pk}").content.decode()
    assert '<option value="3g.40gb" selected>' in cloned
    assert '<option value="whole" selected>' in cloned
    assert '<option value="A100" selected>' not in cloned


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"profile": "3g.40gb", "memory_mib": 5}, "ask for no other amount beside it"),
        ({"profile": "3g.40gb", "memory_mib": 0, "form": "block"}, "Only a container is a slice of a card"),
        (
            {"profile": "3g.40gb", "memory_mib": 0, "model": "A100"},
            "No slice 3g.40gb is cut from the cards of the model",
        ),
        ({"profile": "1g.5gb", "memory_mib": 0}, "Select a valid choice"),
    ],
)
def test_what_is_wrong_with_a_slice_is_named_beside_it(client_as: ClientAs, values: dict[str, Any], words: str) -> None:
    factories.node("h1", cards=1, memory_mib=81_920, model="H100")
    factories.node("a1", cards=1, memory_mib=16_000)
    response = client_as("researcher").post("/jobs/new/", form(**values))
    assert response.status_code == 422
    [error] = response.context["form"].errors["profile"]
    assert words in error
    assert not Job.objects.exists()


def test_sending_the_form_twice_makes_one_job(client_as: ClientAs) -> None:
    client = client_as("researcher")
    assert client.post("/jobs/new/", form())["Location"] == client.post("/jobs/new/", form())["Location"]
    assert Job.objects.count() == 1


def test_the_same_form_with_other_values_asks_before_it_makes_a_second_job(client_as: ClientAs) -> None:
    client = client_as("researcher")
    client.post("/jobs/new/", form())
    changed = client.post("/jobs/new/", form(name="another"))
    key = changed.context["form"]["client_key"].value()
    assert changed.status_code == 422
    assert client.post("/jobs/new/", form(name="another", client_key=key)).status_code == 302
    assert Job.objects.count() == 2


def test_who_may_not_submit_is_told_what_to_do(client_as: ClientAs) -> None:
    assert b"make you a member" in client_as("auditor").get("/jobs/new/").content


def test_the_list_shows_only_visible_jobs_and_filters_them(client_as: ClientAs, people: dict[str, User]) -> None:
    ours = factories.job(people["researcher"], name="alpha one")
    other = factories.job(people["member"], name="beta")
    theirs = factories.job(people["outsider"], name="alpha two", project="outside")

    def shown(who: str, query: str) -> set[int]:
        return {job.pk for _, job in client_as(who).get(f"/jobs/?{query}").context["t"]["rows"]}

    assert shown("researcher", "") == {ours.pk, other.pk}
    assert shown("manager", "") == {ours.pk, other.pk, theirs.pk}
    assert shown("manager", "q=ALPHA") == {ours.pk, theirs.pk}
    assert shown("manager", f"q={other.pk}") == {other.pk}
    assert shown("manager", "project=outside&state=live&hardware=simulated") == {theirs.pk}
    assert shown("manager", "hardware=real") == set()
    assert shown("researcher", "mine=on") == {ours.pk}


@pytest.mark.parametrize(("query", "step"), [("", b"Submit a job"), ("?q=nothing", b"Clear the filter")])
def test_an_empty_list_says_the_next_step(client_as: ClientAs, query: str, step: bytes) -> None:
    assert step in client_as("researcher").get(f"/jobs/{query}").content


def test_a_waiting_job_says_its_place_and_why(client_as: ClientAs, queued: Job) -> None:
    page = client_as("researcher").get(f"/jobs/{queued.pk}/").content.decode()
    assert "position 1 in the queue" in page
    assert "it has fewer cards than asked, even when empty" in page
    assert "can ever be met" in page


def test_a_running_job_shows_where_it_is_and_what_it_holds(client_as: ClientAs, running: Job) -> None:
    response = client_as("researcher").get(f"/jobs/{running.pk}/")
    page = response.content.decode()
    assert 'href="/nodes/n1/"' in page
    assert "1 GiB" in page
    assert "simulated" in page
    assert [stage["now"] for stage in response.context["stages"]] == [False, False, False, True, False, False]
    assert 'hx-trigger="every 2s"' in page


def test_an_ended_job_is_no_longer_polled_and_offers_no_cancelling(
    client_as: ClientAs, running: Job, turn: Callable[[], None]
) -> None:
    client = client_as("researcher")
    client.post(f"/jobs/{running.pk}/cancel/", {"reason": "enough seen"})
    turn()
    turn()
    part = client.get(f"/jobs/{running.pk}/status/").content.decode()
    running.refresh_from_db()
    assert running.state == "cancelled"
    assert "every 2s" not in part
    assert '<div id="cancel" hx-swap-oob="true"></div>' in part
    assert "enough seen" in part


def test_cancelling_needs_a_reason(client_as: ClientAs, running: Job) -> None:
    response = client_as("researcher").post(f"/jobs/{running.pk}/cancel/", {"reason": " "})
    running.refresh_from_db()
    assert (response.status_code, running.state) == (422, "running")


def test_a_member_is_told_why_they_may_not_cancel_a_colleagues_job(client_as: ClientAs, running: Job) -> None:
    client = client_as("member")
    assert b"Cancel this job" not in client.get(f"/jobs/{running.pk}/").content
    page = client.post(f"/jobs/{running.pk}/cancel/", {"reason": "in my way"}, follow=True).content
    running.refresh_from_db()
    assert running.state == "running"
    assert b"Only its submitter" in page


def test_text_of_people_is_never_markup(client_as: ClientAs, people: dict[str, User]) -> None:
    job = factories.job(people["researcher"], name=HOSTILE, command=["echo", HOSTILE], environment={"A": HOSTILE})
    client = client_as("researcher")
    for path in ("/", "/jobs/", f"/jobs/{job.pk}/", f"/jobs/{job.pk}/status/"):
        assert b"<script>alert" not in client.get(path).content


def test_the_log_is_read_from_a_cursor(client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "训练 \x1b[31mred\x1b[0m\n".encode()

    def read(job: Job, cursor: int = 0, rank: int = 0) -> LogChunk:
        return LogChunk(whole[cursor : cursor + 4], min(cursor + 4, len(whole)), end=False)

    monkeypatch.setattr(logs, "read", read)
    client, seen, cursor = client_as("researcher"), b"", 0
    while len(seen) < len(whole):
        answer = client.get(f"/jobs/{running.pk}/log/?attempt=1&cursor={cursor}").json()
        assert (answer["from"], answer["attempt"], answer["end"]) == (cursor, 1, False)
        seen, cursor = seen + base64.b64decode(answer["data"]), answer["cursor"]
    assert seen == whole
    assert b"".join(client.get(f"/jobs/{running.pk}/log.txt").streaming_content) == whole  # type: ignore[attr-defined]


def test_a_cursor_of_an_older_attempt_starts_anew(client_as: ClientAs, running: Job) -> None:
    answer = client_as("researcher").get(f"/jobs/{running.pk}/log/?attempt=7&cursor=5").json()
    assert (answer["from"], answer["attempt"]) == (0, 1)


def test_the_log_of_an_ended_job_ends_the_poll(client_as: ClientAs, running: Job, turn: Callable[[], None]) -> None:
    client = client_as("researcher")
    client.post(f"/jobs/{running.pk}/cancel/", {"reason": "done"})
    turn()
    turn()
    first = client.get(f"/jobs/{running.pk}/log/?attempt=1").json()
    last = client.get(f"/jobs/{running.pk}/log/?attempt=1&cursor={first['cursor']}")
    assert (last.status_code, last.json()["end"]) == (286, True)


def test_a_log_that_cannot_be_read_says_so(client_as: ClientAs, running: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(job: Job, cursor: int = 0, rank: int = 0) -> LogChunk:
        raise DriverError("the node does not answer")

    monkeypatch.setattr(logs, "read", read)
    client = client_as("researcher")
    assert "the node does not answer" in client.get(f"/jobs/{running.pk}/log/").json()["error"]
    assert client.get(f"/jobs/{running.pk}/log.txt").status_code == 503
