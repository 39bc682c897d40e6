"""The filters that every list of jobs has: name or number, project, hardware. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet

from ledger.models import Job
from portal.typed import id_of


def narrowed(jobs: QuerySet[Job], chosen: Mapping[str, Any]) -> QuerySet[Job]:
    """`chosen` are the values of a filter form; what it does not hold narrows nothing."""
    if text := chosen.get("q"):
        wanted, pk = Q(name__icontains=text), id_of(text)
        jobs = jobs.filter(wanted if pk is None else wanted | Q(pk=pk))
    if project := chosen.get("project"):
        jobs = jobs.filter(project__slug=project)
    if hardware := chosen.get("hardware"):
        jobs = jobs.filter(simulated=hardware == "simulated")
    return jobs
