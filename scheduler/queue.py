"""Jobs in and out of the queue: submit and cancel. The page and the API call the same two functions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from ledger import audit, book
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Allocation, Job, Membership, Project, User
from ledger.odd_grants import renew_powers
from ledger.vocabulary import JobState, Outcome, ProjectRole, ProjectState, SiteRole
from ledger.zones import in_zones
from scheduler import likeness, policy, promises
from scheduler.ending import close_members
from scheduler.engine.types import Ask
from scheduler.possible import Impossible, impossible
from scheduler.wake import wake_after_commit
from scheduler.whatif import Outlook

ASK_FIELDS = frozenset(field.name for field in fields(Ask))
MAY_SUBMIT = (ProjectRole.OWNER, ProjectRole.MANAGER, ProjectRole.MEMBER)


class KeyReused(Refused):
    """An Idempotency-Key came again with another body (HTTP 422)."""


class NeverRuns(Refused):
    """No state of this fleet could serve the job (scheduler.possible)."""

    def __init__(self, why: Impossible) -> None:
        field = why.limits[0].what if why.limits else "asks"
        if field in ASK_FIELDS:
            field = f"asks.0.{field}"
        elif field == "zones":  # of the policies of its project, not of the job itself
            field = "project"
        super().__init__(_("No state of this fleet could ever run this job."), field=field, code="never_runs")
        self.why = why


def submit(
    *,
    data: dict[str, Any],
    actor: User,
    via: str,
    client_key: str | None = None,
    request_id: str = "",
    outlook: Outlook | None = None,
) -> Job:
    """Queue a job. `data` is a validated JobInput; the same client_key and data give the first job again.

    `outlook` is what the person was told of it; it is kept with the job as its promise.
    """
    digest = hashlib.sha256(json.dumps(policy.DEFAULTS | data, sort_keys=True, default=str).encode()).hexdigest()
    known = _known(actor, client_key, digest)
    if known is not None:
        return known
    try:
        with transaction.atomic(durable=True):
            job = _insert(data, actor, via, client_key, digest, request_id)
            if outlook is not None:
                promises.declare(job, outlook)
            return job
    except IntegrityError:
        known = _known(actor, client_key, digest)  # the other of two equal requests won
        if known is not None:
            return known
        if client_key and Job.objects.filter(by=actor, client_key=client_key).exists():
            raise KeyReused(  # for a job of a project that the actor has left
                _("This Idempotency-Key was used before with another body."),
                field="Idempotency-Key",
                code="idempotency_key_reused",
            ) from None
        raise


def _known(actor: User, client_key: str | None, digest: str) -> Job | None:
    """The actor's job with this key, unless they may not see it any more: then submitting says why."""
    job = Job.objects.visible_to(actor).filter(by=actor, client_key=client_key).first() if client_key else None
    if job is not None and job.client_digest != digest:
        raise KeyReused(
            _("This Idempotency-Key was used for job %(id)d with another body.") % {"id": job.pk},
            field="Idempotency-Key",
            code="idempotency_key_reused",
        )
    return job


def _insert(data: dict[str, Any], actor: User, via: str, client_key: str | None, digest: str, request_id: str) -> Job:
    project = Project.objects.visible_to(actor).filter(slug=data["project"]).first()
    if project is None:
        raise Refused(_("There is no such project, or you are not in it."), field="project", code="unknown_project")
    _check_access(project, actor)
    likeness.check(data, actor)
    ruled = policy.settled(data, project)
    now = database_now()
    job = Job(
        **policy.columns(data, ruled),
        project=project,
        by=actor,
        client_key=client_key,
        client_digest=digest,
        submitted_at=now,
        queued_at=now,
    )
    why = impossible(job)
    if why is not None:
        raise NeverRuns(why)
    job.save(force_insert=True)
    policy.keep(job, ruled)
    told = {"policies": policy.named(ruled)} if ruled.lines else {}
    audit.record(
        actor=actor,
        via=via,
        verb="job.submitted",
        target=job,
        project=project,
        after={"name": job.name, "asks": job.asks, "state": job.state, **told},
        request_id=request_id,
        at=now,
    )
    wake_after_commit("scheduler.tick")
    return job


def _check_access(project: Project, actor: User) -> None:
    role = Membership.objects.filter(project=project, user=actor).values_list("role", flat=True).first()
    if role not in MAY_SUBMIT and actor.site_role != SiteRole.ADMIN:
        raise Forbidden(
            _("Your role in project %(project)s does not submit jobs; ask its owner to make you a member.")
            % {"project": project.slug},
            field="project",
            code="role",
        )
    today = database_now().date()
    if (
        project.state != ProjectState.ACTIVE
        or (project.ends_on and project.ends_on < today)
        or project.starts_on > today
    ):
        raise Refused(
            _("Project %(project)s takes no new work now (it runs from %(start)s to %(end)s).")
            % {"project": project.slug, "start": project.starts_on, "end": project.ends_on or "…"},
            field="project",
            code="project_ended",
        )


def may_tell(job: Job, actor: User) -> bool:
    """Who says how its application does: as who may submit in its project."""
    mine = Membership.objects.filter(project=job.project_id, user=actor, role__in=MAY_SUBMIT)
    return actor.site_role == SiteRole.ADMIN or mine.exists()


def may_cancel(job: Job, actor: User) -> bool:
    """Its submitter while still a member, the project's owner and managers, operators and admins; operators of a zone
    what runs in it alone."""
    if actor.operates or _stands_in(job, actor.operated_zones):
        return True
    role = Membership.objects.filter(project=job.project_id, user=actor).values_list("role", flat=True).first()
    return role in (ProjectRole.OWNER, ProjectRole.MANAGER) or (role == ProjectRole.MEMBER and job.by_id == actor.pk)


def _stands_in(job: Job, zones: frozenset[int]) -> bool:
    """Whether it holds nodes, all of them in these zones."""
    if not zones:
        return False
    open_now = Allocation.objects.filter(attempt__job=job, period__upper_inf=True)
    nodes = set(open_now.values_list("node_id", flat=True))
    return bool(nodes) and in_zones(nodes, zones)


def cancel(*, job_id: int, actor: User, reason: str, via: str, request_id: str = "") -> Job:
    """Cancel a job in any live state; on an ended one it is a Conflict, on one already stopping it changes nothing."""
    with transaction.atomic(durable=True):
        if not actor.operates and actor.operated_zones:
            renew_powers(actor)  # or a right that was withdrawn meanwhile would still act
        job, attempt = book.lock_job(job_id)
        if not may_cancel(job, actor):
            raise Forbidden(_("Only its submitter, the project's managers and operators cancel a job."), code="role")
        state = JobState(job.state)
        if state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED):
            raise Conflict(_("The job has ended already (%(state)s).") % {"state": state}, code="job_ended")
        text = reason or "cancelled"
        if state == JobState.STOPPING:
            if not job.cancel_reason and attempt is not None and attempt.outcome in (Outcome.HARDWARE, Outcome.LOST):
                job.cancel_reason = text
                job.save(update_fields=["cancel_reason"])
            return job
        if state == JobState.QUEUED:
            cancel_queued_inside(job, actor, text, via, request_id)
        elif attempt is not None:
            job.cancel_reason = text
            job.save(update_fields=["cancel_reason"])
            close_members(job, attempt, Outcome.CANCELLED, message=text, actor=actor, via=via, request_id=request_id)
        return job


def cancel_queued_inside(
    job: Job, actor: User | None, reason: str, via: str, request_id: str = "", cause: str = ""
) -> None:
    """The step for a job that waits; the caller holds its lock in a durable transaction. `cause` is a word for what
    made it happen, where no person did."""
    job.state, job.cancel_reason, job.message, job.ended_at = JobState.CANCELLED, reason, reason, database_now()
    job.save(update_fields=["state", "cancel_reason", "message", "ended_at"])
    audit.record(
        actor=actor,
        via=via,
        verb="job.cancelled",
        target=job,
        project=job.project_id,
        before={"state": JobState.QUEUED},
        after={"state": JobState.CANCELLED} | ({"cause": cause} if cause else {}),
        reason=reason,
        request_id=request_id,
    )
