"""What is on the nodes now, and when it is expected to be gone: the engine's Stays. Kept in the process and corrected
by what changed (scheduler.changes); how long something goes on is told by what jobs like it took (durations.py), never
beyond its time limit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from ledger.vocabulary import Form
from scheduler.changes import BETWEEN, Stand, news
from scheduler.durations import SOONEST_S, STEP, Durations, Kin, kin
from scheduler.engine.ends import StayTable
from scheduler.engine.estimates import even_odds
from scheduler.engine.fleet import Fleet
from scheduler.engine.types import Stay
from scheduler.live import Live

OPEN: Final = """
SELECT a.id, upper_inf(a.period), a.node_id, a.driver, t.job_id, a.project_id, j.walltime_s,
       extract(epoch FROM coalesce(a.active_at, lower(a.period)))::float8,
       extract(epoch FROM a.closing_at)::float8,
       j.simulated, j.by_id, j.kind, j.name,
       coalesce((j.asks->0->>'nodes')::bigint, 1), coalesce((j.asks->0->>'cards_per_node')::bigint, 1)
FROM ledger_allocation a JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id
WHERE """


@dataclass(slots=True)
class Fact:
    """An open allocation. `since`: when its work began; `closing`: when it was told to end. Seconds since 1970."""

    node_id: int
    driver: str
    job_id: int
    project_id: int
    limit: int
    since: float
    closing: float | None
    like: Kin
    good_until: float = 0.0  # what is expected of it


@dataclass
class Stays:
    facts: dict[int, Fact] = field(default_factory=dict)  # by allocation
    by_node: dict[int, dict[int, Stay]] = field(default_factory=lambda: defaultdict(dict))  # and by allocation
    due: list[tuple[float, int]] = field(default_factory=list)  # a heap: when to expect an allocation anew
    unseen: set[int] = field(default_factory=set)  # allocations that are not worked in yet
    stand: Stand | None = None
    table: StayTable | None = None  # of the same stays,
    changed: set[int] = field(default_factory=set)  # but for these nodes

    def all(self, live: Live, durations: Durations, at: float) -> list[Stay]:
        """The stays of all that `live` knows of, as they are expected to end at this moment."""
        self._bring_up(live, durations, at)
        return [stay for here in self.by_node.values() for stay in here.values()]

    def table_of(self, fleet: Fleet, live: Live, durations: Durations, at: float) -> StayTable:
        """The same as the engine wants it; kept, and corrected where something is another than at the last time."""
        self._bring_up(live, durations, at)
        if self.table is None or not self.table.fits(fleet):
            self.table = StayTable(fleet, (stay for here in self.by_node.values() for stay in here.values()))
        elif self.changed:
            self.table.replace({node_id: self.by_node[node_id].values() for node_id in self.changed})
        self.changed = set()
        return self.table

    def _bring_up(self, live: Live, durations: Durations, at: float) -> None:
        """Of what was read since the last time, and of what is to be expected anew."""
        again, self.unseen = self.unseen, set()
        while self.due and self.due[0][0] <= at:
            again.add(heappop(self.due)[1])
        for pk in sorted(again):
            fact = self.facts.get(pk)
            if fact is None:
                continue
            here = live.uses.get(fact.node_id, {})
            self.changed.add(fact.node_id)
            if pk not in here:
                self.unseen.add(pk)
                self.by_node[fact.node_id].pop(pk, None)
                continue
            form, cpu, memory = here[pk]
            ends = self._expect(fact, durations, at, len(here))
            cards = tuple(share[1:] for share in live.shares.get(pk, ()))
            self.by_node[fact.node_id][pk] = Stay(fact.job_id, fact.node_id, Form(form), ends, cpu, memory, cards)
            heappush(self.due, (fact.good_until, pk))

    def _expect(self, fact: Fact, durations: Durations, at: float, crowd: int) -> float:
        """When it is gone; sets until when that is good. What should be gone by now is given a while longer."""
        lag = durations.lag(fact.driver)
        if fact.closing is not None:
            due = fact.closing + lag
            fact.good_until = due if due > at else at + SOONEST_S
            return fact.good_until
        elapsed = _step(max(at - fact.since, 0.0))
        left = durations.left(fact.like, fact.limit, elapsed, even_odds(crowd))
        fact.good_until = at + max(SOONEST_S, elapsed * (STEP - 1))
        return max(fact.since + elapsed + left, at) + lag

    def read(self) -> None:
        """Take of the database what changed. What is read before its node's work is known waits for that."""
        since = OPEN + BETWEEN.replace("changed_xid", "a.changed_xid")
        told = news("ledger_allocation", self.stand, whole=OPEN + "upper_inf(a.period)", since=since)
        if told.whole:
            self.facts, self.by_node, self.due, self.table = {}, defaultdict(dict), [], None
        self.stand = told.stand
        self.unseen |= self._take(told.rows)

    def _take(self, rows: Iterable[Sequence[Any]]) -> set[int]:
        opened = set()
        for pk, is_open, node_id, driver, job_id, project_id, limit, since, closing, *like in rows:
            if is_open:
                self.facts[pk] = Fact(node_id, driver, job_id, project_id, limit, since, closing, kin(*like))
                opened.add(pk)
            elif self.facts.pop(pk, None) is not None:
                self.by_node[node_id].pop(pk, None)
                self.changed.add(node_id)
        return opened


def _step(elapsed: float) -> float:
    """The last step of a ladder of times that grow by STEP: jobs that have run about as long share an estimate."""
    if elapsed < SOONEST_S:
        return 0.0
    return SOONEST_S * STEP ** math.floor(math.log(elapsed / SOONEST_S, STEP))
