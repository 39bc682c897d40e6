"""Inventory sync from simulation and agents, and every difference between book, driver and agent as a Drift row."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger import telemetry
from ledger.clock import database_now
from ledger.models import Allocation, Card, Fault, Hold, Node, NodeReport
from ledger.vocabulary import HoldKind, NodeState
from scheduler import commands, placing, reconcile
from scheduler.drivers.simulated import SimulatedDriver, World
from scheduler.models import Drift, SimulatedFault, SimulatedMember
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
AGES = dt.timedelta(hours=1)


def _sync() -> dict[str, Any]:
    reconcile._nodes["at"] = None
    return reconcile.sync_inventory()


def _open(kind: str) -> list[str]:
    return list(Drift.objects.filter(kind=kind, resolved_at=None).values_list("subject", flat=True))


def test_a_simulated_card_fault_holds_the_card_until_it_is_over() -> None:
    flow.world(nodes=2)
    assert _sync() == {"events": [], "changed": 0, "conflicts": 0}
    fault = SimulatedFault.objects.create(hostname="n1", card_uuid="n1-card-2")
    assert _sync()["changed"] == 1
    assert _sync()["changed"] == 0
    hold = Hold.objects.get()
    assert (hold.card, hold.kind, hold.rule) == (Card.objects.get(uuid="n1-card-2"), HoldKind.LOST, "inventory-sync/1")
    jobs = [flow.long_job(asks=[{"form": "whole", "cards_per_node": 4}]) for _ in range(2)]
    placing.place_queued()
    assert [a.node.hostname for job in jobs for a in flow.open_allocations(job)] == ["n2"]
    fault.delete()
    _sync()
    assert not Hold.objects.filter(period__upper_inf=True).exists()
    placing.place_queued()
    assert Allocation.objects.count() == 2


def test_a_simulated_node_goes_and_comes_back() -> None:
    flow.world()
    fault = SimulatedFault.objects.create(hostname="n1")
    _sync()
    assert Node.objects.get().state == NodeState.OFFLINE
    job = flow.long_job()
    placing.place_queued()
    assert flow.open_allocations(job) == []
    fault.delete()
    _sync()
    placing.place_queued()
    assert len(flow.open_allocations(job)) == 1


def _report(node: Node, sequence: int = 1, cards: int = 2) -> None:
    seen = [
        {"uuid": f"{node.hostname}-card-{n}", "slot": n, "model": "A100", "memory_mib": 16_000, "lost": False}
        for n in range(cards)
    ]
    telemetry.ingest(node, {
        "boot_id": "b", "sequence": sequence, "sent_at": database_now(), "virtual": False, "links": [], "faults": [],
        "node": {"cpu_milli": 64_000, "host_memory_mib": 999_999}, "cards": seen,
    })  # fmt: skip


@pytest.fixture
def real() -> Node:
    node = factories.node("real", cards=2, simulated=False, driver="local")
    Node.objects.update(agent_digest="x")
    node.refresh_from_db()
    return node


def test_an_agent_that_falls_silent_takes_its_node_off_line_and_no_word_brings_it_back_but_its_own(real: Node) -> None:
    assert _sync()["changed"] == 0  # nothing was heard of it yet: nothing is known
    _report(real)
    assert _sync()["changed"] == 0
    NodeReport.objects.update(received_at=database_now() - AGES)
    Node.objects.update(seen_at=database_now() - AGES)
    _sync()
    reconcile.reconcile()
    assert Node.objects.get().state == NodeState.OFFLINE
    assert _open("agent_silent") == ["real"]
    _report(real, 2)
    _sync()
    reconcile.reconcile()
    assert Node.objects.get().state == NodeState.UP
    assert _open("agent_silent") == []
    assert Drift.objects.get(kind="agent_silent").resolved_at is not None


def test_an_agent_adds_and_takes_away_cards_and_not_the_memory_for_sale(real: Node) -> None:
    _report(real, cards=3)
    _sync()
    assert Card.objects.filter(uuid="real-card-2").exists()
    _report(real, 2, cards=2)
    _sync()
    held = {hold.kind: hold for hold in Hold.objects.filter(period__upper_inf=True)}
    assert held.keys() == {HoldKind.LOST, HoldKind.FAULT}
    assert held[HoldKind.LOST].card.uuid == "real-card-2"
    assert held[HoldKind.FAULT].node == real  # the health policy: its node is rebooted
    assert Node.objects.get().host_memory_mib == 256_000


def test_a_member_that_the_book_does_not_know_is_an_orphan() -> None:
    flow.world()
    now = database_now()
    SimulatedMember.objects.create(
        key="a999999999", job=1, attempt=1, fence=1, node="n1", runs_at=now - AGES, ends_at=now + AGES
    )
    for _ in range(2):
        reconcile.reconcile()
    row = Drift.objects.get(kind="orphan_member")
    assert (row.subject, row.simulated, row.resolved_at) == ("a999999999", True, None)
    assert row.first_seen < row.last_seen
    assert row.fix
    SimulatedMember.objects.all().delete()
    reconcile.reconcile()
    assert _open("orphan_member") == []


def test_a_member_that_the_driver_does_not_know_is_missing() -> None:
    flow.world()
    job = flow.long_job()
    flow.start(job)
    assert reconcile.reconcile() == {"open": 0, "kinds": []}
    Allocation.objects.update(active_at=database_now() + dt.timedelta(0))
    SimulatedMember.objects.all().delete()
    reconcile.reconcile()
    assert _open("member_missing") == []  # too young to tell
    allocation = flow.open_allocations(job)[0]
    reconcile.GRACE, grace = dt.timedelta(0), reconcile.GRACE
    try:
        reconcile.reconcile()
    finally:
        reconcile.GRACE = grace
    assert _open("member_missing") == [allocation.key]
    assert Drift.objects.get(kind="member_missing").job == job


def test_an_unknown_attempt_is_listed_until_it_is_known() -> None:
    flow.world()
    job = flow.long_job()
    driver = SimulatedDriver(World(lost_reply_rate=1.0, start_delay_s=(0, 0)))
    with flow.simulated_by(driver):
        placing.place_queued()
        commands.run_due()
        reconcile.reconcile()
        assert _open("attempt_unknown") == [f"job {job.pk} attempt 1"]
        driver.world = World(start_delay_s=(0, 0))
        flow.make_due()
        commands.run_due()
        reconcile.reconcile()
    assert _open("attempt_unknown") == []


def test_a_driver_that_does_not_answer_is_listed_and_stops_no_other() -> None:
    flow.world()

    class Silent(SimulatedDriver):
        def list_members(self) -> Any:
            raise OSError("no route to host")

    with flow.simulated_by(Silent()):
        reconcile.reconcile()
    assert _open("driver_silent") == ["simulated"]
    reconcile.reconcile()
    assert _open("driver_silent") == []


def test_a_node_that_only_its_exporter_tells_of_goes_offline_with_it(real: Node) -> None:
    Node.objects.update(agent_digest="", dcgm_url="http://real:9400/metrics")
    _report(real)
    _sync()
    assert Node.objects.get().state == NodeState.UP
    NodeReport.objects.update(received_at=database_now() - AGES)
    _sync()
    assert Node.objects.get().state == NodeState.OFFLINE
    assert Fault.objects.get().kind == "silent"
