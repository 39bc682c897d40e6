"""The panel beside the submit form and on a waiting job: right, careful with names, and never in the way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.models import Job, User
from portal.views.outlook import limit_words, sooner_words
from scheduler.possible import Limit, Sooner
from scheduler.queue_control import Order, hold_jobs
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db
TYPED = {
    "client_key": "k", "project": "vision", "name": "", "command": "", "form": "container", "nodes": "1",
    "cards_per_node": "1", "memory_mib": "1024", "cpu_cores": "1", "host_memory_mib": "512", "walltime_min": "60",
    "then_after_min": "10", "kind": "other", "interconnect": "any", "distance": "any", "priority": "0",
    "simulated": "on",
}  # fmt: skip


def panel(client_as: ClientAs, who: str = "researcher", **values: str) -> str:
    response = client_as(who).post("/jobs/new/outlook/", TYPED | values)
    assert response.status_code == 200
    return response.content.decode()


def test_it_tells_the_place_before_a_name_or_command_is_typed(client_as: ClientAs) -> None:
    factories.node("n1", cards=2)
    text = panel(client_as)
    assert "Starts now" in text
    assert "/nodes/n1/" in text
    assert Job.objects.count() == 0


def test_a_slice_is_told_by_model_with_what_quota_counts_and_leaving_it_takes_the_word_away(
    client_as: ClientAs,
) -> None:
    factories.node("h1", cards=1, memory_mib=81_920, model="H100")
    factories.node("a1", cards=1, memory_mib=40_960, model="A100")
    values = {"profile": "1g.10gb", "memory_mib": "0"}
    text = panel(client_as, **values)
    assert "142/1000 of the compute; quota counts 125/1000 of a card" in text
    assert "142/1000 of the compute; quota counts 250/1000 of a card" in text
    assert "not switched to MIG mode by any driver yet" in text
    text = panel(client_as, **values, model="A100", cards_per_node="2")
    assert "No node has 2 such cards" in text
    assert "&quot;profile&quot;: &quot;&quot;" not in text
    factories.node("t1", cards=2, memory_mib=16_000, model="T4")
    text = panel(client_as, **values, model="A100", cards_per_node="2")
    assert "no MIG profile" in text
    assert "&quot;profile&quot;: &quot;&quot;" in text
    assert "&quot;memory_mib&quot;: 10240" in text


def test_neighbours_out_of_sight_have_no_name(
    client_as: ClientAs, people: dict[str, User], turn: Callable[[], None]
) -> None:
    factories.node("n1", cards=1)
    factories.job(people["outsider"], project="outside", name="classified", command=["simulate", "--seconds", "3600"])
    turn()
    text = panel(client_as)
    assert "another project" in text
    assert "outside" not in text
    assert "outside" in panel(client_as, "admin")


def test_blockers_out_of_sight_have_no_name(
    client_as: ClientAs, people: dict[str, User], turn: Callable[[], None]
) -> None:
    factories.node("n1", cards=1)
    other = factories.job(
        people["outsider"], project="outside", name="classified", asks=[{"form": "whole"}],
        command=["simulate", "--seconds", "3600"],
    )  # fmt: skip
    turn()
    text = panel(client_as, form="whole", memory_mib="0")
    assert "a job of another project" in text
    assert "classified" not in text
    assert f"/jobs/{other.pk}/" not in text
    assert "classified" in panel(client_as, "admin", form="whole", memory_mib="0")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cards_per_node": "-1"}, "Cards per node"),
        ({"nodes": "many"}, "Nodes"),
        ({"memory_mib": "1e9"}, "Memory of each card"),
        ({"memory_mib": "1000000000"}, "Memory of each card"),
        ({"project": "outside"}, "Project"),
        ({"environment": "LD_PRELOAD=x"}, "LD_PRELOAD"),
        ({"walltime_min": "0"}, "Time limit"),
    ],
)
def test_what_is_not_right_is_named_and_nothing_breaks(client_as: ClientAs, values: dict[str, str], words: str) -> None:
    factories.node("n1", cards=2)
    text = panel(client_as, **values)
    assert words in text
    assert "once these are right" in text


def test_hostile_text_stays_text(client_as: ClientAs) -> None:
    factories.node("n1", cards=2)
    text = panel(client_as, name="<script>x</script>", command="echo '<b>'")
    assert "<script>" not in text
    assert "<b>" not in text


def test_the_api_call_holds_what_was_typed(client_as: ClientAs) -> None:
    factories.node("n1", cards=2)
    text = panel(client_as, name="it's mine", command="echo hello")
    call = re.search(r'<pre class="copy"[^>]*>(.*?)</pre>', text, re.DOTALL)
    assert call is not None
    plain = call[1].replace("&#x27;", "'").replace("&quot;", '"').replace("&amp;", "&")
    body = json.loads(plain.split("-d '", 1)[1].rsplit("'", 1)[0].replace("'\\''", "'"))
    assert (body["name"], body["command"], body["asks"][0]["memory_mib"]) == ("it's mine", ["echo", "hello"], 1024)


def test_a_waiting_job_has_its_outlook_and_loses_it_when_placed(
    client_as: ClientAs, queued: Job, turn: Callable[[], None]
) -> None:
    client = client_as("researcher")
    assert f"/jobs/{queued.pk}/outlook/" in client.get(f"/jobs/{queued.pk}/").content.decode()
    assert "No node has 4 such cards; the most is 2" in client.get(f"/jobs/{queued.pk}/outlook/").content.decode()
    factories.node("n2", cards=4)
    turn()
    assert client.get(f"/jobs/{queued.pk}/outlook/").content == b""


def test_more_nodes_and_jobs_ask_the_database_no_more_often(client_as: ClientAs, turn: Callable[[], None]) -> None:
    client = client_as("researcher")
    factories.node("n1", cards=2)

    def queries() -> int:
        client.post("/jobs/new/outlook/", TYPED)
        with CaptureQueriesContext(connection) as seen:
            client.post("/jobs/new/outlook/", TYPED)
        return len(seen)

    few = queries()
    for number in range(4):
        factories.node(f"m{number}", cards=2)
        factories.any_job(name=f"j{number}", asks=[{"form": "whole", "nodes": 9}])
    assert queries() == few


@pytest.mark.parametrize(
    "what",
    [
        "memory_mib", "cards_per_node", "cpu_milli", "host_memory_mib", "model", "form", "nodes", "distance",
        "reproducible", "like_job",
    ],
)  # fmt: skip
def test_every_limit_has_its_sentence(what: str) -> None:
    wanted = {"form": "whole", "model": "H100", "distance": "same_rack"}.get(what, 7)
    nearest = {"form": "container", "model": "A100"}.get(what, 3)
    sentence = limit_words(Limit(what, wanted, nearest, "n1"))
    assert "%" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    "change",
    [
        {"interconnect": "any"}, {"distance": "near"}, {"model": ""}, {"form": "auto"}, {"cards_per_node": 2},
        {"nodes": 1}, {"memory_mib": 512}, {"form": "container", "cards_per_node": 1}, {"cpu_milli": 500},
        {"host_memory_mib": 100}, {"like_job": None}, {"reproducible": False, "like_job": None},
    ],
)  # fmt: skip
def test_every_proposal_names_fields_of_the_form(change: dict[str, object]) -> None:
    from portal.forms import SubmitForm

    told = sooner_words(Sooner(change, "n1"))
    assert set(json.loads(told["fields"])) <= set(SubmitForm.base_fields)
    assert told["words"]


def test_the_form_starts_from_a_template_or_a_former_job(
    client_as: ClientAs, running: Job, people: dict[str, User]
) -> None:
    client = client_as("researcher")
    form = client.get("/jobs/new/?template=distributed").context["form"]
    assert (form["form"].value(), form["nodes"].value(), form["then_form"].value()) == ("whole", 2, "container")
    form = client.get(f"/jobs/new/?clone={running.pk}").context["form"]
    assert (form["name"].value(), form["command"].value()) == ("steady", "simulate --seconds 3600")
    assert form["simulated"].value() is True
    other = factories.job(people["outsider"], project="outside", name="classified work")
    for nonsense in (other.pk, "x", "9" * 40, -1, ""):
        assert "classified" not in client.get(f"/jobs/new/?clone={nonsense}&template=none").content.decode()


def test_a_held_job_says_who_holds_it_back_and_why(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    job = factories.job()
    hold_jobs(job_ids=[job.pk], order=Order(people["operator"], "storage is being mended", "test"))
    text = client_as("researcher").get(f"/jobs/{job.pk}/outlook/").content.decode()
    assert "Left out for now" in text
    assert "storage is being mended" in text
    assert "can start now" not in text
