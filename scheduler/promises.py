"""What a person was told, before submitting, of where a job goes and beside whom; kept with the job, checked later.

A promise is written once, with its job, and never changed. Whether it was kept is read from the book each time, so
there is no second account of it that could differ.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db import connection

from ledger.models import Allocation, Job, Project
from ledger.vocabulary import Form
from scheduler.models import Promise
from scheduler.whatif import Outlook

NOW: Final = "now"  # the one verdict that promises a place; the others tell what is expected

GUESTS: Final = """
SELECT p.slug, n.hostname,
       min(greatest(lower(o.period), lower(m.period))),
       CASE WHEN bool_or(upper_inf(o.period)) THEN NULL ELSE max(upper(o.period)) END,
       bool_or(lower(o.period) <= lower(m.period)),
       p.id = m.project_id
FROM ledger_allocation m
JOIN ledger_allocation o ON o.node_id = m.node_id AND o.period && m.period AND o.attempt_id <> m.attempt_id
JOIN ledger_project p ON p.id = o.project_id
JOIN ledger_node n ON n.id = o.node_id
WHERE m.attempt_id = %s
GROUP BY p.id, p.slug, n.hostname, m.project_id ORDER BY 3, 1, 2
"""


class Breach(StrEnum):
    """In what a promise was not kept."""

    PLACE = "place"
    FORM = "form"
    COMPANY = "company"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Guest:
    """A project with other work on a node of the job while the job held it. `until` None: it is there still. `own`: it
    is the job's own project."""

    project: str
    node: str
    since: dt.datetime
    until: dt.datetime | None
    at_placement: bool
    own: bool


def declare(job: Job, outlook: Outlook) -> Promise:
    """Keep what the outlook said with a job that has just been queued, in the caller's transaction."""
    slugs = dict(Project.objects.filter(pk__in=outlook.neighbours).values_list("pk", "slug"))
    return Promise.objects.create(
        job=job,
        made_at=job.submitted_at,
        verdict=outlook.verdict,
        spots=[_spot(spot) for spot in outlook.spots],
        neighbours=sorted(slugs.values()),
        expected_at=outlook.expected_at,
    )


def _spot(spot: Any) -> dict[str, Any]:
    return {"node": spot.hostname, "form": str(spot.form), "cards": [slot for slot, _given, _size in spot.cards]}


def guests(attempt_id: int | None) -> list[Guest]:
    """Who else was on the nodes of an attempt while it held them, the first to come first; one a project and node."""
    if attempt_id is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(GUESTS, [attempt_id])
        return [Guest(*row) for row in cursor.fetchall()]


def breaches(promise: Promise, members: Sequence[Allocation], company: Sequence[Guest]) -> list[Breach]:
    """In what the placement differs from the promise; nothing while it waits, or if only an outlook was told.

    Others who come later to a machine that is shared anyway break nothing: the promise said that they may.
    """
    if promise.verdict != NOW or not members:
        return []
    found = []
    if {spot["node"] for spot in promise.spots} != {member.node.hostname for member in members}:
        found.append(Breach.PLACE)
    if {spot["form"] for spot in promise.spots} != {str(member.form) for member in members}:
        found.append(Breach.FORM)
    if strangers(promise, company):
        found.append(Breach.COMPANY)
    if company and all(spot["form"] == Form.WHOLE for spot in promise.spots):
        found.append(Breach.ALONE)
    return found


def strangers(promise: Promise, company: Sequence[Guest]) -> set[str]:
    """Projects that were there at placement though the promise did not name them."""
    there = {guest.project for guest in company if guest.at_placement and not guest.own}
    return there - set(promise.neighbours)
