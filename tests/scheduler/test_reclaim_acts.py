"""The reclaim when things are odd, what admins do, and the plan that follows from the facts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from ledger import ends, invariants, projects
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent, Job, Project, ProjectUserPermission, Receipt
from ledger.vocabulary import (
    JobState,
    NoticeKind,
    Outcome,
    ProjectRole,
    ProjectState,
)
from scheduler import commands, reclaim, reclaim_plan
from scheduler.drivers.base import ReplyLost
from scheduler.drivers.batch import StopOrder
from scheduler.drivers.simulated import SimulatedDriver, World
from scheduler.models import SimulatedMember
from scheduler.reclaim_plan import Facts, Held, Step, Waiting, plan_of
from tests import factories
from tests.scheduler import ending, flow
from tests.scheduler.ending import DAY

pytestmark = pytest.mark.django_db


# -- notices -----------------------------------------------------------------------------------------------------------


class Silent(SimulatedDriver):
    """Answers no stop."""

    def stop_many(self, orders: Sequence[StopOrder]) -> dict[str, bool | Exception]:
        return {order.key: ReplyLost("no route to host") for order in orders}


class TestOddThings:
    def test_an_odd_project_is_named_and_the_others_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        odd = ending.ends_in(0, grace_days=0)
        good = [factories.project(f"good-{n}") for n in range(2)]
        for project in good:
            project.ends_on, project.grace_days = odd.ends_on, 0
            project.save(update_fields=["ends_on", "grace_days"])
        close = reclaim.STEPS[Step.CLOSE]

        def fails(project: Project, *rest: Any) -> int:
            if project.pk == odd.pk:
                raise RuntimeError("cosmic ray")
            return close(project, *rest)

        with monkeypatch.context() as patch:
            patch.setitem(reclaim.STEPS, Step.CLOSE, fails)  # type: ignore[arg-type]
            assert reclaim.reclaim_all(ending.after(1)) == ending.pass_result(
                begin=3, close=2, odd={"vision": "RuntimeError: cosmic ray"}
            )
        assert {p.slug: p.state for p in Project.objects.all()} == {
            "vision": ProjectState.ENDING,
            "good-0": ProjectState.ENDED,
            "good-1": ProjectState.ENDED,
        }
        assert reclaim.reclaim_all(ending.after(1)) == ending.pass_result(close=1)

    def test_an_odd_job_stops_no_other_in_its_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        flow.world(cards=4)
        ending.ends_in(0)
        jobs = ending.waiting(3)
        cancel = reclaim.cancel_queued_inside

        def fails(job: Job, *rest: Any, **values: Any) -> None:
            if job.pk == jobs[1].pk:
                raise ValueError("bad row")
            cancel(job, *rest, **values)

        monkeypatch.setattr(reclaim, "cancel_queued_inside", fails)
        result = reclaim.reclaim_all(ending.after(2))
        assert (result["cancel"], result["odd"]) == (2, {f"job {jobs[1].pk}": "ValueError: bad row"})
        assert [Job.objects.get(pk=job.pk).state for job in jobs] == ["cancelled", "queued", "cancelled"]

    def test_what_a_driver_does_not_confirm_keeps_the_project_open_and_is_named(self) -> None:
        flow.world(cards=2)
        project = ending.ends_in(0, grace_days=0)
        job = flow.long_job()
        driver = Silent(World(start_delay_s=(0, 0)))
        with flow.simulated_by(driver):
            flow.start(job)
            ending.passes(ending.after(1))
            plan = plan_of(reclaim_plan.facts_of([Project.objects.get()])[0], ending.after(1))
            assert (plan.acts, [(held.job_id, held.error) for held in plan.stuck]) == (
                (),
                [(job.pk, "no route to host")],
            )
            assert Project.objects.get().state == ProjectState.ENDING
        ending.passes(ending.after(1))
        receipt = Receipt.objects.get(project=project)
        assert [(line["job"], line["error"]) for line in receipt.content["delays"]] == [(job.pk, "no route to host")]

    def test_a_job_over_its_walltime_that_still_holds_is_ended_and_named(self) -> None:
        flow.world(cards=2)
        ending.ends_in(100)
        job, other = flow.long_job(walltime_s=50), flow.long_job(walltime_s=5000)
        flow.start(job, other)
        flow.grow_old(100)
        assert reclaim.reclaim_all()["over_walltime"] == 0  # observing has its time to do it
        flow.grow_old(60)
        assert [held.job_id for held in reclaim_plan.over_walltime(database_now())] == [job.pk]
        assert reclaim.reclaim_all()["over_walltime"] == 1
        assert flow.attempt_of(job).outcome == Outcome.OVER_WALLTIME
        assert [held.stopping for held in reclaim_plan.over_walltime(database_now())] == [True]
        assert reclaim.reclaim_all()["over_walltime"] == 0
        other.refresh_from_db()
        assert other.state == JobState.RUNNING

    def test_a_lost_job_is_not_tried_again_in_a_project_that_ends(self) -> None:
        flow.world(cards=2)
        ending.ends_in(0, grace_days=7)
        job = flow.long_job()
        flow.start(job)
        reclaim.reclaim_all(ending.after(2))
        SimulatedMember.objects.all().delete()
        flow.grow_old()
        ending.passes(ending.after(2))
        job.refresh_from_db()
        assert (job.state, job.attempts.count()) == (JobState.CANCELLED, 1)


# -- what admins do ----------------------------------------------------------------------------------------------------


class TestActs:
    def test_ending_it_now_leaves_no_grace(self) -> None:
        factories.cast()
        flow.world(cards=2)
        project = ending.ends_in(200)
        job = flow.long_job()
        flow.start(job)
        reclaim.end_now(project=project, act=ending.by("admin"))
        project.refresh_from_db()
        assert (project.state, project.ends_on) == (ProjectState.ENDING, database_now().date())
        ending.passes(database_now())
        project.refresh_from_db()
        job.refresh_from_db()
        assert (project.state, job.state) == (ProjectState.ENDED, JobState.CANCELLED)
        event = AuditEvent.objects.get(verb="project.end_ordered")
        assert (event.actor.username, event.reason) == ("admin", ending.BY_ADMIN)  # type: ignore[union-attr]

    @pytest.mark.parametrize("days", [-3, 0, 5, None])
    def test_whatever_its_last_day_was(self, days: int | None) -> None:
        factories.cast()
        project = ending.ends_in(days or 0)
        if days is None:
            project.ends_on = None
            project.save(update_fields=["ends_on"])
        today = database_now().date()
        reclaim.end_now(project=project, act=ending.by("admin"))
        project.refresh_from_db()
        assert project.ends_on == min(today, today + DAY * (days or 0))
        ending.passes(database_now())
        assert Receipt.objects.get().grace_over_at == project.end_ordered_at

    def test_an_ordered_end_is_taken_back_by_an_extension(self) -> None:
        factories.cast()
        project = ending.ends_in(200)
        reclaim.end_now(project=project, act=ending.by("admin"))
        project.refresh_from_db()
        with pytest.raises(Refused) as refused:
            reclaim.extend(project=project, ends_on=project.ends_on, act=ending.by("admin"))
        assert (refused.value.field, refused.value.code) == ("ends_on", "not_later")
        reclaim.extend(project=project, ends_on=project.ends_on + 200 * DAY, act=ending.by("admin"))
        project.refresh_from_db()
        assert (project.state, project.end_ordered_at, project.ending_since) == (ProjectState.ACTIVE, None, None)

    @pytest.mark.parametrize("name", ["owner", "operator", "manager", "auditor", "researcher"])
    def test_only_admins_end_it_now(self, name: str) -> None:
        factories.cast()
        project = ending.ends_in(200)
        with pytest.raises(Forbidden):
            reclaim.end_now(project=project, act=ending.by(name))
        project.refresh_from_db()
        assert project.state == ProjectState.ACTIVE

    def test_what_is_wrong_is_named(self) -> None:
        factories.cast()
        project = ending.ends_in(20)
        for reason in ("", " ", "x" * 501):
            with pytest.raises(Refused) as refused:
                reclaim.end_now(project=project, act=ending.by("admin", reason))
            assert refused.value.field == "reason"
            with pytest.raises(Refused) as refused:
                reclaim.extend(project=project, ends_on=project.ends_on + DAY, act=ending.by("admin", reason))
            assert refused.value.field == "reason"
        for day in (project.ends_on, project.ends_on - DAY):
            with pytest.raises(Refused) as refused:
                reclaim.extend(project=project, ends_on=day, act=ending.by("admin"))
            assert refused.value.field == "ends_on"
        reclaim.end_now(project=project, act=ending.by("admin"))
        with pytest.raises(Conflict):
            reclaim.end_now(project=project, act=ending.by("admin"))
        ending.passes(database_now())
        project.refresh_from_db()
        with pytest.raises(Conflict):
            reclaim.end_now(project=project, act=ending.by("admin"))
        with pytest.raises(Conflict):
            reclaim.extend(project=project, ends_on=project.ends_on + 9 * DAY, act=ending.by("admin"))

    def test_a_role_changed_while_it_ends_counts_until_it_has_ended(self) -> None:
        factories.cast()
        project = ending.ends_in(0)
        reclaim.reclaim_all(ending.after(2))
        projects.set_role(
            project=project, user=factories.user("outsider"), role=ProjectRole.VIEWER, act=ending.by("owner")
        )
        ending.passes(ending.after(9))
        assert ProjectUserPermission.objects.filter(content_object=project).count() == 5


# -- the plan ----------------------------------------------------------------------------------------------------------

HELD = Held(7, 3, 1, "train", "ada", False, "running", ("n1",), 1, ("local",), None, 60, None, 0, "")
WAITING = Waiting(4, "eval", "ada", False)
NOON = dt.datetime(2030, 5, 10, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("state", "ends", "grace", "queued", "held", "steps"),
    [
        ("active", 20, 7, 1, "running", []),
        ("active", 14, 7, 1, "running", [Step.TELL]),
        ("active", 0, 7, 1, "running", [Step.TELL]),
        ("active", -1, 7, 0, "", [Step.BEGIN]),
        ("active", -1, 7, 1, "running", [Step.BEGIN, Step.CANCEL]),
        ("active", -1, 0, 1, "running", [Step.BEGIN, Step.CANCEL, Step.STOP]),
        ("active", -1, 0, 1, "", [Step.BEGIN, Step.CANCEL, Step.CLOSE]),
        ("ending", -3, 7, 0, "running", []),
        ("ending", -3, 7, 1, "running", [Step.CANCEL]),
        ("ending", -8, 7, 0, "running", [Step.STOP]),
        ("ending", -8, 7, 0, "stopping", []),
        ("ending", -8, 7, 1, "stopping", [Step.CANCEL]),
        ("ending", -8, 7, 0, "", [Step.CLOSE]),
        ("ended", -8, 7, 0, "", []),
        ("ended", -8, 7, 1, "", [Step.CANCEL]),
    ],
)
def test_what_follows_from_what_is(
    state: str, ends: int, grace: int, queued: int, held: str, steps: list[Step]
) -> None:
    day = NOON.date() + ends * DAY
    since = None if state == "active" else NOON
    project = Project(slug="p", ends_on=day, grace_days=grace, state=state, ending_since=since)
    live = (Held(**{**{f: getattr(HELD, f) for f in HELD.__slots__}, "state": held}),) if held else ()
    plan = plan_of(Facts(project, (WAITING,) * queued, live), NOON)
    assert [act.step for act in plan.acts] == steps


def test_the_dry_run_is_what_the_pass_does() -> None:
    """For every stage of a life: the steps planned are those that did something."""
    flow.world(cards=4)
    project = ending.ends_in(14)
    flow.start(flow.long_job())
    for days in (0, 1, 12, 14, 15, 16, 22, 22, 22, 23):
        if days == 15:
            Job.objects.filter(pk=flow.long_job().pk).update(state="queued")
        now = ending.after(days)
        steps = ending.planned(project, now)
        result = reclaim.reclaim_all(now)
        assert {str(step) for step in steps} == {name for name, count in result.items() if count and name != "odd"}
        flow.make_due()
        commands.run_due()
    project.refresh_from_db()
    assert project.state == ProjectState.ENDED


# -- invariants --------------------------------------------------------------------------------------------------------


@pytest.mark.breaks_books
def test_invariants_name_what_an_ended_project_holds_and_what_is_late() -> None:
    flow.world(cards=2)
    project = ending.ends_in(0, grace_days=0)
    flow.start(flow.long_job())
    assert broken() == set()
    since = database_now()
    Project.objects.filter(pk=project.pk).update(
        state=ProjectState.ENDING, ending_since=since, end_ordered_at=since - dt.timedelta(minutes=59)
    )
    assert broken() == set()
    Project.objects.filter(pk=project.pk).update(end_ordered_at=since - dt.timedelta(minutes=61))
    assert broken() == {"ends-in-time"}
    Project.objects.filter(pk=project.pk).update(end_ordered_at=None, ends_on=since.date() - 2 * DAY)
    assert broken() == {"ends-in-time"}
    Project.objects.filter(pk=project.pk).update(grace_days=3)
    assert broken() == set()
    with flow_trigger_off():
        Project.objects.filter(pk=project.pk).update(state=ProjectState.ENDED)
    assert broken() == {"ended-holds-nothing"}


def broken() -> set[str]:
    return {finding.name for finding in invariants.check()}


def flow_trigger_off() -> Any:
    from contextlib import contextmanager

    from tests.ledger.raw import run

    @contextmanager
    def off() -> Any:
        run("SET CONSTRAINTS ALL IMMEDIATE")
        run("ALTER TABLE ledger_project DISABLE TRIGGER project_ends_empty")
        yield
        run("ALTER TABLE ledger_project ENABLE TRIGGER project_ends_empty")

    return off()


def test_notice_kinds_have_their_days() -> None:
    assert [kind for kind, _ in ends.NOTICE_DAYS] + [NoticeKind.OVER, NoticeKind.RECEIPT] == [
        NoticeKind.DAYS_1,
        NoticeKind.DAYS_3,
        NoticeKind.DAYS_14,
        NoticeKind.OVER,
        NoticeKind.RECEIPT,
    ]
