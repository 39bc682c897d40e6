"""Stops work for jobs that are owed its cards, and keeps what becomes free for them: at the end of each round, for a
few waiting jobs. Who is stopped is the engine's choice (engine.preempt); what stops them is ending, as in any other
end.

One row says for whom, whom, why and until when nodes are kept; it is written with the stops in one transaction, so that
a scheduler that dies leaves all of it or nothing, and the next round goes on from the rows. Of two schedulers at once
the second finds the attempts stopping and leaves them.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from scheduler.engine.fairness import Key, Shares, tier
from scheduler.engine.fleet import Fleet
from scheduler.engine.least import counts_for, make_of
from scheduler.engine.plan import Desk
from scheduler.engine.preempt import RULE, Cause, Proposal, Terms, cause_of, may_go, propose
from scheduler.engine.room import Scene
from scheduler.engine.shape import shapes_of
from scheduler.engine.types import DEFAULT_RULE, Claim, JobView, Reserve, Snapshot, Tenant, Waiting
from scheduler.models import Preemption, PreemptionVictim
from scheduler.quota import NoRoom, Promised

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
    """A waiting job for which others may be stopped, and by what right. `promised`: milli-cards of its project's
    guarantee that are kept for others of it."""

    job: JobView
    cause: Cause
    like: Hashable  # what can't be helped now can't be for its like
    promised: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom to stop for a job, `tenants` by attempt, and what that was chosen by."""

    job: JobView
    proposal: Proposal
    tenants: Mapping[int, Tenant]
    inputs: Mapping[str, Any]


class Book:
    """What a choice goes by: the rows as they are, read anew for each."""

    over = False  # whether it is time to stop looking

    def tenants(self, shares: Shares | None) -> list[Tenant]:
        borrowers = {key[0] for key in shares.of if shares.spare(key) > 0} if shares else set()
        return standings.tenants(borrowers)

    def claims(self) -> Sequence[Claim]:
        return standings.claims()

    def left(self, desk: Desk) -> Promised:
        """Of what limits the projects, once those that still wait have what is kept for them."""
        left = Promised(desk.jobs.values())
        for claim in desk.claims:
            if isinstance(desk.decided.get(claim.job_id), Waiting):
                left.take(desk.jobs[claim.job_id], claim.ask_index, snapshot.model_on(claim.node_ids))
        return left

    def fleet(self) -> Fleet:
        return snapshot.fleet_of(snapshot.node_views())


def stop_for_waiting(snap: Snapshot, desk: Desk, refused: Collection[int]) -> int:
    """For a few of the jobs that wait after this plan. `refused` are those that the database turned away. Returns how
    many attempts are stopped."""
    made = choices(desk, snap.reserves, refused, Book(), _stop)
    return sum(len(one.proposal.victims) for one in made)


def _stop(choice: Choice) -> bool:
    return make_preemption(proposal=choice.proposal, tenants=choice.tenants, inputs=dict(choice.inputs))


def choices(
    desk: Desk, reserves: Sequence[Reserve], refused: Collection[int], book: Book, act: Callable[[Choice], bool]
) -> list[Choice]:
    """Those that were acted upon, one after the other: each goes by what those before it have left."""
    made: list[Choice] = []
    claims = {claim.job_id: claim for claim in desk.claims}
    promised: Counter[Key] = Counter()
    worth = _Worth(book, desk)
    tenants: list[Tenant] | None = None
    if not settings.PREEMPT_MOST_VICTIMS:
        return made
    for one in _wanted(desk, claims, refused, promised):
        if tenants is None:
            tenants = book.tenants(desk.shares)
        if len(made) == settings.PREEMPT_CLAIMANTS or book.over or worth.over(tenants):
            break
        no_room = worth.asking(one)
        if no_room is None:
            continue
        found = _look(book, reserves, one, no_room, desk.shares, tenants)
        if found is None:
            worth.gave_up(one, no_room)
            continue
        promised[one.job.project_id, one.job.simulated] += found.takes
        by_id = {tenant.attempt_id: tenant for tenant in tenants}
        choice = Choice(one.job, found, by_id, _inputs(one, found, desk.shares))
        if act(choice):
            made.append(choice)
            _took(desk.shares, by_id, found)
            worth.room.take(one.job, found.ask_index, snapshot.model_on(found.node_ids))
        tenants = None
    return made


class _Worth:
    """For which jobs it is worth asking: for so many, one of each kind that could not be helped, and for none that is
    above a limit."""

    def __init__(self, book: Book, desk: Desk) -> None:
        self.book, self.desk = book, desk
        self.hopeless: set[Hashable] = set()
        self.asked = 0

    @cached_property
    def room(self) -> Promised:
        return self.book.left(self.desk)

    def over(self, tenants: Sequence[Tenant]) -> bool:
        return self.asked == LOOKED_AT or all(tenant.closing for tenant in tenants)

    def asking(self, wanted: Wanted) -> NoRoom | None:
        """Which of its asks have no room; None where it is not worth it."""
        no_room = self.room.no_room(wanted.job)
        if (wanted.like, frozenset(no_room)) in self.hopeless:
            return None
        if all((number, "") in no_room for number in range(len(wanted.job.asks))):
            return None
        self.asked += 1
        return no_room

    def gave_up(self, wanted: Wanted, no_room: NoRoom) -> None:
        self.hopeless.add((wanted.like, frozenset(no_room)))


def _wanted(
    desk: Desk,
    claims: Mapping[int, Claim],
    refused: Collection[int],
    promised: Counter[Key],
) -> Iterator[Wanted]:
    """Waiting jobs in the order of the queue. `promised` is what others of each project will get."""
    for pending in desk.pending(desk.jobs[job_id] for job_id in desk.decided):
        job, waits = desk.jobs[pending.id], desk.decided[pending.id]
        if not isinstance(waits, Waiting) or waits.never:
            continue
        key = pending.project, pending.simulated
        if job.id in claims or job.id in refused:
            promised[key] += _takes(desk, claims.get(job.id), pending.milli)
            continue
        covered = desk.shares is not None and desk.shares.covers(pending, promised[key])
        cause = cause_of(job, covered)
        wishes = (
            job.asks,
            job.cpu_milli,
            job.host_memory_mib,
            job.interconnect,
            job.labels,
            job.zones,
            job.distance,
            job.like,
        )
        open_now = tuple(desk.at >= job.submitted_at + ask.after_s for ask in job.asks)
        like = (key, cause, job.priority, job.key_work, job.reproducible, pending.tier, wishes, open_now)
        if cause is not None:
            yield Wanted(job, cause, like, promised[key])


def _takes(desk: Desk, claim: Claim | None, least: int) -> int:
    """Milli-cards that a job will count for on the nodes that are kept for it."""
    if claim is None or claim.ask_index >= len(desk.jobs[claim.job_id].asks):
        return least
    job, fleet = desk.jobs[claim.job_id], desk.fleet
    views = [fleet.views[fleet.row_of[node_id]] for node_id in claim.node_ids if node_id in fleet.row_of]
    shapes = [shape for shape in shapes_of(job, job.asks[claim.ask_index]) if shape.form is claim.form]
    return max(least, sum(counts_for(make_of(view), shape) or 0 for view in views for shape in shapes))


def _look(
    book: Book,
    reserves: Sequence[Reserve],
    wanted: Wanted,
    no_room: NoRoom,
    shares: Shares | None,
    tenants: Sequence[Tenant],
) -> Proposal | None:
    """By the book as it is now, for those asks that no limit keeps from starting. Inference that no borrowed cards help
    may still have lower work stopped."""
    at = database_now().timestamp()
    job, numbers = _with_room(wanted.job, no_room)
    causes = [wanted.cause, *([Cause.TIER] if wanted.cause is Cause.GUARANTEE and tier(job.kind) else [])]
    causes = [cause for cause in causes if any(may_go(one, job, cause, shares, at) for one in tenants)]
    if not causes:
        return None
    fleet = book.fleet()
    claims = [claim for claim in book.claims() if claim.job_id != job.id]
    claimants = Job.objects.filter(pk__in=[claim.job_id for claim in claims])
    views = [snapshot.job_view(claimant) for claimant in claimants]
    scene = Scene(fleet, reserves, at, 1, DEFAULT_RULE, claims, views)
    terms = Terms(settings.PREEMPT_MOST_VICTIMS, min(MOST_CHECKS, CHECKS // (len(fleet) + CHECK)))
    known: dict[str, Any] = {"tenants": tenants, "stays": snapshot.stays_at(at), "shares": shares, "terms": terms}
    tried = (propose(scene, job, cause, promised=wanted.promised, **known) for cause in causes)
    found = next((found for found in tried if found is not None), None)
    return found and replace(found, ask_index=numbers[found.ask_index])


def _with_room(job: JobView, no_room: NoRoom) -> tuple[JobView, list[int]]:
    """The job with those of its asks for which there is room, and their numbers."""
    numbers = [number for number in range(len(job.asks)) if (number, "") not in no_room]
    shut = frozenset((numbers.index(number), model) for number, model in no_room if number in numbers)
    return replace(job, asks=tuple(job.asks[number] for number in numbers), no_room=shut), numbers


def _took(shares: Shares | None, tenants: Mapping[int, Tenant], proposal: Proposal) -> None:
    """What is being stopped is no longer held."""
    for attempt_id, milli in zip(proposal.victims, proposal.milli, strict=True):
        if shares:
            one = tenants[attempt_id]
            shares.take((one.project_id, one.simulated), -milli, one.kind)


def _inputs(wanted: Wanted, proposal: Proposal, shares: Shares | None) -> dict[str, Any]:
    """What the choice was made by, to be read later."""
    key = wanted.job.project_id, wanted.job.simulated
    standing = shares.standing(key) if shares else None
    return {
        "guaranteed": standing.guaranteed if standing else 0,
        "held": shares.held[key] if shares else None,
        "promised": wanted.promised,
        "takes": proposal.takes,
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
