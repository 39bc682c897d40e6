"""How busy cards are, by zone and project, against the baseline and the target; and jobs that hold whole cards and
leave half of them idle while others wait. Reads only.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ledger import card_use, half_used
from ledger.clock import database_now
from ledger.half_used import HalfUsed
from ledger.models import Job, Project
from ledger.vocabulary import Refusal
from portal import labels
from portal.tables import Column, Table
from portal.views import ops_waiting
from portal.views.gate import signed_in, viewer
from portal.views.ops_gate import for_site_roles

WINDOWS: Final = {"24h": dt.timedelta(hours=24), "7d": dt.timedelta(days=7)}
FOR_CARDS: Final = (Refusal.CARDS_FREE, Refusal.CARD_MEMORY_FREE, Refusal.NOT_EMPTY, Refusal.NO_BLOCK)
HOUR: Final = dt.timedelta(hours=1)


@require_safe
@signed_in
def use(request: HttpRequest) -> HttpResponseBase:
    """Zones for everybody, projects as far as the viewer sees them."""
    user, simulated = viewer(request), request.GET.get("hardware") == "simulated"
    window = request.GET.get("window", "24h")
    length = WINDOWS.get(window, WINDOWS["24h"])
    until = database_now().replace(minute=0, second=0, microsecond=0)
    projects = list(Project.objects.visible_to(user).values_list("pk", flat=True))
    span = (until - length, until)
    context = {
        "simulated": simulated,
        "window": window if window in WINDOWS else "24h",
        "since": span[0],
        "until": until,
        "zones": card_use.by_zone(*span, simulated=simulated),
        "projects": card_use.by_project(*span, simulated=simulated, projects=projects),
        "baseline": card_use.BASELINE,
        "target": card_use.TARGET,
    }
    return render(request, "health/use.html", context)


@dataclass(frozen=True)
class HalfRow:
    job: Job
    found: HalfUsed

    @property
    def form(self) -> str:
        return labels.text("ask_form", str(self.job.asks[0]["form"])) if self.job.asks else ""


COLUMNS: Final = (
    Column("job", gettext_lazy("Job"), lambda r: r.job.pk, "health/cells/job.html", ("pk",), number=True, always=True),
    Column("project", gettext_lazy("Project"), lambda r: r.job.project.slug, sort=("project__slug",)),
    Column("by", gettext_lazy("Submitted by"), lambda r: r.job.by.username, sort=("by__username",)),
    Column("form", gettext_lazy("Form"), lambda r: r.form),
    Column("cards", gettext_lazy("Whole cards held"), lambda r: r.found.cards, number=True),
    Column("since", gettext_lazy("Since"), lambda r: r.found.since, sort=("started_at",)),
    Column("load", gettext_lazy("Mean load (%)"), lambda r: _rounded(r.found.load), number=True),
    Column("memory", gettext_lazy("Most memory used (%)"), lambda r: _rounded(r.found.memory), number=True),
    Column("of", gettext_lazy("Card memory (MiB)"), lambda r: r.found.card_memory_mib, number=True),
    Column("enough", gettext_lazy("Would be enough (MiB a card)"), lambda r: r.found.enough_mib, number=True),
)


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


@require_safe
@for_site_roles
def half_used_jobs(request: HttpRequest) -> HttpResponseBase:
    user, simulated = viewer(request), request.GET.get("hardware") == "simulated"
    found = half_used.find(simulated=simulated, now=database_now())
    jobs = Job.objects.visible_to(user).filter(pk__in=found).select_related("project", "by")
    table = Table(
        request,
        "half-used",
        COLUMNS,
        jobs,
        decorate=lambda rows: [HalfRow(job, found[job.pk]) for job in rows],
        order=("started_at", "pk"),
    )
    if (file := table.export()) is not None:
        return file
    context: dict[str, Any] = {
        "t": table.context(),
        "simulated": simulated,
        "waiting": _waiting(user, simulated),
        "rule": half_used,
        "minutes": int(half_used.HELD_FOR.total_seconds() // 60),
        "cards": sum(row.cards for row in found.values()),
    }
    return render(request, "health/half_used.html", context)


def _waiting(user: Any, simulated: bool) -> list[tuple[str, int]]:
    """Causes of waiting that cards would end, each with how many jobs wait for it."""
    wanted = {str(cause) for cause in FOR_CARDS}
    lines = [line for line in ops_waiting.by_cause(user) if line.cause in wanted]
    counted = [(line.cause, line.simulated if simulated else line.real) for line in lines]
    return [(cause, n) for cause, n in counted if n]
