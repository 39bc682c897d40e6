"""What must hold for every small fleet and queue, after any history: 20,000 generated examples, no two of them alike.

Seeds of our own, not hypothesis, which would take longer to draw an example than to try it; a failure is made small and
printed all the same.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator

import pytest

from scheduler.engine.fleet import Fleet
from scheduler.engine.serialise import from_json
from scheduler.engine.types import Snapshot
from tests.scheduler.engine import stories
from tests.scheduler.engine.stories import Example

EXAMPLES = 20_160
PARTS = 8
STORIES = EXAMPLES // PARTS // stories.TICKS
AT_LEAST = {  # in a hundred, what each kind must be: else most examples would try little
    "an empty pool": 12,
    "a node being cleaned": 15,
    "a node held or down": 12,
    "a card held": 12,
    "reserves": 20,
    "a container": 18,
    "a block": 3,
    "a whole": 6,
    "a gang": 3,
    "a second choice": 1,
    "a job that waits": 18,
    "a job without hope": 25,
    "kept nodes": 1,
    "kept out": 0.04,
    "kept out of a zone": 1.5,
}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_property_holds_in_every_example(part: int) -> None:
    different, seen = set[int](), Counter[str]()
    for seed in range(part * STORIES, (part + 1) * STORIES):
        for example in tried(seed):
            different.add(hash(pickle.dumps(example.given)))
            seen.update({*stories.kinds(example)})
    assert len(different) * PARTS == EXAMPLES
    too_few = {kind: seen[kind] for kind, percent in AT_LEAST.items() if seen[kind] * 100 < percent * len(different)}
    assert too_few == {}


def tried(seed: int) -> Iterator[Example]:
    """The examples of a story, each of which has all properties."""
    snapshots: list[Snapshot] = []
    for example in stories.tell(seed):
        snapshots.append(example.given)
        if stories.problems(example):
            pytest.fail(stories.report(seed, snapshots))
        yield example


def retold(report: str) -> list[Snapshot]:
    return [from_json(json.loads(line)) for line in report.splitlines() if line.startswith("{")]


def failure() -> str:
    """The report of the first story that fails."""
    with pytest.raises(pytest.fail.Exception) as caught:
        for seed in range(40):
            for _example in tried(seed):
                pass
    return str(caught.value)


def test_a_failure_is_reported_as_the_least_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def places_a_gang(example: Example) -> Iterator[str]:
        if any(len(placement.members) == 2 for placement in example.plan.placements):
            yield "two members"

    monkeypatch.setattr(stories, "PROPERTIES", (places_a_gang,))
    (snapshot,) = story = retold(failure())
    assert (len(snapshot.nodes), len(snapshot.jobs), len(snapshot.jobs[0].asks)) == (2, 1, 1)
    assert [stories.problems(example) for example in stories.retell(story)] == [["places_a_gang: two members"]]


def test_a_fleet_that_misses_a_change_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "replace_nodes", lambda fleet, changed: None)
    report = failure()
    assert "differs_afresh" in report
    before, after = retold(report)
    assert len(before.nodes) <= len(after.nodes) == 1
    *_, last = stories.retell([before, after])
    assert last.plan != last.afresh


def test_a_plan_that_changes_what_it_was_given_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(fleet: Fleet, snapshot: Snapshot) -> object:
        for view in snapshot.nodes:
            view.managers["more"] = ""
        return real(fleet, snapshot)

    real = stories._plan
    monkeypatch.setattr(stories, "_plan", careless)
    assert "changes_its_input" in failure()
