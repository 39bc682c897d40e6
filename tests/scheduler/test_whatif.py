"""The outlook of a job says what the next tick does: now with its place, later with the earliest time, or never."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Allocation, Hold, Job, Project, User
from ledger.vocabulary import Form, HoldKind, JobState, ProjectState, Refusal, Resource
from scheduler import commands, observing, placing, whatif
from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from scheduler.durations import USUAL_LAG_S
from scheduler.possible import Limit
from scheduler.queue_control import Order, hold_jobs
from scheduler.whatif import Outlook
from tests import factories

pytestmark = pytest.mark.django_db
DAY_S = 86_400


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver("simulated"), "world", World(start_delay_s=(0.0, 0.0)))


@pytest.fixture
def people() -> dict[str, User]:
    return factories.cast()


def ask(**values: Any) -> Outlook:
    """The outlook of a job of `researcher` in vision that is not submitted."""
    data = factories.job_data(factories.user("researcher"), **values)
    return whatif.outlook(whatif.candidate(data, Project.objects.get(slug="vision")))


def turn() -> None:
    placing.place_queued()
    commands.run_due()
    observing.observe_all()


def long_job(**values: Any) -> Job:
    return factories.job(command=["simulate", "--seconds", "90000"], walltime_s=DAY_S, **values)


def test_what_would_start_now_is_what_the_next_tick_does(people: dict[str, User]) -> None:
    factories.node("n1", cards=4, block=2)
    factories.node("n2", cards=8, memory_mib=80_000)
    wish = [{"form": "container", "cards_per_node": 2, "memory_mib": 20_000}]
    told = ask(asks=wish)
    job = factories.job(asks=wish)
    placing.place_queued()
    held = Allocation.objects.get(attempt__job=job)
    assert told.verdict == "now"
    (spot,) = told.spots
    assert (spot.hostname, spot.form) == (held.node.hostname, Form.CONTAINER)
    assert [(slot, mib) for slot, mib, _ in spot.cards] == [
        (share.seat.slot, share.memory_mib) for share in held.shares.order_by("seat__slot")
    ]


@pytest.mark.parametrize("seed", range(6))
def test_on_random_loads_the_outlook_agrees_with_the_tick(people: dict[str, User], seed: int) -> None:
    draw = random.Random(seed)
    for n in range(4):
        factories.node(f"n{n}", cards=draw.choice([2, 4, 8]), memory_mib=draw.choice([16_000, 40_000]), block=2)
    for _ in range(10):
        form = draw.choice(["container", "container", "block", "whole"])
        factories.any_job(asks=[_wish(draw, form)])
    placing.place_queued()
    for _ in range(6):
        wish = [_wish(draw, draw.choice(["container", "block", "whole", "auto"]))]
        told = ask(asks=wish)
        job = factories.any_job(asks=wish)
        placing.place_queued()
        job.refresh_from_db()
        assert (told.verdict == "now") == (job.state == JobState.STARTING), (wish, told)
        if told.verdict == "now":
            nodes = set(Allocation.objects.filter(attempt__job=job).values_list("node_id", flat=True))
            assert nodes == {spot.node_id for spot in told.spots}


def _wish(draw: random.Random, form: str) -> dict[str, Any]:
    cards = draw.choice([1, 2, 2, 4])
    return {
        "form": form,
        "nodes": draw.choice([1, 1, 2]),
        "cards_per_node": cards,
        "memory_mib": draw.choice([0, 4000]),
    }


def test_neighbours_are_the_projects_on_the_same_node(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    factories.job(people["outsider"], project="outside", command=["simulate", "--seconds", "3600"])
    turn()
    told = ask()
    assert told.neighbours == (Project.objects.get(slug="outside").pk,)


def test_a_job_that_waits_is_told_the_first_end_that_makes_room(people: dict[str, User]) -> None:
    factories.node("n1", cards=2)
    factories.node("n2", cards=2)
    short = factories.job(
        asks=[{"form": "container", "cards_per_node": 2, "memory_mib": 0}],
        command=["simulate", "--seconds", "3600"], walltime_s=600,
    )  # fmt: skip
    long_job(asks=[{"form": "container", "cards_per_node": 2, "memory_mib": 0}])
    turn()
    told = ask(asks=[{"form": "whole"}])
    member = Allocation.objects.get(attempt__job=short)
    assert (told.verdict, told.blockers) == ("later", (short.pk,))
    assert [spot.hostname for spot in told.spots] == [member.node.hostname]
    assert told.expected_at is not None
    assert member.active_at is not None
    gone = member.active_at + dt.timedelta(seconds=600 + USUAL_LAG_S)  # nothing is known: by its limit
    assert told.played
    assert abs(told.expected_at - gone) < dt.timedelta(seconds=1)
    assert sum(told.by_ask[0].values()) == 2


def test_a_gang_waits_for_the_later_of_its_nodes(people: dict[str, User]) -> None:
    for name, seconds in (("n1", 60), ("n2", 300), ("n3", 1200)):
        factories.node(name, cards=1)
        factories.job(
            asks=[{"form": "whole"}], command=["simulate", "--seconds", "99999"], walltime_s=seconds, name=name
        )
        turn()
    told = ask(asks=[{"form": "whole", "nodes": 2}])
    ends = {job.walltime_s: job.pk for job in Job.objects.all()}
    assert set(told.blockers) == {ends[60], ends[300]}
    assert told.expected_at is not None
    assert told.expected_at - database_now() > dt.timedelta(seconds=250)


def test_jobs_ahead_are_served_first(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    factories.job(asks=[{"form": "whole"}])  # queued, not placed yet
    told = ask(asks=[{"form": "whole"}])
    assert (told.verdict, told.ahead) == ("later", 1)
    assert ask(asks=[{"form": "whole"}], priority=50).verdict == "now"


def test_a_queued_job_is_not_ahead_of_itself(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    long_job(asks=[{"form": "whole"}])
    turn()
    waiting = factories.job(asks=[{"form": "whole"}])
    turn()
    told = whatif.outlook(Job.objects.select_related("project").get(pk=waiting.pk))
    assert (told.verdict, told.ahead) == ("later", 0)


def test_a_held_node_makes_no_promise(people: dict[str, User]) -> None:
    node = factories.node("n1", cards=1)
    assert ask().verdict == "now"
    Hold.objects.create(node=node, kind=HoldKind.DRILL, period=(database_now(), None), reason="drill")
    told = ask()
    assert (told.verdict, told.expected_at) == ("later", None)
    assert told.by_ask == ({"node_held": 1},)


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"asks": [{"form": "container", "memory_mib": 98_304}]}, Limit("memory_mib", 98_304, 16_000, "A100 · n1")),
        ({"asks": [{"form": "container", "cards_per_node": 9}]}, Limit("cards_per_node", 9, 4, "n1")),
        ({"asks": [{"form": "container", "model": "H999"}]}, Limit("model", "H999", "A100")),
        ({"cpu_milli": 100_000}, Limit("cpu_milli", 100_000, 64_000, "n1")),
        ({"host_memory_mib": 300_000}, Limit("host_memory_mib", 300_000, 256_000, "n1")),
        ({"asks": [{"form": "whole", "nodes": 3}]}, Limit("nodes", 3, 1)),
    ],
)
def test_never_names_the_nearest_limit(people: dict[str, User], values: dict[str, Any], limit: Limit) -> None:
    factories.node("n1", cards=4)
    told = ask(**values)
    assert told.verdict == "never"
    assert limit in told.limits


def test_a_form_that_no_zone_takes_now_is_named(people: dict[str, User]) -> None:
    factories.node("n1", cards=4, in_zone=factories.zone("shares", [Form.CONTAINER]))
    told = ask(asks=[{"form": "whole"}])
    assert (told.verdict, told.expected_at, told.limits) == ("later", None, (Limit("form", "whole", "container"),))


def test_what_is_proposed_instead_does_start_at_once(people: dict[str, User]) -> None:
    factories.node("n1", cards=4)
    long_job(asks=[{"form": "container", "cards_per_node": 2, "memory_mib": 0}])
    turn()
    told = ask(asks=[{"form": "container", "cards_per_node": 4, "memory_mib": 0}])
    assert told.verdict == "later"
    assert {"cards_per_node": 2} in [dict(way.change) for way in told.sooner]
    for way in told.sooner:
        wish = {"form": "container", "cards_per_node": 4, "memory_mib": 0, **way.change}
        own = {name: wish.pop(name) for name in list(wish) if name in ("interconnect", "cpu_milli", "host_memory_mib")}
        assert ask(asks=[wish], **own).verdict == "now", way


def test_a_project_without_quota_waits_for_quota_alone(people: dict[str, User]) -> None:
    factories.node("n1", cards=4)
    factories.grant(Project.objects.get(slug="vision"), Resource.CARD_MILLI, 0)
    told = ask(asks=[{"form": "whole"}])
    assert (told.verdict, told.by_ask, told.sooner) == ("later", ({"quota": 1},), ())


def test_a_later_wish_is_announced(people: dict[str, User]) -> None:
    factories.node("n1", cards=4)
    long_job()
    turn()
    told = ask(asks=[{"form": "whole"}, {"form": "container", "cards_per_node": 1, "after_s": 600}])
    assert told.verdict == "later"
    assert told.next_ask_in_s is not None
    assert 590 < told.next_ask_in_s <= 600


def test_asking_writes_nothing(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    before = Job.objects.count()
    ask()
    assert (Job.objects.count(), Allocation.objects.count()) == (before, 0)


def test_a_job_that_an_operator_holds_is_promised_nothing(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    job = factories.job()
    order = Order(actor=people["operator"], reason="storage is being mended", via="test")
    hold_jobs(job_ids=[job.pk], order=order)
    told = whatif.outlook(Job.objects.select_related("project").get(pk=job.pk))
    assert (told.verdict, told.barred, told.spots) == ("barred", Refusal.HELD_BY_OPERATOR, ())


def test_a_job_of_a_project_that_takes_no_work_is_promised_nothing(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    job = factories.job()
    Project.objects.filter(slug="vision").update(state=ProjectState.ENDING)
    told = whatif.outlook(Job.objects.select_related("project").get(pk=job.pk))
    assert (told.verdict, told.barred) == ("barred", Refusal.PROJECT_ENDED)
