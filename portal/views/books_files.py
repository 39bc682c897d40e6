"""The files of the books: the balance and the series over time, with everything that says what they are.

Amounts stand in both units: whole MiB-seconds, which the API gives too, and card-seconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.http import HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from portal import exports, periods
from portal.books_form import BooksForm
from portal.stacks import Balance, Band
from portal.views import books_hours
from portal.views.books_rows import Page, Row


def about(form: BooksForm) -> list[tuple[str, str]]:
    """What every file of the books says about itself."""
    times = ("window", "start", "end", "unit", "hardware")
    filters = [f"{name}={value}" for name, value in sorted(form.chosen.items()) if name not in times]
    return [
        (_("Made at"), _iso(timezone.now())),
        (_("Time zone"), timezone.get_current_timezone_name()),
        (_("Window"), _span((form.since, form.until))),
        (_("Hardware"), _("simulated cards only") if form.simulated else _("real cards only")),
        (_("Filters"), ", ".join(filters) or pgettext("filters", "none")),
        (_("Units"), _("MiB-seconds of card memory; card-seconds = MiB-seconds ÷ the card's MiB")),
    ]


def _iso(moment: Any) -> str:
    return timezone.localtime(moment).isoformat(timespec="seconds")


def _span(window: periods.Window) -> str:
    return f"{_iso(window[0])} – {_iso(window[1])}"


def balance_file(kind: str, page: Page) -> HttpResponseBase:
    facts = [*about(page.form), (_("Period before"), _span(page.form.before))]
    header = [
        _("Group"),
        _("Name"),
        _("MiB-seconds"),
        _("card-seconds"),
        _("Part (%)"),
        _("MiB-seconds, period before"),
        _("card-seconds, period before"),
        _("Difference (MiB-seconds)"),
        _("Difference (card-seconds)"),
        _("Change (%)"),
    ]
    return exports.WRITERS[kind]("balance", facts, header, _balance_rows(page))


def _balance_rows(page: Page) -> Iterable[Sequence[exports.Cell]]:
    yield _balance_row(_("Capacity"), page.capacity)
    for row in page.accounts:
        yield _balance_row(pgettext("ledger", "Account"), row)
    for title, rows in page.splits:
        for row in rows:
            yield _balance_row(str(title), row)


def _balance_row(group: str, row: Row) -> Sequence[exports.Cell]:
    now, before, percent = row.now, row.before, row.change.percent
    signed = None if percent is None else percent if now.exact > before.exact else -percent
    return [
        group,
        row.name,
        now.exact,
        now.card_seconds,
        round(row.part, 1),
        before.exact,
        before.card_seconds,
        now.exact - before.exact,
        now.card_seconds - before.card_seconds,
        0.0 if now.exact == before.exact else signed,
    ]


def series_file(kind: str, form: BooksForm, series: Sequence[Balance], bands: Sequence[Band]) -> HttpResponseBase:
    """One row a bar, its amounts in both units for each band and the capacity."""
    facts = [*about(form), (_("Stack by"), form.stacked)]
    header = [_("From"), _("To")]
    for unit in (_("MiB-seconds"), _("card-seconds")):
        header += [f"{name} ({unit})" for name in [*(band.name for band in bands), _("Capacity")]]
    return exports.WRITERS[kind]("balance-over-time", facts, header, (_series_row(one, bands) for one in series))


def _series_row(balance: Balance, bands: Sequence[Band]) -> Sequence[exports.Cell]:
    amounts: list[exports.Cell] = []
    for side in (balance["exact"], balance):
        amounts += [*(band.amount(side) for band in bands), side["capacity"]]
    return [*(_moment(balance[name]) for name in ("from", "to")), *amounts]


def _moment(text: str) -> str:
    return _iso(dt.datetime.fromisoformat(text))


def hours_file(kind: str, grid: books_hours.Grid) -> HttpResponseBase:
    """One row an hour of the heat map, its share and the amounts behind it."""
    facts = about(grid.form)
    if not grid.usage.whole:
        facts.append((_("Not complete"), grid.missing))
    return exports.WRITERS[kind]("used-by-hour", facts, books_hours.header(), books_hours.file_rows(grid))
