"""How long jobs wait under each queue policy: a replay of 14 days of Philly (tests/data/philly_chronus), event by event.

    python -m tests.bench.queue [--trace MIX1] [--nodes 150] [--policies ours easy skip strict]

Nodes have 8 cards. A job of up to 8 cards sits on one node (best fit), a larger one takes whole nodes; waiting is start
minus submission. The replay alone knows how long jobs take: `ours` (scheduler/engine/queueing.py and estimates.py)
learns from the jobs that have ended by then. `easy` is first come, first served with one reservation and exact
durations, `skip` the same without any reservation, `strict` lets nobody pass. Prints one JSON object, in seconds; beside
`published` figures for MIX1 on 150 nodes. Progress goes to stderr. `ours` takes about a minute.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
import time
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from scheduler.engine.estimates import Groups, History, even_odds, groups_of
from scheduler.engine.queueing import Outlook, Pending, QueuePolicy, Running, look

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FILE: Final = Path(__file__).resolve().parents[1] / "data" / "philly_chronus" / "jobs.npz"
TRACES: Final = ("MIX1", "MIX2", "SLO")
POLICIES: Final = ("ours", "easy", "skip", "strict")
CARDS: Final = 8  # of a node
MINUTE: Final = 60
DAY: Final = 86_400
SOONEST_REVIEW: Final = 600  # seconds after which a running job is expected anew, and then ever more rarely:
REVIEW: Final = 0.1  # of what it has run
KNOWN_FOR: Final = 3600  # seconds for which an estimate for one group and age is taken to be as good as new

# What another replay of this protocol came to: mean, median, p90, p99, max; mean and p99 from 8 cards up.
PUBLISHED: Final = {
    "strict": (33_042, 33_300, 74_640, 94_440, 97_020, 37_943, 94_632),
    "skip": (4_922, 0, 16_680, 49_881, 227_040, 31_676, 112_517),
    "easy": (6_372, 540, 23_670, 55_380, 117_780, 31_132, 106_553),
}
FIGURES: Final = ("mean", "median", "p90", "p99", "max", "wide_mean", "wide_p99")


@dataclass(frozen=True, slots=True)
class Jobs:
    """In order of submission. All arrays (m,): seconds, cards, and who and what by number."""

    submitted: Ints
    cards: Ints
    seconds: Ints
    who: Ints
    kind: Ints

    def __len__(self) -> int:
        return len(self.cards)

    def first(self, count: int) -> Jobs:
        return Jobs(*(column[:count] for column in (self.submitted, self.cards, self.seconds, self.who, self.kind)))


@dataclass(slots=True)
class Fleet:
    """Free cards by row."""

    free: Ints

    def best_fit(self, cards: int, nodes: int, rows: Ints) -> list[int]:
        """The fullest of these rows that will do, or as many empty ones as are asked for. Empty when there are none."""
        fits = rows[self.free[rows] >= cards]
        if len(fits) < nodes:
            return []
        return [int(fits[np.argmin(self.free[fits])])] if nodes == 1 else fits[:nodes].tolist()


Starts = Iterable[tuple[int, list[int]]]  # job, rows


class Scheduler(Protocol):
    def submitted(self, job: int, at: int) -> None: ...

    def ended(self, job: int, at: int) -> None: ...

    def starts(self, at: int, fleet: Fleet) -> Starts:
        """What starts now; the fleet is brought up to date after each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", choices=TRACES, default="MIX1")
    parser.add_argument("--nodes", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="the first N jobs alone")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    usual = QueuePolicy()
    parser.add_argument("--patience", type=float, default=usual.patience, help="of ours; %(default)s")
    parser.add_argument("--bound", type=float, default=usual.bound_s, metavar="S", help="of ours; %(default)s")
    parser.add_argument("--keep-whole-after", type=float, default=usual.keep_whole_after_s, metavar="S", help="of ours")
    parser.add_argument("--surely", type=float, default=usual.surely, help="of ours; %(default)s")
    parser.add_argument("--reservations", type=int, default=usual.reservations, help="of ours; %(default)s")
    print(json.dumps(measure(parser.parse_args()), indent=1))


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    jobs = trace(asked.trace).first(asked.jobs)
    if asked.nodes < nodes_of(int(jobs.cards.max())):
        raise SystemExit(f"the widest job needs {nodes_of(int(jobs.cards.max()))} nodes")
    ours = QueuePolicy(
        patience=asked.patience,
        bound_s=asked.bound,
        keep_whole_after_s=asked.keep_whole_after,
        surely=asked.surely,
        reservations=asked.reservations,
    )
    as_published = (asked.trace, asked.nodes, asked.jobs) == ("MIX1", 150, None)
    found: dict[str, Any] = {}
    for name in asked.policies:
        start = time.perf_counter()
        found[name] = figures(jobs, replay(jobs, asked.nodes, scheduler(name, jobs, asked.nodes, ours), name))
        found[name]["took_s"] = round(time.perf_counter() - start, 1)
        if as_published and name in PUBLISHED:
            found[name]["published"] = dict(zip(FIGURES, PUBLISHED[name], strict=True))
    return {"trace": asked.trace, "nodes": asked.nodes, "jobs": len(jobs), "policy": ours.name, "waits": found}


def trace(name: str) -> Jobs:
    with np.load(FILE) as file:
        submitted, cards, seconds, who, kind = file[name].astype(np.int64)
    return Jobs(submitted * MINUTE, cards, seconds * MINUTE, who, kind)


def nodes_of(cards: int) -> int:
    return -(-cards // CARDS)


def figures(jobs: Jobs, wait: Ints) -> dict[str, float]:
    """Seconds. `wide` are the jobs of 8 cards and more."""
    wide = wait[jobs.cards >= CARDS]
    out = {
        "mean": wait.mean(),
        "median": np.median(wait),
        "p90": np.quantile(wait, 0.9),
        "p99": np.quantile(wait, 0.99),
        "max": wait.max(),
        "mean_with_run": (wait + jobs.seconds).mean(),
        "one_card_mean": wait[jobs.cards == 1].mean(),
        "wide_mean": wide.mean(),
        "wide_p99": np.quantile(wide, 0.99),
        "wide_max": wide.max(),
    }
    return {name: round(float(value), 1) for name, value in out.items()}


def replay(jobs: Jobs, nodes: int, policy: Scheduler, note: str = "") -> Ints:
    """(m,): how long each job waits. At one instant first everything ends, then everything comes, then things start."""
    fleet = Fleet(np.full(nodes, CARDS, dtype=np.int64))
    wait = np.full(len(jobs), -1, dtype=np.int64)
    ends: list[tuple[int, int, list[int]]] = []
    submitted: list[int] = jobs.submitted.tolist()
    come, day = 0, 0
    while come < len(jobs) or ends:
        at = min(submitted[come] if come < len(jobs) else sys.maxsize, ends[0][0] if ends else sys.maxsize)
        while ends and ends[0][0] == at:
            _, job, rows = heapq.heappop(ends)
            fleet.free[rows] += min(int(jobs.cards[job]), CARDS)
            policy.ended(job, at)
        while come < len(jobs) and submitted[come] == at:
            policy.submitted(come, at)
            come += 1
        for job, rows in policy.starts(at, fleet):
            fleet.free[rows] -= min(int(jobs.cards[job]), CARDS)
            heapq.heappush(ends, (at + int(jobs.seconds[job]), job, rows))
            wait[job] = at - submitted[job]
        if at // DAY > day:
            day = at // DAY
            print(f"{note}: day {day}, {come} jobs have come", file=sys.stderr, flush=True)
    if (wait < 0).any():
        raise RuntimeError("a job never started")
    return wait


class InOrder:
    """First come, first served; `strict` stops at the first job that finds no room, else those behind it may pass."""

    def __init__(self, jobs: Jobs, nodes: int, strict: bool) -> None:
        self.cards: list[int] = jobs.cards.tolist()
        self.rows = np.arange(nodes)
        self.strict = strict
        self.queue: list[int] = []

    def submitted(self, job: int, at: int) -> None:
        self.queue.append(job)

    def ended(self, job: int, at: int) -> None:
        pass

    def starts(self, at: int, fleet: Fleet) -> Iterator[tuple[int, list[int]]]:
        refused: set[int] = set()
        for job in tuple(self.queue):
            cards = self.cards[job]
            rows = [] if cards in refused else fleet.best_fit(min(cards, CARDS), nodes_of(cards), self.rows)
            if rows:
                self.queue.remove(job)
                yield job, rows
            elif self.strict:
                return
            else:
                refused.add(cards)


class Engine:
    """The engine's queue. `exact` tells it how long each job takes; otherwise it learns from those that have ended."""

    def __init__(self, jobs: Jobs, nodes: int, policy: QueuePolicy, exact: bool = False) -> None:
        self.jobs, self.policy, self.exact = jobs, policy, exact
        self.size = np.full(nodes, CARDS, dtype=np.int64)
        self.history = History()
        self.waiting: dict[int, Pending] = {}
        self.running: dict[int, tuple[Running, ...]] = {}
        self.started: dict[int, int] = {}
        self.crowd = np.zeros(nodes, dtype=np.int64)  # jobs on each node
        self.review: list[tuple[float, int]] = []
        self.known: dict[Hashable, tuple[int, float]] = {}

    def submitted(self, job: int, at: int) -> None:
        cards = int(self.jobs.cards[job])
        if self.exact:
            expected = surely = float(self.jobs.seconds[job])
        else:
            expected = self.history.expected_left(self._groups(job))
            surely = self.history.left_at(self.policy.surely, self._groups(job))
        self.waiting[job] = Pending(job, 0, at, nodes_of(cards), min(cards, CARDS), expected, surely, cards >= CARDS)

    def ended(self, job: int, at: int) -> None:
        self.history.ended(self._groups(job), at - self.started.pop(job))
        for one in self.running.pop(job):
            self.crowd[one.row] -= 1

    def starts(self, at: int, fleet: Fleet) -> Starts:
        self._expect_anew(at)
        if not self.waiting:
            return ()
        outlook = Outlook(at, self.size, fleet.free, (one for each in self.running.values() for one in each), best_fit)
        agenda = look(self.waiting.values(), outlook, self.policy)
        for start in agenda.started:
            job = self.waiting.pop(start.job)
            self.started[job.id] = at
            self.crowd[list(start.rows)] += 1
            self.running[job.id] = tuple(Running(job.id, row, job.cards, at + job.expected_s) for row in start.rows)
            self._expect(job.id, at)
        return [(start.job, list(start.rows)) for start in agenda.started]

    def _groups(self, job: int) -> Groups:
        return groups_of(int(self.jobs.who[job]), int(self.jobs.kind[job]), int(self.jobs.cards[job]))

    def _expect_anew(self, at: int) -> None:
        """What runs on is expected to run longer than was thought when it started."""
        while self.review and self.review[0][0] <= at:
            _, job = heapq.heappop(self.review)
            if job in self.running:
                self._expect(job, at)

    def _expect(self, job: int, at: int) -> None:
        if self.exact:
            return
        elapsed = at - self.started[job]
        crowd = int(max(self.crowd[one.row] for one in self.running[job]))
        like = (self._groups(job), crowd, int(math.log(1 + elapsed / SOONEST_REVIEW) / REVIEW))
        known_until, left = self.known.get(like, (0, 0.0))
        if known_until <= at:
            left = self.history.left_at(even_odds(crowd), self._groups(job), elapsed)
            self.known[like] = at + KNOWN_FOR, left
        self.running[job] = tuple(Running(job, one.row, one.cards, at + left) for one in self.running[job])
        heapq.heappush(self.review, (at + max(SOONEST_REVIEW, REVIEW * elapsed), job))


def best_fit(outlook: Outlook, job: Pending, rooms: Bools) -> list[int]:
    """The fullest row, of equals the one that is busy longest: the others come free for work that needs nodes whole."""
    rows = np.flatnonzero(rooms)
    if job.nodes > 1:
        first: list[int] = rows[: job.nodes].tolist()
        return first
    fullest = rows[outlook.free[rows] == outlook.free[rows].min()].tolist()
    return [max(fullest, key=lambda row: max((one.ends_at for one in outlook.on[row]), default=0.0))]


def scheduler(name: str, jobs: Jobs, nodes: int, ours: QueuePolicy) -> Scheduler:
    if name == "ours":
        return Engine(jobs, nodes, ours)
    if name == "easy":
        return Engine(jobs, nodes, QueuePolicy("easy", bound_s=0.0, reservations=1), exact=True)  # all are overdue
    return InOrder(jobs, nodes, strict=name == "strict")


if __name__ == "__main__":
    main()
