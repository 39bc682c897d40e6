"""The database refuses what must never happen, also to SQL that goes past the Python code: one test a constraint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ledger.models import Card, CardSeat, Node, Project, QuotaGrant, Zone
from ledger.vocabulary import Form, NodeState, ProjectState, Resource
from tests import factories
from tests.ledger.raw import NOW_ON, Sql, accepted, allocation, attempt, insert, job, one, refused, run, share, undone

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
PAST = Sql("tstzrange(clock_timestamp() - interval '2 days', clock_timestamp() - interval '1 day')")
WHOLE_OR_NOTHING = "form_covers_its_cards"


@dataclass
class World:
    """n1: four cards of 16,000 MiB in two blocks, every form; n2 the same without blocks."""

    project: Project
    n1: Node
    n2: Node
    cards: list[int]

    def job(self, **values: Any) -> int:
        return job(self.project.pk, self.project.owner_id, **values)

    def attempt(self, **values: Any) -> int:
        return attempt(self.job(**values))

    def allocation(self, node: Node | None = None, **values: Any) -> int:
        given = values.pop("attempt", None)
        return allocation(given or self.attempt(), (node or self.n1).pk, **values)

    def container(self, card: int = 0, **values: Any) -> int:
        """A container allocation with one share."""
        return share(self.allocation(), self.cards[card], **values)

    def seat(self, card: int) -> int:
        return int(one("SELECT id FROM ledger_cardseat WHERE card_id = %s AND upper_inf(period)", self.cards[card]))

    def block(self, card: int) -> int:
        return int(one("SELECT block_id FROM ledger_cardseat WHERE id = %s", self.seat(card)))


@pytest.fixture
def world() -> World:
    project = factories.project("vision")
    n1, n2 = factories.node("n1", block=2), factories.node("n2")
    cards = list(CardSeat.objects.filter(node=n1).order_by("slot").values_list("card_id", flat=True))
    return World(project, n1, n2, cards)


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


# -- 6: guards --------------------------------------------------------------------------------------------------------


def test_a_held_node_takes_nothing(world: World) -> None:
    hold = insert("ledger_hold", node_id=world.n1.pk, kind="drain", period=NOW_ON, reason="", rule="")
    with refused("node_not_held"):
        world.allocation()
    run("UPDATE ledger_hold SET period = tstzrange(lower(period), clock_timestamp()) WHERE id = %s", hold)
    with accepted():
        world.container()


def test_a_node_held_in_between_takes_no_share(world: World) -> None:
    owner = world.allocation()
    insert("ledger_hold", node_id=world.n1.pk, kind="drain", period=NOW_ON, reason="", rule="")
    with refused("card_not_held"):
        share(owner, world.cards[0])


def test_a_held_card_takes_nothing_and_its_neighbours_do(world: World) -> None:
    insert("ledger_hold", card_id=world.cards[0], kind="fault", period=NOW_ON, reason="", rule="")
    owner = world.allocation()
    with refused("card_not_held"):
        share(owner, world.cards[0])
    with accepted():
        share(owner, world.cards[1])


def test_a_zone_takes_its_forms_only(world: World) -> None:
    run("UPDATE ledger_zone SET forms = '{container}'")
    with refused("zone_takes_form"):
        world.allocation(form="whole")


@pytest.mark.parametrize("case", ["no zone", "left zone", "other zone"])
def test_an_allocation_names_the_zone_of_its_node(world: World, case: str) -> None:
    zone_id: int | None = Zone.objects.get().pk
    if case == "no zone":
        zone_id = None
    elif case == "left zone":
        run("UPDATE ledger_nodezone SET period = tstzrange(lower(period), clock_timestamp())")
    else:
        zone_id = factories.zone("elsewhere").pk
    with refused("zone_takes_form"):
        world.allocation(zone_then_id=zone_id)


@pytest.mark.parametrize("state", [NodeState.OFFLINE, NodeState.RETIRED])
def test_a_node_that_is_not_up_takes_nothing(world: World, state: NodeState) -> None:
    Node.objects.update(state=state)
    with refused("node_is_up"):
        world.allocation()


@pytest.mark.parametrize("simulated", [True, False])
def test_real_work_and_simulated_nodes_never_meet(world: World, simulated: bool) -> None:
    Node.objects.update(simulated=not simulated)
    with refused("real_and_simulated_apart"):
        world.allocation(attempt=world.attempt(simulated=simulated))


TODAY = dt.datetime.now(dt.UTC).date()


@pytest.mark.parametrize(
    "values",
    [
        {"state": ProjectState.ENDING},
        {"state": ProjectState.ENDED},
        {"starts_on": TODAY - dt.timedelta(days=9), "ends_on": TODAY - dt.timedelta(days=3)},
        {"starts_on": TODAY + dt.timedelta(days=3)},
    ],
)
def test_a_project_outside_its_time_takes_nothing(world: World, values: dict[str, Any]) -> None:
    Project.objects.update(**values)
    with refused("project_takes_work"):
        world.allocation()


def test_an_allocation_belongs_to_the_project_of_its_job(world: World) -> None:
    other = factories.project("other")
    with refused("allocation_of_its_project"):
        world.allocation(project_id=other.pk)


@pytest.mark.parametrize(
    ("column", "constraint", "size"),
    [("cpu_milli", "node_cpu_not_oversold", 64_000), ("host_memory_mib", "node_memory_not_oversold", 256_000)],
)
def test_cpu_and_memory_of_a_node_are_not_oversold(world: World, column: str, constraint: str, size: int) -> None:
    with accepted():
        world.allocation(**{column: size - 1000})
        world.allocation(**{column: 1000})
    with refused(constraint):
        world.allocation(**{column: 1})


# -- the rest of the book ---------------------------------------------------------------------------------------------


def test_a_job_has_one_live_attempt(world: World) -> None:
    owner = world.job()
    attempt(owner)
    with refused("one_live_attempt_a_job"):
        attempt(owner, n=2, state="unknown")


@pytest.mark.parametrize("values", [{"outcome": ""}, {"ended_at": None}])
def test_an_ended_attempt_says_when_and_how(world: World, values: dict[str, Any]) -> None:
    with refused("ended_attempt_has_an_outcome"):
        attempt(world.job(), **{"state": "ended", "outcome": "lost", "ended_at": Sql("clock_timestamp()")} | values)


def test_gang_members_stand_on_distinct_nodes_with_distinct_ranks(world: World) -> None:
    gang = world.attempt()
    world.allocation(attempt=gang)
    with refused("gang_members_on_distinct_nodes"):
        world.allocation(attempt=gang, rank=1)
    with refused("gang_ranks_distinct"):
        world.allocation(node=world.n2, attempt=gang, rank=0)


RESOURCES: list[tuple[Resource, int, Callable[[World], object]]] = [
    (Resource.CARD_MILLI, 501, lambda w: w.container(memory="{[0,8001)}", memory_mib=8001, compute="{}")),
    (Resource.CARD_MEMORY_MIB, 16_000, lambda w: w.container()),
    (Resource.WHOLE_NODES, 1, lambda w: w.allocation(form="whole")),
    (Resource.CPU_MILLI, 1000, lambda w: w.allocation()),
    (Resource.HOST_MEMORY_MIB, 1000, lambda w: w.allocation()),
]


@pytest.mark.parametrize(("resource", "need", "take"), RESOURCES, ids=[row[0] for row in RESOURCES])
def test_no_quota_is_exceeded(world: World, resource: Resource, need: int, take: Callable[[World], object]) -> None:
    grant = factories.grant(world.project, resource, need - 1)
    with refused("quota_never_exceeded", at_once=True):
        take(world)
    QuotaGrant.objects.filter(pk=grant.pk).update(amount=need)
    with undone():
        take(world)
        assert one("SELECT ledger_quota_used(%s, %s)", world.project.pk, resource) == need


def test_a_statement_with_many_rows_is_counted_whole(world: World) -> None:
    factories.grant(world.project, Resource.CARD_MEMORY_MIB, 100)
    owner = world.allocation()
    columns = "allocation_id, seat_id, node_id, card_id, card_memory_mib, memory, compute, memory_mib, mig_mode, period"
    with refused("quota_never_exceeded"):
        run(
            f"INSERT INTO ledger_cardshare ({columns}) SELECT a.id, s.id, s.node_id, s.card_id, 16000, '{{[0,60)}}', "
            "'{}', 60, false, a.period FROM ledger_allocation a JOIN ledger_cardseat s ON s.node_id = a.node_id "
            "WHERE a.id = %s",
            owner,
        )


# -- inventory and people ---------------------------------------------------------------------------------------------


PLAIN: list[tuple[str, Callable[[World], object]]] = [
    ("card_in_one_seat", lambda w: insert("ledger_cardseat", card_id=w.cards[0], node_id=w.n2.pk, slot=9, period=NOW_ON)),
    ("seat_has_one_card", lambda w: insert(
        "ledger_cardseat", node_id=w.n1.pk, slot=0, period=NOW_ON,
        card_id=insert("ledger_card", uuid="new", model="A", memory_mib=1, memory_assumed=False, virtual=False, mig_layout=[]),
    )),
    ("node_in_one_zone", lambda w: insert("ledger_nodezone", node_id=w.n1.pk, zone_id=factories.zone("z2").pk, period=NOW_ON)),
    ("zone_forms_known", lambda w: run("UPDATE ledger_zone SET forms = '{container,magic}'")),
    ("zone_forms_known", lambda w: run("UPDATE ledger_zone SET forms = '{}'")),
    ("node_cpu_not_negative", lambda w: run("UPDATE ledger_node SET cpu_milli = -1")),
    ("node_memory_not_negative", lambda w: run("UPDATE ledger_node SET host_memory_mib = -1")),
    ("node_state_known", lambda w: run("UPDATE ledger_node SET state = 'asleep'")),
    ("card_memory_positive", lambda w: run("UPDATE ledger_card SET memory_mib = 0")),
    ("block_number_once_a_node", lambda w: insert("ledger_block", node_id=w.n1.pk, n=0)),
    ("link_in_order", lambda w: insert("ledger_link", card_a_id=w.cards[1], card_b_id=w.cards[0], kind="nvlink", gbps=1)),
    ("hold_on_a_card_or_a_node", lambda w: insert("ledger_hold", kind="drill", period=NOW_ON, reason="", rule="")),
    ("hold_on_a_card_or_a_node", lambda w: insert(
        "ledger_hold", node_id=w.n1.pk, card_id=w.cards[0], kind="drill", period=NOW_ON, reason="", rule="")),
    ("hold_kind_known", lambda w: insert("ledger_hold", node_id=w.n1.pk, kind="whim", period=NOW_ON, reason="", rule="")),
    ("one_hold_a_kind_and_node", lambda w: [
        insert("ledger_hold", node_id=w.n1.pk, kind="drill", period=NOW_ON, reason="", rule="") for _ in range(2)]),
    ("one_hold_a_kind_and_card", lambda w: [
        insert("ledger_hold", card_id=w.cards[0], kind="drill", period=NOW_ON, reason="", rule="") for _ in range(2)]),
    ("reserve_not_negative", lambda w: insert(
        "ledger_headroomreserve", zone_id=Zone.objects.get().pk, model="A", mib=-1, period=NOW_ON)),
    ("one_reserve_a_cell", lambda w: [insert(
        "ledger_headroomreserve", zone_id=Zone.objects.get().pk, model="A", mib=1, period=NOW_ON) for _ in range(2)]),
    ("one_grant_at_a_time", lambda w: [factories.grant(w.project, Resource.CPU_MILLI, 1) for _ in range(2)]),
    ("grant_not_negative", lambda w: factories.grant(w.project, Resource.CPU_MILLI, -1)),
    ("project_ends_after_start", lambda w: run("UPDATE ledger_project SET ends_on = starts_on - 1")),
    ("project_state_known", lambda w: run("INSERT INTO ledger_project (slug, title, owner_id, starts_on, grace_days, state) "
                                          "VALUES ('x', 'x', %s, now(), 7, 'odd')", w.project.owner_id)),
    ("one_membership_a_project", lambda w: insert(
        "ledger_membership", project_id=w.project.pk, user_id=w.project.owner_id, role="member")),
    ("membership_role_known", lambda w: run("UPDATE ledger_membership SET role = 'god'")),
    ("job_state_known", lambda w: w.job(state="dreaming")),
    ("job_needs_not_negative", lambda w: w.job(cpu_milli=-1)),
    ("one_job_a_client_key", lambda w: [w.job(client_key="k") for _ in range(2)]),
    ("attempt_state_known", lambda w: attempt(w.job(), state="odd")),
    ("attempt_number_once_a_job", lambda w: [
        attempt(j, state="ended", outcome="lost", ended_at=Sql("clock_timestamp()")) for j in [w.job()] * 2]),
    ("allocation_state_known", lambda w: w.allocation(state="odd")),
    ("allocation_not_negative", lambda w: w.allocation(cpu_milli=-1)),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "act"), PLAIN, ids=[f"{n}-{row[0]}" for n, row in enumerate(PLAIN)])
def test_plain_constraints(world: World, constraint: str, act: Callable[[World], object]) -> None:
    if constraint == "allocation_state_known":  # an unknown state breaks the rule about closing times too
        run("ALTER TABLE ledger_allocation DROP CONSTRAINT allocation_closing_has_a_time")
    with refused(constraint):
        act(world)


def test_an_unknown_form_is_taken_by_no_zone(world: World) -> None:
    with refused("allocation_form_known"):
        world.allocation(form="magic")


def test_every_form_and_card_of_the_world_is_as_the_tests_think(world: World) -> None:
    assert Card.objects.filter(pk__in=world.cards, memory_mib=16_000).count() == 4
    assert set(Zone.objects.get().forms) == set(Form)
    assert world.block(0) == world.block(1) != world.block(2) == world.block(3)
