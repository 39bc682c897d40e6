"""Figures of what cards were like over time, as plain JSON; static/js/charts.js draws and colours them. A gap in the
readings is a gap in the line. No colours of the page here.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext as _

from ledger.sample_reading import Point, Reading
from portal.charts import TICKS, plain

WIDEST_GAP: Final = 3  # of the usual distance of points; what is wider is shown as a gap
MILLI: Final = 1000
Pick = Callable[[Reading], float]


@dataclass(frozen=True)
class Band:
    """Something that lasted, from `start` to `end`, or a moment when both are the same. `name` is a colour of
    static/css/health.css."""

    name: str
    start: dt.datetime
    end: dt.datetime


@dataclass(frozen=True)
class Mark:
    at: dt.datetime
    text: str


def card_figure(
    points: Sequence[Point], memory_mib: int, bands: Sequence[Band], marks: Sequence[Mark], span: tuple[Any, Any]
) -> dict[str, Any]:
    """Temperature, memory and load one below the other, with faults as marks and what else happened as bands."""
    import plotly.graph_objects as go  # half a second that only such pages pay

    figure = go.Figure(layout={"template": "none"})
    known = with_gaps(points)
    _range(figure, known, "temperature_c", _("temperature (°C)"), "line-temperature", "y")
    _range(figure, known, "memory_used_mib", _("memory used (MiB)"), "line-memory", "y2")
    for name, title, colour, dash in _loads():
        _line(figure, known, name, title, colour, "y3", dash=dash)
    figure.add_scatter(
        name=_("fault"),
        meta="mark-fault",
        mode="markers",
        x=[_wall(mark.at) for mark in marks],
        y=[1] * len(marks),
        yaxis="y4",
        text=[mark.text for mark in marks],
        hovertemplate="%{text}",
        marker={"symbol": "x", "size": 9},
    )
    figure.update_layout(
        shapes=[_shape(band) for band in bands],
        hovermode="x unified",
        margin={"l": 64, "r": 8, "t": 48, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=_time_axis(span) | {"anchor": "y3"},
        yaxis={"title": {"text": "°C"}, "domain": [0.68, 0.96]},
        yaxis2={"title": {"text": "MiB"}, "domain": [0.36, 0.62], "range": [0, memory_mib * 1.02]},
        yaxis3={"title": {"text": "%"}, "domain": [0, 0.3], "range": [0, 102]},
        yaxis4={"domain": [0.97, 1], "range": [0, 2], "visible": False, "fixedrange": True},
    )
    return plain(figure)


def lines_figure(
    lines: Sequence[tuple[str, Sequence[Point]]], name: str, unit: str, bands: Sequence[Band], span: tuple[Any, Any]
) -> dict[str, Any]:
    """One line a card, of one value."""
    import plotly.graph_objects as go  # as above

    figure = go.Figure(layout={"template": "none"})
    dashes = ("solid", "dash", "dot", "dashdot")
    for at, (title, points) in enumerate(lines):
        _line(figure, with_gaps(points), name, title, f"member-{at % 4 + 1}", "y", dash=dashes[at // 4 % len(dashes)])
    figure.update_layout(
        shapes=[_shape(band) for band in bands],
        hovermode="x unified",
        margin={"l": 64, "r": 8, "t": 40, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=_time_axis(span),
        yaxis={"title": {"text": unit}, "rangemode": "tozero"},
    )
    return plain(figure)


def job_figure(points: Sequence[Point], span: tuple[Any, Any]) -> dict[str, Any]:
    """The mean of the cards of a job: load, tensor cores and bandwidth above, memory below."""
    import plotly.graph_objects as go  # as above

    figure = go.Figure(layout={"template": "none"})
    known = with_gaps(points)
    for name, title, colour, dash in _loads():
        _line(figure, known, name, title, colour, "y", dash=dash)
    _range(figure, known, "memory_used_mib", _("memory used (MiB)"), "line-memory", "y2")
    figure.update_layout(
        hovermode="x unified",
        margin={"l": 64, "r": 8, "t": 40, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=_time_axis(span) | {"anchor": "y2"},
        yaxis={"title": {"text": "%"}, "domain": [0.52, 1], "range": [0, 102]},
        yaxis2={"title": {"text": "MiB"}, "domain": [0, 0.44], "rangemode": "tozero"},
    )
    return plain(figure)


def days_figure(days: Sequence[str], counts: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Stacked bars by day, one colour or pattern a kind."""
    import plotly.graph_objects as go  # as above

    figure = go.Figure(layout={"template": "none"})
    patterns = ("", "/", "x", "-")
    for at, (name, numbers) in enumerate(counts.items()):
        pattern = {"fillmode": "overlay", "size": 6, "solidity": 0.25, "shape": patterns[at // 4 % len(patterns)]}
        marker = {"line": {"width": 0}, "pattern": pattern}
        figure.add_bar(name=name, meta=f"member-{at % 4 + 1}", x=list(days), y=list(numbers), marker=marker)
    figure.update_layout(
        barmode="stack",
        hovermode="x unified",
        margin={"l": 64, "r": 8, "t": 40, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        xaxis={"type": "category", "title": {"text": _("day (UTC)")}},
        yaxis={"title": {"text": _("times")}, "rangemode": "tozero"},
    )
    return plain(figure)


def _loads() -> list[tuple[str, str, str, str]]:
    return [
        ("utilisation_pct", _("load (%)"), "line-load", "solid"),
        ("tensor_pct", _("tensor cores (%)"), "line-tensor", "dash"),
        ("memory_busy_pct", _("memory bandwidth (%)"), "line-bandwidth", "dot"),
    ]


def with_gaps(points: Sequence[Point]) -> list[Point | dt.datetime]:
    """The points, with a moment between two that are further apart than points usually are."""
    distances = [(after.at - before.at) for before, after in pairwise(points)]
    usual = statistics.median(distances) if distances else dt.timedelta(0)
    found: list[Point | dt.datetime] = []
    for point, distance in zip(points, [*distances, usual], strict=False):
        found.append(point)
        if distance > WIDEST_GAP * usual:
            found.append(point.at + usual)
    return found


def _values(known: Sequence[Point | dt.datetime], name: str, pick: Pick) -> list[float | None]:
    readings = [point.values[name] if isinstance(point, Point) else None for point in known]
    return [None if reading is None else round(pick(reading), 2) for reading in readings]


def _times(known: Sequence[Point | dt.datetime]) -> list[str]:
    return [_wall(point.at if isinstance(point, Point) else point) for point in known]


def _line(
    figure: Any, known: Sequence[Point | dt.datetime], name: str, title: str, colour: str, axis: str, *, dash: str
) -> None:
    figure.add_scatter(
        name=title,
        meta=colour,
        mode="lines",
        x=_times(known),
        y=_values(known, name, lambda reading: reading.mean),
        yaxis=axis,
        line={"width": 1.6, "dash": dash},
        connectgaps=False,
        hovertemplate="%{y:,.1f}",
    )


def _range(figure: Any, known: Sequence[Point | dt.datetime], name: str, title: str, colour: str, axis: str) -> None:
    """The mean as a line in a band from the least to the most, which is cut where the line is."""
    x: list[str | None] = []
    y: list[float | None] = []
    for told, stretch in groupby(known, lambda one: isinstance(one, Point) and one.values[name] is not None):
        if told:
            part = list(stretch)
            there, back = _times(part), list(reversed(part))
            x += [*there, *_times(back), None]
            y += [*_values(part, name, lambda r: r.least), *_values(back, name, lambda r: r.most), None]
    figure.add_scatter(
        meta=colour,
        mode="lines",
        x=x,
        y=y,
        yaxis=axis,
        line={"width": 0},
        fill="toself",
        showlegend=False,
        hoverinfo="skip",
    )
    _line(figure, known, name, title, colour, axis, dash="solid")


def _shape(band: Band) -> dict[str, Any]:
    moment = band.start == band.end
    place = {"xref": "x", "yref": "paper", "x0": _wall(band.start), "x1": _wall(band.end), "y0": 0, "y1": 1}
    shown = {"line": {"width": 1, "dash": "dot"}} if moment else {"line": {"width": 0}, "opacity": 0.25}
    return {"type": "line" if moment else "rect", "name": band.name, "layer": "below", **place, **shown}


def _time_axis(span: tuple[dt.datetime, dt.datetime]) -> dict[str, Any]:
    name = timezone.get_current_timezone_name()
    edges = [_wall(moment) for moment in span]
    return {"title": {"text": _("time (%(zone)s)") % {"zone": name}}, "type": "date", "range": edges, **TICKS}


def _wall(moment: dt.datetime) -> str:
    return timezone.localtime(moment).replace(tzinfo=None).isoformat(timespec="seconds")
