"""What is taken back when, and the receipts of projects that have ended. Reads only; cut by visible_to."""

from __future__ import annotations

import datetime as dt
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.clock import database_now
from ledger.leavers import Standing
from ledger.models import Receipt, User
from portal import reclaim_rows
from portal.api.listing import ID_LIMIT, Listing, Reading
from portal.reclaim_rows import EndRow
from scheduler.reclaim_plan import Held


@extend_schema(tags=["projects"])
class Reclaim(Reading):
    @extend_schema(
        summary="What will be taken back when: projects that end, jobs over their walltime, what leavers left",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        now = database_now()
        return Response(
            {
                "at": now.isoformat(),
                "projects": [end_answer(row, request.user) for row in reclaim_rows.end_rows(request.user, now)],
                "over_walltime": [held_answer(held, request.user) for held in reclaim_rows.overdue(request.user, now)],
                "leavers": [leaver_answer(standing) for standing in reclaim_rows.left_behind(request.user)],
                "odd": reclaim_rows.odd_ones(request.user),
            }
        )


@extend_schema(tags=["projects"])
class Receipts(Listing):
    queryset = Receipt.objects.none()

    @extend_schema(
        operation_id="receipts_list",
        summary="Receipts of ended projects that you may see, newest first",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = Receipt.objects.visible_to(request.user).select_related("project__owner")
        return self.page(rows, lambda page: [receipt_brief(receipt) for receipt in page])


@extend_schema(tags=["projects"])
class ReceiptDetail(Reading):
    @extend_schema(summary="One receipt: what was reclaimed and what could not be", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        if pk >= ID_LIMIT:
            raise NotFound
        rows = Receipt.objects.visible_to(request.user).select_related("project__owner")
        receipt: Receipt = get_object_or_404(rows, pk=pk)
        return Response(receipt_brief(receipt) | {"content": receipt.content})


def _iso(moment: dt.datetime | dt.date | None) -> str | None:
    return moment.isoformat() if moment else None


def end_answer(row: EndRow, viewer: User) -> dict[str, Any]:
    project = row.project
    return {
        "project": project.slug,
        "title": project.title,
        "owner": project.owner.username,
        "state": project.state,
        "phase": row.phase,
        "ends_on": _iso(project.ends_on),
        "over_at": _iso(row.over_at),
        "grace_over_at": _iso(row.grace_over_at),
        "left_s": row.left_s,
        "holds": [held_answer(held, viewer) for held in row.facts.held],
        "queued": [job.job_id for job in row.facts.queued],
        "next_pass": [
            {"step": step.step, "notice": step.notice or None, "jobs": [job.job_id for job in step.jobs]}
            for step in row.steps
        ],
        "error": (row.error or None) if viewer.sees_everything else None,
    }


def held_answer(held: Held, viewer: User) -> dict[str, Any]:
    """What a driver said goes to the site roles alone: it may name what is behind the portal."""
    return {
        "job": held.job_id,
        "name": held.name,
        "by": held.by,
        "simulated": held.simulated,
        "state": held.state,
        "nodes": list(held.nodes),
        "cards": held.cards,
        "started_at": _iso(held.started_at),
        "walltime_s": held.walltime_s,
        "stopping_since": _iso(held.closing_at),
        "stop_tries": held.tries,
        "error": (held.error or None) if viewer.sees_everything else None,
    }


def leaver_answer(standing: Standing) -> dict[str, Any]:
    return {
        "user": standing.user.username,
        "projects": [project.slug for project in standing.projects],
        "running": [job.pk for job in standing.running],
        "queued": [job.pk for job in standing.queued],
        "tokens": len(standing.tokens),
        "rights": [grant.pk for grant in standing.odd_grants],
    }


def receipt_brief(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.pk,
        "project": receipt.project.slug,
        "title": receipt.project.title,
        "owner": receipt.project.owner.username,
        "ends_on": _iso(receipt.ends_on),
        "ending_since": _iso(receipt.ending_since),
        "grace_over_at": _iso(receipt.grace_over_at),
        "free_at": _iso(receipt.free_at),
        "took_s": receipt.took_s,
        "jobs_stopped": receipt.jobs_stopped,
        "jobs_cancelled": receipt.jobs_cancelled,
        "grants_ended": receipt.grants_ended,
        "not_enforced": receipt.not_enforced,
    }
