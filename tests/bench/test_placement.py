"""The engine's score on a real trace: better than the published best, and not better than is possible."""

from __future__ import annotations

import json

import pytest

from scheduler.engine import priced
from scheduler.engine.plan import Desk
from scheduler.engine.prices import PARTS
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.types import Placement
from tests.bench import fgd_replica, openb, placement
from tests.bench.rate import fleet_of, job_of

TRACE, SEED = "multigpu50", 42  # the shortest


def test_prices_beat_every_published_policy_and_stay_below_the_bound(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--traces", TRACE, "--seeds", str(SEED), "--policies", placement.OURS, "BestFit", "--bounds", "1"]
    monkeypatch.setattr("sys.argv", ["placement", *options])
    placement.main()
    found = json.loads(capsys.readouterr().out)
    row = found["traces"][TRACE]
    assert row["published"]["FGD"] == pytest.approx(openb.published("FGD", TRACE, SEED)[-1])
    assert row["published"]["FGD"] + 0.5 < row["alloc"][placement.OURS] <= row["bound"]
    assert found["above_published_fgd_on"] == 1
    assert (found["equal_to_published"], found["of_runs"], row["equal"]) == (1, 1, {"BestFit": 1})
    assert found["mean"][placement.OURS] == row["alloc"][placement.OURS]


def test_the_prices_of_a_trace_count_every_request() -> None:
    nodes, pods = openb.nodes(), openb.pods("default")
    found = placement.prices_of(nodes, pods)
    assert found.piece[0, PARTS] == pytest.approx(1)
    assert found.worth[0, 81] < found.piece[0, 81]  # for whole cards a piece of 81 is too small
    with_gpu = pods.gpus > 0
    cores = (
        pods.cpu_milli[with_gpu].sum()
        / (pods.gpus * found.need[0, -(-pods.gpu_milli // placement.UNIT)])[with_gpu].sum()
    )
    assert 1 / found.hinges[1, 0] == pytest.approx(cores)


def test_the_engine_with_all_its_filters_decides_as_the_benchmark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pod by pod, on the fleet as the engine sees it. Its taste for nodes without cards is left out: the trace has none."""
    monkeypatch.setattr(priced, "CARDS_WITHOUT_CPU", 0.0)
    nodes, pods, order = openb.nodes(), openb.pods(TRACE), openb.arrivals(TRACE, SEED)[:400]
    fleet = fleet_of(nodes, pods)
    desk = Desk(fleet, (), at=0.0, seed=1, rule=LEAST_LOSS)
    desk.fleet = fleet.fork(LEAST_LOSS, openb.ranks(TRACE, SEED))
    decided = [desk.decide(job_of(pods, pod, number)) for number, pod in enumerate(order.tolist())]
    chosen = [made.members[0].node_id if isinstance(made, Placement) else -1 for made in decided]
    assert chosen == fgd_replica.run(placement.policy(nodes, pods), TRACE, SEED).node[:400].tolist()
    assert len(set(chosen)) > 100
