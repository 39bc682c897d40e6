"""The now-board and the lists behind its numbers: drift, commands that wait, scheduled tasks. Reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ledger.clock import database_now
from ledger.vocabulary import CommandState, DriverName
from portal import ops_words
from portal.labels import Look
from portal.ops_forms import CommandFilter, DriftFilter
from portal.tables import Column, Table
from portal.views import ops_now
from portal.views.gate import viewer
from portal.views.ops_gate import for_site_roles
from scheduler.models import Command, Drift, TaskRun


@require_safe
@for_site_roles
def now_board(request: HttpRequest) -> HttpResponseBase:
    return render(request, "ops/now.html", ops_now.board(viewer(request), database_now()))


@require_safe
@for_site_roles
def now_part(request: HttpRequest) -> HttpResponseBase:
    """The part of the page that changes; htmx asks for it every few seconds."""
    return render(request, "ops/now_part.html", ops_now.board(viewer(request), database_now()))


# -- drift -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DriftRow:
    """A difference and how long it stood, until now when it is open."""

    drift: Drift
    now: dt.datetime

    @property
    def age_s(self) -> float:
        return max(0.0, ((self.drift.resolved_at or self.now) - self.drift.first_seen).total_seconds())

    @property
    def look(self) -> Look:
        return ops_words.drift(self.drift.kind)

    @property
    def fix(self) -> str:
        return _(self.drift.fix) if self.drift.fix else ""  # what scheduler.reconcile writes is in the catalogue


DRIFT: Final = (
    Column("kind", gettext_lazy("Kind"), lambda r: str(r.look.label), "ops/cells/drift.html", ("kind",)),
    Column(
        "subject",
        gettext_lazy("Subject"),
        lambda r: r.drift.subject,
        "ops/cells/subject.html",
        ("subject",),
        always=True,
    ),
    Column("detail", gettext_lazy("Detail"), lambda r: r.drift.detail, "ops/cells/detail.html"),
    Column("fix", gettext_lazy("Proposed fix"), lambda r: r.fix, "ops/cells/fix.html"),
    Column("age", gettext_lazy("Age (min)"), lambda r: int(r.age_s // 60), number=True),
    Column("first", gettext_lazy("First seen"), lambda r: r.drift.first_seen, sort=("first_seen",)),
    Column("last", gettext_lazy("Last seen"), lambda r: r.drift.last_seen, sort=("last_seen",)),
    Column("resolved", gettext_lazy("Resolved"), lambda r: r.drift.resolved_at, sort=("resolved_at",)),
    Column("driver", gettext_lazy("Driver"), lambda r: r.drift.driver, sort=("driver",), shown=False),
    Column("job", gettext_lazy("Job"), lambda r: r.drift.job_id, "ops/cells/drift_job.html", number=True, shown=False),
)


@require_safe
@for_site_roles
def drift(request: HttpRequest) -> HttpResponseBase:
    form = DriftFilter(request.GET, known={})
    now = database_now()
    table = Table(
        request=request,
        name="drift",
        columns=DRIFT,
        records=_drifts(form.chosen),
        form=form,
        decorate=lambda rows: [DriftRow(row, now) for row in rows],
        order=("-resolved_at", "-first_seen", "-pk"),  # open ones first: NULL is the highest in PostgreSQL
    )
    if (file := table.export()) is not None:
        return file
    return render(request, "ops/drift.html", {"form": form, "t": table.context(), "filtered": table.filtered})


def _drifts(chosen: dict[str, Any]) -> QuerySet[Drift]:
    rows = Drift.objects.all()
    if text := chosen.get("q"):
        rows = rows.filter(Q(subject__icontains=text) | Q(detail__icontains=text))
    if state := chosen.get("state"):
        rows = rows.filter(resolved_at__isnull=state == "open")
    if kind := chosen.get("kind"):
        rows = rows.filter(kind=kind)
    if hardware := chosen.get("hardware"):
        rows = rows.filter(simulated=hardware == "simulated")
    return rows


# -- commands ----------------------------------------------------------------------------------------------------------

COMMANDS: Final = (
    Column(
        "job",
        gettext_lazy("Job"),
        lambda r: r.attempt.job_id,
        "ops/cells/job.html",
        ("attempt__job",),
        False,
        True,
        True,
    ),
    Column("node", gettext_lazy("Node"), lambda r: r.allocation.node.hostname, "ops/cells/node.html"),
    Column("verb", gettext_lazy("Command"), lambda r: r.verb, "ops/cells/verb.html", ("verb",)),
    Column("tries", gettext_lazy("Tries"), lambda r: r.tries, sort=("tries",), number=True),
    Column("due", gettext_lazy("Next try"), lambda r: r.due_at, sort=("due_at",)),
    Column("created", gettext_lazy("Waits since"), lambda r: r.created_at, sort=("created_at",)),
    Column("error", gettext_lazy("Last error"), lambda r: r.last_error, "ops/cells/error.html"),
)


@require_safe
@for_site_roles
def commands(request: HttpRequest) -> HttpResponseBase:
    form = CommandFilter(request.GET, known={})
    table = Table(
        request=request,
        name="commands",
        columns=COMMANDS,
        records=_commands(form.chosen),
        form=form,
        order=("due_at", "pk"),
    )
    if (file := table.export()) is not None:
        return file
    return render(request, "ops/commands.html", {"form": form, "t": table.context(), "filtered": table.filtered})


def _commands(chosen: dict[str, Any]) -> QuerySet[Command]:
    rows = Command.objects.filter(state=CommandState.PENDING).select_related("attempt__job", "allocation__node")
    if text := chosen.get("q"):
        rows = rows.filter(Q(allocation__node__hostname__icontains=text) | Q(last_error__icontains=text))
    if waiting := chosen.get("waiting"):
        failed_before = Q(tries__gt=0, due_at__gt=database_now())
        rows = rows.filter(failed_before if waiting == "backoff" else ~failed_before)
    if hardware := chosen.get("hardware"):
        made_up = Q(driver=DriverName.SIMULATED)
        rows = rows.filter(made_up if hardware == "simulated" else ~made_up)
    return rows


# -- tasks -------------------------------------------------------------------------------------------------------------


TASKS: Final = (
    Column("task", gettext_lazy("Task"), lambda r: r.name, "ops/cells/task.html", ("name",), always=True),
    Column("every", gettext_lazy("Every (s)"), lambda r: r.every_s, "ops/cells/every.html", number=True),
    Column("state", gettext_lazy("State"), lambda r: _task_state(r), "ops/cells/task_state.html"),
    Column("started", gettext_lazy("Last start"), lambda r: r.run.started_at, sort=("started_at",)),
    Column("ended", gettext_lazy("Last end"), lambda r: r.run.ended_at, sort=("ended_at",)),
    Column("duration", gettext_lazy("Took (ms)"), lambda r: r.duration_ms, number=True),
    Column("result", gettext_lazy("Result"), lambda r: r.result, "ops/cells/result.html"),
    Column("runs", gettext_lazy("Runs"), lambda r: r.run.runs, "ops/cells/runs.html", ("runs",), number=True),
    Column(
        "failures", gettext_lazy("Failures"), lambda r: r.run.failures, "ops/cells/failures.html", ("failures",), True
    ),
)


def _task_state(line: ops_now.TaskLine) -> str:
    if line.failed:
        return _("failed")
    if line.late:
        return _("late")
    return _("runs now") if line.running else _("on time")


@require_safe
@for_site_roles
def tasks(request: HttpRequest) -> HttpResponseBase:
    now = database_now()
    table = Table(
        request=request,
        name="tasks",
        columns=TASKS,
        records=TaskRun.objects.all(),
        decorate=lambda runs: [ops_now.task_line(run.name, run, now) for run in runs],
        order=("name",),
    )
    if (file := table.export()) is not None:
        return file
    known = set(TaskRun.objects.values_list("name", flat=True))
    never = [ops_now.task_line(name, None, now) for name in ops_now.schedule() if name not in known]
    return render(request, "ops/tasks.html", {"t": table.context(), "never": never})
