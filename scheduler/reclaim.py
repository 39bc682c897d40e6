"""The reclaim: every pass looks at projects that end and at what holds cards for too long, and does what is missing.
Level-triggered: a pass that was killed anywhere is made good by the next, and nothing is done or told twice.

Each step is one durable transaction (a few for many jobs) that locks the project and looks again before it writes, so
that an extension at the same moment wins or loses as a whole. A project that fails is named in the result and in the
log, and the others go on. Ends of attempts take the ordinary path: the stop command with the checkpoint signal and its
grace, the driver's confirmation, the book.

`now` is the clock that decides which projects are over; tests move it. What happens is written with the database's own
time, and how long a job has run is told by that alone.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from ledger import acts, book, ends, invitation_ends, notices, projects, requests
from ledger.clock import database_now
from ledger.models import Attempt, Job, Project
from ledger.reasons import check_reason
from ledger.vocabulary import JobState, Outcome, ProjectState
from scheduler import receipts, reclaim_plan
from scheduler.ending import close_members, end_attempt
from scheduler.models import Decision
from scheduler.queue import cancel_queued_inside
from scheduler.reclaim_plan import Act, Held, ProjectPlan, Step
from scheduler.wake import wake_after_commit

log = logging.getLogger(__name__)
BATCH: Final = 100  # queued jobs cancelled in one transaction
SHOWN_OF_AN_ERROR: Final = 300


@dataclass
class Pass:
    """What one pass did: counts by step, and what failed by name."""

    done: Counter[str] = field(default_factory=Counter)
    odd: dict[str, str] = field(default_factory=dict)

    def note_odd(self, name: str, error: Exception) -> None:
        log.exception("reclaim: %s was left as it is", name, exc_info=error)
        self.odd[name] = f"{type(error).__name__}: {error}"[:SHOWN_OF_AN_ERROR]

    def result(self) -> dict[str, Any]:
        return {**{str(step): self.done[step] for step in (*Step, OVER_WALLTIME)}, "odd": self.odd}


OVER_WALLTIME: Final = "over_walltime"


def reclaim_all(now: dt.datetime | None = None) -> dict[str, Any]:
    """One pass over everything. Returns counts by step and {name: error} of what failed, for the task's record."""
    now = now or database_now()
    found = Pass()
    for facts in reclaim_plan.facts_of(reclaim_plan.due(now)):
        try:
            carry_out(reclaim_plan.plan_of(facts, now), now, found)
        except Exception as error:
            found.note_odd(facts.project.slug, error)
    for held in reclaim_plan.over_walltime(database_now()):
        try:
            found.done[OVER_WALLTIME] += _end_over_walltime(held)
        except Exception as error:
            found.note_odd(f"job {held.job_id}", error)
    return found.result()


def carry_out(plan: ProjectPlan, now: dt.datetime, found: Pass) -> None:
    """The steps of one project, in their order; each looks again under the project's lock."""
    for act in plan.acts:
        found.done[act.step] += STEPS[act.step](plan.project, act, now, found)


# -- steps -------------------------------------------------------------------------------------------------------------


def _tell(project: Project, act: Act, now: dt.datetime, found: Pass) -> int:
    with transaction.atomic(durable=True):
        locked = ends.lock(project.pk)
        due = ends.due_notice(locked, now)
        return int(due is not None and notices.tell_inside(locked, due, now))


def _begin(project: Project, act: Act, now: dt.datetime, found: Pass) -> int:
    with transaction.atomic(durable=True):
        return int(ends.begin_inside(project.pk, now))


def _cancel(project: Project, act: Act, now: dt.datetime, found: Pass) -> int:
    """In batches; a batch that fails is tried job by job, so that an odd job stops no other."""
    done = 0
    for ids in _chunks(act.ids, BATCH):
        try:
            done += _cancel_jobs(project.pk, ids)
        except Exception as error:
            if len(ids) == 1:
                found.note_odd(f"job {ids[0]}", error)
                continue
            for job_id in ids:
                done += _cancel(project, Act(act.step, (job_id,)), now, found)
    return done


def _cancel_jobs(project_id: int, ids: Sequence[int]) -> int:
    with transaction.atomic(durable=True):
        project = ends.lock(project_id)
        if project.state == ProjectState.ACTIVE:  # extended meanwhile
            return 0
        jobs = list(Job.objects.filter(pk__in=ids, state=JobState.QUEUED).order_by("pk").select_for_update(no_key=True))
        text = f"project {project.slug} takes no work since its last day, {project.ends_on}"
        for job in jobs:
            cancel_queued_inside(job, None, text, "task", cause=receipts.CAUSE)
        waiting = Decision.objects.filter(job__in=[job.pk for job in jobs], attempt=None)
        waiting.update(kept=None, begins_at=None)  # nothing is kept free for them any more
        return len(jobs)


def _stop(project: Project, act: Act, now: dt.datetime, found: Pass) -> int:
    done = 0
    for attempt_id in act.ids:
        try:
            done += _stop_attempt(project.pk, attempt_id, now)
        except Exception as error:
            found.note_odd(f"attempt {attempt_id}", error)
    return done


def _stop_attempt(project_id: int, attempt_id: int, now: dt.datetime) -> bool:
    with transaction.atomic(durable=True):
        project = ends.lock_ending(project_id)
        if project is None or not ends.grace_is_over(project, now):  # extended meanwhile
            return False
        job, attempt = book.lock_job(Attempt.objects.values_list("job_id", flat=True).get(pk=attempt_id))
        if attempt is None or attempt.pk != attempt_id:
            return False
        text = f"stopped with its project {project.slug}, which ended on {project.ends_on}"
        return close_members(job, attempt, Outcome.PROJECT_ENDED, message=text, grace_s=settings.PROJECT_STOP_GRACE_S)


def _close(project: Project, act: Act, now: dt.datetime, found: Pass) -> int:
    with transaction.atomic(durable=True):
        locked = ends.lock_ending(project.pk)
        if locked is None or not ends.grace_is_over(locked, now) or ends.holds_anything(locked):
            return 0
        for asked in (invitation_ends, requests):
            asked.close_inside(locked, "the project has ended")
        grants = ends.end_grants_inside(locked)
        ends.close_inside(locked, receipts.draw_up(locked, grants, database_now()), now, grants)
        wake_after_commit("scheduler.tell")
        return 1


Doing = Callable[[Project, Act, dt.datetime, Pass], int]  # how much it did
STEPS: Final[Mapping[Step, Doing]] = {
    Step.TELL: _tell,
    Step.BEGIN: _begin,
    Step.CANCEL: _cancel,
    Step.STOP: _stop,
    Step.CLOSE: _close,
}


def _end_over_walltime(held: Held) -> bool:
    if held.stopping:
        return False
    message = f"ended after its walltime of {held.walltime_s} s"
    return end_attempt(attempt_id=held.attempt_id, outcome=Outcome.OVER_WALLTIME, message=message)


def _chunks(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


# -- what admins do ----------------------------------------------------------------------------------------------------


def end_now(*, project: Project, act: acts.Act) -> Project:
    """A site admin ends the project before its time: no new work, and no grace for what runs."""
    with transaction.atomic(durable=True):
        ended = ends.order_inside(project.pk, act)
        wake_after_commit("scheduler.reclaim")
    return ended


def extend(*, project: Project, ends_on: dt.date, act: acts.Act) -> Project:
    """A later last day, with a reason; a project that is about to be reclaimed goes back to work."""
    check_reason(act.reason)
    ends.check_extension(project, ends_on)
    return projects.change_project(project=project, details=projects.Details(ends_on=ends_on), act=act)
