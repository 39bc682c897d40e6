"""The named cases of tests/golden/engine_*.json: what is placed where, and why the rest waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.engine.check import check_plan
from scheduler.engine.plan import plan
from scheduler.engine.types import Placement, Snapshot, Waiting
from tests.scheduler.engine.scenarios import as_snapshot, load

SCENARIOS = load()


def seen(snapshot: Snapshot, decided: Placement | Waiting) -> dict[str, Any]:
    """A decision in the words of the scenario files."""
    if isinstance(decided, Waiting):
        waits = [{reason.value: n for reason, n in counts.items()} for counts in decided.by_ask]
        return {"waits": waits, "never": decided.never, "next_ask_in_s": decided.next_ask_in_s}
    hosts = {view.id: view.hostname for view in snapshot.nodes}
    slots = {card.id: card.slot for view in snapshot.nodes for card in view.cards}
    members = sorted(decided.members, key=lambda member: hosts[member.node_id])
    return {
        "nodes": [hosts[member.node_id] for member in members],
        "gang": len(members),
        "ask": decided.ask_index,
        "form": members[0].form.value,
        "slots": [[slots[share.card_id] for share in member.shares] for member in members],
        "memory": [[list(piece) for piece in share.memory] for member in members for share in member.shares],
        "compute": [[list(piece) for piece in share.compute] for member in members for share in member.shares],
        "cpu_milli": [member.cpu_milli for member in members],
        "host_memory_mib": [member.host_memory_mib for member in members],
        "refusals": {reason.value: n for reason, n in decided.refusals.items()},
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    for seed in range(5):  # every expectation follows from a rule, never from how ties fall
        check(SCENARIOS[name], seed)


def check(scenario: dict[str, Any], seed: int) -> None:
    snapshot = replace(as_snapshot(scenario), seed=seed)
    decided = plan(snapshot)
    by_job = {str(d.job_id): seen(snapshot, d) for d in (*decided.placements, *decided.waiting)}
    assert by_job.keys() == scenario["expect"].keys()
    for job_id, expected in scenario["expect"].items():
        got = by_job[job_id]
        assert {key: got.get(key) for key in expected} == expected, f"job {job_id}, seed {seed}: {got}"
    assert check_plan(snapshot, decided) == []
