"""What a job would get if it were submitted now: where, beside whom, or why it waits, until when, and what would start
sooner. Reads only; the same engine, snapshot and rules as a tick, so the answer is the tick's answer of this moment.

The expected time is the earliest one: running jobs are taken to end at their time limit, and jobs that are ahead in the
queue and wait as well are not taken into account there.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ledger.clock import database_now
from ledger.models import HeadroomReserve, Job, NodeZone, Project
from ledger.vocabulary import Form, ProjectState, Refusal
from scheduler import likeness, quota, releases, snapshot
from scheduler.engine.demand import workloads
from scheduler.engine.feasible import counted
from scheduler.engine.fleet import Fleet
from scheduler.engine.plan import Desk, queue_order
from scheduler.engine.types import DEFAULT_RULE, JobView, MemberPlan, NodeView, Reserve
from scheduler.possible import Limit, Sooner, changed_by, fleet_lock, limits, variants
from scheduler.releases import Live

SEED: Final = 1
MOST_SOONER: Final = 4
CLEANING: Final = dt.timedelta(seconds=30)  # from the end of the work until its cards are free
OVERDUE: Final = dt.timedelta(seconds=60)  # what should be gone by now is taken to be free after this


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
    why the scheduler leaves the job out whatever is free."""

    verdict: str
    ask_index: int | None
    spots: tuple[Spot, ...]
    neighbours: tuple[int, ...]  # ids of projects on the same nodes now
    by_ask: tuple[Mapping[str, int], ...]  # nodes refused by reason, one a wish
    ahead: int  # jobs before it in the queue
    expected_at: dt.datetime | None = None
    next_ask_in_s: float | None = None  # when a later wish begins to count
    blockers: tuple[int, ...] = ()  # jobs that must end first
    limits: tuple[Limit, ...] = ()
    sooner: tuple[Sooner, ...] = ()
    barred: Refusal | None = None


def candidate(data: Mapping[str, Any], project: Project) -> Job:
    """The job that `data` (a validated JobInput) would make at this moment; it is not saved."""
    now = database_now()
    return Job(**likeness.columns(data), project=project, submitted_at=now, queued_at=now)


def outlook(job: Job) -> Outlook:
    """The outlook of a queued job, or of one that `candidate` made."""
    barred = _barred(job)
    if barred is not None:
        return Outlook("barred", None, (), (), (), 0, barred=barred)
    with fleet_lock:
        return _Question(job).answer()


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

    def __init__(self, job: Job) -> None:
        self.now = database_now()
        self.views = snapshot.node_views()
        self.fleet = snapshot.fleet_of(self.views)
        self.reserves = reserves_at(self.now)
        view = snapshot.job_view(job, over_quota=job.pk in quota.over_quota([job]))
        self.job = replace(view, id=job.pk or 0)
        self.ahead = self._ahead()

    def _ahead(self) -> list[JobView]:
        queue = [snapshot.job_view(job) for job in snapshot.queued_jobs() if job.pk != self.job.id]
        mine = (-self.job.priority, self.job.submitted_at, self.job.id or float("inf"))
        return [other for other in queue_order(queue) if (-other.priority, other.submitted_at, other.id) < mine]

    def _desk(self, fleet: Fleet) -> Desk:
        return Desk(fleet, self.reserves, at=self.now.timestamp(), seed=SEED, rule=DEFAULT_RULE)

    def answer(self) -> Outlook:
        desk = self._desk(self.fleet)
        for other in self.ahead:
            desk.decide(other)
        by_ask: list[Mapping[str, int]] = []
        for number, ask in enumerate(self.job.asks):
            early = desk.too_early(self.job, ask)
            if early is not None:
                by_ask.append({str(early): len(self.fleet)})
                continue
            verdict = desk.answer(self.job, ask)
            by_ask.append({str(reason): n for reason, n in counted(verdict.codes).items()})
            if verdict.members:
                return self._now(number, [member for _, member in verdict.members], by_ask)
        return self._waits(desk, by_ask)

    def _now(self, number: int, members: Sequence[MemberPlan], by_ask: Sequence[Mapping[str, int]]) -> Outlook:
        nodes = {member.node_id for member in members}
        live = releases.live(nodes)
        return Outlook(
            verdict="now",
            ask_index=number,
            spots=self._spots(members),
            neighbours=tuple(sorted({row.project_id for row in live})),
            by_ask=tuple(by_ask),
            ahead=len(self.ahead),
        )

    def _waits(self, desk: Desk, by_ask: Sequence[Mapping[str, int]]) -> Outlook:
        never = not self.job.over_quota and all(desk.answer(self.job, ask).never for ask in self.job.asks)
        delays = [self.job.submitted_at + ask.after_s - self.now.timestamp() for ask in self.job.asks]
        waits = Outlook(
            verdict="never" if never else "later",
            ask_index=None,
            spots=(),
            neighbours=(),
            by_ask=tuple(by_ask),
            ahead=len(self.ahead),
            next_ask_in_s=min((delay for delay in delays if delay > 0), default=None),
            sooner=() if self.job.over_quota else tuple(self._sooner(desk)),
        )
        later = waits if never or self.job.over_quota else self._later(waits)
        if later.expected_at is None and not self.job.over_quota:
            later = replace(later, limits=tuple(limits(self.views, self.job)))
        return later

    # -- when ----------------------------------------------------------------------------------------------------------

    def _gone_at(self, row: Live) -> dt.datetime:
        """What is closing is clean soon, and what has outlived its time limit is ended soon."""
        return max(row.ends_at + CLEANING, self.now + OVERDUE)

    def _later(self, waits: Outlook) -> Outlook:
        """The first release after which a wish can be placed: more releases never hurt, so it is found by halving."""
        live = sorted(releases.live(), key=lambda row: (self._gone_at(row), row.pk))
        if not live:
            return waits
        world = _Releases(self.views, live)
        lo, hi = 0, len(live)
        if self._placed(world, hi) is None:
            return waits
        while lo + 1 < hi:
            middle = (lo + hi) // 2
            if self._placed(world, middle) is None:
                lo = middle
            else:
                hi = middle
        placed = self._placed(world, hi)
        if placed is None:
            return waits
        number, members = placed
        nodes = {member.node_id for member in members}
        return replace(
            waits,
            ask_index=number,
            spots=self._spots(members),
            neighbours=tuple(sorted({row.project_id for row in live[hi:] if row.node_id in nodes})),
            expected_at=self._gone_at(live[hi - 1]).astimezone(dt.UTC),
            blockers=tuple(dict.fromkeys(row.job_id for row in live[:hi] if row.node_id in nodes)),
        )

    def _placed(self, world: _Releases, count: int) -> tuple[int, list[MemberPlan]] | None:
        desk = self._desk(world.after(count))
        for number, ask in enumerate(self.job.asks):
            members = desk.answer(self.job, ask).members
            if members:
                return number, [member for _, member in members]
        return None

    # -- what else -----------------------------------------------------------------------------------------------------

    def _sooner(self, desk: Desk) -> Iterator[Sooner]:
        """Smaller or other wishes that would start at once, the smallest change first."""
        found = 0
        for change in variants(self.job):
            changed = changed_by(self.job, change)
            members = desk.answer(changed, changed.asks[0]).members
            if members:
                found += 1
                yield Sooner(change, self._spots([members[0][1]])[0].hostname)
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


class _Releases:
    """The fleet after the first `count` of the live allocations are gone; only nodes that differ are filled anew."""

    def __init__(self, views: Sequence[NodeView], live: Sequence[Live]) -> None:
        self.live = live
        self.original = {view.id: view for view in views}
        self.fleet = Fleet(views, workloads(snapshot.inventory().learnt.demand))
        self.count = 0
        self.by_node: dict[int, list[tuple[int, Live]]] = defaultdict(list)
        for index, row in enumerate(live):
            self.by_node[row.node_id].append((index, row))
        self.empty = snapshot.inventory().empty
        self.shares: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for share in snapshot.live_shares():
            self.shares[share[0]].append(share)
        self.held_cards = {card.id for view in views for card in view.cards if card.held}

    def after(self, count: int) -> Fleet:
        lo, hi = sorted((self.count, count))
        touched = {row.node_id for row in self.live[lo:hi] if row.node_id in self.original}
        self.fleet.replace_nodes([self._view(node_id, count) for node_id in sorted(touched)])
        self.count = count
        return self.fleet

    def _view(self, node_id: int, count: int) -> NodeView:
        left = {
            row.pk: (row.form, row.cpu_milli, row.host_memory_mib)
            for index, row in self.by_node[node_id]
            if index >= count
        }
        taken = [share for pk in left for share in self.shares[pk]]
        held = self.original[node_id].held
        return snapshot.filled(self.empty[node_id], left, snapshot.by_card(taken), held, self.held_cards)


def zone_titles(node_ids: Iterable[int]) -> dict[int, str]:
    rows = NodeZone.objects.filter(period__upper_inf=True, node__in=list(node_ids)).select_related("zone")
    return {row.node_id: row.zone.title for row in rows}
