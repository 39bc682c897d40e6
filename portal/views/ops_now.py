"""What the now-board shows: cards by account, waiting jobs, drift, commands, nodes, tasks and the last proof of the
invariants. Read with a fixed number of queries; real and simulated never share a number.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Min, Q

from ledger import standing
from ledger.models import Card, Hold, Node, User
from ledger.vocabulary import Account, CommandState, DriverName, NodeState
from portal import ops_words
from portal.labels import Text
from portal.views.fleet_rows import NOW
from portal.views.ops_waiting import by_cause
from scheduler.models import Command, Drift, TaskRun

TENTHS: Final = 10
LATE_RUNS, LATE_S = 3, 10  # a task is late when this many of its runs, and these seconds, have passed without one
PROOF: Final = "ledger.check_books"
Pair = tuple[int, int]  # real, simulated


def board(user: User, now: dt.datetime) -> dict[str, Any]:
    tasks = task_lines(now)
    return {
        "now": now,
        "worlds": [world_now(simulated=False), world_now(simulated=True)],
        "causes": by_cause(user),
        "drifts": drift_lines(),
        "commands": command_counts(now),
        "nodes": node_counts(),
        "tasks": tasks,
        "proof": proof(tasks),
    }


# -- cards by account --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccountLine:
    account: str
    tenths: int  # of a card
    part: float  # of the capacity, in %

    @property
    def cards(self) -> float:
        return self.tenths / TENTHS


@dataclass(frozen=True)
class World:
    """The cards of one kind of hardware, each account in tenths that add up."""

    simulated: bool
    lines: list[AccountLine]

    @property
    def capacity(self) -> float:
        return sum(line.tenths for line in self.lines) / TENTHS


def world_now(*, simulated: bool) -> World:
    cards: dict[str, Fraction] = defaultdict(Fraction)
    for (account, size), mib in standing.accounts(simulated=simulated).items():
        cards[account] += Fraction(mib, size)
    tenths = _tenths(cards)
    capacity = sum(tenths.values())
    lines = [
        AccountLine(str(account), tenths.get(account, 0), 100 * tenths.get(account, 0) / capacity if capacity else 0.0)
        for account in Account
    ]
    return World(simulated, lines)


def _tenths(cards: Mapping[str, Fraction]) -> dict[str, int]:
    """Tenths of a card whose sum is the rounded sum: largest remainder, ties by name."""
    exact = {name: value * TENTHS for name, value in cards.items()}
    whole = {name: int(value) for name, value in exact.items()}
    missing = round(sum(exact.values(), Fraction(0))) - sum(whole.values())
    for name in sorted(exact, key=lambda name: (whole[name] - exact[name], name))[:missing]:
        whole[name] += 1
    return whole


# -- counts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriftLine:
    kind: str
    real: int
    simulated: int
    since: dt.datetime


def drift_lines() -> list[DriftLine]:
    """Open differences by kind."""
    rows = Drift.objects.filter(resolved_at=None).order_by().values_list("kind")
    real, simulated = Count("pk", filter=Q(simulated=False)), Count("pk", filter=Q(simulated=True))
    counted = rows.annotate(real=real, made_up=simulated, since=Min("first_seen"))
    return [DriftLine(*row) for row in sorted(counted, key=lambda row: (-row[1], -row[2], row[0]))]


def command_counts(now: dt.datetime) -> dict[str, Any]:
    """Commands that no driver has carried out yet: all, those that wait after a failed try, and the oldest."""
    made_up = Q(driver=DriverName.SIMULATED)
    backoff = Q(tries__gt=0, due_at__gt=now)
    counts: dict[str, Any] = Command.objects.filter(state=CommandState.PENDING).aggregate(
        real=Count("pk", filter=~made_up),
        simulated=Count("pk", filter=made_up),
        backoff_real=Count("pk", filter=~made_up & backoff),
        backoff_simulated=Count("pk", filter=made_up & backoff),
        since=Min("created_at"),
    )
    return counts


def node_counts() -> dict[str, Pair]:
    """Nodes, those that are offline or held, and cards held one by one: real and simulated."""
    nodes = Node.objects.exclude(state=NodeState.RETIRED).order_by().values_list("simulated")
    every = dict(nodes.annotate(Count("pk")))
    offline = dict(nodes.filter(state=NodeState.OFFLINE).annotate(Count("pk")))
    held = dict(nodes.filter(pk__in=Hold.objects.filter(NOW, node__isnull=False).values("node")).annotate(Count("pk")))
    cards = Card.objects.filter(pk__in=Hold.objects.filter(NOW, card__isnull=False).values("card"))
    seated = cards.filter(seats__period__upper_inf=True).order_by().values_list("seats__node__simulated")
    held_cards = dict(seated.annotate(Count("pk", distinct=True)))
    found = {"all": every, "offline": offline, "held": held, "cards": held_cards}
    return {name: (int(counts.get(False, 0)), int(counts.get(True, 0))) for name, counts in found.items()}


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskLine:
    """A scheduled task with its last run; `run` is None when it never ran."""

    name: str
    what: Text
    every_s: float
    run: TaskRun | None
    now: dt.datetime

    @property
    def running(self) -> bool:
        run = self.run
        return run is not None and (run.ended_at is None or run.ended_at < run.started_at)

    @property
    def age_s(self) -> float | None:
        """Seconds since its last end; of one that never ended, since its start."""
        if self.run is None:
            return None
        return max(0.0, (self.now - (self.run.ended_at or self.run.started_at)).total_seconds())

    @property
    def late(self) -> bool:
        return self.age_s is None or self.age_s > max(LATE_RUNS * self.every_s, self.every_s + LATE_S)

    @property
    def failed(self) -> bool:
        return self.run is not None and self.run.ok is False and not self.running

    @property
    def duration_ms(self) -> int | None:
        run = self.run
        if run is None or run.ended_at is None or self.running:
            return None
        return round((run.ended_at - run.started_at).total_seconds() * 1000)

    @property
    def result(self) -> str:
        found = self.run.result if self.run else None
        return json.dumps(found, ensure_ascii=False, sort_keys=True) if found else ""


def schedule() -> dict[str, float]:
    """Task → seconds between its runs, as beat has it."""
    beat: Mapping[str, Mapping[str, Any]] = settings.CELERY_BEAT_SCHEDULE
    return {entry["task"]: entry["schedule"].run_every.total_seconds() for entry in beat.values()}


def task_line(name: str, run: TaskRun | None, now: dt.datetime) -> TaskLine:
    return TaskLine(name, ops_words.TASKS.get(name, name), schedule().get(name, 0.0), run, now)


def task_lines(now: dt.datetime) -> list[TaskLine]:
    runs = {run.name: run for run in TaskRun.objects.all()}
    return [task_line(name, runs.get(name), now) for name in schedule()]


@dataclass(frozen=True)
class Proof:
    """The last proof of the invariants of the books."""

    at: dt.datetime | None
    broken: list[str]
    failed: bool
    late: bool

    @property
    def clean(self) -> bool:
        return self.at is not None and not self.broken and not self.failed


def proof(tasks: list[TaskLine]) -> Proof:
    line = next((line for line in tasks if line.name == PROOF), None)
    if line is None or line.run is None:
        return Proof(None, [], failed=False, late=True)
    broken = line.run.result.get("broken", {}) if isinstance(line.run.result, dict) else {}
    return Proof(line.run.ended_at, sorted(broken), failed=line.failed, late=line.late)
