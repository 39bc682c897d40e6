"""The batch that the rate is measured with decides well: the nodes of the benchmark's own score, and of the engine."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scheduler.engine import priced
from scheduler.engine.batch import Batch
from scheduler.engine.plan import Desk
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.types import Placement
from tests.bench import fgd_replica, openb, placement, rate
from tests.bench.rate import Replay, job_of

TRACE, SEED, FIRST = "multigpu50", 42, 300


def test_a_batch_takes_the_nodes_and_cards_of_the_score_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the whole trace. The engine's taste for nodes without cards is left out: the trace has none."""
    monkeypatch.setattr(priced, "CARDS_WITHOUT_CPU", 0.0)
    replay = Replay(TRACE, SEED, 1)
    batch = Batch(replay.fleet.fork(LEAST_LOSS, openb.ranks(TRACE, SEED)), replay.shapes)
    found = batch.decide(replay.wanted)
    wanted = fgd_replica.run(placement.policy(replay.nodes, replay.pods), TRACE, SEED)
    assert found.rows.tolist() == wanted.node.tolist()
    assert found.columns.tolist() == wanted.devices.tolist()
    assert replay.alloc(found) == wanted.curve()[-1]


def test_a_batch_decides_as_the_engine_does_job_by_job() -> None:
    replay = Replay(TRACE, SEED, 2)
    found = replay.batch().decide(replay.wanted[:FIRST])
    desk = Desk(replay.fleet, (), at=0.0, seed=SEED, rule=LEAST_LOSS)
    for number, pod in enumerate(replay.order[:FIRST].tolist()):
        made = desk.decide(job_of(replay.pods, pod, number))
        node, columns = -1, 0
        if isinstance(made, Placement):
            node = made.members[0].node_id
            columns = sum(1 << share.card_id % openb.MOST_GPUS for share in made.members[0].shares)
        assert (node, columns) == (found.rows[number], found.columns[number])
    assert len(np.unique(found.rows)) > FIRST / 10


def test_the_program_says_what_it_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--copies", "1", "--trace", TRACE, "--calls", "50", "--desk", "20", "--no-fgd"]
    monkeypatch.setattr("sys.argv", ["rate", *options])
    rate.main()
    size = json.loads(capsys.readouterr().out)["sizes"][0]
    assert (size["nodes"], size["gpus"], size["decisions"]) == (1213, 6212, len(openb.arrivals(TRACE, SEED)))
    assert size["alloc"] > 97.5
    assert [size[name]["decisions"] for name in ("calls", "desk")] == [50, 20]
    assert size["calls"]["p50_us"] <= size["calls"]["p99_us"]


def test_with_fair_share_and_limits_most_is_placed_and_one_is_stopped_for_who_is_owed() -> None:
    found = rate.fair(Replay(TRACE, SEED, 1), 20)
    assert found["alloc"] > 95
    assert found["over_quota"] > 0
    assert found["stopped"] in (1, 2, 3, 4)
