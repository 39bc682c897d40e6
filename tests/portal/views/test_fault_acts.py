"""The page of one fault: whose shares hold more than they were promised, for who may see these jobs alone."""

from __future__ import annotations

import pytest
from django.db import transaction

from ledger import faults
from ledger.clock import database_now
from ledger.models import CardShare, Node, ShareUse
from ledger.vocabulary import FaultKind
from tests.portal.views.conftest import ClientAs
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


def test_it_names_the_job_above_its_promise_and_the_card_s_pages_do_not(client_as: ClientAs) -> None:
    flow.world(cards=1, memory_mib=16_000)
    job = flow.long_job(asks=[{"form": "container", "memory_mib": 4_000}], name="greedy-one")
    flow.start(job)
    node, share, now = Node.objects.get(hostname="n1"), CardShare.objects.get(), database_now()
    boot, _new = node.boots.get_or_create(boot_id="b", defaults={"first_seen": now})
    ShareUse.objects.create(share=share, used_mib=5_000, over=2, boot=boot, sequence=1, at=now)
    with transaction.atomic():
        about = {"node": node, "card": share.card, "kind": FaultKind.OVERUSE, "message": "5000 of 4000 MiB"}
        fault = faults.set_state_inside(on=True, now=now, **about)
    assert fault is not None
    page = client_as("operator").get(f"/health/faults/{fault.pk}/").content.decode()
    assert f'<a href="/jobs/{job.pk}/">{job.pk} greedy-one</a> <span class="sub">{job.by.username}</span>' in page
    for address in ("/cards/n1-card-0/", "/health/history/n1-card-0/"):
        page = client_as("outsider").get(address).content.decode()
        assert "5000 of 4000 MiB" in page
        assert "greedy-one" not in page
