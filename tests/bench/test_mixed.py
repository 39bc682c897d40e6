"""All forms on one pool of a real trace: nearly everything finds room, and the engine itself decides so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ledger.vocabulary import AskForm
from scheduler.engine import cards, judge, plan, priced
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.shape import FORMS
from scheduler.engine.types import Ask, JobView, Placement
from tests.bench import fgd_replica, mixed, openb
from tests.bench.openb import Pods
from tests.scheduler.engine.fleets import job

TRACE, SEED, MANY = "multigpu50", 42, 600
READING = "blocks_on_4_and_8"


def test_one_pool_takes_nearly_every_form_and_gets_fuller_than_zones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["mixed", "--seeds", str(SEED), "--readings", READING])
    mixed.main()
    found = json.loads(capsys.readouterr().out)
    ours, zones = found[READING], found[mixed.ZONES]
    assert ours["alloc"]["100"] >= 97.4
    assert ours["alloc"]["100"] > zones["alloc"]["100"] + 2
    assert min(zones[form]["accepted"] for form in FORMS) < 98
    for form in FORMS:
        assert ours[form]["came"] > 100
        assert ours[form]["accepted"] >= 99.9


def test_the_engine_decides_as_the_benchmark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pod by pod with all drivers, a zone for all forms, and blocks. Its tastes between equals are left out: for nodes
    without cards, and for cards whose block is broken already."""
    for taste in ("CARDS_WITHOUT_CPU", "BREAKING"):
        monkeypatch.setattr(priced, taste, 0.0)
    monkeypatch.setattr(cards, "FRESH_GROUP", 0.0)
    monkeypatch.setattr(judge, "node_ranks", lambda seed, ids: openb.ranks(TRACE, SEED))
    nodes, pods, order = openb.nodes(), openb.pods(TRACE), openb.arrivals(TRACE, SEED)[:MANY]
    cut = mixed.READINGS[READING]
    desk = plan.Desk(mixed.fleet_of(nodes, pods, cut), (), at=0.0, seed=1, rule=LEAST_LOSS)
    decided = [desk.decide(job_of(pods, pod, number)) for number, pod in enumerate(order.tolist())]
    chosen = [made.members[0].node_id if isinstance(made, Placement) else -1 for made in decided]
    assert chosen == fgd_replica.run(mixed.policy(nodes, pods, cut), TRACE, SEED).node[:MANY].tolist()
    assert np.bincount(mixed.forms_of(pods)[order])[mixed.CONTAINER :].min() > 10  # of each form


def job_of(pods: Pods, pod: int, number: int) -> JobView:
    form = (AskForm.CONTAINER, AskForm.BLOCK, AskForm.WHOLE)[mixed.forms_of(pods)[pod] - mixed.CONTAINER]
    memory = int(pods.gpu_milli[pod]) if form is AskForm.CONTAINER else 0
    ask = Ask(form, cards_per_node=int(pods.gpus[pod]), memory_mib=memory)
    return job(number, ask, cpu_milli=int(pods.cpu_milli[pod]), host_memory_mib=int(pods.memory_mib[pod]))
