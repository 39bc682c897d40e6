"""What is out of the pool: the list of all of it by age, and each case with its story, its evidence and the acts on it.
What may be done is judged by ledger.cases."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from ledger import cases, dwell, holds
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent, Case, Fault, NodeBoot, Zone
from ledger.vocabulary import CaseState, Need
from portal import labels, out_words
from portal.forms import ReasonForm, zone_choices
from portal.labels import Text
from portal.out_forms import OutFilter
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views.gate import request_id, viewer
from portal.views.ops_gate import for_operators_of_machines, for_watchers_of_machines
from scheduler import service

ID_LIMIT: Final = 2**63
LINES: Final = 60
COLUMNS: Final = (
    Column("place", gettext_lazy("What is out"), lambda r: _place(r), "health/out/cells/place.html", always=True),
    Column("node", gettext_lazy("Node"), lambda r: r.hold.hostname, "health/out/cells/node.html", ("hostname",)),
    Column("zone", gettext_lazy("Zone"), lambda r: r.hold.zone_title, sort=("zone_title",)),
    Column("kind", gettext_lazy("Kind"), lambda r: labels.text("hold", r.hold.kind), "health/out/cells/kind.html"),
    Column("why", gettext_lazy("Why"), lambda r: r.hold.reason, "health/out/cells/why.html"),
    Column("since", gettext_lazy("Since"), lambda r: r.since, sort=("period__startswith",)),
    Column("age", gettext_lazy("Age"), lambda r: round(r.age_s), "health/out/cells/age.html", number=True),
    Column(
        "state",
        gettext_lazy("State"),
        lambda r: str(out_words.look("case", r.case.state).label) if r.case else "",
        "health/out/cells/state.html",
    ),
    Column(
        "next",
        gettext_lazy("Next step"),
        lambda r: str(out_words.word("waits", r.waits)),
        "health/out/cells/next.html",
    ),
    Column("who", gettext_lazy("Who must act"), lambda r: str(out_words.word("who", r.who))),
)


def _place(row: dwell.Out) -> str:
    return str(row.hold.card.uuid if row.hold.card else row.hold.hostname)


@require_safe
@for_watchers_of_machines
def out_list(request: HttpRequest) -> HttpResponseBase:
    user, now = viewer(request), database_now()
    form = OutFilter(request.GET, known={"zone": zone_choices()})
    rows = dwell.visible_holds(user)
    table = Table(
        request,
        "out",
        COLUMNS,
        _filtered(rows, form.chosen, now),
        form=form,
        decorate=lambda page: dwell.outs(page, now),
        default_sort="since",
        order=("pk",),
    )
    if (file := table.export()) is not None:
        return file
    context = {
        "form": form,
        "t": table.context(),
        "filtered": table.filtered,
        "late": rows.filter(period__startswith__lt=_limit(now)).count(),
        "hours": settings.CASE_DWELL_HOURS,
    }
    return render(request, "health/out/list.html", context)


def _limit(now: dt.datetime) -> dt.datetime:
    return now - dt.timedelta(hours=settings.CASE_DWELL_HOURS)


def _filtered(rows: QuerySet[Any], chosen: Mapping[str, Any], now: dt.datetime) -> QuerySet[Any]:
    if text := chosen.get("q"):
        rows = rows.filter(Q(card__uuid__icontains=text) | Q(hostname__icontains=text))
    if hardware := chosen.get("hardware"):
        rows = rows.filter(simulated=hardware == "simulated")
    if zone := chosen.get("zone"):
        rows = rows.filter(zone__in=Zone.objects.filter(slug=zone).values("pk"))
    if kind := chosen.get("kind"):
        rows = rows.filter(kind=kind)
    return rows.filter(period__startswith__lt=_limit(now)) if chosen.get("late") else rows


# -- one case ----------------------------------------------------------------------------------------------------------

ACTS: Final[Mapping[str, Text]] = {
    "done": gettext_lazy("It is done: test it"),
    "test": gettext_lazy("Test again"),
    "release": gettext_lazy("Release"),
    "scrap": gettext_lazy("Scrap: it leaves the fleet"),
}
DONE: Final[Mapping[str, Text]] = {
    "done": gettext_lazy("Noted. Its test is next."),
    "test": gettext_lazy("It will be tested again."),
    "release": gettext_lazy("It is back in the pool."),
    "scrap": gettext_lazy("It has left the fleet."),
}


def acts_of(case: Case) -> list[str]:
    """What a person may do to it as it stands."""
    if case.ended_at is not None:
        return []
    found = []
    if case.state == CaseState.NEEDED and case.need in (Need.INSPECTION, Need.REPLACEMENT):
        found.append("done")
    if case.state == CaseState.PASSED:
        found.append("release")
    if case.state in (CaseState.FAILED, CaseState.PASSED):
        found.append("test")
    return [*found, "scrap"]


@require_safe
@for_watchers_of_machines
def case_page(request: HttpRequest, pk: int) -> HttpResponseBase:
    return _page(request, _case(request, pk), ReasonForm())


def _case(request: HttpRequest, pk: int) -> Case:
    rows = dwell.visible_cases(viewer(request)).select_related("node", "card", "hold", "hold__by", "fault", "boot")
    found = rows.filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404(_("There is no such case, or it is not in your zone."))
    return found


def _page(request: HttpRequest, case: Case, form: ReasonForm, status: int = 200) -> HttpResponseBase:
    now, user = database_now(), viewer(request)
    heard = dwell.heard_orders([case.pk])
    waits = dwell.waits(case, heard) if case.ended_at is None else None
    place = ([], [case.card]) if case.card else ([case.node], [])
    may = user.operates_somewhere and holds.may_hold(user, *place)
    standing = Fault.objects.filter(node=case.node_id, card=case.card_id, cleared_at=None).order_by("-last_seen")
    context = {
        "case": case,
        "now": now,
        "waits": waits,
        "who": dwell.WHO[waits] if waits else None,
        "late": waits is not None and now - case.opened_at > dt.timedelta(hours=settings.CASE_DWELL_HOURS),
        "orders": case.orders.select_related("card").order_by("-pk")[:LINES],
        "story": _story(case),
        "faults": standing[:20],
        "boots": NodeBoot.objects.filter(node=case.node_id, first_seen__gte=case.opened_at).order_by("-pk")[:10],
        "drill": case.drills.first(),
        "acts": [(name, ACTS[name]) for name in acts_of(case)] if may else [],
        "form": form,
    }
    return render(request, "health/out/case.html", context, status=status)


def _story(case: Case) -> list[AuditEvent]:
    rows = AuditEvent.objects.filter(target_type="case", target_id=str(case.pk)).select_related("actor")
    return list(rows.order_by("-pk")[:LINES])


@require_POST
@for_operators_of_machines
@needs_sudo
def case_act(request: HttpRequest, pk: int, act: str) -> HttpResponseBase:
    case, form = _case(request, pk), ReasonForm(request.POST)
    if not form.is_valid():
        return _page(request, case, form, status=422)
    said = Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request))
    try:
        WRITERS[act](case_id=case.pk, act=said)
    except Refused as refused:
        messages.error(request, str(refused))
        status = 403 if isinstance(refused, Forbidden) else 409 if isinstance(refused, Conflict) else 422
        return _page(request, _case(request, pk), form, status=status)
    messages.success(request, str(DONE[act]))
    return redirect("case", pk=case.pk)


WRITERS: Final[Mapping[str, Callable[..., Case]]] = {
    "done": cases.mark_done,
    "test": cases.test_again,
    "release": service.release,
    "scrap": cases.scrap,
}
