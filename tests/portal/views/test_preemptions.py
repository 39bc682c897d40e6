"""Pre-emption is shown before it happens, to each side as much as it may know."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from ledger.models import Job, Project
from ledger.vocabulary import JobState, ProjectRole, Resource
from portal.api.company import HIDDEN
from scheduler import placing, preempt_preview
from scheduler.models import Preemption
from tests import factories
from tests.portal.views.conftest import ClientAs
from tests.portal.views.test_outlook import TYPED
from tests.scheduler import flow

pytestmark = pytest.mark.django_db(transaction=True)
CARD = {"form": "container", "memory_mib": 0}


@pytest.fixture
def waits(settings: Any) -> Job:
    """A job of vision, by researcher, that is owed one of the four cards that audio, of outsider, has borrowed."""
    settings.PREEMPT_MIN_RUN_S, settings.PREEMPT_GRACE_S = 30, 600
    flow.world(nodes=1)
    factories.project("audio", outsider=ProjectRole.MEMBER)
    for slug, guaranteed in (("vision", 2000), ("audio", 1000)):
        grant = factories.grant(Project.objects.get(slug=slug), Resource.CARD_MILLI, 4000)
        grant.guaranteed = guaranteed
        grant.save(update_fields=["guaranteed"])
    simulate = ["simulate", "--seconds", "3600"]
    outsider = factories.user("outsider")
    filling = [
        factories.job(outsider, project="audio", name="secretive", asks=[CARD], command=simulate) for _ in range(4)
    ]
    flow.start(*filling)
    flow.grow_old()
    factories.user("admin", factories.SiteRole.ADMIN)
    return flow.long_job(asks=[CARD], name="my own")


def _page(client: Any, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def test_a_waiting_job_is_told_who_would_be_stopped_for_it_and_no_names(client_as: ClientAs, waits: Job) -> None:
    told = client_as("researcher").get(f"/api/v1/jobs/{waits.pk}/preemption/").json()
    found = told["would_stop"]
    assert told["may_be_stopped"] is None
    assert (found["job"], found["cause"], found["grace_s"], found["nodes"]) == (waits.pk, "guarantee", 600, ["n1"])
    assert (found["guaranteed_milli"], found["held_milli"], found["takes_milli"]) == (2000, 0, 1000)
    [victim] = found["stops"]
    assert (victim["job"], victim["name"], victim["project"]) == (None, None, HIDDEN)
    assert (victim["min_run_s"], victim["milli"], victim["lost_milli_s"]) == (30, 1000, 1000 * victim["ran_s"])
    page = _page(client_as("researcher"), f"/jobs/{waits.pk}/outlook/")
    assert "1 running job would be stopped for it, with 10 min notice" in page
    assert "It would start about" in page
    assert "audio" not in page
    assert "secretive" not in page
    assert "secretive" in _page(client_as("admin"), f"/jobs/{waits.pk}/outlook/")
    assert not Preemption.objects.exists()


def test_the_form_and_its_api_tell_it_before_submitting(client_as: ClientAs, waits: Job) -> None:
    page = client_as("researcher").post("/jobs/new/outlook/", TYPED | {"memory_mib": "0"}).content.decode()
    assert "1 running job would be stopped for it, with 10 min notice" in page
    body = {
        "project": "vision",
        "name": "x",
        "kind": "training",
        "asks": [CARD],
        "command": ["true"],
        "simulated": True,
    }
    answer = client_as("researcher").post("/api/v1/jobs/what-if/", body, content_type="application/json").json()
    assert answer["stops"]["job"] is None
    assert len(answer["stops"]["stops"]) == 1
    assert Job.objects.filter(state=JobState.QUEUED).count() == 1


def test_who_might_be_stopped_is_told_so_with_the_guarantees_that_make_it_so(client_as: ClientAs, waits: Job) -> None:
    job = Job.objects.filter(project__slug="audio").first()
    assert job is not None
    page = _page(client_as("outsider"), f"/jobs/{job.pk}/")
    assert "It may stand on borrowed cards: its project holds 4 cards and is guaranteed 1 card." in page
    assert f"{HIDDEN} 2 cards" in page
    assert "vision" not in page
    told = client_as("outsider").get(f"/api/v1/jobs/{job.pk}/preemption/").json()
    assert told["would_stop"] is None
    assert (told["may_be_stopped"]["borrowed_milli"], told["may_be_stopped"]["borrowed"]) == (3000, True)
    page = _page(client_as("outsider"), "/projects/audio/quota/")
    assert (
        "4 running jobs of the project stand on borrowed cards and may be stopped when their owners come back." in page
    )
    assert "at most 3 cards can be taken back" in page
    assert "vision" not in page
    [world] = client_as("outsider").get("/api/v1/projects/audio/quota/").json()["borrowed"]
    assert (world["borrowed_milli"], world["owed"]) == (3000, [{"project": HIDDEN, "milli": 2000}])
    assert f"{HIDDEN} 2 cards" not in _page(client_as("admin"), "/projects/audio/quota/")
    assert "borrowed cards" not in _page(client_as("researcher"), "/projects/vision/quota/")


def test_operators_see_the_dry_run_then_the_claim_and_then_what_was_done(client_as: ClientAs, waits: Job) -> None:
    page = _page(client_as("admin"), "/ops/preemptions/")
    assert "1 of 1 waiting jobs looked at" in page
    assert "my own" in page
    assert "secretive" in page
    [told] = preempt_preview.next_round().previews
    placing.place_queued()
    row = Preemption.objects.get()
    assert [victim.attempt_id for victim in told.victims] == list(row.victims.values_list("attempt_id", flat=True))
    answer = client_as("admin").get("/api/v1/preemptions/").json()
    assert answer["next_round"]["previews"] == []
    [claim], [done] = answer["claims"], answer["lately"]
    assert 1100 < claim["left_s"] <= 1200
    assert (done["job"], done["cause"], done["inputs"]["guaranteed"]) == (waits.pk, "guarantee", 2000)
    assert [one["gone"] for one in done["stops"]] == [False]
    page = _page(client_as("admin"), "/ops/preemptions/")
    assert "not gone yet" in page
    assert "guaranteed 2 cards, held 0 cards" in page


def test_each_side_sees_its_own_and_an_outsider_nothing(client_as: ClientAs, waits: Job) -> None:
    stranger = Client()
    stranger.force_login(factories.user("stranger"))
    for rounds in (0, 1):
        for _ in range(rounds):
            placing.place_queued()
        clients = client_as("researcher"), client_as("outsider"), stranger
        mine, theirs, nobodys = (_page(client, "/ops/preemptions/") for client in clients)
        assert ("my own" in mine, "secretive" in mine, "audio" in mine) == (True, False, False)
        assert ("my own" in theirs, "secretive" in theirs, "vision" in theirs) == (False, True, False)
        assert "a job of another project" in theirs
        assert not [word for word in ("my own", "secretive", "audio", "vision", "n1") if word in _main(nobodys)]
        answer = stranger.get("/api/v1/preemptions/").json()
        assert (answer["claims"], answer["lately"]) == ([], [])
        assert answer["next_round"] == {"looked_at": None, "waiting": None, "cut_short": False, "previews": []}
        for found in client_as("outsider").get("/api/v1/preemptions/").json()["lately"]:
            assert (found["job"], found["project"], found["inputs"]) == (None, HIDDEN, None)


def _main(page: str) -> str:
    return page.partition("<main")[2]
