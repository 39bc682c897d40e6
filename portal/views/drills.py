"""Drills: their history with verdicts, when each zone had its last, the plan with its preview, one drill as it goes,
and its abort. What may be done is judged by scheduler.drills."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import holds
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent, Card, CardSeat, Hold, Node, NodeZone, User
from portal import out_words
from portal.forms import ReasonForm
from portal.out_forms import DrillForm, PlaceForm
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views.gate import request_id, viewer
from portal.views.ops_gate import for_operators_of_machines, for_watchers_of_machines
from portal.views.plan_parts import work_on, work_on_cards
from scheduler import drill_due, drill_verdict, drills
from scheduler.drill_rows import OPEN_DRILLS, Drill

ID_LIMIT: Final = 2**63
CELLS: Final = "health/drills/cells/"
COLUMNS: Final = (
    Column("drill", gettext_lazy("Drill"), lambda d: d.pk, CELLS + "drill.html", ("pk",), always=True, number=True),
    Column("place", gettext_lazy("Of"), lambda d: _place(d), CELLS + "place.html"),
    Column("node", gettext_lazy("Node"), lambda d: d.node.hostname, CELLS + "node.html", ("node__hostname",)),
    Column("zone", gettext_lazy("Zone"), lambda d: d.zone.title if d.zone else "", sort=("zone__title",)),
    Column("state", gettext_lazy("State"), lambda d: _label("drill", d.state), CELLS + "state.html", ("state",)),
    Column("verdict", gettext_lazy("Verdict"), lambda d: _label("verdict", d.verdict), CELLS + "verdict.html"),
    Column("due", gettext_lazy("When"), lambda d: d.due_at, sort=("due_at",)),
    Column("ended", gettext_lazy("Ended"), lambda d: d.ended_at, sort=("ended_at",)),
    Column("by", gettext_lazy("By"), lambda d: d.by.username, sort=("by__username",)),
    Column("reason", gettext_lazy("Reason"), lambda d: d.reason, CELLS + "reason.html"),
)


def _place(drill: Drill) -> str:
    return str(drill.card.uuid if drill.card else drill.node.hostname)


def _label(table: str, word: str) -> str:
    return str(out_words.look(table, word).label) if word else ""


def visible_drills(user: User) -> QuerySet[Drill]:
    """All for the site roles; for who operates a zone, those in it now."""
    rows = Drill.objects.select_related("node", "card", "zone", "by", "case", "hold")
    if user.sees_everything:
        return rows
    here = NodeZone.objects.filter(zone__in=user.operated_zones, period__upper_inf=True)
    return rows.filter(node__in=here.values("node"))


@require_safe
@for_watchers_of_machines
def drill_list(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    table = Table(request, "drills", COLUMNS, visible_drills(user), order=("-pk",))
    if (file := table.export()) is not None:
        return file
    due = drill_due.places_due(database_now())
    seen = due if user.sees_everything else [one for one in due if one.zone_id in user.operated_zones]
    context = {"t": table.context(), "due": seen, "form": PlaceForm(), "may_plan": user.operates_somewhere}
    return render(request, "health/drills/list.html", context)


# -- plan: place → preview with reason → act ---------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@for_operators_of_machines
def drill_plan(request: HttpRequest) -> HttpResponseBase:
    """`?place=` shows what would be affected; a POST plans it."""
    if request.method == "POST":
        return _planned(request)
    place = request.GET.get("place", "").strip()
    if not place:
        return render(request, "health/drills/plan.html", {"places": PlaceForm()})
    return _preview(request, place, DrillForm(initial=DrillForm.first(place)))


@needs_sudo
def _planned(request: HttpRequest) -> HttpResponseBase:
    form = DrillForm(request.POST)
    place = request.POST.get("place", "").strip()
    node, card = _found(place)
    if not form.is_valid() or node is None:
        return _preview(request, place, form, status=422)
    try:
        drill = drills.plan_drill(
            act=Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request)),
            node=None if card else node,
            card=card,
            due_at=form.cleaned_data["due_at"],
            drain=form.cleaned_data["drain"],
            targets=form.targets,
        )
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        status = 403 if isinstance(refused, Forbidden) else 409 if isinstance(refused, Conflict) else 422
        return _preview(request, place, form, status=status)
    messages.success(request, _("Drill %(number)d is planned.") % {"number": drill.pk})
    return redirect("drill", pk=drill.pk)


def _found(place: str) -> tuple[Node | None, Card | None]:
    """The card of this name with its node, or the node."""
    if not place or "\x00" in place:
        return None, None
    seat = CardSeat.objects.filter(card__uuid=place, period__upper_inf=True).select_related("card", "node").first()
    if seat is not None:
        return seat.node, seat.card
    return Node.objects.filter(hostname=place).first(), None


def _preview(request: HttpRequest, place: str, form: DrillForm, status: int = 200) -> HttpResponseBase:
    user = viewer(request)
    node, card = _found(place)
    if node is None:
        places = PlaceForm({"place": place[:253]})
        places.add_error("place", _("No card and no node of this name is in the fleet."))
        return render(request, "health/drills/plan.html", {"places": places}, status=422)
    work = work_on_cards([card.pk], user).get(card.pk) if card else work_on([node.pk], user).get(node.pk)
    of_place = Q(card=card) | Q(node=node) if card else Q(node=node)
    context: dict[str, Any] = {
        "form": form,
        "node": node,
        "card": card,
        "place": place,
        "work": work,
        "holds": Hold.objects.filter(of_place, period__upper_inf=True).order_by("pk"),
        "may": holds.may_hold(user, [] if card else [node], [card] if card else []),
        "last": Drill.objects.filter(node=node, card=card).order_by("-pk").first(),
    }
    return render(request, "health/drills/preview.html", context, status=status if context["may"] else 403)


# -- one drill ---------------------------------------------------------------------------------------------------------


@require_safe
@for_watchers_of_machines
def drill_page(request: HttpRequest, pk: int) -> HttpResponseBase:
    return _page(request, _drill(request, pk), ReasonForm())


def _drill(request: HttpRequest, pk: int) -> Drill:
    found = visible_drills(viewer(request)).filter(pk=pk).first() if pk < ID_LIMIT else None
    if found is None:
        raise Http404(_("There is no such drill, or it is not in your zone."))
    return found


def _page(request: HttpRequest, drill: Drill, form: ReasonForm, status: int = 200) -> HttpResponseBase:
    user, live = viewer(request), drill.state in OPEN_DRILLS
    place = ([], [drill.card]) if drill.card else ([drill.node], [])
    now = database_now()
    context = {
        "drill": drill,
        "live": live,
        "now": now,
        "lines": drill_verdict.as_data(drill_verdict.lines(drill, now=now)) if live else drill.lines,
        "moments": moments(drill),
        "story": AuditEvent.objects.filter(target_type="drill", target_id=str(drill.pk))
        .select_related("actor")
        .order_by("pk")[:50],
        "may_abort": live and user.operates_somewhere and holds.may_hold(user, *place),
        "form": form,
    }
    return render(request, "health/drills/drill.html", context, status=status)


def moments(drill: Drill) -> list[tuple[str, Any, str]]:
    """(what, when, more) in the order of a drill; None = not yet."""
    told: list[tuple[str, Any, str]] = [
        (_("Planned"), drill.planned_at, drill.by.username),
        (_("Due"), drill.due_at, ""),
        (_("Held"), drill.held_at, ""),
        (_("Placing avoids it"), drill.avoided_at, drill.avoided),
    ]
    told += [
        (_("Alert out"), drill.alerted.get(channel), out_words.word("channel", channel)) for channel in drill.channels
    ]
    told += [
        (_("Measured; its test is next"), drill.went_on_at, ""),
        (_("Tested"), drill.tested_at, ""),
        (_("Back in the pool"), drill.returned_at, ""),
        (_("Ended"), drill.ended_at, drill.note),
    ]
    return told


@require_POST
@for_operators_of_machines
@needs_sudo
def drill_abort(request: HttpRequest, pk: int) -> HttpResponseBase:
    drill, form = _drill(request, pk), ReasonForm(request.POST)
    if not form.is_valid():
        return _page(request, drill, form, status=422)
    said = Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request))
    try:
        drills.abort_drill(drill_id=drill.pk, act=said)
    except Refused as refused:
        messages.error(request, str(refused))
        return _page(request, _drill(request, pk), form, status=403 if isinstance(refused, Forbidden) else 409)
    messages.success(request, _("Drill %(number)d is aborted; nothing of it is left.") % {"number": drill.pk})
    return redirect("drill", pk=drill.pk)
