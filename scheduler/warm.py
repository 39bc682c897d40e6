"""On which nodes data and images were used lately, so that they are likely in the nodes' own caches: learnt from the
ledger, kept in the process and corrected by what changed.

It is a guess that only steers: nothing is ever refused for it. What is kept is bounded: of each node the newest few,
as a cache drops the oldest, and none that is older than a week.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ledger.clock import database_now
from scheduler.changes import BETWEEN, Stand, news

WARM_FOR: Final = dt.timedelta(days=7)
KEPT_A_NODE: Final = 32  # paths and images
NODES_TOLD: Final = 1_000  # of the warm nodes of a job, those that used its data last
AMONG: Final = 200_000  # newest allocations: so far back they are looked for
ANSWERS_FOR_S: Final = 600.0  # before it is looked again what has grown too old
# A use counts until the work has ended; of work that goes on, until its time limit. What never began fetched nothing.
USES: Final = """
SELECT a.node_id,
    max(extract(epoch FROM coalesce(a.closing_at, a.active_at + j.walltime_s * interval '1 second')))::float8,
    j.data_paths::text, j.image
FROM ledger_allocation a JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id
WHERE a.active_at IS NOT NULL AND (j.data_paths <> '[]' OR j.image <> '') AND {which}
GROUP BY a.node_id, j.data_paths, j.image
"""
ALL: Final = USES.format(which="a.id > (SELECT max(id) FROM ledger_allocation) - AMONG").replace("AMONG", str(AMONG))
CHANGED: Final = USES.format(which="a.id IN (SELECT id FROM ledger_allocation WHERE THESE)").replace("THESE", BETWEEN)
IMAGE: Final = "image:"  # before the name of an image; paths begin with a slash


@dataclass
class Warm:
    """By node what was used there and until when, in seconds since the epoch; by path or image the nodes."""

    used: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    nodes_of: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    stand: Stand | None = None
    now: float = 0.0
    answers: dict[tuple[str, ...], frozenset[int]] = field(default_factory=dict)
    answered_at: float = 0.0

    def follow(self) -> None:
        """Take what changed since the last time, or all where that can't be told."""
        told = news("ledger_allocation", self.stand, whole=ALL, since=CHANGED)
        if told.whole:
            self.used.clear()
            self.nodes_of.clear()
        self.now, self.stand = database_now().timestamp(), told.stand
        if told.rows or told.whole or self.now - self.answered_at > ANSWERS_FOR_S:
            self.answers, self.answered_at = {}, self.now
        for node_id, until, paths, image in told.rows:
            for key in _keys(json.loads(paths), image):
                self.take(node_id, key, until)

    def take(self, node_id: int, key: str, until: float) -> None:
        if until < self.now - WARM_FOR.total_seconds():
            return
        here = self.used[node_id]
        here[key] = max(until, here.get(key, until))
        self.nodes_of[key].add(node_id)
        if len(here) > KEPT_A_NODE:
            self.drop(node_id, min(here, key=lambda other: (here[other], other)))

    def drop(self, node_id: int, key: str) -> None:
        del self.used[node_id][key]
        self.nodes_of[key].discard(node_id)
        if not self.nodes_of[key]:
            del self.nodes_of[key]

    def nodes(self, keys: tuple[str, ...]) -> frozenset[int]:
        """The nodes that hold the most of these."""
        if keys not in self.answers:
            self.answers[keys] = self.look(keys)
        return self.answers[keys]

    def look(self, keys: Iterable[str]) -> frozenset[int]:
        since = self.now - WARM_FOR.total_seconds()
        held: dict[int, list[float]] = defaultdict(list)
        for key in keys:
            for node_id in self.nodes_of.get(key, ()):
                if self.used[node_id][key] >= since:
                    held[node_id].append(self.used[node_id][key])
        most = max(map(len, held.values()), default=0)
        best = sorted((-min(until), node_id) for node_id, until in held.items() if len(until) == most)
        return frozenset(node_id for _, node_id in best[:NODES_TOLD])


_kept = Warm()
_lock = threading.Lock()


def forget() -> None:
    """Drop what is kept (tests, a new database)."""
    _kept.stand = None


def warm_nodes(jobs: Sequence[tuple[Any, str]]) -> list[frozenset[int]]:
    """For each job, given as its data paths and its image, the nodes that likely have its data. A job without data
    paths has none."""
    if not any(paths for paths, _ in jobs):
        return [frozenset()] * len(jobs)
    with _lock:
        _kept.follow()
        return [_kept.nodes(_keys(paths, image)) if paths else frozenset() for paths, image in jobs]


def _keys(paths: Iterable[str], image: str) -> tuple[str, ...]:
    """Without doubles; a directory is the same with a slash at its end."""
    named = dict.fromkeys(path.rstrip("/") or "/" for path in paths)
    return (*named, IMAGE + image) if image else tuple(named)
