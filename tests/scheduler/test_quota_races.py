"""Eight at a time after fifty of something, two hundred asks: fifty are sold. Of a project's quota, a department's
ceiling, a person's limit, a budget, the cards of one model; and while a grant is changed under it."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection

from ledger import departments, invariants, limits, member_limits, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.errors import Refused
from ledger.models import Department, DepartmentCeiling, Job, MemberLimit, Project, QuotaGrant, User
from ledger.quota import Terms
from ledger.vocabulary import ProjectRole, Refusal, Resource, SiteRole
from scheduler import placing, snapshot
from scheduler.commit import commit_plan
from scheduler.engine.plan import plan
from scheduler.models import Decision
from tests import factories
from tests.scheduler import flow
from tests.scheduler.test_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
THREADS, SOLD, ASKS = 8, 50, 200
CARD = {"form": "container", "memory_mib": 0}
MILLI, BUDGET = Resource.CARD_MILLI, Resource.CARD_MILLI_S
WALLTIME = 3600


def act(name: str = "admin", role: SiteRole = SiteRole.ADMIN) -> Act:
    return Act(factories.user(name, role), "test", "race")


def two_projects() -> tuple[Project, Project]:
    """vision and speech, of one department, with room for all that is asked for."""
    flow.world(nodes=ASKS // 8, cards=8)
    speech = factories.project("speech", researcher=ProjectRole.MEMBER)
    return Project.objects.get(slug="vision"), speech


def asked(projects: Sequence[str] = ("vision",), by: Sequence[str] = ("researcher",)) -> list[Job]:
    """So many jobs of one card, of these projects and people in turn."""
    people = [factories.user(name) for name in by]
    turns = zip(itertools.cycle(projects), itertools.cycle(people), strict=False)
    return [
        flow.long_job(actor=person, project=project, asks=[CARD], cpu_milli=1, host_memory_mib=1, walltime_s=WALLTIME)
        for project, person in itertools.islice(turns, ASKS)
    ]


def sell(jobs: Sequence[Job]) -> dict[str, int]:
    """Each by a plan of its own, eight at a time. How many were placed, and refused for what."""
    snap = snapshot.read(jobs)
    whole = plan(snap)
    assert len(whole.placements) == len(jobs)
    todo = iter([(snap, dataclasses.replace(whole, placements=(p,), waiting=())) for p in whole.placements])
    lock, found, errors = threading.Lock(), dict[str, int](), list[Exception]()

    def work() -> None:
        while True:
            with lock:
                one = next(todo, None)
            if one is None:
                return
            try:
                done = commit_plan(*one)
            except Exception as error:
                errors.append(error)
                return
            with lock:
                for word, n in {"placed": done.placed, **done.refused}.items():
                    found[word] = found.get(word, 0) + n

    at_once([work] * THREADS)
    assert errors == []
    assert invariants.check() == []
    return {word: n for word, n in found.items() if n}


def test_a_quota_of_a_project() -> None:
    vision, _ = two_projects()
    quota.set_grant(project=vision, terms=Terms(MILLI, SOLD * 1000), act=act())
    assert sell(asked()) == {"placed": SOLD, Refusal.QUOTA: ASKS - SOLD}
    assert limits.used([vision.pk], MILLI) == SOLD * 1000


def test_a_quota_of_cards_of_one_model() -> None:
    vision, _ = two_projects()
    quota.set_grant(project=vision, terms=Terms(MILLI, SOLD * 1000, model="A100"), act=act())
    assert sell(asked()) == {"placed": SOLD, Refusal.QUOTA: ASKS - SOLD}
    assert limits.used([vision.pk], MILLI, "A100") == SOLD * 1000


@pytest.mark.parametrize("model", ["", "A100"])
def test_a_ceiling_over_two_projects(model: str) -> None:
    vision, speech = two_projects()
    top = Department.objects.create(slug="top", title="Top")
    departments.move_department(department=Department.objects.get(slug="research"), parent=top, act=act())
    departments.set_ceiling(department=top, cap=Cap(MILLI, SOLD * 1000, model=model), act=act())
    assert sell(asked(("vision", "speech"))) == {"placed": SOLD, Refusal.CEILING: ASKS - SOLD}
    assert limits.used([vision.pk, speech.pk], MILLI) == SOLD * 1000


def test_a_limit_of_one_member() -> None:
    vision, _ = two_projects()
    factories.join(vision, {factories.user("member"): ProjectRole.MEMBER})
    who = User.objects.get(username="researcher")
    member_limits.set_limit(project=vision, user=who, resource=MILLI, amount=SOLD * 1000, act=act())
    assert sell(asked(by=("researcher", "member"))) == {"placed": SOLD + ASKS // 2, Refusal.MEMBER_LIMIT: SOLD}
    assert member_limits.used(vision.pk, who.pk, MILLI) == SOLD * 1000


@pytest.mark.parametrize("renews", ["", "year"])
def test_a_budget(renews: str) -> None:
    vision, _ = two_projects()
    quota.set_grant(project=vision, terms=Terms(BUDGET, SOLD * 1000 * WALLTIME, renews=renews), act=act())
    assert sell(asked()) == {"placed": SOLD, Refusal.QUOTA: ASKS - SOLD}
    grant = QuotaGrant.objects.get()
    assert limits.used([vision.pk], BUDGET, since=limits.since_of(grant, database_now())) == SOLD * 1000 * WALLTIME


def test_a_grant_that_changes_meanwhile_is_never_exceeded(settings: Any) -> None:
    """Eight place, one sets the quota up and down; every grant that was accepted holds what ran when it began."""
    settings.QUOTA_WINDOW_HOURS = 0.0
    vision, _ = two_projects()
    jobs = asked()
    quota.set_grant(project=vision, terms=Terms(MILLI, 10_000), act=act())
    snap = snapshot.read(jobs)
    whole = plan(snap)
    todo = iter([(snap, dataclasses.replace(whole, placements=(p,), waiting=())) for p in whole.placements])
    lock, errors = threading.Lock(), list[Exception]()

    def place() -> None:
        while True:
            with lock:
                one = next(todo, None)
            if one is None:
                return
            try:
                commit_plan(*one)
            except Exception as error:
                errors.append(error)

    def change() -> None:
        for amount in (30_000, 20_000, 25_000, 15_000, 40_000, 35_000, SOLD * 1000):
            try:
                quota.set_grant(project=vision, terms=Terms(MILLI, amount), act=act())
            except Refused as refused:
                assert refused.code == "below_use"

    answers = at_once([*[place] * (THREADS - 1), change])
    assert [answer for answer in answers if answer is not None] == []
    assert errors == []
    assert invariants.check() == []
    assert limits.used([vision.pk], MILLI) <= SOLD * 1000


def test_a_ceiling_that_comes_while_work_is_placed() -> None:
    """Whoever decided without it is held to it or was counted by it; and nobody waits for the other for ever."""
    two_projects()
    research = Department.objects.get(slug="research")
    jobs = asked(("vision", "speech"))
    snap = snapshot.read(jobs)
    whole = plan(snap)
    todo = iter([(snap, dataclasses.replace(whole, placements=(p,), waiting=())) for p in whole.placements])
    lock, errors = threading.Lock(), list[Exception]()

    def place() -> None:
        while True:
            with lock:
                one = next(todo, None)
            if one is None:
                return
            try:
                commit_plan(*one)
            except Exception as error:
                errors.append(error)

    def cap() -> None:
        departments.set_ceiling(department=research, cap=Cap(MILLI, ASKS * 1000 // 2), act=act())

    answers = at_once([*[place] * (THREADS - 1), cap])
    assert [answer for answer in answers if answer is not None] == []
    assert errors == []
    ceiling = DepartmentCeiling.objects.get()
    assert limits.used(limits.projects_below(research.pk), MILLI) == ceiling.amount
    assert invariants.check() == []


def test_two_moves_at_once_make_no_ring() -> None:
    by = act()
    for number in range(6):
        one, other = (
            departments.create_department(slug=f"{name}-{number}", title=name, parent=None, act=by) for name in "ab"
        )
        answers = at_once(
            [
                lambda one=one, other=other: departments.move_department(department=one, parent=other, act=by),
                lambda one=one, other=other: departments.move_department(department=other, parent=one, act=by),
            ]
        )
        assert [answer.code for answer in answers if isinstance(answer, Refused)] == ["cyclic"], answers
    assert invariants.check() == []


def _words(job: Job) -> list[str]:
    return [word for ask in Decision.objects.get(job=job, attempt=None).reasons for word in ask]


@pytest.mark.parametrize(
    ("limit", "word"),
    [
        (lambda p: quota.set_grant(project=p, terms=Terms(MILLI, 1000), act=act()), Refusal.QUOTA),
        (lambda p: departments.set_ceiling(department=p.department, cap=Cap(MILLI, 1000), act=act()), Refusal.CEILING),
        (
            lambda p: member_limits.set_limit(
                project=p, user=User.objects.get(username="researcher"), resource=MILLI, amount=1000, act=act()
            ),
            Refusal.MEMBER_LIMIT,
        ),
    ],
)
def test_a_job_that_waits_is_told_which_of_them_is_used_up(limit: Callable[[Project], object], word: Refusal) -> None:
    flow.world(cards=4)
    limit(Project.objects.get(slug="vision"))
    flow.start(flow.long_job(asks=[CARD]))
    waiting = flow.long_job(asks=[CARD])
    placing.place_queued()
    assert _words(waiting) == [word]
    assert MemberLimit.objects.count() == (word == Refusal.MEMBER_LIMIT)
    connection.close()
