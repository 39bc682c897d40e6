"""Return to service: what each need waits for, evidence by orders and boots, failures, people's acts, odd rows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from ledger import case_steps, cases, faults, holds, inventory, telemetry
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.inventory import SeenCard, SeenNode
from ledger.models import AgentOrder, AuditEvent, Card, CardSeat, Case, Fault, Hold, Node
from ledger.vocabulary import CaseState, FaultKind, HealthAction, HoldKind, Need, NodeState, OrderKind
from scheduler import placing, service
from scheduler.models import SimulatedFault
from tests import factories
from tests.ledger.reports import report
from tests.scheduler import flow, out

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def at_once(settings: Any) -> None:
    settings.SIMULATED_SERVICE_S = 0


@pytest.fixture
def node() -> Node:
    """A real node whose agent is a test."""
    return factories.node("n1", cards=2, simulated=False, driver="local")


@pytest.fixture
def card(node: Node) -> Card:
    return Card.objects.get(uuid="n1-card-0")


def look(case: Case) -> tuple[str, str]:
    service.advance_all()
    case.refresh_from_db()
    return case.state, case.note


def is_held(card: Card) -> bool:
    return Hold.objects.filter(card=card, period__upper_inf=True).exists()


class TestTheWayBack:
    def test_a_reset_and_a_test_bring_a_card_back_and_clear_its_faults(self, card: Card) -> None:
        fault = out.fault_of(card)
        case = out.case(card, fault=fault)
        assert look(case)[0] == CaseState.NEEDED
        assert out.tell() == ["reset"]
        assert look(case)[0] == CaseState.TESTING
        assert is_held(card)
        assert out.tell() == ["burn_in"]
        assert look(case)[0] == CaseState.RETURNED
        fault.refresh_from_db()
        assert (is_held(card), fault.cleared_at is not None, case.resets) == (False, True, 1)
        assert case.tested_at <= case.ended_at
        told = AuditEvent.objects.filter(target_type="case", target_id=str(case.pk)).order_by("pk")
        assert [event.verb for event in told] == [
            "case.opened", "case.needed", "case.reset", "case.done", "case.testing", "case.returned",
        ]  # fmt: skip

    def test_looking_again_changes_nothing(self, card: Card) -> None:
        case = out.case(card)
        look(case)
        before = (AuditEvent.objects.count(), AgentOrder.objects.count())
        for _ in range(3):
            look(case)
        assert (AuditEvent.objects.count(), AgentOrder.objects.count()) == before

    def test_a_reboot_is_seen_by_a_newer_boot_and_not_by_an_agent_that_was_started_anew(
        self, node: Node, card: Card
    ) -> None:
        out.boot(node, "first")
        case = out.case(card, need=Need.REBOOT)
        assert look(case)[0] == CaseState.NEEDED
        assert not AgentOrder.objects.exists()
        out.boot(node, "second")
        assert (look(case)[0], case.reboots) == (CaseState.TESTING, 1)

    def test_a_boot_that_nobody_can_compare_is_no_evidence(self, node: Node, card: Card) -> None:
        case = out.case(card, need=Need.REBOOT)
        out.boot(node, "the first that was heard of")
        assert look(case)[0] == CaseState.NEEDED
        out.boot(node, "another")
        assert look(case)[0] == CaseState.TESTING

    def test_the_boot_in_which_the_fault_was_told_is_no_reboot_after_it(self, node: Node, card: Card) -> None:
        telemetry.ingest(node, report(1, uuid=card.uuid))
        gone = {"id": "f1", "kind": "xid", "code": 79, "card_uuid": card.uuid, "at": database_now(), "message": "gone"}
        telemetry.ingest(node, report(1, boot_id="boot-2", uuid=card.uuid, faults=[gone]))
        case = Case.objects.get(card=None)
        assert look(case)[0] == CaseState.NEEDED
        telemetry.ingest(node, report(2, boot_id="boot-2", uuid=card.uuid))
        assert look(case)[0] == CaseState.NEEDED
        telemetry.ingest(node, report(1, boot_id="boot-3", uuid=card.uuid))
        assert (look(case)[0], case.reboots) == (CaseState.TESTING, 1)
        out.tell()
        assert look(case)[0] == CaseState.RETURNED
        assert not Fault.objects.filter(cleared_at=None).exists()  # the card's own with it

    def test_a_state_besides_the_fault_keeps_a_card_out(self, node: Node, card: Card) -> None:
        case = out.case(card, need=Need.NOTHING, fault=out.fault_of(card))
        out.fault_of(card, FaultKind.RESET_REQUIRED, None)
        look(case)
        out.tell()
        assert look(case)[0] != CaseState.RETURNED
        assert is_held(card)

    def test_a_card_with_bad_links_and_then_a_worse_fault_waits_for_its_work(self) -> None:
        flow.world(cards=2, simulated=False)
        card = Card.objects.order_by("pk")[0]
        seat = CardSeat.objects.select_related("node").get(card=card)
        for code in (74, 62):
            with transaction.atomic():
                inventory.lock_node(seat.node_id)
                xid = FaultKind.XID
                faults.count_inside(node=seat.node, card=card, kind=xid, code=code, now=database_now())
            case = Case.objects.get(card=card)
            if code == 74:
                assert look(case)[0] == CaseState.NEEDED  # single cards of it go on being given out
                case.refresh_from_db()
        case = Case.objects.select_related("hold").get(card=card)
        assert (case.hold.kind, case.state, case.done_at) == (HoldKind.FAULT, CaseState.WAITING, None)

    def test_what_an_exporter_tells_is_no_boot(self, node: Node, card: Card) -> None:
        out.boot(node, "before")
        case = out.case(card, need=Need.REBOOT)
        out.boot(node, cases.NO_BOOT)
        assert look(case)[0] == CaseState.NEEDED

    def test_a_card_with_processes_of_nobody_stays_out_whatever_its_test_says(self, card: Card) -> None:
        case = out.case(card, need=Need.NOTHING, fault=out.fault_of(card))
        stray = out.fault_of(card, FaultKind.ORPHAN, None)
        look(case)
        out.tell()
        assert look(case)[0] != CaseState.RETURNED
        assert is_held(card)
        Fault.objects.filter(pk=stray.pk).update(cleared_at=database_now())
        for _ in range(2):
            look(case)
            out.tell()
        assert look(case)[0] == CaseState.RETURNED

    def test_it_waits_for_the_work_that_is_on_it(self) -> None:
        flow.world(cards=2)
        job = factories.job(asks=[{"form": "container", "cards_per_node": 1}])
        flow.start(job)
        card = Card.objects.get(shares__period__upper_inf=True)
        case = out.case(card, need=Need.NOTHING)
        assert look(case)[0] == CaseState.WAITING
        other = out.case(Card.objects.exclude(pk=card.pk).get(), need=Need.NOTHING)
        assert look(other)[0] != CaseState.WAITING
        whole = out.case(node=Node.objects.get(), need=Need.NOTHING)
        assert look(whole)[0] == CaseState.WAITING

    @pytest.mark.parametrize("need", [Need.INSPECTION, Need.REPLACEMENT])
    def test_a_person_says_that_it_is_done(self, card: Card, need: Need) -> None:
        case = out.case(card, need=need)
        assert look(case)[0] == CaseState.NEEDED
        cases.mark_done(case_id=case.pk, act=out.operator())
        assert look(case)[0] == CaseState.TESTING
        with pytest.raises(Conflict):
            cases.mark_done(case_id=case.pk, act=out.operator())

    def test_by_hand_it_waits_for_a_person_after_its_test(self, card: Card) -> None:
        case = out.case(card, need=Need.NOTHING, by_hand=True)
        look(case)
        with pytest.raises(Conflict, match="passed its test"):
            cases.release(case_id=case.pk, act=out.operator())
        out.tell()
        assert look(case)[0] == CaseState.PASSED
        assert is_held(card)
        with pytest.raises(Refused, match="reason"):
            cases.release(case_id=case.pk, act=out.operator(reason=" "))
        service.release(case_id=case.pk, act=out.operator("fan was changed"))
        case.refresh_from_db()
        assert (case.state, is_held(card)) == (CaseState.RETURNED, False)

    def test_a_node_is_tested_card_by_card(self, node: Node) -> None:
        case = out.case(node=node, need=Need.NOTHING)
        assert look(case)[0] == CaseState.TESTING
        assert out.tell() == ["burn_in", "burn_in"]
        assert look(case)[0] == CaseState.RETURNED


class TestFailures:
    def test_a_test_that_fails_brings_the_next_stronger_means_and_then_a_person(self, card: Card, node: Node) -> None:
        out.boot(node, "first")
        case = out.case(card, need=Need.RESET)
        look(case)
        out.tell()
        look(case)
        out.tell(ok=False, detail="3 words of memory differ")
        assert look(case)[0] == CaseState.NEEDED
        assert (case.need, case.by_hand) == (Need.REBOOT, False)
        out.boot(node, "second")
        look(case)
        out.tell(ok=False, detail="again")
        assert look(case) == (CaseState.FAILED, "the test failed: again")
        assert case.by_hand
        assert is_held(card)
        cases.test_again(case_id=case.pk, act=out.operator())
        assert look(case)[0] == CaseState.TESTING
        out.tell()
        assert look(case)[0] == CaseState.PASSED

    def test_after_two_reboots_a_person_decides_whatever_the_test_says(self, card: Card, node: Node) -> None:
        out.boot(node, "first")
        case = out.case(card, need=Need.REBOOT)
        look(case)
        out.boot(node, "second")
        look(case)
        out.tell(ok=False)
        look(case)
        out.boot(node, "third")
        look(case)
        out.tell()
        assert look(case)[0] == CaseState.PASSED
        assert (case.reboots, case.by_hand) == (2, True)

    def test_an_order_that_no_agent_has_heard_of_waits_and_one_without_a_result_fails(
        self, card: Card, node: Node, settings: Any
    ) -> None:
        case = out.case(card, need=Need.NOTHING)
        look(case)
        out.grow_old(10**6)
        assert look(case)[0] == CaseState.TESTING
        cases.orders_of(node)
        out.grow_old(settings.BURN_IN_TIMEOUT_S + 61)
        assert look(case)[0] == CaseState.NEEDED
        assert case.need == Need.RESET
        assert "no result within" in AgentOrder.objects.get(kind="burn_in").detail

    def test_a_state_that_still_stands_is_no_return(self, card: Card) -> None:
        fault = out.fault_of(card, FaultKind.RESET_REQUIRED, None)
        case = out.case(card, need=Need.NOTHING, fault=fault)
        look(case)
        out.tell()
        assert look(case)[0] == CaseState.NEEDED
        assert is_held(card)

    @pytest.mark.parametrize(
        "result",
        [{"order": 10**30}, {"order": "1"}, {"order": True}, {"order": -1}, {}, {"order": 999_999}, {"order": None}],
    )
    def test_a_result_of_no_order_changes_nothing(self, card: Card, node: Node, result: Any) -> None:
        out.case(card, need=Need.NOTHING)
        service.advance_all()
        with transaction.atomic():
            assert cases.take_results_inside(node, [result | {"ok": True}], database_now()) == 0
        assert AgentOrder.objects.get().ended_at is None

    def test_a_result_from_another_node_or_told_again_changes_nothing(self, card: Card, node: Node) -> None:
        case = out.case(card, need=Need.NOTHING)
        service.advance_all()
        order = AgentOrder.objects.get()
        other = factories.node("n2", cards=1, simulated=False)
        with transaction.atomic():
            told = [{"order": order.pk, "ok": True}]
            assert cases.take_results_inside(other, told, database_now()) == 0
            assert cases.take_results_inside(node, [{"order": order.pk, "ok": "yes"}], database_now()) == 1
            assert cases.take_results_inside(node, told, database_now()) == 0
        order.refresh_from_db()
        assert order.ok is False
        assert cases.orders_of(node) == []
        assert look(case)[0] == CaseState.NEEDED

    def test_one_case_that_fails_does_not_stop_the_others(
        self, node: Node, card: Card, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        odd, good = out.case(card), out.case(Card.objects.get(uuid="n1-card-1"))
        advance = case_steps.advance

        def some(case_id: int) -> str:
            if case_id == odd.pk:
                raise ValueError("odd row")
            return advance(case_id)

        monkeypatch.setattr(case_steps, "advance", some)
        assert service.advance_all()["odd"] == 1
        good.refresh_from_db()
        assert good.state == CaseState.NEEDED


class TestWhatComesBetween:
    def test_a_hold_that_a_person_ends_ends_the_case(self, card: Card) -> None:
        case = out.case(card)
        look(case)
        act = out.operator()
        holds.end_one(hold=case.hold, reason="I know better", actor=act.actor, via="test")  # type: ignore[arg-type]
        assert look(case) == (CaseState.ABORTED, "its hold was ended by hand")
        assert AgentOrder.objects.get().ok is False

    def test_a_hold_that_a_rule_ends_is_placed_again(self, card: Card) -> None:
        case = out.case(card)
        with transaction.atomic():
            inventory.end_hold_inside(case.hold, "the processes are gone", None, "task")
        assert look(case)[0] == CaseState.NEEDED
        assert is_held(card)
        assert case.hold.rule == out.RULE

    def test_a_new_fault_undoes_a_test_that_is_under_way(self, card: Card) -> None:
        case = out.case(card, need=Need.NOTHING)
        look(case)
        assert out.case(card, need=Need.REBOOT, action=HealthAction.REBOOT).pk == case.pk
        case.refresh_from_db()
        assert (case.state, case.need, case.action) == (CaseState.WAITING, Need.REBOOT, "reboot")
        assert AgentOrder.objects.get().detail.startswith("no longer wanted")
        assert look(case)[0] == CaseState.NEEDED

    def test_a_milder_fault_makes_nothing_milder(self, card: Card) -> None:
        case = out.case(card, need=Need.REPLACEMENT, by_hand=True, action=HealthAction.RMA)
        out.case(card, need=Need.RESET)
        case.refresh_from_db()
        assert (case.need, case.by_hand, case.action) == (Need.REPLACEMENT, True, "rma")

    def test_a_card_that_moves_begins_anew_on_its_new_node(self, card: Card, node: Node) -> None:
        case = out.case(card)
        look(case)
        other = factories.node("n2", cards=0, simulated=False)
        seen = SeenCard("n1-card-0", 0, "A100", 16_000)
        inventory.sync_node(SeenNode("n2", [seen]))
        look(case)
        assert case.node == other
        assert look(case)[0] == CaseState.NEEDED
        assert AgentOrder.objects.get(ended_at=None).node == other

    def test_what_is_only_partly_out_is_inspected_with_work_on_it_and_tested_without(self) -> None:
        flow.world(cards=1)
        job = factories.job()
        flow.start(job)
        card = Card.objects.get()
        kind = getattr(HoldKind, "LINK", HoldKind.MAINTENANCE)
        case = out.case(card, need=Need.INSPECTION, by_hand=True, action=HealthAction.NO_GANG, kind=kind)
        assert look(case)[0] == CaseState.NEEDED
        cases.mark_done(case_id=case.pk, act=out.operator("cable was seated anew"))
        assert look(case)[0] == CaseState.WAITING
        assert case.hold.kind == HoldKind.FAULT
        flow.finish(job)
        for _ in range(3):
            look(case)
        assert case.state == CaseState.PASSED
        cases.release(case_id=case.pk, act=out.operator("links are up"))
        assert not is_held(card)

    def test_a_scrapped_card_leaves_its_seat_and_stays_held(self, card: Card, node: Node) -> None:
        case = out.case(card, need=Need.REPLACEMENT)
        cases.scrap(case_id=case.pk, act=out.operator("sent back"))
        case.refresh_from_db()
        assert (case.state, is_held(card)) == (CaseState.SCRAPPED, True)
        assert not CardSeat.objects.filter(card=card, period__upper_inf=True).exists()

    def test_a_scrapped_node_retires_with_its_cards(self, node: Node) -> None:
        case = out.case(node=node, need=Need.REPLACEMENT)
        cases.scrap(case_id=case.pk, act=out.operator("sold"))
        node.refresh_from_db()
        assert node.state == NodeState.RETIRED
        assert not CardSeat.objects.filter(node=node, period__upper_inf=True).exists()

    def test_nothing_is_scrapped_with_work_on_it(self) -> None:
        flow.world(cards=1)
        flow.start(factories.job())
        case = out.case(Card.objects.get())
        with pytest.raises(Conflict, match="Work is still on it"):
            cases.scrap(case_id=case.pk, act=out.operator())

    def test_only_operators_act(self, card: Card) -> None:
        case = out.case(card, need=Need.INSPECTION)
        look(case)
        for act in (Act(factories.user("researcher"), "test", "x"), Act(None, "task", "x")):
            with pytest.raises(Forbidden):
                cases.mark_done(case_id=case.pk, act=act)


class TestSimulatedNodes:
    def test_they_answer_by_themselves_and_say_that_they_are_simulated(self) -> None:
        factories.node("n1", cards=1)
        case = out.case(Card.objects.get(), need=Need.REBOOT)
        for _ in range(3):
            service.advance_all()
        case.refresh_from_db()
        assert (case.state, case.boot.boot_id, case.reboots) == (CaseState.RETURNED, f"simulated-{case.pk}-1", 1)
        order = AgentOrder.objects.get()
        assert (order.kind, order.detail) == (OrderKind.BURN_IN, "simulated: burn_in passed")

    def test_not_before_their_time(self, settings: Any) -> None:
        settings.SIMULATED_SERVICE_S = 60
        factories.node("n1", cards=1)
        case = out.case(Card.objects.get())
        for _ in range(3):
            service.advance_all()
        assert AgentOrder.objects.get().ended_at is None
        out.grow_old(61)
        service.advance_all()
        assert AgentOrder.objects.filter(case=case, kind=OrderKind.RESET).get().ok

    def test_make_believe_hardware_that_is_not_there_fails(self) -> None:
        factories.node("n1", cards=1)
        SimulatedFault.objects.create(hostname="n1", card_uuid="n1-card-0")
        case = out.case(Card.objects.get(), need=Need.NOTHING)
        for _ in range(6):
            service.advance_all()
        case.refresh_from_db()
        assert case.state == CaseState.FAILED

    def test_what_returned_is_given_out_again(self) -> None:
        flow.world(cards=1)
        case = out.case(Card.objects.get(), need=Need.NOTHING)
        factories.job()
        assert placing.place_queued()["placed"] == 0
        for _ in range(3):
            service.advance_all()
        case.refresh_from_db()
        assert case.state == CaseState.RETURNED
        assert placing.place_queued()["placed"] == 1


def test_a_drill_and_a_fault_share_one_case(card: Card) -> None:
    case = out.case(card, need=Need.NOTHING, action=None, kind=HoldKind.DRILL, rule="drill/1")  # type: ignore[arg-type]
    look(case)
    assert (case.state, case.done_at) == (CaseState.NEEDED, None)
    out.case(card, need=Need.RESET)
    case.refresh_from_db()
    assert (case.hold.kind, case.need, case.rule) == (HoldKind.FAULT, Need.RESET, out.RULE)
