"""How long jobs are expected to run, learnt from the ledger's newest ended attempts, of real and simulated work apart.

Kept in the process and read anew from time to time: what is expected steers the queue and tells people when, and
nothing is ended for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple

from django.db import connection

from scheduler.engine.estimates import History, groups_of
from scheduler.engine.queueing import POLICIES
from scheduler.engine.types import DEFAULT_POLICY

LOOKED_AT: Final = 5_000  # newest attempts that ended by themselves or were ended
GOOD_FOR_S: Final = 60.0
STEP: Final = 1.1  # a running job is expected anew when it has run so many times as long
SOONEST_S: Final = 60.0  # but not before
USUAL_LAG_S: Final = 30.0  # from the end of the work until its node is clean, where a driver has cleaned none yet
ENDED: Final = """
SELECT j.simulated, j.by_id, j.kind, j.name, coalesce((j.asks->0->>'nodes')::bigint, 1),
       coalesce((j.asks->0->>'cards_per_node')::bigint, 1),
       extract(epoch FROM a.closing_at - coalesce(a.active_at, lower(a.period)))::float8
FROM (
    SELECT id, job_id FROM ledger_attempt
    WHERE state = 'ended' AND outcome IN ('succeeded', 'failed', 'out_of_memory', 'cancelled', 'over_walltime')
    ORDER BY id DESC LIMIT %s
) t
JOIN ledger_job j ON j.id = t.job_id
JOIN ledger_allocation a ON a.attempt_id = t.id AND a.rank = 0
ORDER BY t.id
"""
LAGS: Final = """
SELECT driver, percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM upper(period) - closing_at))
FROM (SELECT driver, period, closing_at FROM ledger_allocation WHERE state = 'closed' ORDER BY id DESC LIMIT %s) newest
GROUP BY driver
"""


class Kin(NamedTuple):
    """What a job is like: jobs alike are expected to run alike."""

    simulated: bool
    who: int
    kind: str
    name: str  # without the number at its end
    cards: int


def kin(simulated: bool, who: int, kind: str, name: str, nodes: int, cards: int) -> Kin:
    return Kin(simulated, who, kind, name.rstrip("0123456789-_.#: "), nodes * max(cards, 1))


@dataclass
class Durations:
    """See the module docstring. All times in seconds."""

    histories: dict[bool, History] = field(default_factory=lambda: {False: History(), True: History()})
    lags: dict[str, float] = field(default_factory=dict)
    read_at: float | None = None
    _expected: dict[tuple[Kin, int], tuple[float, float]] = field(default_factory=dict)
    _left: dict[tuple[Kin, int, float, int], float] = field(default_factory=dict)

    def follow(self) -> None:
        """Read again what has ended, if what is known has grown old."""
        if self.read_at is None or monotonic() - self.read_at > GOOD_FOR_S:
            self.read()

    def read(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(ENDED, [LOOKED_AT])
            ended = cursor.fetchall()
            cursor.execute(LAGS, [LOOKED_AT])
            self.lags = {driver: max(float(seconds), 0.0) for driver, seconds in cursor.fetchall()}
        self.histories = {False: History(), True: History()}
        for *like, seconds in ended:
            self.histories[like[0]].ended(_groups(kin(*like)), max(seconds, 0.0))
        self._expected, self._left = {}, {}
        self.read_at = monotonic()

    def expected(self, job: Kin, limit: int) -> tuple[float, float]:
        """Of a job that hasn't begun and has this time limit: the mean of how long it will run, and the time within
        which it will all but surely have ended."""
        found = self._expected.get((job, limit))
        if found is None:
            history, groups = self.histories[job.simulated], _groups(job)
            surely = POLICIES[DEFAULT_POLICY].surely
            found = history.expected_left(groups, 0.0, limit), history.left_at(surely, groups, 0.0, limit)
            self._expected[job, limit] = found
        return found

    def left(self, job: Kin, limit: int, elapsed: float, share: float) -> float:
        """Within how long after it has run for `elapsed` so large a share of such jobs have ended."""
        like = (job, limit, elapsed, round(share * 1000))
        found = self._left.get(like)
        if found is None:
            found = self._left[like] = self.histories[job.simulated].left_at(share, _groups(job), elapsed, limit)
        return found

    def lag(self, driver: str) -> float:
        """How long cleaning takes, from the end of the work until its cards are free."""
        return self.lags.get(driver, USUAL_LAG_S)


def _groups(job: Kin) -> tuple[object, ...]:
    return groups_of(job.who, (job.kind, job.name), job.cards)
