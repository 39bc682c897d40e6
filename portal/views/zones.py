"""Zones and the plans that move nodes between them: list, plan form, preview, confirm, the plan's page.

Everybody sees zones and plans; only admins plan. Choosing and moving nodes is scheduler's.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import roles
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import User, Zone
from portal import labels, odd_grant_rows
from portal.forms import ReasonForm, card_models
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views import plan_parts
from portal.views.fleet_rows import zone_rows
from portal.views.gate import request_id, signed_in, viewer
from portal.zone_forms import ConfirmPlanForm, ListPlanForm, RatioPlanForm, named_zones
from scheduler import zone_proposals, zones
from scheduler.models import OPEN_MOVES, MoveState, PlanState, ZoneMove, ZonePlan
from scheduler.zone_proposals import Proposal

ID_LIMIT: Final = 2**31
PLAN_COLUMNS: Final = (
    Column("plan", gettext_lazy("Plan"), lambda p: p.pk, "zones/cells/plan.html", ("pk",), always=True, number=True),
    Column(
        "state",
        gettext_lazy("State"),
        lambda p: labels.text("zone_plan", p.state),
        "zones/cells/state.html",
        ("state",),
    ),
    Column("progress", gettext_lazy("Progress"), plan_parts.progress_text, "zones/cells/progress.html"),
    Column("kind", gettext_lazy("Chosen"), lambda p: labels.text("zone_plan_kind", p.kind), sort=("kind",)),
    Column("reason", gettext_lazy("Reason"), lambda p: p.reason, "zones/cells/reason.html"),
    Column("by", gettext_lazy("By"), lambda p: p.by.username, sort=("by__username",)),
    Column("made", gettext_lazy("Made"), lambda p: p.created_at, sort=("created_at",)),
    Column("ended", gettext_lazy("Ended"), lambda p: p.ended_at, sort=("ended_at",), shown=False),
    Column("window", gettext_lazy("Observed until"), lambda p: p.window_until, sort=("window_until",)),
    Column(
        "override",
        gettext_lazy("Reason for not waiting"),
        lambda p: p.override_reason,
        "zones/cells/override.html",
        shown=False,
    ),
)
MOVE_COLUMNS: Final = (
    Column(
        "node",
        gettext_lazy("Node"),
        lambda m: m.node.hostname,
        "zones/cells/node.html",
        ("node__hostname",),
        always=True,
    ),
    Column(
        "from",
        pgettext_lazy("zone", "From"),
        lambda m: m.from_zone.title if m.from_zone else "",
        "zones/cells/from.html",
        ("from_zone__title",),
    ),
    Column("to", pgettext_lazy("zone", "To"), lambda m: m.to_zone.title, "zones/cells/to.html", ("to_zone__title",)),
    Column(
        "state", gettext_lazy("State"), lambda m: labels.text("zone_move", m.state), "zones/cells/move.html", ("state",)
    ),
    Column("jobs", gettext_lazy("Work on it"), lambda m: m.work.told if m.work else "", "zones/cells/work.html"),
    Column("free_at", gettext_lazy("Empty at the latest"), lambda m: m.work.free_at if m.work else None),
    Column("moved", gettext_lazy("Moved"), lambda m: m.moved_at, sort=("moved_at",)),
)


@require_safe
@signed_in
def zone_list(request: HttpRequest) -> HttpResponseBase:
    user, simulated = viewer(request), request.GET.get("hardware") == "simulated"
    table = Table(request, "zone-plans", PLAN_COLUMNS, _plans().filter(simulated=simulated))
    if (file := table.export()) is not None:
        return file
    context = {
        "rows": zone_rows(Zone.objects.order_by("slug"), simulated=simulated),
        "simulated": simulated,
        "t": table.context(),
        "may_plan": zones.may_plan(user),
        "odd": odd_grant_rows.standing(user, zone__isnull=False) if user.sees_everything or user.operated_zones else [],
        "told_who_operates": user.sees_everything or bool(user.operated_zones),
        "may_give": roles.is_admin(user),
    }
    return render(request, "zones/list.html", context)


def _plans() -> QuerySet[ZonePlan]:
    counted = {state: Count("moves", filter=Q(moves__state=state)) for state in MoveState}
    return ZonePlan.objects.select_related("by", "undoes").annotate(total=Count("moves"), **counted)


# -- plan → preview → confirm -----------------------------------------------------------------------------------------


def _admin_only(request: HttpRequest) -> None:
    if not zones.may_plan(viewer(request)):
        raise PermissionDenied


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def plan_form(request: HttpRequest) -> HttpResponseBase:
    """The two forms; a POST of one of them shows the preview. Rows chosen in the list of nodes come as `key`."""
    _admin_only(request)
    mode, chosen = request.POST.get("mode", ""), request.POST.getlist("key")
    by_list = ListPlanForm(request.POST if mode == "list" else None, initial={"nodes": "\n".join(chosen)})
    by_ratio = _ratio_form(request, mode)
    form = {"list": by_list, "ratio": by_ratio}.get(mode)
    proposal = _proposed(form) if form is not None else None
    if proposal is not None:
        return _preview(request, proposal, ConfirmPlanForm(initial={"plan": plan_parts.sealed(proposal)}))
    if request.method == "POST" and form is None and not chosen:
        messages.error(request, _("Choose nodes by list or by ratio."))
    context = {
        "by_list": by_list,
        "by_ratio": by_ratio,
        "simulated": _simulated(request),
        "targets": _targets(request, by_ratio),
    }
    failed = request.method == "POST" and (form is not None or not chosen)
    return render(request, "zones/plan_form.html", context, status=422 if failed else 200)


def _simulated(request: HttpRequest) -> bool:
    return (request.POST.get("hardware") or request.GET.get("hardware")) == "simulated"


def _targets(request: HttpRequest, form: RatioPlanForm) -> list[tuple[Any, Any]]:
    """The field of each zone with what the zone has now."""
    rows = zone_rows(form.zones, simulated=_simulated(request))
    return [(field, row["counts"]) for field, row in zip(form.zone_fields, rows, strict=True)]


def _ratio_form(request: HttpRequest, mode: str) -> RatioPlanForm:
    known = {"zones": list(named_zones()), "models": card_models()}
    initial = {"hardware": "simulated" if _simulated(request) else "real", "unit": "nodes"}
    return RatioPlanForm(request.POST if mode == "ratio" else None, initial=initial, **known)


def _proposed(form: ListPlanForm | RatioPlanForm) -> Proposal | None:
    """What the form asks for; None with the errors beside its fields."""
    if not form.is_valid():
        return None
    data = form.cleaned_data
    try:
        if isinstance(form, ListPlanForm):
            return zone_proposals.propose_list(hostnames=data["nodes"], to_zone=data["to_zone"])
        return zone_proposals.propose_ratio(
            wanted=form.wanted,
            percent=data["unit"] == "percent",
            simulated=data["hardware"] == "simulated",
            model=data["model"],
            zones=form.zones,
        )
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
    return None


def _preview(request: HttpRequest, proposal: Proposal, form: ConfirmPlanForm, *, status: int = 200) -> HttpResponseBase:
    known = list(Zone.objects.order_by("slug"))
    rows = plan_parts.preview_rows(proposal, known, viewer(request))
    busy = [row for row in rows if row.work]
    observed = zone_proposals.watching(proposal, database_now())
    form.fields["override_reason"].required = bool(observed)  # the writer refuses a plan without it
    context = {
        "form": form,
        "proposal": proposal,
        "idle": [row for row in rows if not row.work],
        "busy": busy,
        "last": max((row.work.free_at for row in busy if row.work and row.work.free_at), default=None),
        "lacking": [row for row in rows if row.lacks],
        "effect": zone_proposals.effect(proposal, known),
        "observed": [(plan, zones.window_text(plan)) for plan in observed],
    }
    return render(request, "zones/preview.html", context, status=status)


@require_POST
@signed_in
@needs_sudo
def confirm(request: HttpRequest) -> HttpResponseBase:
    _admin_only(request)
    form = ConfirmPlanForm(request.POST)
    proposal = plan_parts.opened(request.POST.get("plan", ""))
    if proposal is None:
        text = _("This preview is older than an hour or not ours. Nothing was changed; choose the nodes again.")
        messages.error(request, text)
        return render(request, "zones/plan_form.html", _fresh_forms(request), status=422)
    if not form.is_valid():
        return _preview(request, proposal, form, status=422)
    try:
        plan = zones.make_plan(
            proposal=proposal,
            reason=form.cleaned_data["reason"],
            override_reason=form.cleaned_data["override_reason"],
            actor=viewer(request),
            via="page",
            request_id=request_id(request),
        )
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        if not isinstance(refused, Conflict) or refused.field:
            return _preview(request, proposal, form, status=422)
        proposal = zone_proposals.with_windows(proposal)  # what is shown now may be confirmed, if the nodes allow it
        form.data = {**request.POST.dict(), "plan": plan_parts.sealed(proposal)}
        return _preview(request, proposal, form, status=409)
    messages.success(request, _("Plan %(number)d is made.") % {"number": plan.pk})
    return redirect("plan", pk=plan.pk)


def _fresh_forms(request: HttpRequest) -> dict[str, Any]:
    by_ratio = _ratio_form(request, "")
    forms = {"by_list": ListPlanForm(), "by_ratio": by_ratio}
    return {**forms, "simulated": _simulated(request), "targets": _targets(request, by_ratio)}


# -- one plan ---------------------------------------------------------------------------------------------------------


def _plan(pk: int) -> Any:
    plan = _plans().filter(pk=pk).first() if pk < ID_LIMIT else None
    if plan is None:
        raise Http404(_("There is no such plan."))
    return plan


@require_safe
@signed_in
def plan_page(request: HttpRequest, pk: int) -> HttpResponseBase:
    return _plan_answer(request, _plan(pk), ReasonForm())


def _plan_answer(request: HttpRequest, plan: Any, form: ReasonForm, status: int = 200) -> HttpResponseBase:
    moves = ZoneMove.objects.filter(plan=plan).select_related("node", "from_zone", "to_zone")
    table = Table(
        request,
        f"zone-plan-{plan.pk}",
        MOVE_COLUMNS,
        moves,
        decorate=lambda page: _with_work(page, viewer(request)),
        order=("state", "node__hostname"),
    )
    if (file := table.export()) is not None:
        return file
    planner, running = zones.may_plan(viewer(request)), plan.state == PlanState.RUNNING
    context = {
        "plan": plan,
        "t": table.context(),
        "parts": [(str(state), getattr(plan, str(state))) for state in MoveState],
        "running": running,
        "targets": _by_title(plan.targets),
        "form": form,
        "may_cancel": planner and running,
        "may_undo": planner and not running and getattr(plan, str(MoveState.MOVED)) > 0,
        "undone_by": list(plan.undone_by.order_by("pk")),
    }
    return render(request, "zones/plan.html", context, status=status)


def _by_title(targets: dict[str, int]) -> list[tuple[str, int]]:
    """The targets of a plan by ratio; other plans have none."""
    titles = dict(Zone.objects.filter(slug__in=targets).values_list("slug", "title")) if targets else {}
    return [(titles.get(slug, slug), count) for slug, count in targets.items()]


def _with_work(moves: list[Any], user: User) -> list[Any]:
    work = plan_parts.work_on([m.node_id for m in moves if m.state in OPEN_MOVES], user)
    for move in moves:
        move.work = work.get(move.node_id)
    return moves


@require_POST
@signed_in
@needs_sudo
def plan_cancel(request: HttpRequest, pk: int) -> HttpResponseBase:
    _admin_only(request)
    plan, form = _plan(pk), ReasonForm(request.POST)
    if not form.is_valid():
        return _plan_answer(request, plan, form, status=422)
    try:
        zones.cancel_plan(
            plan_id=plan.pk,
            reason=form.cleaned_data["reason"],
            actor=viewer(request),
            via="page",
            request_id=request_id(request),
        )
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, _("Plan %(number)d is cancelled.") % {"number": plan.pk})
    return redirect("plan", pk=plan.pk)


@require_safe
@signed_in
def plan_undo(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The preview of a new plan that moves everything back."""
    _admin_only(request)
    plan = _plan(pk)
    try:
        proposal = zone_proposals.propose_undo(plan)
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect("plan", pk=plan.pk)
    initial = {"plan": plan_parts.sealed(proposal), "reason": _("Undo plan %(number)d") % {"number": plan.pk}}
    return _preview(request, proposal, ConfirmPlanForm(initial=initial))
