"""The engine's score on a real trace: better than the published best, and not better than is possible."""

from __future__ import annotations

import json

import pytest

from ledger.vocabulary import Form
from scheduler.engine import priced
from scheduler.engine.fleet import Fleet
from scheduler.engine.plan import Desk
from scheduler.engine.prices import PARTS
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.types import JobView, Placement
from tests.bench import fgd_replica, openb, placement
from tests.bench.openb import Nodes, Pods
from tests.scheduler.engine.fleets import card, container, job, node

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
    desk = Desk(fleet_of(nodes, pods), (), at=0.0, seed=1, rule=LEAST_LOSS)
    desk.ranks = openb.ranks(TRACE, SEED)
    decided = [desk.decide(job_of(pods, pod, number)) for number, pod in enumerate(order.tolist())]
    chosen = [made.members[0].node_id if isinstance(made, Placement) else -1 for made in decided]
    assert chosen == fgd_replica.run(placement.policy(nodes, pods), TRACE, SEED).node[:400].tolist()
    assert len(set(chosen)) > 100


def fleet_of(nodes: Nodes, pods: Pods) -> Fleet:
    """Containers alone; a GPU is a card of 1000 MiB, because the trace hides how much memory it has."""
    views = [
        node(
            n,
            tuple(card(n * openb.MOST_GPUS + s, s, openb.GPU_MILLI, model=nodes.models[model]) for s in range(gpus)),
            **{"zone_forms": frozenset({Form.CONTAINER}), "cpu_milli": cpu, "host_memory_mib": memory},
        )
        for n, (gpus, model, cpu, memory) in enumerate(
            zip(*(each.tolist() for each in (nodes.gpus, nodes.model, nodes.cpu_milli, nodes.memory_mib)), strict=True)
        )
    ]
    return Fleet(views, {False: placement.workload_of(pods)})


def job_of(pods: Pods, pod: int, number: int) -> JobView:
    ask = container(int(pods.gpus[pod]), int(pods.gpu_milli[pod]))
    return job(number, ask, cpu_milli=int(pods.cpu_milli[pod]), host_memory_mib=int(pods.memory_mib[pod]))
