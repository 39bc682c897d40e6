"""From a snapshot to a plan: jobs in queue order, each placed on a working copy before the next is looked at.

Pure: the same snapshot gives the same plan, whatever the order of its nodes, cards and jobs, and nothing given in is
changed. Between ticks keep one Fleet, correct it with `replace_nodes`, and call `plan_fleet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ledger.vocabulary import Distance, Refusal
from scheduler.engine import feasible
from scheduler.engine.answers import answer, best, columns_of, ranked
from scheduler.engine.arrays import Bools, Codes, Ints, Rows
from scheduler.engine.cards import build
from scheduler.engine.demand import workloads
from scheduler.engine.fleet import Fleet
from scheduler.engine.headroom import Headroom
from scheduler.engine.near import REQUIRED, groups, groups_like
from scheduler.engine.score import POINTS, RULES, THRIFTY
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.ties import node_ranks
from scheduler.engine.types import (
    DEFAULT_RULE,
    Ask,
    JobView,
    Likeness,
    MemberPlan,
    Placement,
    Plan,
    Reserve,
    Snapshot,
    Waiting,
    Warmth,
)
from scheduler.engine.warmth import nearly_as_good, put_first, warmth

SCORES_SHOWN: Final = 5
NodeVerdict = tuple[str, int, Refusal | None, float | None]  # hostname, ask's number, refusal, score
Members = list[tuple[int, MemberPlan]]  # row, member
Shown = tuple[tuple[int, float], ...]  # node id, score


@dataclass(frozen=True, slots=True)
class Question:
    """An ask with everything of its job that bears on the answer. Equal questions have equal answers."""

    shapes: tuple[Shape, ...]
    nodes: int
    distance: Distance
    key_work: bool
    alike: bool = False  # nodes of one class of hardware
    like: Likeness | None = None
    warm: frozenset[int] = frozenset()  # ids of nodes to be preferred

    @property
    def loose(self) -> bool:
        """Its nodes need have nothing to do with each other."""
        return self.like is None and (self.nodes == 1 or (self.distance is Distance.ANY and not self.alike))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`codes` and `points` by row, over all forms of the ask; `members` empty when the ask can't be placed. `best`
    are the first few rows of the form that was chosen, with their points."""

    codes: Codes
    points: Ints
    members: Members
    best: Shown
    never: bool
    warm: Warmth | None = None


def plan(snapshot: Snapshot) -> Plan:
    """Decide every job of the snapshot. ValueError for a rule that isn't known or two nodes with one id."""
    desk = _desk_for(snapshot)
    return _decide_all(desk, snapshot.jobs, snapshot.rule)


def plan_fleet(
    fleet: Fleet,
    jobs: Iterable[JobView],
    reserves: Iterable[Reserve] = (),
    *,
    at: float,
    seed: int,
    rule: str = DEFAULT_RULE,
) -> Plan:
    """The same on a fleet that is kept between ticks; the fleet itself is left as it is."""
    return _decide_all(Desk(fleet, reserves, at=at, seed=seed, rule=rule), jobs, rule)


def explain(snapshot: Snapshot, job_id: int) -> Placement | Waiting:
    """What the plan says about one job, after the jobs ahead of it. ValueError when it isn't in the snapshot."""
    desk, job = _desk_before(snapshot, job_id)
    return desk.decide(job)


def explain_nodes(snapshot: Snapshot, job_id: int) -> list[NodeVerdict]:
    """Every node's answer to every ask of one job when its turn comes, by ask and host name.

    A feasible node has a score and no refusal; when the gang as a whole fails it has both.
    """
    desk, job = _desk_before(snapshot, job_id)
    out: list[NodeVerdict] = []
    for number, ask in enumerate(job.asks):
        early = desk.too_early(job, ask)
        if early is not None:
            out += [(node.hostname, number, early, None) for node in desk.fleet.views]
            continue
        verdict = desk.answer(job, ask)
        for row, node in enumerate(desk.fleet.views):
            code = int(verdict.codes[row])
            scored = code == 0 or code > feasible.HEADROOM
            score = float(verdict.points[row]) / POINTS if scored else None
            out.append((node.hostname, number, feasible.reason(code) if code else None, score))
    return sorted(out, key=lambda line: (line[1], line[0]))


def queue_order(jobs: Iterable[JobView]) -> list[JobView]:
    return sorted(jobs, key=lambda job: (-job.priority, job.submitted_at, job.id))


def _desk_for(snapshot: Snapshot) -> Desk:
    fleet = Fleet(snapshot.nodes, workloads(snapshot.demand))
    return Desk(fleet, snapshot.reserves, at=snapshot.at, seed=snapshot.seed, rule=snapshot.rule)


def _desk_before(snapshot: Snapshot, job_id: int) -> tuple[Desk, JobView]:
    desk = _desk_for(snapshot)
    for job in queue_order(snapshot.jobs):
        if job.id == job_id:
            return desk, job
        desk.decide(job)
    raise ValueError(f"job {job_id} is not in the snapshot")


def _decide_all(desk: Desk, jobs: Iterable[JobView], rule: str) -> Plan:
    decided = [desk.decide(job) for job in queue_order(jobs)]
    return Plan(
        rule=rule,
        placements=tuple(d for d in decided if isinstance(d, Placement)),
        waiting=tuple(d for d in decided if isinstance(d, Waiting)),
    )


class Desk:
    """One plan under way: the working copy and what is known about it."""

    def __init__(self, fleet: Fleet, reserves: Iterable[Reserve], *, at: float, seed: int, rule: str) -> None:
        if rule not in RULES:
            raise ValueError(f"rule {rule!r} is not known; known are {', '.join(sorted(RULES))}")
        self.fleet = fleet.fork(rule, node_ranks(seed, fleet.fixed.ids))
        self.headroom = Headroom(self.fleet, reserves)
        self.at, self.seed, self.rule = at, seed, rule
        self.known: dict[Question, tuple[int, Verdict, dict[Refusal, int]]] = {}

    def decide(self, job: JobView) -> Placement | Waiting:
        """The first ask that can be placed wins, and is booked on the working copy."""
        if job.over_quota:
            return self._wait(job, [{Refusal.QUOTA: len(self.fleet)} for _ in job.asks])
        by_ask: list[dict[Refusal, int]] = []
        for number, ask in enumerate(job.asks):
            early = self.too_early(job, ask)
            if early is not None:
                by_ask.append({early: len(self.fleet)})
                continue
            verdict, counts = self._look(_question(job, ask))
            if verdict.members:
                return self._place(job, number, verdict, counts)
            by_ask.append(dict(counts))
        return self._wait(job, by_ask)

    def too_early(self, job: JobView, ask: Ask) -> Refusal | None:
        """Why an ask is not looked at at all."""
        if job.over_quota:
            return Refusal.QUOTA
        return Refusal.ASK_LATER if self.at < job.submitted_at + ask.after_s else None

    def answer(self, job: JobView, ask: Ask) -> Verdict:
        return self._look(_question(job, ask))[0]

    def _look(self, question: Question) -> tuple[Verdict, dict[Refusal, int]]:
        """A verdict stays true until something is placed: a long queue of equal jobs is looked at once."""
        if question.warm and not (cold := self._look(replace(question, warm=frozenset())))[0].members:
            return cold  # it only changes the order
        version = len(self.fleet.log)
        found = self.known.get(question)
        if found is None or found[0] != version:
            verdict = self._judge(question)
            found = self.known[question] = (version, verdict, feasible.counted(verdict.codes))
        return found[1], found[2]

    def _judge(self, question: Question) -> Verdict:
        """All forms of the ask; of several that are ready the one that takes the least wins (a small job does not get
        a whole machine that it did not ask for), then the best mean score, then the order of FORMS."""
        verdicts = [self._judge_form(question, shape) for shape in question.shapes]
        if len(verdicts) == 1:
            return verdicts[0]
        codes = np.stack([v.codes for v in verdicts])
        ready = codes == 0
        scored = ready | (codes > feasible.HEADROOM)
        points = np.where(scored, np.stack([v.points for v in verdicts]), 0).max(axis=0)
        chosen = max(verdicts, key=self._preference)
        nearest = np.where(ready.any(axis=0), 0, codes.max(axis=0)).astype(np.int8)
        never = all(v.never for v in verdicts)
        return Verdict(nearest, points, chosen.members, chosen.best, never, chosen.warm)

    def _preference(self, verdict: Verdict) -> tuple[bool, int, float]:
        """The greatest is taken: a form that is ready, that takes little, that scores high."""
        taken = _card_memory(verdict.members) if self.rule in THRIFTY else 0
        return bool(verdict.members), -taken, _mean_score(verdict.members)

    def _judge_form(self, question: Question, shape: Shape) -> Verdict:
        found = answer(self.fleet, shape, self.rule)
        codes = found.codes.copy()
        rows: Rows = np.flatnonzero(codes == 0)
        few = max(SCORES_SHOWN, question.nodes)
        if question.key_work or not self.headroom.reserved:
            first = best(self.fleet, found, few)
        else:
            short = self.headroom.refused(shape, rows)
            codes[rows[short]] = feasible.HEADROOM
            rows = rows[~short]
            first = ranked(self.fleet, rows, found.points, few)
        warm = nearly_as_good(self.fleet, codes, found.points, first, question.warm, self.rule)
        top, first = first[:1], put_first(first, warm)
        members, problem = self._gang(question, shape, rows, first, warm, found.points)
        codes[rows] = problem
        never = not members and self._never(question, feasible.could_ever(found.codes))
        ids = self.fleet.fixed.ids
        shown = tuple((int(ids[row]), float(found.points[row]) / POINTS) for row in first[:SCORES_SHOWN])
        preferred = warmth(self.fleet, [row for row, _ in members], warm, found.points, top) if len(warm) else None
        return Verdict(codes, found.points, members, shown, never, preferred)

    def _gang(
        self, question: Question, shape: Shape, rows: Rows, first: Rows, warm: Rows, points: Ints
    ) -> tuple[Members, int]:
        """All members or none, and then the code that says why."""
        if len(rows) < question.nodes:
            return [], feasible.GANG
        if question.loose:  # as a rule the best few will do, without sorting the rest
            members = self._members(question, shape, first, points)
            if members:
                return members, 0
        rows = put_first(ranked(self.fleet, rows, points), warm)
        problem = _apart(question)
        for group in self._groups(question, rows, points[rows]):
            members = self._members(question, shape, group, points)
            if members:
                return members, 0
            problem = feasible.HEADROOM
        return [], problem

    def _groups(self, question: Question, rows: Rows, points: Ints) -> Iterator[Rows]:
        """Rows that together may take the gang, the group to be tried first at the front."""
        if question.like is not None:
            return groups_like(self.fleet, rows, points, question.nodes, question.like, self.seed)
        distance, alike = question.distance, question.alike
        return groups(self.fleet, rows, points, question.nodes, distance, self.seed, alike=alike)

    def _members(self, question: Question, shape: Shape, rows: Rows, points: Ints) -> Members:
        """One member on each of the first rows that together leave every reserve alone."""
        left = None if question.key_work or not self.headroom.reserved else self.headroom.copy()
        members: Members = []
        for row in rows.tolist():
            columns = columns_of(self.fleet, row, shape, {} if left is None else left.of(row))
            if columns is None:
                continue
            member = build(self.fleet, row, shape, columns, float(points[row]) / POINTS)
            members.append((row, member))
            if len(members) == question.nodes:
                return members
            if left is not None:
                left.after(row, member)
        return []

    def _never(self, question: Question, ever: Bools) -> bool:
        rows = np.flatnonzero(ever)
        if len(rows) < question.nodes or question.loose:
            return len(rows) < question.nodes
        return next(self._groups(question, rows, np.zeros(len(rows), dtype=np.int64)), None) is None

    def _place(self, job: JobView, number: int, verdict: Verdict, counts: dict[Refusal, int]) -> Placement:
        for row, member in verdict.members:
            self.headroom.after(row, member)
            self.fleet.take(row, member)
        members = tuple(member for _, member in verdict.members)
        return Placement(job.id, number, members, dict(counts), verdict.best, verdict.warm)

    def _wait(self, job: JobView, by_ask: list[dict[Refusal, int]]) -> Waiting:
        delays = [job.submitted_at + ask.after_s - self.at for ask in job.asks]
        later = [delay for delay in delays if delay > 0]
        never = all(self._look(_question(job, ask))[0].never for ask in job.asks)
        return Waiting(job.id, tuple(by_ask), never, min(later, default=None))


def _question(job: JobView, ask: Ask) -> Question:
    shapes = shapes_of(job, ask)
    return Question(shapes, ask.nodes, job.distance, job.key_work, job.reproducible, job.like, job.warm)


def _apart(question: Question) -> int:
    """The code of a gang whose nodes are there, but not as they should stand to each other."""
    if question.like is not None:
        return feasible.UNLIKE
    if question.distance in REQUIRED:
        return feasible.NO_PLACE + REQUIRED[question.distance]
    return feasible.MIXED


def _card_memory(members: Members) -> int:
    """MiB of all cards together."""
    return sum(hi - lo for _, member in members for share in member.shares for lo, hi in share.memory)


def _mean_score(members: Members) -> float:
    return sum(member.score for _, member in members) / len(members) if members else float("-inf")
