"""Orders go with the answers to an agent's reports until it tells how they ended."""

from __future__ import annotations

import pytest

from ledger.models import AgentOrder, Card, Node, User
from ledger.vocabulary import CaseState, Need
from scheduler import service
from tests import factories
from tests.portal.api.reports import agent_of, report
from tests.scheduler import out

REPORTS = "agents/reports/"


@pytest.fixture
def node(people: dict[str, User]) -> Node:
    return factories.node("n1", cards=1, simulated=False, driver="local")


def test_an_order_is_told_until_its_result_is_here_and_the_result_counts_once(node: Node) -> None:
    agent = agent_of(node)
    assert "orders" not in agent.post(REPORTS, report()).json()
    case = out.case(Card.objects.get(), need=Need.NOTHING)
    service.advance_all()
    order = AgentOrder.objects.get()
    wanted = [{"id": order.pk, "kind": "burn_in", "card": "n1-card-0", "timeout_s": 900}]
    for sequence in (2, 3):
        assert agent.post(REPORTS, report(sequence=sequence)).json()["orders"] == wanted
    result = {"order": order.pk, "ok": True, "seconds": 12.5, "detail": "4 GiB read back"}
    assert "orders" not in agent.post(REPORTS, report(sequence=4, results=[result])).json()
    again = report(sequence=5, results=[result | {"ok": False}])
    assert agent.post(REPORTS, again).status_code == 200
    order.refresh_from_db()
    assert (order.ok, order.seconds, order.detail) == (True, 12.5, "4 GiB read back")
    service.advance_all()
    case.refresh_from_db()
    assert case.state == CaseState.RETURNED


def test_an_old_report_brings_its_results_all_the_same(node: Node) -> None:
    """They are repeated until a report with them was accepted, and must not be lost by reordering."""
    agent = agent_of(node)
    out.case(Card.objects.get(), need=Need.NOTHING)
    service.advance_all()
    agent.post(REPORTS, report(sequence=9))
    result = {"order": AgentOrder.objects.get().pk, "ok": True, "seconds": 1, "detail": ""}
    assert agent.post(REPORTS, report(sequence=3, results=[result])).json()["accepted"] is False
    assert AgentOrder.objects.get().ok


def test_results_of_another_nodes_orders_change_nothing(node: Node) -> None:
    out.case(Card.objects.get(), need=Need.NOTHING)
    service.advance_all()
    other = agent_of(factories.node("n2", cards=1, simulated=False))
    result = {"order": AgentOrder.objects.get().pk, "ok": True, "seconds": 1, "detail": ""}
    sent = report("n2", cards=[], results=[result, {"order": 10**18, "ok": True, "seconds": 1, "detail": ""}])
    assert other.post(REPORTS, sent).status_code == 200
    assert AgentOrder.objects.get().ended_at is None
