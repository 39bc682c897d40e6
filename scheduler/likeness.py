"""The job that another is to be placed like: whether it can be named, and what its placement was. Reads only.

What the placement was is kept with the new job, so that a later attempt of the old one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from django.utils.translation import gettext as _

from ledger.errors import Refused
from ledger.models import Job, User
from ledger.vocabulary import Distance, Span
from scheduler import slices
from scheduler.engine.fingerprint import likeness
from scheduler.engine.near import REQUIRED
from scheduler.engine.topology import LEVELS
from scheduler.engine.types import Likeness
from scheduler.models import Decision

FIELD: Final = "like_job"
OF_THE_PAGE: Final = ("project", FIELD)  # of a JobInput, written to the job in another form


def columns(data: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the job that `data`, a validated JobInput, makes; its project apart. Refused as `placed_like` and
    `slices.asks_of`."""
    values = {name: value for name, value in data.items() if name not in OF_THE_PAGE}
    values["asks"] = slices.asks_of(data["asks"], data["simulated"])
    pk = data.get(FIELD)
    return values | ({"like_job_id": pk, "like": asdict(placed_like(pk))} if pk is not None else {})


def check(data: Mapping[str, Any], actor: User) -> None:
    """Refused, naming the field, where the actor may not see the job or nothing could be placed like it."""
    pk = data.get(FIELD)
    if pk is None:
        return
    job = Job.objects.visible_to(actor).filter(pk=pk).first()
    if job is None:
        raise Refused(_("There is no such job, or you may not see it."), field=FIELD, code="unknown_job")
    if job.simulated != data["simulated"]:
        raise Refused(
            _("Job %(id)d ran on the other kind of hardware: real and simulated runs can't be compared.") % {"id": pk},
            field=FIELD,
            code="other_hardware",
        )
    like = placed_like(pk)
    for number, ask in enumerate(data["asks"]):
        if ask["nodes"] != like.nodes:
            raise Refused(
                _("Job %(id)d ran on %(n)d nodes: ask for as many.") % {"id": pk, "n": like.nodes},
                field=f"asks.{number}.nodes",
                code="unlike",
            )
    if too_near(Distance(data["distance"]), like.span):
        raise Refused(
            _("The nodes of job %(id)d were not as near to each other as that: choose “any”.") % {"id": pk},
            field="distance",
            code="unlike",
        )


def too_near(distance: Distance, span: Span) -> bool:
    """Whether nodes that stand like that can't meet the wish."""
    if distance not in REQUIRED or span is Span.NODE:
        return False
    return span is Span.APART or LEVELS.index(span) > REQUIRED[distance]


def placed_like(job_id: int) -> Likeness:
    """What the newest placement of a job was; Refused when it has none that another could be like."""
    placed = Decision.objects.filter(job=job_id, attempt__isnull=False).order_by("-pk")
    parts = placed.values_list("fingerprint_parts", flat=True).first()
    if parts is None:
        raise Refused(
            _("Job %(id)d has not been placed, or that was before placements had fingerprints.") % {"id": job_id},
            field=FIELD,
            code="never_placed",
        )
    like = likeness(parts)
    if like is None:
        raise Refused(
            _("The nodes of job %(id)d were of several kinds: no other placement can be like it.") % {"id": job_id},
            field=FIELD,
            code="mixed",
        )
    return like
