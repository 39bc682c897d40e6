"""Parts of the page of a department: what a change of a ceiling would do, the sealed change that travels through the
preview, and the effect of the last ones. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.conf import settings
from django.core import signing
from django.utils.dateparse import parse_datetime
from psycopg.types.range import TimestamptzRange

from ledger import departments, limits, observation, renewal
from ledger.clock import database_now
from ledger.departments import Cap
from ledger.models import Department, DepartmentCeiling, Job, Project
from ledger.vocabulary import Resource
from portal.views.quota_parts import KEPT_FOR, MOST_NAMED, CeilingRow
from scheduler import draining, quota_effect
from scheduler.quota_effect import Span

SALT: Final = "ceiling-change"


@dataclass(frozen=True, slots=True)
class CeilingChange:
    """What is to be set or, with `lift`, taken away; `shown` is the ceiling that stood when it was previewed."""

    cap: Cap
    lift: bool
    shown: int


def sealed(department: Department, change: CeilingChange) -> str:
    """The change as one signed text: what was previewed is what will be made."""
    drain_at = change.cap.drain_at.isoformat() if change.cap.drain_at else None
    cap = asdict(change.cap) | {"drain_at": drain_at}
    values = {"department": department.pk, "cap": cap, "lift": change.lift, "shown": change.shown}
    return signing.dumps(values, salt=SALT, compress=True)


def opened(department: Department, text: str) -> CeilingChange | None:
    """None when the text is not ours, of another department, or older than an hour."""
    try:
        values: dict[str, Any] = signing.loads(text, salt=SALT, max_age=KEPT_FOR)
    except signing.BadSignature:
        return None
    if values["department"] != department.pk:
        return None
    cap = values["cap"]
    known = {"drain_at": parse_datetime(cap["drain_at"]) if cap["drain_at"] else None}
    return CeilingChange(Cap(**cap | known | {"resource": Resource(cap["resource"])}), values["lift"], values["shown"])


def of_now(department: Department, resource: str, model: str) -> DepartmentCeiling | None:
    rows = departments.ceilings_of(department.pk, resource).filter(model=model)
    return rows.filter(period__contains=database_now()).first()


def preview(department: Department, change: CeilingChange) -> dict[str, Any]:
    """Before and after, which projects use how much of it now, and what would be ended when."""
    cap, now = change.cap, database_now()
    old = of_now(department, cap.resource, cap.model)
    since = now if old is None or cap.anew else limits.since_of(old, now)
    new = DepartmentCeiling(
        department=department,
        resource=cap.resource,
        model=cap.model,
        amount=cap.amount,
        period=TimestamptzRange(now, None),
        counted_from=since,
    )
    below = limits.projects_below(department.pk)
    uses = limits.used_by_each(below, cap.resource, cap.model, since)
    named = Project.objects.in_bulk([pk for pk, used in uses.items() if used])
    ended = [] if change.lift else draining.victims(draining.holdings(new), sum(uses.values()) - cap.amount)
    jobs = Job.objects.select_related("by", "project").in_bulk([one.job_id for one in ended[:MOST_NAMED]])
    return {
        "old": old,
        "cap": cap,
        "lift": change.lift,
        "used": sum(uses.values()),
        "uses": sorted(((named[pk], used) for pk, used in uses.items() if used), key=lambda use: -use[1]),
        "below": len(below),
        "guaranteed": limits.guaranteed_below(department.pk, cap.resource, now, cap.model),
        "ended": [(jobs[one.job_id], one) for one in ended[:MOST_NAMED]],
        "more_ended": max(0, len(ended) - MOST_NAMED),
        "observed_until": observation.observed_until(departments.ceilings_of(department.pk, cap.resource), now),
        "renews_on": renewal.next_start(cap.renews, now),
        "window": settings.QUOTA_WINDOW_HOURS,
    }


@dataclass(frozen=True, slots=True)
class Observed:
    """Ceilings that were changed at one instant: until when that is observed, and the figures before it and since."""

    rows: list[CeilingRow]
    until: dt.datetime
    before: Span
    after: Span


def effects(rows: Sequence[CeilingRow], department: Department) -> list[Observed]:
    """Of each change of these ceilings that is observed."""
    if not rows:
        return []
    now, by_moment = database_now(), dict[dt.datetime, list[CeilingRow]]()
    changed = _changed(department, now)
    for row in rows:
        at = changed[row.ceiling.resource]
        if observation.until_of(at, now) is not None:
            by_moment.setdefault(at, []).append(row)
    below = limits.projects_below(department.pk) if by_moment else []
    window = dt.timedelta(hours=settings.QUOTA_WINDOW_HOURS)
    return [Observed(some, at + window, *quota_effect.effect(below, at, now)) for at, some in sorted(by_moment.items())]


def _changed(department: Department, now: dt.datetime) -> dict[str, dt.datetime]:
    """By resource, when a ceiling of it last began or ended."""
    periods = DepartmentCeiling.objects.filter(department=department).values_list("resource", "period")
    ends = [(resource, at) for resource, period in periods for at in (period.lower, period.upper) if at and at <= now]
    return {resource: at for resource, at in sorted(ends)}
