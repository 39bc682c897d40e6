"""Plotly figures as plain JSON; static/js/charts.js draws them. No colours of the page here: the script sets those
that depend on light or dark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.stacks import EVERYTHING, Balance, Band, lines_url

TICKS: Final = {"tickformat": "%H:%M\n%Y-%m-%d", "hoverformat": "%Y-%m-%d %H:%M", "tickangle": 0, "nticks": 9}
DAYS: Final = {"tickformat": "%m-%d\n%Y", "hoverformat": "%Y-%m-%d", "tickangle": 0, "nticks": 12}
PATTERN: Final = {"fillmode": "overlay", "size": 6, "solidity": 0.25}
NO_LINES: Final = {"showgrid": False, "zeroline": False, "fixedrange": True}
HOURS_A_TICK: Final = 3
NEARLY_A_DAY: Final = dt.timedelta(hours=20)  # a day of the reader may be 23 hours long


def bar_rows(series: Sequence[Balance], bands: Sequence[Band], cut: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a bar: its start and end, and for each band the average cards, the exact amount and its ledger lines."""
    rows = []
    for balance in series:
        start, end = dt.datetime.fromisoformat(balance["from"]), dt.datetime.fromisoformat(balance["to"])
        seconds = (end - start).total_seconds()
        cells = [
            {
                "cards": round(band.amount(balance) / seconds, 2),
                "exact": band.amount(balance["exact"]),
                "url": lines_url(start, end, cut, band.lines),
            }
            for band in bands
        ]
        capacity = {
            "cards": round(balance["capacity"] / seconds, 2),
            "exact": balance["exact"]["capacity"],
            "url": lines_url(start, end, cut, EVERYTHING),
        }
        rows.append({"start": start, "end": end, "cells": cells, "capacity": capacity})
    return rows


def balance_figure(rows: Sequence[Mapping[str, Any]], bands: Sequence[Band]) -> dict[str, Any]:
    """Stacked bars in average cards; times in the reader's zone, which stands on the axis."""
    import plotly.graph_objects as go  # half a second that only this page pays

    by_day = all(row["end"] - row["start"] >= NEARLY_A_DAY for row in rows[1:-1]) and len(rows) > 2
    zone = None if by_day else _fixed_zone(rows)
    spans = [(_wall(row["start"], zone), _wall(row["end"], zone)) for row in rows]
    figure = go.Figure(layout={"template": "none"})
    for number, band in enumerate(bands):
        figure.add_bar(
            name=band.name,
            meta=band.meta,
            x=[(start + (end - start) / 2).strftime("%Y-%m-%d %H:%M:%S") for start, end in spans],
            y=[row["cells"][number]["cards"] for row in rows],
            width=[(end - start).total_seconds() * 1000 for start, end in spans],
            marker={"line": {"width": 0}, "pattern": {**PATTERN, "shape": band.pattern}},
            hovertemplate="%{y:,.2f}",
        )
    name = timezone.get_current_timezone_name() if zone is None else _zone_name(zone)
    figure.update_layout(
        barmode="stack",
        bargap=0,
        hovermode="x unified",
        margin={"l": 56, "r": 8, "t": 52, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        xaxis={"title": {"text": _("time (%(zone)s)") % {"zone": name}}, "type": "date", **(DAYS if by_day else TICKS)},
        yaxis={"title": {"text": _("cards (average)")}, "rangemode": "tozero"},
    )
    return plain(figure)


def _wall(moment: dt.datetime, zone: dt.timezone | None) -> dt.datetime:
    """What a clock shows: one with a fixed offset, or the reader's, which days may follow without meeting twice."""
    return (timezone.localtime(moment) if zone is None else moment.astimezone(zone)).replace(tzinfo=None)


def _fixed_zone(rows: Sequence[Mapping[str, Any]]) -> dt.timezone:
    """The reader's offset at the end of the window for the whole axis: with a changing one, two buckets of the night
    when clocks go back would stand on the same spot."""
    end = timezone.localtime(rows[-1]["end"]) if rows else timezone.localtime()
    return dt.timezone(end.utcoffset() or dt.timedelta(0))


def _zone_name(zone: dt.timezone) -> str:
    name, offset = timezone.get_current_timezone_name(), str(zone)
    return name if name == offset else f"{name}, {offset}"


def hours_figure(
    days: Sequence[str], shares: Sequence[Sequence[float | None]], told: Sequence[Sequence[str]], top: int
) -> dict[str, Any]:
    """A heat map with a row for each hour of the day and a column for each day, in percent up to `top`, and the text
    for who points at a spot. One with a text and no share has no data: it gets a dot, so that it is not taken for 0.
    """
    import plotly.graph_objects as go  # as above

    rows = range(len(shares))
    figure = go.Figure(layout={"template": "none"})
    figure.add_heatmap(
        meta="heat",
        x=days,
        y=list(rows),
        z=[[None if share is None else round(share, 2) for share in row] for row in shares],
        customdata=told,
        zmin=0,
        zmax=top,
        xgap=1,
        ygap=1,
        hoverongaps=False,
        hovertemplate="%{customdata}<extra></extra>",
        colorbar={"title": {"text": _("used (%)")}, "thickness": 12, "outlinewidth": 0},
    )
    dots = [(x, y) for y in rows for x in range(len(days)) if shares[y][x] is None and told[y][x]]
    figure.add_scatter(
        meta="quiet",
        mode="markers",
        x=[days[x] for x, _y in dots],
        y=[y for _x, y in dots],
        marker={"size": 3},
        hoverinfo="skip",  # they would take the pointer away from spots around them
    )
    figure.update_layout(showlegend=False, margin={"l": 56, "r": 8, "t": 16, "b": 48}, **_hour_axes(days, rows))
    return plain(figure)


def _hour_axes(days: Sequence[str], rows: Sequence[int]) -> dict[str, Any]:
    """Days to the right, hours downwards."""
    ticks = rows[::HOURS_A_TICK]
    return {
        "xaxis": {"type": "category", "categoryarray": days, "tickangle": 0, "nticks": 12, **NO_LINES},
        "yaxis": {
            "title": {"text": _("hour (%(zone)s)") % {"zone": timezone.get_current_timezone_name()}},
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(ticks),
            "ticktext": [f"{hour:02}:00" for hour in ticks],
            **NO_LINES,
        },
    }


def plain(figure: Any) -> dict[str, Any]:
    """The figure without Plotly's default template, which would be 7 kB of styles that we do not use."""
    data: dict[str, Any] = figure.to_plotly_json()
    data["layout"].pop("template", None)
    return data
