"""The fleet map: every card of one kind of hardware, by rack and node, coloured by choice; and the same as a table.

Everybody signed in sees machines; whose a card is, only who may see that project. The script of the page draws.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ledger.clock import database_now
from portal import map_words
from portal.ops_forms import MapFilter
from portal.views import fleet_cells
from portal.views.fleet_cells import CardState, Place
from portal.views.gate import signed_in, viewer

ANY_NODE = "any-node"  # stands for the host name in the address that the script fills in


def _form(request: HttpRequest) -> tuple[MapFilter, Place | None]:
    """The filter, and the rack that it chooses."""
    simulated = request.GET.get("hardware") == "simulated"
    known = {"\t".join(place): place for place in fleet_cells.places(simulated=simulated)}
    choices = [(key, fleet_cells.place_name(place) or _("no rack")) for key, place in known.items()]
    form = MapFilter(request.GET, known={"rack": choices})
    return form, known.get(form.chosen.get("rack", ""))


@require_safe
@signed_in
def fleet_map(request: HttpRequest) -> HttpResponseBase:
    form, place = _form(request)
    cells = fleet_cells.read_cells(viewer(request), simulated=form.simulated, place=place)
    query = {"hardware": "simulated" if form.simulated else "real"}
    if place is not None:
        query["rack"] = form.chosen["rack"]
    words = map_words.card_states()
    context = {
        "form": form,
        "simulated": form.simulated,
        "colour": form.chosen.get("colour", "state"),
        "texts": map_words.texts(),
        "source": f"{reverse('fleet-map-data')}?{urlencode(query)}",
        "node_address": reverse("node", args=[ANY_NODE]),
        "any_node": ANY_NODE,
        "states": [words[code] for code in CardState],
        "lines": _lines(cells, form.simulated),
        "cards": len(cells.cards["slot"]),
    }
    return render(request, "ops/map.html", context)


def _lines(cells: fleet_cells.Cells, simulated: bool) -> list[dict[str, Any]]:
    """The racks, each with its counts in the order of CardState and the addresses of its nodes and its own map."""
    hardware = "simulated" if simulated else "real"
    lines = []
    for line in fleet_cells.rack_lines(cells):
        rack = line.place[2]
        nodes = urlencode({"hardware": hardware, "q": rack} if rack else {"hardware": hardware})
        lines.append(
            {
                "line": line,
                "counts": [line.states[code] for code in CardState],
                "nodes": f"{reverse('nodes')}?{nodes}",
                "map": f"{reverse('fleet-map')}?{urlencode({'hardware': hardware, 'rack': chr(9).join(line.place)})}",
            }
        )
    return lines


@require_safe
@signed_in
def data(request: HttpRequest) -> HttpResponseBase:
    """The cards as JSON columns. Its ETag leaves the time out, so that a map that did not change is not sent again."""
    form, place = _form(request)
    cells = fleet_cells.read_cells(viewer(request), simulated=form.simulated, place=place)
    facts = {
        "simulated": form.simulated,
        "places": [fleet_cells.place_name(where) for where in cells.places],
        "projects": cells.projects,
        "models": cells.models,
        "zones": cells.zones,
        "nodes": cells.nodes,
        "cards": cells.cards,
    }
    body = json.dumps(facts, separators=(",", ":"), ensure_ascii=False)
    etag = f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
    answer = f'{{"at":{json.dumps(database_now().isoformat())},{body[1:]}'
    response = HttpResponse(answer, content_type="application/json; charset=utf-8")
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-cache"
    return get_conditional_response(request, etag=etag, response=response) or response
