"""What is on the nodes now, and when it is expected to be gone: the engine's Stays. Kept in the process and corrected
by what changed (scheduler.changes); how long something goes on is told by what jobs like it took (durations.py), never
beyond its time limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection

from ledger.vocabulary import Form
from scheduler.changes import BETWEEN, Stand, between, stand
from scheduler.durations import SOONEST_S, STEP, Durations, Kin, kin
from scheduler.engine.estimates import even_odds
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
    stay: Stay | None = None
    good_until: float = 0.0  # what is expected of it


@dataclass
class Stays:
    facts: dict[int, Fact] = field(default_factory=dict)  # by allocation
    stand: Stand | None = None

    def now(self, live: Live, durations: Durations, at: float) -> list[Stay]:
        """The stays of all that `live` knows of, as they are expected to end at this moment, by what both know."""
        found: list[Stay] = []
        for node_id, uses in live.uses.items():
            if not uses:
                continue
            crowd = len(uses)
            for pk, (form, cpu, memory) in uses.items():
                fact = self.facts.get(pk)
                if fact is None:  # opened since live was followed
                    continue
                if fact.stay is None or fact.good_until <= at:
                    cards = tuple(share[1:] for share in live.shares.get(pk, ()))
                    ends = self._expect(fact, durations, at, crowd)
                    fact.stay = Stay(fact.job_id, node_id, Form(form), ends, cpu, memory, cards)
                found.append(fact.stay)
        return found

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

    def follow(self) -> None:
        now = stand("ledger_allocation")
        window = between(self.stand, now)
        with connection.cursor() as cursor:
            if window is None:
                self.facts = {}
                cursor.execute(OPEN + "upper_inf(a.period)")
            else:
                cursor.execute(OPEN + BETWEEN.replace("changed_xid", "a.changed_xid"), window)
            rows = cursor.fetchall()
        self._take(rows)
        self.stand = now

    def _take(self, rows: Iterable[Sequence[Any]]) -> None:
        for pk, is_open, node_id, driver, job_id, project_id, limit, since, closing, *like in rows:
            if is_open:
                self.facts[pk] = Fact(node_id, driver, job_id, project_id, limit, since, closing, kin(*like))
            else:
                self.facts.pop(pk, None)


def _step(elapsed: float) -> float:
    """The last step of a ladder of times that grow by STEP: jobs that have run about as long share an estimate."""
    if elapsed < SOONEST_S:
        return 0.0
    return SOONEST_S * STEP ** math.floor(math.log(elapsed / SOONEST_S, STEP))


stays = Stays()
