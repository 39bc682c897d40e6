"""From a snapshot to a plan: jobs in queue order, each placed on a working copy before the next is looked at.

Pure: the same snapshot gives the same plan, whatever the order of its nodes, cards and jobs, and nothing given in is
changed. Between ticks keep one Fleet, correct it with `replace_nodes`, and give it to a Desk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ledger.vocabulary import AskForm, Refusal
from scheduler.engine import feasible
from scheduler.engine.answers import answer
from scheduler.engine.arrays import Bools, Rows
from scheduler.engine.claims import keep_claimed, milli_of
from scheduler.engine.demand import workloads
from scheduler.engine.ends import NEVER, Ends, StayTable
from scheduler.engine.fairness import Shares, tier
from scheduler.engine.fleet import Fleet
from scheduler.engine.judge import FREE, Judge, Question, Verdict, question_of
from scheduler.engine.kept import Bar
from scheduler.engine.least import Makes
from scheduler.engine.near import required
from scheduler.engine.queueing import POLICIES, Ground, Keepers, Pending, Start, in_order, walk
from scheduler.engine.score import POINTS
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.types import (
    DEFAULT_POLICY,
    Ask,
    Claim,
    JobView,
    MemberPlan,
    Placement,
    Plan,
    Reservation,
    Reserve,
    Snapshot,
    Stay,
    Waiting,
)

NodeVerdict = tuple[str, int, Refusal | None, float | None]  # hostname, ask's number, refusal, score


def plan(snapshot: Snapshot) -> Plan:
    """Decide every job of the snapshot. ValueError for a rule or policy that isn't known or two nodes with one id."""
    return _desk_for(snapshot).decide_all(snapshot.jobs)


def explain(snapshot: Snapshot, job_id: int) -> Placement | Waiting:
    """What the plan says about one job, after the jobs ahead of it. ValueError when it isn't in the snapshot."""
    return _desk_after(snapshot, job_id).decided[job_id]


def explain_nodes(snapshot: Snapshot, job_id: int) -> list[NodeVerdict]:
    """Every node's answer to every ask of one job when its turn comes, by ask and host name.

    A feasible node has a score and no refusal; when the gang as a whole fails it has both.
    """
    desk = _desk_after(snapshot, job_id)
    out: list[NodeVerdict] = []
    for number, verdict in enumerate(desk.seen):
        if isinstance(verdict, Refusal):
            out += [(node.hostname, number, verdict, None) for node in desk.fleet.views]
            continue
        for row, node in enumerate(desk.fleet.views):
            code = int(verdict.codes[row])
            scored = code == 0 or code > feasible.HEADROOM
            score = float(verdict.points[row]) / POINTS if scored else None
            out.append((node.hostname, number, feasible.reason(code) if code else None, score))
    return sorted(out, key=lambda line: (line[1], line[0]))


def queue_order(snapshot: Snapshot) -> list[JobView]:
    """Its jobs, the first to be looked at first."""
    return _desk_for(snapshot).order(snapshot.jobs)


def _desk_for(snapshot: Snapshot, watched: int | None = None) -> Desk:
    fleet = Fleet(snapshot.nodes, workloads(snapshot.demand))
    return Desk(
        fleet,
        snapshot.reserves,
        at=snapshot.at,
        seed=snapshot.seed,
        rule=snapshot.rule,
        policy=snapshot.policy,
        stays=lambda: StayTable(fleet, snapshot.stays),
        watched=watched,
        shares=shares_of(snapshot, fleet),
        claims=snapshot.claims,
    )


def shares_of(snapshot: Snapshot, fleet: Fleet) -> Shares | None:
    return Shares(snapshot.standings, fleet.capacity()) if snapshot.standings else None


def _desk_after(snapshot: Snapshot, job_id: int) -> Desk:
    desk = _desk_for(snapshot, watched=job_id)
    for decided in desk.decisions(snapshot.jobs):
        if decided.job_id == job_id:
            return desk
    raise ValueError(f"job {job_id} is not in the snapshot")


class Desk(Judge):
    """One plan under way: the working copy and what is known about it. The Ground that the queue starts its jobs on."""

    def __init__(
        self,
        fleet: Fleet,
        reserves: Iterable[Reserve],
        *,
        at: float,
        seed: int,
        rule: str,
        policy: str = DEFAULT_POLICY,
        stays: Callable[[], StayTable] | None = None,
        watched: int | None = None,
        shares: Shares | None = None,
        claims: Sequence[Claim] = (),
    ) -> None:
        """`shares` part the queue among projects. Jobs of `claims` come first, and their nodes are kept. `stays` is
        only asked when a job has to wait that may have nodes kept for it. Of the watched job is `seen` what was found
        for each of its asks when its turn came."""
        super().__init__(fleet, reserves, at=at, seed=seed, rule=rule)
        if policy not in POLICIES:
            raise ValueError(f"policy {policy!r} is not known; known are {', '.join(sorted(POLICIES))}")
        self.policy = POLICIES[policy]
        self.stays = stays
        self.shares, self.claims = shares, tuple(claims)
        self.placed: list[Stay] = []  # by this plan
        self.hopeless: set[tuple[Question, ...]] = set()  # for which nothing can be kept
        self.jobs: dict[int, JobView] = {}
        self.decided: dict[int, Placement | Waiting] = {}
        self.reservations: dict[int, Reservation] = {}
        self.watched, self.seen = watched, list[Verdict | Refusal]()

    def decisions(self, jobs: Iterable[JobView]) -> Iterator[Placement | Waiting]:
        """Each job's, in the order of the queue, as it is made."""
        pending = {one.id: one for one in self.pending(jobs)}
        for job in self.claimants_first(pending):
            yield self.decided[job.id]
        for step in walk(pending.values(), self, self.policy, self.shares.turns if self.shares else None):
            yield self.decided[step.job.id]

    def claimants_first(self, pending: dict[int, Pending]) -> Iterator[Pending]:
        """Those of these for which nodes are kept: they start, or their nodes are kept on. They are taken out."""
        for claim in self.claims:
            job = pending.pop(claim.job_id, None)
            if job is None:
                continue
            if self.start(job, (), claim) is None:
                keep_claimed(self, claim)
            yield job

    def decide(self, job: JobView) -> Placement | Waiting:
        """One job, whoever else waits."""
        return next(self.decisions([job]))

    def decide_all(self, jobs: Iterable[JobView]) -> Plan:
        for _ in self.decisions(jobs):
            pass
        return self.plan()

    def plan(self) -> Plan:
        """All that was decided so far."""
        decided = self.decided.values()
        return Plan(
            rule=self.rule,
            placements=tuple(d for d in decided if isinstance(d, Placement)),
            waiting=tuple(d for d in decided if isinstance(d, Waiting)),
            reservations=tuple(self.reservations.values()),
            order=tuple(self.decided),
        )

    def order(self, jobs: Iterable[JobView]) -> list[JobView]:
        """These jobs as the queue has them now, the first to be looked at first."""
        queue = in_order(self.pending(jobs), self.at, self.policy)
        turns = queue if self.shares is None else list(self.shares.turns(queue))
        first = [claim.job_id for claim in self.claims if claim.job_id in self.jobs]
        ids = dict.fromkeys((*first, *(one.id for one in turns)))
        return [self.jobs[job_id] for job_id in ids]

    def pending(self, jobs: Iterable[JobView]) -> list[Pending]:
        """These jobs as the queue sees them; they may then be started and reserved for."""
        jobs = list(jobs)
        self.jobs.update((job.id, job) for job in jobs)
        card, _, width = self.fleet.yardsticks
        return [_pending(job, card, width, self.fleet.makes, self.at) for job in jobs]

    def start(self, pending: Pending, keepers: Keepers, claim: Claim | None = None) -> Start | None:
        """The first ask that can be placed wins, and is booked on the working copy; before all others that for which
        nodes are kept, there."""
        job = self.jobs[pending.id]
        bar = self._bar(pending, keepers)
        if job.id == self.watched:
            self.seen = [self.too_early(job, ask) or self._open(job, ask, bar)[0] for ask in job.asks]
        decided = (claim and self._as_claimed(job, pending, claim)) or self._decide(job, pending, bar)
        self.decided[job.id] = decided
        if isinstance(decided, Waiting):
            return None
        return Start(job.id, self.at, tuple(self.fleet.row_of[member.node_id] for member in decided.members), ())

    def reserve(self, pending: Pending, keepers: Keepers) -> Start | None:
        """On the ask that is expected to find room first, if it has to wait for any: where there is room already, what
        keeps the job waiting is no running work."""
        job = self.jobs[pending.id]
        waits = self.decided[job.id]
        able = [(number, ask) for number, ask in enumerate(job.asks) if not job.is_over(ask)]
        like = tuple(question_of(job, ask) for _, ask in able)
        if not able or (isinstance(waits, Waiting) and waits.never) or like in self.hopeless:
            return None
        options = [
            (begins, number, shape, rows)
            for number, ask in able
            for shape in shapes_of(job, ask)
            for begins, rows in self._first_room(job, ask, shape, bool(keepers))
        ]
        begins, number, shape, rows = min(options, key=lambda option: option[:2], default=(NEVER, 0, None, None))
        if shape is None or rows is None or begins <= self.at:
            self.hopeless.add(like)  # the longer a plan, the less there is
            return None
        awaits = {job_id for row in rows.tolist() for job_id in self.ends.table.on(row, until=begins)[0].tolist()}
        self.kept.keep(rows, begins, shape, self.ends)
        nodes = tuple(self.fleet.fixed.ids[rows].tolist())
        self.reservations[job.id] = Reservation(job.id, number, begins, nodes, tuple(sorted(awaits)))
        return Start(job.id, begins, tuple(rows.tolist()), tuple(sorted(awaits)))

    def contested(self, pending: Pending) -> bool:
        job, kept = self.jobs[pending.id], self.kept.rows
        return bool(kept.any()) and any(
            bool(feasible.could_come_free(answer(self.fleet, shape, self.rule).codes[kept]).any())
            for ask in job.asks
            for shape in shapes_of(job, ask)
        )

    def later(self) -> tuple[Ground, Mapping[int, int]] | None:
        return None

    def _first_room(self, job: JobView, ask: Ask, shape: Shape, keep_out: bool) -> Iterator[tuple[float, Rows]]:
        """When the shape is expected to find its nodes first, and which; nothing where it is never."""
        when = self.ends.room_at(shape, answer(self.fleet, shape, self.rule).codes, self.at)
        when = np.where(self.kept.rows, NEVER, when)
        if job.no_room:
            when[feasible.of_models(self.fleet, job.shut(ask))] = NEVER
        if keep_out:
            when[self.fleet.now.allocations == 0] = NEVER
        best: tuple[float, Rows] | None = None
        for rows in required(self.fleet, ask.nodes, job.distance, job.like, alike=job.reproducible):
            first = rows[np.argsort(when[rows], kind="stable")[: ask.nodes]]
            begins = float(when[first].max()) if len(first) == ask.nodes else NEVER
            if begins < (NEVER if best is None else best[0]):
                best = begins, np.sort(first)
        if best is not None:
            yield max(best[0], job.submitted_at + ask.after_s), best[1]

    @cached_property
    def ends(self) -> Ends:
        return Ends(self.fleet, StayTable(self.fleet) if self.stays is None else self.stays())

    def _bar(self, pending: Pending, keepers: Keepers) -> Bar:
        spared = None
        if keepers:
            spared = pending.priority
            if spared not in self.kept.spared:
                self.kept.spared[spared] = self._waited_for(keepers)
        return self.kept.bar(self.at + pending.surely_s, spared)

    def _waited_for(self, keepers: Keepers) -> Bools:
        """(n,): rows that any of these may get as a whole machine, by those that will get enough of them."""
        out = np.zeros(len(self.fleet), dtype=np.bool_)
        for job in (self.jobs[one.id] for one in keepers):
            for ask in job.asks if not job.over_quota else ():
                for shape in shapes_of(job, ask) if not job.is_over(ask) else ():
                    able = feasible.could_come_free(answer(self.fleet, shape, self.rule).codes)
                    if job.no_room:
                        able = able & ~feasible.of_models(self.fleet, job.shut(ask))
                    if int(able.sum()) >= ask.nodes:
                        out |= able
        return out

    def _decide(self, job: JobView, pending: Pending, bar: Bar) -> Placement | Waiting:
        if job.over_quota:
            return self._wait(job, [{Refusal.QUOTA: len(self.fleet)} for _ in job.asks])
        by_ask: list[dict[Refusal, int]] = []
        for number, ask in enumerate(job.asks):
            early = self.too_early(job, ask)
            if early is not None:
                by_ask.append({early: len(self.fleet)})
                continue
            verdict, counts = self._open(job, ask, bar)
            if verdict.members:
                return self._place(job, number, verdict, counts, pending)
            by_ask.append(dict(counts))
        return self._wait(job, by_ask)

    def _as_claimed(self, job: JobView, pending: Pending, claim: Claim) -> Placement | None:
        """By another ask it might get more than others were stopped for."""
        if claim.ask_index >= len(job.asks) or not job.counts(job.asks[claim.ask_index], self.at):
            return None
        question = question_of(job, job.asks[claim.ask_index])
        shapes = tuple(shape for shape in question.shapes if shape.form is claim.form)
        if not shapes:
            return None
        verdict, _ = self.look(replace(question, shapes=shapes, within=frozenset(claim.node_ids)))
        if not verdict.members:
            return None
        return self._place(job, claim.ask_index, verdict, self.look(question)[1], pending)

    def too_early(self, job: JobView, ask: Ask) -> Refusal | None:
        """Why an ask is not looked at at all."""
        if job.is_over(ask):
            return Refusal.QUOTA
        return Refusal.ASK_LATER if self.at < job.submitted_at + ask.after_s else None

    def _open(self, job: JobView, ask: Ask, bar: Bar) -> tuple[Verdict, dict[Refusal, int]]:
        """What the ask gets of the rows that the bar leaves open. Where it gets none that are shut anyway, that is what
        everybody gets."""
        question = question_of(job, ask)
        found = self.look(question)
        if bar != FREE and any(
            self.kept.shut(bar, shape, np.array([row for row, _ in found[0].members], dtype=np.intp)).any()
            for shape in question.shapes
        ):
            found = self.look(replace(question, bar=bar))
        return found

    def _place(
        self, job: JobView, number: int, verdict: Verdict, counts: dict[Refusal, int], pending: Pending
    ) -> Placement:
        for row, member in verdict.members:
            self.headroom.after(row, member)
            self.fleet.take(row, member)
            self.kept.take(row, member, self.at + pending.surely_s)
            if self.shares:
                milli = milli_of(self.fleet, row, member.shares)
                self.shares.take((job.project_id, job.simulated), milli, job.kind)
            if job.expected_s:
                self.placed.append(stay_of(job, member, self.at + job.expected_s))
        members = tuple(member for _, member in verdict.members)
        return Placement(job.id, number, members, dict(counts), verdict.best, verdict.warm)

    def _wait(self, job: JobView, by_ask: list[dict[Refusal, int]]) -> Waiting:
        delays = [job.submitted_at + ask.after_s - self.at for ask in job.asks]
        later = [delay for delay in delays if delay > 0]
        never = all(self.look(question_of(job, ask))[0].never for ask in job.asks)
        return Waiting(job.id, tuple(by_ask), never, min(later, default=None))


def stay_of(job: JobView, member: MemberPlan, ends_at: float) -> Stay:
    cards = tuple((share.card_id, share.memory, share.compute) for share in member.shares)
    return Stay(job.id, member.node_id, member.form, ends_at, member.cpu_milli, member.host_memory_mib, cards)


def _pending(job: JobView, card_mib: int, width: int, makes: Makes, at: float) -> Pending:
    """`milli` is the least of what its asks that count now could come to. The work, which orders the queue, is that of
    its first ask by one measure for all jobs: a machine is taken to have `width` cards of `card_mib`, the most that
    there are."""
    ask = job.asks[0]
    counts = [makes.least(job, one) for one in job.asks if job.counts(one, at)]
    machine = ask.form is AskForm.WHOLE
    shared = ask.form is AskForm.CONTAINER and ask.memory_mib > 0
    return Pending(
        id=job.id,
        priority=job.priority,
        submitted_at=job.submitted_at,
        nodes=ask.nodes,
        cards=max(ask.cards_per_node, width) if machine else ask.cards_per_node,
        expected_s=job.expected_s,
        surely_s=NEVER if job.surely_s is None else job.surely_s,
        whole=machine or 0 < width <= ask.cards_per_node,
        part=min(ask.memory_mib / card_mib, 1.0) if shared else 1.0,
        project=job.project_id,
        simulated=job.simulated,
        tier=tier(job.kind),
        milli=min((milli for milli in counts if milli), default=0),
    )
