"""The fleet as it would be with some of its tenants gone, to ask it whether a job would then find its nodes.

The same filters, scores and reserves as in any plan: a Desk is asked, nothing is counted. The fleet is put back as it
was when the block is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import numpy as np

from scheduler.engine.claims import milli_in, milli_of
from scheduler.engine.fairness import UNLIMITED
from scheduler.engine.fleet import Fleet
from scheduler.engine.future import without
from scheduler.engine.least import TooDear
from scheduler.engine.plan import Desk
from scheduler.engine.shape import shapes_of
from scheduler.engine.types import Claim, JobView, NodeView, Placement, Reserve, Stay

TRIES: Final = 4  # placements looked at for one set of tenants


@dataclass(frozen=True, slots=True)
class Scene:
    """What a plan goes by. `claimants` are the jobs of the claims."""

    fleet: Fleet
    reserves: Sequence[Reserve]
    at: float
    seed: int
    rule: str
    claims: Sequence[Claim] = ()
    claimants: Sequence[JobView] = ()


class Room:
    def __init__(self, scene: Scene, stays: Iterable[Stay]) -> None:
        self.scene = scene
        self.stays: dict[int, list[Stay]] = defaultdict(list)  # by job
        for stay in stays:
            if stay.node_id in scene.fleet.row_of:
                self.stays[stay.job_id].append(stay)
        self.before: dict[int, NodeView] = {}
        self.away: dict[int, frozenset[int]] = {}  # by node the jobs that are gone from it

    def __enter__(self) -> Room:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.before:
            self.scene.fleet.replace_nodes(list(self.before.values()))

    def place(
        self, job: JobView, gone: frozenset[int], within: int = UNLIMITED, too_dear: TooDear | None = None
    ) -> Placement | None:
        """Where the job would go now if these jobs were gone, after those that others were stopped for: what counts for
        so many milli-cards at most. Rows that are `too_dear` are closed to it; where its nodes together are, the
        dearest of them is closed too, a few times."""
        self.empty(gone)
        closed = dict(too_dear or {})
        for _ in range(TRIES):
            found = self._placed(job, closed)
            if found is None or milli_in(self.scene.fleet, found) <= within:
                return found
            self._close(job, found, closed)
        return None

    def _placed(self, job: JobView, closed: TooDear) -> Placement | None:
        scene = self.scene
        desk = Desk(scene.fleet, scene.reserves, at=scene.at, seed=scene.seed, rule=scene.rule, claims=scene.claims)
        pending = {one.id: one for one in desk.pending([*scene.claimants, job])}
        for _ in desk.claimants_first(pending):
            pass
        if closed:
            desk.known, desk.too_dear = {}, closed
        if job.id not in pending or desk.start(pending[job.id], ()) is None:
            return None
        found = desk.decided[job.id]
        return found if isinstance(found, Placement) else None

    def _close(self, job: JobView, found: Placement, closed: TooDear) -> None:
        fleet, ask = self.scene.fleet, job.asks[found.ask_index]
        [shape] = [shape for shape in shapes_of(job, ask) if shape.form is found.members[0].form]
        rows = [fleet.row_of[member.node_id] for member in found.members]
        counts = [milli_of(fleet, row, one.shares) for row, one in zip(rows, found.members, strict=True)]
        before = closed.get((shape, ask.nodes))
        shut = np.zeros(len(fleet), dtype=np.bool_) if before is None else before.copy()
        shut[rows[counts.index(max(counts))]] = True
        closed[shape, ask.nodes] = shut

    def empty(self, gone: frozenset[int]) -> None:
        """Take these jobs away, and only these."""
        fleet = self.scene.fleet
        wanted: dict[int, set[int]] = defaultdict(set)
        for job_id in gone:
            for stay in self.stays.get(job_id, ()):
                wanted[stay.node_id].add(job_id)
        changed = []
        for node_id in self.away.keys() | wanted.keys():
            jobs = frozenset(wanted.get(node_id, ()))
            if jobs == self.away.get(node_id, frozenset()):
                continue
            view = self.before.setdefault(node_id, fleet.views[fleet.row_of[node_id]])
            left = [stay for job_id in sorted(jobs) for stay in self.stays[job_id] if stay.node_id == node_id]
            changed.append(without(view, left) if left else view)
            self.away[node_id] = jobs
        if changed:
            fleet.replace_nodes(sorted(changed, key=lambda view: view.id))
