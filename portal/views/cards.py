"""Cards: the list of all in their seats, and one card's page with its own life, wherever it sat. Reads only."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Max
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext
from django.views.decorators.http import require_safe

from ledger import holds
from ledger.models import Card, CardSeat, CardShare, CardStatus, Fault, Hold
from portal import labels
from portal.forms import card_models, zone_choices
from portal.tables import Action, Column, Table
from portal.views import life
from portal.views.fleet_rows import NOW, CardRow, filtered_seats, seat_rows
from portal.views.gate import signed_in, viewer
from portal.zone_forms import CardFilter, MomentForm

MAX_UUID: Final = 100
STATUS: Final = "card__status__"


def _state(row: CardRow) -> str:
    """What the list says in one word, the most urgent first; for files."""
    if row.holds:
        return labels.text("hold", row.holds[-1].kind)
    if row.node_held:
        return pgettext("card", "its node is held")
    if row.seat.node.state != "up":
        return labels.text("node", row.seat.node.state)
    return pgettext("card", "taken") if row.tenants else pgettext("card", "free")


def _status(name: str) -> Any:
    return lambda row: getattr(row.status, name, None)


COLUMNS: Final = (
    Column("card", gettext_lazy("Card"), lambda r: r.card.uuid, "cards/cells/card.html", ("card__uuid",), always=True),
    Column("state", gettext_lazy("State"), _state, "cards/cells/state.html"),
    Column("model", gettext_lazy("Model"), lambda r: r.card.model, sort=("card__model",)),
    Column("node", gettext_lazy("Node"), lambda r: r.seat.node.hostname, "cards/cells/node.html", ("node__hostname",)),
    Column("slot", gettext_lazy("Slot"), lambda r: r.seat.slot, sort=("slot",), number=True),
    Column(
        "memory",
        gettext_lazy("Memory (MiB)"),
        lambda r: r.card.memory_mib,
        "cards/cells/memory.html",
        ("card__memory_mib",),
        number=True,
    ),
    Column(
        "taken",
        gettext_lazy("Taken (MiB)"),
        lambda r: r.taken_mib,
        "cards/cells/taken.html",
        ("taken_mib",),
        number=True,
    ),
    Column(
        "temperature",
        gettext_lazy("Temperature (°C)"),
        _status("temperature_c"),
        sort=(f"{STATUS}temperature_c",),
        number=True,
    ),
    Column(
        "load", gettext_lazy("Load (%)"), _status("utilisation_pct"), sort=(f"{STATUS}utilisation_pct",), number=True
    ),
    Column("faults", gettext_lazy("Open faults"), lambda r: r.faults, "cards/cells/faults.html", number=True),
    Column(
        "power", gettext_lazy("Power (mW)"), _status("power_mw"), sort=(f"{STATUS}power_mw",), number=True, shown=False
    ),
    Column(
        "used",
        gettext_lazy("Memory in use (MiB)"),
        _status("memory_used_mib"),
        sort=(f"{STATUS}memory_used_mib",),
        number=True,
        shown=False,
    ),
    Column("heard", gettext_lazy("Reported"), _status("received_at"), sort=(f"{STATUS}received_at",), shown=False),
)


@require_safe
@signed_in
def card_list(request: HttpRequest) -> HttpResponseBase:
    user, simulated = viewer(request), request.GET.get("hardware") == "simulated"
    models = [(model, model) for model in card_models(simulated=simulated)]
    form = CardFilter(request.GET, known={"zone": zone_choices(), "model": models})
    acts = [
        Action(reverse("cards-hold"), gettext_lazy("Hold")),
        Action(reverse("cards-return"), gettext_lazy("Return to the pool")),
    ]
    heard = CardStatus.objects.filter(card__seats__period__upper_inf=True, card__seats__node__simulated=form.simulated)
    table = Table(
        request,
        "cards",
        COLUMNS,
        filtered_seats(form.chosen, simulated=form.simulated),
        form=form,
        decorate=lambda page: seat_rows(page, user),
        default_sort="node",
        order=("slot", "pk"),
        key=lambda row: str(row.card.uuid),
        actions=acts if user.operates_somewhere else (),
        age=heard.aggregate(at=Max("received_at"))["at"],
    )
    if (file := table.export()) is not None:
        return file
    filtered = bool(form.chosen.keys() - {"hardware"})
    context = {"form": form, "t": table.context(), "simulated": form.simulated, "filtered": filtered}
    return render(request, "cards/list.html", context)


@require_safe
@signed_in
def card_page(request: HttpRequest, uuid: str) -> HttpResponseBase:
    card, user = find_card(uuid), viewer(request)
    seats = list(card.seats.select_related("node", "block").order_by("-period")[:20])
    now = CardSeat.objects.filter(NOW, card=card).select_related("card", "card__status", "node", "block").first()
    form = MomentForm(request.GET, known={})
    at = form.chosen.get("at")
    context = {
        "card": card,
        "seat": now,
        "row": seat_rows([now], user)[0] if now else None,
        "seats": seats,
        "holds": Hold.objects.filter(NOW, card=card).select_related("by").order_by("pk"),
        "node_holds": Hold.objects.filter(NOW, node=now.node).order_by("pk") if now else [],
        "faults": Fault.objects.filter(card=card, cleared_at=None).select_related("card").order_by("-last_seen")[:20],
        "status": CardStatus.objects.filter(card=card).first(),
        "story": life.of_card(card, user, request),
        "moment_form": form,
        "at": at,
        "holders": life.holders_at(CardShare.objects.filter(card=card), at, user) if at else [],
        "operates": holds.may_hold(user, [], [card]),
    }
    return render(request, "cards/card.html", context)


def find_card(uuid: str) -> Card:
    card = None
    if len(uuid) <= MAX_UUID and "\x00" not in uuid:
        card = Card.objects.filter(uuid=uuid).first()
    if card is None:
        raise Http404(_("There is no card of this name."))
    return card
