"""Zone plans: idle nodes move at once, busy ones drain, cancel, undo, the window."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import OperationalError

from ledger import inventory
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Allocation, AuditEvent, Hold, Node, NodeZone, Zone
from ledger.vocabulary import Form, HoldKind
from scheduler import placing, tasks, zones
from scheduler.models import MoveState, PlanState, TaskRun, ZoneMove, ZonePlan
from scheduler.zone_proposals import (
    propose_undo,
)
from tests import factories
from tests.scheduler import flow
from tests.scheduler.zone_tools import busy, end, lay_out, plan_of, ratio, refusal, states, to, where

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> dict[str, Zone]:
    return lay_out()


class TestCarryingOut:
    def test_idle_nodes_move_at_once_and_the_plan_ends(self, fleet: dict[str, Zone]) -> None:
        plan = plan_of(to(fleet["b"], "n1", "n2"))
        assert (plan.state, where()) == (PlanState.DONE, {"n1": "b", "n2": "b", "n3": "a", "n4": "a"})
        assert not Hold.objects.exists()

    def test_the_new_period_begins_where_the_old_one_ends(self, fleet: dict[str, Zone]) -> None:
        plan_of(to(fleet["b"], "n1"))
        old, new = NodeZone.objects.filter(node__hostname="n1").order_by("period")
        assert (old.zone.slug, new.zone.slug) == ("a", "b")
        assert old.period.upper == new.period.lower

    def test_a_busy_node_drains_and_moves_when_it_is_empty(self, fleet: dict[str, Zone]) -> None:
        job = busy("n1")
        plan = plan_of(to(fleet["b"], "n1", "n2"))
        hold = Hold.objects.get(kind=HoldKind.DRAIN, period__upper_inf=True)
        assert (plan.state, states(plan)) == (PlanState.RUNNING, {"n1": "draining", "n2": "moved"})
        assert (hold.node.hostname, hold.rule, hold.by) == ("n1", f"zone-plan/{plan.pk}", plan.by)
        assert (zones.advance_all(), where()["n1"]) == ({"plans": 1}, "a")
        end(job)
        assert zones.advance_all() == {"plans": 1, "moved": 1}
        plan.refresh_from_db()
        assert (plan.state, where()["n1"]) == (PlanState.DONE, "b")
        assert not Hold.objects.filter(period__upper_inf=True).exists()

    def test_looking_again_changes_nothing(self, fleet: dict[str, Zone]) -> None:
        busy("n1")
        plan_of(to(fleet["b"], "n1"))
        before = (Hold.objects.count(), NodeZone.objects.count(), AuditEvent.objects.count())
        for _ in range(3):
            zones.advance_all()
        assert (Hold.objects.count(), NodeZone.objects.count(), AuditEvent.objects.count()) == before

    def test_a_closing_allocation_still_counts(self, fleet: dict[str, Zone]) -> None:
        busy("n1")
        Allocation.objects.update(state="closing", closing_at=database_now())
        assert states(plan_of(to(fleet["b"], "n1"))) == {"n1": "draining"}

    test_a_closing_allocation_still_counts = pytest.mark.breaks_books(test_a_closing_allocation_still_counts)

    def test_jobs_find_the_node_in_its_new_zone(self, fleet: dict[str, Zone]) -> None:
        job = flow.long_job(asks=[{"form": "whole", "cards_per_node": 0}])
        assert placing.place_queued()["placed"] == 0
        plan_of(to(fleet["b"], "n1"))
        assert placing.place_queued()["placed"] == 1
        taken = Allocation.objects.get(attempt__job=job)
        assert (taken.node.hostname, taken.zone_then) == ("n1", fleet["b"])

    def test_a_node_registered_for_one_form_can_deliver_those_of_its_new_zone(self, fleet: dict[str, Zone]) -> None:
        Node.objects.update(managers={"container": "simulated"})
        plan_of(to(fleet["b"], "n1"))
        managers = Node.objects.get(hostname="n1").managers
        assert managers == {"container": "simulated", "whole": "simulated"}
        assert AuditEvent.objects.get(verb="node.zone.moved").after == {
            "zone": "b",
            "managers": {"whole": "simulated"},
        }

    def test_a_node_with_two_drivers_keeps_what_it_has(self, fleet: dict[str, Zone]) -> None:
        Node.objects.update(managers={"container": "simulated", "block": "local"})
        plan_of(to(fleet["b"], "n1"))
        assert "whole" not in Node.objects.get(hostname="n1").managers

    def test_a_hold_of_a_person_outlives_the_move(self, fleet: dict[str, Zone]) -> None:
        node = Node.objects.get(hostname="n1")
        hold = inventory.place_hold(kind=HoldKind.DRAIN, reason="x", actor=None, via="test", node=node)
        plan = plan_of(to(fleet["b"], "n1"))
        hold.refresh_from_db()
        assert (plan.state, hold.period.upper_inf) == (PlanState.DONE, True)

    def test_a_drain_that_somebody_ended_is_placed_again(self, fleet: dict[str, Zone]) -> None:
        busy("n1")
        node = Node.objects.get(hostname="n1")
        mine = inventory.place_hold(kind=HoldKind.DRAIN, reason="x", actor=None, via="test", node=node)
        plan = plan_of(to(fleet["b"], "n1"))
        assert plan.moves.get().hold is None
        inventory.end_hold(hold_id=mine.pk, reason="x", actor=None, via="test")
        zones.advance(plan.pk)
        assert plan.moves.get().hold == Hold.objects.get(period__upper_inf=True)

    def test_the_drain_of_a_plan_is_not_returned_by_hand(self, fleet: dict[str, Zone]) -> None:
        busy("n1")
        hold = plan_of(to(fleet["b"], "n1")).moves.get().hold
        assert hold is not None
        with pytest.raises(Conflict, match="cancel the plan"):
            inventory.end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")

    def test_a_node_that_left_the_fleet_or_the_zone_is_dropped(self, fleet: dict[str, Zone]) -> None:
        job, other = busy("n1"), busy("n2")
        plan = plan_of(to(fleet["b"], "n1", "n2"))
        Node.objects.filter(hostname="n1").update(state="retired")
        NodeZone.objects.filter(node__hostname="n2").update(zone=fleet["c"])
        zones.advance(plan.pk)
        plan.refresh_from_db()
        assert (plan.state, set(states(plan).values())) == (PlanState.DONE, {"dropped"})
        assert not Hold.objects.filter(period__upper_inf=True).exists()
        Node.objects.filter(hostname="n1").update(state="up")
        NodeZone.objects.filter(node__hostname="n2").update(zone=fleet["a"])
        end(job), end(other)

    def test_cut_off_after_any_batch_it_goes_on_where_it_was(
        self, fleet: dict[str, Zone], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(zones, "BATCH", 1)
        real, calls = zones._step, []

        def dies(plan_id: int, move_ids: Sequence[int]) -> Any:
            calls.append(move_ids)
            if len(calls) == 3:
                raise RuntimeError("the worker was killed")
            return real(plan_id, move_ids)

        monkeypatch.setattr(zones, "_step", dies)
        with pytest.raises(RuntimeError):
            plan_of(to(fleet["b"], "n1", "n2", "n3", "n4"))
        assert list(where().values()) == ["b", "b", "a", "a"]
        zones.advance_all()
        assert (list(where().values()), ZonePlan.objects.get().state) == (["b"] * 4, PlanState.DONE)
        assert AuditEvent.objects.filter(verb="node.zone.moved").count() == 4

    def test_the_periodic_task_goes_on_where_the_first_seconds_ended(
        self, fleet: dict[str, Zone], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(zones, "BATCH", 1)
        monkeypatch.setattr(zones, "AT_ONCE_S", -1.0)
        plan = plan_of(to(fleet["b"], "n1", "n2", "n3"))
        assert (plan.state, sorted(states(plan).values())) == (PlanState.RUNNING, ["moved", "planned", "planned"])
        monkeypatch.setattr(tasks, "close_old_connections", lambda: None)  # the test's transaction lives in this one
        assert tasks.move_zones() == {"plans": 1, "moved": 2}
        assert TaskRun.objects.get(name="scheduler.zones").ok
        assert set(where().values()) == {"a", "b"}

    def test_a_lock_that_is_not_to_be_had_leaves_the_plan_to_the_task(
        self, fleet: dict[str, Zone], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def locked(*args: Any) -> Any:
            raise OperationalError("canceling statement due to lock timeout")

        with monkeypatch.context() as patch:
            patch.setattr(zones, "_step", locked)
            plan = plan_of(to(fleet["b"], "n1"))
        assert (plan.state, where()["n1"]) == (PlanState.RUNNING, "a")
        assert zones.advance_all() == {"plans": 1, "moved": 1}

    def test_everything_is_audited(self, fleet: dict[str, Zone]) -> None:
        plan = plan_of(to(fleet["b"], "n1"), reason="more whole machines")
        made, done = (AuditEvent.objects.get(verb=f"zone.plan.{verb}") for verb in ("made", "done"))
        moved = AuditEvent.objects.get(verb="node.zone.moved")
        assert (made.actor, made.reason, made.after["moves"]) == (plan.by, "more whole machines", 1)
        assert (moved.before, moved.after, moved.actor) == ({"zone": "a"}, {"zone": "b"}, plan.by)
        assert done.after == {"state": "done", "moved": 1}


class TestCancelAndUndo:
    def test_cancel_returns_what_drains_and_leaves_what_moved(self, fleet: dict[str, Zone]) -> None:
        busy("n1")
        plan = plan_of(to(fleet["b"], "n1", "n2"))
        zones.cancel_plan(plan_id=plan.pk, reason="too early", actor=plan.by, via="test")
        plan.refresh_from_db()
        assert (plan.state, states(plan)) == (PlanState.CANCELLED, {"n1": "dropped", "n2": "moved"})
        assert (where()["n1"], where()["n2"]) == ("a", "b")
        assert not Hold.objects.filter(period__upper_inf=True).exists()
        assert zones.advance_all() == {}

    def test_an_ended_plan_is_not_cancelled(self, fleet: dict[str, Zone]) -> None:
        plan = plan_of(to(fleet["b"], "n1"))
        with pytest.raises(Conflict, match="ended already"):
            zones.cancel_plan(plan_id=plan.pk, reason="x", actor=plan.by, via="test")

    def test_a_plan_that_moved_nothing_leaves_no_window(self, fleet: dict[str, Zone]) -> None:
        busy("n1")
        plan = plan_of(to(fleet["b"], "n1"))
        zones.cancel_plan(plan_id=plan.pk, reason="x", actor=plan.by, via="test")
        assert plan_of(to(fleet["b"], "n2")).override_reason == ""

    def test_undo_moves_back_what_is_still_there(self, fleet: dict[str, Zone]) -> None:
        plan = plan_of(to(fleet["b"], "n1", "n2"))
        plan_of(to(fleet["c"], "n2"), override_reason="really")
        back = propose_undo(plan)
        undo = plan_of(back, override_reason="it was wrong")
        assert (where()["n1"], where()["n2"], undo.undoes) == ("a", "c", plan)

    def test_undo_refuses_a_running_plan_and_one_with_nothing_left(self, fleet: dict[str, Zone]) -> None:
        job = busy("n1")
        plan = plan_of(to(fleet["b"], "n1"))
        assert refusal(lambda: propose_undo(plan))[1] == "plan_running"
        zones.cancel_plan(plan_id=plan.pk, reason="x", actor=plan.by, via="test")
        plan.refresh_from_db()
        assert refusal(lambda: propose_undo(plan))[1] == "no_change"
        end(job)


class TestWindow:
    def test_a_further_plan_for_the_same_zones_is_refused_with_why_and_until_when(self, fleet: dict[str, Zone]) -> None:
        first = plan_of(to(fleet["b"], "n1"))
        with pytest.raises(Conflict) as caught:
            plan_of(to(fleet["b"], "n2"))
        until = first.window_until.strftime("%Y-%m-%d %H:%M")
        assert (caught.value.field, caught.value.code) == ("override_reason", "observation_window")
        assert f"Plan {first.pk} changed" in str(caught.value)
        assert until in str(caught.value)
        assert first.window_until - first.created_at == dt.timedelta(hours=48)
        assert where()["n2"] == "a"

    def test_an_override_needs_a_reason_of_its_own_which_is_kept(self, fleet: dict[str, Zone]) -> None:
        first = plan_of(to(fleet["b"], "n1"))
        second = plan_of(to(fleet["b"], "n2"), override_reason="a deadline")
        assert second.override_reason == "a deadline"
        after = AuditEvent.objects.get(verb="zone.plan.made", target_id=str(second.pk)).after
        assert (after["overrides"], after["override_reason"]) == ([first.pk], "a deadline")

    def test_an_override_without_a_window_is_not_kept(self, fleet: dict[str, Zone]) -> None:
        assert plan_of(to(fleet["b"], "n1"), override_reason="just so").override_reason == ""

    def test_other_zones_are_free(self, fleet: dict[str, Zone]) -> None:
        far = [factories.zone(slug) for slug in ("y", "z")]
        factories.node("far", in_zone=far[0])
        plan_of(to(fleet["b"], "n1"))
        assert plan_of(to(far[1], "far")).state == PlanState.DONE

    def test_real_and_simulated_plans_do_not_watch_each_other(self, fleet: dict[str, Zone]) -> None:
        factories.node("r1", simulated=False, in_zone=fleet["a"], driver="local")
        plan_of(to(fleet["b"], "n1"))
        assert plan_of(to(fleet["b"], "r1")).state == PlanState.DONE

    def test_after_the_window_all_is_free(self, fleet: dict[str, Zone], settings: Any) -> None:
        settings.ZONE_WINDOW_HOURS = 0.0
        plan_of(to(fleet["b"], "n1"))
        assert plan_of(to(fleet["b"], "n2")).state == PlanState.DONE

    def test_a_window_that_began_after_the_preview_is_a_conflict_even_with_an_override(
        self, fleet: dict[str, Zone]
    ) -> None:
        mine = to(fleet["b"], "n2")
        plan_of(to(fleet["b"], "n1"))
        with pytest.raises(Conflict, match="since the preview"):
            plan_of(mine, override_reason="mine first")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_fleet_and_load_a_plan_ends_and_no_node_moves_under_work(seed: int, settings: Any) -> None:
    """Random fleets, jobs that come and go, plans by list and ratio, some cancelled or undone. At the end every node is
    in exactly one zone at each instant, none changed it while it was allocated, and every plan has ended."""
    settings.ZONE_WINDOW_HOURS = 0.0
    draw = random.Random(seed)
    made = [factories.zone("a", [Form.CONTAINER]), factories.zone("b", [Form.WHOLE]), factories.zone("c")]
    flow.world(nodes=0)
    for number in range(draw.randint(3, 8)):
        factories.node(f"n{number}", cards=draw.choice([0, 1, 2, 4]), in_zone=draw.choice(made))
    jobs: list[Any] = []
    while not ZonePlan.objects.exists():
        _some_plan(draw, made)
    for _ in range(25):
        match draw.randrange(6):
            case 0 | 1:
                form = draw.choice(["container", "whole"])
                jobs.append(flow.long_job(asks=[{"form": form, "cards_per_node": draw.choice([0, 1, 2])}]))
            case 2:
                flow.turn()
            case 3:
                _some_plan(draw, made)
            case 4:
                flow.run_on()
                flow.turn()
            case _:
                _cancel_or_undo(draw)
        zones.advance_all()
        _nothing_moved_under_work()
    for _ in range(60):
        flow.turn()
        flow.run_on()
        if not zones.advance_all() and not Allocation.objects.filter(period__upper_inf=True).exists():
            break
    assert not ZonePlan.objects.filter(state=PlanState.RUNNING).exists()
    assert not Hold.objects.filter(period__upper_inf=True).exists()
    assert ZoneMove.objects.filter(state__in=[MoveState.PLANNED, MoveState.DRAINING]).count() == 0
    assert not [job for job in jobs if flow.open_allocations(job)]
    _nothing_moved_under_work()
    _no_gap_in_membership()


def _some_plan(draw: random.Random, made: list[Zone]) -> None:
    names = list(Node.objects.values_list("hostname", flat=True))
    try:
        if draw.random() < 0.5:
            proposal = to(draw.choice(made), *draw.sample(names, draw.randint(1, len(names))))
        else:
            proposal = ratio(wanted={zone.slug: draw.randint(0, len(names)) for zone in draw.sample(made, 2)})
        plan_of(proposal, override_reason="again")
    except Refused:
        return


def _cancel_or_undo(draw: random.Random) -> None:
    plans = list(ZonePlan.objects.all())
    if not plans:
        return
    plan = draw.choice(plans)
    try:
        if plan.state == PlanState.RUNNING:
            zones.cancel_plan(plan_id=plan.pk, reason="x", actor=plan.by, via="test")
        else:
            plan_of(propose_undo(plan), override_reason="back")
    except Refused:
        return


def _nothing_moved_under_work() -> None:
    """Every allocation lies in one membership of its node, and that is the zone which it names."""
    for allocation in Allocation.objects.all():
        around = NodeZone.objects.filter(node=allocation.node, period__overlap=allocation.period)
        assert [membership.zone_id for membership in around] == [allocation.zone_then_id]


def _no_gap_in_membership() -> None:
    for node in Node.objects.all():
        periods = [m.period for m in NodeZone.objects.filter(node=node).order_by("period")]
        assert periods[-1].upper_inf
        assert all(one.upper == two.lower for one, two in zip(periods, periods[1:], strict=False))
