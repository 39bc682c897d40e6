"""Who was stopped for whom, as told on both sides: other jobs and projects are named only to those who may see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Count

from ledger.models import Attempt, Job, User
from ledger.vocabulary import Outcome
from portal.api.company import HIDDEN
from scheduler.models import Decision, Preemption, PreemptionVictim


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
