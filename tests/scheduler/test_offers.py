"""What is free now in each form is what jobs of that form could get."""

from __future__ import annotations

import pytest

from ledger.clock import database_now
from ledger.models import Card, Hold
from ledger.vocabulary import Form, HoldKind
from scheduler import placing, snapshot
from scheduler.offers import Offer, offers
from tests import factories

pytestmark = pytest.mark.django_db


def now() -> list[Offer]:
    return offers(snapshot.node_views())


def test_an_empty_fleet_offers_everything() -> None:
    factories.node("n1", cards=4, block=2)
    factories.node("n2", cards=2, model="H100", memory_mib=80_000, simulated=False)
    assert now() == [
        Offer(False, "H100", cards=2, free_cards=2, largest_share_mib=80_000, machines=1),
        Offer(True, "A100", cards=4, free_cards=4, largest_share_mib=16_000, blocks=2, machines=1),
    ]


def test_a_container_leaves_its_rest_and_takes_block_and_machine() -> None:
    factories.cast()
    factories.node("n1", cards=2, block=2)
    factories.job(asks=[{"form": "container", "memory_mib": 6_000}])
    placing.place_queued()
    assert now() == [Offer(True, "A100", cards=2, free_cards=1, shared_cards=1, largest_share_mib=16_000)]


def test_a_block_leaves_the_other_blocks_alone() -> None:
    factories.cast()
    factories.node("n1", cards=4, block=2)
    factories.job(asks=[{"form": "block", "cards_per_node": 2}])
    placing.place_queued()
    assert now() == [Offer(True, "A100", cards=4, blocks=1)]


def test_what_is_held_or_not_taken_by_the_zone_is_not_offered() -> None:
    factories.node("n1", cards=2, in_zone=factories.zone("whole", [Form.WHOLE]))
    held = factories.node("n2", cards=2)
    factories.node("n3", cards=2)
    Hold.objects.create(node=held, kind=HoldKind.DRILL, period=(database_now(), None), reason="drill")
    card = Card.objects.get(uuid="n3-card-0")
    Hold.objects.create(card=card, kind=HoldKind.FAULT, period=(database_now(), None), reason="fault")
    assert now() == [Offer(True, "A100", cards=6, free_cards=1, largest_share_mib=16_000, machines=1)]
