"""Reproducible placement: what may be asked for, what is kept of a placement, and that the next one is like it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from rest_framework.exceptions import ValidationError

from ledger.errors import Refused
from ledger.models import Job, Node
from ledger.vocabulary import ProjectRole
from scheduler import likeness, placing, queue, whatif
from scheduler.models import Decision
from scheduler.possible import Impossible, impossible
from tests import factories
from tests.factories import job_data
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    """n1 and n2 under one leaf, n3 under another of their room, n4 a larger machine."""
    flow.world(4, cards=2, memory_mib=16_000)
    for name, leaf in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "a")):
        Node.objects.filter(hostname=name).update(site="s", room="r", rack="k", leaf=leaf)
    Node.objects.filter(hostname="n4").update(cpu_milli=99_000)


def whole(nodes: int = 1, **values: Any) -> Job:
    return flow.long_job(asks=[{"form": "whole", "nodes": nodes}], reproducible=True, **values)


def stands_on(job: Job) -> set[str]:
    return {allocation.node.hostname for allocation in flow.open_allocations(job)}


def decision(job: Job) -> Decision:
    return Decision.objects.filter(job=job, attempt__isnull=False).latest("pk")


def problems(**values: Any) -> Any:
    with pytest.raises(ValidationError) as refused:
        job_data(factories.user("researcher"), **{"asks": [{"form": "whole"}], "reproducible": True} | values)
    return refused.value.detail


def test_every_placement_has_a_fingerprint_that_says_what_it_was_like() -> None:
    alone = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}])
    placing.place_queued()
    assert len(decision(alone).fingerprint) == 12
    parts = decision(alone).fingerprint_parts
    assert (parts["form"], parts["nodes"], parts["span"], parts["shared"]) == ("container", 1, "node", False)
    assert parts["members"][0]["cards"] == [["A100", 16_000, 1]]


def test_work_that_is_there_or_comes_at_the_same_moment_is_company() -> None:
    Node.objects.exclude(hostname="n1").update(state="offline")
    first, second = (flow.long_job(asks=[{"form": "container", "memory_mib": 4_000}]) for _ in range(2))
    placing.place_queued()
    third = flow.long_job(asks=[{"form": "container", "memory_mib": 4_000}])
    placing.place_queued()
    assert [decision(job).fingerprint_parts["shared"] for job in (first, second, third)] == [True] * 3


def test_a_reproducible_gang_stands_on_machines_of_one_kind() -> None:
    jobs = [whole(2), whole(2)]
    placing.place_queued()
    assert stands_on(jobs[0]) | stands_on(jobs[1]) <= {"n1", "n2", "n3"}
    assert [len(stands_on(job)) for job in jobs] == [2, 0]
    assert Decision.objects.get(job=jobs[1], attempt=None).reasons == [{"not_empty": 2, "mixed": 2}]


def test_a_job_is_placed_like_another_neither_nearer_nor_farther() -> None:
    Node.objects.filter(hostname="n2").update(state="offline")
    first = whole(2)
    flow.start(first)
    assert stands_on(first) == {"n1", "n3"}
    Node.objects.filter(hostname="n2").update(state="up")
    again = whole(2, like_job=first.pk)
    assert again.like == {"hardware": again.like["hardware"], "nodes": 2, "span": "rack"}
    placing.place_queued()
    assert stands_on(again) == set()  # n2 alone is left of that kind
    flow.finish(first)
    placing.place_queued()
    assert stands_on(again) in ({"n1", "n3"}, {"n2", "n3"})
    assert decision(again).fingerprint == decision(first).fingerprint


def test_a_later_attempt_of_the_first_job_changes_nothing() -> None:
    first = whole(1)
    placing.place_queued()
    again = whole(1, like_job=first.pk)
    Decision.objects.filter(job=first).update(fingerprint_parts=None)
    again.refresh_from_db()
    assert again.like["nodes"] == 1


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"asks": [{"form": "whole"}, {"form": "container"}]}, {"asks": {1: {"form"}}}),
        ({"asks": [{"form": "auto"}]}, {"asks": {0: {"form"}}}),
        ({"reproducible": False, "like_job": 1}, {"reproducible": set()}),
        ({"like_job": 999_999}, {"like_job": set()}),
    ],
)
def test_contradictory_wishes_are_refused_at_their_field(values: dict[str, Any], field: dict[str, Any]) -> None:
    found = problems(**values)
    for name, inner in field.items():
        assert set(found) == {name}
        for number, names in inner.items() if inner else ():
            assert set(found[name]) == {number}
            assert set(found[name][number]) == names


def test_only_what_was_placed_can_be_compared_with_and_only_by_who_sees_it() -> None:
    waiting, mixed = whole(1), flow.long_job(asks=[{"form": "whole", "nodes": 4}])
    assert "like_job" in problems(like_job=waiting.pk)
    queue.cancel(job_id=waiting.pk, actor=waiting.by, reason="", via="test")
    placing.place_queued()
    assert len(stands_on(mixed)) == 4
    assert "several kinds" in str(problems(like_job=mixed.pk)["like_job"])
    factories.project("outside", outsider=ProjectRole.OWNER)
    with pytest.raises(ValidationError) as refused:
        job_data(
            factories.user("outsider"),
            project="outside",
            asks=[{"form": "whole"}],
            reproducible=True,
            like_job=mixed.pk,
        )
    assert "may not see it" in str(refused.value.detail["like_job"])
    with pytest.raises(Refused):
        likeness.placed_like(waiting.pk)


def test_nodes_distance_and_kind_of_hardware_must_be_those_of_the_other_job() -> None:
    Node.objects.filter(hostname="n2").update(state="offline")
    first = whole(2)
    placing.place_queued()
    two = {"asks": [{"form": "whole", "nodes": 2}], "like_job": first.pk}
    assert set(problems(like_job=first.pk)["asks"]["0"]) == {"nodes"}
    assert set(problems(**two, distance="same_leaf")) == {"distance"}
    assert set(problems(**two, simulated=False)) == {"like_job"}
    assert (
        job_data(factories.user("researcher"), **two, reproducible=True, distance="same_rack")["like_job"] == first.pk
    )


def judged(nodes: int, **values: Any) -> Impossible | None:
    asks = [{"form": "whole", "nodes": nodes}]
    data = job_data(factories.user("researcher"), asks=asks, reproducible=True, **values)
    project = factories.project("vision")
    return impossible(whatif.candidate(data, project))


def test_a_comparison_that_no_state_of_the_fleet_allows_is_refused_when_it_is_submitted() -> None:
    first = whole(3)
    placing.place_queued()
    assert judged(3) is None
    assert judged(3, like_job=first.pk) is None
    four = judged(4)
    assert four is not None
    assert [(limit.what, limit.wanted, limit.nearest) for limit in four.limits] == [("reproducible", 4, 3)]
    assert four.nearest is not None
    assert four.nearest.change == {"reproducible": False, "like_job": None}
    Node.objects.filter(hostname="n3").update(leaf="a")  # now they all share the leaf that they did not
    apart = judged(3, like_job=first.pk)
    assert apart is not None
    assert [(limit.what, limit.nearest, limit.where) for limit in apart.limits] == [("like_job", 3, "rack")]
    Node.objects.filter(hostname="n3").update(cpu_milli=98_000)
    fewer = judged(3, like_job=first.pk)
    assert fewer is not None
    assert [(limit.what, limit.wanted, limit.nearest) for limit in fewer.limits] == [("like_job", 3, 2)]
    assert fewer.nearest is not None
    actor = factories.user("researcher")
    data = job_data(actor, asks=[{"form": "whole", "nodes": 3}], reproducible=True, like_job=first.pk)
    with pytest.raises(queue.NeverRuns) as refusal:
        queue.submit(data=data, actor=actor, via="test")
    assert refusal.value.field == "like_job"


def test_the_database_keeps_what_belongs_together() -> None:
    first = whole(1)
    placing.place_queued()
    again = whole(1, like_job=first.pk)
    for change in ({"reproducible": False}, {"like": None}, {"like_job": None}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Job.objects.filter(pk=again.pk).update(**change)
