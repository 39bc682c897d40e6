"""Fair share: the guarantee first, the rest by weight and by what was used lately, and the queue's order inside."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ledger.vocabulary import JobKind
from scheduler.engine.fairness import Shares, deserved, lending_weights
from scheduler.engine.plan import plan, queue_order
from scheduler.engine.types import JobView, Plan, Standing
from tests.scheduler.engine import fleets


def _standing(project: int, guaranteed: int = 0, **more: int) -> Standing:
    return Standing(project, False, guaranteed, **more)


@pytest.mark.parametrize(
    ("standings", "demand", "wanted"),
    [
        ([_standing(1, 50), _standing(2, 50)], [100, 100], [50, 50]),
        ([_standing(1, 50), _standing(2, 50)], [100, 0], [100, 0]),
        ([_standing(1, 50), _standing(2, 20)], [10, 100], [10, 90]),
        ([_standing(1), _standing(2, weight=3)], [200, 200], [25, 75]),
        ([_standing(1), _standing(2, weight=3)], [200, 30], [70, 30]),
        ([_standing(1), _standing(2), _standing(3)], [10, 200, 200], [10, 45, 45]),
        ([_standing(1, 20, limit=30), _standing(2)], [200, 200], [30, 70]),
        ([_standing(1, 80), _standing(2, 80)], [90, 90], [80, 80]),  # more is guaranteed than there is
        ([_standing(1), _standing(2)], [0, 0], [0, 0]),
        ([], [], []),
    ],
)
def test_what_each_deserves(standings: list[Standing], demand: list[int], wanted: list[int]) -> None:
    assert deserved(standings, demand, 100) == wanted


def test_nothing_is_lent_twice_and_nothing_wanted_is_left_idle() -> None:
    for seed in range(300):
        dice = Random(seed)
        standings = [
            _standing(n, dice.choice((0, 0, 10, 30)), weight=dice.randint(1, 5), usage=dice.choice((0, 0, 7, 900)))
            for n in range(dice.randint(1, 6))
        ]
        demand = [dice.choice((0, 5, 40, 200)) for _ in standings]
        found = deserved(standings, demand, 100)
        own = [min(one.guaranteed, want) for one, want in zip(standings, demand, strict=True)]
        assert all(least <= got <= want for least, got, want in zip(own, found, demand, strict=True))
        most = min(sum(demand), max(100, sum(own)))
        assert most - len(standings) <= sum(found) <= most  # each is rounded down


def test_who_used_more_is_lent_less() -> None:
    even, heavy = lending_weights([_standing(1, usage=100), _standing(2, usage=300)])
    assert even / heavy == pytest.approx(2.5 / 1.5)
    assert lending_weights([_standing(1), _standing(2, weight=4)]) == [1.0, 4.0]
    assert deserved([_standing(1, usage=100), _standing(2, usage=300)], [200, 200], 100) == [62, 38]


# -- in a plan --------------------------------------------------------------------------------------------------------

CARD = fleets.container(1, 0)


def _order(*jobs: JobView, standings: tuple[Standing, ...] = (), cards: int = 4) -> tuple[Plan, list[int]]:
    made = plan(
        fleets.snapshot([fleets.node(1, cards, cpu_milli=64_000, host_memory_mib=64_000)], *jobs, standings=standings)
    )
    return made, [one.job_id for one in made.placements]


def _jobs(*projects: int, **more: Any) -> list[JobView]:
    return [
        fleets.job(number, CARD, project_id=project, submitted_at=float(number), **more)
        for number, project in enumerate(projects, start=1)
    ]


def test_without_standings_the_queue_is_as_it_was() -> None:
    jobs = [fleets.some_job(Random(seed), seed + 1) for seed in range(200)]
    snap = fleets.snapshot([fleets.node(1)], *jobs)
    by_policy = sorted(jobs, key=lambda job: (-job.priority, job.submitted_at, job.id))
    assert queue_order(snap) == by_policy


def test_with_nothing_guaranteed_and_equal_weights_projects_take_turns() -> None:
    standings = (_standing(1), _standing(2))
    _, order = _order(*_jobs(1, 1, 1, 2, 2, 2), standings=standings)
    assert order == [1, 4, 2, 5]


def test_the_guarantee_comes_first_then_the_share() -> None:
    standings = (_standing(1), _standing(2, 2000))
    _, order = _order(*_jobs(1, 1, 1, 1, 2, 2, 2), standings=standings)
    assert order == [5, 6, 1, 7]  # of the two cards that are left each is lent one


def test_what_a_project_holds_counts() -> None:
    standings = (_standing(1, held=3000), _standing(2, held=0))
    _, order = _order(*_jobs(1, 1, 1, 2, 2, 2), standings=standings)
    assert order == [4, 5, 6, 1]


def test_priority_comes_before_any_share_and_inference_before_the_rest() -> None:
    standings = (_standing(1, held=9000), _standing(2, 2000))
    jobs = [
        *_jobs(2, 2),
        fleets.job(8, CARD, project_id=1, submitted_at=8.0, kind=JobKind.INFERENCE),
        fleets.job(9, CARD, project_id=1, submitted_at=9.0, priority=1),
    ]
    assert _order(*jobs, standings=standings)[1] == [9, 8, 1, 2]


def test_inside_a_project_the_queue_has_its_own_order() -> None:
    jobs = _jobs(1, 1, 1, 1)
    assert _order(*reversed(jobs), standings=(_standing(1, 1000),))[1] == [1, 2, 3, 4]


def test_the_plan_does_not_depend_on_the_order_of_the_input() -> None:
    dice = Random(5)
    jobs = [
        fleets.job(n, CARD, project_id=dice.randint(1, 4), priority=dice.randint(0, 1), submitted_at=float(n % 7))
        for n in range(1, 40)
    ]
    standings = tuple(_standing(n, 1000 * n, weight=n, held=500 * n, usage=9 * n) for n in range(1, 5))
    snap = fleets.snapshot([fleets.node(1, 16, cpu_milli=64_000, host_memory_mib=64_000)], *jobs, standings=standings)
    made = plan(snap)
    assert len(made.placements) == 16
    for seed in range(5):
        assert plan(fleets.shuffled(snap, seed)) == made


def test_a_project_without_a_grant_has_its_turn_too() -> None:
    assert _order(*_jobs(1, 1, 7), standings=(_standing(1, held=1000),))[1][0] == 3


def test_what_is_borrowed_is_what_is_above_the_guarantee() -> None:
    shares = Shares([_standing(1, 3000, held=5000), _standing(2, 3000, held=1000)], {False: 8000})
    assert [shares.spare((project, False)) for project in (1, 2, 3)] == [2000, -2000, 0]
