"""Cuts with a date: who is ended, when, how few, and that a look may be cut off or run twice anywhere."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from django.db import DatabaseError

from ledger import departments, limits, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.models import AuditEvent, Department, DepartmentCeiling, Job, Project, QuotaGrant
from ledger.quota import Terms
from ledger.vocabulary import JobState, ProjectRole, Resource, SiteRole
from scheduler import draining, queue
from scheduler.draining import Holding, victims
from tests import factories
from tests.scheduler import flow

MILLI, BUDGET = Resource.CARD_MILLI, Resource.CARD_MILLI_S
LATER = dt.timedelta(hours=25)


def card(n: int = 1) -> dict[str, Any]:
    return {"form": "container", "memory_mib": 0, "cards_per_node": n}


def act() -> Act:
    return Act(factories.user("admin", SiteRole.ADMIN), "test", "fewer cards")


def cut(amount: int, resource: Resource = MILLI) -> QuotaGrant:
    """A cut of `vision` whose date is in a day."""
    terms = Terms(resource, amount, drain_at=database_now() + LATER)
    return quota.set_grant(project=Project.objects.get(slug="vision"), terms=terms, act=act())


def come() -> None:
    """The date has come."""
    for model in (QuotaGrant, DepartmentCeiling):
        model.objects.filter(drain_at__isnull=False).update(drain_at=database_now())  # type: ignore[attr-defined]


def states(*jobs: Job) -> list[str]:
    return [Job.objects.get(pk=job.pk).state for job in jobs]


@pytest.mark.django_db
def test_nothing_ends_before_the_date_and_then_the_fewest_and_youngest() -> None:
    flow.world(nodes=2, cards=4)
    old, wide = flow.long_job(asks=[card(1)]), flow.long_job(asks=[card(2)])
    flow.start(old, wide)
    young = flow.long_job(asks=[card(1)])
    flow.start(young)
    cut(3000)
    assert draining.drain_all() == {}
    come()
    assert draining.drain_all() == {"looked_at": 1, "ended": 1}
    assert states(old, wide, young) == ["running", "running", "stopping"]
    assert draining.drain_all() == {"looked_at": 1, "ended": 0}  # what closes counts as gone
    flow.turn()
    flow.turn()
    assert states(old, wide, young) == ["running", "running", "queued"]  # it waits again, for room in the quota
    assert draining.drain_all()["ended"] == 0
    row = AuditEvent.objects.get(verb="job.stopping")
    assert row.reason.startswith("the quota of project vision was cut to 3000 card_milli with effect from ")


@pytest.mark.django_db
def test_one_wide_job_rather_than_two_narrow_ones() -> None:
    flow.world(nodes=2, cards=4)
    wide = flow.long_job(asks=[card(2)])
    flow.start(wide)
    narrow = [flow.long_job(asks=[card(1)]) for _ in range(2)]
    flow.start(*narrow)
    cut(2000)
    come()
    draining.drain_all()
    assert states(wide, *narrow) == ["stopping", "running", "running"]


@pytest.mark.django_db
def test_what_fits_by_itself_ends_nothing() -> None:
    flow.world(cards=4)
    jobs = [flow.long_job(asks=[card(1)]) for _ in range(2)]
    flow.start(*jobs)
    cut(1000)
    queue.cancel(job_id=jobs[0].pk, actor=jobs[0].by, reason="", via="test")
    come()
    assert draining.drain_all() == {"looked_at": 1, "ended": 0}
    assert states(jobs[1]) == [JobState.RUNNING]


@pytest.mark.django_db
def test_who_gives_more_meanwhile_saves_what_has_not_begun_to_end() -> None:
    flow.world(nodes=2, cards=4)
    jobs = [flow.long_job(asks=[card(1)]) for _ in range(3)]
    flow.start(*jobs)
    row = cut(0)
    come()
    usual = draining.end_attempt

    def end_and_give(**values: Any) -> bool:
        done = usual(**values)
        quota.set_grant(project=row.project, terms=Terms(MILLI, 4000), act=act(), override="they need it")
        return done

    with mock.patch.object(draining, "end_attempt", end_and_give):
        assert draining.drain_all()["ended"] == 1
    assert sorted(states(*jobs)) == ["running", "running", "stopping"]


@pytest.mark.django_db
def test_a_budget_gives_back_what_is_set_aside_and_not_used_yet() -> None:
    flow.world(cards=4)
    long, short = (flow.long_job(asks=[card(1)], walltime_s=s) for s in (36_000, 3_600))
    flow.start(long, short)
    cut(1000 * 10_000, BUDGET)
    come()
    draining.drain_all()
    assert states(long, short) == ["stopping", "running"]


@pytest.mark.django_db
def test_a_ceiling_drains_over_all_its_projects() -> None:
    flow.world(nodes=2, cards=4)
    factories.project("speech", researcher=ProjectRole.MEMBER)
    first = flow.long_job(asks=[card(2)])
    flow.start(first)
    second = flow.long_job(asks=[card(2)], project="speech")
    flow.start(second)
    cap = Cap(MILLI, 3000, drain_at=database_now() + LATER)
    departments.set_ceiling(department=Department.objects.get(slug="research"), cap=cap, act=act())
    come()
    assert draining.drain_all() == {"looked_at": 1, "ended": 1}
    assert states(first, second) == ["running", "stopping"]


@pytest.mark.django_db
def test_one_odd_row_stops_no_other() -> None:
    flow.world(nodes=2, cards=4)
    factories.project("speech", researcher=ProjectRole.MEMBER)
    jobs = [flow.long_job(asks=[card(1)], project=project) for project in ("vision", "speech")]
    flow.start(*jobs)
    for project in Project.objects.filter(slug__in=["vision", "speech"]):
        quota.set_grant(project=project, terms=Terms(MILLI, 0, drain_at=database_now() + LATER), act=act())
    come()
    usual = draining.drain

    def odd(row: Any) -> int:
        if row.project.slug == "vision":
            raise DatabaseError("odd")
        return usual(row)

    with mock.patch.object(draining, "drain", odd):
        assert draining.drain_all() == {"looked_at": 2, "ended": 1, "failed": 1}
    assert states(*jobs) == ["running", "stopping"]
    assert draining.drain_all()["ended"] == 1
    assert states(*jobs) == ["stopping", "stopping"]


@pytest.mark.django_db
@pytest.mark.parametrize("killed_at", range(4))
def test_cut_off_anywhere_it_goes_on_with_the_next_look(killed_at: int) -> None:
    flow.world(nodes=2, cards=4)
    jobs = [flow.long_job(asks=[card(1)]) for _ in range(6)]
    flow.start(*jobs)
    cut(2000)
    come()
    usual, calls = draining.end_attempt, itertools.count()

    def killed(**values: Any) -> bool:
        if next(calls) == killed_at:
            raise KeyboardInterrupt
        return usual(**values)

    with mock.patch.object(draining, "end_attempt", killed), pytest.raises(KeyboardInterrupt):
        draining.drain_all()
    draining.drain_all()
    draining.drain_all()
    assert states(*jobs).count("running") == 2
    flow.turn()
    flow.turn()
    assert limits.used([Project.objects.get(slug="vision").pk], MILLI) == 2000


# -- who ---------------------------------------------------------------------------------------------------------------


def _open(*pairs: tuple[int, int]) -> list[Holding]:
    return [Holding(n, False, gives, loses, n, "") for n, (gives, loses) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "excess", "wanted"),
    [
        ([(1, 5), (1, 3), (1, 9)], 1, [1]),
        ([(4, 9), (1, 1), (1, 1)], 2, [0]),  # one is fewer than two, whatever it loses
        ([(2, 9), (2, 1), (3, 5)], 2, [1]),
        ([(2, 1), (3, 5), (3, 9)], 6, [1, 2]),
        ([(2, 1), (3, 5), (4, 9)], 6, [0, 2]),
        ([(1, 1), (0, 0)], 5, [0]),  # all that is there
        ([(1, 1)], 0, []),
        ([], 3, []),
    ],
)
def test_the_fewest_and_of_these_the_least_loss(pairs: list[tuple[int, int]], excess: int, wanted: list[int]) -> None:
    assert sorted(one.attempt_id for one in victims(_open(*pairs), excess)) == wanted


def _brute(open_now: Sequence[Holding], excess: int) -> int:
    """How few suffice."""
    for count in range(len(open_now) + 1):
        if any(sum(one.gives for one in some) >= excess for some in itertools.combinations(open_now, count)):
            return count
    return len(open_now)


def test_never_more_than_needed_by_brute_force() -> None:
    draw = random.Random(7)
    for _ in range(500):
        open_now = _open(*[(draw.randint(1, 9), draw.randint(0, 9)) for _ in range(draw.randint(1, 8))])
        excess = draw.randint(1, sum(one.gives for one in open_now))
        found = victims(open_now, excess)
        assert sum(one.gives for one in found) >= excess
        assert len(found) == _brute(open_now, excess)
        assert len({one.attempt_id for one in found}) == len(found)
