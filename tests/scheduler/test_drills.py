"""Drills: from the plan to the verdict, what is measured and what is not, aborted anywhere, crashed anywhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models import F

from ledger import case_steps, cases, holds
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AgentOrder, AuditEvent, Card, Case, Hold, Node
from ledger.vocabulary import CaseState, Form, Need
from scheduler import drill_alerts, drill_probe, drill_verdict, drills, placing, service
from scheduler.drill_rows import AvoidedBy, Drill, DrillState, DrillVerdict
from scheduler.drill_verdict import Said
from scheduler.drills import Targets
from tests import factories
from tests.scheduler import flow, out

pytestmark = pytest.mark.django_db
CHANNEL = "alertmanager"


class Alerts:
    """Stands in for the alerts of the portal: one channel, which is told when the test says so."""

    def __init__(self) -> None:
        self.channels = frozenset({drill_alerts.PAGES, CHANNEL})
        self.sent: dict[int, dt.datetime] = {}

    def deliveries(self, hold_id: int) -> list[tuple[str, dt.datetime | None, str]]:
        at = self.sent.get(hold_id)
        return [(channel, at, "sent") for channel in self.channels] if at else []

    def tell(self, drill: Drill) -> None:
        drill.refresh_from_db()
        assert drill.hold_id is not None
        self.sent[drill.hold_id] = database_now()


@pytest.fixture
def alerts(world: None, monkeypatch: pytest.MonkeyPatch) -> Alerts:
    found = Alerts()
    monkeypatch.setattr(drill_alerts, "deliveries", found.deliveries)
    monkeypatch.setattr(drill_alerts, "awaited", lambda hold_id: found.channels)
    return found


@pytest.fixture(autouse=True)
def world(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SIMULATED_SERVICE_S = 0
    out.without_alerts(monkeypatch)
    flow.world(nodes=2, cards=2)


def card() -> Card:
    return Card.objects.get(uuid="n1-card-0")


def plan(**values: Any) -> Drill:
    return drills.plan_drill(**{"act": out.operator("monthly drill"), "card": card()} | values)


def turn(drill: Drill, times: int = 1) -> Drill:
    for _ in range(times):
        drills.advance_all()
        service.advance_all()
    return Drill.objects.select_related("case", "hold").get(pk=drill.pk)


def open_holds() -> int:
    return Hold.objects.filter(period__upper_inf=True).count()


def said(drill: Drill) -> dict[str, str]:
    return {line["what"]: line["said"] for line in drill.lines}


class TestAWholeDrill:
    @pytest.mark.parametrize("of", ["card", "node"])
    def test_held_avoided_told_tested_and_back_with_times(self, alerts: Alerts, of: str) -> None:
        place = {"card": card()} if of == "card" else {"card": None, "node": Node.objects.get(hostname="n1")}
        drill = turn(plan(**place))
        assert (drill.state, drill.hold.rule) == (DrillState.OUT, f"drill/{drill.pk}")
        assert (drill.avoided_by, drill.alerted, drill.case.done_at) == (AvoidedBy.PROBE, {}, None)
        alerts.tell(drill)
        drill = turn(drill, 4)
        assert (drill.state, drill.verdict) == (DrillState.ENDED, DrillVerdict.PASSED)
        assert said(drill) == dict.fromkeys(("hold", "avoid", "alert", "test", "return"), "held")
        times = [drill.started_at, drill.held_at, drill.avoided_at, drill.tested_at, drill.returned_at]
        assert times == sorted(times)
        assert open_holds() == 0
        assert Case.objects.get().state == CaseState.RETURNED

    def test_the_place_gets_no_work_while_it_is_out_and_does_after(self, alerts: Alerts) -> None:
        Node.objects.get(hostname="n2").zone_periods.all().delete()
        drill = turn(plan(card=None, node=Node.objects.get(hostname="n1")))
        factories.job()
        assert placing.place_queued()["placed"] == 0
        alerts.tell(drill)
        turn(drill, 4)
        assert placing.place_queued()["placed"] == 1
        assert drill_probe.broken(Drill.objects.get()) == 0

    def test_a_real_placement_elsewhere_counts_where_it_came_first(
        self, alerts: Alerts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(drill_probe, "look", lambda drill: None)
        drill = turn(plan())
        assert drill.avoided_at is None
        job = factories.job()
        placing.place_queued()
        drill = turn(drill)
        assert (drill.avoided_by, f"job {job.pk}" in drill.avoided) == (AvoidedBy.PLACEMENT, True)

    def test_a_job_that_could_never_run_there_shows_nothing(
        self, alerts: Alerts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        factories.node("n3", cards=1, model="H100")
        drill = turn(plan())
        Drill.objects.update(avoided_at=None, avoided_by="", avoided="")
        monkeypatch.setattr(drill_probe, "look", lambda drill: None)
        factories.job(asks=[{"form": "container", "memory_mib": 64, "model": "H100"}])
        placing.place_queued()
        assert turn(drill).avoided_at is None

    def test_a_real_node_waits_for_its_agent(self, alerts: Alerts) -> None:
        factories.node("real", cards=1, simulated=False, driver="local")
        drill = turn(plan(card=Card.objects.get(uuid="real-card-0")))
        alerts.tell(drill)
        drill = turn(drill, 3)
        assert (drill.state, AgentOrder.objects.get().sent_at) == (DrillState.RETURNING, None)
        assert out.tell() == ["burn_in"]
        assert turn(drill, 2).verdict == DrillVerdict.PASSED


class TestWhatIsNotAsItShould:
    def test_without_a_channel_the_alert_is_not_measured(self) -> None:
        drill = turn(plan(), 5)
        assert (drill.verdict, said(drill)["alert"]) == (DrillVerdict.PARTLY, "not_measured")
        assert next(line for line in drill.lines if line["what"] == "alert")["why"] == "no channel"

    def test_an_alert_that_stands_on_the_pages_alone_is_not_told_to_anybody(self, alerts: Alerts) -> None:
        alerts.channels = frozenset({drill_alerts.PAGES})
        drill = turn(plan())
        alerts.tell(drill)
        drill = turn(drill, 4)
        assert drill.verdict == DrillVerdict.PARTLY
        assert [(line["channel"], line["said"]) for line in drill.lines if line["what"] == "alert"] == [
            ("pages", "held"), ("", "not_measured"),
        ]  # fmt: skip

    def test_an_alert_that_never_comes_is_missed_after_its_time(self, alerts: Alerts) -> None:
        drill = turn(plan(), 3)
        assert drill.state == DrillState.OUT
        Drill.objects.update(held_at=F("held_at") - dt.timedelta(seconds=121))
        drill = turn(drill, 4)
        assert (drill.verdict, said(drill)["alert"]) == (DrillVerdict.FAILED, "missed")

    def test_a_channel_that_was_late_is_missed(self, alerts: Alerts) -> None:
        drill = turn(plan(targets=Targets(5, 5, 0.001, 3600)))
        alerts.tell(drill)
        drill = turn(drill, 4)
        assert (drill.verdict, said(drill)["alert"]) == (DrillVerdict.FAILED, "missed")

    def test_a_test_that_fails_fails_the_drill_and_the_place_stays_out(self, alerts: Alerts) -> None:
        factories.node("real", cards=1, simulated=False, driver="local")
        drill = turn(plan(card=Card.objects.get(uuid="real-card-0")))
        alerts.tell(drill)
        for _ in range(2):
            turn(drill, 2)
            out.tell(ok=False, detail="memory differs")
        drill = turn(drill, 2)
        assert (drill.verdict, drill.case.state, open_holds()) == (DrillVerdict.FAILED, CaseState.FAILED, 1)
        assert "memory differs" in drill.note

    def test_a_fault_in_between_ends_the_drill_and_its_case_goes_on(self, alerts: Alerts) -> None:
        drill = turn(plan())
        out.case(card(), need=Need.REPLACEMENT, by_hand=True)
        drill = turn(drill)
        assert (drill.verdict, drill.hold.period.upper_inf) == (DrillVerdict.ABORTED, False)
        assert Case.objects.get().ended_at is None
        assert open_holds() == 1

    def test_work_refuses_it_unless_it_may_drain(self, alerts: Alerts) -> None:
        job = factories.job(asks=[{"form": "container", "cards_per_node": 2}])
        flow.start(job)
        busy = Card.objects.filter(shares__period__upper_inf=True).first()
        with pytest.raises(Refused) as refused:
            plan(card=busy)
        assert refused.value.field == "drain"
        drill = turn(plan(card=busy, drain=True))
        alerts.tell(drill)
        Drill.objects.update(held_at=F("held_at") - dt.timedelta(seconds=11))
        drill = turn(drill, 3)
        assert (drill.state, drill.case.state) == (DrillState.RETURNING, CaseState.WAITING)
        flow.run_on()
        flow.finish(job)
        drill = turn(drill, 4)
        assert drill.state == DrillState.ENDED
        assert job.attempts.get().outcome == "succeeded"

    def test_what_is_out_already_has_no_drill(self) -> None:
        drill = plan()
        with pytest.raises(Conflict, match="has a drill already"):
            plan()
        out.case(Card.objects.get(uuid="n1-card-1"))
        with pytest.raises(Conflict, match="out of the pool already"):
            plan(card=Card.objects.get(uuid="n1-card-1"))
        out.case(card())  # between plan and start
        drill = turn(drill)
        assert (drill.verdict, drill.hold) == (DrillVerdict.ABORTED, None)

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"due_at": dt.datetime(2999, 1, 1, tzinfo=dt.UTC)}, "due_at"),
            ({"targets": Targets(0, 1, 1, 1)}, "hold_s"),
            ({"targets": Targets(1, 1, 1, float("nan"))}, "return_s"),
            ({"targets": Targets(1, -1, 1, 1)}, "avoid_s"),
            ({"act": Act(None, "test", "")}, "reason"),
            ({"card": None}, "node"),
        ],
    )
    def test_odd_plans_are_refused_by_field(self, values: dict[str, Any], field: str) -> None:
        with pytest.raises(Refused) as refused:
            plan(**values)
        assert refused.value.field == field
        assert not Drill.objects.exists()

    def test_only_operators_plan_and_abort(self) -> None:
        drill = plan()
        stranger = Act(factories.user("researcher"), "test", "fun")
        with pytest.raises(Forbidden):
            plan(act=stranger, card=Card.objects.get(uuid="n1-card-1"))
        with pytest.raises(Forbidden):
            drills.abort_drill(drill_id=drill.pk, act=stranger)

    def test_one_that_is_not_due_waits(self) -> None:
        drill = plan(due_at=database_now() + dt.timedelta(hours=1))
        assert turn(drill).state == DrillState.PLANNED
        Drill.objects.update(due_at=database_now() - dt.timedelta(seconds=60))
        drill = turn(drill)
        assert drill.started_at == drill.due_at
        assert drill_verdict.lines(drill)[0].said == Said.MISSED  # a minute late is told


class TestAborted:
    @pytest.mark.parametrize("turns", range(4))
    def test_anywhere_nothing_is_left_behind(self, alerts: Alerts, turns: int) -> None:
        factories.node("real", cards=1, simulated=False, driver="local")  # whose test waits for an agent
        drill = plan(card=Card.objects.get(uuid="real-card-0"))
        for number in range(turns):
            turn(drill)
            if number:
                alerts.tell(drill)
        drills.abort_drill(drill_id=drill.pk, act=out.operator("enough"))
        drill.refresh_from_db()
        assert (drill.state, drill.verdict, drill.note) == (DrillState.ENDED, DrillVerdict.ABORTED, "enough")
        assert open_holds() == 0
        assert not Case.objects.filter(ended_at=None).exists()
        assert not AgentOrder.objects.filter(ended_at=None).exists()
        assert turn(drill, 2).verdict == DrillVerdict.ABORTED
        with pytest.raises(Conflict):
            drills.abort_drill(drill_id=drill.pk, act=out.operator())

    def test_a_person_who_ends_the_hold_aborts_the_drill(self, alerts: Alerts) -> None:
        drill = turn(plan())
        actor = out.operator().actor
        holds.end_one(hold=drill.hold, reason="needed", actor=actor, via="test")  # type: ignore[arg-type]
        drill = turn(drill, 2)
        assert (drill.verdict, Case.objects.get().state) == (DrillVerdict.ABORTED, CaseState.ABORTED)


class Crash(Exception):
    pass


def _crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each writer in turn dies once, just before and just after what it does."""
    for module, name in (
        (drills, "hold_inside"),
        (cases, "open_inside"),
        (drills, "_write"),
        (case_steps, "go_on_inside"),
        (cases, "move_inside"),
        (cases, "return_inside"),
        (drills, "_end"),
    ):
        for after in (False, True):
            real, hits = getattr(module, name), [0]

            def dying(*args: Any, _real: Any = real, _hits: list[int] = hits, _after: bool = after, **kw: Any) -> Any:
                _hits[0] += 1
                result = _real(*args, **kw) if _after or _hits[0] > 1 else None
                if _hits[0] == 1:
                    raise Crash
                return result

            with monkeypatch.context() as patch:
                patch.setattr(module, name, dying)
                yield f"{name} {'after' if after else 'before'}"
                assert hits[0], f"{name} was never called"


def test_a_drill_that_dies_anywhere_comes_to_its_end_all_the_same(
    alerts: Alerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in _crashes(monkeypatch):
        drill = plan()
        turn(drill, 2)
        drill.refresh_from_db()
        if drill.hold_id:
            alerts.tell(drill)
        drill = turn(drill, 6)
        assert drill.verdict == DrillVerdict.PASSED, (where, drill.state, drill.lines)
        assert open_holds() == 0, where
        assert Hold.objects.filter(rule=f"drill/{drill.pk}").count() == 1, where
        assert AuditEvent.objects.filter(verb="drill.ended", target_id=str(drill.pk)).count() == 1, where


def test_nothing_is_offered_by_a_place_that_takes_nothing(alerts: Alerts) -> None:
    zone = factories.zone("whole", [Form.WHOLE])
    factories.node("w1", cards=2, in_zone=zone)
    drill = turn(plan(card=Card.objects.get(uuid="w1-card-0")))
    assert drill.probe["form"] == "whole"
    Node.objects.filter(hostname="w1").update(state="offline")
    Hold.objects.filter(card__uuid="w1-card-1").delete()
    assert (
        drill_probe.offer(Drill(node=Node.objects.get(hostname="w1"), planned_at=database_now(), simulated=True))
        is None
    )
