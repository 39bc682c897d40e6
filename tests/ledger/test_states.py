"""What reports say is so becomes a fault when it begins and ends with it; what a card does not tell changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import telemetry
from ledger.models import Fault, Node
from tests import factories
from tests.ledger.reports import report

pytestmark = pytest.mark.django_db
CARD = [
    ({"ecc": {"remapped_pending": True}}, {"ecc": {"remapped_pending": False}}, "remap_pending"),
    ({"ecc": {"remapped_failure": True}}, {"ecc": {"remapped_failure": False}}, "remap_failed"),
    ({"reset_required": True}, {"reset_required": False}, "reset_required"),
    ({"slowdown": ["thermal"]}, {"slowdown": ["other"]}, "thermal"),
    ({"slowdown": ["thermal", "power"]}, {"slowdown": ["thermal"]}, "power"),
]
SIZE = {"cpu_milli": 1, "host_memory_mib": 1}
GOOD, BAD = {"path": "/data", "ok": True}, {"path": "/data", "ok": False, "error": "timed out"}
NODE = [
    ({"pci_cards": 2}, {"pci_cards": 1}, "missing"),
    ({"storage": [GOOD, BAD]}, {"storage": [GOOD]}, "storage"),
]


@pytest.fixture
def node() -> Node:
    return factories.node("n1", cards=2, simulated=False)


def _open(kind: str) -> list[tuple[str | None, int]]:
    return list(Fault.objects.filter(kind=kind, cleared_at=None).values_list("card__uuid", "count"))


@pytest.mark.parametrize(("on", "off", "kind"), CARD)
def test_a_state_of_a_card(node: Node, on: dict[str, Any], off: dict[str, Any], kind: str) -> None:
    telemetry.ingest(node, report(2, **off))
    assert _open(kind) == []
    telemetry.ingest(node, report(3, **on))
    telemetry.ingest(node, report(4, **on))
    assert _open(kind) == [("n1-card-0", 1)]
    telemetry.ingest(node, report(5, ecc=None, slowdown=None, reset_required=None))  # it does not tell
    assert _open(kind) == [("n1-card-0", 1)]
    telemetry.ingest(node, report(1, **off))  # late: nothing
    assert _open(kind) == [("n1-card-0", 1)]
    telemetry.ingest(node, report(6, **off))
    assert _open(kind) == []
    telemetry.ingest(node, report(7, **on))
    assert Fault.objects.filter(kind=kind).count() == 2


@pytest.mark.parametrize(("on", "off", "kind"), NODE)
def test_a_state_of_a_node(node: Node, on: dict[str, Any], off: dict[str, Any], kind: str) -> None:
    telemetry.ingest(node, report(1, node=SIZE | on))
    telemetry.ingest(node, report(2, node=SIZE))
    assert _open(kind) == [(None, 1)]
    telemetry.ingest(node, report(3, node=SIZE | off))
    assert _open(kind) == []


def test_a_value_that_is_set_aside_tells_no_state(node: Node) -> None:
    telemetry.ingest(node, report(1, temperature_c=400, slowdown=["thermal"]))
    assert not Fault.objects.exists()
