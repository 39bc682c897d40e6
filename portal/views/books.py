"""The books: capacity = used + cleaning + held + headroom + idle over a window that the reader chooses, beside the
period before it, and over time."""

from __future__ import annotations

import datetime as dt

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ledger import hours as by_hour
from ledger import reports
from ledger.balance import Cut
from ledger.clock import database_now
from portal import charts, exports, periods, stacks
from portal.books_form import BooksForm
from portal.views import books_files, books_hours
from portal.views.books_rows import Page
from portal.views.gate import signed_in, viewer

SHORTEST_WITHOUT_SECONDS = dt.timedelta(minutes=1)


def _form(request: HttpRequest) -> BooksForm:
    return BooksForm(request.GET, viewer(request), database_now())


def _kind(request: HttpRequest) -> str:
    """The kind of file that is asked for; "" for none, or one that we don't make."""
    kind = request.GET.get("export", "")
    return kind if kind in exports.WRITERS else ""


def complaints(form: BooksForm) -> list[str]:
    """What the address asks for and no field takes; what a field does not take is told beside it."""
    told = [_("There is no filter “%(name)s”.") % {"name": name} for name in form.unknown[:3]]
    kind = form.data.get("export", "")
    if kind and kind not in exports.WRITERS:
        told.append(_("“%(text)s” is not a kind of file; csv and xlsx are.") % {"text": kind[:9]})
    return told


@require_safe
@signed_in
def books(request: HttpRequest) -> HttpResponseBase:
    form = _form(request)
    before, now = reports.balances([form.before, (form.since, form.until)], viewer=viewer(request), **form.cut)
    page = Page(form, now, before)
    if kind := _kind(request):
        return books_files.balance_file(kind, page)
    context = {
        "form": form,
        "page": page,
        "complaints": complaints(form),
        "chart_query": _fixed(request, form),
        "hours_fit": books_hours.fits(form.since, form.until),
        "zone_name": timezone.get_current_timezone_name(),
    }
    return render(request, "books/books.html", context)


def _fixed(request: HttpRequest, form: BooksForm) -> str:
    """The query string with this very window, so that the chart shows what the balance above it shows."""
    query = request.GET.copy()
    query["window"], query["start"], query["end"] = "own", form.since.isoformat(), form.until.isoformat()
    query.pop("export", None)
    return query.urlencode()


@require_safe
@signed_in
def chart(request: HttpRequest) -> HttpResponseBase:
    """The part with the chart and its table; the page loads it after the balance itself."""
    form = _form(request)
    edges = periods.edges(form.since, form.until)
    series = reports.balance_series(edges, viewer=viewer(request), **form.cut)
    bands = stacks.bands(form.stacked, [balance["exact"] for balance in series])
    if kind := _kind(request):
        return books_files.series_file(kind, form, series, bands)
    rows = charts.bar_rows(series, bands, form.cut)
    context = {"figure": charts.balance_figure(rows, bands), "rows": rows, "bands": bands, "form": form}
    context["chart_query"] = _fixed(request, form)
    context["times"] = "full" if (form.until - form.since) / len(rows) < SHORTEST_WITHOUT_SECONDS else "short"
    return render(request, "books/chart.html", context)


@require_safe
@signed_in
def hours(request: HttpRequest) -> HttpResponseBase:
    """The part with the heat map and its table; the page loads it after the balance itself."""
    form = _form(request)
    if not books_hours.fits(form.since, form.until):
        return render(request, "books/hours.html", {"form": form})
    clock = timezone.get_current_timezone()
    grid = books_hours.Grid(form, by_hour.usage(form.since, form.until, clock, Cut(**form.cut)))
    if kind := _kind(request):
        return books_files.hours_file(kind, grid)
    context = {"form": form, "grid": grid, "hours": books_hours.HOURS, "chart_query": _fixed(request, form)}
    return render(request, "books/hours.html", context | {"figure": books_hours.figure(grid)})
