"""Grants and their writer: who may, what is refused and why, what stands when, and what the audit trail has of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import departments, limits, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Allocation, AuditEvent, Department, Project, QuotaGrant, User
from ledger.quota import Terms
from ledger.vocabulary import Form, ProjectState, Resource
from scheduler import queue
from scheduler.placing import place_queued
from tests import factories
from tests.ledger.raw import insert, refused, run
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
MILLI, MIB, WHOLE, CPU, HOST, BUDGET = Resource
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
GOVERNING = {"admin", "manager"}


@pytest.fixture
def people() -> dict[str, User]:
    return factories.cast()


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    return Project.objects.get(slug="vision")


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    return Act(people["admin"], "page", "because", "r-1")


@pytest.fixture
def no_window(settings: Any) -> None:
    settings.QUOTA_WINDOW_HOURS = 0.0


def standing(project: Project, resource: Resource = MILLI, model: str = "") -> list[tuple[int, bool, bool]]:
    """Of every grant its amount, whether it has begun, and whether it goes on for good."""
    now = database_now()
    rows = QuotaGrant.objects.filter(project=project, resource=resource, model=model).order_by("period")
    return [(row.amount, row.period.lower <= now, row.period.upper is None) for row in rows]


@pytest.mark.parametrize("name", ["owner", "member", "outsider", "operator", "auditor", "admin", "manager"])
def test_site_admins_and_managers_grant(people: dict[str, User], vision: Project, name: str) -> None:
    act = Act(people[name], "page", "because")
    if name in GOVERNING:
        quota.set_grant(project=vision, terms=Terms(MILLI, 4000), act=act)
        assert quota.lift_grant(project=vision, resource=MILLI, act=act, override="again")
    else:
        with pytest.raises(Forbidden):
            quota.set_grant(project=vision, terms=Terms(MILLI, 4000), act=act)
        with pytest.raises(Forbidden):
            quota.lift_grant(project=vision, resource=MILLI, act=act)
        assert not QuotaGrant.objects.exists()


@pytest.mark.usefixtures("no_window")
def test_a_change_ends_the_old_grant_where_the_new_one_begins(vision: Project, act: Act) -> None:
    first = quota.set_grant(project=vision, terms=Terms(MILLI, 4000, guaranteed=1000, weight=3), act=act)
    second = quota.set_grant(project=vision, terms=Terms(MILLI, 2000), act=act)
    first.refresh_from_db()
    assert first.period.upper == second.period.lower
    assert standing(vision) == [(4000, True, False), (2000, True, True)]
    rows = AuditEvent.objects.filter(project=vision, verb__startswith="quota.").order_by("pk")
    assert [row.verb for row in rows] == ["quota.set", "quota.set"]
    last = rows[1]
    assert (last.actor, last.via, last.reason, last.request_id) == (act.actor, "page", "because", "r-1")
    assert last.before is not None
    assert last.after is not None
    told = [(side["amount"], side["guaranteed"], side["weight"]) for side in (last.before, last.after)]
    assert told == [(4000, 1000, 3), (2000, 0, 1)]


@pytest.mark.usefixtures("no_window")
def test_what_stood_before_comes_back_when_its_time_is_over(vision: Project, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 1000), act=act)
    until = database_now() + DAY
    quota.set_grant(project=vision, terms=Terms(MILLI, 5000, until=until), act=act)
    assert standing(vision) == [(1000, True, False), (5000, True, False), (1000, False, True)]
    back = QuotaGrant.objects.get(project=vision, period__startswith=until)
    assert back.drain_at == until + DAY  # no sooner than any other cut
    quota.set_grant(project=vision, terms=Terms(MILLI, 7000), act=act)  # for good: what was to come is gone
    assert standing(vision) == [(1000, True, False), (5000, True, False), (7000, True, True)]
    assert quota.lift_grant(project=vision, resource=MILLI, act=act)
    assert not quota.lift_grant(project=vision, resource=MILLI, act=act)
    assert [row[2] for row in standing(vision)] == [False] * 3


@pytest.mark.usefixtures("no_window")
def test_cards_of_one_model_are_a_grant_of_their_own(vision: Project, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 4000), act=act)
    quota.set_grant(project=vision, terms=Terms(MILLI, 1000, model="A100"), act=act)
    assert standing(vision) == [(4000, True, True)]
    assert standing(vision, model="A100") == [(1000, True, True)]
    with refused("one_grant_at_a_time", at_once=True):
        factories.grant(vision, MILLI, 1)
    with refused("grant_of_a_model_is_of_cards", at_once=True):
        insert(
            "ledger_quotagrant", project_id=vision.pk, resource="cpu_milli", model="A100", amount=1, guaranteed=0,
            weight=1, period="[2020-01-01, 2020-01-02)", reason="x", by_id=vision.owner_id,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("terms", "field", "code"),
    [
        (Terms(MILLI, -1), "amount", "out_of_range"),
        (Terms(MILLI, 2**53 + 1), "amount", "out_of_range"),
        (Terms(MILLI, 5, guaranteed=-1), "guaranteed", "out_of_range"),
        (Terms(MILLI, 5, guaranteed=6), "guaranteed", "above_amount"),
        (Terms(MILLI, 5, weight=0), "weight", "out_of_range"),
        (Terms(MILLI, 5, weight=1001), "weight", "out_of_range"),
        (Terms(CPU, 5, model="A100"), "model", "not_of_cards"),
        (Terms(MILLI, 5, model="x" * 65), "model", "too_long"),
        (Terms("cards", 5), "resource", "unknown"),  # type: ignore[arg-type]
        (Terms(MILLI, 5, until=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), "until", "past"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    vision: Project, act: Act, terms: Terms, field: str, code: str
) -> None:
    before = AuditEvent.objects.count()
    with pytest.raises(Refused) as found:
        quota.set_grant(project=vision, terms=terms, act=act)
    assert (found.value.field, found.value.code) == (field, code)
    assert AuditEvent.objects.count() == before
    assert not QuotaGrant.objects.exists()


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501])
def test_a_reason_is_needed(people: dict[str, User], vision: Project, reason: str) -> None:
    with pytest.raises(Refused) as found:
        quota.set_grant(project=vision, terms=Terms(MILLI, 5), act=Act(people["admin"], "page", reason))
    assert found.value.field == "reason"


def test_an_ended_project_gets_nothing(vision: Project, act: Act) -> None:
    Project.objects.filter(pk=vision.pk).update(state=ProjectState.ENDED)
    with pytest.raises(Conflict) as found:
        quota.set_grant(project=vision, terms=Terms(MILLI, 5), act=act)
    assert found.value.code == "project_ended"


@pytest.mark.usefixtures("no_window")
def test_nothing_changes_when_nothing_is_to_change(vision: Project, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 5), act=act)
    with pytest.raises(Refused) as found:
        quota.set_grant(project=vision, terms=Terms(MILLI, 5), act=act)
    assert found.value.code == "no_change"


# -- observation window -----------------------------------------------------------------------------------------------


def test_a_change_is_observed_and_only_an_override_with_a_reason_passes(vision: Project, act: Act) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 4000), act=act)
    quota.set_grant(project=vision, terms=Terms(CPU, 4000), act=act)  # another resource
    for change in (
        lambda: quota.set_grant(project=vision, terms=Terms(MILLI, 5000), act=act),
        lambda: quota.set_grant(project=vision, terms=Terms(MILLI, 5000, model="A100"), act=act),
        lambda: quota.lift_grant(project=vision, resource=MILLI, act=act),
    ):
        with pytest.raises(Conflict) as found:
            change()
        assert (found.value.field, found.value.code) == ("override_reason", "observation_window")
    assert standing(vision) == [(4000, True, True)]
    quota.set_grant(project=vision, terms=Terms(MILLI, 5000), act=act, override="a deadline")
    row = AuditEvent.objects.get(verb="quota.overridden")
    assert row.after is not None
    assert (row.after["amount"], row.after["override_reason"], row.reason) == (5000, "a deadline", "because")
    quota.lift_grant(project=vision, resource=MILLI, act=act, override="no need")
    assert AuditEvent.objects.filter(verb="quota.overridden").count() == 2


def test_the_window_is_as_long_as_the_site_says(vision: Project, act: Act, settings: Any) -> None:
    quota.set_grant(project=vision, terms=Terms(MILLI, 4000), act=act)
    now = database_now()
    begun = quota.changed_at(vision.pk, MILLI, now)
    assert begun is not None
    assert quota.observed_until(vision.pk, MILLI, now) == begun + 48 * HOUR
    assert quota.observed_until(vision.pk, CPU, now) is None
    settings.QUOTA_WINDOW_HOURS = 24.0
    assert quota.observed_until(vision.pk, MILLI, now) == begun + 24 * HOUR
    assert quota.observed_until(vision.pk, MILLI, begun + 24 * HOUR) is None
    quota.set_grant(project=vision, terms=Terms(MILLI, 9), act=act, override="not needed, then not kept as one")
    assert AuditEvent.objects.filter(verb="quota.overridden").count() == 1


# -- what runs --------------------------------------------------------------------------------------------------------


CARD = {"form": "container", "memory_mib": 0}


def running(cards: int = 2, **values: Any) -> None:
    flow.world(cards=4)
    for _ in range(cards):
        flow.long_job(asks=[CARD], **values)
    assert place_queued()["placed"] == cards


def test_a_cut_below_what_runs_needs_a_date_that_leaves_time(vision: Project, act: Act) -> None:
    running(2)
    now = database_now()
    for drain_at, field, code in ((None, "amount", "below_use"), (now + 23 * HOUR, "drain_at", "too_soon")):
        with pytest.raises(Refused) as found:
            quota.set_grant(project=vision, terms=Terms(MILLI, 1999, drain_at=drain_at), act=act)
        assert (found.value.field, found.value.code) == (field, code)
    grant = quota.set_grant(project=vision, terms=Terms(MILLI, 1999, drain_at=now + 25 * HOUR), act=act)
    assert grant.drain_at == now + 25 * HOUR
    flow.long_job(asks=[CARD])
    assert place_queued()["placed"] == 0  # nothing new until it is below
    assert limits.used([vision.pk], MILLI) == 2000  # and what runs goes on


def test_a_date_is_not_kept_where_nothing_is_to_drain(vision: Project, act: Act) -> None:
    running(2)
    terms = Terms(MILLI, 2000, drain_at=database_now() + 25 * HOUR)
    assert quota.set_grant(project=vision, terms=terms, act=act).drain_at is None


def test_what_takes_nothing_of_a_cut_resource_is_still_placed(vision: Project, act: Act) -> None:
    running(2, cpu_milli=1000)
    quota.set_grant(project=vision, terms=Terms(MILLI, 0, drain_at=database_now() + 25 * HOUR), act=act)
    quota.set_grant(project=vision, terms=Terms(WHOLE, 0), act=act)
    flow.long_job(asks=[{"form": "container", "cards_per_node": 0}])
    assert place_queued()["placed"] == 1


def test_cards_of_another_model_are_not_counted(vision: Project, act: Act) -> None:
    flow.world(cards=2)
    factories.node("other", cards=2, model="L4")
    quota.set_grant(project=vision, terms=Terms(MILLI, 1000, model="A100"), act=act)
    jobs = [flow.long_job(asks=[CARD | {"model": model}]) for model in ("A100", "A100", "L4", "L4")]
    assert place_queued()["placed"] == 3
    assert [len(flow.open_allocations(job)) for job in jobs] == [1, 0, 1, 1]
    assert limits.used([vision.pk], MILLI, "A100") == 1000
    assert limits.used([vision.pk], MILLI, "L4") == 2000
    assert limits.used([vision.pk], MIB, "L4") == 32_000


def test_a_job_for_any_model_goes_to_the_one_that_is_left(vision: Project, act: Act) -> None:
    flow.world(cards=2)
    factories.node("other", cards=1, model="L4")
    quota.set_grant(project=vision, terms=Terms(MILLI, 0, model="A100"), act=act)
    flow.long_job(asks=[CARD | {"model": "L4"}])
    job = flow.long_job(asks=[CARD | {"model": "A100"}])
    assert place_queued()["placed"] == 1
    assert flow.open_allocations(job) == []


# -- budgets ----------------------------------------------------------------------------------------------------------


def test_a_budget_sets_the_walltime_aside_and_gives_the_rest_back_at_the_end(vision: Project, act: Act) -> None:
    flow.world(cards=4)
    quota.set_grant(project=vision, terms=Terms(BUDGET, 2 * 1000 * 3600), act=act)
    first, second, third = (flow.long_job(asks=[CARD], walltime_s=3600) for _ in range(3))
    assert place_queued()["placed"] == 2
    assert limits.used([vision.pk], BUDGET, since=_since(vision)) == 2 * 1000 * 3600
    queue.cancel(job_id=first.pk, actor=first.by, reason="", via="test")
    flow.turn()
    flow.turn()
    used = limits.used([vision.pk], BUDGET, since=_since(vision))
    assert 3_600_000 < used < 3_600_000 + 60_000  # what it took in fact, some seconds of one card
    assert not flow.open_allocations(third)
    fourth = flow.long_job(asks=[CARD], walltime_s=3000)
    assert place_queued()["placed"] == 1
    assert [len(flow.open_allocations(job)) for job in (second, third, fourth)] == [1, 0, 1]


def _since(project: Project) -> dt.datetime:
    return limits.since_of(QuotaGrant.objects.filter(project=project, resource=BUDGET).latest("pk"))


@pytest.mark.usefixtures("no_window")
def test_a_change_of_a_budget_forgets_nothing_unless_it_counts_anew(vision: Project, act: Act) -> None:
    flow.world(cards=4)
    first = quota.set_grant(project=vision, terms=Terms(BUDGET, 10**9), act=act)
    flow.finish(flow.long_job(asks=[CARD], walltime_s=600))
    used = limits.used([vision.pk], BUDGET, since=_since(vision))
    assert used > 0
    second = quota.set_grant(project=vision, terms=Terms(BUDGET, 2 * 10**9), act=act)
    assert limits.since_of(second) == first.period.lower
    assert limits.used([vision.pk], BUDGET, since=_since(vision)) == used
    with pytest.raises(Refused) as found:
        quota.set_grant(project=vision, terms=Terms(BUDGET, used - 1), act=act)
    assert found.value.code == "below_use"
    quota.set_grant(project=vision, terms=Terms(BUDGET, used - 1, anew=True), act=act)
    assert limits.used([vision.pk], BUDGET, since=_since(vision)) == 0


def test_the_bound_of_a_budget_is_good_until_something_outlives_its_walltime(vision: Project, act: Act) -> None:
    flow.world(cards=4)
    grant = quota.set_grant(project=vision, terms=Terms(BUDGET, 1000 * 3600 + 1000 * 60), act=act)
    flow.long_job(asks=[CARD], walltime_s=3600)
    assert place_queued()["placed"] == 1
    grant.refresh_from_db()
    assert grant.used_at_most == 3_600_000
    assert grant.bound_until == Allocation.objects.get().period.lower + dt.timedelta(hours=1)
    run("UPDATE ledger_job SET walltime_s = 3660")  # an extension
    grant.refresh_from_db()
    assert grant.used_at_most is None
    flow.long_job(asks=[CARD], walltime_s=1)
    assert place_queued()["placed"] == 0


# -- under a department -----------------------------------------------------------------------------------------------


def test_no_grant_is_above_a_ceiling_over_it(vision: Project, act: Act) -> None:
    top = Department.objects.create(slug="top", title="Top")
    research = Department.objects.get(slug="research")
    departments.move_department(department=research, parent=top, act=act)
    departments.set_ceiling(department=top, cap=Cap(MILLI, 4000), act=act)
    with pytest.raises(Refused) as found:
        quota.set_grant(project=vision, terms=Terms(MILLI, 4001), act=act)
    assert (found.value.field, found.value.code) == ("amount", "above_ceiling")
    quota.set_grant(project=vision, terms=Terms(MILLI, 4000, guaranteed=3000), act=act)
    outside = Project.objects.get(slug="outside")
    with pytest.raises(Refused) as found:
        quota.set_grant(project=outside, terms=Terms(MILLI, 2000, guaranteed=1001), act=act)
    assert (found.value.field, found.value.code) == ("guaranteed", "guarantees_above_ceiling")
    quota.set_grant(project=outside, terms=Terms(MILLI, 2000, guaranteed=1000), act=act)
    assert standing(outside) == [(2000, True, True)]


def test_the_writer_is_one_with_the_database(vision: Project, act: Act) -> None:
    """What is refused by a constraint can't be what the writer lets through."""
    wrong: list[Callable[[], object]] = [
        lambda: QuotaGrant.objects.filter(project=vision).update(amount=-1),
        lambda: QuotaGrant.objects.filter(project=vision).update(weight=0),
        lambda: QuotaGrant.objects.filter(project=vision).update(guaranteed=10),
    ]
    quota.set_grant(project=vision, terms=Terms(MILLI, 5), act=act)
    for change in wrong:
        with pytest.raises(IntegrityError), transaction.atomic():
            change()


def test_whole_machines(vision: Project, act: Act) -> None:
    flow.world(nodes=2, cards=2)
    quota.set_grant(project=vision, terms=Terms(WHOLE, 1), act=act)
    for _ in range(2):
        flow.long_job(asks=[{"form": str(Form.WHOLE)}])
    assert place_queued()["placed"] == 1
