"""Plotly figures as plain JSON; static/js/charts.js draws them. No colours of the page here: the script sets those
that depend on light or dark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext as _

from portal import labels

Balance = Mapping[str, Any]

# The pattern of each account tells it apart without colour; colours are --gc-account-… in static/css/app.css.
ACCOUNT_MARKS: Final[Mapping[str, str]] = {
    "used": "",
    "cleaning": ".",
    "held": "x",
    "headroom": "-",
    "stranded": "/",
    "free": "",
}

TICKS: Final = {"tickformat": "%H:%M\n%Y-%m-%d", "hoverformat": "%Y-%m-%d %H:%M", "tickangle": 0, "nticks": 9}
PATTERN: Final = {"fillmode": "overlay", "size": 6, "solidity": 0.25}
DEFAULT_BUCKETS: Final = 24
BUCKETS: Final[Mapping[dt.timedelta, int]] = {dt.timedelta(days=7): 28, dt.timedelta(days=30): 30}  # 6 h, 1 day


def buckets(start: dt.datetime, end: dt.datetime) -> int:
    """How many equal parts to cut a window into; never shorter than a second."""
    length = end - start
    return min(BUCKETS.get(length, DEFAULT_BUCKETS), max(1, int(length.total_seconds())))


def account_names() -> dict[str, str]:
    return {str(account): str(look.label) for account, look in labels.ACCOUNTS.items()}


def amount(balance: Balance, account: str) -> int:
    """The account's total in the unit of `balance`."""
    if account in ("free", "stranded"):
        return int(balance["idle"][account])
    return int(balance["used"]["total"] if account == "used" else balance[account])


def bucket_rows(series: Sequence[Balance]) -> list[dict[str, Any]]:
    """One row a bucket: its start and end, and the average cards in each account, for the chart and its table."""
    rows = []
    for balance in series:
        start, end = dt.datetime.fromisoformat(balance["from"]), dt.datetime.fromisoformat(balance["to"])
        seconds = (end - start).total_seconds()
        cards = {name: round(amount(balance, name) / seconds, 2) for name in ACCOUNT_MARKS}
        rows.append({"start": start, "end": end, "cards": cards, "capacity": round(balance["capacity"] / seconds, 2)})
    return rows


def balance_figure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stacked bars, one a bucket, in average cards; times in the reader's zone, which stands on the axis."""
    import plotly.graph_objects as go  # half a second that only this page pays

    names = account_names()
    zone = _fixed_zone(rows)
    middles = [(row["start"] + (row["end"] - row["start"]) / 2).astimezone(zone) for row in rows]
    widths = [(row["end"] - row["start"]).total_seconds() * 1000 for row in rows]
    figure = go.Figure(layout={"template": "none"})
    for account, pattern in ACCOUNT_MARKS.items():
        figure.add_bar(
            name=names[account],
            meta=account,
            x=[moment.strftime("%Y-%m-%d %H:%M:%S") for moment in middles],
            y=[row["cards"][account] for row in rows],
            width=widths,
            marker={"line": {"width": 0}, "pattern": {**PATTERN, "shape": pattern}},
            hovertemplate="%{y:,.2f}",
        )
    figure.update_layout(
        barmode="stack",
        bargap=0,
        hovermode="x unified",
        margin={"l": 56, "r": 8, "t": 52, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        xaxis={"title": {"text": _("time (%(zone)s)") % {"zone": _zone_name(zone)}}, "type": "date", **TICKS},
        yaxis={"title": {"text": _("cards (average)")}, "rangemode": "tozero"},
    )
    return plain(figure)


def _fixed_zone(rows: Sequence[Mapping[str, Any]]) -> dt.timezone:
    """The reader's offset at the end of the window for the whole axis: with a changing one, two buckets of the night
    when clocks go back would stand on the same spot."""
    end = timezone.localtime(rows[-1]["end"]) if rows else timezone.localtime()
    return dt.timezone(end.utcoffset() or dt.timedelta(0))


def _zone_name(zone: dt.timezone) -> str:
    name, offset = timezone.get_current_timezone_name(), str(zone)
    return name if name == offset else f"{name}, {offset}"


def plain(figure: Any) -> dict[str, Any]:
    """The figure without Plotly's default template, which would be 7 kB of styles that we do not use."""
    data: dict[str, Any] = figure.to_plotly_json()
    data["layout"].pop("template", None)
    return data
