"""The reclaim: what a project loses when, what its receipt says, and that nothing odd stops the rest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import ends, invariants, projects
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent, Delivery, Job, Notice, Project, ProjectUserPermission, QuotaGrant, Receipt
from ledger.vocabulary import (
    Channel,
    DeliveryState,
    JobState,
    NoticeKind,
    Outcome,
    ProjectRole,
    ProjectState,
    Resource,
)
from scheduler import commands, placing, queue, reclaim, reclaim_plan
from scheduler.drivers.base import ReplyLost
from scheduler.drivers.batch import StopOrder
from scheduler.drivers.simulated import SimulatedDriver, World
from scheduler.models import Command, Decision, SimulatedMember
from scheduler.reclaim_plan import Act, Facts, Held, ProjectPlan, Step, Waiting, plan_of
from tests import factories
from tests.scheduler import ending, flow
from tests.scheduler.ending import DAY

pytestmark = pytest.mark.django_db
PATHS = ["/data/a", "/data/b"]


def notices(project: Project) -> list[tuple[str, dt.date]]:
    return list(Notice.objects.filter(project=project).order_by("pk").values_list("kind", "ends_on"))


def waiting(count: int = 1, **values: Any) -> list[Job]:
    """Jobs that no node has room for now."""
    wide = {"asks": [{"form": "container", "cards_per_node": 4, "memory_mib": 0}]} | values
    return [flow.long_job(name=f"waits {n}", **wide) for n in range(count)]


def planned(project: Project, now: dt.datetime) -> list[Step]:
    project.refresh_from_db()
    return [act.step for act in plan_of(reclaim_plan.facts_of([project])[0], now).acts]


# -- notices -----------------------------------------------------------------------------------------------------------


class TestNotices:
    @pytest.mark.parametrize(
        ("left", "kind"),
        [(15, None), (14, "days_14"), (4, "days_14"), (3, "days_3"), (2, "days_3"), (1, "days_1"), (0, "days_1")],
    )
    def test_the_nearest_is_given_and_only_once(self, left: int, kind: str | None) -> None:
        project = ending.ends_in(left)
        assert reclaim.reclaim_all()["tell"] == int(kind is not None)
        assert reclaim.reclaim_all()["tell"] == 0
        assert notices(project) == ([(kind, project.ends_on)] if kind else [])

    def test_a_project_that_is_watched_all_the_time_gets_each(self) -> None:
        project = ending.ends_in(15)
        for days in range(16):
            reclaim.reclaim_all(ending.after(days))
        assert [kind for kind, _ in notices(project)] == ["days_14", "days_3", "days_1"]

    def test_an_extension_gives_new_ones_of_its_own_end(self) -> None:
        factories.cast()
        project = ending.ends_in(3)
        reclaim.reclaim_all()
        later = project.ends_on + 5 * DAY
        reclaim.extend(project=project, ends_on=later, act=ending.by("admin"))
        reclaim.reclaim_all()
        assert notices(project) == [("days_3", project.ends_on), ("days_14", later)]

    def test_owner_and_managers_are_written_to_and_the_webhook_and_a_channel_that_is_not_there_says_so(
        self, settings: Any
    ) -> None:
        settings.EMAIL_HOST, settings.PROJECT_WEBHOOK_URL = "mail.lab.example", ""
        ending.ends_in(3)
        reclaim.reclaim_all()
        told = {(d.channel, d.to.username if d.to else ""): (d.state, d.last_error) for d in Delivery.objects.all()}
        assert told == {
            (Channel.MAIL, "owner"): (DeliveryState.PENDING, ""),
            (Channel.MAIL, "deputy"): (DeliveryState.FAILED, "this person has no e-mail address"),
            (Channel.WEBHOOK, ""): (DeliveryState.NOT_CONFIGURED, ""),
        }

    def test_without_a_mail_server_nothing_counts_as_sent(self, settings: Any) -> None:
        settings.EMAIL_HOST = ""
        ending.ends_in(3)
        reclaim.reclaim_all()
        assert set(Delivery.objects.values_list("state", flat=True)) == {DeliveryState.NOT_CONFIGURED}


# -- the end -----------------------------------------------------------------------------------------------------------


class TestTheEnd:
    def test_a_project_works_through_its_last_day_and_no_longer(self) -> None:
        project = ending.ends_in(0)
        midnight = dt.datetime.combine(project.ends_on + DAY, dt.time(), dt.UTC)
        reclaim.reclaim_all(midnight - dt.timedelta(microseconds=1))
        project.refresh_from_db()
        assert project.state == ProjectState.ACTIVE
        reclaim.reclaim_all(midnight)
        project.refresh_from_db()
        assert (project.state, project.ending_since is not None) == (ProjectState.ENDING, True)
        assert [kind for kind, _ in notices(project)] == ["days_1", "over"]

    def test_waiting_jobs_are_cancelled_with_a_reason_and_running_ones_go_on(self) -> None:
        flow.world(cards=4)
        project = ending.ends_in(0)
        running = flow.long_job()
        flow.start(running)
        queued = waiting(2)
        placing.place_queued()
        assert reclaim.reclaim_all(ending.after(2)) == _result(begin=1, cancel=2)
        for job in queued:
            job.refresh_from_db()
            assert (job.state, job.message) == (
                JobState.CANCELLED,
                f"project vision takes no work since its last day, {project.ends_on}",
            )
        running.refresh_from_db()
        assert running.state == JobState.RUNNING
        assert not Decision.objects.filter(attempt=None).exclude(kept=None).exists()

    def test_new_work_is_refused_at_submit_and_by_the_database(self) -> None:
        flow.world()
        project = ending.ends_in(0)
        job = flow.long_job()
        with transaction.atomic(durable=True):
            ends.begin_inside(project.pk, ending.after(2))
        with pytest.raises(Refused) as refused:
            factories.job()
        assert (refused.value.field, refused.value.code) == ("project", "project_ended")
        placing.place_queued()
        assert flow.open_allocations(job) == []

    def test_what_runs_has_its_grace_and_is_then_stopped_and_never_tried_again(self) -> None:
        flow.world(cards=4)
        project = ending.ends_in(0, grace_days=7)
        job = flow.long_job(checkpoint="SIGUSR1")
        flow.start(job)
        reclaim.reclaim_all(ending.after(7))
        job.refresh_from_db()
        assert job.state == JobState.RUNNING
        assert reclaim.reclaim_all(ending.after(8)) == _result(stop=1)
        job.refresh_from_db()
        assert (job.state, flow.attempt_of(job).outcome) == (JobState.STOPPING, Outcome.PROJECT_ENDED)
        assert Command.objects.get(verb="stop").grace_s == 60
        assert reclaim.reclaim_all(ending.after(8)) == _result()  # it waits for the driver
        ending.passes(ending.after(8))
        job.refresh_from_db()
        assert (job.state, job.attempts.count()) == (JobState.CANCELLED, 1)
        assert job.message == f"stopped with its project vision, which ended on {project.ends_on}"
        project.refresh_from_db()
        assert project.state == ProjectState.ENDED

    def test_attempts_are_stopped_whatever_their_state(self) -> None:
        flow.world(nodes=2, cards=4)
        project = ending.ends_in(0, grace_days=0)
        jobs = [flow.long_job(name=name) for name in ("starts", "runs", "unknown")]
        flow.start(*jobs)
        for job, state in zip(jobs, ("starting", "running", "unknown"), strict=True):
            job.attempts.update(state="unknown")
            job.attempts.update(state=state) if state != "unknown" else None
        assert ending.passes(ending.after(1))["odd"] == {}
        assert {Job.objects.get(pk=job.pk).state for job in jobs} == {JobState.CANCELLED}
        project.refresh_from_db()
        assert project.state == ProjectState.ENDED

    def test_an_extension_in_the_grace_takes_it_back_to_work_and_it_may_end_again(self) -> None:
        flow.world(cards=4)
        factories.cast()
        project = ending.ends_in(0)
        job = flow.long_job()
        flow.start(job)
        ending.passes(ending.after(3))
        later = project.ends_on + 30 * DAY
        project.refresh_from_db()
        reclaim.extend(project=project, ends_on=later, act=ending.by("manager", "the paper needs it"))
        project.refresh_from_db()
        assert (project.state, project.ending_since, project.ends_on) == (ProjectState.ACTIVE, None, later)
        ending.passes(ending.after(10))
        job.refresh_from_db()
        assert job.state == JobState.RUNNING
        ending.passes(ending.after(60), turns=4)
        project.refresh_from_db()
        assert project.state == ProjectState.ENDED
        assert [kind for kind, day in notices(project) if day == later] == ["over", "receipt"]

    def test_what_was_read_before_an_extension_is_not_carried_out_after_it(self) -> None:
        flow.world(cards=4)
        factories.cast()
        project = ending.ends_in(0, grace_days=0)
        running = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}])
        flow.start(running)
        queued = waiting()[0]
        now = ending.after(2)
        ending_of = reclaim_plan.facts_of([project])[0]
        with transaction.atomic(durable=True):
            ends.begin_inside(project.pk, now)
        reclaim.extend(
            project=Project.objects.get(pk=project.pk), ends_on=project.ends_on + 30 * DAY, act=ending.by("admin")
        )
        acts = (
            Act(Step.CANCEL, (queued.pk,)),
            Act(Step.STOP, (flow.attempt_of(running).pk,)),
            Act(Step.CLOSE),
            Act(Step.BEGIN),
        )
        reclaim.carry_out(ProjectPlan(ending_of, acts), now, reclaim.Pass())
        assert Project.objects.get(pk=project.pk).state == ProjectState.ACTIVE
        assert [Job.objects.get(pk=job.pk).state for job in (queued, running)] == ["queued", "running"]

    def test_a_job_that_came_in_at_the_very_moment_is_cancelled_by_the_next_pass(self) -> None:
        flow.world()
        project = ending.ends_in(0, grace_days=0)
        late = flow.long_job()
        Project.objects.filter(pk=project.pk).update(state=ProjectState.ENDED)
        assert reclaim.reclaim_all() == _result(cancel=1)
        late.refresh_from_db()
        assert late.state == JobState.CANCELLED


def _result(**counts: int) -> dict[str, Any]:
    return {"tell": 0, "begin": 0, "cancel": 0, "stop": 0, "close": 0, "over_walltime": 0, "odd": {}} | counts


# -- the receipt -------------------------------------------------------------------------------------------------------


class TestReceipt:
    def test_it_says_what_was_reclaimed_and_what_could_not_be(self) -> None:
        flow.world(nodes=2, cards=4)
        project = ending.ends_in(0)
        factories.grant(project, Resource.CARD_MILLI, 16_000)
        gang = flow.long_job(
            name="gang", asks=[{"form": "container", "nodes": 2, "memory_mib": 1000}], data_paths=PATHS
        )
        done = flow.long_job(name="done", data_paths=PATHS[:1])
        flow.start(gang, done)
        queue.cancel(job_id=done.pk, actor=done.by, reason="enough", via="test")
        waits = waiting(1, data_paths=PATHS[:1])[0]
        ending.passes(ending.after(3))
        ending.passes(ending.after(9))
        receipt = Receipt.objects.get()
        stopped = receipt.content["stopped"]
        assert (receipt.jobs_stopped, receipt.jobs_cancelled, receipt.grants_ended, receipt.not_enforced) == (
            1,
            1,
            1,
            2,
        )
        assert [(line["job"], line["nodes"], line["cards"], line["simulated"]) for line in stopped] == [
            (gang.pk, ["n1", "n2"], [{"model": "A100", "cards": 2, "memory_mib": 2000}], True)
        ]
        assert stopped[0]["stopped_at"] <= stopped[0]["free_at"] <= receipt.free_at.isoformat()
        assert [line["job"] for line in receipt.content["cancelled"]] == [waits.pk]
        assert receipt.content["grants"] == [{"resource": "card_milli", "amount": 16_000}]
        assert receipt.content["not_enforced"] == [{"path": "/data/a", "jobs": 3}, {"path": "/data/b", "jobs": 1}]
        assert receipt.content["reclaimed"] == {
            "simulated": {
                "members": 2,
                "whole_nodes": 0,
                "cards": 2,
                "card_memory_mib": 2000,
                "cpu_milli": 2 * gang.cpu_milli,
                "host_memory_mib": 2 * gang.host_memory_mib,
            }
        }
        assert receipt.content["delays"] == []
        assert receipt.grace_over_at == dt.datetime.combine(project.ends_on + 8 * DAY, dt.time(), dt.UTC)

    def test_members_read_from_then_on_and_no_grant_is_left(self) -> None:
        project = ending.ends_in(0, grace_days=0)
        future = (ending.after(30), None)
        factories.grant(project, Resource.CARD_MILLI, 1)
        QuotaGrant.objects.create(
            project=project, resource=Resource.CPU_MILLI, amount=1, period=future, reason="next term", by=project.owner
        )
        ending.passes(ending.after(1))
        assert {p.permission.codename for p in ProjectUserPermission.objects.filter(content_object=project)} == {
            "view_project"
        }
        assert not QuotaGrant.objects.filter(period__upper_inf=True).exists()
        assert Receipt.objects.get().grants_ended == 2

    def test_jobs_cancelled_before_an_extension_are_of_another_end(self) -> None:
        flow.world(cards=4)
        factories.cast()
        project = ending.ends_in(0, grace_days=0)
        first = waiting()[0]
        with transaction.atomic(durable=True):
            ends.begin_inside(project.pk, ending.after(1))
        reclaim.carry_out(
            ProjectPlan(Facts(project), (Act(Step.CANCEL, (first.pk,)),)), ending.after(1), reclaim.Pass()
        )
        reclaim.extend(
            project=Project.objects.get(pk=project.pk), ends_on=project.ends_on + 9 * DAY, act=ending.by("admin")
        )
        ending.passes(ending.after(20))
        assert Receipt.objects.get().jobs_cancelled == 0

    def test_a_project_without_anything_gets_its_receipt_too(self) -> None:
        ending.ends_in(0, grace_days=0)
        assert reclaim.reclaim_all(ending.after(1)) == _result(begin=1, close=1)
        assert (Receipt.objects.get().took_s, Receipt.objects.get().content["reclaimed"]) == (0, {})

    def test_there_is_never_a_second_one(self) -> None:
        project = ending.ends_in(0, grace_days=0)
        ending.passes(ending.after(1))
        with pytest.raises(IntegrityError), transaction.atomic():
            receipt = Receipt.objects.get()
            receipt.pk = None
            receipt.save(force_insert=True)
        reclaim.reclaim_all(ending.after(2))
        assert Receipt.objects.filter(project=project).count() == 1

    @pytest.mark.breaks_books
    def test_no_project_ends_while_it_holds_anything(self) -> None:
        flow.world(cards=2)
        project = ending.ends_in(0)
        flow.start(flow.long_job())
        with pytest.raises(IntegrityError, match="still holds something"), transaction.atomic():
            Project.objects.filter(pk=project.pk).update(state=ProjectState.ENDED)


# -- what is odd -------------------------------------------------------------------------------------------------------


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
            assert reclaim.reclaim_all(ending.after(1)) == _result(
                begin=3, close=2, odd={"vision": "RuntimeError: cosmic ray"}
            )
        assert {p.slug: p.state for p in Project.objects.all()} == {
            "vision": ProjectState.ENDING,
            "good-0": ProjectState.ENDED,
            "good-1": ProjectState.ENDED,
        }
        assert reclaim.reclaim_all(ending.after(1)) == _result(close=1)

    def test_an_odd_job_stops_no_other_in_its_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        flow.world(cards=4)
        ending.ends_in(0)
        jobs = waiting(3)
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
        steps = planned(project, now)
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
