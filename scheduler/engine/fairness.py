"""Fair share: whose job is looked at next, and who holds more than is its own.

Pure. A project's guarantee comes first; what is left of the pool is lent by weight, divided by what the project used
lately, to those who want it (water-filling). Of one priority, jobs within their project's guarantee come first, then
the project that is furthest below its share; inside a project the queue's own order stays. Where nobody is guaranteed
anything there are no Shares, and the queue is as it was. All amounts are milli-cards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final

from ledger.vocabulary import JobKind
from scheduler.engine.queueing import Pending
from scheduler.engine.types import Standing

Key = tuple[int, bool]  # project and world
UNLIMITED: Final = 2**62
TIERS: Final[Mapping[JobKind, int]] = {JobKind.INFERENCE: 1}  # the others are 0: work that may wait


class Shares:
    """The standings under way in one plan: what is placed counts from then on. `capacity`: milli-cards by world."""

    def __init__(self, standings: Iterable[Standing], capacity: Mapping[bool, int]) -> None:
        self.of: dict[Key, Standing] = {(one.project_id, one.simulated): one for one in standings}
        self.held: dict[Key, int] = {key: one.held for key, one in self.of.items()}
        self.serving: dict[Key, int] = {key: one.serving for key, one in self.of.items()}
        self.capacity = capacity
        self.deserved: dict[Key, int] = {}

    def standing(self, key: Key) -> Standing:
        """A project without a grant is guaranteed nothing and may be lent anything."""
        found = self.of.get(key)
        if found is None:
            found = self.of[key] = Standing(*key)
            self.held[key] = self.serving[key] = 0
        return found

    def take(self, key: Key, milli: int, kind: JobKind = JobKind.OTHER) -> None:
        self.standing(key)
        self.held[key] += milli
        self.serving[key] += milli if tier(kind) else 0

    def covers(self, job: Pending, promised: int = 0) -> bool:
        """Whether the job is within its project's guarantee, beside so much that others of it were promised."""
        return 0 < job.milli <= -self.spare(_key(job)) - promised

    def spare(self, key: Key) -> int:
        """What the project holds above its guarantee: only that is borrowed. Negative: it holds less."""
        standing = self.standing(key)
        return self.held[key] - standing.guaranteed

    def may_lose(self, key: Key, kind: JobKind) -> int:
        """So many milli-cards of work of this kind stand on borrowed cards. The project's inference stands on its
        guarantee first, so that it is borrowed only where there is more of it than that."""
        borrowed = self.spare(key)
        return max(min(borrowed, self.serving[key] - self.of[key].guaranteed) if tier(kind) else borrowed, 0)

    def turns(self, queue: Sequence[Pending]) -> Iterator[Pending]:
        """The jobs of a queue, each as its turn comes. What was taken meanwhile counts for the next one, at the cost of
        one step in a heap of projects."""
        self.deserved = self._deserved(queue)
        order = sorted(queue, key=lambda job: (-job.priority, -job.tier))
        for _, jobs in groupby(order, key=lambda job: (job.priority, job.tier)):
            yield from self._of_class(jobs)

    def _of_class(self, jobs: Iterable[Pending]) -> Iterator[Pending]:
        lines: dict[Key, deque[tuple[int, Pending]]] = {}
        for place, job in enumerate(jobs):
            lines.setdefault(_key(job), deque()).append((place, job))
        heap = [self._entry(key, line) for key, line in lines.items()]
        heapify(heap)
        while heap:
            key = heappop(heap)[-1]
            line = lines[key]
            yield line.popleft()[1]
            if line:
                heappush(heap, self._entry(key, line))

    def _entry(self, key: Key, line: deque[tuple[int, Pending]]) -> tuple[bool, float, int, Key]:
        """The least comes first; no two have the same place."""
        place, job = line[0]
        held, own = self.held[key], self.of[key].guaranteed
        within = held + job.milli <= own
        return not within, held / max(own if within else self.deserved[key], 1), place, key

    def _deserved(self, queue: Iterable[Pending]) -> dict[Key, int]:
        wanted: dict[Key, int] = {}
        for job in queue:
            key = _key(job)
            self.standing(key)
            wanted[key] = wanted.get(key, 0) + job.milli
        out: dict[Key, int] = {}
        for world in (False, True):
            here = [one for key, one in self.of.items() if key[1] is world]
            demand = [self.held[one.project_id, world] + wanted.get((one.project_id, world), 0) for one in here]
            found = deserved(here, demand, self.capacity.get(world, 0))
            out |= {(one.project_id, world): share for one, share in zip(here, found, strict=True)}
        return out


def deserved(standings: Sequence[Standing], demand: Sequence[int], capacity: int) -> list[int]:
    """What each of these deserves of the capacity: of its guarantee what it wants, then of the rest by weight, at most
    what it wants and may hold. What one does not want goes to the others."""
    limits = [UNLIMITED if one.limit is None else one.limit for one in standings]
    caps = [min(pair) for pair in zip(limits, demand, strict=True)]
    own = [min(one.guaranteed, cap) for one, cap in zip(standings, caps, strict=True)]
    rest = max(capacity - sum(own), 0)
    weights = lending_weights(standings)
    hungry = sorted(
        (index for index in range(len(own)) if caps[index] > own[index]),
        key=lambda index: ((caps[index] - own[index]) / weights[index], index),
    )
    out, left = list(own), sum(weights[index] for index in hungry)
    for index in hungry:  # who is satisfied first takes no more than it wants, and leaves more to the others
        part = min(caps[index] - own[index], int(rest * min(weights[index] / left, 1.0)))
        out[index] += part
        rest, left = rest - part, left - weights[index]
    return out


def lending_weights(standings: Sequence[Standing]) -> list[float]:
    """The weights, each divided by 1 and the project's usage for its weight as a multiple of the mean: who used twice
    as much as others for the same weight is lent two thirds as much."""
    used = [one.usage / one.weight for one in standings]
    mean = sum(used) / len(used) if any(used) else 1.0
    return [one.weight / (1.0 + usage / mean) for one, usage in zip(standings, used, strict=True)]


def tier(kind: JobKind) -> int:
    return TIERS.get(kind, 0)


def _key(job: Pending) -> Key:
    return job.project, job.simulated
