"""The health board: all cards on one table whatever form they are used in, with their temperature, memory, load,
counted faults and owner; the same as a heat map and by rack. Everybody signed in reads it; whose a card is,
only who may see that job. Reads only.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django.db.models import Sum
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ledger.clock import database_now
from ledger.models import QualityCount, User
from portal import health_words, labels, map_words
from portal.health_forms import HealthFilter, HeatForm
from portal.health_words import Health
from portal.tables import Column, Table
from portal.views import health_rows
from portal.views.fleet_cells import place_name
from portal.views.fleet_map import ANY_NODE
from portal.views.gate import signed_in, viewer
from portal.views.health_rows import BoardRow, Place, RackLine


def _status(name: str) -> Any:
    return lambda row: getattr(row.status, name, None)


def _owners(row: BoardRow) -> str:
    names = {owner.project or _("another project") for owner in row.owners}
    return ", ".join(sorted(names))


def _last_fault(row: BoardRow) -> str:
    return f"{row.last_fault['name']} {row.last_fault['at']}" if row.last_fault else ""


def _form(row: BoardRow) -> str:
    return labels.text("form", row.seat.form_now) if row.seat.form_now else ""


def _number(name: str, title: Any, told: str, **values: Any) -> Column:
    """A value that the card itself tells; empty, never 0, when it doesn't."""
    return Column(name, title, _status(told), sort=(told,), number=True, **values)


CELLS: Final = "health/cells/"
COLUMNS: Final = (
    Column("card", gettext_lazy("Card"), lambda r: r.card.uuid, "cards/cells/card.html", ("card__uuid",), always=True),
    Column(
        "health",
        gettext_lazy("Health"),
        lambda r: str(health_words.LOOKS[r.health].label),
        f"{CELLS}health.html",
        ("health",),
    ),
    Column("node", gettext_lazy("Node"), lambda r: r.seat.node.hostname, "cards/cells/node.html", ("node__hostname",)),
    _number("temperature", gettext_lazy("Temperature (°C)"), "temperature_c"),
    _number("used", gettext_lazy("Memory used (MiB)"), "memory_used_mib"),
    Column("memory", gettext_lazy("of (MiB)"), lambda r: r.card.memory_mib, sort=("card__memory_mib",), number=True),
    _number("load", gettext_lazy("Load (%)"), "utilisation_pct"),
    _number("tensor", gettext_lazy("Tensor cores (%)"), "tensor_pct"),
    _number("bandwidth", gettext_lazy("Memory bandwidth (%)"), "memory_busy_pct"),
    Column("power", gettext_lazy("Power (W)"), lambda r: r.power_w, sort=("power_mw",), number=True),
    Column(
        "faults",
        gettext_lazy("Open faults"),
        lambda r: r.seat.fault_count,
        f"{CELLS}faults.html",
        ("fault_count", "fault_times"),
        number=True,
    ),
    Column(
        "times",
        gettext_lazy("Counted (times)"),
        lambda r: r.seat.fault_times,
        sort=("fault_times",),
        number=True,
    ),
    Column("last", gettext_lazy("Last fault"), _last_fault, f"{CELLS}last.html", ("last_fault_at",)),
    Column("form", gettext_lazy("Form in use"), _form, f"{CELLS}form.html", ("form_now",)),
    Column("owner", gettext_lazy("Owner now"), _owners, f"{CELLS}owners.html", ("owner",)),
    Column("rack", gettext_lazy("Rack"), lambda r: r.seat.node.rack, sort=("node__rack",)),
    Column("zone", gettext_lazy("Zone"), lambda r: r.seat.zone_title, sort=("zone_title",)),
    Column("model", gettext_lazy("Model"), lambda r: r.card.model, sort=("card__model",)),
    Column("age", gettext_lazy("Reading (s old)"), lambda r: r.age_s, f"{CELLS}age.html", ("heard",), number=True),
    Column("slot", gettext_lazy("Slot"), lambda r: r.seat.slot, sort=("slot",), number=True, shown=False),
    Column("site", gettext_lazy("Site"), lambda r: r.seat.node.site, sort=("node__site",), shown=False),
    Column("room", gettext_lazy("Room"), lambda r: r.seat.node.room, sort=("node__room",), shown=False),
    Column(
        "why",
        gettext_lazy("Why it is held"),
        lambda r: "; ".join(hold.reason for hold in r.holds),
        f"{CELLS}holds.html",
        shown=False,
    ),
)


class Board:
    """The board as one request asks for it."""

    def __init__(self, request: HttpRequest) -> None:
        self.user, self.now = viewer(request), database_now()
        self.simulated = request.GET.get("hardware") == "simulated"
        self.lines = health_rows.rack_lines(simulated=self.simulated, now=self.now)
        racks = {"\t".join(line.place): line.place for line in self.lines}
        named = [(key, place_name(place) or _("no rack")) for key, place in racks.items()]
        self.form = HealthFilter(request.GET, known=health_rows.choices(simulated=self.simulated) | {"rack": named})
        self.place: Place | None = racks.get(self.form.chosen.get("rack", ""))
        self.table = Table(
            request,
            "health",
            COLUMNS,
            self._records(),
            form=self.form,
            decorate=lambda page: health_rows.board_rows(page, self.user, self.now),
            default_sort="health",
            order=("node__hostname", "slot", "pk"),
        )

    def _records(self) -> Any:
        chosen = self.form.chosen | {"rack": self.place}
        return health_rows.filtered(chosen, self.user, simulated=self.simulated, now=self.now)

    @property
    def hardware(self) -> str:
        return "simulated" if self.simulated else "real"

    def context(self) -> dict[str, Any]:
        total = health_rows.summed(self.lines)
        return {
            "form": self.form,
            "t": self.table.context(),
            "simulated": self.simulated,
            "hardware": self.hardware,
            "filtered": bool(self.form.chosen.keys() - {"hardware"}),
            "now": self.now,
            "total": total,
            "counts": [(health, health_words.MEANINGS[health], total.counts[health]) for health in Health],
            "silent_nodes": total.nodes[Health.SILENT],
            "quality": _quality_today(self.user, self.now),
            "healths": list(Health),
            "lines": [self._line(line) for line in self.lines],
            "query": self.table.request.GET.urlencode(),
        }

    def _line(self, line: RackLine) -> dict[str, Any]:
        query = urlencode({"hardware": self.hardware, "rack": "\t".join(line.place)})
        return {"line": line, "cards": f"{reverse('health')}?{query}"}

    def map_context(self, request: HttpRequest) -> dict[str, Any]:
        """What the script of the heat map needs."""
        heat = HeatForm(request.GET, known={})
        query = {"hardware": self.hardware} | ({"rack": self.form.chosen["rack"]} if self.place else {})
        kept = [(name, text) for name, text in request.GET.items() if name not in ("colour", "export")]
        return {
            "heat": heat,
            "kept": kept,
            "colour": heat.chosen.get("colour", "health"),
            "texts": map_words.texts(),
            "source": f"{reverse('fleet-map-data')}?{urlencode(query)}",
            "node_address": reverse("node", args=[ANY_NODE]),
            "any_node": ANY_NODE,
        }


def _quality_today(user: User, now: dt.datetime) -> int | None:
    """How often telemetry was not as it should be on this day of UTC; None for who does not read that page."""
    if not user.sees_everything:
        return None
    counts = QualityCount.objects.filter(day=now.astimezone(dt.UTC).date())
    return counts.aggregate(n=Sum("count"))["n"] or 0


@require_safe
@signed_in
def board(request: HttpRequest) -> HttpResponseBase:
    page = Board(request)
    if (file := page.table.export()) is not None:
        return file
    return render(request, "health/board.html", page.context() | page.map_context(request))


@require_safe
@signed_in
def part(request: HttpRequest) -> HttpResponseBase:
    """The parts of the page that change; htmx asks for them every few seconds."""
    return render(request, "health/board_part.html", Board(request).context() | {"polled": True})
