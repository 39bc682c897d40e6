"""One counted fault: what it was answered with, for who sees everything and the operators of its zone; these clear it,
with a reason and a fresh password. Written by ledger.fault_acts.
"""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from ledger import fault_acts, holds
from ledger.acts import Act
from ledger.errors import Refused
from ledger.models import Fault, HealthEvent, Job, ShareUse, User
from ledger.vocabulary import STATE_FAULTS, FaultKind
from portal import health_policy_words as words
from portal.forms import ReasonForm
from portal.sudo import needs_sudo
from portal.views.gate import request_id, signed_in, viewer
from scheduler.processes import CERTAIN

MOST_SHOWN = 20


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def fault(request: HttpRequest, pk: int) -> HttpResponseBase:
    """What was counted and what was done about it; a POST clears it."""
    user = viewer(request)
    if not (user.sees_everything or user.operates_somewhere):
        raise PermissionDenied
    found = Fault.objects.select_related("node", "card").filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise Http404(_("There is no such fault."))
    clears = holds.may_hold(user, [found.node])
    if not clears and (request.method == "POST" or not user.sees_everything):
        raise PermissionDenied
    return _cleared(request, found) if request.method == "POST" else _page(request, found, ReasonForm(), clears)


@needs_sudo
def _cleared(request: HttpRequest, fault: Fault) -> HttpResponseBase:
    form = ReasonForm(request.POST)
    if form.is_valid():
        act = Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request))
        try:
            fault_acts.clear(fault_id=fault.pk, act=act)
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("The fault is cleared; the next one counts anew."))
            return redirect("card", fault.card.uuid) if fault.card else redirect("node", fault.node.hostname)
    return _page(request, fault, form, True, status=422)


def _page(request: HttpRequest, fault: Fault, form: ReasonForm, clears: bool, *, status: int = 200) -> HttpResponseBase:
    answers = HealthEvent.objects.filter(fault=fault).order_by("-at", "-pk")[:MOST_SHOWN]
    context = {
        "fault": fault,
        "name": words.name(fault.kind, fault.code),
        "answers": [{"event": one, "look": words.ACTIONS[one.action]} for one in answers],
        "state": fault.kind in STATE_FAULTS,
        "above": _above(fault, viewer(request)),
        "form": form,
        "clears": clears,
    }
    return render(request, "health/policy/fault.html", context, status=status)


def _above(fault: Fault, user: User) -> list[ShareUse]:
    """Whose shares hold more than they were promised, as far as the reader may see these jobs."""
    if fault.kind != FaultKind.OVERUSE or fault.cleared_at is not None:
        return []
    seen = Job.objects.visible_to(user).values("pk")
    uses = ShareUse.objects.filter(share__card=fault.card_id, share__period__upper_inf=True, over__gte=CERTAIN)
    mine = uses.filter(share__allocation__attempt__job__in=seen)
    return list(mine.select_related("share__allocation__attempt__job__by").order_by("pk"))
