"""Inventory: cards that appear, vanish, move and return, nodes that go and come back, each as an event with its row."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import inventory
from ledger.blocks import cut_into_blocks
from ledger.errors import Conflict, Refused
from ledger.inventory import SeenCard, SeenNode, sync_node
from ledger.models import AuditEvent, Block, Card, CardSeat, Hold, Link, Node
from ledger.vocabulary import HoldKind, NodeState
from scheduler import placing, queue
from tests import factories
from tests.ledger.raw import run
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


def _card(name: str, slot: int = 0, **values: Any) -> SeenCard:
    return SeenCard(name, slot, "A100", 16_000, **values)


def _seen(host: str, *cards: SeenCard, **values: Any) -> SeenNode:
    return SeenNode(host, cards, **values)


def _seats(host: str) -> dict[int, str]:
    return dict(CardSeat.objects.filter(node__hostname=host, period__upper_inf=True).values_list("slot", "card__uuid"))


def _holds(**values: Any) -> int:
    return Hold.objects.filter(period__upper_inf=True, **values).count()


@pytest.fixture(autouse=True)
def two_nodes() -> None:
    factories.node("n1", cards=2)
    factories.node("n2", cards=0)


N1 = (_card("n1-card-0", 0), _card("n1-card-1", 1))


def test_the_same_report_again_changes_nothing() -> None:
    before = AuditEvent.objects.count()
    changes = sync_node(_seen("n1", *N1))
    assert (changes.events, changes.conflicts) == ([], [])
    assert AuditEvent.objects.count() == before


def test_many_new_cards_take_no_more_statements_than_one(django_assert_max_num_queries: Any) -> None:
    sync_node(_seen("n2", _card("first", 0)))
    with CaptureQueriesContext(connection) as one:
        sync_node(_seen("n1", *N1, _card("fresh", 2)))
    with django_assert_max_num_queries(len(one)):
        changes = sync_node(_seen("n2", _card("first", 0), *(_card(f"new {n}", n) for n in range(1, 9))))
    assert changes.events == [f"card.appeared new {n} in n2 slot {n}" for n in range(1, 9)]
    assert _seats("n2") == {0: "first"} | {n: f"new {n}" for n in range(1, 9)}
    assert AuditEvent.objects.filter(verb="card.appeared", after__node="n2").count() == 9


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param([_card("fresh", 3), _card("other", 3)], id="two for a slot"),
        pytest.param([_card("fresh", 3), _card("fresh", 3)], id="one card twice"),
        pytest.param([_card("fresh", 1), N1[1]], id="the slot of another"),
        pytest.param([_card("fresh", 3), _card("dead", 4, lost=True)], id="one that is lost"),
    ],
)
def test_odd_reports_of_new_cards_seat_each_card_once_and_one_a_slot(odd: list[SeenCard]) -> None:
    sync_node(_seen("n1", *odd, _card("plain", 7)))
    seats = _seats("n1")
    assert seats[7] == "plain"
    assert "fresh" in seats.values() or "other" in seats.values()
    assert "dead" not in seats.values()
    assert sorted(seats.values()) == sorted({*seats.values()})
    assert not Card.objects.filter(uuid="dead").exists()


def test_a_card_appears() -> None:
    changes = sync_node(_seen("n1", *N1, _card("fresh", 2)))
    assert len(changes.events) == 1
    assert _seats("n1")[2] == "fresh"
    assert AuditEvent.objects.get(verb="card.appeared", target_id=str(Card.objects.get(uuid="fresh").pk))


@pytest.mark.parametrize("gone", [(N1[0],), (N1[0], _card("n1-card-1", 1, lost=True))])
def test_a_card_vanishes_into_a_hold_and_returns_out_of_it(gone: tuple[SeenCard, ...]) -> None:
    for _ in range(2):
        sync_node(_seen("n1", *gone))
    assert _holds(card__uuid="n1-card-1", kind=HoldKind.LOST) == 1
    assert _seats("n1")[1] == "n1-card-1"  # its seat is kept: it is still the node's
    changes = sync_node(_seen("n1", *N1))
    assert len(changes.events) == 1
    assert _holds() == 0
    assert {e.verb for e in AuditEvent.objects.filter(target_type="hold")} == {"hold.placed", "hold.ended"}


def test_a_card_that_is_seen_lost_at_first_is_not_put_up_for_sale() -> None:
    sync_node(_seen("n1", *N1, _card("dead", 2, lost=True)))
    assert 2 not in _seats("n1")


def test_a_hold_placed_by_hand_is_not_ended_by_a_report() -> None:
    card = Card.objects.get(uuid="n1-card-0")
    inventory.place_hold(kind=HoldKind.MAINTENANCE, reason="fan", actor=None, via="test", card=card)
    sync_node(_seen("n1", *N1))
    assert _holds(kind=HoldKind.MAINTENANCE) == 1


def test_a_card_moves_and_keeps_its_history() -> None:
    sync_node(_seen("n1", N1[0]))
    sync_node(_seen("n2", _card("n1-card-1", 0)))
    seats = list(CardSeat.objects.filter(card__uuid="n1-card-1").order_by("pk").select_related("node"))
    assert [s.node.hostname for s in seats] == ["n1", "n2"]
    assert seats[0].period.upper <= seats[1].period.lower
    assert _holds() == 0
    assert [e.verb for e in AuditEvent.objects.filter(target_type="card").order_by("pk")][-2:] == [
        "card.left",
        "card.moved",
    ]
    sync_node(_seen("n1", *N1))
    assert (_seats("n1")[1], _seats("n2")) == ("n1-card-1", {})


def test_a_card_in_use_does_not_move() -> None:
    factories.project("vision", researcher=factories.ProjectRole.MEMBER)
    job = flow.long_job(asks=[{"form": "whole", "cards_per_node": 2}])
    placing.place_queued()
    assert flow.open_allocations(job)
    changes = sync_node(_seen("n2", _card("n1-card-1", 0)))
    assert [subject for subject, _, _ in changes.conflicts] == ["n1-card-1"]
    assert (len(_seats("n1")), _seats("n2")) == (2, {})


def test_a_new_card_takes_the_seat_of_one_that_is_gone() -> None:
    sync_node(_seen("n1", N1[0], _card("spare", 1)))
    assert _seats("n1") == {0: "n1-card-0", 1: "spare"}


def _events(uuid: str) -> list[str]:
    pk = str(Card.objects.get(uuid=uuid).pk)
    return [e.verb for e in AuditEvent.objects.filter(target_type="card", target_id=pk).order_by("pk")]


@pytest.mark.parametrize("told", [(), (_card("n1-card-1", 1, lost=True),)], ids=["not reported", "reported lost"])
def test_a_replaced_card_leaves_its_seat_and_its_hold(told: tuple[SeenCard, ...]) -> None:
    sync_node(_seen("n1", N1[0], *told))
    assert _holds(kind=HoldKind.LOST) == 1
    for _ in range(2):
        changes = sync_node(_seen("n1", N1[0], *told, _card("spare", 1)))
    assert (changes.events, changes.conflicts) == ([], [])
    assert _seats("n1") == {0: "n1-card-0", 1: "spare"}
    assert _holds() == 0
    assert _events("n1-card-1")[-1] == "card.replaced"
    event = AuditEvent.objects.get(verb="card.replaced")
    assert (event.before, event.after) == ({"node": "n1", "slot": 1}, {"by": "spare"})
    assert AuditEvent.objects.filter(verb="hold.ended", reason="card spare sits in its place").count() == 1


def test_a_hold_for_its_faults_stays_on_a_replaced_card() -> None:
    bad = Card.objects.get(uuid="n1-card-1")
    inventory.place_hold(kind=HoldKind.FAULT, reason="XID 79", actor=None, via="test", card=bad)
    sync_node(_seen("n1", N1[0], _card("spare", 1)))
    assert (_holds(card=bad, kind=HoldKind.FAULT), _holds()) == (1, 1)


def test_a_card_in_use_is_not_replaced_until_its_job_has_ended() -> None:
    factories.project("vision", researcher=factories.ProjectRole.MEMBER)
    job = flow.long_job(asks=[{"form": "whole", "cards_per_node": 2}])
    flow.start(job)
    changes = sync_node(_seen("n1", N1[0], _card("spare", 1)))
    assert changes.conflicts == [
        ("n1-card-1", "replaced by spare while allocated on n1", "end that job first"),
    ]
    assert _seats("n1") == {0: "n1-card-0", 1: "n1-card-1"}
    assert not Card.objects.filter(uuid="spare").exists()
    queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
    flow.finish(job)
    sync_node(_seen("n1", N1[0], _card("spare", 1)))
    assert _seats("n1") == {0: "n1-card-0", 1: "spare"}


def test_a_replacement_under_an_index_that_moved_puts_no_living_card_out_of_its_seat() -> None:
    """card 0 was pulled and another put in behind card 1, so the machine counts card 1 as 0 and the new one as 1"""
    for _ in range(2):
        sync_node(_seen("n1", _card("n1-card-1", 0), _card("spare", 1)))
    assert _seats("n1") == {0: "spare", 1: "n1-card-1"}
    assert CardSeat.objects.filter(card__uuid="n1-card-1").count() == 1
    assert _events("n1-card-0")[-1] == "card.replaced"


def test_a_card_that_is_added_under_an_index_that_moved_gets_a_slot_of_its_own() -> None:
    for _ in range(2):
        sync_node(_seen("n1", _card("added", 0), _card("n1-card-0", 1), _card("n1-card-1", 2)))
    assert _seats("n1") == {0: "n1-card-0", 1: "n1-card-1", 2: "added"}


def test_a_card_that_was_replaced_may_come_back() -> None:
    sync_node(_seen("n1", N1[0], _card("spare", 1)))
    sync_node(_seen("n1", N1[0], _card("spare", 1), _card("n1-card-1", 2)))
    assert _seats("n1") == {0: "n1-card-0", 1: "spare", 2: "n1-card-1"}
    assert _events("n1-card-1")[-2:] == ["card.replaced", "card.moved"]


@pytest.mark.parametrize(("model", "inside"), [("A100", True), ("H100", False)])
def test_a_card_like_the_one_it_replaces_takes_its_place_in_the_block(model: str, inside: bool) -> None:
    node = Node.objects.get(hostname="n1")
    cut_into_blocks(node=node, size=2)
    sync_node(_seen("n1", N1[0], SeenCard("spare", 1, model, 16_000)))
    seat = CardSeat.objects.get(card__uuid="spare")
    assert (seat.block == Block.objects.get()) is inside


def test_a_card_from_another_node_may_replace_one() -> None:
    factories.node("n3", cards=1)
    sync_node(_seen("n3"))
    sync_node(_seen("n1", N1[0], _card("n3-card-0", 1)))
    assert (_seats("n1"), _seats("n3")) == ({0: "n1-card-0", 1: "n3-card-0"}, {})
    assert _events("n3-card-0")[-2:] == ["card.left", "card.moved"]
    assert _holds() == 0


def test_another_order_of_cards_is_noted_and_changes_no_seat() -> None:
    changes = sync_node(_seen("n1", _card("n1-card-0", 1), _card("n1-card-1", 0)))
    assert len(changes.conflicts) == 2
    assert _seats("n1") == {0: "n1-card-0", 1: "n1-card-1"}


def test_a_node_goes_and_comes_back() -> None:
    for _ in range(2):
        sync_node(_seen("n1", online=False))
    node = Node.objects.get(hostname="n1")
    assert (node.state, _holds(node=node, kind=HoldKind.OFFLINE)) == (NodeState.OFFLINE, 1)
    assert len(_seats("n1")) == 2  # offline is not gone
    assert _holds(card__isnull=False) == 0
    sync_node(_seen("n1", *N1))
    node.refresh_from_db()
    assert (node.state, _holds()) == (NodeState.UP, 0)
    verbs = AuditEvent.objects.filter(target_type="node", target_id=str(node.pk)).order_by("pk")
    assert [e.verb for e in verbs][-2:] == ["node.offline", "node.up"]


def test_a_retired_node_is_not_brought_back_by_a_report() -> None:
    Node.objects.filter(hostname="n1").update(state=NodeState.RETIRED)
    sync_node(_seen("n1", *N1))
    assert Node.objects.get(hostname="n1").state == NodeState.RETIRED


def test_an_unknown_node_is_a_conflict_and_writes_nothing() -> None:
    changes = sync_node(_seen("stranger", _card("x")))
    assert [subject for subject, _, _ in changes.conflicts] == ["stranger"]
    assert not Card.objects.filter(uuid="x").exists()


def test_a_node_changes_its_size_but_not_below_what_is_taken() -> None:
    sync_node(_seen("n1", *N1, cpu_milli=32_000, host_memory_mib=1000))
    node = Node.objects.get(hostname="n1")
    assert (node.cpu_milli, node.host_memory_mib) == (32_000, 1000)
    factories.project("vision", researcher=factories.ProjectRole.MEMBER)
    flow.long_job(cpu_milli=20_000, host_memory_mib=900)
    placing.place_queued()
    changes = sync_node(_seen("n1", *N1, cpu_milli=10_000))
    assert len(changes.conflicts) == 1
    node.refresh_from_db()
    assert node.cpu_milli == 32_000


def test_links_follow_the_report() -> None:
    pair = ("n1-card-0", "n1-card-1")
    sync_node(
        _seen("n1", *N1, links=[(*pair, "nvlink", 50), (pair[1], pair[0], "nvlink", 50), ("x", pair[0], "pcie", 1)])
    )
    link = Link.objects.get()
    assert (link.card_a.uuid, link.card_b.uuid, link.kind, link.gbps) == (*pair, "nvlink", 50)
    sync_node(_seen("n1", *N1, links=[(*pair, "pcie", 16)]))
    assert Link.objects.get().kind == "pcie"


# -- holds and blocks -------------------------------------------------------------------------------------------------


def test_an_equal_hold_is_the_standing_one() -> None:
    node = Node.objects.get(hostname="n1")
    first, second = (
        inventory.place_hold(kind=HoldKind.DRILL, reason=r, actor=None, via="test", node=node) for r in ("a", "b")
    )
    other = inventory.place_hold(kind=HoldKind.FAULT, reason="c", actor=None, via="test", node=node)
    assert first == second != other
    inventory.end_hold(hold_id=first.pk, reason="done", actor=None, via="test")
    with pytest.raises(Conflict):
        inventory.end_hold(hold_id=first.pk, reason="again", actor=None, via="test")
    assert AuditEvent.objects.filter(verb="hold.ended", target_id=str(first.pk)).count() == 1


def test_a_hold_is_on_one_thing() -> None:
    node, card = Node.objects.get(hostname="n1"), Card.objects.get(uuid="n1-card-0")
    for what in ({}, {"node": node, "card": card}):
        with pytest.raises(Refused):
            inventory.place_hold(kind=HoldKind.DRILL, reason="", actor=None, via="test", **what)


@pytest.mark.parametrize(("size", "blocks"), [(1, 2), (2, 1), (3, 0), (0, 0)])
def test_a_node_is_cut_into_blocks_once(size: int, blocks: int) -> None:
    node = Node.objects.get(hostname="n1")
    assert cut_into_blocks(node=node, size=size) == blocks
    assert cut_into_blocks(node=node, size=1) == (2 if blocks == 0 else 0)
    assert Block.objects.filter(node=node).count() == (blocks or 2)


def test_a_hold_of_an_hour_ends_by_itself() -> None:
    node = Node.objects.get(hostname="n1")
    hold = inventory.place_hold(kind=HoldKind.DRILL, reason="", actor=None, via="test", node=node)
    run("UPDATE ledger_hold SET period = tstzrange(lower(period), clock_timestamp() + interval '1 hour')")
    factories.project("vision", researcher=factories.ProjectRole.MEMBER)
    job = flow.long_job()
    placing.place_queued()
    assert flow.open_allocations(job) == []
    run("UPDATE ledger_hold SET period = tstzrange(lower(period), clock_timestamp()) WHERE id = %s", hold.pk)
    placing.place_queued()
    assert len(flow.open_allocations(job)) == 1
