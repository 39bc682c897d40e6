"""What no state of the fleet could serve is refused when it is submitted, with the nearest that could run."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.inventory import place_hold
from ledger.models import AuditEvent, CardSeat, Job, Node, Project
from ledger.vocabulary import HoldKind, NodeState
from scheduler import placing, queue, whatif
from scheduler.possible import Impossible, impossible
from scheduler.queue import NeverRuns
from tests import factories
from tests.factories import job_data
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    """Two nodes with 4 cards of 16,000 MiB each."""
    flow.world(2, cards=4, memory_mib=16_000)


def judged(*asks: dict[str, Any], **values: Any) -> Impossible | None:
    data = job_data(factories.user("researcher"), project="vision", asks=list(asks), **values)
    return impossible(whatif.candidate(data, Project.objects.get(slug="vision")))


def test_what_some_state_of_the_fleet_could_serve_is_possible() -> None:
    flow.start(flow.long_job(asks=[{"form": "whole", "cards_per_node": 4}]))
    place_hold(kind=HoldKind.FAULT, reason="", actor=None, via="t", node=Node.objects.get(hostname="n1"))
    Node.objects.filter(hostname="n2").update(state=NodeState.OFFLINE)
    assert judged({"form": "container", "cards_per_node": 4, "memory_mib": 16_000}) is None


def test_one_wish_that_could_be_served_is_enough() -> None:
    assert judged({"form": "container", "memory_mib": 20_000}, {"form": "container", "after_s": 60}) is None


@pytest.mark.parametrize(
    ("ask", "limit", "change"),
    [
        ({"memory_mib": 20_000}, ("memory_mib", 20_000, 16_000), {"memory_mib": 16_000}),
        ({"cards_per_node": 5}, ("cards_per_node", 5, 4), {"cards_per_node": 4}),
        ({"nodes": 3}, ("nodes", 3, 2), {"nodes": 2}),
        ({"model": "no such card"}, ("model", "no such card", "A100"), {"model": ""}),
    ],
)
def test_the_limit_is_named_and_so_is_the_nearest(
    ask: dict[str, Any], limit: tuple[str, Any, Any], change: dict[str, Any]
) -> None:
    why = judged({"form": "container", **ask})
    assert why is not None
    assert [(found.what, found.wanted) for found in why.limits] == [limit[:2]]
    if isinstance(limit[2], int):
        assert why.limits[0].nearest == limit[2]
    assert why.nearest is not None
    assert why.nearest.change == change


def test_a_gang_too_large_for_one_place_is_loosened_step_by_step() -> None:
    """n1 and n2 are in different racks of one room."""
    for name in ("n1", "n2"):
        Node.objects.filter(hostname=name).update(site="s", room="r", rack=name, leaf="l")
    ask = {"form": "whole", "cards_per_node": 4, "nodes": 2}
    assert judged(ask, distance="same_leaf") is None
    assert judged(ask, distance="same_room") is None
    why = judged(ask, distance="same_rack")
    assert why is not None
    assert [(found.what, found.wanted, found.nearest, found.where) for found in why.limits] == [
        ("distance", "same_rack", 1, "n2")
    ]
    assert why.nearest is not None
    assert why.nearest.change == {"distance": "same_room"}
    actor = factories.user("researcher")
    with pytest.raises(NeverRuns) as refusal:
        queue.submit(
            data=job_data(actor, project="vision", asks=[ask], distance="same_rack"),
            actor=actor,
            via="t",
            client_key="k",
        )
    assert refusal.value.field == "distance"


def test_nodes_too_small_for_a_member_do_not_count() -> None:
    factories.node("n3", cards=2, memory_mib=16_000)
    why = judged({"form": "whole", "cards_per_node": 4, "nodes": 3})
    assert why is not None
    assert [(found.what, found.wanted, found.nearest) for found in why.limits] == [("nodes", 3, 2)]


def test_several_limits_are_met_together() -> None:
    why = judged({"form": "container", "cards_per_node": 9, "memory_mib": 99_000}, cpu_milli=4_000_000)
    assert why is not None
    assert [limit.what for limit in why.limits] == ["memory_mib", "cards_per_node", "cpu_milli"]
    assert why.nearest is not None
    assert dict(why.nearest.change) == {limit.what: limit.nearest for limit in why.limits}


def test_nothing_is_impossible_while_no_node_of_its_world_is_registered() -> None:
    assert judged({"form": "container", "memory_mib": 20_000}, simulated=False) is None


def test_nothing_is_impossible_while_agents_have_reported_no_card() -> None:
    factories.node("real", cards=0, simulated=False)
    assert judged({"form": "container"}, simulated=False) is None
    factories.node("real-2", cards=1, simulated=False)
    assert judged({"form": "container", "cards_per_node": 2}, simulated=False) is not None


def test_a_new_node_is_seen_at_once() -> None:
    assert judged({"form": "container", "memory_mib": 20_000}) is not None
    factories.node("n3", cards=1, memory_mib=24_000)
    assert judged({"form": "container", "memory_mib": 20_000}) is None


def test_submitting_is_refused_and_nothing_is_written() -> None:
    actor = factories.user("researcher")
    data = job_data(actor, project="vision", asks=[{"form": "container", "memory_mib": 20_000}])
    events = AuditEvent.objects.count()
    with pytest.raises(NeverRuns) as refusal:
        queue.submit(data=data, actor=actor, via="test", client_key="k")
    assert (refusal.value.field, refusal.value.code) == ("asks.0.memory_mib", "never_runs")
    assert (Job.objects.count(), AuditEvent.objects.count()) == (0, events)


def test_a_job_that_could_run_when_it_came_waits_on_when_its_card_leaves() -> None:
    factories.node("n3", cards=1, memory_mib=24_000)
    actor = factories.user("researcher")
    data = job_data(actor, project="vision", asks=[{"form": "container", "memory_mib": 20_000}])
    place_hold(kind=HoldKind.FAULT, reason="", actor=None, via="t", card=CardSeat.objects.get(node__hostname="n3").card)
    job = queue.submit(data=data, actor=actor, via="test", client_key="k")
    placing.place_queued()
    Node.objects.filter(hostname="n3").update(state=NodeState.RETIRED)
    assert queue.submit(data=data, actor=actor, via="test", client_key="k") == job
