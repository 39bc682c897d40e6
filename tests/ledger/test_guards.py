"""What looks at other rows or at the present is guarded by triggers, and the plain rules by constraints of their table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Card, Node, Project, QuotaGrant, Zone
from ledger.vocabulary import Form, NodeState, ProjectState, Resource
from tests import factories
from tests.ledger.raw import NOW_ON, Sql, accepted, attempt, insert, one, refused, run, share, undone
from tests.ledger.raw_world import World

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]


# -- 6: guards --------------------------------------------------------------------------------------------------------


def test_a_held_node_takes_nothing(world: World) -> None:
    hold = insert("ledger_hold", node_id=world.n1.pk, kind="drain", period=NOW_ON, reason="", rule="")
    with refused("node_not_held"):
        world.allocation()
    run("UPDATE ledger_hold SET period = tstzrange(lower(period), clock_timestamp()) WHERE id = %s", hold)
    with accepted():
        world.container()


@pytest.mark.parametrize(("what", "constraint"), [("node_id", "node_not_held"), ("card_id", "card_not_held")])
def test_an_allocation_may_not_begin_inside_a_hold_that_has_just_ended(
    world: World, what: str, constraint: str
) -> None:
    began = Sql("tstzrange(clock_timestamp() - interval '1 minute', NULL)")
    ended = Sql("tstzrange(clock_timestamp() - interval '1 hour', clock_timestamp())")
    held = world.n1.pk if what == "node_id" else world.cards[0]
    insert("ledger_hold", **{what: held}, kind="drill", period=ended, reason="", rule="")
    with refused(constraint):
        share(world.allocation(period=began), world.cards[0])
    with accepted():
        share(world.allocation(), world.cards[0])


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


def test_a_job_that_is_kept_inside_a_zone_gets_no_node_of_another(world: World) -> None:
    kept_out = world.attempt(zones=Sql(f"ARRAY[{factories.zone('elsewhere').pk}]"))
    with refused("zone_is_open_to_job"):
        world.allocation(attempt=kept_out)
    run("UPDATE ledger_job SET zones = zones || %s::bigint", Zone.objects.get(slug="flexible").pk)
    with accepted():
        share(world.allocation(attempt=kept_out), world.cards[0])


def test_a_job_is_open_to_some_zone(world: World) -> None:
    with refused("job_is_open_to_some_zone"):
        world.job(zones=Sql("'{}'"))


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
    ("guarantee_within_grant", lambda w: run(
        "UPDATE ledger_quotagrant SET guaranteed = 6 WHERE id = %s", factories.grant(w.project, Resource.CPU_MILLI, 5).pk)),
    ("grant_weight_1_to_1000", lambda w: run(
        "UPDATE ledger_quotagrant SET weight = 0 WHERE id = %s", factories.grant(w.project, Resource.CPU_MILLI, 5).pk)),
    ("one_owner_a_project", lambda w: insert("ledger_membership", project_id=w.project.pk,
        user_id=factories.user("somebody").pk, role="owner")),
    ("project_ends_after_start", lambda w: run("UPDATE ledger_project SET ends_on = starts_on - 1")),
    ("project_state_known", lambda w: run("INSERT INTO ledger_project (slug, title, purpose, cost_centre, owner_id, starts_on, "
                                          "grace_days, state) VALUES ('x', 'x', '', '', %s, now(), 7, 'odd')", w.project.owner_id)),
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


def test_a_closed_allocation_takes_no_share(world: World) -> None:
    owner = world.allocation()
    share(owner, world.cards[0])
    run("UPDATE ledger_allocation SET state = 'closing', closing_at = clock_timestamp() WHERE id = %s", owner)
    run(
        "UPDATE ledger_allocation SET state = 'closed', period = tstzrange(lower(period), clock_timestamp()) "
        "WHERE id = %s",
        owner,
    )
    with refused("allocation_is_open"):
        share(owner, world.cards[1])


@pytest.mark.parametrize("state", ["stopping", "ended"])
def test_an_attempt_that_is_over_takes_no_allocation(world: World, state: str) -> None:
    over = attempt(world.job(), state=state, outcome="failed", ended_at=Sql("clock_timestamp()"))
    with refused("attempt_is_live"):
        world.allocation(attempt=over)
