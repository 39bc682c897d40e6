"""One scheduling round: snapshot → plan → commit → why the rest waits. Safe to run twice; one at a time is enough."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from django.db import connection, transaction

from ledger.clock import database_now
from ledger.models import Job, QuotaGrant
from ledger.vocabulary import Refusal, Resource
from scheduler import snapshot
from scheduler.commit import Committed, commit_plan
from scheduler.engine.plan import plan_fleet
from scheduler.engine.types import Plan, Waiting
from scheduler.models import Decision

PLACEMENT_LOCK = 7_130_002
ROUNDS = 5  # a refused placement is tried again at once, with what the database knows now
BUDGET_S = 5.0
FINAL_FOR_NOW = (Refusal.QUOTA, Refusal.PROJECT_ENDED)  # looking again in the same tick changes nothing
UPSERT = (
    "INSERT INTO scheduler_decision (job_id, at, first_at, count, rule, seed, reasons, never, position, scores, "
    "neighbours) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, '[]', '[]') "
    "ON CONFLICT (job_id) WHERE attempt_id IS NULL DO UPDATE SET at = excluded.at, first_at = excluded.first_at, "
    "count = excluded.count, rule = excluded.rule, seed = excluded.seed, reasons = excluded.reasons, "
    "never = excluded.never, position = excluded.position "
    # an operator held the job while this round was under way: that is what its owner must read
    """WHERE NOT scheduler_decision.reasons @> '[{"held_by_operator": 1}]'"""
)
REFRESH = dt.timedelta(seconds=20)  # an unchanged reason is stamped again this often


@contextmanager
def single_flight(key: int) -> Iterator[bool]:
    """A session-level advisory lock: True when this process has it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        mine = bool(cursor.fetchone()[0])
    try:
        yield mine
    finally:
        if mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [key])


def place_queued() -> dict[str, Any]:
    """Place what can be placed now. Returns counts for the task's record."""
    with single_flight(PLACEMENT_LOCK) as mine:
        return _rounds() if mine else {"skipped": "another scheduler is at work"}


def _rounds() -> dict[str, Any]:
    started, total = monotonic(), Committed()
    jobs: list[Job] = []
    for _ in range(ROUNDS):
        jobs = snapshot.queued_jobs()
        if not jobs:
            break
        # what the database refused for good would only take room from the others in the next round
        snap = snapshot.read([job for job in jobs if job.pk not in total.refused_jobs], over_quota(jobs))
        fleet = snapshot.fleet_of(snap.nodes)
        proposal = plan_fleet(fleet, snap.jobs, snap.reserves, at=snap.at, seed=snap.seed, rule=snap.rule)
        done = commit_plan(snap, proposal)
        total.placed += done.placed
        total.refused.update(done.refused)
        total.refused_jobs |= {job: why for job, why in done.refused_jobs.items() if why in FINAL_FOR_NOW}
        _record_waiting(jobs, proposal, total.refused_jobs | done.refused_jobs)
        if not done.refused or monotonic() - started > BUDGET_S:
            break
    return {"placed": total.placed, "refused": dict(total.refused), "looked_at": len(jobs)}


def over_quota(jobs: Sequence[Job]) -> frozenset[int]:
    """Jobs that no ask of theirs can start within what is left of the project's grants. Only to explain and to save
    work: the database decides at commit."""
    now = database_now()
    left: dict[tuple[int, str], int] = {}
    for grant in QuotaGrant.objects.filter(period__contains=now, project__in={job.project_id for job in jobs}):
        left[grant.project_id, grant.resource] = grant.amount - quota_used(grant.project_id, grant.resource)
    if not left:
        return frozenset()
    return frozenset(job.pk for job in jobs if all(not _fits(job, ask, left) for ask in job.asks))


def quota_used(project_id: int, resource: str) -> int:
    """What the open allocations of a project hold of a resource now: derived, never a counter."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_quota_used(%s, %s)", [project_id, resource])
        return int(cursor.fetchone()[0])


def _fits(job: Job, ask: dict[str, Any], left: dict[tuple[int, str], int]) -> bool:
    """A lower bound of what the ask needs, against what is left."""
    whole = ask["form"] == "whole"
    nodes, cards = ask["nodes"], ask["nodes"] * max(ask["cards_per_node"], int(whole))  # a machine has at least one
    needs = {
        Resource.WHOLE_NODES: nodes if whole else 0,
        Resource.CARD_MEMORY_MIB: cards * ask["memory_mib"],
        Resource.CARD_MILLI: cards * (1000 if whole or ask["form"] == "block" or not ask["memory_mib"] else 1),
        Resource.CPU_MILLI: nodes * job.cpu_milli,
        Resource.HOST_MEMORY_MIB: nodes * job.host_memory_mib,
    }
    return all(left.get((job.project_id, resource), need) >= need for resource, need in needs.items())


def _record_waiting(jobs: Sequence[Job], proposal: Plan, refused: Mapping[int, Refusal]) -> None:
    """Store why each job waits and its place in the queue, but only when that changed or grew old."""
    waiting = {w.job_id: w for w in proposal.waiting}
    for job_id, reason in refused.items():
        waiting[job_id] = Waiting(job_id=job_id, by_ask=({reason: 1},))
    known = {d.job_id: d for d in Decision.objects.filter(job_id__in=list(waiting), attempt=None)}
    now = database_now()
    rows, position = [], 0
    for job in jobs:
        verdict = waiting.get(job.pk)
        if verdict is None:
            continue
        position += 1
        row = _waiting_row(known.get(job.pk), job, verdict, position, proposal.rule, now)
        if row is not None:
            rows.append(row)
    _upsert(rows)


def _waiting_row(
    old: Decision | None, job: Job, verdict: Waiting, position: int, rule: str, now: dt.datetime
) -> Decision | None:
    reasons = [{str(reason): count for reason, count in ask.items()} for ask in verdict.by_ask]
    same = old is not None and old.reasons == reasons and old.position == position and old.never == verdict.never
    if old is not None and same and now - old.at < REFRESH:
        return None
    return Decision(
        job=job,
        at=now,
        first_at=old.first_at if old is not None and old.reasons == reasons else now,
        count=(old.count + 1) if old is not None else 1,
        rule=rule,
        seed=1,
        reasons=reasons,
        never=verdict.never,
        position=position,
    )


def _upsert(rows: Iterable[Decision]) -> None:
    values = [
        (r.job_id, r.at, r.first_at, r.count, r.rule, r.seed, json.dumps(r.reasons), r.never, r.position) for r in rows
    ]
    if values:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(UPSERT, values)
