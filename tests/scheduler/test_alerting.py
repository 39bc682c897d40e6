"""Alerts: pending, firing, over; one a thing; what can't be read stays as it is; the number of queries stays, too."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.clock import database_now
from ledger.inventory import end_hold, place_hold
from ledger.models import Card, CardStatus, Fault, Job, Node
from ledger.vocabulary import HoldKind
from scheduler import alert_metrics, alerting, tasks
from scheduler.alert_metrics import METRICS, Reach, World
from scheduler.alert_rows import Alert, AlertRule, AlertRung
from scheduler.models import Drift
from tests import factories
from tests.scheduler.alert_world import change, faulty, machine, only, passes, ready, says, states

pytestmark = pytest.mark.django_db


# -- from pending to over ----------------------------------------------------------------------------------------------


def test_what_is_bad_fires_after_its_time_and_is_over_after_its_time() -> None:
    only("temperature-high")  # above 85 for 60 s; good for 120 s
    node, start = machine(), database_now()
    says(node, temperature_c=86)
    assert passes(0, start=start)[0]["began"] == 1
    assert states() == ["pending"]
    passes(59, start=start)
    assert states() == ["pending"]
    assert passes(60, start=start)[0]["fired"] == 1
    assert states() == ["firing"]
    says(node, temperature_c=85)
    passes(65, start=start)
    assert states() == ["firing"]
    passes(184, start=start)
    assert states() == ["firing"]
    assert passes(185, start=start)[0]["over"] == 1
    alert = Alert.objects.get()
    assert (alert.state, alert.ending, alert.value, alert.peak) == ("resolved", "clear", 86, 86)
    assert alert.fired_at == start + dt.timedelta(seconds=60)


def test_one_that_never_fired_leaves_nothing() -> None:
    only("temperature-high")
    node = machine()
    says(node, temperature_c=90)
    passes(0)
    says(node, temperature_c=60)
    assert passes(5)[0]["passed"] == 1
    assert states() == []


def test_one_that_comes_back_within_its_time_is_the_same_one() -> None:
    only("temperature-high")
    node, start = machine(), database_now()
    says(node, temperature_c=90)
    passes(0, 60, start=start)
    says(node, temperature_c=70)
    passes(70, start=start)
    says(node, temperature_c=95)
    passes(100, start=start)
    says(node, temperature_c=70)
    passes(160, start=start)
    alert = Alert.objects.get()
    assert (str(alert.state), alert.peak, alert.clear_since) == ("firing", 95, start + dt.timedelta(seconds=160))


def test_it_may_fire_again_later_as_another_one() -> None:
    only("taken-out")
    card = Card.objects.get(uuid="n1-card-0") if machine() else None
    hold = place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", card=card)
    passes(0)
    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    passes(5)
    place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", card=card)
    passes(10)
    assert states() == ["resolved", "firing"]


def test_passes_that_find_nothing_new_write_nothing() -> None:
    only("temperature-high")
    says(machine(), temperature_c=90)
    start = database_now()
    passes(0, 60, start=start)
    before = Alert.objects.values().get()
    assert passes(62, start=start)[0] == {
        "began": 0,
        "fired": 0,
        "over": 0,
        "passed": 0,
        "messages": 0,
        "rules": 1,
        "unreadable": 0,
    }
    assert Alert.objects.values().get() == before
    passes(100, start=start)
    assert Alert.objects.get().last_seen == start + dt.timedelta(seconds=100)


def test_each_card_has_its_own_alert_and_two_rules_two() -> None:
    only("temperature-high", "temperature-critical")
    node = machine(cards=3)
    for slot, value in enumerate((80, 90, 95)):
        says(node, slot, temperature_c=value)
    passes(0)
    found = sorted(Alert.objects.values_list("rule__key", "labels__card"))
    assert found == [
        ("temperature-critical", "n1-card-2"),
        ("temperature-high", "n1-card-1"),
        ("temperature-high", "n1-card-2"),
    ]


# -- rules that change -------------------------------------------------------------------------------------------------


def test_a_rule_that_is_switched_off_ends_its_alerts() -> None:
    only("taken-out")
    machine()
    place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", card=Card.objects.get(uuid="n1-card-0"))
    passes(0)
    change("taken-out", enabled=False)
    passes(5)
    assert [(str(a.state), a.ending) for a in Alert.objects.all()] == [("resolved", "rule")]


def test_a_selector_leaves_others_alone() -> None:
    only("temperature-high")
    says(machine("n1", in_zone=factories.zone("train")), temperature_c=90)
    says(machine("n2", in_zone=factories.zone("serve")), temperature_c=90)
    change("temperature-high", selector=[["zone", "=", ["serve"]]])
    passes(0)
    assert [alert.labels["node"] for alert in Alert.objects.all()] == ["n2"]


def test_a_rule_of_what_is_low() -> None:
    only("tensor-low")
    node = machine(cards=3)
    says(node, 0, utilisation_pct=95, tensor_pct=1)
    says(node, 1, utilisation_pct=20, tensor_pct=1)  # not busy
    says(node, 2, utilisation_pct=95, tensor_pct=None)  # it doesn't tell
    passes(0)
    assert [alert.labels["card"] for alert in Alert.objects.all()] == ["n1-card-0"]


def test_no_rule_of_the_portal_is_about_high_utilisation_alone() -> None:
    ready()
    assert not AlertRule.objects.filter(metric="utilisation").exists()
    assert {"tensor_active_busy", "memory_bandwidth_busy"} <= set(AlertRule.objects.values_list("metric", flat=True))


def test_rules_and_rungs_that_people_changed_stay_as_they_are() -> None:
    ready()
    change("taken-out", severity="page", threshold=0.5)
    AlertRule.objects.filter(key="drift").delete()
    ready()
    changed = AlertRule.objects.get(key="taken-out")
    assert (changed.severity, changed.threshold, changed.version) == ("page", 0.5, 2)
    assert AlertRule.objects.filter(key="drift").exists()
    assert AlertRung.objects.order_by("position").last().key == "event"  # type: ignore[union-attr]


# -- what can't be read ------------------------------------------------------------------------------------------------


def test_a_metric_that_breaks_leaves_its_alerts_and_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    only("taken-out", "temperature-critical")
    node = machine()
    says(node, temperature_c=99)
    place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", node=node)
    start = database_now()
    passes(0, 10, start=start)
    assert states() == ["firing", "firing"]

    def breaks(_world: World, _reach: Reach) -> list[Any]:
        raise ZeroDivisionError("odd row")

    monkeypatch.setitem(METRICS, "taken_out", breaks)
    says(node, temperature_c=40)
    assert passes(20, 200, start=start)[1]["unreadable"] == 1
    assert states("taken-out") == ["firing"]
    assert states("temperature-critical") == ["resolved"]


def test_what_a_card_said_long_ago_is_not_known() -> None:
    only("temperature-high")
    says(machine(), temperature_c=99)
    CardStatus.objects.update(received_at=database_now() - alert_metrics.FRESH - dt.timedelta(seconds=5))
    passes(0)
    assert states() == []


# -- metrics -----------------------------------------------------------------------------------------------------------


def reads(name: str, above: float | None = 0, below: float | None = None) -> list[tuple[dict[str, str], float]]:
    found = METRICS[name](World(), Reach(above, below))
    return [(reading.labels, round(reading.value, 3)) for reading in found]


def test_values_of_cards() -> None:
    node = machine(in_zone=factories.zone("train"), memory_mib=1_000)
    says(node, temperature_c=70, utilisation_pct=90, tensor_pct=3, memory_busy_pct=4, memory_used_mib=990)
    place = {"node": "n1", "zone": "train", "card": "n1-card-0"}
    assert reads("temperature") == [(place, 70)]
    assert reads("temperature", 70) == []
    assert reads("memory_share", 97) == [(place, 99)]
    assert reads("utilisation") == [(place, 90)]
    assert reads("tensor_active") == reads("tensor_active_busy") == [(place, 3)]
    assert reads("memory_bandwidth_busy", None, 5) == [(place, 4)]
    assert reads("memory_bandwidth_busy", None, 4) == []


def test_faults_and_holds() -> None:
    node = machine(in_zone=factories.zone("train"), cards=2)
    faulty(node, code=79)
    labels = {"node": "n1", "zone": "train", "card": "n1-card-0", "kind": "xid", "code": "79"}
    assert (labels, 1) in reads("open_faults")
    Fault.objects.update(cleared_at=database_now())
    assert reads("open_faults") == []
    hold = place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", card=Card.objects.get(uuid="n1-card-1"))
    place_hold(kind=HoldKind.MAINTENANCE, reason="x", actor=None, via="test", node=node)
    drilled = {"hold": str(hold.pk), "kind": "drill", "node": "n1", "zone": "train", "card": "n1-card-1"}
    assert (drilled, 1) in reads("taken_out")
    assert {labels["kind"] for labels, _value in reads("taken_out")} <= {"drill", "fault"}


def test_agents_that_are_silent() -> None:
    now = database_now()
    for name, seconds, digest in (("quiet", 300, "x"), ("well", 3, "x"), ("none", 300, "")):
        node = machine(name, cards=0)
        Node.objects.filter(pk=node.pk).update(agent_digest=digest, seen_at=now - dt.timedelta(seconds=seconds))
    machine("never", cards=0)
    machine("read", cards=0, dcgm_url="http://n1.lab.example:9400/metrics", seen_at=now - dt.timedelta(seconds=400))
    found = sorted(METRICS["agent_silence"](World(now), Reach(60)), key=lambda reading: reading.value)
    assert [(one.labels["node"], one.value, one.simulated) for one in found] == [
        ("quiet", 300, False),
        ("read", 400, False),
    ]


def test_the_queue_by_kind_and_priority() -> None:
    people = factories.cast()
    for kind, priority, seconds in (("inference", 60, 700), ("inference", 60, 900), ("training", 0, 100)):
        job = factories.job(people["researcher"], kind=kind, priority=priority)
        moment = database_now() - dt.timedelta(seconds=seconds)
        Job.objects.filter(pk=job.pk).update(queued_at=moment)
    held = factories.job(people["researcher"], kind="data")
    Job.objects.filter(pk=held.pk).update(held_at=database_now(), held_by=people["operator"])
    found = [(labels["kind"], labels["priority"], round(value, -1)) for labels, value in reads("queue_wait")]
    assert found == [("inference", "60", 900), ("training", "0", 100)]


def test_drift_is_counted_by_kind() -> None:
    now = database_now()
    for subject in ("a", "b"):
        Drift.objects.create(kind="orphan_member", subject=subject, detail="d", fix="f", first_seen=now, last_seen=now)
    assert reads("drift") == [({"kind": "orphan_member"}, 2)]


def test_simulated_things_say_so() -> None:
    only("taken-out")
    place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", node=machine(simulated=True))
    passes(0)
    alert = Alert.objects.get()
    assert (alert.simulated, alert.labels["simulated"]) == (True, "true")


def test_the_number_of_queries_does_not_grow_with_the_fleet() -> None:
    def pass_of(n: int) -> int:
        node = machine(f"m{n}", cards=4)
        for slot in range(4):
            says(node, slot, temperature_c=99, utilisation_pct=99, tensor_pct=0, memory_busy_pct=0)
        place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", node=node)
        with CaptureQueriesContext(connection) as queries:
            alerting.evaluate()
        return len(queries)

    ready()
    counts = [pass_of(n) for n in range(12)]
    assert counts[-1] <= counts[5] + 2  # an outbox that is full looks for the message that waits
    assert max(counts) < 40


@pytest.mark.django_db(transaction=True)
def test_the_task_keeps_its_counts() -> None:
    assert {"began", "fired", "over", "messages", "rules"} <= set(tasks.find_alerts())
    assert {"sent", "tried", "failed"} <= set(tasks.send_alerts())
