"""The snapshot that is kept warm equals one that is read anew, after every kind of change."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ledger import inventory
from ledger.inventory import SeenCard, SeenNode
from ledger.models import CardSeat, HeadroomReserve, Hold, Node, NodeZone, Zone
from ledger.vocabulary import HoldKind, NodeState
from scheduler import changes, placing, queue, snapshot
from scheduler.changes import Stand
from scheduler.engine.types import NodeView
from tests import factories
from tests.ledger.raw import run
from tests.scheduler import flow

pytestmark = pytest.mark.django_db


def _anew() -> tuple[NodeView, ...]:
    snapshot.forget()
    return snapshot.node_views()


def _same() -> None:
    kept = snapshot.node_views()
    assert sorted(kept, key=lambda n: n.id) == sorted(_anew(), key=lambda n: n.id)


def _hold(draw: random.Random) -> None:
    node = Node.objects.order_by("pk")[draw.randrange(2)]
    what = {"node": node} if draw.random() < 0.5 else {"card": CardSeat.objects.filter(node=node).first().card}
    inventory.place_hold(kind=draw.choice([HoldKind.DRILL, HoldKind.FAULT]), reason="", actor=None, via="t", **what)


def _return(draw: random.Random) -> None:
    for hold in Hold.objects.filter(period__upper_inf=True):
        inventory.end_hold(hold_id=hold.pk, reason="", actor=None, via="t")


def _place(draw: random.Random) -> None:
    flow.long_job(asks=[{"form": draw.choice(["container", "block", "whole"]), "cards_per_node": 2}])
    placing.place_queued()


def _end(draw: random.Random) -> None:
    for job in snapshot.Job.objects.filter(state__in=["queued", "starting", "running"])[:2]:
        queue.cancel(job_id=job.pk, actor=factories.user("owner"), reason="", via="t")
    flow.turn()


def _add_card(draw: random.Random) -> None:
    node = Node.objects.get(hostname="n2")
    seats = CardSeat.objects.filter(node=node, period__upper_inf=True).select_related("card")
    cards = [SeenCard(s.card.uuid, s.slot, s.card.model, s.card.memory_mib) for s in seats]
    number = len(cards)
    links = [(cards[0].uuid, cards[1].uuid, "nvlink", number)]
    new = SeenCard(f"new-{number}", number, "A100", 16_000)
    inventory.sync_node(SeenNode("n2", [*cards, new], cpu_milli=64_000 + number, links=links))


def _flip(draw: random.Random) -> None:
    node = Node.objects.get(hostname="n1")
    state = NodeState.UP if node.state == NodeState.OFFLINE else NodeState.OFFLINE
    Node.objects.filter(pk=node.pk).update(state=state)


def _zone(draw: random.Random) -> None:
    Zone.objects.update(forms=draw.sample(["container", "block", "whole"], 2))


STEPS: list[Callable[[random.Random], None]] = [_hold, _return, _place, _place, _end, _add_card, _flip, _zone]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_kept_snapshot_is_the_true_one(seed: int) -> None:
    flow.world(nodes=2, block=2)
    draw = random.Random(seed)
    for _ in range(14):
        draw.choice(STEPS)(draw)
        _same()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_node SET rack = 'other'",
        "UPDATE ledger_zone SET forms = '{whole}'",
        "UPDATE ledger_nodezone SET period = tstzrange(lower(period), clock_timestamp())",
        "UPDATE ledger_cardseat SET period = tstzrange(lower(period), clock_timestamp())",
        "UPDATE ledger_cardseat SET block_id = NULL",
        "UPDATE ledger_card SET model = 'H100'",
    ],
)
def test_every_change_of_the_inventory_is_noticed(statement: str) -> None:
    flow.world(block=2)
    before = snapshot.node_views()
    run(statement)
    after = snapshot.node_views()
    assert after != before
    assert after == _anew()


def test_reserves_of_now_are_read() -> None:
    flow.world()
    now = NodeZone.objects.get().period.lower
    zone = Zone.objects.get()
    HeadroomReserve.objects.create(zone=zone, model="A100", mib=5, period=(now, None))
    HeadroomReserve.objects.create(zone=zone, model="B200", mib=6, period=(now, now + (now - now.replace(year=2020))))
    HeadroomReserve.objects.create(zone=zone, model="C300", mib=7, period=(now.replace(year=2000), now))
    assert {(r.model, r.mib) for r in snapshot.read([]).reserves} == {("A100", 5), ("B200", 6)}


@pytest.mark.parametrize(
    ("last", "now", "window"),
    [
        (None, Stand(10, 20, 1), None),
        (Stand(10, 20, 1), Stand(10, 20, 1), (10, 20)),
        (Stand(10, 20, 1), Stand(19, 31, 1), (10, 31)),
        (Stand(10, 20, 1), Stand(9, 31, 1), None),  # numbers went back: another server
        (Stand(10, 20, 1), Stand(30, 31, 2), None),
    ],
)
def test_what_must_be_read(last: Stand | None, now: Stand, window: tuple[int, int] | None) -> None:
    assert changes.between(last, now) == window
