"""The books: capacity = used + cleaning + held + headroom + idle over a window that the reader chooses."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ledger import reports
from ledger.clock import database_now
from ledger.models import Project
from portal import charts
from portal.forms import BooksForm, card_models, zone_choices
from portal.views.gate import signed_in, viewer

SHORTEST_WITHOUT_SECONDS = dt.timedelta(minutes=1)


def _form(request: HttpRequest) -> BooksForm:
    projects = [(p.slug, p.title) for p in Project.objects.visible_to(viewer(request)).order_by("slug")]
    models = [(model, model) for model in card_models()]
    return BooksForm(request.GET, known={"zone": zone_choices(), "project": projects, "model": models})


@require_safe
@signed_in
def books(request: HttpRequest) -> HttpResponseBase:
    form = _form(request)
    start, end = form.span(database_now())
    answer = reports.balance(start, end, viewer=viewer(request), **form.cut)
    context = {
        "form": form,
        "start": start,
        "end": end,
        "chart_query": _fixed(request, start, end),
        "balance": answer["exact"] if form.exact else answer,
        "lines": _lines(answer["exact"] if form.exact else answer),
        "exact": answer["exact"],
        "balanced": answer["exact"]["capacity"] == sum(charts.amount(answer["exact"], a) for a in charts.ACCOUNT_MARKS),
    }
    return render(request, "books/books.html", context)


def _fixed(request: HttpRequest, start: dt.datetime, end: dt.datetime) -> str:
    """The query string with this very window, so that the chart shows what the balance above it shows."""
    query = request.GET.copy()
    query["window"], query["start"], query["end"] = "own", start.isoformat(), end.isoformat()
    return query.urlencode()


def _lines(balance: dict[str, Any]) -> list[dict[str, Any]]:
    """The right side of the balance, one line an account, with its part of the capacity."""
    names, capacity = charts.account_names(), balance["capacity"]
    lines = []
    for account in charts.ACCOUNT_MARKS:
        amount = charts.amount(balance, account)
        share = 100 * amount / capacity if capacity else 0.0
        lines.append({"account": account, "name": names[account], "amount": amount, "share": share})
    return lines


@require_safe
@signed_in
def chart(request: HttpRequest) -> HttpResponseBase:
    """The part with the chart and its table; the page loads it after the balance itself."""
    form = _form(request)
    start, end = form.span(database_now())
    rows = charts.bucket_rows(reports.balance_series(start, end, charts.buckets(start, end), **form.cut))
    context = {"figure": charts.balance_figure(rows), "rows": rows, "names": charts.account_names(), "form": form}
    context["times"] = "full" if (end - start) / len(rows) < SHORTEST_WITHOUT_SECONDS else "short"
    return render(request, "books/chart.html", context)
