"""Who was, is and would be stopped for whom, as told on both sides: other jobs and projects are named only to those
who may see them, and so are the amounts of a project to those who may see the project.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from ledger.clock import database_now
from ledger.models import Attempt, Job, Node, Project, User
from ledger.vocabulary import AttemptState, JobState, Outcome, ProjectState
from portal.api.company import HIDDEN
from scheduler import preempt_preview
from scheduler.models import Decision, Preemption, PreemptionVictim
from scheduler.preempt_preview import AtRisk, Exposure, Preview, Stopped

MOST_LATELY: Final = 50
MAY_BE_STOPPED: Final = (JobState.STARTING, JobState.RUNNING)


def stops_for(job: Job, decision: Decision) -> dict[str, Any] | None:
    """How many are being stopped for a waiting job, by what right, and until when its nodes are kept. Only asked of a
    job that nodes are kept for."""
    if decision.kept is None:
        return None
    open_ones = Preemption.objects.filter(job=job, made_at__gte=job.queued_at, kept_until__gt=decision.at)
    row = open_ones.annotate(number=Count("victims")).order_by("-pk").first()
    if row is None:
        return None
    return {
        "jobs": row.number,
        "cause": row.cause,
        "rule": row.rule,
        "at": row.made_at.isoformat(),
        "grace_s": row.grace_s,
        "kept_until": row.kept_until.isoformat(),
    }


def stopped_for(attempts: Iterable[Attempt], viewer: User) -> list[dict[str, Any]]:
    """For whom attempts of a job were stopped, and why; nothing is asked where none was."""
    numbers = {attempt.pk: attempt.n for attempt in attempts if attempt.outcome == Outcome.PREEMPTED}
    if not numbers:
        return []
    rows = list(PreemptionVictim.objects.filter(attempt__in=numbers).select_related("preemption").order_by("pk"))
    others = Job.objects.visible_to(viewer).filter(pk__in=[row.preemption.job_id for row in rows])
    seen = {job.pk: job for job in others.select_related("project")}
    return [
        {
            "attempt": numbers[row.attempt_id],
            "job": row.preemption.job_id if row.preemption.job_id in seen else None,
            "project": seen[row.preemption.job_id].project.slug if row.preemption.job_id in seen else HIDDEN,
            "cause": row.preemption.cause,
            "borrowed": row.borrowed,
            "ran_s": row.ran_s,
            "rule": row.preemption.rule,
            "at": row.preemption.made_at.isoformat(),
        }
        for row in rows
    ]


class Names:
    """What a reader may know of some jobs. Who sees a job may not see its project: of that they read no amounts."""

    def __init__(self, viewer: User, job_ids: Iterable[int]) -> None:
        jobs = Job.objects.visible_to(viewer).filter(pk__in=set(job_ids)).select_related("project")
        open_to = Exists(Project.objects.visible_to(viewer).filter(pk=OuterRef("project_id")))
        found = list(jobs.annotate(project_seen=open_to))
        self.seen = {job.pk: job for job in found}
        self.with_amounts = {job.pk for job in found if job.project_seen}

    def of(self, job_id: int) -> dict[str, Any]:
        job = self.seen.get(job_id)
        return {"job": job_id if job else None, "name": job.name if job else None, "project": self.project(job_id)}

    def project(self, job_id: int) -> str:
        return self.seen[job_id].project.slug if job_id in self.seen else HIDDEN

    def any_of(self, job_ids: Iterable[int]) -> bool:
        return any(job_id in self.seen for job_id in job_ids)


# -- what would be done ------------------------------------------------------------------------------------------------


def preview_answer(found: Preview | None, viewer: User, names: Names | None = None) -> dict[str, Any] | None:
    """Whom the next round would stop for a job; `job` is null for one that is not submitted, which is the reader's."""
    if found is None:
        return None
    names = names or Names(viewer, jobs_in(found))
    own = found.job_id == 0 or found.job_id in names.with_amounts
    return {
        **(names.of(found.job_id) if found.job_id else {"job": None, "name": None, "project": None}),
        "simulated": found.simulated,
        "cause": str(found.cause),
        "rule": found.rule,
        "nodes": list(found.nodes),
        "takes_milli": found.takes,
        "guaranteed_milli": found.guaranteed if own else None,
        "held_milli": found.held if own else None,
        "lost_milli_s": found.lost,
        "grace_s": found.grace_s,
        "starts_about": found.begins_at.isoformat(),
        "searched_wholly": found.whole,
        "stops": [_stopped(one, names) for one in found.victims],
    }


def jobs_in(found: Preview) -> list[int]:
    return [found.job_id, *(one.job_id for one in found.victims)]


def _stopped(one: Stopped, names: Names) -> dict[str, Any]:
    return {
        **names.of(one.job_id),
        "kind": str(one.kind),
        "milli": one.milli,
        "ran_s": one.ran_s,
        "min_run_s": one.min_run_s,
        "lost_milli_s": one.lost,
        "borrowed": one.borrowed,
    }


def next_round_answer(viewer: User) -> dict[str, Any]:
    """What the next round would do; of it, what concerns jobs that the reader may see."""
    found = preempt_preview.next_round()
    names = Names(viewer, [pk for one in found.previews for pk in jobs_in(one)])
    shown = [one for one in found.previews if names.any_of(jobs_in(one))]
    return {
        "looked_at": found.looked_at if viewer.sees_everything else None,
        "waiting": found.waiting if viewer.sees_everything else None,
        "cut_short": found.cut,
        "previews": [preview_answer(one, viewer, names) for one in shown],
    }


# -- who might be stopped ----------------------------------------------------------------------------------------------


def exposure_answers(project: Project, viewer: User) -> list[dict[str, Any]]:
    """By world what may be stopped; the amounts are null to who may not see the project."""
    found = preempt_preview.exposures(project.pk)
    if not found:
        return []
    named = {project.pk, *(pk for one in found for pk, _ in one.owed)}
    visible = dict(Project.objects.visible_to(viewer).filter(pk__in=named).values_list("pk", "slug"))
    return [_exposure(one, visible, project.pk in visible) for one in found]


def _exposure(one: Exposure, visible: dict[int, str], with_amounts: bool) -> dict[str, Any]:
    amounts = {
        "guaranteed_milli": one.guaranteed,
        "held_milli": one.held,
        "borrowed_milli": one.borrowed,
        "inference_milli": one.serving,
        "owed": _owed(one, visible),
    }
    return {
        "simulated": one.simulated,
        "grace_s": settings.PREEMPT_GRACE_S,
        "jobs": [_at_risk(job) for job in one.jobs],
        **(amounts if with_amounts else dict.fromkeys(amounts)),
    }


def _owed(one: Exposure, visible: dict[int, str]) -> list[dict[str, Any]]:
    hidden = sum(milli for pk, milli in one.owed if pk not in visible)
    owed = [{"project": visible[pk], "milli": milli} for pk, milli in one.owed if pk in visible]
    return [*owed, *([{"project": HIDDEN, "milli": hidden}] if hidden else [])]


def _at_risk(one: AtRisk) -> dict[str, Any]:
    return {
        "job": one.job_id,
        "kind": str(one.kind),
        "not_before": one.safe_until.isoformat(),
        "borrowed": one.borrowed,
        "preemptible": one.preemptible,
    }


def at_risk_answer(job: Job, viewer: User) -> dict[str, Any] | None:
    """For what reason a running job may be stopped for others; None where it may not be."""
    if job.state not in MAY_BE_STOPPED:
        return None
    for world in exposure_answers(job.project, viewer):
        mine = next((one for one in world["jobs"] if one["job"] == job.pk), None)
        if mine is not None:
            return mine | {name: value for name, value in world.items() if name not in ("jobs", "simulated")}
    return None


def job_answer(job: Job, viewer: User) -> dict[str, Any]:
    waits = job.state == JobState.QUEUED and job.held_at is None and job.project.state == ProjectState.ACTIVE
    return {
        "would_stop": preview_answer(preempt_preview.preview(job), viewer) if waits else None,
        "may_be_stopped": at_risk_answer(job, viewer),
    }


# -- what is and was done ----------------------------------------------------------------------------------------------


def claim_answers(viewer: User) -> list[dict[str, Any]]:
    """For whom nodes are kept now, with the seconds until that is over."""
    now = database_now()
    rows = _answers(_concerning(preempt_preview.open_claims(), viewer), viewer)
    return [row | {"left_s": _left(row["kept_until"], now)} for row in rows]


def _left(until: str, now: dt.datetime) -> int:
    return max(int((dt.datetime.fromisoformat(until) - now).total_seconds()), 0)


def lately_answers(viewer: User) -> list[dict[str, Any]]:
    return _answers(_concerning(preempt_preview.made_lately(), viewer)[:MOST_LATELY], viewer)


def _concerning(rows: QuerySet[Preemption], viewer: User) -> QuerySet[Preemption]:
    if viewer.sees_everything:
        return rows
    mine = Job.objects.visible_to(viewer)
    stopped = PreemptionVictim.objects.filter(attempt__job__in=mine).values("preemption")
    return rows.filter(Q(job__in=mine) | Q(pk__in=stopped))


def _answers(rows: Iterable[Preemption], viewer: User) -> list[dict[str, Any]]:
    rows = list(rows)
    victims: dict[int, list[PreemptionVictim]] = defaultdict(list)
    for victim in PreemptionVictim.objects.filter(preemption__in=rows).select_related("attempt__job").order_by("pk"):
        victims[victim.preemption_id].append(victim)
    stopped = [victim.attempt.job_id for some in victims.values() for victim in some]
    names = Names(viewer, [*(row.job_id for row in rows), *stopped])
    hosts = dict(Node.objects.filter(pk__in=_nodes(rows)).values_list("pk", "hostname"))
    return [_answer(row, victims[row.pk], names, hosts) for row in rows]


def _nodes(rows: Sequence[Preemption]) -> set[int]:
    return {pk for row in rows for pk in row.nodes}


def _answer(
    row: Preemption, victims: Collection[PreemptionVictim], names: Names, hosts: dict[int, str]
) -> dict[str, Any]:
    return {
        **names.of(row.job_id),
        "simulated": row.job.simulated,
        "at": row.made_at.isoformat(),
        "kept_until": row.kept_until.isoformat(),
        "cause": row.cause,
        "rule": row.rule,
        "nodes": sorted(hosts[pk] for pk in row.nodes if pk in hosts),
        "grace_s": row.grace_s,
        "inputs": row.inputs if row.job_id in names.with_amounts else None,
        "stops": [
            {
                **names.of(victim.attempt.job_id),
                "attempt": victim.attempt.n,
                "gone": victim.attempt.state == AttemptState.ENDED,
                "ran_s": victim.ran_s,
                "borrowed": victim.borrowed,
            }
            for victim in victims
        ],
    }
