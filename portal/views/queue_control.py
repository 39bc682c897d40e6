"""The queue: who waits, for what and since when; and what operators do to jobs that wait, each act with a preview.

Everybody sees the jobs of their projects with their place in the whole queue; only operators and administrators act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger.errors import Refused
from ledger.models import Job, Project
from portal import ops_words
from portal.forms import ReasonForm
from portal.ops_forms import BumpForm, QueueFilter
from portal.sudo import needs_sudo
from portal.tables import Action, Column, Table
from portal.typed import id_of
from portal.views.gate import request_id, signed_in, viewer
from portal.views.job_filter import narrowed
from portal.views.ops_gate import for_operators
from portal.views.ops_waiting import waiting_jobs
from scheduler import queue_control
from scheduler.engine.queueing import POLICIES
from scheduler.engine.types import DEFAULT_POLICY
from scheduler.queue_control import Acted, Order

MOST_KEYS, MOST_TOLD = 1000, 10  # keys looked at; jobs left alone that are named one by one
QUEUE_ORDER: Final = ("-priority", "place", "queued_at")  # of a priority, who has no place yet comes last


def _asks(job: Any) -> str:
    ask = job.asks[0] if job.asks else {}
    return " ".join(
        f"{name}={ask[name]}" for name in ("form", "nodes", "cards_per_node", "memory_mib", "profile") if name in ask
    )


COLUMNS: Final = (
    Column("position", gettext_lazy("Position"), lambda j: j.place, "", QUEUE_ORDER, number=True),
    Column("job", gettext_lazy("Job"), lambda j: f"{j.pk} {j.name}", "ops/cells/waiting.html", ("pk",), always=True),
    Column("project", gettext_lazy("Project"), lambda j: j.project.slug, sort=("project__slug",)),
    Column("by", gettext_lazy("By"), lambda j: j.by.username, sort=("by__username",)),
    Column("asks", gettext_lazy("Asked for"), _asks, "ops/cells/asks.html"),
    Column("cause", gettext_lazy("Cause"), lambda j: str(ops_words.cause(j.cause)), "ops/cells/cause.html", ("cause",)),
    Column(
        "kept", gettext_lazy("Kept for it"), lambda j: " ".join((j.kept or {}).get("nodes", ())), "ops/cells/kept.html"
    ),
    Column("since", gettext_lazy("Waits since"), lambda j: j.queued_at, sort=("queued_at",)),
    Column("priority", gettext_lazy("Priority"), lambda j: j.priority, sort=("priority",), number=True),
    Column("hardware", gettext_lazy("Hardware"), lambda j: _hardware(j.simulated), sort=("simulated",), shown=False),
)
ACT_COLUMN: Final = Column("act", gettext_lazy("Act"), lambda j: "", "ops/cells/acts.html")


def _hardware(simulated: bool) -> str:
    return _("simulated") if simulated else _("real")


@require_safe
@signed_in
def queue(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    projects = [(p.slug, p.slug) for p in Project.objects.visible_to(user).order_by("slug")]
    form = QueueFilter(request.GET, known={"project": projects})
    acts = [Action(reverse("queue-act", args=[act]), title) for act, title in ops_words.ACTS.items()]
    exporting = bool(request.GET.get("export"))
    table = Table(
        request=request,
        name="queue",
        columns=(*COLUMNS, ACT_COLUMN) if user.operates and not exporting else COLUMNS,
        records=_filtered(waiting_jobs(user).select_related("project", "by", "held_by"), form.chosen),
        form=form,
        order=(*QUEUE_ORDER, "pk"),
        key=lambda job: str(job.pk),
        actions=acts if user.operates else (),
    )
    if (file := table.export()) is not None:
        return file
    context = {"form": form, "t": table.context(), "filtered": table.filtered, "policy": POLICIES[DEFAULT_POLICY]}
    return render(request, "ops/queue.html", context)


def _filtered(jobs: QuerySet[Job], chosen: dict[str, Any]) -> QuerySet[Job]:
    jobs = narrowed(jobs, chosen)
    if cause := chosen.get("cause"):
        jobs = jobs.filter(cause=cause)
    if held := chosen.get("held"):
        jobs = jobs.filter(held_at__isnull=held == "no")
    return jobs


# -- acts --------------------------------------------------------------------------------------------------------------


def _bump(job_ids: list[int], order: Order, form: ReasonForm) -> Acted:
    return queue_control.bump_jobs(job_ids=job_ids, priority=form.cleaned_data["priority"], order=order)


Write = Callable[[list[int], Order, ReasonForm], Acted]
WRITERS: Final[dict[str, Write]] = {
    "hold": lambda job_ids, order, form: queue_control.hold_jobs(job_ids=job_ids, order=order),
    "release": lambda job_ids, order, form: queue_control.release_jobs(job_ids=job_ids, order=order),
    "bump": _bump,
    "cancel": lambda job_ids, order, form: queue_control.cancel_jobs(job_ids=job_ids, order=order),
}


@dataclass(frozen=True)
class Chosen:
    """What the person chose: jobs that wait, and keys that name none."""

    jobs: list[Any]
    others: list[str]

    @property
    def ids(self) -> list[int]:
        return [job.pk for job in self.jobs]


def _chosen(request: HttpRequest, keys: Iterable[str]) -> Chosen:
    """At most one more than an act takes, so that the writer says that it is too many."""
    texts = list(dict.fromkeys(keys))
    numbers = [pk for pk in map(id_of, texts) if pk is not None]
    jobs = waiting_jobs(viewer(request)).filter(pk__in=numbers[:MOST_KEYS]).select_related("project", "by", "held_by")
    found = list(jobs.order_by("-priority", "queued_at", "pk")[: queue_control.MOST + 1])
    known = {str(job.pk) for job in found}
    return Chosen(found, [text[:20] for text in texts if text not in known][:20])


def _form(act: str, data: Any = None) -> ReasonForm:
    if act not in WRITERS:
        raise Http404(_("There is no such act."))
    return BumpForm(data) if act == "bump" else ReasonForm(data)


def _preview(request: HttpRequest, act: str, form: ReasonForm, chosen: Chosen, status: int = 200) -> HttpResponseBase:
    context = {
        "act": act,
        "title": ops_words.ACTS[act],
        "meaning": ops_words.ACT_MEANINGS[act],
        "form": form,
        "chosen": chosen,
        "most": queue_control.MOST,
    }
    return render(request, "ops/act.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@for_operators
def act(request: HttpRequest, act: str) -> HttpResponseBase:
    """The preview: which jobs it is about. Changes nothing; the table posts many keys, links send one."""
    form = _form(act)
    keys = request.POST.getlist("key") if request.method == "POST" else request.GET.getlist("key")
    return _preview(request, act, form, _chosen(request, keys))


@require_POST
@for_operators
@needs_sudo
def confirm(request: HttpRequest, act: str) -> HttpResponseBase:
    """Do it, after the preview."""
    form = _form(act, request.POST)
    chosen = _chosen(request, request.POST.getlist("key"))
    if not form.is_valid():
        return _preview(request, act, form, chosen, status=422)
    reason = form.cleaned_data["reason"]
    order = Order(actor=viewer(request), reason=reason, via="page", request_id=request_id(request))
    try:
        acted = WRITERS[act](chosen.ids, order, form)
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _preview(request, act, form, chosen, status=422)
    _tell(request, act, acted)
    return redirect("queue")


def _tell(request: HttpRequest, act: str, acted: Acted) -> None:
    if acted.done:
        n = len(acted.done)
        done = ngettext("%(act)s: done for %(n)d job.", "%(act)s: done for %(n)d jobs.", n)
        messages.success(request, done % {"act": _title(act), "n": n})
    for pk, why in list(acted.left.items())[:MOST_TOLD]:
        messages.warning(request, _("Job %(id)d is left as it is: %(why)s.") % {"id": pk, "why": why})
    if len(acted.left) > MOST_TOLD:
        messages.warning(request, _("%(n)d jobs in all are left as they are.") % {"n": len(acted.left)})


def _title(act: str) -> str:
    title: str | Promise = ops_words.ACTS[act]
    return str(title)
