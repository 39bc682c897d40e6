"""What a card, or each card of a node, was like over the last hour, day or month: a part of its page with a figure and
the same numbers as a table, as JSON, and as a file. Everybody signed in sees machines. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Exists, Func, OuterRef, Q, Value
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.http import require_safe

from ledger import sample_reading
from ledger.clock import database_now
from ledger.models import Card, CardSeat, Fault, FaultEvent, Hold, Node, NodeBoot
from ledger.sample_reading import NAMES, Point, Span
from ledger.vocabulary import HoldKind
from portal import exports, health_charts, labels
from portal.health_charts import Band, Mark
from portal.health_words import fault_name
from portal.labels import Text
from portal.views.cards import find_card
from portal.views.gate import signed_in
from portal.views.nodes import find_node
from scheduler.models import ZoneMove

MOST_EVENTS: Final = 300
MOST_ROWS: Final = 60  # of each kind of what happened
UNITS: Final[dict[str, tuple[Text, str]]] = {
    "temperature_c": (gettext_lazy("temperature"), "°C"),
    "memory_used_mib": (gettext_lazy("memory used"), "MiB"),
    "utilisation_pct": (pgettext_lazy("card", "load"), "%"),
    "tensor_pct": (gettext_lazy("tensor cores"), "%"),
    "memory_busy_pct": (gettext_lazy("memory bandwidth"), "%"),
    "power_mw": (gettext_lazy("power"), "mW"),
}


@dataclass(frozen=True)
class Window:
    """A length of time, in how long buckets it is shown, and whether the hours are read instead of the samples."""

    name: str
    title: Text
    length: dt.timedelta
    step: dt.timedelta
    hourly: bool = False


WINDOWS: Final = {
    window.name: window
    for window in (
        Window("1h", gettext_lazy("1 hour"), dt.timedelta(hours=1), dt.timedelta(seconds=10)),
        Window("6h", gettext_lazy("6 hours"), dt.timedelta(hours=6), dt.timedelta(minutes=1)),
        Window("24h", gettext_lazy("24 hours"), dt.timedelta(hours=24), dt.timedelta(minutes=5)),
        Window("7d", gettext_lazy("7 days"), dt.timedelta(days=7), dt.timedelta(hours=1), True),
        Window("30d", gettext_lazy("30 days"), dt.timedelta(days=30), dt.timedelta(hours=2), True),
    )
}
USUAL: Final = "6h"


@dataclass(frozen=True)
class Happened:
    """A line of what happened in the window. `end` None: it still goes on; the same as `start`: a moment."""

    start: dt.datetime
    end: dt.datetime | None
    what: str
    detail: str = ""
    band: str = ""  # its colour; "" = a fault


def window_of(request: HttpRequest) -> Window:
    return WINDOWS.get(request.GET.get("window", ""), WINDOWS[USUAL])


class History:
    """Of cards where they sat in a window that ends now."""

    def __init__(self, seats: Sequence[CardSeat], window: Window) -> None:
        self.window, self.until = window, database_now()
        self.since = self.until - window.length
        self.seats = [seat for seat in seats if seat.period.upper is None or seat.period.upper > self.since]
        cards = {seat.card_id for seat in seats}
        spans = [Span(card, self.since, self.until) for card in sorted(cards)]
        self.points = sample_reading.points(spans, step=window.step, hourly=window.hourly)

    @property
    def span(self) -> tuple[dt.datetime, dt.datetime]:
        return self.since, self.until

    def happened(self) -> list[Happened]:
        """Faults, holds, zone plans and boots of these cards and of their nodes while they sat there, in order."""
        rows = [*self._faults(), *self._holds(), *self._moves(), *self._boots()]
        return sorted(rows, key=lambda row: row.start)

    def bands(self, rows: Sequence[Happened]) -> list[Band]:
        """Those with a colour, cut to the window."""
        cut = [(row, max(row.start, self.since), row.end or self.until) for row in rows if row.band]
        return [Band(row.band, start, min(end, self.until)) for row, start, end in cut]

    def marks(self) -> list[Mark]:
        """The events of faults that were counted in the window, the newest ones; a fault without events by when it was
        first and last seen."""
        faults = {fault.pk: fault for fault in self._fault_rows()}
        events = FaultEvent.objects.filter(fault__in=faults, at__gte=self.since, at__lt=self.until).order_by("-at")
        found = [(event.at, event.fault_id) for event in events[:MOST_EVENTS]]
        told = {pk for _at, pk in found}
        for fault in faults.values():
            if fault.pk not in told:
                found += [(at, fault.pk) for at in {fault.first_seen, fault.last_seen} if at >= self.since]
        return [Mark(at, fault_name(faults[pk].kind, faults[pk].code)) for at, pk in sorted(found)]

    def _places(self, **while_there: Any) -> Q:
        """The cards themselves, and of a node what met this while one of them sat there."""
        seats = CardSeat.objects.filter(pk__in=[seat.pk for seat in self.seats], node=OuterRef("node"))
        return Q(card__in={seat.card_id for seat in self.seats}) | Q(Exists(seats.filter(**while_there)), card=None)

    def _fault_rows(self) -> list[Fault]:
        lasted = Func(OuterRef("first_seen"), OuterRef("last_seen"), Value("[]"), function="tstzrange")
        places = self._places(period__overlap=lasted)
        rows = Fault.objects.filter(places, first_seen__lt=self.until, last_seen__gte=self.since)
        return list(rows.order_by("-last_seen")[:MOST_ROWS])

    def _faults(self) -> list[Happened]:
        return [
            Happened(
                fault.first_seen,
                fault.cleared_at,
                _("fault %(kind)s") % {"kind": fault_name(fault.kind, fault.code)},
                " · ".join(filter(None, [_("%(n)d times") % {"n": fault.count}, fault.message])),
            )
            for fault in self._fault_rows()
        ]

    def _holds(self) -> list[Happened]:
        places = self._places(period__overlap=OuterRef("period"))
        holds = Hold.objects.filter(places, period__overlap=(self.since, self.until)).order_by("-pk")
        return [
            Happened(
                hold.period.lower,
                hold.period.upper,
                labels.text("hold", hold.kind),
                hold.reason,
                "band-drill" if hold.kind == HoldKind.DRILL else "band-hold",
            )
            for hold in holds[:MOST_ROWS]
        ]

    def _moves(self) -> list[Happened]:
        nodes = {seat.node_id for seat in self.seats}
        moves = ZoneMove.objects.filter(Q(moved_at=None) | Q(moved_at__gte=self.since), node__in=nodes)
        rows = moves.filter(plan__created_at__lt=self.until).select_related("plan", "to_zone").order_by("-pk")
        return [
            Happened(
                move.plan.created_at,
                move.moved_at or move.plan.ended_at,
                _("zone plan %(n)d") % {"n": move.plan_id},
                _("to zone %(zone)s") % {"zone": move.to_zone.title},
                "band-plan",
            )
            for move in rows[:MOST_ROWS]
            if (move.moved_at or move.plan.ended_at or self.until) >= self.since
        ]

    def _boots(self) -> list[Happened]:
        seats = CardSeat.objects.filter(pk__in=[seat.pk for seat in self.seats], node=OuterRef("node"))
        there = Exists(seats.filter(period__contains=OuterRef("first_seen")))
        boots = NodeBoot.objects.filter(there, first_seen__gte=self.since, first_seen__lt=self.until)
        return [
            Happened(boot.first_seen, boot.first_seen, _("first report after a boot"), boot.boot_id[:8], "band-boot")
            for boot in boots.order_by("-first_seen")[:MOST_ROWS]
        ]


def _seats_of(card: Card) -> list[CardSeat]:
    return list(card.seats.select_related("node", "card").order_by("-period")[:20])


@require_safe
@signed_in
def card(request: HttpRequest, uuid: str) -> HttpResponseBase:
    """The part of the card's page; `?export=csv` or xlsx is the same as a file."""
    about = find_card(uuid)
    history = History(_seats_of(about), window_of(request))
    points = history.points.get(about.pk, [])
    if write := exports.WRITERS.get(request.GET.get("export", "")):
        return write("card-history", _about(history, about.uuid), _titles(), _file_lines(points))
    happened = history.happened()
    bands = history.bands(happened)
    context = {
        "card": about,
        "windows": list(WINDOWS.values()),
        "window": history.window,
        "points": list(reversed(points)),
        "happened": list(reversed(happened)),
        "since": history.since,
        "until": history.until,
        "names": NAMES,
    }
    if points:
        context["figure"] = health_charts.card_figure(points, about.memory_mib, bands, history.marks(), history.span)
    return render(request, "health/card_history.html", context)


@require_safe
@signed_in
def card_data(request: HttpRequest, uuid: str) -> HttpResponseBase:
    """The same for programs: each value as [least, mean, most], null where no sample told it."""
    about = find_card(uuid)
    history = History(_seats_of(about), window_of(request))
    answer = {
        "card": about.uuid,
        "window": history.window.name,
        "since": history.since,
        "until": history.until,
        "step_s": int(history.window.step.total_seconds()),
        "points": [_as_data(point) for point in history.points.get(about.pk, [])],
        "happened": [
            {"start": row.start, "end": row.end, "what": row.what, "detail": row.detail, "kind": row.band or "fault"}
            for row in history.happened()
        ],
        "faults": [{"at": mark.at, "what": mark.text} for mark in history.marks()],
    }
    return JsonResponse(answer)


def _as_data(point: Point) -> dict[str, Any]:
    told = {name: value and [value.least, round(value.mean, 2), value.most] for name, value in point.values.items()}
    return {"at": point.at, "samples": point.samples, **told}


def _titles() -> list[str]:
    heads = [_("time"), _("samples")]
    for name in NAMES:
        title, unit = UNITS[name]
        heads += [f"{title}, {word} ({unit})" for word in (_("least"), _("mean"), _("most"))]
    return heads


def _file_lines(points: Sequence[Point]) -> list[list[exports.Cell]]:
    lines: list[list[exports.Cell]] = []
    for point in points:
        line: list[exports.Cell] = [point.at, point.samples]
        for name in NAMES:
            value = point.values[name]
            line += [None] * 3 if value is None else [value.least, round(value.mean, 2), value.most]
        lines.append(line)
    return lines


def _about(history: History, name: str) -> list[tuple[str, str]]:
    return [
        (_("Card"), name),
        (_("Made at"), timezone.localtime().isoformat(timespec="seconds")),
        (_("Time zone"), timezone.get_current_timezone_name()),
        (_("Window"), str(history.window.title)),
    ]


@require_safe
@signed_in
def node(request: HttpRequest, hostname: str) -> HttpResponseBase:
    """The part of the node's page: one value of all its cards."""
    about: Node = find_node(hostname)
    seats = list(CardSeat.objects.filter(node=about, period__upper_inf=True).select_related("card").order_by("slot"))
    history = History(seats, window_of(request))
    value = request.GET.get("value", "")
    name = value if value in UNITS else "temperature_c"
    title, unit = UNITS[name]
    lines = [(_("slot %(n)s") % {"n": seat.slot}, history.points.get(seat.card_id, [])) for seat in seats]
    happened = history.happened()
    context: dict[str, Any] = {
        "node": about,
        "windows": list(WINDOWS.values()),
        "window": history.window,
        "value": name,
        "values": [(key, words[0]) for key, words in UNITS.items()],
        "title": title,
        "unit": unit,
        "rows": [
            (seat, sample_reading.whole(history.points.get(seat.card_id, []), name), history.points.get(seat.card_id))
            for seat in seats
        ],
        "happened": list(reversed(happened)),
        "since": history.since,
        "until": history.until,
    }
    if any(points for _title, points in lines):
        bands = history.bands(happened)
        context["figure"] = health_charts.lines_figure(lines, name, f"{title} ({unit})", bands, history.span)
    return render(request, "health/node_history.html", context)
