"""The upper bound of what is used of a grant: never below the sum, and only a sum says no."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from ledger import invariants, quota_invariants
from ledger.clock import database_now
from ledger.models import DepartmentCeiling, MemberLimit, QuotaGrant
from ledger.vocabulary import Resource
from tests import factories
from tests.ledger.raw import Sql, accepted, attempt, job, one, refused, run
from tests.ledger.raw_world import World

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]


def _bound(grant: QuotaGrant) -> int | None:
    grant.refresh_from_db()
    return grant.used_at_most


def _used(world: World, resource: Resource) -> int:
    return int(one("SELECT ledger_quota_used(%s, %s)", world.project.pk, resource))


def _end(allocation: int) -> None:
    now = Sql("clock_timestamp()")
    run("UPDATE ledger_allocation SET state = 'active' WHERE id = %s", allocation)
    run(f"UPDATE ledger_allocation SET state = 'closing', closing_at = {now} WHERE id = %s", allocation)
    run(
        f"UPDATE ledger_allocation SET state = 'closed', period = tstzrange(lower(period), {now}) WHERE id = %s",
        allocation,
    )


def test_it_grows_with_what_is_placed_and_is_summed_where_it_says_no(world: World) -> None:
    world.allocation(cpu_milli=100)
    grant = factories.grant(world.project, Resource.CPU_MILLI, 1000)
    assert _bound(grant) is None
    first = world.allocation(cpu_milli=300)
    assert _bound(grant) == 400
    second = world.allocation(cpu_milli=500)
    assert _bound(grant) == 900
    _end(first)
    assert (_bound(grant), _used(world, Resource.CPU_MILLI)) == (900, 600)
    with refused("quota_never_exceeded", at_once=True):
        world.allocation(cpu_milli=401)
    assert _bound(grant) == 900
    world.allocation(cpu_milli=400)
    assert _bound(grant) == _used(world, Resource.CPU_MILLI) == 1000
    _end(second)
    world.allocation(cpu_milli=1)
    assert _bound(grant) == _used(world, Resource.CPU_MILLI) == 501


def test_shares_of_several_projects_in_one_statement_are_each_counted(world: World) -> None:
    other = factories.project("speech")
    grants = [factories.grant(project, Resource.CARD_MILLI, 10**6) for project in (world.project, other)]
    mine, theirs = world.allocation(), world.allocation(attempt=attempt(job(other.pk, other.owner_id)))
    run(
        "INSERT INTO ledger_cardshare (allocation_id, seat_id, node_id, card_id, card_memory_mib, memory, compute, "
        "memory_mib, mig_mode, period) SELECT a.id, s.id, s.node_id, s.card_id, 16000, int4multirange(int4range(0, t.mib)), "
        "'{}', t.mib, false, a.period FROM (VALUES (%s, 0, 8000), (%s, 1, 60), (%s, 2, 1)) AS t (allocation_id, slot, mib) "
        "JOIN ledger_allocation a ON a.id = t.allocation_id JOIN ledger_cardseat s ON s.node_id = a.node_id "
        "AND s.slot = t.slot",
        mine,
        theirs,
        theirs,
    )
    assert [_bound(grant) for grant in grants] == [500, 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda: run("UPDATE ledger_allocation SET cpu_milli = 900"),
        lambda: run("UPDATE ledger_quotagrant SET period = tstzrange(lower(period), lower(period) + interval '1 day')"),
    ],
)
def test_what_else_may_change_the_use_makes_it_unknown(world: World, change: Callable[[], object]) -> None:
    grant = factories.grant(world.project, Resource.CPU_MILLI, 1000)
    with accepted():
        world.allocation(cpu_milli=100)
    assert _bound(grant) == 100
    change()
    assert _bound(grant) is None


def _broken() -> set[str]:
    return {finding.name for finding in invariants.check()}


def test_what_is_above_a_limit_or_its_bound_is_found(world: World) -> None:
    grants = [
        factories.grant(world.project, resource, 10**12) for resource in (Resource.CPU_MILLI, Resource.CARD_MILLI_S)
    ]
    now, owner = database_now(), world.project.owner
    about = {"resource": Resource.CPU_MILLI, "amount": 10**12, "reason": "test", "by": owner}
    ceiling = DepartmentCeiling.objects.create(department=world.project.department, period=(now, None), **about)
    limit = MemberLimit.objects.create(project=world.project, user=owner, since=now, **about)
    world.container()
    before = _broken()
    assert not {name for name in before if name.startswith("I14")}
    for row, names in (
        (grants[0], {"I14-quota", "I14-quota-bound"}),
        (grants[1], {"I14-budget", "I14-quota-bound"}),
        (ceiling, {"I14-ceiling", "I14-ceiling-bound"}),
        (limit, {"I14-member-limit"}),
    ):
        type(row).objects.filter(pk=row.pk).update(amount=1, used_at_most=1)
        assert _broken() - before == names
        if not isinstance(row, MemberLimit):
            type(row).objects.filter(pk=row.pk).update(used_at_most=None, drain_at=now)
            assert _broken() == before
        type(row).objects.filter(pk=row.pk).update(amount=10**12, used_at_most=None)


def test_a_ring_of_departments_is_found(world: World) -> None:
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run("ALTER TABLE ledger_department DISABLE TRIGGER USER")
    run("UPDATE ledger_department SET parent_id = id")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM ({quota_invariants.INVARIANTS['departments-are-a-tree'][1]}) AS broken")
        assert cursor.fetchone()[0] == 1
    run("UPDATE ledger_department SET parent_id = NULL")
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run("ALTER TABLE ledger_department ENABLE TRIGGER USER")
