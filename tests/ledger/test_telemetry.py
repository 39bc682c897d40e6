"""Reports of agents: newest by boot and sequence, each fault counted once, and no clock believed but the database's."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from typing import Any

import pytest

from ledger import telemetry
from ledger.clock import database_now
from ledger.models import CardStatus, Fault, FaultEvent, Node, NodeReport
from ledger.vocabulary import FaultKind
from tests import factories

pytestmark = pytest.mark.django_db
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def node() -> Node:
    return factories.node("n1", cards=2, simulated=False)


def _report(sequence: int, boot: str = "boot-1", *, late_s: float = 0, faults: Any = (), **card: Any) -> dict[str, Any]:
    values = {"uuid": "n1-card-0", "slot": 0, "model": "A100", "memory_mib": 16_000, "temperature_c": sequence} | card
    return {
        "hostname": "n1", "boot_id": boot, "sequence": sequence, "virtual": False, "links": [], "faults": list(faults),
        "sent_at": database_now() - dt.timedelta(seconds=late_s),
        "node": {"cpu_milli": 1, "host_memory_mib": 1}, "cards": [values],
    }  # fmt: skip


def _fault(number: int, **values: Any) -> dict[str, Any]:
    at = values.pop("at", None) or database_now()
    return {
        "id": f"f{number}",
        "kind": "xid",
        "code": 79,
        "card_uuid": "n1-card-0",
        "at": at,
        "message": "fell",
    } | values


def test_the_newest_report_counts(node: Node) -> None:
    assert telemetry.ingest(node, _report(5)).accepted
    assert not telemetry.ingest(node, _report(5)).accepted
    assert not telemetry.ingest(node, _report(4)).accepted
    assert telemetry.ingest(node, _report(6)).accepted
    assert (CardStatus.objects.get().temperature_c, NodeReport.objects.get().sequence) == (6, 6)
    node.refresh_from_db()
    assert node.seen_at == NodeReport.objects.get().received_at


@pytest.mark.parametrize("seed", range(3))
def test_any_order_with_repeats_leaves_the_newest(node: Node, seed: int) -> None:
    reports = [_report(n, faults=[_fault(n)]) for n in range(12)] * 2
    random.Random(seed).shuffle(reports)
    highest = -1
    for report in reports:
        assert telemetry.ingest(node, report).accepted == (report["sequence"] > highest)
        highest = max(highest, report["sequence"])
    assert CardStatus.objects.get().temperature_c == 11
    assert (Fault.objects.get().count, FaultEvent.objects.count()) == (12, 12)


def test_a_reboot_starts_anew_and_the_boot_before_it_is_old(node: Node) -> None:
    telemetry.ingest(node, _report(900))
    assert telemetry.ingest(node, _report(1, "boot-2")).accepted
    late = _report(901, late_s=60)
    assert not telemetry.ingest(node, late).accepted
    assert telemetry.ingest(node, _report(2, "boot-2")).accepted
    assert CardStatus.objects.get().temperature_c == 2


def test_a_late_report_of_an_unknown_boot_does_not_silence_the_node(node: Node) -> None:
    telemetry.ingest(node, _report(3, "boot-2"))
    telemetry.ingest(node, _report(800, "boot-1", late_s=3600))  # held up on its way, and never heard of before
    assert telemetry.ingest(node, _report(4, "boot-2")).accepted
    assert CardStatus.objects.get().temperature_c == 4


def test_a_clock_ahead_is_a_fault_and_decides_nothing(node: Node) -> None:
    ahead = _report(1, late_s=-3600, faults=[_fault(1, at=database_now() + 60 * MINUTE)])
    receipt = telemetry.ingest(node, ahead)
    assert receipt.accepted
    assert "clock" in receipt.note
    clock = Fault.objects.get(kind=FaultKind.CLOCK)
    assert (clock.node, clock.card, clock.count) == (node, None, 1)
    now = database_now()
    assert FaultEvent.objects.get().at <= now
    assert NodeReport.objects.get().received_at <= now
    assert Fault.objects.get(kind=FaultKind.XID).last_seen <= now


def test_a_clock_within_the_slack_is_no_fault(node: Node) -> None:
    telemetry.ingest(node, _report(1, late_s=-60))
    telemetry.ingest(node, _report(2, late_s=86_400))
    assert not Fault.objects.exists()


def test_an_event_is_counted_once_and_kinds_apart(node: Node) -> None:
    events = [
        _fault(1),
        _fault(1),
        _fault(2),
        _fault(3, code=48),
        _fault(4, kind="thermal", code=None),
        _fault(5, card_uuid=None),
    ]
    assert telemetry.ingest(node, _report(1, faults=events)).faults == 5
    assert telemetry.ingest(node, _report(2, faults=events)).faults == 0
    assert sorted(Fault.objects.values_list("count", flat=True)) == [1, 1, 1, 2]
    assert FaultEvent.objects.count() == 5


def test_faults_of_an_old_report_still_count(node: Node) -> None:
    telemetry.ingest(node, _report(9))
    receipt = telemetry.ingest(node, _report(1, faults=[_fault(1)]))
    assert (receipt.accepted, receipt.faults) == (False, 1)


def test_a_cleared_fault_that_comes_back_is_a_new_one(node: Node) -> None:
    telemetry.ingest(node, _report(1, faults=[_fault(1)]))
    Fault.objects.update(cleared_at=database_now())
    telemetry.ingest(node, _report(2, faults=[_fault(1), _fault(2)]))
    assert [(f.count, f.cleared_at is None) for f in Fault.objects.order_by("pk")] == [(1, False), (1, True)]


def test_another_nodes_card_gets_no_fault_of_this_one(node: Node) -> None:
    other = factories.node("n2", cards=1, simulated=False)
    telemetry.ingest(node, _report(1, faults=[_fault(1, card_uuid="n2-card-0")]))
    assert Fault.objects.get().card is None
    assert not Fault.objects.filter(node=other).exists()


def test_what_a_card_does_not_tell_is_unknown_not_zero(node: Node) -> None:
    telemetry.ingest(node, _report(1, temperature_c=None))
    status = CardStatus.objects.get()
    assert (status.temperature_c, status.power_mw, status.processes) == (None, None, None)


def test_a_long_message_is_kept_short(node: Node) -> None:
    telemetry.ingest(node, _report(1, faults=[_fault(1, message="x" * 4000)]))
    assert len(Fault.objects.get().message) == 500


def test_in_whatever_order_boots_are_heard_of_the_last_ones_next_word_stands(node: Node) -> None:
    for order in itertools.permutations(range(3)):
        NodeReport.objects.all().delete()
        node.boots.all().delete()
        for boot in order:
            telemetry.ingest(node, _report(1, f"b{boot}", late_s=100 - 10 * boot))
        telemetry.ingest(node, _report(2, "b2", late_s=1, temperature_c=77))
        assert CardStatus.objects.get().temperature_c == 77, order
