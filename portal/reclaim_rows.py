"""What the reclaim's pages and API show: projects that end with what will be done to them when, what is over its
walltime, what leavers left. The plans are those that the next pass carries out. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ledger import ends, leavers
from ledger.leavers import Standing
from ledger.models import Job, Project, User
from ledger.vocabulary import ProjectState
from scheduler import reclaim_plan
from scheduler.models import TaskRun
from scheduler.reclaim_plan import Facts, Held, ProjectPlan, Step

HORIZON: Final = dt.timedelta(days=30)
NAMED: Final = 5  # of a long list
TASK: Final = "scheduler.reclaim"


class Phase(StrEnum):
    """How far the end of a project is."""

    AHEAD = "ahead"
    GRACE = "grace"
    STOPPING = "stopping"  # the grace is over, something is still open
    CLOSING = "closing"  # nothing is open; the next pass writes the receipt
    ENDED = "ended"


@dataclass(frozen=True)
class EndRow:
    """One project that ends. `error`: why its plan can't be made; then it has no steps here."""

    facts: Facts
    plan: ProjectPlan
    now: dt.datetime
    error: str = ""

    @property
    def project(self) -> Project:
        return self.facts.project

    @property
    def over_at(self) -> dt.datetime | None:
        return ends.over_at(self.project)

    @property
    def grace_over_at(self) -> dt.datetime | None:
        return ends.grace_over_at(self.project)

    @property
    def phase(self) -> Phase:
        if self.project.state == ProjectState.ENDED:
            return Phase.ENDED
        if self.project.state == ProjectState.ACTIVE and not ends.is_over(self.project, self.now):
            return Phase.AHEAD
        if not ends.grace_is_over(self.project, self.now):
            return Phase.GRACE
        return Phase.STOPPING if self.facts.held else Phase.CLOSING

    @property
    def next_at(self) -> dt.datetime | None:
        """When the next thing happens: the end, the stop of what runs, or at once."""
        if self.phase in (Phase.AHEAD, Phase.GRACE):
            return self.over_at if self.phase == Phase.AHEAD else self.grace_over_at
        return None if self.phase == Phase.ENDED else self.now

    @property
    def left_s(self) -> int | None:
        """The countdown, in seconds."""
        return None if self.next_at is None else max(0, int((self.next_at - self.now).total_seconds()))

    @property
    def steps(self) -> list[StepRow]:
        return [_step_row(self.plan, act.step) for act in self.plan.acts]

    @property
    def cards(self) -> int:
        return sum(held.cards for held in self.facts.held)


@dataclass(frozen=True)
class Named:
    """A job in a list of what a step is about."""

    job_id: int
    name: str
    by: str
    simulated: bool


@dataclass(frozen=True)
class StepRow:
    """A step of the dry run with the jobs that it is about; `notice` where it gives one."""

    step: Step
    jobs: list[Named] = field(default_factory=list)
    notice: str = ""

    @property
    def shown(self) -> list[Named]:
        return self.jobs[:NAMED]

    @property
    def more(self) -> int:
        return max(0, len(self.jobs) - NAMED)


def _step_row(plan: ProjectPlan, step: Step) -> StepRow:
    act = plan.act(step)
    about: Sequence[Any] = {Step.CANCEL: plan.cancelled, Step.STOP: plan.stopped}.get(step, [])
    jobs = [Named(job.job_id, job.name, job.by, job.simulated) for job in about]
    return StepRow(step, jobs, str(act.notice) if act is not None and act.notice else "")


def end_rows(user: User, now: dt.datetime) -> list[EndRow]:
    """The projects, of those that they may see, that end within HORIZON or now, and such as a pass still tidies."""
    due = reclaim_plan.due(now, HORIZON).filter(pk__in=Project.objects.visible_to(user).values("pk"))
    return [row_of(facts, now) for facts in reclaim_plan.facts_of(due.select_related("owner"))]


def row_of(facts: Facts, now: dt.datetime) -> EndRow:
    try:
        return EndRow(facts, reclaim_plan.plan_of(facts, now), now)
    except Exception as error:  # as in the pass: an odd project hides no other
        return EndRow(facts, ProjectPlan(facts, ()), now, f"{type(error).__name__}: {error}")


def overdue(user: User, now: dt.datetime) -> list[Held]:
    """What has outlived its walltime and still holds something, of the jobs that they may see."""
    found = reclaim_plan.over_walltime(now)
    seen = set(Job.objects.visible_to(user).filter(pk__in=[held.job_id for held in found]).values_list("pk", flat=True))
    return [held for held in found if held.job_id in seen]


def left_behind(user: User) -> list[Standing]:
    """What leavers left; for the site roles alone."""
    return leavers.leavers() if user.sees_everything else []


def odd_ones(user: User) -> dict[str, str]:
    """{project or job: error} of the last pass; for the site roles alone."""
    if not user.sees_everything:
        return {}
    run = TaskRun.objects.filter(name=TASK).values_list("result", flat=True).first()
    return dict((run or {}).get("odd") or {})
