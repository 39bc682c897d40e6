"""Nodes: the list and one node's page. Everybody signed in sees machines; whose job it is, only those who may see that
job. Holding and returning is in portal.views.node_acts.
"""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Max
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ledger import holds
from ledger.models import CardShare, Fault, Job, Node, User
from ledger.vocabulary import JobState
from portal import labels
from portal.forms import NodeFilter, card_models, zone_choices
from portal.tables import Action, Column, Table
from portal.views import life
from portal.views.fleet_cells import place_name
from portal.views.fleet_rows import filtered_nodes, node_rows
from portal.views.gate import signed_in, viewer
from portal.zone_forms import MomentForm
from scheduler import zones
from scheduler.models import OPEN_MOVES, Decision, ZoneMove
from scheduler.placing import REFRESH

MAX_HOSTNAME: Final = 253
STALE: Final = 3 * REFRESH


def _state(row: Any) -> str:
    return " ".join([labels.text("node", row.node.state), *(labels.text("hold", hold.kind) for hold in row.holds)])


def _form(row: Any) -> str:
    return labels.text("form", row.form) if row.form else ""


COLUMNS: Final = (
    Column(
        "node", gettext_lazy("Node"), lambda r: r.node.hostname, "nodes/cells/node.html", ("hostname",), always=True
    ),
    Column("state", gettext_lazy("State"), _state, "nodes/cells/state.html", ("state",)),
    Column("form", gettext_lazy("Form in use"), _form, "nodes/cells/form.html", ("form_now",)),
    Column("zone", gettext_lazy("Zone"), lambda r: r.zone.title if r.zone else "", sort=("zone_title",)),
    Column("model", gettext_lazy("Card model"), lambda r: ", ".join(r.models), sort=("model_now",)),
    Column("free", gettext_lazy("Free (cards)"), lambda r: r.free_cards, sort=("free",), number=True),
    Column("cards", gettext_lazy("All (cards)"), lambda r: len(r.cards), sort=("card_count",), number=True),
    Column(
        "free_mib", gettext_lazy("Free card memory (MiB)"), lambda r: r.free_mib, "nodes/cells/free.html", number=True
    ),
    Column("rack", gettext_lazy("Rack"), lambda r: r.node.rack, sort=("rack",)),
    Column("seen", gettext_lazy("Last seen"), lambda r: r.node.seen_at, sort=("seen_at",)),
    Column("faults", gettext_lazy("Open faults"), lambda r: r.faults, number=True, shown=False),
    Column("taken_mib", gettext_lazy("Taken card memory (MiB)"), lambda r: r.taken_mib, number=True, shown=False),
    Column("site", gettext_lazy("Site"), lambda r: r.node.site, sort=("site",), shown=False),
    Column("room", gettext_lazy("Room"), lambda r: r.node.room, sort=("room",), shown=False),
    Column("leaf", gettext_lazy("Leaf switch"), lambda r: r.node.leaf, sort=("leaf",), shown=False),
    Column(
        "cpu",
        gettext_lazy("CPU (cores)"),
        lambda r: r.node.cpu_milli / 1000,
        sort=("cpu_milli",),
        number=True,
        shown=False,
    ),
    Column(
        "memory",
        gettext_lazy("Host memory (MiB)"),
        lambda r: r.node.host_memory_mib,
        sort=("host_memory_mib",),
        number=True,
        shown=False,
    ),
    Column(
        "links",
        gettext_lazy("Links between cards"),
        lambda r: labels.text("interconnect", r.node.interconnect),
        sort=("interconnect",),
        shown=False,
    ),
    Column("network", gettext_lazy("Network"), lambda r: r.node.network, sort=("network",), shown=False),
    Column("labels", gettext_lazy("Labels"), lambda r: ", ".join(r.node.labels), shown=False),
    Column("supply", gettext_lazy("Supply"), lambda r: r.node.supply, sort=("supply",), shown=False),
    Column(
        "hold",
        gettext_lazy("Why it is held"),
        lambda r: "; ".join(h.reason for h in r.holds),
        "nodes/cells/holds.html",
        shown=False,
    ),
)


def node_actions(user: User) -> list[Action]:
    """What this person may do to many nodes at once."""
    if not user.operates_somewhere:
        return []
    acts = [
        Action(reverse("nodes-hold"), gettext_lazy("Hold")),
        Action(reverse("nodes-drain"), gettext_lazy("Drain")),
        Action(reverse("nodes-return"), gettext_lazy("Return to the pool")),
    ]
    if zones.may_plan(user):
        acts.append(Action(reverse("zones-plan"), gettext_lazy("Move to a zone")))
    return acts


@require_safe
@signed_in
def node_list(request: HttpRequest) -> HttpResponseBase:
    user, simulated = viewer(request), request.GET.get("hardware") == "simulated"
    models = [(model, model) for model in card_models(simulated=simulated)]
    form = NodeFilter(request.GET, known={"zone": zone_choices(), "model": models})
    table = Table(
        request,
        "nodes",
        COLUMNS,
        filtered_nodes(form.chosen, simulated=form.simulated),
        form=form,
        decorate=lambda page: node_rows(page, user),
        default_sort="node",
        order=("pk",),
        key=lambda row: str(row.node.hostname),
        actions=node_actions(user),
        age=Node.objects.filter(simulated=form.simulated).aggregate(at=Max("seen_at"))["at"],
    )
    if (file := table.export()) is not None:
        return file
    context = {"form": form, "t": table.context(), "simulated": form.simulated, "filtered": _narrowed(form)}
    return render(request, "nodes/list.html", context)


def _narrowed(form: NodeFilter) -> bool:
    return bool(form.chosen.keys() - {"hardware"})


@require_safe
@signed_in
def node_page(request: HttpRequest, hostname: str) -> HttpResponseBase:
    node, user = find_node(hostname), viewer(request)
    row = node_rows([node], user)[0]
    form = MomentForm(request.GET, known={})
    moves = ZoneMove.objects.filter(node=node).select_related("plan__by", "from_zone", "to_zone").order_by("-pk")
    at = form.chosen.get("at")
    context = {
        "row": row,
        "node": node,
        "place": place_name((node.site, node.room, node.rack)),
        "faults": Fault.objects.filter(node=node, cleared_at=None).select_related("card").order_by("-last_seen")[:20],
        "zone_periods": node.zone_periods.select_related("zone").order_by("-period")[:20],
        "kept": _kept(node, user),
        "moves": [move for move in moves[:20] if move.state in OPEN_MOVES],
        "story": life.of_node(node, user, request),
        "moment_form": form,
        "at": at,
        "holders": life.holders_at(CardShare.objects.filter(node=node), at, user) if at else [],
        "operates": holds.may_hold(user, [node]),
        "may_plan": zones.may_plan(user),
    }
    return render(request, "nodes/node.html", context)


def _kept(node: Node, user: User) -> dict[str, Any] | None:
    """The waiting job that the node is kept for, if the person may see it, and from when. What the scheduler has not
    said again for a while doesn't count: the job is held, or its project takes no work."""
    here = Decision.objects.filter(kept__nodes__contains=[node.hostname], at__gt=Now() - STALE)
    waiting = here.filter(job__state=JobState.QUEUED)
    found = waiting.order_by("-at").first()
    if found is None:
        return None
    return {"job": Job.objects.visible_to(user).filter(pk=found.job_id).first(), "begins_at": found.begins_at}


def find_node(hostname: str) -> Node:
    node = None
    if len(hostname) <= MAX_HOSTNAME and "\x00" not in hostname:
        node = Node.objects.filter(hostname=hostname).first()
    if node is None:
        raise Http404(_("There is no node of this name."))
    return node
