"""What the placement of an attempt was like, and whether that of another job was of the same class."""

from __future__ import annotations

from typing import Any

from ledger.models import Attempt, Job, User
from scheduler.engine.fingerprint import differences


def fingerprint_of(attempt: Attempt) -> dict[str, Any] | None:
    """Its name and what it stands for; None where none was kept."""
    decision = getattr(attempt, "decision", None)
    if decision is None or decision.fingerprint_parts is None:
        return None
    return {"code": decision.fingerprint, **decision.fingerprint_parts}


def comparison(attempt: Attempt, job_id: int, viewer: User) -> dict[str, Any]:
    """The placement of an attempt beside the newest one of another job. `same` is None while one of them has none, and
    for a job that the viewer may not see or that is not there."""
    job = Job.objects.visible_to(viewer).filter(pk=job_id).first()
    other = job.attempts.select_related("decision").order_by("-n").first() if job else None
    mine, theirs = fingerprint_of(attempt), fingerprint_of(other) if other else None
    found = [str(difference) for difference in differences(mine, theirs)] if mine and theirs else []
    return {
        "job": job_id,
        "seen": job is not None,
        "same": mine["code"] == theirs["code"] if mine and theirs else None,
        "differs": found,
    }
