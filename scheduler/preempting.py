"""Stops work for jobs that are owed its cards, and keeps what becomes free for them: at the end of each round, for a
few waiting jobs. Who is stopped is the engine's choice (engine.preempt); what stops them is ending, as in any other
end.

One row says for whom, whom, why and until when nodes are kept; it is written with the stops in one transaction, so that
a scheduler that dies leaves all of it or nothing, and the next round goes on from the rows. Of two schedulers at once
the second finds the attempts stopping and leaves them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from ledger import audit
from ledger.book import Ending
from ledger.clock import database_now
from ledger.models import Attempt, Job
from ledger.vocabulary import AttemptState, JobState, Outcome
from scheduler import snapshot, standings
from scheduler.ending import close_inside
from scheduler.engine.fairness import Key, Shares
from scheduler.engine.plan import Desk
from scheduler.engine.preempt import RULE, Cause, Proposal, Terms, cause_of, may_go, propose
from scheduler.engine.room import Scene
from scheduler.engine.types import DEFAULT_RULE, JobView, Reserve, Snapshot, Tenant, Waiting
from scheduler.models import Preemption, PreemptionVictim
from scheduler.quota import Promised

CHECKS: Final = 400_000  # rows of the fleet that may be looked at for one job, so to speak:
CHECK: Final = 500  # each question costs its rows and so many besides
MOST_CHECKS: Final = 600
LOOKED_AT: Final = 16  # waiting jobs for which it is asked, one of each kind
WHY: Final = {
    Cause.GUARANTEE: "stopped for a job that is within what its project is guaranteed: these cards were borrowed",
    Cause.TIER: "stopped for inference, which comes before work that may be stopped for it",
}
MAY_BE_STOPPED: Final = (AttemptState.STARTING, AttemptState.RUNNING)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A waiting job for which others may be stopped, and by what right."""

    job: JobView
    cause: Cause
    like: Hashable  # what can't be helped now can't be for its like


def stop_for_waiting(snap: Snapshot, desk: Desk, refused: Collection[int]) -> int:
    """For a few of the jobs that wait after this plan. `refused` are those that the database turned away. Returns how
    many attempts are stopped."""
    if not settings.PREEMPT_MOST_VICTIMS:
        return 0
    served = stopped = 0
    claims = {claim.job_id for claim in snap.claims}
    promised: Promised | None = None
    hopeless: set[Hashable] = set()
    tenants: list[Tenant] | None = None
    for one in islice(_wanted(desk, claims | set(refused), hopeless), LOOKED_AT):
        if tenants is None:
            tenants = _tenants(desk.shares)
        if served == settings.PREEMPT_CLAIMANTS or all(tenant.closing for tenant in tenants):
            break
        if promised is None:
            promised = _promised(desk, claims)
        found = _look(snap.reserves, one, desk.shares, tenants) if promised.has_room(one.job) else None
        if found is None:
            hopeless.add(one.like)
            continue
        inputs = _inputs(one.job, found, desk.shares)
        by_id = {tenant.attempt_id: tenant for tenant in tenants}
        if make_preemption(proposal=found, tenants=by_id, inputs=inputs):
            served, stopped = served + 1, stopped + len(found.victims)
            _took(desk.shares, by_id, found)
            promised.take(one.job)
        tenants = None
    return stopped


def preview(job: Job) -> Proposal | None:
    """Who would be stopped for this queued job if a round looked at it now. Reads only."""
    snap = snapshot.read([job])
    fleet = snapshot.fleet_of(snap.nodes)
    shares = Shares(snap.standings, fleet.capacity()) if snap.standings else None
    desk = Desk(fleet, snap.reserves, at=snap.at, seed=snap.seed, rule=snap.rule, shares=shares, claims=snap.claims)
    if not isinstance(desk.decide(snap.jobs[0]), Waiting):
        return None
    return next((_look(snap.reserves, one, shares, _tenants(shares)) for one in _wanted(desk, ())), None)


def _promised(desk: Desk, claims: set[int]) -> Promised:
    promised = Promised(desk.jobs.values())
    for job_id in sorted(claims & desk.jobs.keys()):
        promised.take(desk.jobs[job_id])
    return promised


def _tenants(shares: Shares | None) -> list[Tenant]:
    borrowers = {key[0] for key in shares.of if shares.spare(key) > 0} if shares else set()
    return standings.tenants(borrowers)


def _wanted(desk: Desk, without: Collection[int], hopeless: Collection[Hashable] = ()) -> Iterator[Wanted]:
    """Waiting jobs in the order of the queue, but for those like one that could not be helped."""
    promised: dict[Key, int] = {}
    for pending in desk.pending(desk.jobs[job_id] for job_id in desk.decided):
        job, waits = desk.jobs[pending.id], desk.decided[pending.id]
        if not isinstance(waits, Waiting) or waits.never:
            continue
        key = pending.project, pending.simulated
        if job.id in without:
            promised[key] = promised.get(key, 0) + pending.milli
            continue
        covered = desk.shares is not None and desk.shares.covers(pending, promised.get(key, 0))
        cause = cause_of(job, covered)
        like = (key, cause, job.asks, job.cpu_milli, job.host_memory_mib, job.labels, job.distance, job.priority)
        if cause is not None and like not in hopeless:
            yield Wanted(job, cause, like)
            promised[key] = promised.get(key, 0) + pending.milli * (like not in hopeless)


def _look(
    reserves: Sequence[Reserve], wanted: Wanted, shares: Shares | None, tenants: Sequence[Tenant]
) -> Proposal | None:
    """By the book as it is now."""
    at = database_now().timestamp()
    job = wanted.job
    if not any(may_go(one, job, wanted.cause, shares, at) for one in tenants):
        return None
    fleet = snapshot.fleet_of(snapshot.node_views())
    claims = [claim for claim in standings.claims() if claim.job_id != job.id]
    claimants = Job.objects.filter(pk__in=[claim.job_id for claim in claims])
    views = [snapshot.job_view(claimant) for claimant in claimants]
    scene = Scene(fleet, reserves, at, 1, DEFAULT_RULE, claims, views)
    terms = Terms(settings.PREEMPT_MOST_VICTIMS, min(MOST_CHECKS, CHECKS // (len(fleet) + CHECK)))
    stays = snapshot.stays_at(at)
    return propose(scene, job, wanted.cause, tenants=tenants, stays=stays, shares=shares, terms=terms)


def _took(shares: Shares | None, tenants: Mapping[int, Tenant], proposal: Proposal) -> None:
    """What is being stopped is no longer held."""
    for attempt_id, milli in zip(proposal.victims, proposal.milli, strict=True):
        if shares:
            shares.take((tenants[attempt_id].project_id, tenants[attempt_id].simulated), -milli)


def _inputs(job: JobView, proposal: Proposal, shares: Shares | None) -> dict[str, Any]:
    """What the choice was made by, to be read later."""
    standing = shares.standing((job.project_id, job.simulated)) if shares else None
    return {
        "guaranteed": standing.guaranteed if standing else 0,
        "held": shares.held[job.project_id, job.simulated] if shares else None,
        "lost": proposal.lost,
        "candidates": proposal.candidates,
        "checks": proposal.checks,
        "searched_wholly": proposal.whole,
        "min_run_s": settings.PREEMPT_MIN_RUN_S,
    }


def make_preemption(*, proposal: Proposal, tenants: Mapping[int, Tenant], inputs: dict[str, Any]) -> bool:
    """Stop the attempts and keep the nodes. False, and nothing is written, where the job waits no more, has its nodes
    already, or any of the attempts is ending by itself: then the next round sees what is left to do."""
    wanted = [tenants[attempt_id] for attempt_id in proposal.victims]
    with transaction.atomic(durable=True):
        jobs = _locked({proposal.job_id, *(one.job_id for one in wanted)})
        job, now = jobs[proposal.job_id], database_now()
        if not _may_claim(job, now) or not _all_live(proposal.victims):
            return False
        row = _write(job, proposal, inputs, now)
        PreemptionVictim.objects.bulk_create(
            PreemptionVictim(
                preemption=row,
                attempt_id=one.attempt_id,
                borrowed=not one.preemptible,
                ran_s=max(int(now.timestamp() - one.since), 0),
            )
            for one in wanted
        )
        endings = [Ending(one.attempt_id, Outcome.PREEMPTED, None, WHY[proposal.cause]) for one in wanted]
        close_inside(endings, grace_s=row.grace_s)
    return True


def _locked(job_ids: Collection[int]) -> dict[int, Job]:
    found = Job.objects.filter(pk__in=job_ids).order_by("pk").select_for_update(no_key=True)
    return {job.pk: job for job in found}


def _may_claim(job: Job, now: dt.datetime) -> bool:
    if job.state != JobState.QUEUED or job.held_at is not None:
        return False
    return not Preemption.objects.filter(job=job, kept_until__gt=now, made_at__gte=job.queued_at).exists()


def _all_live(attempts: Sequence[int]) -> bool:
    return Attempt.objects.filter(pk__in=attempts, state__in=MAY_BE_STOPPED).count() == len(attempts)


def _write(job: Job, proposal: Proposal, inputs: dict[str, Any], now: dt.datetime) -> Preemption:
    grace = settings.PREEMPT_GRACE_S
    row = Preemption.objects.create(
        job=job,
        made_at=now,
        kept_until=now + dt.timedelta(seconds=grace + settings.PREEMPT_KEPT_S),
        rule=RULE,
        cause=proposal.cause,
        ask_index=proposal.ask_index,
        form=proposal.form,
        nodes=list(proposal.node_ids),
        grace_s=grace,
        inputs=inputs,
    )
    audit.record(
        actor=None,
        via="scheduler",
        verb="job.claimed",
        target=job,
        project=job.project_id,
        after={"stops": list(proposal.victims), "nodes": row.nodes, "kept_until": row.kept_until.isoformat()},
        reason=f"{RULE}: {proposal.cause}",
        at=now,
    )
    return row
