"""One scheduling round: snapshot → plan → commit → why the rest waits. Safe to run twice; one at a time is enough."""

from __future__ import annotations

import datetime as dt
import gc
import json
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from types import MappingProxyType
from typing import Any

from django.db import connection, transaction

from ledger.clock import database_now
from ledger.vocabulary import Refusal
from scheduler import preempting, snapshot, standings
from scheduler.commit import Committed, commit_as_decided
from scheduler.engine.plan import Desk, shares_of
from scheduler.engine.types import Placement, Plan, Reservation, Snapshot, Waiting
from scheduler.quota import REFUSALS, NoRoom, named, over_quota
from scheduler.snapshot import QueuedJob
from scheduler.wake import ring

PLACEMENT_LOCK = 7_130_002
ROUNDS = 5  # a refused placement is tried again at once, with what the database knows now
BUDGET_S = 5.0
FINAL_FOR_NOW = (*REFUSALS, Refusal.PROJECT_ENDED)  # looking again in the same tick changes nothing
NOTHING: Mapping[int, NoRoom] = MappingProxyType({})
# A long queue is looked at wholly now and then, so that it takes this part of the time at most, half of it while much
# finds room and has no time to lose; in between the first few of those that ask for the same are enough to fill what
# became free: as many as found room lately, and more at once where all of them did.
LONG = 1_000
FEWEST, SOME, MOST = 2, 8, 64  # of a kind
WHOLE_EVERY_S = 2.0
WHOLE_PART = 0.03
REFRESH = dt.timedelta(seconds=20)  # an unchanged reason is stamped again this often
RECORD = """
INSERT INTO scheduler_decision AS d (job_id, at, first_at, count, rule, policy, seed, workload_id, reasons, never,
    position, expected_s, kept, begins_at, scores, neighbours)
SELECT w.job_id, %(at)s, CASE WHEN old.reasons = w.reasons THEN old.first_at ELSE %(at)s END,
    coalesce(old.count, 0) + 1, %(rule)s, %(policy)s, %(seed)s, %(workload)s, w.reasons, w.never,
    w.position, w.expected_s, w.kept, w.begins_at, '[]', '[]'
FROM jsonb_to_recordset(%(waiting)s) AS w (job_id bigint, reasons jsonb, never boolean, position integer,
    expected_s float8, kept jsonb, begins_at timestamptz)
LEFT JOIN scheduler_decision old ON old.job_id = w.job_id AND old.attempt_id IS NULL
WHERE old.id IS NULL OR old.at < %(at)s - %(refresh)s
    OR (old.reasons, old.never, old.position, old.kept, old.begins_at)
        IS DISTINCT FROM (w.reasons, w.never, w.position, w.kept, w.begins_at)
ORDER BY w.job_id
ON CONFLICT (job_id) WHERE attempt_id IS NULL DO UPDATE SET at = excluded.at, first_at = excluded.first_at,
    count = excluded.count, rule = excluded.rule, policy = excluded.policy, seed = excluded.seed,
    workload_id = excluded.workload_id, reasons = excluded.reasons, never = excluded.never,
    position = excluded.position, expected_s = excluded.expected_s, kept = excluded.kept,
    begins_at = excluded.begins_at
-- an operator held the job while this round was under way: that is what its owner must read
WHERE NOT d.reasons @> '[{"held_by_operator": 1}]'
"""


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


@contextmanager
def without_collector() -> Iterator[None]:
    """A round makes many objects and no cycles; to look for them means half a second in all that is kept of a large
    fleet."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def place_queued() -> dict[str, Any]:
    """Place what can be placed now. Returns counts for the task's record."""
    with single_flight(PLACEMENT_LOCK) as mine, without_collector():
        return _rounds() if mine else {"skipped": "another scheduler is at work"}


@dataclass
class _Looked:
    """The last look of this process at the whole queue."""

    ended: float = float("-inf")
    took_s: float = 0.0
    jobs: int = 0
    enough: int = FEWEST

    def heads(self, now: float) -> int | None:
        """How many of each kind are enough this time; None: all are looked at."""
        rested = now - self.ended
        pressed = 2 if self.enough > FEWEST else 1
        enough = self.jobs > LONG and rested < max(WHOLE_EVERY_S, pressed * self.took_s / WHOLE_PART)
        return self.enough if enough else None

    def learn(self, heads: int, placed: int) -> bool:
        """After so many of each kind were looked at, of one of which `placed` found room. Whether more of it may."""
        all_did = placed >= heads
        more, fewer = max(2 * heads, SOME), max(FEWEST, -(-3 * placed // 2), heads // 2)
        self.enough = min(MOST, more if all_did else fewer)
        return all_did


_looked = _Looked()


@dataclass
class _Spent:
    """By job, asks that the database refused in this tick because something is used up: they take more than could be
    told before."""

    asks: dict[int, dict[tuple[int, str], Refusal]] = field(default_factory=dict)

    def others(self, desk: Desk, job_id: int, why: Refusal) -> bool:
        """Whether the job has other asks than that by which it was refused."""
        job, placed = desk.jobs[job_id], desk.decided[job_id]
        if why not in REFUSALS or not isinstance(placed, Placement):
            return False
        spent = self.asks.setdefault(job_id, {})
        spent[placed.ask_index, ""] = why
        return any(not job.is_over(ask) and (number, "") not in spent for number, ask in enumerate(job.asks))

    def added(self, over: Mapping[int, NoRoom]) -> Mapping[int, NoRoom]:
        return {**over, **{pk: {**over.get(pk, {}), **asks} for pk, asks in self.asks.items()}} if self.asks else over


def _rounds() -> dict[str, Any]:
    started, before, total = monotonic(), snapshot.reloads(), Committed()
    heads = _looked.heads(started)
    jobs, spent = list[QueuedJob](), _Spent()
    stopped = most_placed = 0
    for _ in range(ROUNDS):
        jobs = snapshot.queued_jobs(heads=heads)
        if not jobs:
            break
        # what the database refused for good would only take room from the others in the next round
        claims = standings.claims()
        over = spent.added(over_quota(jobs, claims))
        snap = snapshot.read([job for job in jobs if job.pk not in total.refused_jobs], over, claims)
        fleet = snapshot.fleet_of(snap.nodes)
        desk = Desk(
            fleet,
            snap.reserves,
            at=snap.at,
            seed=snap.seed,
            rule=snap.rule,
            policy=snap.policy,
            stays=snapshot.stays_later(fleet, snap.at),
            shares=shares_of(snap, fleet),
            claims=snap.claims,
        )
        done = commit_as_decided(snap, desk.decisions(snap.jobs))
        total.placed += done.placed
        total.refused.update(done.refused)
        final = {job: why for job, why in done.refused_jobs.items() if why in FINAL_FOR_NOW}
        total.refused_jobs |= {job: why for job, why in final.items() if not spent.others(desk, job, why)}
        refused = total.refused_jobs | done.refused_jobs
        most_placed = max(most_placed, _most_alike(desk, done.refused_jobs))
        if heads is None:
            _record_waiting(snap, desk.plan(), refused, over)
        if not done.refused:  # else the plan holds what the database did not take, and nobody is stopped by that
            stopped = preempting.stop_for_waiting(snap, desk, refused.keys() | spent.asks.keys())
        if not done.refused or monotonic() - started > BUDGET_S:
            break
    if heads is not None and _looked.learn(heads, most_placed):
        ring("scheduler.tick")
    if heads is None:
        now = monotonic()
        _looked.ended, _looked.took_s, _looked.jobs = now, now - started, len(jobs)
    return {
        "placed": total.placed,
        "stopped": stopped,
        "refused": dict(total.refused),
        "looked_at": len(jobs),
        "reloads": snapshot.reloads() - before,
    }


def _most_alike(desk: Desk, refused: Container[int]) -> int:
    """How many of those that were placed are of one kind, as ledger_queue_heads knows them."""
    placed = (desk.jobs[pk] for pk, one in desk.decided.items() if isinstance(one, Placement) and pk not in refused)
    kinds = Counter((job.project_id, job.priority, job.asks) for job in placed)
    return max(kinds.values(), default=0)


def _record_waiting(
    snap: Snapshot, proposal: Plan, refused: Mapping[int, Refusal], over: Mapping[int, NoRoom] = NOTHING
) -> None:
    """Store why each job waits, its place in the queue and what is kept for it, but only when that changed or grew
    old. Jobs that the database refused and the plan therefore leaves out come last. The engine knows of `over` that
    something is used up, and not what."""
    waiting = {w.job_id: w for w in proposal.waiting}
    for job_id in over.keys() & waiting.keys():
        by_ask = tuple(named(counts, number, over[job_id]) for number, counts in enumerate(waiting[job_id].by_ask))
        waiting[job_id] = replace(waiting[job_id], by_ask=by_ask)
    for job_id, reason in refused.items():
        waiting[job_id] = Waiting(job_id=job_id, by_ask=({reason: 1},))
    order = [waiting[job_id] for job_id in dict.fromkeys((*proposal.order, *refused)) if job_id in waiting]
    if not order:
        return
    names = {node.id: node.hostname for node in snap.nodes}
    kept = {found.job_id: found for found in proposal.reservations if found.job_id not in refused}
    expected = {job.id: job.expected_s or None for job in snap.jobs}
    verdicts = [
        {
            "job_id": verdict.job_id,
            "reasons": verdict.by_ask,
            "never": verdict.never,
            "position": position,
            "expected_s": expected.get(verdict.job_id),
            **_kept(kept.get(verdict.job_id), names),
        }
        for position, verdict in enumerate(order, 1)
    ]
    values: dict[str, Any] = {
        "at": database_now(),
        "refresh": REFRESH,
        "rule": proposal.rule,
        "policy": snap.policy,
        "seed": snap.seed,
        "workload": snap.workload,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(RECORD, values | {"waiting": json.dumps(verdicts)})


def _kept(found: Reservation | None, names: Mapping[int, str]) -> dict[str, Any]:
    """Told to the minute: an estimate that moves by seconds is no news."""
    if found is None:
        return {}
    begins = dt.datetime.fromtimestamp(math.ceil(found.begins_at / 60) * 60, dt.UTC)
    nodes = sorted(names[node_id] for node_id in found.node_ids)
    return {
        "kept": {"nodes": nodes, "ask": found.ask_index, "awaits": list(found.awaits)},
        "begins_at": begins.isoformat(),
    }
