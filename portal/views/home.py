"""The first page: my jobs, what changed since my last visit, what is free now by form, my projects' use and end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

from django.core.signing import BadSignature
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe

from ledger.clock import database_now
from ledger.invitations import open_invitations
from ledger.models import Job, Membership, ProjectRequest, RollUp, UsageQuarter, User
from ledger.vocabulary import LIVE_JOB_STATES, Account, JobState
from portal import letter_rows
from portal.views import project_end
from portal.views.gate import signed_in, viewer
from scheduler import whatif
from scheduler.offers import offers

RECENT: Final = 8
VISIT: Final = "gc-visit"  # cookie: when the visit before began, and when a page was last opened
PAUSE: Final = dt.timedelta(minutes=30)  # after it the next page is another visit
KEPT: Final = dt.timedelta(days=365)
USE: Final = dt.timedelta(days=30)


@require_safe
@signed_in
def home(request: HttpRequest) -> HttpResponseBase:
    user, now = viewer(request), database_now()
    since, cookie = _visit(request, now)
    mine = Job.objects.visible_to(user).filter(by=user)
    counts = dict(mine.order_by().values_list("state").annotate(Count("pk")))
    context = {
        "counts": [(state, counts.get(state, 0)) for state in JobState if state in LIVE_JOB_STATES],
        "recent": mine.select_related("project").order_by("-pk")[:RECENT],
        "since": since,
        "news": _news(mine, since),
        "offers": offers(whatif.views_now()),
        "projects": _projects(user, now),
        "today": now.date(),
        "invitations": list(open_invitations(user)),
        "to_decide": ProjectRequest.objects.decided_by(user).count(),
        "banners": project_end.banners(user, now),
        "letters": letter_rows.rows(user, now),
    }
    response: HttpResponse = render(request, "home.html", context)
    response.set_signed_cookie(
        VISIT, cookie, max_age=int(KEPT.total_seconds()), httponly=True, samesite="Lax", secure=request.is_secure()
    )
    return response


def _visit(request: HttpRequest, now: dt.datetime) -> tuple[dt.datetime | None, str]:
    """Since when there is news: the end of the visit before this one. And the cookie that says so next time."""
    try:
        before, _, latest = (request.get_signed_cookie(VISIT, default="", max_age=KEPT) or "").partition("|")
    except BadSignature:
        before = latest = ""
    seen, since = parse_datetime(latest or ""), parse_datetime(before or "")
    if seen is not None and now - seen > PAUSE:
        since = seen
    return since, f"{since.isoformat() if since else ''}|{now.isoformat()}"


def _news(mine: QuerySet[Job], since: dt.datetime | None) -> list[Job]:
    """My jobs that started or ended since then."""
    if since is None:
        return []
    changed = mine.filter(Q(ended_at__gt=since) | Q(started_at__gt=since))
    return list(changed.select_related("project").order_by("-pk")[:RECENT])


def _projects(user: User, now: dt.datetime) -> list[dict[str, Any]]:
    """My projects with live jobs and the card-hours of the last 30 days, up to the last rolled-up quarter."""
    live = Count("project__jobs", filter=Q(project__jobs__state__in=sorted(LIVE_JOB_STATES)))
    members = list(Membership.objects.filter(user=user).select_related("project").annotate(live=live))
    used = _card_seconds((m.project_id for m in members), now - USE)
    rolled = RollUp.objects.filter(pk=1).values_list("until", flat=True).first()
    return [
        {
            "project": m.project,
            "role": m.role,
            "live": m.live,
            "used": used.get(m.project_id, 0),
            "until": rolled,
            "days_left": (m.project.ends_on - now.date()).days if m.project.ends_on else None,
        }
        for m in sorted(members, key=lambda m: m.project.slug)
    ]


def _card_seconds(project_ids: Iterable[int], since: dt.datetime) -> dict[int, int]:
    rows = (
        UsageQuarter.objects.filter(
            project__in=list(project_ids), account=Account.USED, starts_at__gte=since, simulated=False
        )
        .values_list("project", "card_memory_mib")
        .annotate(total=Sum("mib_seconds"))
        .order_by()
    )
    found: dict[int, int] = {}
    for project, size, total in rows:
        found[project] = found.get(project, 0) + int(total) // size
    return found
