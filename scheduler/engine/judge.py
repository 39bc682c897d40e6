"""What one question gets of a fleet: which nodes may take it, which are best, and which the job would be given.

A judge works on a fork of the fleet that its user books on, and remembers its verdicts until something changes.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from scheduler.engine.near import groups
from scheduler.engine.score import POINTS, RULES, THRIFTY
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.ties import node_ranks
from scheduler.engine.types import Ask, JobView, MemberPlan, Reserve

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
    bar: Bar = FREE


@dataclass(frozen=True, slots=True)
class Verdict:
    """`codes` and `points` by row, over all forms of the ask; `members` empty when the ask can't be placed. `best`
    are the first few rows of the form that was chosen, with their points."""

    codes: Codes
    points: Ints
    members: Members
    best: Shown
    never: bool


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
        return Verdict(nearest, points, chosen.members, chosen.best, all(v.never for v in verdicts))

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
        if question.bar != FREE:
            shut = self.kept.shut(question.bar, shape, rows)
            codes[rows[shut]] = feasible.RESERVED
            rows = rows[~shut]
            first = ranked(self.fleet, rows, found.points, few)
        members, problem = self._gang(question, shape, rows, first, found.points)
        codes[rows] = problem
        never = not members and self._never(question, feasible.could_ever(found.codes))
        ids = self.fleet.fixed.ids
        shown = tuple((int(ids[row]), float(found.points[row]) / POINTS) for row in first[:SCORES_SHOWN])
        return Verdict(codes, found.points, members, shown, never)

    def _gang(self, question: Question, shape: Shape, rows: Rows, first: Rows, points: Ints) -> tuple[Members, int]:
        """All members or none, and then the code that says why."""
        nodes, distance = question.nodes, question.distance
        if len(rows) < nodes:
            return [], feasible.GANG
        if nodes == 1 or distance is Distance.ANY:  # as a rule the best few will do, without sorting the rest
            members = self._members(question, shape, first, points)
            if members:
                return members, 0
        rows = ranked(self.fleet, rows, points)
        problem = feasible.LEAF
        for group in groups(self.fleet, rows, points[rows], nodes=nodes, distance=distance, seed=self.seed):
            members = self._members(question, shape, group, points)
            if members:
                return members, 0
            problem = feasible.HEADROOM
        return [], problem

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
        if question.distance is not Distance.SAME_LEAF or question.nodes == 1:
            return int(ever.sum()) < question.nodes
        leaves = self.fleet.fixed.places[0, ever]
        return int(np.bincount(leaves[leaves >= 0], minlength=1).max()) < question.nodes


def question_of(job: JobView, ask: Ask) -> Question:
    return Question(shapes_of(job, ask), ask.nodes, job.distance, job.key_work)


def _card_memory(members: Members) -> int:
    """MiB of all cards together."""
    return sum(hi - lo for _, member in members for share in member.shares for lo, hi in share.memory)


def _mean_score(members: Members) -> float:
    return sum(member.score for _, member in members) / len(members) if members else float("-inf")
