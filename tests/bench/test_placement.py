"""The engine's score on a real trace: better than the published best, and not better than is possible."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.prices import PARTS
from tests.bench import openb, placement

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
    assert found.piece[PARTS] == pytest.approx(1)
    assert found.worth[81] < found.piece[81]  # for whole cards a piece of 81 is too small
    with_gpu = pods.gpus > 0
    cores = (
        pods.cpu_milli[with_gpu].sum() / (pods.gpus * found.need[-(-pods.gpu_milli // placement.UNIT)])[with_gpu].sum()
    )
    assert 1 / found.hinges[1, 0] == pytest.approx(cores)
