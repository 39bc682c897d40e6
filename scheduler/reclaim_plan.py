"""What the next pass of the reclaim would do: facts of the projects that end, read at once, and for each the steps that
follow from them. The pass carries out exactly these plans; the pages show them as the dry run. Reads only.

`plan_of` is a function of its arguments alone: the facts and the moment.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db import connection
from django.db.models import F, Q, QuerySet

from ledger import ends
from ledger.models import Job, Notice, Project
from ledger.vocabulary import AttemptState, JobState, NoticeKind, ProjectState

SPARED: Final = dt.timedelta(seconds=60)  # observing ends jobs at their walltime; after that much more it is done here


class Step(StrEnum):
    """What is done to a project that ends, in this order. Each may be repeated, and killed anywhere."""

    TELL = "tell"  # a notice before the end
    BEGIN = "begin"  # the last day is over: no new work
    CANCEL = "cancel"  # jobs that wait are cancelled
    STOP = "stop"  # the grace is over: attempts end through their drivers
    CLOSE = "close"  # nothing is open: grants end, people read, one receipt


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue."""

    job_id: int
    name: str
    by: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt that holds something. `closing_at`: since when it is being stopped; `error` is what its driver said
    last."""

    attempt_id: int
    job_id: int
    project_id: int
    name: str
    by: str
    simulated: bool
    state: str
    nodes: tuple[str, ...]
    cards: int
    drivers: tuple[str, ...]
    started_at: dt.datetime | None
    walltime_s: int
    closing_at: dt.datetime | None
    tries: int
    error: str

    @property
    def stopping(self) -> bool:
        return self.state == AttemptState.STOPPING

    @property
    def due_at(self) -> dt.datetime | None:
        """When its walltime is over."""
        return None if self.started_at is None else self.started_at + dt.timedelta(seconds=self.walltime_s)


@dataclass(frozen=True, slots=True)
class Facts:
    project: Project
    queued: tuple[Waiting, ...] = ()
    held: tuple[Held, ...] = ()
    told: frozenset[str] = frozenset()  # notices of the end that the project has now


@dataclass(frozen=True, slots=True)
class Act:
    """One step with what it is about: jobs by id for CANCEL, attempts for STOP, else nothing."""

    step: Step
    ids: tuple[int, ...] = ()
    notice: NoticeKind | None = None


@dataclass(frozen=True, slots=True)
class ProjectPlan:
    facts: Facts
    acts: tuple[Act, ...]

    @property
    def project(self) -> Project:
        return self.facts.project

    def act(self, step: Step) -> Act | None:
        return next((act for act in self.acts if act.step == step), None)

    @property
    def cancelled(self) -> list[Waiting]:
        """What CANCEL is about."""
        act = self.act(Step.CANCEL)
        return [job for job in self.facts.queued if act is not None and job.job_id in act.ids]

    @property
    def stopped(self) -> list[Held]:
        """What STOP is about."""
        act = self.act(Step.STOP)
        return [held for held in self.facts.held if act is not None and held.attempt_id in act.ids]

    @property
    def stuck(self) -> list[Held]:
        """What is being stopped and what no driver has confirmed yet."""
        return [held for held in self.facts.held if held.stopping]


def plan_of(facts: Facts, now: dt.datetime) -> ProjectPlan:
    project = facts.project
    if project.state == ProjectState.ENDED:  # a job that was submitted at the very moment
        return ProjectPlan(facts, tuple(_cancelling(facts)))
    if project.state == ProjectState.ACTIVE and not ends.is_over(project, now):
        due = ends.due_notice(project, now)
        return ProjectPlan(facts, () if due is None or due in facts.told else (Act(Step.TELL, notice=due),))
    acts = [Act(Step.BEGIN, notice=NoticeKind.OVER)] if project.ending_since is None else []
    acts += _cancelling(facts)
    if ends.grace_is_over(project, now):
        running = tuple(held.attempt_id for held in facts.held if not held.stopping)
        if running:
            acts.append(Act(Step.STOP, running))
        elif not facts.held:
            acts.append(Act(Step.CLOSE, notice=NoticeKind.RECEIPT))
    return ProjectPlan(facts, tuple(acts))


def _cancelling(facts: Facts) -> list[Act]:
    ids = tuple(job.job_id for job in facts.queued)
    return [Act(Step.CANCEL, ids)] if ids else []


# -- reading -----------------------------------------------------------------------------------------------------------

HELD: Final = """
SELECT t.id, t.job_id, j.project_id, j.name, u.username, j.simulated, t.state,
       array_agg(DISTINCT n.hostname ORDER BY n.hostname), coalesce(sum(s.cards), 0)::int,
       array_agg(DISTINCT a.driver ORDER BY a.driver), j.started_at, j.walltime_s, min(a.closing_at),
       coalesce(max(c.tries), 0), coalesce(max(c.last_error), '')
FROM ledger_attempt t JOIN ledger_job j ON j.id = t.job_id JOIN ledger_user u ON u.id = j.by_id
JOIN ledger_allocation a ON a.attempt_id = t.id AND upper_inf(a.period) JOIN ledger_node n ON n.id = a.node_id
LEFT JOIN LATERAL (SELECT count(*) AS cards FROM ledger_cardshare x WHERE x.allocation_id = a.id) s ON true
LEFT JOIN scheduler_command c ON c.allocation_id = a.id AND c.verb = 'stop'
WHERE t.state IN ('starting', 'running', 'unknown', 'stopping') AND {which}
GROUP BY t.id, j.id, u.id ORDER BY t.id
"""


def due(now: dt.datetime, horizon: dt.timedelta = ends.FIRST_NOTICE) -> QuerySet[Project]:
    """Projects that end within the horizon, that end now, and such as have ended and still have a job in the queue."""
    soon = Q(state=ProjectState.ACTIVE, ends_on__lte=(now + horizon).date())
    left = Q(state=ProjectState.ENDED, pk__in=Job.objects.filter(state=JobState.QUEUED).values("project"))
    return Project.objects.filter(soon | Q(state=ProjectState.ENDING) | left).order_by("ends_on", "slug")


def facts_of(projects: Iterable[Project]) -> list[Facts]:
    """With a fixed number of queries whatever the number of projects."""
    wanted = list(projects)
    ids = [project.pk for project in wanted]
    queued: dict[int, list[Waiting]] = defaultdict(list)
    jobs = Job.objects.filter(state=JobState.QUEUED, project__in=ids).order_by("pk")
    for project_id, pk, name, by, simulated in jobs.values_list("project", "pk", "name", "by__username", "simulated"):
        queued[project_id].append(Waiting(pk, name, by, simulated))
    held: dict[int, list[Held]] = defaultdict(list)
    for one in held_by(ids) if ids else ():
        held[one.project_id].append(one)
    told: dict[int, set[str]] = defaultdict(set)
    notices = Notice.objects.filter(project__in=ids, ends_on=F("project__ends_on"))
    for project_id, kind in notices.values_list("project", "kind"):
        told[project_id].add(kind)
    return [
        Facts(project, tuple(queued[project.pk]), tuple(held[project.pk]), frozenset(told[project.pk]))
        for project in wanted
    ]


def held_by(project_ids: Collection[int]) -> list[Held]:
    """Every attempt of these projects that holds something."""
    return _held("j.project_id = ANY (%s)", [list(project_ids)])


def over_walltime(now: dt.datetime) -> list[Held]:
    """What has outlived its walltime by more than SPARED and still holds something, whatever the reason."""
    over = "j.started_at IS NOT NULL AND j.started_at + make_interval(secs => j.walltime_s) < %s"
    return _held(over, [now - SPARED])


def _held(which: str, values: list[Any]) -> list[Held]:
    with connection.cursor() as cursor:
        cursor.execute(HELD.format(which=which), values)
        return [_read(row) for row in cursor.fetchall()]


def _read(row: Sequence[Any]) -> Held:
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
    return Held(*values)
