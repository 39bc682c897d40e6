"""Hold, drain and return nodes or cards, one or many: a preview of what stands on them and what will happen, then the
act with its reason and a fresh password. Only operators and admins, and operators of a zone for what is in it; the
writing is ledger.holds's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from ledger import holds
from ledger.errors import Refused
from ledger.models import Card, CardSeat, Hold, Node, User
from ledger.vocabulary import HoldKind
from portal.forms import ReasonForm
from portal.labels import Text
from portal.sudo import needs_sudo
from portal.views.fleet_rows import NOW
from portal.views.gate import request_id, viewer
from portal.views.ops_gate import for_operators_of_machines
from portal.views.plan_parts import Work, work_on, work_on_cards
from portal.zone_forms import HoldForm

MOST_KEYS: Final = 500
NAMED: Final = 5
TITLES: Final[Mapping[tuple[str, str], Text]] = {
    ("node", "hold"): gettext_lazy("Hold nodes"),
    ("node", "drain"): gettext_lazy("Drain nodes"),
    ("node", "return"): gettext_lazy("Return nodes to the pool"),
    ("card", "hold"): gettext_lazy("Hold cards"),
    ("card", "return"): gettext_lazy("Return cards to the pool"),
}
MEANINGS: Final[Mapping[str, Text]] = {
    "hold": gettext_lazy("From this moment nothing new is placed on what is held. What runs there goes on."),
    "drain": gettext_lazy("Nothing new is placed on a draining node; it stands empty once what runs there has ended."),
    "return": gettext_lazy("What is returned is offered to waiting jobs at once."),
}


@dataclass
class Target:
    """One node or card of the preview. `stay` are holds that a person can't end."""

    key: str
    node: Node | None
    card: Card | None
    holds: list[Hold]
    work: Work | None

    @property
    def ending(self) -> list[Hold]:
        return [hold for hold in self.holds if holds.returnable(hold)]

    @property
    def staying(self) -> list[Hold]:
        return [hold for hold in self.holds if not holds.returnable(hold)]


@require_http_methods(["GET", "HEAD", "POST"])
@for_operators_of_machines
def act(request: HttpRequest, of: str, verb: str) -> HttpResponseBase:
    """The preview changes nothing; the table posts many keys, links send one. Confirming it acts."""
    if request.method == "POST" and "confirm" in request.POST:
        return _confirmed(request, of, verb)
    given = request.POST if request.method == "POST" else request.GET
    return _preview(request, of, verb, given.getlist("key"), _form(verb))


@needs_sudo
def _confirmed(request: HttpRequest, of: str, verb: str) -> HttpResponseBase:
    keys, form = request.POST.getlist("key"), _form(verb, request.POST)
    targets, complaint = _chosen(of, keys, viewer(request))
    if not complaint and form.is_valid():
        try:
            count = WRITERS[verb](targets, form, request)
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _done(verb, count))
            return _back(of, targets)
    return _preview(request, of, verb, keys, form)


def _form(verb: str, data: Any = None) -> ReasonForm:
    return HoldForm(data) if verb == "hold" else ReasonForm(data)


def _preview(request: HttpRequest, of: str, verb: str, keys: Sequence[str], form: ReasonForm) -> HttpResponseBase:
    targets, complaint = _chosen(of, keys, viewer(request))
    context = {
        "form": form,
        "of": of,
        "verb": verb,
        "title": TITLES[of, verb],
        "meaning": MEANINGS[verb],
        "targets": targets,
        "complaint": complaint,
        "idle": all(target.work is None for target in targets),
        "vain": verb == "return" and not any(target.ending for target in targets),
    }
    return render(request, "nodes/act.html", context, status=422 if complaint or form.errors else 200)


def _chosen(of: str, keys: Sequence[str], user: User) -> tuple[list[Target], str]:
    """What is chosen, and what is wrong with the choice ("" = nothing)."""
    wanted = list(dict.fromkeys(keys))
    targets, unknown = _targets(of, wanted[:MOST_KEYS], user)
    if not holds.may_hold(user, **_things(targets)):
        raise PermissionDenied
    return targets, _complaint(wanted, unknown)


def _targets(of: str, keys: Sequence[str], user: User) -> tuple[list[Target], list[str]]:
    """What these keys name, in their order, and the keys that name nothing."""
    wanted = [key for key in keys if "\x00" not in key]
    found: dict[str, Target] = {}
    if of == "node":
        for node in Node.objects.filter(hostname__in=wanted):
            found[node.hostname] = Target(node.hostname, node, None, [], None)
    else:
        cards = {card.pk: card for card in Card.objects.filter(uuid__in=wanted)}
        seats = CardSeat.objects.filter(NOW, card__in=cards).select_related("node")
        nodes = {seat.card_id: seat.node for seat in seats}
        for card in cards.values():
            found[card.uuid] = Target(card.uuid, nodes.get(card.pk), card, [], None)
    _fill(of, list(found.values()), user)
    return [found[key] for key in keys if key in found], [key for key in keys if key not in found]


def _fill(of: str, targets: Sequence[Target], user: User) -> None:
    """The holds of the targets themselves, and the work on their nodes (for a card: on that card)."""
    nodes = [target.node for target in targets if target.node is not None]
    cards = [target.card for target in targets if target.card is not None]
    standing = holds.open_holds(nodes=nodes if of == "node" else (), cards=cards)
    work = (
        work_on([node.pk for node in nodes], user) if of == "node" else work_on_cards([card.pk for card in cards], user)
    )
    for target in targets:
        thing = target.card if target.card is not None else target.node
        ident = thing.pk if thing is not None else 0
        target.holds = [h for h in standing if ident == (h.card_id if of == "card" else h.node_id)]
        target.work = work.get(ident)


def _complaint(keys: Sequence[str], unknown: Sequence[str]) -> str:
    if not keys:
        return _("Nothing was chosen. Go back and tick the rows that it is about.")
    if len(keys) > MOST_KEYS:
        return _("At most %(n)d at once; choose fewer.") % {"n": MOST_KEYS}
    if unknown:
        text = _("These are not registered; nothing was changed: %(keys)s.")
        return text % {"keys": ", ".join(key[:80].replace("\x00", "�") for key in unknown[:NAMED])}
    return ""


Writer = Callable[[Sequence[Target], Any, HttpRequest], int]


def _things(targets: Sequence[Target]) -> dict[str, Any]:
    cards = [target.card for target in targets if target.card is not None]
    nodes = [target.node for target in targets if target.card is None and target.node is not None]
    return {"nodes": nodes, "cards": cards}


def _common(form: Any, request: HttpRequest) -> dict[str, Any]:
    return {
        "reason": form.cleaned_data["reason"],
        "actor": viewer(request),
        "via": "page",
        "request_id": request_id(request),
    }


def _hold(targets: Sequence[Target], form: Any, request: HttpRequest) -> int:
    kind = HoldKind(form.cleaned_data["kind"])
    return len(holds.hold_many(kind=kind, **_things(targets), **_common(form, request)))


def _drain(targets: Sequence[Target], form: Any, request: HttpRequest) -> int:
    return len(holds.hold_many(kind=HoldKind.DRAIN, **_things(targets), **_common(form, request)))


def _return(targets: Sequence[Target], form: Any, request: HttpRequest) -> int:
    ended = holds.return_many(**_things(targets), **_common(form, request))
    return len({(hold.node_id, hold.card_id) for hold in ended})


WRITERS: Final[Mapping[str, Writer]] = {"hold": _hold, "drain": _drain, "return": _return}


def _done(verb: str, count: int) -> str:
    texts = {
        "hold": ngettext("%(n)d is held.", "%(n)d are held.", count),
        "drain": ngettext("%(n)d drains.", "%(n)d drain.", count),
        "return": ngettext("%(n)d is back in the pool.", "%(n)d are back in the pool.", count),
    }
    return texts[verb] % {"n": count}


def _back(of: str, targets: Sequence[Target]) -> HttpResponseBase:
    """To the page of the one that it was about, else to the list of their kind of hardware."""
    if len(targets) == 1:
        return redirect(of, targets[0].key)
    simulated = any(target.node is not None and target.node.simulated for target in targets)
    response = redirect("nodes" if of == "node" else "cards")
    response["Location"] += "?hardware=simulated" if simulated else ""
    return response
