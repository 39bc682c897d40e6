"""What would change: jobs of the last 30 days and those that wait, as they would be if they were submitted anew, by the
policies of now and by those with one changed version. Made with the function that submitting uses. Reads only.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import Q, QuerySet

from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import Job
from ledger.vocabulary import JobState
from scheduler import policy, possible, slices
from scheduler.policy import PRIORITY, WALLTIME, Settled, Tree, Version
from scheduler.possible import Reach

LOOKS_BACK: Final = dt.timedelta(days=30)
MOST_JOBS: Final = 20_000  # the newest
MOST_EXAMPLES: Final = 20
NEVER: Final = "never_runs"
CHANGED: Final = ("asks", PRIORITY, WALLTIME, "zones")


@dataclass(frozen=True, slots=True)
class Example:
    """A job that would be other. `refused`: the field by which it would be refused, or never_runs. `nodes`: how many
    could serve it, before and after, where its zones or forms would be other."""

    job: Job
    before: Settled
    after: Settled
    refused: str
    changed: tuple[str, ...]
    nodes: tuple[int, int] | None


@dataclass(slots=True)
class Effect:
    """Counts of jobs. `refused` that would not be now; `changed` of those that would still be taken, by field."""

    jobs: int = 0
    waiting: int = 0
    cut_off: bool = False  # there are more than were looked at
    refused: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    other: int = 0  # jobs with any of that changed
    fewer_nodes: int = 0
    examples: list[Example] = field(default_factory=list)


def jobs_of(version: Version, now: dt.datetime, tree: Tree) -> QuerySet[Job]:
    """Those that the policy's scope is about, the newest first."""
    rows = Job.objects.filter(Q(submitted_at__gte=now - LOOKS_BACK) | Q(state=JobState.QUEUED))
    scope = version.scope
    if scope.project is not None:
        rows = rows.filter(project=scope.project)
    if scope.department is not None:
        rows = rows.filter(project__department__in=tree.below(scope.department))
    if scope.kind:
        rows = rows.filter(kind=scope.kind)
    return rows.select_related("project", "policy_use").order_by("-pk")


def effect(version: Version) -> Effect:
    """Of a version that is tried out; one that says nothing withdraws."""
    before = policy.all_rules()
    after, tree, reach = before.changed(version), Tree(), _Reach()
    found = Effect()
    for job in jobs_of(version, database_now(), tree)[: MOST_JOBS + 1].iterator(chunk_size=2000):
        if found.jobs == MOST_JOBS:
            found.cut_off = True
            break
        where = job.project_id, tree.chain(job.project.department_id), job.kind
        asked = policy.asked_of(job)
        _count(found, job, policy.settle(asked, before.of(*where)), policy.settle(asked, after.of(*where)), reach)
    return found


def _count(found: Effect, job: Job, before: Settled, after: Settled, reach: _Reach) -> None:
    found.jobs += 1
    found.waiting += job.state == JobState.QUEUED
    changed = tuple(name for name in CHANGED if getattr(before, name) != getattr(after, name))
    refused, nodes = "", None
    if after.broken and not before.broken:
        refused = after.broken[0].field
    elif not before.broken and (before.asks, before.zones) != (after.asks, after.zones):
        old, new = reach.of(job, before), reach.of(job, after)
        nodes = old.nodes, new.nodes
        refused = NEVER if new.never and not old.never else ""
    if not (changed or refused):
        return
    if refused:
        found.refused[refused] += 1
    else:
        found.changed.update(changed)
        found.other += 1
        found.fewer_nodes += nodes is not None and nodes[1] < nodes[0]
    if len(found.examples) < MOST_EXAMPLES:
        found.examples.append(Example(job, before, after, refused, changed, nodes))


class _Reach:
    """Which nodes could serve a job at all; most jobs are like many others in that."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Reach] = {}

    def of(self, job: Job, settled: Settled) -> Reach:
        needs: list[Any] = [job.simulated, job.cpu_milli, job.host_memory_mib, job.interconnect, job.distance]
        needs += [job.labels, job.reproducible, job.like, settled.asks, settled.zones]
        key = json.dumps(needs, sort_keys=True)
        if key not in self.known:
            tried = copy(job)
            tried.asks = _as_made(settled.asks, job.simulated)
            tried.zones = list(settled.zones) if settled.zones is not None else None
            self.known[key] = possible.reach(tried)
        return self.known[key]


def _as_made(asks: list[dict[str, Any]], simulated: bool) -> list[dict[str, Any]]:
    """As submitting makes them; where no card gives such a slice any more, as they are."""
    try:
        return slices.asks_of(asks, simulated)
    except Refused:
        return asks
