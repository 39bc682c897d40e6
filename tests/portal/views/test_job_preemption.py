"""The job page tells both sides when work is stopped for a job, and names nobody that the reader may not see."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import Job, Project
from ledger.vocabulary import Outcome, ProjectRole, Resource
from portal.api.company import HIDDEN
from scheduler import placing
from tests import factories
from tests.portal.views.conftest import ClientAs
from tests.scheduler import flow

pytestmark = pytest.mark.django_db(transaction=True)
CARD = {"form": "container", "memory_mib": 0}


def test_both_sides_are_told(client_as: ClientAs, settings: Any) -> None:
    settings.PREEMPT_MIN_RUN_S = 30
    flow.world(nodes=1)
    factories.project("audio", outsider=ProjectRole.MEMBER)
    for project in Project.objects.all():
        grant = factories.grant(project, Resource.CARD_MILLI, 4000)
        grant.guaranteed = 2000
        grant.save(update_fields=["guaranteed"])
    outsider = factories.user("outsider")
    filling = [
        factories.job(outsider, project="audio", asks=[CARD], command=["simulate", "--seconds", "3600"])
        for _ in range(4)
    ]
    flow.start(*filling)
    flow.grow_old()
    job = flow.long_job(asks=[CARD])
    placing.place_queued()
    placing.place_queued()
    page = client_as("researcher").get(f"/jobs/{job.pk}/").content.decode()
    assert "1 job is being stopped for it" in page
    stops = client_as("researcher").get(f"/api/v1/jobs/{job.pk}/").json()["reasons"]["stops"]
    assert (stops["jobs"], stops["cause"], stops["grace_s"]) == (1, "guarantee", 60)

    victim = Job.objects.get(attempts__outcome=Outcome.PREEMPTED)
    [told] = client_as("outsider").get(f"/api/v1/jobs/{victim.pk}/").json()["stopped_for"]
    assert (told["job"], told["project"], told["cause"]) == (None, HIDDEN, "guarantee")
    page = client_as("outsider").get(f"/jobs/{victim.pk}/").content.decode()
    assert f"stopped for a job of {HIDDEN}" in page
    assert "vision" not in page
    [told] = client_as("admin").get(f"/api/v1/jobs/{victim.pk}/").json()["stopped_for"]
    assert (told["job"], told["project"]) == (job.pk, "vision")
