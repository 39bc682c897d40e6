"""Budgets that renew, by a clock that moves: what counts on each side of a boundary, that nothing has to run at it, and
that nobody gets more than a period's amount."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import departments, invariants, limits, quota, renewal
from ledger.acts import Act
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.errors import Refused
from ledger.models import Allocation, AuditEvent, Department, DepartmentCeiling, Job, Project, QuotaGrant
from ledger.quota import Terms
from ledger.vocabulary import Renewal, Resource
from scheduler import draining, queue
from scheduler import quota as left
from scheduler.placing import place_queued
from tests import factories
from tests.moving import move_to
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
BUDGET, HOUR_OF_A_CARD = Resource.CARD_MILLI_S, 1000 * 3600
CARD = {"form": "container", "memory_mib": 0}
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
SECONDS = 60_000  # of one card: what a test takes while it runs, at most


def utc(*when: int) -> dt.datetime:
    return dt.datetime(*when, tzinfo=dt.UTC)  # type: ignore[misc]


NEW_YEAR = utc(2027, 1, 1)


@pytest.fixture
def act(db: None) -> Act:
    return Act(factories.cast()["admin"], "test", "because")


@pytest.fixture
def vision(act: Act, settings: Any) -> Project:
    """With four cards, two hours before the new year."""
    settings.QUOTA_WINDOW_HOURS = 0
    move_to(NEW_YEAR - 2 * DAY)
    flow.world(cards=4)
    move_to(NEW_YEAR - 2 * HOUR)
    Project.objects.update(starts_on=utc(2026, 1, 1).date(), ends_on=utc(2029, 1, 1).date())
    return Project.objects.get(slug="vision")


def granted(vision: Project, act: Act, hours: int, **values: Any) -> QuotaGrant:
    terms = Terms(BUDGET, hours * HOUR_OF_A_CARD, **{"renews": "month"} | values)
    return quota.set_grant(project=vision, terms=terms, act=act)


def used(grant: QuotaGrant) -> int:
    return limits.used([grant.project_id], BUDGET, grant.model, limits.since_of(grant, database_now()))


def asked(hours: float, **ask: Any) -> Job:
    return flow.long_job(asks=[CARD | ask], walltime_s=int(hours * 3600))


def placed() -> int:
    return int(place_queued().get("placed", 0))


def sound() -> set[str]:
    return {finding.name for finding in invariants.check() if finding.name.startswith("I14")}


# -- the calendar -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("renews", "at", "start", "end"),
    [
        ("month", utc(2026, 11, 30, 23, 59, 59), utc(2026, 11, 1), utc(2026, 12, 1)),
        ("month", utc(2026, 12, 31, 23, 59, 59), utc(2026, 12, 1), utc(2027, 1, 1)),
        ("month", utc(2027, 1, 1), utc(2027, 1, 1), utc(2027, 2, 1)),
        ("month", utc(2028, 2, 29, 12), utc(2028, 2, 1), utc(2028, 3, 1)),
        ("quarter", utc(2026, 11, 30), utc(2026, 10, 1), utc(2027, 1, 1)),
        ("quarter", utc(2026, 3, 31, 23), utc(2026, 1, 1), utc(2026, 4, 1)),
        ("year", utc(2026, 12, 31, 23), utc(2026, 1, 1), utc(2027, 1, 1)),
        ("year", dt.datetime(2027, 1, 1, 7, tzinfo=dt.timezone(8 * HOUR)), utc(2026, 1, 1), utc(2027, 1, 1)),
    ],
)
def test_periods_of_the_calendar_as_the_database_has_them(
    renews: str, at: dt.datetime, start: dt.datetime, end: dt.datetime
) -> None:
    assert (renewal.began(renews, at), renewal.next_start(renews, at)) == (start, end)
    move_to(at)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL TIME ZONE 'Asia/Shanghai'")
        cursor.execute("SELECT ledger_counted_since(NULL, '[2020-01-01Z,)', %s) AT TIME ZONE 'UTC'", [renews])
        assert cursor.fetchone() == (start.replace(tzinfo=None),)


def test_what_does_not_renew_has_no_periods() -> None:
    assert (renewal.began("", NEW_YEAR), renewal.next_start("", NEW_YEAR)) == (None, None)


def test_periods_before() -> None:
    assert renewal.before("quarter", utc(2027, 2, 5), 2) == [
        (utc(2026, 10, 1), utc(2027, 1, 1)),
        (utc(2026, 7, 1), utc(2026, 10, 1)),
    ]


# -- over the boundary ------------------------------------------------------------------------------------------------


def test_what_was_spent_before_no_longer_counts_and_nothing_has_to_run(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 2)
    jobs = [asked(1), asked(1)]
    assert placed() == 2
    for job in jobs:
        queue_ends(job)
    assert 0 < used(grant) < 2 * SECONDS
    move_to(NEW_YEAR)
    assert used(grant) == 0
    assert QuotaGrant.objects.get().pk == grant.pk


def test_a_budget_that_is_used_up_begins_anew_at_the_boundary_and_not_before(vision: Project, act: Act) -> None:
    granted(vision, act, 1)
    first, second = asked(1), asked(1)
    assert placed() == 1
    queue_ends(first)
    charge(first, hours=1)
    move_to(NEW_YEAR - dt.timedelta(seconds=30))
    assert placed() == 0
    move_to(NEW_YEAR)
    assert placed() == 1
    assert flow.open_allocations(second)
    assert sound() == set()


def queue_ends(job: Job) -> None:
    queue.cancel(job_id=job.pk, actor=job.by, reason="", via="test")
    for _ in range(3):
        flow.make_due()
        flow.turn()
    assert not flow.open_allocations(job)


def charge(job: Job, hours: float) -> None:
    """As if it had run so long, up to its end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_allocation a SET period = tstzrange(a.closing_at - %s, upper(a.period)), "
            "active_at = a.closing_at - %s FROM ledger_attempt t WHERE t.id = a.attempt_id AND t.job_id = %s",
            [hours * HOUR, hours * HOUR, job.pk],
        )


def test_what_runs_over_the_boundary_counts_on_each_side_for_the_time_there(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 10)
    job = asked(5)
    assert placed() == 1
    assert used(grant) == 5 * HOUR_OF_A_CARD  # set aside in the period in which it starts
    move_to(NEW_YEAR)
    rest = used(grant)
    assert 3 * HOUR_OF_A_CARD <= rest < 3 * HOUR_OF_A_CARD + SECONDS  # the two hours before lie in the old one
    move_to(NEW_YEAR + HOUR)
    assert used(grant) == rest
    queue_ends(job)
    after = used(grant)
    assert HOUR_OF_A_CARD <= after < HOUR_OF_A_CARD + SECONDS
    december = limits.used([vision.pk], BUDGET, since=utc(2026, 12, 1))
    assert 3 * HOUR_OF_A_CARD <= december < 3 * HOUR_OF_A_CARD + SECONDS
    move_to(utc(2027, 2, 1))
    assert used(grant) == 0


def test_a_job_longer_than_a_period_counts_in_each_for_what_falls_there(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 24 * 100)
    asked(24 * 80)
    assert placed() == 1
    for days, moment in ((80, NEW_YEAR), (80 - 31, utc(2027, 2, 1)), (80 - 31 - 28, utc(2027, 3, 1))):
        move_to(moment)
        expected = (days * 24 - 2) * HOUR_OF_A_CARD
        assert expected <= used(grant) < expected + SECONDS


def test_a_new_period_never_begins_above_its_amount_and_never_gives_more(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 12)
    for _ in range(4):
        asked(4)
    assert placed() == 3
    move_to(NEW_YEAR)
    carried = used(grant)
    assert carried <= 12 * HOUR_OF_A_CARD
    assert 6 * HOUR_OF_A_CARD <= carried < 6 * HOUR_OF_A_CARD + 3 * SECONDS
    assert placed() == 1  # the fourth, of the six hours that are left
    asked(3)
    assert placed() == 0
    assert sound() == set()


def test_the_kept_bound_is_good_over_the_boundary(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 4)
    asked(3)
    assert placed() == 1
    grant.refresh_from_db()
    assert grant.used_at_most == 3 * HOUR_OF_A_CARD
    move_to(NEW_YEAR)
    assert sound() == set()
    second = asked(2.5)
    assert placed() == 1  # it was summed anew: one hour is carried over
    assert flow.open_allocations(second)
    grant.refresh_from_db()
    assert grant.used_at_most is not None
    assert used(grant) <= grant.used_at_most <= grant.amount


def test_work_that_hung_over_its_walltime_is_counted_for_that_too(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 10)
    asked(1)
    assert placed() == 1
    move_to(NEW_YEAR + HOUR)
    assert HOUR_OF_A_CARD <= used(grant) < HOUR_OF_A_CARD + SECONDS
    assert HOUR_OF_A_CARD * 3 <= limits.used([vision.pk], BUDGET, since=utc(2026, 12, 1)) < HOUR_OF_A_CARD * 3 + SECONDS


def test_what_is_left_is_told_as_the_database_counts_it(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 6)
    asked(4)
    assert placed() == 1
    job = asked(1)
    [before] = left.claims(job)
    assert (before.left, before.renews_on) == (2 * HOUR_OF_A_CARD, NEW_YEAR)
    move_to(NEW_YEAR)
    [after] = left.claims(job)
    assert after.left == grant.amount - used(grant)
    assert after.left > 3 * HOUR_OF_A_CARD


# -- changes ----------------------------------------------------------------------------------------------------------


def test_a_change_of_the_amount_in_the_middle_forgets_nothing_of_the_period(vision: Project, act: Act) -> None:
    granted(vision, act, 4)
    job = asked(3)
    assert placed() == 1
    more = granted(vision, act, 6)
    assert used(more) == 3 * HOUR_OF_A_CARD
    asked(4)
    assert placed() == 0
    move_to(NEW_YEAR + HOUR)
    assert placed() == 1
    queue_ends(job)
    later = granted(vision, act, 7)
    assert used(later) == used(more)
    assert limits.since_of(later, database_now()) == NEW_YEAR


def test_a_cut_below_what_is_set_aside_needs_a_date_and_takes_from_what_runs_then(vision: Project, act: Act) -> None:
    granted(vision, act, 40)
    jobs = [asked(30), asked(10)]
    assert placed() == 2
    with pytest.raises(Refused) as found:
        granted(vision, act, 20)
    assert found.value.code == "below_use"
    cut = granted(vision, act, 35, drain_at=database_now() + 25 * HOUR)
    assert draining.over(cut) == 5 * HOUR_OF_A_CARD
    move_to(NEW_YEAR + 6 * HOUR)
    queue_ends(jobs[1])
    move_to(NEW_YEAR + 24 * HOUR)
    assert draining.over(cut) < 0  # two hours of each lie in the old period, of which nothing is spent any more
    assert draining.drain_all().get("ended", 0) == 0
    assert flow.open_allocations(jobs[0])


def test_a_budget_that_renews_no_more_goes_on_from_what_it_counted(vision: Project, act: Act) -> None:
    granted(vision, act, 4)
    asked(3)
    assert placed() == 1
    move_to(NEW_YEAR + HOUR)
    plain = granted(vision, act, 5, renews="")
    counted = used(plain)
    assert HOUR_OF_A_CARD <= counted < HOUR_OF_A_CARD + SECONDS
    move_to(utc(2027, 3, 1))
    assert used(plain) >= counted
    assert limits.since_of(plain, database_now()) == NEW_YEAR


def test_a_budget_that_was_one_amount_renews_from_the_next_boundary_on(vision: Project, act: Act) -> None:
    granted(vision, act, 4, renews="")
    asked(3)
    assert placed() == 1
    renewing = granted(vision, act, 4)
    assert used(renewing) == 3 * HOUR_OF_A_CARD
    move_to(NEW_YEAR)
    assert HOUR_OF_A_CARD <= used(renewing) < HOUR_OF_A_CARD + SECONDS


def test_for_a_time_another_amount_and_then_the_old_one_again(vision: Project, act: Act) -> None:
    old = granted(vision, act, 4)
    granted(vision, act, 8, until=NEW_YEAR + DAY)
    back = QuotaGrant.objects.get(period__startswith=NEW_YEAR + DAY)
    assert (back.amount, back.renews) == (old.amount, "month")
    move_to(NEW_YEAR + 2 * DAY)
    assert limits.since_of(back, database_now()) == NEW_YEAR


def test_a_boundary_is_no_change_and_needs_no_override(vision: Project, act: Act, settings: Any) -> None:
    granted(vision, act, 4)
    settings.QUOTA_WINDOW_HOURS = 24
    move_to(NEW_YEAR + DAY)
    assert quota.observed_until(vision.pk, BUDGET, database_now()) is None
    rows = AuditEvent.objects.filter(verb__startswith="quota").count()
    granted(vision, act, 5)
    assert AuditEvent.objects.filter(verb__startswith="quota").count() == rows + 1


def test_after_the_end_of_the_project_a_new_period_gives_nothing(vision: Project, act: Act) -> None:
    granted(vision, act, 4)
    job = asked(1)
    Project.objects.filter(pk=vision.pk).update(state="ended")
    move_to(NEW_YEAR)
    assert placed() == 0
    assert not flow.open_allocations(job)


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (Terms(Resource.CARD_MILLI, 1, renews="month"), "not_a_budget"),
        (Terms(BUDGET, 1, renews="week"), "unknown"),
    ],
)
def test_what_is_wrong_is_named(vision: Project, act: Act, terms: Terms, code: str) -> None:
    with pytest.raises(Refused) as found:
        quota.set_grant(project=vision, terms=terms, act=act)
    assert (found.value.field, found.value.code) == ("renews", code)


@pytest.mark.parametrize(("resource", "renews"), [("card_milli", "month"), ("card_milli_s", "week")])
def test_the_database_refuses_it_too(vision: Project, act: Act, resource: str, renews: str) -> None:
    grant = factories.grant(vision, BUDGET, 5)
    with pytest.raises(IntegrityError, match="grant_that_renews_is_a_budget"), transaction.atomic():
        QuotaGrant.objects.filter(pk=grant.pk).update(resource=resource, renews=renews)


def test_another_calendar_makes_the_bound_unknown(vision: Project, act: Act) -> None:
    grant = granted(vision, act, 4)
    asked(1)
    assert placed() == 1
    QuotaGrant.objects.filter(pk=grant.pk).update(renews="year")
    grant.refresh_from_db()
    assert grant.used_at_most is None


# -- departments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renews", list(Renewal))
def test_a_ceiling_renews_in_the_same_way(vision: Project, act: Act, renews: Renewal) -> None:
    research = Department.objects.get(slug="research")
    cap = Cap(BUDGET, 4 * HOUR_OF_A_CARD, renews=renews)
    ceiling = departments.set_ceiling(department=research, cap=cap, act=act)
    first = asked(4)
    assert placed() == 1
    second = asked(1)
    move_to(NEW_YEAR - dt.timedelta(seconds=30))
    assert placed() == 0
    move_to(NEW_YEAR)
    assert placed() == 1
    assert sound() == set()
    ceiling.refresh_from_db()
    taken = limits.used([vision.pk], BUDGET, since=limits.since_of(ceiling, database_now()))
    assert 3 * HOUR_OF_A_CARD <= taken < 3 * HOUR_OF_A_CARD + SECONDS
    changed = departments.set_ceiling(department=research, cap=Cap(BUDGET, 5 * HOUR_OF_A_CARD, renews=renews), act=act)
    changed.refresh_from_db()
    assert (changed.renews, limits.since_of(changed, database_now())) == (renews, NEW_YEAR)
    assert DepartmentCeiling.objects.filter(period__contains=database_now()).count() == 1
    assert {job.pk for job in (first, second)} == {a.attempt.job_id for a in Allocation.objects.all()}


def test_what_moves_under_a_ceiling_brings_what_it_used_in_this_period_alone(vision: Project, act: Act) -> None:
    granted(vision, act, 10)
    job = asked(1)
    assert placed() == 1
    other = Department.objects.create(slug="other", title="Other")
    cap = Cap(BUDGET, HOUR_OF_A_CARD // 2, renews="month")
    departments.set_ceiling(department=other, cap=cap, act=act)
    queue_ends(job)
    charge(job, hours=1)
    with pytest.raises(IntegrityError, match="no room for what moves"), transaction.atomic():
        DepartmentCeiling.objects.update(counted_from=NEW_YEAR - 9 * HOUR)
        Project.objects.filter(pk=vision.pk).update(department=other)
    move_to(NEW_YEAR)
    DepartmentCeiling.objects.update(counted_from=NEW_YEAR - 9 * HOUR)
    Project.objects.filter(pk=vision.pk).update(department=other)
