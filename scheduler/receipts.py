"""Draws up the receipt of a project's end from the book, the outbox and the audit trail. Reads only; ledger.ends writes
it in the transaction that ends the project.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from django.db import connection
from django.db.models import Count, Sum

from ledger import ends
from ledger.models import Allocation, AuditEvent, CardShare, Job, Project, QuotaGrant, Receipt
from ledger.vocabulary import CommandVerb, Form, Outcome
from scheduler.models import Command

MOST_LISTED: Final = 2_000  # lines of one list; what is more is counted in `left_out`
CAUSE: Final = "project_ended"  # of the audit rows of jobs that were cancelled in the queue
PATHS: Final = """
SELECT path, count(*) FROM ledger_job j, jsonb_array_elements_text(j.data_paths) AS path
WHERE j.project_id = %s GROUP BY path ORDER BY path
"""
Line = dict[str, Any]


def draw_up(project: Project, grants: Sequence[QuotaGrant], free_at: dt.datetime) -> Receipt:
    """The unsaved receipt of a project of which nothing is open any more. `free_at` is the database's clock."""
    since, grace_over_at = project.ending_since or free_at, ends.grace_over_at(project)
    if project.ends_on is None or grace_over_at is None:
        raise ValueError(f"project {project.slug} has no end")
    members = list(
        Allocation.objects.filter(attempt__outcome=Outcome.PROJECT_ENDED, project=project, closing_at__gte=since)
        .select_related("attempt__job__by", "node")
        .order_by("attempt", "rank")
    )
    lists = {
        "stopped": _stopped(members),
        "cancelled": _cancelled(project, since),
        "grants": [{"resource": grant.resource, "amount": grant.amount} for grant in grants],
        "not_enforced": _paths(project),
        "delays": _delays(members),
    }
    first = min((member.closing_at for member in members if member.closing_at), default=free_at)
    return Receipt(
        project=project,
        ends_on=project.ends_on,
        ending_since=since,
        grace_over_at=grace_over_at,
        free_at=free_at,
        took_s=max(0, round((free_at - first).total_seconds())),
        jobs_stopped=len(lists["stopped"]),
        jobs_cancelled=len(lists["cancelled"]),
        grants_ended=len(grants),
        not_enforced=len(lists["not_enforced"]),
        content={name: lines[:MOST_LISTED] for name, lines in lists.items()}
        | {
            "reclaimed": _reclaimed(members),
            "left_out": {name: len(lines) - MOST_LISTED for name, lines in lists.items() if len(lines) > MOST_LISTED},
        },
    )


def _stopped(members: Sequence[Allocation]) -> list[Line]:
    """One line an attempt: what it held, when it was stopped and when its last member was gone."""
    cards: dict[int, list[Line]] = defaultdict(list)
    shares = CardShare.objects.filter(allocation__in=[member.pk for member in members])
    counted = shares.order_by("allocation__attempt", "card__model").values_list("allocation__attempt", "card__model")
    for attempt, model, count, mib in counted.annotate(Count("pk"), Sum("memory_mib")):
        cards[attempt].append({"model": model, "cards": count, "memory_mib": mib})
    by_attempt: dict[int, list[Allocation]] = defaultdict(list)
    for member in members:
        by_attempt[member.attempt_id].append(member)
    return [_stop_line(parts, cards[attempt]) for attempt, parts in by_attempt.items()]


def _stop_line(members: Sequence[Allocation], cards: list[Line]) -> Line:
    job = members[0].attempt.job
    return _job_line(job) | {
        "nodes": sorted(member.node.hostname for member in members),
        "cards": cards,
        "stopped_at": _iso(min(m.closing_at for m in members if m.closing_at)),
        "free_at": _iso(max(m.period.upper for m in members)),
    }


def _job_line(job: Job) -> Line:
    return {"job": job.pk, "name": job.name, "by": job.by.username, "simulated": job.simulated}


def _cancelled(project: Project, since: dt.datetime) -> list[Line]:
    events = AuditEvent.objects.filter(project=project, verb="job.cancelled", at__gte=since, after__cause=CAUSE)
    times = {int(target): at for target, at in events.values_list("target_id", "at")}
    jobs = Job.objects.filter(pk__in=times).select_related("by").order_by("pk")
    return [_job_line(job) | {"at": _iso(times[job.pk])} for job in jobs]


def _paths(project: Project) -> list[Line]:
    """Data paths that jobs of the project named; no driver can take them away from anybody yet."""
    with connection.cursor() as cursor:
        cursor.execute(PATHS, [project.pk])
        return [{"path": path, "jobs": jobs} for path, jobs in cursor.fetchall()]


def _delays(members: Sequence[Allocation]) -> list[Line]:
    """Stops that a driver refused or did not answer at first."""
    rows = Command.objects.filter(allocation__in=[m.pk for m in members], verb=CommandVerb.STOP).exclude(last_error="")
    rows = rows.select_related("attempt", "allocation__node").order_by("pk")
    return [
        {
            "job": row.attempt.job_id,
            "node": row.allocation.node.hostname,
            "driver": row.driver,
            "tries": row.tries,
            "error": row.last_error,
        }
        for row in rows
    ]


def _reclaimed(members: Sequence[Allocation]) -> dict[str, dict[str, int]]:
    """What the stopped members held together, of real and simulated nodes apart. Memory in MiB, CPU in thousandths."""
    cards = dict(
        CardShare.objects.filter(allocation__in=[member.pk for member in members])
        .values_list("allocation")
        .annotate(Count("pk"))
        .order_by()
    )
    mib = dict(
        CardShare.objects.filter(allocation__in=[member.pk for member in members])
        .values_list("allocation")
        .annotate(Sum("memory_mib"))
        .order_by()
    )
    found: dict[str, dict[str, int]] = {}
    for member in members:
        world = found.setdefault("simulated" if member.node.simulated else "real", defaultdict(int))
        for name, amount in {
            "members": 1,
            "whole_nodes": int(member.form == Form.WHOLE),
            "cards": cards.get(member.pk, 0),
            "card_memory_mib": mib.get(member.pk, 0),
            "cpu_milli": member.cpu_milli,
            "host_memory_mib": member.host_memory_mib,
        }.items():
            world[name] += amount
    return {name: dict(amounts) for name, amounts in found.items()}


def _iso(moment: dt.datetime) -> str:
    return moment.isoformat()
