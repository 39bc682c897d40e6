"""The reclaim: what a project loses when, what its receipt says, and that nothing odd stops the rest."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import ends
from ledger.errors import Refused
from ledger.models import Delivery, Job, Project, ProjectUserPermission, QuotaGrant, Receipt
from ledger.vocabulary import (
    Channel,
    DeliveryState,
    JobState,
    Outcome,
    ProjectState,
    Resource,
)
from scheduler import placing, queue, reclaim, reclaim_plan
from scheduler.models import Command, Decision
from scheduler.reclaim_plan import Act, Facts, ProjectPlan, Step
from tests import factories
from tests.scheduler import ending, flow
from tests.scheduler.ending import DAY

pytestmark = pytest.mark.django_db


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
        assert ending.notices(project) == ([(kind, project.ends_on)] if kind else [])

    def test_a_project_that_is_watched_all_the_time_gets_each(self) -> None:
        project = ending.ends_in(15)
        for days in range(16):
            reclaim.reclaim_all(ending.after(days))
        assert [kind for kind, _ in ending.notices(project)] == ["days_14", "days_3", "days_1"]

    def test_an_extension_gives_new_ones_of_its_own_end(self) -> None:
        factories.cast()
        project = ending.ends_in(3)
        reclaim.reclaim_all()
        later = project.ends_on + 5 * DAY
        reclaim.extend(project=project, ends_on=later, act=ending.by("admin"))
        reclaim.reclaim_all()
        assert ending.notices(project) == [("days_3", project.ends_on), ("days_14", later)]

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
        assert [kind for kind, _ in ending.notices(project)] == ["days_1", "over"]

    def test_waiting_jobs_are_cancelled_with_a_reason_and_running_ones_go_on(self) -> None:
        flow.world(cards=4)
        project = ending.ends_in(0)
        running = flow.long_job()
        flow.start(running)
        queued = ending.waiting(2)
        placing.place_queued()
        assert reclaim.reclaim_all(ending.after(2)) == ending.pass_result(begin=1, cancel=2)
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
        assert reclaim.reclaim_all(ending.after(8)) == ending.pass_result(stop=1)
        job.refresh_from_db()
        assert (job.state, flow.attempt_of(job).outcome) == (JobState.STOPPING, Outcome.PROJECT_ENDED)
        assert Command.objects.get(verb="stop").grace_s == 60
        assert reclaim.reclaim_all(ending.after(8)) == ending.pass_result()  # it waits for the driver
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
        assert [kind for kind, day in ending.notices(project) if day == later] == ["over", "receipt"]

    def test_what_was_read_before_an_extension_is_not_carried_out_after_it(self) -> None:
        flow.world(cards=4)
        factories.cast()
        project = ending.ends_in(0, grace_days=0)
        running = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}])
        flow.start(running)
        queued = ending.waiting()[0]
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
        assert reclaim.reclaim_all() == ending.pass_result(cancel=1)
        late.refresh_from_db()
        assert late.state == JobState.CANCELLED


# -- the receipt -------------------------------------------------------------------------------------------------------


class TestReceipt:
    def test_it_says_what_was_reclaimed_and_what_could_not_be(self) -> None:
        flow.world(nodes=2, cards=4)
        project = ending.ends_in(0)
        factories.grant(project, Resource.CARD_MILLI, 16_000)
        gang = flow.long_job(
            name="gang", asks=[{"form": "container", "nodes": 2, "memory_mib": 1000}], data_paths=ending.PATHS
        )
        done = flow.long_job(name="done", data_paths=ending.PATHS[:1])
        flow.start(gang, done)
        queue.cancel(job_id=done.pk, actor=done.by, reason="enough", via="test")
        waits = ending.waiting(1, data_paths=ending.PATHS[:1])[0]
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
        first = ending.waiting()[0]
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
        assert reclaim.reclaim_all(ending.after(1)) == ending.pass_result(begin=1, close=1)
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
