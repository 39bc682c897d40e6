"""Snapshots and plans go to JSON and back unchanged; a broken file is refused with the name of the field."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from scheduler.engine.plan import plan
from scheduler.engine.serialise import from_json, plan_from_json, plan_to_json, to_json
from scheduler.engine.types import Reserve, Snapshot
from tests.scheduler.engine.fleets import blocks_node, container, job, node, snapshot, snapshots, whole
from tests.scheduler.engine.scenarios import GOLDEN
from tests.scheduler.engine.test_properties import some

SMALL = snapshot(
    [node(1, 2), blocks_node(2, (2,), links=((200, 201, 300),), labels=frozenset({"b", "a"}), held=True)],
    job(1, container(2, 0), container(after_s=60), key_work=True),
    job(2, whole()),
    reserves=(Reserve(4, "A", 8),),
)
ASKED = {
    "simulated": False, "form": "container", "cards": 1, "memory_mib": 4, "cpu_milli": 1000, "host_memory_mib": 1000,
}  # fmt: skip


def through_text(data: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(data, allow_nan=False))
    return read


@some
@given(snapshots())
def test_a_snapshot_survives_the_round_trip(given_snapshot: Snapshot) -> None:
    read = from_json(through_text(to_json(given_snapshot)))
    assert read == given_snapshot
    assert through_text(to_json(read)) == through_text(to_json(given_snapshot))


@some
@given(snapshots())
def test_a_plan_survives_the_round_trip_and_replays(given_snapshot: Snapshot) -> None:
    made = plan(given_snapshot)
    assert plan_from_json(through_text(plan_to_json(made))) == made
    assert plan(from_json(through_text(to_json(given_snapshot)))) == made


def test_the_first_snapshot_file_still_reads_and_plans_the_same() -> None:
    read = from_json(json.loads((GOLDEN / "snapshot_1.json").read_text("utf-8")))
    assert read == replace(SMALL, rule="pack-keep-whole/1")  # the rule of its time
    made = plan_from_json(json.loads((GOLDEN / "plan_1.json").read_text("utf-8")))
    assert replace(plan(read), order=()) == made  # which was not told of then


def test_the_format_stands_first() -> None:
    assert next(iter(to_json(SMALL).items())) == ("format", "gpu-commons-snapshot/1")
    assert next(iter(plan_to_json(plan(SMALL)).items())) == ("format", "gpu-commons-plan/1")


def test_fields_with_defaults_may_be_left_out() -> None:
    data = through_text(to_json(SMALL))
    del data["reserves"], data["rule"], data["nodes"][0]["links"], data["jobs"][0]["key_work"]
    assert from_json(data).rule == SMALL.rule


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("format",), "gpu-commons-snapshot/2", "format"),
        (("format",), None, "format"),
        (("at",), float("nan"), "at"),
        (("at",), True, "at"),
        (("seed",), 1.5, "seed"),
        (("seed",), 2**70, "seed"),
        (("demand",), [ASKED], "demand[0].count"),
        (("demand",), [{**ASKED, "count": -1.0}], "demand[0].count"),
        (("demand",), [{**ASKED, "count": 1.0, "form": "heap"}], "demand[0].form"),
        (("nodes",), {}, "nodes"),
        (("nodes", 0), [], "nodes[0]"),
        (("nodes", 0, "surprise"), 1, "nodes[0].surprise"),
        (("nodes", 0, "up"), 1, "nodes[0].up"),
        (("nodes", 0, "hostname"), 7, "nodes[0].hostname"),
        (("nodes", 0, "zone_forms"), ["container", "slice"], "nodes[0].zone_forms[1]"),
        (("nodes", 0, "zone_forms"), ["block", "block"], "nodes[0].zone_forms"),
        (("nodes", 0, "managers"), {"container": None}, "nodes[0].managers.container"),
        (("nodes", 0, "used_form"), "auto", "nodes[0].used_form"),
        (("nodes", 0, "cpu_milli"), -1, "nodes[0].cpu_milli"),
        (("nodes", 0, "host_memory_mib"), 2**50, "nodes[0].host_memory_mib"),
        (("nodes", 0, "cards", 1, "memory_mib"), 0, "nodes[0].cards[1].memory_mib"),
        (("nodes", 0, "cards", 1, "busy"), [[0, 4, 8]], "nodes[0].cards[1].busy[0]"),
        (("nodes", 0, "cards", 1, "busy"), [[0, 4], [2, 6]], "nodes[0].cards[1].busy[1]"),
        (("nodes", 0, "cards", 1, "busy"), [[4, 4]], "nodes[0].cards[1].busy[0]"),
        (("nodes", 0, "cards", 1, "busy"), [[0, 17]], "nodes[0].cards[1].busy[0]"),
        (("nodes", 0, "cards", 1, "compute_busy"), [[-1, 17]], "nodes[0].cards[1].compute_busy[0]"),
        (("nodes", 1, "links"), [[200, 999, 1]], "nodes[1].links[0]"),
        (("nodes", 1, "links"), [[200, 201]], "nodes[1].links[0]"),
        (("nodes", 1, "links"), [[200, 201, -1]], "nodes[1].links[0][2]"),
        (("nodes", 1, "id"), 1, "nodes"),
        (("nodes", 1, "cards", 0, "id"), 100, "nodes"),
        (("jobs", 0, "asks"), [], "jobs[0].asks"),
        (("jobs", 0, "asks", 0, "nodes"), 0, "jobs[0].asks[0].nodes"),
        (("jobs", 0, "asks", 0, "form"), "gang", "jobs[0].asks[0].form"),
        (("jobs", 0, "asks", 0, "cards_per_node"), -1, "jobs[0].asks[0].cards_per_node"),
        (("jobs", 0, "asks", 0, "memory_mib"), "4", "jobs[0].asks[0].memory_mib"),
        (("jobs", 0, "asks", 1, "after_s"), -60, "jobs[0].asks[1].after_s"),
        (("jobs", 0, "asks", 0, "compute_milli"), 1001, "jobs[0].asks[0].compute_milli"),
        (("jobs", 0, "submitted_at"), float("inf"), "jobs[0].submitted_at"),
        (("reserves", 0, "mib"), -1, "reserves[0].mib"),
    ],
)
def test_a_broken_snapshot_is_refused_by_the_name_of_its_field(path: tuple[Any, ...], value: Any, field: str) -> None:
    data = through_text(to_json(SMALL))
    at: Any = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ValueError, match=f"^{re.escape(field)}: "):
        from_json(data)


def test_a_missing_field_is_named() -> None:
    data = through_text(to_json(SMALL))
    del data["jobs"][0]["asks"][1]["form"]
    with pytest.raises(ValueError, match=r"^jobs\[0\]\.asks\[1\]\.form: missing$"):
        from_json(data)


@pytest.mark.parametrize("data", [None, [], "text", 3, {}])
def test_something_else_than_a_snapshot_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"^(the document|format): "):
        from_json(data)


def test_a_broken_plan_is_refused_by_the_name_of_its_field() -> None:
    data = through_text(plan_to_json(plan(SMALL)))
    data["placements"][0]["members"][0]["shares"][1]["memory"] = [[4, 2]]
    with pytest.raises(ValueError, match=r"^placements\[0\]\.members\[0\]\.shares\[1\]\.memory\[0\]: "):
        plan_from_json(data)
    with pytest.raises(ValueError, match=r"^format: "):
        plan_from_json(to_json(SMALL))
