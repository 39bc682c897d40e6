"""The replay of the queue: small slices of the trace, and what each policy must come to on them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tests.bench import queue
from tests.bench.queue import CARDS, Engine, Fleet, Jobs, figures, replay, scheduler

NODES, FIRST = 40, 1600  # so few that work piles up for half a day


def test_the_traces_are_what_was_bundled() -> None:
    sizes = {name: len(queue.trace(name)) for name in queue.TRACES}
    assert sizes == {"MIX1": 30_756, "MIX2": 30_746, "SLO": 30_735}
    jobs = queue.trace("MIX1")
    assert (np.diff(jobs.submitted) >= 0).all()
    assert jobs.cards.min() == 1
    load = (jobs.cards * jobs.seconds).sum() / jobs.submitted[-1] / (150 * CARDS)
    assert load == pytest.approx(0.92, abs=0.005)


def test_ours_waits_less_than_first_come_first_served_and_nobody_waits_longer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--trace", "SLO", "--nodes", str(NODES), "--jobs", str(FIRST), "--policies", "ours", "skip", "strict"]
    monkeypatch.setattr(sys, "argv", ["queue", *options])
    queue.main()
    found = json.loads(capsys.readouterr().out)
    ours, skip, strict = (found["waits"][name] for name in ("ours", "skip", "strict"))
    assert (found["jobs"], found["nodes"], found["policy"]) == (FIRST, NODES, queue.QueuePolicy().name)
    assert 0 < ours["mean"] < skip["mean"] < strict["mean"]
    for tail in ("wide_p99", "max"):
        assert ours[tail] < min(skip[tail], strict[tail])


def toy(*jobs: tuple[int, int, int]) -> Jobs:
    """Of (submitted, cards, seconds)."""
    submitted, cards, seconds = np.array(jobs, dtype=np.int64).T
    nobody = np.zeros(len(jobs), dtype=np.int64)
    return Jobs(submitted, cards, seconds, nobody, nobody)


TOY = toy((0, 4, 100), (1, 16, 50), (2, 4, 90), (3, 4, 200), (4, 8, 10))
WAITS = {"strict": [0, 99, 148, 147, 146], "skip": [0, 202, 0, 0, 96], "easy": [0, 99, 0, 147, 0]}


@pytest.mark.parametrize("name", WAITS)
def test_each_baseline_does_what_its_name_says(name: str) -> None:
    """On two nodes. EASY lets the third and fifth job pass the second, because they end in time."""
    wait = replay(TOY, 2, scheduler(name, TOY, 2, queue.QueuePolicy()))
    assert wait.tolist() == WAITS[name]


def test_ours_is_told_no_duration() -> None:
    """Until the first job has ended, whatever they will take makes no difference to who starts."""
    jobs = queue.trace("MIX2").first(300)
    others = Jobs(jobs.submitted, jobs.cards, jobs.seconds.max() + 60 - jobs.seconds, jobs.who, jobs.kind)
    first_end = min((each.submitted + each.seconds).min() for each in (jobs, others))
    waits = [replay(each, 20, Engine(each, 20, queue.QueuePolicy())) for each in (jobs, others)]
    for one, other in (waits, reversed(waits)):
        early = jobs.submitted + one < first_end
        assert early.sum() > 20
        assert (one[early] == other[early]).all()


def test_best_fit_takes_the_fullest_node_and_whole_nodes_for_what_is_larger() -> None:
    fleet = Fleet(np.array([8, 3, 2, 8]))
    rows = np.arange(4)
    assert fleet.best_fit(1, 1, rows) == [2]
    assert fleet.best_fit(3, 1, rows) == [1]
    assert fleet.best_fit(8, 2, rows) == [0, 3]
    assert fleet.best_fit(8, 3, rows) == []


def test_figures_are_of_all_jobs_and_of_the_wide_ones() -> None:
    found = figures(toy((0, 1, 10), (0, 8, 20), (0, 12, 30)), np.array([0, 60, 90]))
    assert (found["mean"], found["median"], found["max"], found["mean_with_run"]) == (50, 60, 90, 70)
    assert (found["one_card_mean"], found["wide_mean"], found["wide_max"]) == (0, 75, 90)


def test_a_fleet_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["queue", "--nodes", "3"])
    with pytest.raises(SystemExit, match="needs 4 nodes"):
        queue.main()
