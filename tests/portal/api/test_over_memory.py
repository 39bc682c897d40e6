"""Memory over-use over the API, as an agent tells it: the owner reads why, the neighbour goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Allocation, Job, Node, User
from scheduler import watch
from tests import factories
from tests.portal.api.client import Api, api
from tests.portal.api.reports import agent_of, card, report


@pytest.mark.django_db
def test_the_offender_is_ended_and_told_why_and_the_neighbour_goes_on(
    people: dict[str, User], turn: Callable[[], None]
) -> None:
    factories.node("n1", cards=1, memory_mib=16_000)
    names = ("researcher", "member")
    jobs = [factories.job(people[name], command=["simulate", "--seconds", "3600"]) for name in names]
    turn()
    keys = [Allocation.objects.get(attempt__job=job).key for job in jobs]
    agent = agent_of(Node.objects.get(hostname="n1"))
    greedy = {"pid": 10, "memory_mib": 9_000, "member": keys[0], "name": "python"}
    modest = {"pid": 11, "memory_mib": 1_000, "member": keys[1], "name": "python"}
    for sequence in (1, 2, 2, 1, 3):  # once more and late: they never count
        _tell(agent, sequence, greedy, modest)
        assert Job.objects.get(pk=jobs[0].pk).state == ("stopping" if sequence == 3 else "running")
    turn()
    told = api(people["researcher"]).get(f"jobs/{jobs[0].pk}/").json()
    assert (told["state"], told["outcome"]) == ("failed", "out_of_memory")
    assert told["message"] == (
        "it held 9000 MiB of the card in slot 0 of n1, where it was promised 1024 MiB, in 3 samples in a row; it was "
        "ended to protect the work beside it"
    )
    other = api(people["member"]).get(f"jobs/{jobs[1].pk}/").json()
    assert (other["state"], other["message"]) == ("running", "")


def _tell(agent: Api, sequence: int, *processes: dict[str, Any]) -> None:
    body = report(sequence=sequence, cards=[card(processes=list(processes), memory_used_mib=10_000)])
    assert agent.post("agents/reports/", body).status_code == 200
    watch.look()
