"""What a job would get if it were submitted now: where, beside whom, or why it waits, until when, and what would start
sooner. Reads only; the same engine, snapshot and rules as a tick, so the answer is the tick's answer of this moment.

When a job is expected to start is told by playing the queue on: running work is expected to go on as long as jobs like
it did, those ahead start as they find room, and nobody else comes. A queue or a fleet that is too long for that gives
the earliest time instead: when enough has ended, whoever else waits for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ledger.clock import database_now
from ledger.models import HeadroomReserve, Job, NodeZone, Project, User
from ledger.vocabulary import Form, ProjectState, Refusal
from scheduler import policy, preempt_preview, quota, snapshot, standings
from scheduler.engine.fairness import Shares
from scheduler.engine.feasible import counted
from scheduler.engine.future import Future, World
from scheduler.engine.plan import Desk
from scheduler.engine.queueing import forecast
from scheduler.engine.types import (
    DEFAULT_RULE,
    MemberPlan,
    NodeView,
    Placement,
    Reserve,
    Snapshot,
    Stay,
    Waiting,
)
from scheduler.possible import Limit, Sooner, changed_by, fleet_lock, limits, variants, whole_change
from scheduler.preempt_preview import Preview

SEED: Final = 1
MOST_SOONER: Final = 4
MOST_STEPS: Final = 64  # of the queue into the future,
MOST_AHEAD: Final = 200  # with at most so many jobs ahead,
MOST_WORK: Final = 200_000  # and steps times running members


@dataclass(frozen=True, slots=True)
class Spot:
    """One node of the placement. `cards` are (slot, MiB given, MiB of the card)."""

    node_id: int
    hostname: str
    form: Form
    model: str
    cards: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """`verdict` is now, later, never or barred. `spots` say where (for later: where at `expected_at`); `barred` says
    why the scheduler leaves the job out whatever is free. `expected_at` is the earliest time alone unless the jobs
    ahead have been `played`."""

    verdict: str
    ask_index: int | None
    spots: tuple[Spot, ...]
    neighbours: tuple[int, ...]  # ids of projects on the same nodes now
    by_ask: tuple[Mapping[str, int], ...]  # nodes refused by reason, one a wish
    ahead: int  # jobs before it in the queue
    expected_at: dt.datetime | None = None
    played: bool = False
    next_ask_in_s: float | None = None  # when a later wish begins to count
    blockers: tuple[int, ...] = ()  # jobs that must end first
    kept: tuple[str, ...] = ()  # host names of nodes that are kept for it meanwhile
    limits: tuple[Limit, ...] = ()
    sooner: tuple[Sooner, ...] = ()
    stops: Preview | None = None  # others that the next round would stop for it
    barred: Refusal | None = None


def candidate(data: Mapping[str, Any], project: Project, by: User | None = None) -> Job:
    """The job that `data` (a validated JobInput) would make at this moment; it is not saved. Without `by` no limit of a
    member is thought of. Refused as submitting it would be for policies."""
    now = database_now()
    columns = policy.columns(data, policy.settled(data, project))
    return Job(**columns, project=project, by=by, submitted_at=now, queued_at=now)


def outlook(job: Job, *, stops: bool = True) -> Outlook:
    """The outlook of a queued job, or of one that `candidate` made; with whom the next round would stop for it."""
    barred = _barred(job)
    if barred is not None:
        return Outlook("barred", None, (), (), (), 0, barred=barred)
    with fleet_lock:
        return _Question(job, stops).answer()


def _barred(job: Job) -> Refusal | None:
    """Why snapshot.queued_jobs leaves this job out."""
    if job.held_at is not None:
        return Refusal.HELD_BY_OPERATOR
    return None if job.project.state == ProjectState.ACTIVE else Refusal.PROJECT_ENDED


def views_now() -> tuple[NodeView, ...]:
    """Every node as the engine sees it now."""
    with fleet_lock:
        return snapshot.node_views()


def reserves_at(now: dt.datetime) -> list[Reserve]:
    found = HeadroomReserve.objects.filter(period__contains=now)
    return [Reserve(zone_id=r.zone_id, model=r.model, mib=r.mib) for r in found]


class _Question:
    """One job against one snapshot."""

    def __init__(self, job: Job, stops: bool) -> None:
        self.asked, self.tells_stops = job, stops
        self.now = database_now()
        self.at = self.now.timestamp()
        self.views = snapshot.node_views()
        self.reserves = reserves_at(self.now)
        queue = [queued for queued in snapshot.queued_jobs() if queued.pk != job.pk]
        self.claims = standings.claims()
        over = quota.over_quota([*queue, job], self.claims)
        self.over = over.get(job.pk, {})
        view = snapshot.job_view(job, self.over)
        self.job = replace(view, id=job.pk or 0)
        self.queue = [snapshot.job_view(queued, over.get(queued.pk, ())) for queued in queue]

    def answer(self) -> Outlook:
        fleet = snapshot.fleet_of(self.views)
        known = standings.read()
        desk = Desk(
            fleet,
            self.reserves,
            at=self.at,
            seed=SEED,
            rule=DEFAULT_RULE,
            stays=snapshot.stays_later(fleet, self.at),
            watched=self.job.id,
            shares=Shares(known, fleet.capacity()) if known else None,
            claims=self.claims,
        )
        self.ahead = 0
        for decided in desk.decisions([*self.queue, self.job]):
            if decided.job_id == self.job.id:
                break
            self.ahead += 1
        found = desk.decided[self.job.id]
        counts = ({one: len(fleet)} if isinstance(one, Refusal) else counted(one.codes) for one in desk.seen)
        by_ask = tuple(
            {str(reason): n for reason, n in quota.named(by_reason, number, self.over).items()}
            for number, by_reason in enumerate(counts)
        )
        if isinstance(found, Placement):
            return self._now(found, by_ask[: found.ask_index + 1])
        return self._waits(desk, found, by_ask)

    def _now(self, found: Placement, by_ask: tuple[Mapping[str, int], ...]) -> Outlook:
        return Outlook(
            verdict="now",
            ask_index=found.ask_index,
            spots=self._spots(found.members),
            neighbours=self._neighbours(found.members, self._stays()),
            by_ask=by_ask,
            ahead=self.ahead,
        )

    def _waits(self, desk: Desk, found: Waiting, by_ask: tuple[Mapping[str, int], ...]) -> Outlook:
        never = found.never and not self.job.over_quota
        kept = desk.reservations.get(self.job.id)
        names = {view.id: view.hostname for view in self.views}
        waits = Outlook(
            verdict="never" if never else "later",
            ask_index=None,
            spots=(),
            neighbours=(),
            by_ask=by_ask,
            ahead=self.ahead,
            next_ask_in_s=found.next_ask_in_s,
            sooner=() if self.job.over_quota else tuple(self._sooner(desk)),
            kept=tuple(sorted(names[node_id] for node_id in kept.node_ids)) if kept else (),
        )
        later = waits if never or self.job.over_quota else self._later(desk, waits)
        if later.expected_at is None and not self.job.over_quota:
            later = replace(later, limits=tuple(limits(self.views, self.job)))
        return replace(later, stops=self._stops(desk)) if self.tells_stops and not never else later

    def _stops(self, desk: Desk) -> Preview | None:
        """Asked last: it uses up what the desk knows of shares."""
        found = preempt_preview.of_desk(desk, self.reserves)
        return next(iter(preempt_preview.described(found, self.job.id)), None)

    def _stays(self) -> list[Stay]:
        return snapshot.stays_at(self.at)

    # -- when ----------------------------------------------------------------------------------------------------------

    def _later(self, desk: Desk, waits: Outlook) -> Outlook:
        ahead = desk.order([*self.queue, self.job])[: self.ahead]
        steps = min(MOST_STEPS, MOST_WORK // (len(self._stays()) + 1))
        if len(ahead) <= MOST_AHEAD and steps:
            world = self._world()
            future = Future(world, self.at)
            pending = future.pending([*ahead, self.job])
            start = forecast(pending, future, future.policy, steps=steps, until=self.job.id).get(self.job.id)
            found = future.decided.get(self.job.id)
            if start is not None and isinstance(found, Placement):
                return replace(self._then(waits, found, start.at, start.awaits, world.stays), played=True)
        return self._earliest(waits)

    def _earliest(self, waits: Outlook) -> Outlook:
        """The first end after which a wish can be placed: more of them never hurt, so it is found by halving."""
        world = self._world()
        by_end = sorted(world.stays, key=lambda stay: (stay.ends_at, stay.job_id, stay.node_id))
        lo, hi, gone = 0, len(by_end), 0

        def after(count: int) -> Placement | None:
            nonlocal gone
            if count > gone:
                world.leave(by_end[gone:count])
            else:
                world.come(by_end[count:gone])
            gone = count
            desk = Desk(world.fleet, self.reserves, at=self.at, seed=SEED, rule=DEFAULT_RULE)
            found = desk.decide(self.job)
            return found if isinstance(found, Placement) else None

        if not by_end or after(hi) is None:
            return waits
        while lo + 1 < hi:
            middle = (lo + hi) // 2
            lo, hi = (middle, hi) if after(middle) is None else (lo, middle)
        found = after(hi)
        if found is None:
            return waits
        nodes = {member.node_id for member in found.members}
        awaits = dict.fromkeys(stay.job_id for stay in by_end[:hi] if stay.node_id in nodes)
        return self._then(waits, found, by_end[hi - 1].ends_at, tuple(awaits), by_end[hi:])

    def _world(self) -> World:
        demand = snapshot.inventory().learnt.demand
        stays = tuple(self._stays())
        return World(Snapshot(self.at, SEED, self.views, (), tuple(self.reserves), DEFAULT_RULE, demand, stays=stays))

    def _then(
        self, waits: Outlook, found: Placement, at: float, awaits: tuple[int, ...], beside: Iterable[Stay]
    ) -> Outlook:
        """As it will be then, `beside` what is still there."""
        running = {stay.job_id for stay in self._stays()}
        return replace(
            waits,
            ask_index=found.ask_index,
            spots=self._spots(found.members),
            neighbours=self._neighbours(found.members, beside),
            expected_at=dt.datetime.fromtimestamp(max(at, self.at), dt.UTC),
            blockers=tuple(job for job in awaits if job in running),
        )

    def _neighbours(self, members: Sequence[MemberPlan], beside: Iterable[Stay]) -> tuple[int, ...]:
        """Projects that are then on these nodes."""
        nodes = {member.node_id for member in members}
        projects = snapshot.projects_on(nodes) | {job.id: job.project_id for job in self.queue}
        return tuple(sorted({projects[s.job_id] for s in beside if s.node_id in nodes and s.job_id in projects}))

    # -- what else -----------------------------------------------------------------------------------------------------

    def _sooner(self, desk: Desk) -> Iterator[Sooner]:
        """Smaller or other wishes that would start at once, the smallest change first."""
        found = 0
        for change in variants(self.job):
            changed = changed_by(self.job, change)
            members = desk.answer(changed, changed.asks[0]).members
            if members:
                found += 1
                yield Sooner(whole_change(self.asked, change), self._spots([members[0][1]])[0].hostname)
            if found == MOST_SOONER:
                return

    def _spots(self, members: Sequence[MemberPlan]) -> tuple[Spot, ...]:
        views = {view.id: view for view in self.views}
        return tuple(_spot(views[member.node_id], member) for member in members)


def _spot(view: NodeView, member: MemberPlan) -> Spot:
    by_id = {card.id: card for card in view.cards}
    cards = sorted(
        (by_id[share.card_id].slot, sum(hi - lo for lo, hi in share.memory), by_id[share.card_id].memory_mib)
        for share in member.shares
    )
    models = sorted({by_id[share.card_id].model for share in member.shares})
    return Spot(view.id, view.hostname, member.form, ", ".join(models), tuple(cards))


def zone_titles(node_ids: Iterable[int]) -> dict[int, str]:
    rows = NodeZone.objects.filter(period__upper_inf=True, node__in=list(node_ids)).select_related("zone")
    return {row.node_id: row.zone.title for row in rows}
