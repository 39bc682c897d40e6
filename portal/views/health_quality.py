"""How good telemetry itself is: what was wrong with it by kind, node, card and day, what each kind means, who never
reported, and how far the history reaches. For the site roles. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any, Final

from django.conf import settings
from django.db import connection
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ledger.clock import database_now
from ledger.models import CardHour, CardStatus, Node, OpenHour, QualityCount, SampleBatch
from ledger.vocabulary import NodeState
from portal import health_charts, health_words
from portal.health_forms import QualityFilter
from portal.tables import Column, Table
from portal.views.ops_gate import for_site_roles

DAYS: Final = 14  # of the figure
MOST_NODES: Final = 50  # that are named as never heard of
# the days that the history has, told by the names of its partitions: a look into them would take as long as they are
PARTITIONS: Final = """
SELECT count(*), to_date(right(min(c.relname), 8), 'YYYYMMDD'), to_date(right(max(c.relname), 8), 'YYYYMMDD')
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'ledger_cardsample'::regclass
"""

COLUMNS: Final = (
    Column("day", gettext_lazy("Day (UTC)"), lambda r: r.day, sort=("day",), always=True),
    Column(
        "kind",
        gettext_lazy("Kind"),
        lambda r: str(health_words.quality(r.kind).name),
        "health/cells/quality_kind.html",
        ("kind",),
    ),
    Column(
        "node",
        gettext_lazy("Node"),
        lambda r: r.node.hostname if r.node else "",
        "health/cells/quality_node.html",
        ("node__hostname",),
    ),
    Column(
        "card",
        gettext_lazy("Card"),
        lambda r: r.card.uuid if r.card else "",
        "health/cells/quality_card.html",
        ("card__uuid",),
    ),
    Column("count", gettext_lazy("Times"), lambda r: r.count, sort=("count",), number=True),
    Column("last", gettext_lazy("Last seen"), lambda r: r.last_seen, sort=("last_seen",)),
    Column("first", gettext_lazy("First seen"), lambda r: r.first_seen, sort=("first_seen",), shown=False),
    Column("detail", gettext_lazy("Detail of the last one"), lambda r: r.detail, "health/cells/quality_detail.html"),
)


@require_safe
@for_site_roles
def quality(request: HttpRequest) -> HttpResponseBase:
    form, now = QualityFilter(request.GET, known={}), database_now()
    table = Table(
        request,
        "telemetry-quality",
        COLUMNS,
        _counts(form.chosen),
        form=form,
        order=("-day", "-count", "pk"),
    )
    if (file := table.export()) is not None:
        return file
    context: dict[str, Any] = {
        "form": form,
        "t": table.context(),
        "filtered": table.filtered,
        "now": now,
        "meanings": list(health_words.QUALITY.values()),
        **_never_heard(),
        **_reach(),
        **_trend(_counts(form.chosen), now),
    }
    return render(request, "health/quality.html", context)


def _counts(chosen: dict[str, Any]) -> QuerySet[QualityCount]:
    rows = QualityCount.objects.select_related("node", "card")
    if text := chosen.get("q"):
        rows = rows.filter(Q(node__hostname__icontains=text) | Q(card__uuid__icontains=text))
    if kind := chosen.get("kind"):
        rows = rows.filter(kind=kind)
    if day := chosen.get("day"):
        rows = rows.filter(day=day)
    return rows


def _never_heard() -> dict[str, Any]:
    """Real nodes of which no report ever came."""
    nodes = Node.objects.filter(simulated=False, report=None).exclude(state=NodeState.RETIRED).order_by("hostname")
    names = list(nodes.values_list("hostname", flat=True)[: MOST_NODES + 1])
    return {"never": names[:MOST_NODES], "never_more": len(names) > MOST_NODES}


def _reach() -> dict[str, Any]:
    """How far the history reaches, and what waits to go into it."""
    with connection.cursor() as cursor:
        cursor.execute(PARTITIONS)
        partitions, first_day, last_day = cursor.fetchone()
    waiting = SampleBatch.objects.aggregate(n=Count("pk"), at=Min("at"))
    hours = OpenHour.objects.aggregate(n=Count("pk"), at=Min("hour"))
    return {
        "partitions": partitions,
        "first_day": first_day,
        "last_day": last_day,
        "kept_days": settings.SAMPLES_KEPT_DAYS,
        "newest": CardStatus.objects.aggregate(at=Max("received_at"))["at"],
        "oldest": CardStatus.objects.aggregate(at=Min("received_at"))["at"],
        "first_hour": CardHour.objects.aggregate(at=Min("hour"))["at"],
        "waiting": waiting,
        "hours": hours,
    }


def _trend(rows: QuerySet[QualityCount], now: dt.datetime) -> dict[str, Any]:
    """The last days by kind, as a figure and as a table."""
    today = now.astimezone(dt.UTC).date()
    days = [today - dt.timedelta(days=back) for back in reversed(range(DAYS))]
    counts: dict[str, dict[dt.date, int]] = defaultdict(dict)
    counted = rows.filter(day__gte=days[0]).order_by("kind").values_list("kind", "day")
    for kind, day, n in counted.annotate(n=Sum("count")):
        counts[kind][day] = n
    if not counts:
        return {"figure": None}
    named = {str(health_words.quality(kind).name): [of.get(day, 0) for day in days] for kind, of in counts.items()}
    lines = [(day, [numbers[at] for numbers in named.values()]) for at, day in enumerate(days)]
    figure = health_charts.days_figure([f"{day:%m-%d}" for day in days], named)
    return {"figure": figure, "trend_kinds": list(named), "trend": lines[::-1]}
