"""Nodes and their cards. Everybody signed in sees machines; whose job it is, only those who may see that job."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ledger.models import Fault, Hold, Node
from portal.forms import NodeFilter, card_models, zone_choices
from portal.views.fleet_rows import filtered_nodes, node_rows
from portal.views.gate import page_of, signed_in, viewer

MAX_HOSTNAME = 253


@require_safe
@signed_in
def node_list(request: HttpRequest) -> HttpResponseBase:
    simulated = request.GET.get("hardware") == "simulated"
    models = [(model, model) for model in card_models(simulated=simulated)]
    form = NodeFilter(request.GET, known={"zone": zone_choices(), "model": models})
    page = page_of(request, filtered_nodes(form.chosen, simulated=form.simulated))
    rows = node_rows(list(page.object_list), viewer(request))
    return render(request, "nodes/list.html", {"form": form, "page": page, "rows": rows, "simulated": form.simulated})


@require_safe
@signed_in
def node_page(request: HttpRequest, hostname: str) -> HttpResponseBase:
    node = None
    if len(hostname) <= MAX_HOSTNAME and "\x00" not in hostname:
        node = Node.objects.filter(hostname=hostname).first()
    if node is None:
        raise Http404(_("There is no node of this name."))
    row = node_rows([node], viewer(request))[0]
    context = {
        "row": row,
        "node": node,
        "holds": Hold.objects.filter(period__upper_inf=True, node=node).select_related("by"),
        "faults": Fault.objects.filter(node=node, cleared_at=None).select_related("card").order_by("-last_seen")[:20],
    }
    return render(request, "nodes/node.html", context)
