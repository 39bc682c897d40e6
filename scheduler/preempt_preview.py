"""Pre-emption shown before it happens: whom the next round would stop, and who might be stopped and why. Reads only.

The choice is preempting.choices itself, acted out on a copy of what it goes by, so that it tells what a round would do.
A long queue is looked at from the front, and for so long: then fewer are told, never others. What is kept of the fleet
is only copied under its lock; what is made of it keeps nobody who submits waiting.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from django.conf import settings
from django.db.models import F, FilteredRelation, Q, QuerySet

from ledger.clock import database_now
from ledger.models import Job
from ledger.vocabulary import JobKind, JobState, ProjectState
from scheduler import preempting, snapshot, standings
from scheduler.commit import order_of, over_when_committed
from scheduler.engine.demand import workloads
from scheduler.engine.ends import NEVER, StayTable
from scheduler.engine.fairness import Shares, tier
from scheduler.engine.fleet import Fleet
from scheduler.engine.future import with_stays
from scheduler.engine.plan import Desk, shares_of, stay_of
from scheduler.engine.preempt import RULE, Cause
from scheduler.engine.types import Claim, Placement, Reserve, Snapshot, Standing, Tenant
from scheduler.models import Preemption
from scheduler.possible import fleet_lock
from scheduler.preempting import Book, Choice
from scheduler.quota import Promised, over_quota

MOST_AHEAD: Final = 64  # waiting jobs that a page looks at, the first of the queue
LOOKS_S: Final = 2.0  # after that no further job is looked at
ROUNDS: Final = 5  # plans, each without what the database would not take of those before


@dataclass(frozen=True, slots=True)
class Stopped:
    """One that would be stopped. `lost`: milli-card-seconds of its work; it has run for `ran_s`, and before `min_run_s`
    it would not be stopped. `borrowed`: whether or not it says that it may be stopped."""

    attempt_id: int
    job_id: int
    project_id: int
    kind: JobKind
    milli: int
    lost: int
    ran_s: int
    min_run_s: int
    borrowed: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be done for one waiting job; `job_id` 0 for one that is not submitted. Amounts are milli-cards."""

    job_id: int
    project_id: int
    simulated: bool
    cause: Cause
    rule: str
    nodes: tuple[str, ...]
    victims: tuple[Stopped, ...]
    guaranteed: int
    held: int
    takes: int
    lost: int
    grace_s: int
    begins_at: dt.datetime  # when those that are stopped are gone at the latest
    whole: bool  # whether every smaller set was tried


@dataclass(frozen=True, slots=True)
class Round:
    """What the next round would do. `looked_at` of `waiting` jobs were thought of; `cut`: not to the end, for the time
    was over."""

    previews: tuple[Preview, ...]
    looked_at: int
    waiting: int
    cut: bool


class Looked(NamedTuple):
    """What would be done, how many jobs were thought of, whether the time was over before the end, and what the nodes
    were called at that moment."""

    made: list[Choice]
    jobs: int
    cut: bool
    names: Mapping[int, str]


class _Copy(Book):
    """The rows as they would be after what this round has placed and stopped so far, on the nodes that the desk has."""

    def __init__(self, desk: Desk) -> None:
        self.until, self.cut = monotonic() + LOOKS_S, False
        self.nodes = desk.fleet.base or desk.fleet
        self.placed = [one for one in desk.decided.values() if isinstance(one, Placement)]
        self.jobs = desk.jobs
        self.made: list[Choice] = []
        self._fleet: Fleet | None = None

    @property
    def over(self) -> bool:  # type: ignore[override]
        self.cut = monotonic() > self.until
        return self.cut

    def take(self, choice: Choice) -> bool:
        self.made.append(choice)
        return True

    def tenants(self, shares: Shares | None) -> list[Tenant]:
        """Who is stopped is still there and goes, also where its project borrows nothing any more."""
        stopped = {pk: choice.tenants[pk] for choice in self.made for pk in choice.proposal.victims}
        known = {one.attempt_id: one for one in super().tenants(shares)}
        return [replace(one, closing=one.closing or pk in stopped) for pk, one in (stopped | known).items()]

    def claims(self) -> Sequence[Claim]:
        at, met = database_now().timestamp(), {one.job_id for one in self.placed}
        return [*(one for one in super().claims() if one.job_id not in met), *(_claim(one, at) for one in self.made)]

    def left(self, desk: Desk) -> Promised:
        """What is placed is not in the book yet."""
        left, nodes = super().left(desk), {view.id: view for view in self.nodes.views}
        for one in self.placed:
            models = {card.id: card.model for member in one.members for card in nodes[member.node_id].cards}
            left.place(order_of(one, self.jobs[one.job_id].project_id, nodes), models)
        return left

    def fleet(self) -> Fleet:
        if not self.placed:
            return self.nodes
        if self._fleet is None:
            views = {view.id: view for view in self.nodes.views}
            for one in self.placed:
                for member in one.members:
                    stay = stay_of(self.jobs[one.job_id], member, NEVER)
                    views[stay.node_id] = with_stays(views[stay.node_id], [stay])
            self._fleet = Fleet(views.values(), self.nodes.workloads)
        return self._fleet


def _claim(choice: Choice, at: float) -> Claim:
    found, begins = choice.proposal, at + settings.PREEMPT_GRACE_S
    awaits = tuple(sorted(choice.tenants[one].job_id for one in found.victims))
    until = begins + settings.PREEMPT_KEPT_S
    return Claim(found.job_id, found.ask_index, found.form, found.node_ids, begins, until, awaits)


def of_desk(desk: Desk, reserves: Sequence[Reserve]) -> Looked:
    """What a round would do after this plan."""
    copy = _Copy(desk)
    made = preempting.choices(desk, reserves, (), copy, copy.take)
    named = {node_id for one in made for node_id in one.proposal.node_ids}
    names = {view.id: view.hostname for view in copy.nodes.views if view.id in named}
    return Looked(made, len(desk.jobs), copy.cut, names)


def choices_now(job: Job | None = None) -> Looked:
    """For the first waiting jobs, and for this one if it waits."""
    claims = standings.claims()
    claimed = {claim.job_id for claim in claims}
    first = list(waiting()[:MOST_AHEAD])
    known = {one.pk for one in first}
    first += [one for one in waiting().filter(pk__in=claimed) if one.pk not in known]
    first += [one for one in (job,) if one is not None and one.pk not in known | claimed]
    with fleet_lock:
        snap = snapshot.read(first, over_quota(first, claims), claims)
        stays = snapshot.stays_at(snap.at)
    fleet = Fleet(snap.nodes, workloads(snap.demand))
    for _ in range(ROUNDS):
        desk = _desk(snap, fleet, partial(StayTable, fleet, stays))
        refused = over_when_committed(snap, desk.decide_all(snap.jobs))
        if not refused:
            break
        snap = replace(snap, jobs=tuple(one for one in snap.jobs if one.id not in refused))
    return of_desk(desk, snap.reserves)


def _desk(snap: Snapshot, fleet: Fleet, stays: Callable[[], StayTable]) -> Desk:
    return Desk(
        fleet,
        snap.reserves,
        at=snap.at,
        seed=snap.seed,
        rule=snap.rule,
        policy=snap.policy,
        stays=stays,
        shares=shares_of(snap, fleet),
        claims=snap.claims,
    )


def waiting() -> QuerySet[Job]:
    """Jobs that a round looks at, in the order of the last one; who is new comes last."""
    decision = FilteredRelation("decisions", condition=Q(decisions__attempt=None))
    jobs = Job.objects.filter(state=JobState.QUEUED, held_at=None, project__state=ProjectState.ACTIVE)
    place = F("decision__position").asc(nulls_last=True)
    return jobs.annotate(decision=decision).order_by("-priority", place, "queued_at", "pk")


def next_round() -> Round:
    found = choices_now()
    return Round(tuple(described(found)), found.jobs, waiting().count(), found.cut)


def preview(job: Job) -> Preview | None:
    """What the next round would do for this queued job, after those before it."""
    if job.state != JobState.QUEUED or job.held_at is not None or job.project.state != ProjectState.ACTIVE:
        return None
    return next(iter(described(choices_now(job), job.pk)), None)


def described(found: Looked, job_id: int | None = None) -> list[Preview]:
    """For all of these jobs, or for one."""
    made = [one for one in found.made if job_id in (None, one.job.id)]
    now = database_now() if made else None
    return [_described(one, now, found.names) for one in made] if now else []


def _described(choice: Choice, now: dt.datetime, names: Mapping[int, str]) -> Preview:
    found, at = choice.proposal, now.timestamp()
    victims = [
        _stopped(choice.tenants[pk], milli, found.cause, at)
        for pk, milli in zip(found.victims, found.milli, strict=True)
    ]
    return Preview(
        job_id=choice.job.id,
        project_id=choice.job.project_id,
        simulated=choice.job.simulated,
        cause=found.cause,
        rule=RULE,
        nodes=tuple(sorted(names[node_id] for node_id in found.node_ids)),
        victims=tuple(victims),
        guaranteed=choice.inputs["guaranteed"],
        held=choice.inputs["held"] or 0,
        takes=found.takes,
        lost=found.lost,
        grace_s=settings.PREEMPT_GRACE_S,
        begins_at=now + dt.timedelta(seconds=settings.PREEMPT_GRACE_S),
        whole=found.whole,
    )


def _stopped(one: Tenant, milli: int, cause: Cause, at: float) -> Stopped:
    ran_s = max(int(at - one.since), 0)
    return Stopped(
        one.attempt_id, one.job_id, one.project_id, one.kind, milli, milli * ran_s, ran_s,
        round(one.safe_until - one.since), cause is Cause.GUARANTEE,
    )  # fmt: skip


# -- who might be stopped ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AtRisk:
    """A running job that may be stopped for others, from `safe_until` on: because it stands on borrowed cards, or
    because it says that it may be stopped for inference."""

    job_id: int
    kind: JobKind
    safe_until: dt.datetime
    borrowed: bool
    preemptible: bool


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a project holds in one of the two worlds above its guarantee, in milli-cards, and so may lose. `owed` is by
    project what others have of their guarantees and don't hold now: of them it was lent."""

    simulated: bool
    guaranteed: int
    held: int
    serving: int
    jobs: tuple[AtRisk, ...]
    owed: tuple[tuple[int, int], ...]

    @property
    def borrowed(self) -> int:
        return max(self.held - self.guaranteed, 0)

    @property
    def lent(self) -> tuple[AtRisk, ...]:
        return tuple(one for one in self.jobs if one.borrowed)


def exposures(project_id: int) -> list[Exposure]:
    """Of the worlds in which anything of the project may be stopped for others."""
    if not settings.PREEMPT_MOST_VICTIMS:
        return []
    known = standings.read()
    mine = {one.simulated: one for one in known if one.project_id == project_id}
    shares = Shares(known, {})
    tenants = standings.tenants([project_id], project=project_id, young=True)
    found = []
    for world in (False, True):
        own = mine.get(world, Standing(project_id, world))
        jobs = [_at_risk(one, shares) for one in tenants if one.simulated == world and not one.closing]
        jobs = [one for one in jobs if one.borrowed or one.preemptible]
        owed = [(one.project_id, one.guaranteed - one.held) for one in known if one.simulated == world]
        others = tuple(pair for pair in owed if pair[1] > 0 and pair[0] != project_id)
        if jobs:
            found.append(Exposure(world, own.guaranteed, own.held, own.serving, tuple(jobs), others))
    return found


def _at_risk(one: Tenant, shares: Shares) -> AtRisk:
    lent = bool(shares.of) and shares.may_lose((one.project_id, one.simulated), one.kind) > 0
    until = dt.datetime.fromtimestamp(one.safe_until, dt.UTC)
    return AtRisk(one.job_id, one.kind, until, lent, one.preemptible and not tier(one.kind))


# -- what was done -----------------------------------------------------------------------------------------------------


def open_claims() -> QuerySet[Preemption]:
    """For whom nodes are kept now, the oldest first."""
    now = database_now()
    rows = Preemption.objects.filter(kept_until__gt=now, job__state=JobState.QUEUED, made_at__gte=F("job__queued_at"))
    return rows.select_related("job__project").order_by("pk")


def made_lately() -> QuerySet[Preemption]:
    """The newest first."""
    return Preemption.objects.select_related("job__project").order_by("-pk")
