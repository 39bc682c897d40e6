"""A batch in the order of fair share decides as a Desk with Shares does, request by request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.engine.compiling import COMPILED
from scheduler.engine.fair_batch import RUN, decide_fairly
from scheduler.engine.fairness import Shares
from scheduler.engine.plan import Desk
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.types import Placement, Standing
from tests.bench.rate import Replay, capacity_of, job_of

PROJECTS = 5
pytestmark = pytest.mark.skipif(not COMPILED, reason="the loops are not compiled here")


def _standings(limit: int | None = None) -> list[Standing]:
    return [Standing(n, False, 20_000 * n, limit, 1 + n % 3, held=7_000 * n, usage=n * 10**6) for n in range(PROJECTS)]


def _milli(replay: Replay) -> np.ndarray:
    return np.array([shape.cards * shape.memory_mib for shape in replay.shapes], dtype=np.int64)


@pytest.mark.parametrize("count", [400, RUN + 300])
def test_it_decides_in_the_order_and_on_the_nodes_of_a_desk(count: int) -> None:
    replay = Replay("multigpu50", 42, 1)
    wanted, owners = replay.wanted[:count], np.arange(count) * 37 % PROJECTS
    capacity = capacity_of(replay.fleet)
    found = decide_fairly(replay.batch(), wanted, owners, _standings(), _milli(replay), capacity)
    shares = Shares(_standings(), replay.fleet.capacity())
    desk = Desk(replay.fleet, (), at=10**6, seed=42, rule=LEAST_LOSS, shares=shares)
    jobs = [
        replace(job_of(replay.pods, pod, number), project_id=int(owners[number]), submitted_at=float(number))
        for number, pod in enumerate(replay.order[:count].tolist())
    ]
    made = list(desk.decisions(jobs))
    assert [one.job_id for one in made] == found.requests.tolist()
    rows = [one.members[0].node_id if isinstance(one, Placement) else -1 for one in made]
    assert rows == found.rows.tolist()


def test_what_finds_no_room_gives_its_turn_back_and_nothing_is_decided_twice() -> None:
    replay = Replay("multigpu50", 42, 1)
    count = len(replay.wanted)
    owners = np.arange(count) * 37 % PROJECTS
    capacity = capacity_of(replay.fleet)
    found = decide_fairly(replay.batch(), replay.wanted, owners, _standings(), _milli(replay), capacity)
    assert sorted(found.requests.tolist()) == list(range(count))
    placed = found.rows >= 0
    assert 0 < (~placed).sum() < 0.4 * count
    used = _milli(replay)[replay.wanted[found.requests[placed]]].sum()
    assert 0.95 * capacity < used <= capacity


def test_nobody_passes_its_limit() -> None:
    replay = Replay("multigpu50", 42, 1)
    count, limit = len(replay.wanted), 900_000
    owners, milli = np.arange(count) * 37 % PROJECTS, _milli(replay)
    standings = _standings(limit)
    found = decide_fairly(replay.batch(), replay.wanted, owners, standings, milli, capacity_of(replay.fleet))
    placed = found.requests[found.rows >= 0]
    taken = np.bincount(owners[placed], weights=milli[replay.wanted[placed]], minlength=PROJECTS)
    assert all(held + one.held <= limit for held, one in zip(taken.tolist(), standings, strict=True))
    assert found.over_quota > 0
