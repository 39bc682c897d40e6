"""Search over everything a person may see: jobs, projects, nodes and cards. Reads only, a few rows of each kind."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Q
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from ledger.models import Card, Job, Node, Project
from portal.typed import id_of
from portal.views.gate import signed_in, viewer

MOST: Final = 20
LONGEST: Final = 200


@require_safe
@signed_in
def search(request: HttpRequest) -> HttpResponseBase:
    """The number of a job or the exact name of a node goes straight there."""
    text = request.GET.get("q", "").replace("\x00", "").strip()[:LONGEST]
    if not text:
        return render(request, "search.html", {"search_text": ""})
    user = viewer(request)
    jobs = Job.objects.visible_to(user)
    pk = id_of(text)
    if pk is not None and jobs.filter(pk=pk).exists():
        return redirect("job", pk=pk)
    if Node.objects.filter(hostname=text).exists():
        return redirect("node", hostname=text)
    projects = Project.objects.visible_to(user).filter(Q(slug__icontains=text) | Q(title__icontains=text))
    found: dict[str, Any] = {
        "jobs": jobs.filter(name__icontains=text).select_related("project", "by").order_by("-pk")[:MOST],
        "projects": projects.distinct().order_by("slug")[:MOST],
        "nodes": Node.objects.filter(Q(hostname__icontains=text) | Q(rack__iexact=text)).order_by("hostname")[:MOST],
        "cards": Card.objects.filter(Q(uuid__icontains=text) | Q(model__iexact=text)).order_by("uuid")[:MOST],
    }
    context = found | {"search_text": text, "most": MOST, "nothing": not any(found.values())}
    return render(request, "search.html", context)
