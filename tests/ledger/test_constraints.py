"""The database refuses what must never happen, also to SQL that goes past the Python code: one test a constraint."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import Zone
from ledger.vocabulary import Resource
from tests import factories
from tests.ledger.raw import NOW_ON, Sql, accepted, insert, one, refused, run, share, undone
from tests.ledger.raw_world import World

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
PAST = Sql("tstzrange(clock_timestamp() - interval '2 days', clock_timestamp() - interval '1 day')")
WHOLE_OR_NOTHING = "form_covers_its_cards"


# -- 1 and 2: forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("container", "block"), ("block", "container"), ("container", "whole")])
def test_a_node_holds_one_form(world: World, first: str, second: str) -> None:
    with undone():
        world.allocation(form=first)
        with refused("node_holds_one_form", at_once=True):
            world.allocation(form=second)


def test_containers_share_a_node_and_blocks_do(world: World) -> None:
    with accepted():
        world.allocation(node=world.n2)
        world.allocation(node=world.n2)
        _block_shares(world, 0, 1)
        _block_shares(world, 2, 3)


def test_a_whole_node_is_alone(world: World) -> None:
    with undone():
        world.allocation(form="whole")
        with refused("whole_node_is_alone", at_once=True):
            world.allocation(form="whole")


# -- 3: cards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [("{[0,100)}", "{[99,200)}"), ("{[0,10),[50,60)}", "{[20,30),[55,56)}"), ("{[0,16000)}", "{[7,8)}")],
)
def test_card_memory_is_never_double_booked(world: World, first: str, second: str) -> None:
    size = "SELECT ledger_multirange_size(%s::int4multirange)"
    world.container(memory=first, memory_mib=one(size, first), compute="{}")
    with refused("card_never_double_booked"):
        world.container(memory=second, memory_mib=one(size, second), compute="{}")


def test_gaps_between_shares_are_for_sale(world: World) -> None:
    with accepted():
        world.container(memory="{[0,100),[200,300)}", memory_mib=200, compute="{[0,500)}")
        world.container(memory="{[100,200),[300,16000)}", memory_mib=15_800, compute="{[500,1000)}")


def test_compute_is_never_double_booked(world: World) -> None:
    world.container(memory="{[0,100)}", memory_mib=100, compute="{[0,600)}")
    with refused("compute_never_double_booked"):
        world.container(memory="{[100,200)}", memory_mib=100, compute="{[599,700)}")


def test_a_card_is_in_one_mig_mode(world: World) -> None:
    world.container(memory="{[0,100)}", memory_mib=100, compute="{}", mig_mode=True)
    with refused("card_in_one_mig_mode"):
        world.container(memory="{[100,200)}", memory_mib=100, compute="{}", mig_mode=False)


@pytest.mark.parametrize("memory", ["{[0,16001)}", "{[-1,5)}", "{[16000,16001)}", "{(,)}", "{[5,)}", "{}"])
def test_share_memory_lies_on_the_card(world: World, memory: str) -> None:
    owner = world.allocation()
    run("ALTER TABLE ledger_cardshare DROP CONSTRAINT share_memory_is_its_sum")
    with refused("share_memory_on_card"):
        share(owner, world.cards[0], memory=memory, memory_mib=1)


@pytest.mark.parametrize("compute", ["{[0,1001)}", "{[-1,1)}", "{[5,)}"])
def test_share_compute_lies_on_the_card(world: World, compute: str) -> None:
    owner = world.allocation()
    with refused("share_compute_on_card"):
        share(owner, world.cards[0], compute=compute)


@pytest.mark.parametrize("mib", [15_999, 16_001, 0, -1])
def test_share_memory_is_the_sum_of_its_parts(world: World, mib: int) -> None:
    owner = world.allocation()
    with refused("share_memory_is_its_sum"):
        share(owner, world.cards[0], memory_mib=mib)


def test_a_share_knows_the_memory_of_its_card(world: World) -> None:
    owner = world.allocation()
    with refused("share_knows_card_memory"):
        share(owner, world.cards[0], card_memory_mib=32_000)


def test_the_memory_of_a_card_with_shares_stays(world: World) -> None:
    world.container()
    with refused("share_knows_card_memory"):
        run("UPDATE ledger_card SET memory_mib = 32000 WHERE id = %s", world.cards[0])


def test_one_share_a_card_and_allocation(world: World) -> None:
    owner = world.allocation()
    share(owner, world.cards[0], memory="{[0,10)}", memory_mib=10, compute="{}")
    with refused("one_share_a_card_and_allocation"):
        share(owner, world.cards[0], memory="{[10,20)}", memory_mib=10, compute="{}")


# -- 4: seats, blocks and whole machines ------------------------------------------------------------------------------


def test_a_share_names_the_seat_of_its_card(world: World) -> None:
    owner = world.allocation()
    with refused("share_on_its_seat"):
        share(owner, world.cards[0], seat_id=world.seat(1))


def test_a_share_sits_on_the_node_of_its_allocation(world: World) -> None:
    elsewhere = world.allocation(node=world.n2)
    with refused("share_follows_allocation"):
        share(elsewhere, world.cards[0])


def test_a_share_needs_a_seat_that_is_taken_now(world: World) -> None:
    owner = world.allocation()
    seat = world.seat(0)
    run("UPDATE ledger_cardseat SET period = tstzrange(lower(period), clock_timestamp()) WHERE id = %s", seat)
    with refused("seat_is_taken_now"):
        share(owner, world.cards[0], seat_id=seat, node_id=world.n1.pk)


@pytest.mark.parametrize("covered", [0, 3])
def test_a_whole_allocation_covers_every_card(world: World, covered: int) -> None:
    with refused(WHOLE_OR_NOTHING):
        owner = world.allocation(form="whole")
        for card in world.cards[:covered]:
            share(owner, card)


@pytest.mark.parametrize(
    "part", [{"memory": "{[0,15999)}", "memory_mib": 15_999}, {"compute": "{[0,999)}"}, {"compute": "{}"}]
)
def test_a_whole_allocation_covers_its_cards_fully(world: World, part: dict[str, Any]) -> None:
    with refused(WHOLE_OR_NOTHING):
        owner = world.allocation(form="whole")
        for card in world.cards[:3]:
            share(owner, card)
        share(owner, world.cards[3], **part)


def test_a_whole_allocation_with_all_cards_is_taken(world: World) -> None:
    with accepted():
        owner = world.allocation(form="whole")
        for card in world.cards:
            share(owner, card)


def _block_shares(world: World, *cards: int, **values: Any) -> None:
    owner = world.allocation(form="block")
    for card in cards:
        share(owner, world.cards[card], **{"block_id": world.block(card)} | values)


def test_whole_blocks_are_taken(world: World) -> None:
    with accepted():
        _block_shares(world, 0, 1)
        _block_shares(world, 2, 3)


@pytest.mark.parametrize(
    ("cards", "part"),
    [([0], {}), ([0, 1, 2], {}), ([0, 1], {"compute": "{}"}), ([0, 1], {"memory": "{[0,9)}", "memory_mib": 9})],
)
def test_a_block_allocation_covers_its_blocks(world: World, cards: list[int], part: dict[str, Any]) -> None:
    with refused(WHOLE_OR_NOTHING):
        _block_shares(world, *cards, **part)


def test_a_block_allocation_without_cards_is_refused(world: World) -> None:
    with refused(WHOLE_OR_NOTHING):
        world.allocation(form="block")


def test_a_share_in_a_block_names_the_block_of_its_seat(world: World) -> None:
    with refused("block_names_its_block"):
        owner = world.allocation(form="block")
        for card in (0, 1):
            share(owner, world.cards[card], block_id=world.block(0))
        share(owner, world.cards[2], block_id=world.block(0), memory="{[0,9)}", memory_mib=9, compute="{}")


def test_a_share_cannot_name_the_block_of_another_node(world: World) -> None:
    foreign = insert("ledger_block", node_id=world.n2.pk, n=0)
    with refused("block_names_its_block"):
        owner = world.allocation(form="block")
        share(owner, world.cards[0], block_id=foreign, memory="{[0,9)}", memory_mib=9, compute="{}")


@pytest.mark.parametrize(("form", "named"), [("container", True), ("whole", True), ("block", False)])
def test_only_shares_of_blocks_name_a_block(world: World, form: str, named: bool) -> None:
    with undone():
        owner = world.allocation(form=form)
        with refused("block_names_its_block", at_once=True):
            share(owner, world.cards[0], **({"block_id": world.block(0)} if named else {}))


def test_a_block_is_given_once(world: World) -> None:
    run("ALTER TABLE ledger_cardshare DROP CONSTRAINT card_never_double_booked")
    run("ALTER TABLE ledger_cardshare DROP CONSTRAINT compute_never_double_booked")
    _block_shares(world, 0, 1)
    with refused("block_given_once"):
        _block_shares(world, 0, 1)


def test_a_seat_is_in_a_block_of_its_own_node(world: World) -> None:
    foreign = insert("ledger_block", node_id=world.n2.pk, n=0)
    with refused("seat_block_on_its_node"):
        run("UPDATE ledger_cardseat SET block_id = %s WHERE id = %s", foreign, world.seat(0))


# -- 5: periods -------------------------------------------------------------------------------------------------------


def test_a_share_follows_the_period_of_its_allocation(world: World) -> None:
    owner = world.allocation()
    with refused("share_follows_allocation"):
        share(owner, world.cards[0], period=NOW_ON)


def test_closing_an_allocation_closes_its_shares(world: World) -> None:
    held = world.container()
    owner = one("SELECT allocation_id FROM ledger_cardshare WHERE id = %s", held)
    with accepted():
        run("UPDATE ledger_allocation SET state = 'closing', closing_at = clock_timestamp() WHERE id = %s", owner)
        run(
            "UPDATE ledger_allocation SET state = 'closed', "
            "period = tstzrange(lower(period), clock_timestamp()) WHERE id = %s",
            owner,
        )
    assert one(
        "SELECT a.period = s.period AND NOT upper_inf(s.period) FROM ledger_allocation a "
        "JOIN ledger_cardshare s ON s.allocation_id = a.id WHERE s.id = %s",
        held,
    )


def test_a_share_keeps_its_allocation_from_being_deleted(world: World) -> None:
    world.container()
    with refused("share_follows_allocation"):
        run("DELETE FROM ledger_allocation")


@pytest.mark.parametrize(
    ("constraint", "statement"),
    [
        ("allocation_period_not_empty", "UPDATE ledger_allocation SET period = 'empty', state = 'closed'"),
        ("seat_period_not_empty", "UPDATE ledger_cardseat SET period = 'empty'"),
        ("node_zone_period_not_empty", "UPDATE ledger_nodezone SET period = 'empty'"),
        ("hold_period_not_empty", "UPDATE ledger_hold SET period = 'empty'"),
        ("grant_period_not_empty", "UPDATE ledger_quotagrant SET period = 'empty'"),
        ("reserve_period_not_empty", "UPDATE ledger_headroomreserve SET period = 'empty'"),
    ],
)
def test_an_empty_period_forgets_its_start_and_is_refused(world: World, constraint: str, statement: str) -> None:
    world.allocation(node=world.n2, state="closing", closing_at=Sql("clock_timestamp()"))
    insert("ledger_hold", card_id=world.cards[0], kind="drill", period=NOW_ON, reason="", rule="")
    insert("ledger_headroomreserve", zone_id=Zone.objects.get().pk, model="A100", mib=1, period=NOW_ON)
    factories.grant(world.project, Resource.CPU_MILLI, 10_000)
    with refused(constraint):
        run(statement)


@pytest.mark.parametrize(
    ("state", "closing", "period", "constraint"),
    [
        ("closed", True, NOW_ON, "allocation_open_until_closed"),
        ("active", False, PAST, "allocation_open_until_closed"),
        ("closing", True, PAST, "allocation_open_until_closed"),
        ("active", True, NOW_ON, "allocation_closing_has_a_time"),
        ("opening", True, NOW_ON, "allocation_closing_has_a_time"),
        ("closing", False, NOW_ON, "allocation_closing_has_a_time"),
        ("closed", False, PAST, "allocation_closing_has_a_time"),
    ],
)
def test_state_period_and_closing_time_agree(
    world: World, state: str, closing: bool, period: Sql, constraint: str
) -> None:
    with refused(constraint):
        world.allocation(state=state, period=period, closing_at=Sql("clock_timestamp()") if closing else None)
