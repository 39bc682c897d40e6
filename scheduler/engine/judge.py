"""What one question gets of a fleet: which nodes may take it, which are best, and which the job would be given.

A judge works on a fork of the fleet that its user books on, and remembers its verdicts until something changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ledger.vocabulary import Distance, Refusal
from scheduler.engine import feasible
from scheduler.engine.answers import answer, best, columns_of, ranked
from scheduler.engine.arrays import Bools, Codes, Ints, Rows
from scheduler.engine.cards import build
from scheduler.engine.fleet import Fleet
from scheduler.engine.headroom import Headroom
from scheduler.engine.kept import Bar, Kept
from scheduler.engine.least import TooDear
from scheduler.engine.near import REQUIRED, groups, groups_like
from scheduler.engine.score import POINTS, RULES, THRIFTY
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.ties import node_ranks
from scheduler.engine.types import NO_MODELS, Ask, JobView, Likeness, MemberPlan, Reserve, Warmth
from scheduler.engine.warmth import nearly_as_good, put_first, warmth

SCORES_SHOWN: Final = 5
FREE: Final = Bar()
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
    bar: Bar = FREE
    shut: frozenset[str] = NO_MODELS  # models of card: nodes with any of them are closed
    within: frozenset[int] = frozenset()  # ids of the only nodes that are open; empty = all

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


class Judge:
    def __init__(self, fleet: Fleet, reserves: Iterable[Reserve], *, at: float, seed: int, rule: str) -> None:
        """ValueError for a rule that isn't known."""
        if rule not in RULES:
            raise ValueError(f"rule {rule!r} is not known; known are {', '.join(sorted(RULES))}")
        self.fleet = fleet.fork(rule, node_ranks(seed, fleet.fixed.ids))
        self.headroom = Headroom(self.fleet, reserves)
        self.kept = Kept(self.fleet)
        self.at, self.seed, self.rule = at, seed, rule
        self.known: dict[Question, tuple[tuple[int, int], Verdict, dict[Refusal, int]]] = {}
        self.too_dear: TooDear = {}  # rows that are closed to a shape

    def answer(self, job: JobView, ask: Ask) -> Verdict:
        """What the ask gets where nothing is kept for others."""
        return self.look(question_of(job, ask))[0]

    def look(self, question: Question) -> tuple[Verdict, dict[Refusal, int]]:
        """A verdict stays true until something is placed, or kept: a long queue of equal jobs is looked at once."""
        version = len(self.fleet.log), len(self.kept.begins) if question.bar != FREE else 0
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
        dear = self.too_dear.get((shape, question.nodes))
        if question.bar != FREE or dear is not None:
            shut = self.kept.shut(question.bar, shape, rows)
            shut |= False if dear is None else dear[rows]
            codes[rows[shut]] = feasible.RESERVED
            rows = rows[~shut]
            first = ranked(self.fleet, rows, found.points, few)
        if question.shut:
            shut = feasible.of_models(self.fleet, question.shut)[rows]
            codes[rows[shut]] = feasible.USED_UP
            rows = rows[~shut]
            first = ranked(self.fleet, rows, found.points, few)
        if question.within:
            shut = ~np.isin(self.fleet.fixed.ids[rows], list(question.within))
            codes[rows[shut]] = feasible.RESERVED
            rows = rows[~shut]
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


def question_of(job: JobView, ask: Ask) -> Question:
    shapes = shapes_of(job, ask)
    shut = job.shut(ask) - {""} if job.no_room else NO_MODELS
    return Question(shapes, ask.nodes, job.distance, job.key_work, job.reproducible, job.like, job.warm, shut=shut)


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
