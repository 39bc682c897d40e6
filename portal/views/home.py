"""The first page: my jobs, free cards now, my projects."""

from __future__ import annotations

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ledger.models import Job, Membership
from ledger.vocabulary import LIVE_JOB_STATES, JobState
from portal.views.fleet_rows import free_now
from portal.views.gate import signed_in, viewer

RECENT = 8


@require_safe
@signed_in
def home(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    mine = Job.objects.visible_to(user).filter(by=user)
    counts = dict(mine.order_by().values_list("state").annotate(Count("pk")))
    live = Count("project__jobs", filter=Q(project__jobs__state__in=sorted(LIVE_JOB_STATES)))
    memberships = Membership.objects.filter(user=user).select_related("project").annotate(live=live)
    context = {
        "counts": [(state, counts.get(state, 0)) for state in JobState if state in LIVE_JOB_STATES],
        "recent": mine.select_related("project").order_by("-pk")[:RECENT],
        "free": free_now(),
        "memberships": memberships.order_by("project__slug"),
    }
    return render(request, "home.html", context)
