"""What zone plans propose by list and by ratio, and what they refuse, each time naming the field."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger import inventory
from ledger.errors import Forbidden
from ledger.models import Node, Zone
from ledger.vocabulary import HoldKind, SiteRole
from scheduler import zones
from scheduler.models import ZonePlan
from scheduler.zone_proposals import (
    effect,
    expected_ends,
    members,
)
from tests import factories
from tests.scheduler.zone_tools import busy, end, lay_out, plan_of, ratio, refusal, states, to, where

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> dict[str, Zone]:
    return lay_out()


class TestRefusals:
    @pytest.mark.parametrize("reason", ["", "   ", "x" * 501, "x" * 10_000])
    def test_a_reason_that_is_not_right(self, fleet: dict[str, Zone], reason: str) -> None:
        proposal = to(fleet["b"], "n1")
        assert refusal(lambda: plan_of(proposal, reason=reason)) == ("reason", "reason")
        assert not ZonePlan.objects.exists()

    def test_an_override_reason_that_is_not_right(self, fleet: dict[str, Zone]) -> None:
        plan_of(to(fleet["b"], "n1"))
        proposal = to(fleet["b"], "n2")
        assert refusal(lambda: plan_of(proposal, override_reason="x" * 501)) == ("override_reason", "reason")

    @pytest.mark.parametrize("role", [role for role in SiteRole if role != SiteRole.ADMIN])
    def test_only_admins_plan(self, fleet: dict[str, Zone], role: SiteRole) -> None:
        somebody = factories.user("somebody", role)
        proposal = to(fleet["b"], "n1")
        with pytest.raises(Forbidden):
            plan_of(proposal, actor=somebody)
        plan = plan_of(proposal)
        with pytest.raises(Forbidden):
            zones.cancel_plan(plan_id=plan.pk, reason="x", actor=somebody, via="test")

    def test_lists(self, fleet: dict[str, Zone]) -> None:
        factories.node("r1", simulated=False, in_zone=fleet["a"])
        Node.objects.filter(hostname="n4").update(state="retired")
        assert refusal(lambda: to(fleet["b"])) == ("nodes", "empty")
        assert refusal(lambda: to(fleet["b"], "n1", "nowhere")) == ("nodes", "unknown_node")
        assert refusal(lambda: to(fleet["b"], "n1", "r1")) == ("nodes", "worlds")
        assert refusal(lambda: to(fleet["a"], "n1", "n2")) == ("nodes", "no_change")
        assert refusal(lambda: to(fleet["b"], "n4")) == ("nodes", "node_not_movable")

    def test_a_node_of_a_running_plan_is_in_no_second_one(self, fleet: dict[str, Zone]) -> None:
        proposal = to(fleet["b"], "n1")
        job = busy("n1")
        plan_of(proposal)
        assert refusal(lambda: to(fleet["c"], "n1")) == ("nodes", "node_not_movable")
        end(job)

    @pytest.mark.parametrize(
        ("wanted", "percent", "expected"),
        [
            ({}, False, ("targets", "empty")),
            ({"b": 10**9}, False, ("zone-b", "too_many")),
            ({"b": 5}, False, ("zone-b", "too_many")),
            ({"b": -1}, False, ("zone-b", "negative")),
            ({"b": -1}, True, ("zone-b", "negative")),
            ({"a": 0}, False, ("zone-a", "empties_zone")),
            ({"a": 60, "b": 50}, True, ("targets", "over_100")),
            ({"a": 3, "b": 3}, False, ("targets", "sum")),
            ({"a": 1, "b": 1, "c": 1}, False, ("targets", "sum")),
            ({"a": 4}, False, ("targets", "no_change")),
            ({"a": 2}, False, ("targets", "left_over")),
        ],
    )
    def test_ratios(self, fleet: dict[str, Zone], wanted: Any, percent: bool, expected: tuple[str, str]) -> None:
        assert refusal(lambda: ratio(wanted=wanted, percent=percent)) == expected

    def test_a_world_or_model_without_nodes(self, fleet: dict[str, Zone]) -> None:
        assert refusal(lambda: ratio(wanted={"b": 1}, simulated=False)) == ("model", "no_nodes")
        assert refusal(lambda: ratio(wanted={"b": 1}, model="T4")) == ("model", "no_nodes")


class TestRatio:
    def test_numbers_are_reached(self, fleet: dict[str, Zone]) -> None:
        plan_of(ratio(wanted={"a": 1, "b": 2, "c": 1}))
        assert sorted(where().values()) == ["a", "b", "b", "c"]

    def test_percent_is_rounded_so_that_all_nodes_are_somewhere(self, fleet: dict[str, Zone]) -> None:
        for number in range(5, 8):
            factories.node(f"n{number}", in_zone=fleet["a"])
        plan_of(ratio(wanted={"a": 33, "b": 33, "c": 34}, percent=True))
        assert sorted(where().values()) == ["a", "a", "b", "b", "c", "c", "c"]

    def test_a_zone_without_a_target_gives_and_takes(self, fleet: dict[str, Zone]) -> None:
        plan_of(ratio(wanted={"b": 2, "c": 1}))
        assert sorted(where().values()) == ["a", "b", "b", "c"]
        plan_of(ratio(wanted={"b": 1, "c": 1}), override_reason="x")
        assert sorted(where().values()) == ["a", "a", "b", "c"]

    def test_idle_nodes_go_first_then_those_that_free_earliest(self, fleet: dict[str, Zone]) -> None:
        late, soon = busy("n1", walltime_s=7200), busy("n2", walltime_s=600)
        node = Node.objects.get(hostname="n3")
        inventory.place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", node=node)
        order = sorted(members(simulated=True), key=lambda member: member.preference)
        assert [member.node.hostname for member in order] == ["n4", "n3", "n2", "n1"]
        plan = plan_of(ratio(wanted={"b": 3}))
        assert states(plan) == {"n4": "moved", "n3": "moved", "n2": "draining"}
        end(soon), end(late)

    def test_only_nodes_of_the_model_are_counted_and_moved(self, fleet: dict[str, Zone]) -> None:
        factories.node("h1", model="H100", in_zone=fleet["a"])
        factories.node("h2", model="H100", in_zone=fleet["a"])
        plan_of(ratio(wanted={"b": 50}, percent=True, model="H100"))
        assert [name for name, zone in where().items() if zone == "b"] == ["h1"]

    def test_nodes_on_their_way_count_where_they_go(self, fleet: dict[str, Zone]) -> None:
        job = busy("n1")
        plan_of(to(fleet["b"], "n1"))
        assert refusal(lambda: ratio(wanted={"b": 1})) == ("targets", "no_change")
        proposal = ratio(wanted={"b": 2})
        assert len(proposal.moves) == 1
        end(job)

    def test_the_effect_is_counted_by_zone_and_form(self, fleet: dict[str, Zone]) -> None:
        counted = effect(to(fleet["b"], "n1", "n2", "n3"), list(Zone.objects.order_by("slug")))
        assert [(row["zone"].slug, row["nodes_before"], row["nodes_after"]) for row in counted["zones"]] == [
            ("a", 4, 1),
            ("b", 0, 3),
            ("c", 0, 0),
        ]
        assert [(row["form"], row["cards_before"], row["cards_after"]) for row in counted["forms"]] == [
            ("container", 8, 2),
            ("block", 0, 0),
            ("whole", 0, 6),
        ]

    def test_the_expected_end_is_the_latest_time_limit(self, fleet: dict[str, Zone]) -> None:
        job = busy("n1", walltime_s=3600)
        node = Node.objects.get(hostname="n1")
        assert job.started_at is not None
        assert expected_ends([node.pk]) == {node.pk: job.started_at + dt.timedelta(hours=1)}
