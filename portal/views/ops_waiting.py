"""Jobs that wait, each with the one cause that is told of it, worked out by the database. Reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    F,
    FilteredRelation,
    Func,
    IntegerField,
    Min,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from ledger.models import Job, User
from ledger.vocabulary import JobState, ProjectState, Refusal
from portal.ops_words import NEAREST, NEVER, TURN, UNSEEN


class Nearest(Func):
    """The first refusal of NEAREST that stands in a decision's reasons ([{refusal: nodes}], one an ask); else NULL."""

    output_field = CharField()
    arity = 1
    template = (
        "(SELECT word FROM jsonb_array_elements(%(expressions)s) AS ask, jsonb_object_keys(ask) AS word "
        "ORDER BY array_position('{WORDS}'::text[], word) LIMIT 1)"
    ).replace("WORDS", ",".join(NEAREST))


def waiting_jobs(user: User) -> QuerySet[Job]:
    """Queued jobs that the person may see, with `cause` and `place`, their position at the last round, and what is
    `kept` for them from when on."""
    decision = FilteredRelation("decisions", condition=Q(decisions__attempt=None))
    cause = Case(
        When(held_at__isnull=False, then=Value(str(Refusal.HELD_BY_OPERATOR))),
        When(~Q(project__state=ProjectState.ACTIVE), then=Value(str(Refusal.PROJECT_ENDED))),
        When(Q(decision__pk=None) | Q(decision__reasons=[]), then=Value(UNSEEN)),
        When(decision__never=True, then=Value(NEVER)),
        default=Coalesce(Nearest(F("decision__reasons")), Value(TURN)),
        output_field=CharField(),
    )
    place = Case(When(held_at__isnull=True, then=F("decision__position")), output_field=IntegerField())
    jobs = Job.objects.visible_to(user).filter(state=JobState.QUEUED)
    kept = {"kept": F("decision__kept"), "begins_at": F("decision__begins_at")}
    return jobs.annotate(decision=decision).annotate(cause=cause, place=place, **kept)


@dataclass(frozen=True)
class CauseLine:
    """How many jobs wait for a cause, and since when the oldest does; real and simulated apart."""

    cause: str
    real: int
    real_since: dt.datetime | None
    simulated: int
    simulated_since: dt.datetime | None


def by_cause(user: User) -> list[CauseLine]:
    rows: dict[str, dict[bool, Any]] = {}
    counted = waiting_jobs(user).order_by().values_list("cause", "simulated")
    for cause, simulated, n, since in counted.annotate(n=Count("pk"), since=Min("queued_at")):
        rows.setdefault(cause, {})[simulated] = (n, since)
    lines = [CauseLine(cause, *at.get(False, (0, None)), *at.get(True, (0, None))) for cause, at in rows.items()]
    return sorted(lines, key=lambda line: (-line.real, -line.simulated, line.cause))
