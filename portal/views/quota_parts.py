"""Parts of the pages of quota: what stands with its use and its clock, what a change would do, the sealed change that
travels through the preview, and the part that other pages of a project show. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core import signing
from django.db import connection
from django.db.models import Model
from django.utils.dateparse import parse_datetime
from psycopg.types.range import TimestamptzRange

from ledger import limits, quota, renewal, roles
from ledger.clock import database_now
from ledger.models import DepartmentCeiling, Job, MemberLimit, Project, QuotaGrant, User
from ledger.quota import Terms
from ledger.vocabulary import ProjectState, Resource
from portal.api.preemption import exposure_answers
from portal.quota_forms import members_of
from scheduler import draining, quota_effect
from scheduler.quota_effect import Span, Spent

SALT: Final = "quota-change"
KEPT_FOR: Final = dt.timedelta(hours=1)
MOST_NAMED: Final = 20
MOST_PERIODS: Final = 6  # of a budget that renews, before the present one
MOST_BEFORE: Final = 50  # former grants that the page of a project shows
USES: Final = """
SELECT g.id, ledger_projects_use(ARRAY[g.project_id], g.resource, g.model,
    ledger_counted_since(g.counted_from, g.period, g.renews)) FROM ledger_quotagrant g WHERE g.id = ANY (%s::bigint[])
"""
CEILING_USES: Final = """
SELECT c.id, ledger_projects_use(ledger_department_projects(c.department_id), c.resource, c.model,
    ledger_counted_since(c.counted_from, c.period, c.renews))
FROM ledger_departmentceiling c WHERE c.id = ANY (%s::bigint[])
"""
LIMIT_USES: Final = """
SELECT l.id, ledger_member_used(l.project_id, l.user_id, l.resource) FROM ledger_memberlimit l
WHERE l.id = ANY (%s::bigint[])
"""
CHANGED: Final = """
SELECT g.project_id, g.resource, max(at) FROM ledger_quotagrant g
CROSS JOIN LATERAL (VALUES (lower(g.period)), (upper(g.period))) AS moment (at)
WHERE g.project_id = ANY (%s::bigint[]) AND at <= clock_timestamp() GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant of now. `observed_until`: None when its effect is not observed any more. `renews_on`: when a budget
    starts anew next; None when it does not."""

    grant: QuotaGrant
    used: int
    changed_at: dt.datetime
    observed_until: dt.datetime | None
    renews_on: dt.datetime | None

    @property
    def over(self) -> bool:
        return self.used > self.grant.amount

    @property
    def left(self) -> int:
        return max(0, self.grant.amount - self.used)


def grant_rows(grants: Sequence[QuotaGrant]) -> list[GrantRow]:
    """With use and clock, in two queries whatever their number."""
    uses = _uses(USES, grants)
    with connection.cursor() as cursor:
        cursor.execute(CHANGED, [sorted({grant.project_id for grant in grants})])
        changed = {(project, resource): at for project, resource, at in cursor.fetchall()}
    now, window = database_now(), dt.timedelta(hours=settings.QUOTA_WINDOW_HOURS)
    rows = []
    for grant in grants:
        at = changed[grant.project_id, grant.resource]
        observed = at + window if at + window > now else None
        rows.append(GrantRow(grant, uses[grant.pk], at, observed, _renews_on(grant, now)))
    return rows


def _renews_on(row: QuotaGrant | DepartmentCeiling, now: dt.datetime) -> dt.datetime | None:
    """Nothing starts anew that is over by then."""
    start = renewal.next_start(row.renews, now)
    return start if start and (row.period.upper is None or start < row.period.upper) else None


def _uses(query: str, rows: Sequence[Model]) -> dict[int, int]:
    """By row, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(query, [[row.pk for row in rows]])
        return dict(cursor.fetchall())


def standing(project: Project) -> list[GrantRow]:
    """What is granted to a project now, in the order of Resource."""
    grants = QuotaGrant.objects.filter(project=project, period__contains=database_now()).select_related("project", "by")
    order = [str(resource) for resource in Resource]
    return grant_rows(sorted(grants, key=lambda grant: (order.index(grant.resource), grant.model)))


def borrowed(project: Project, user: User) -> list[dict[str, Any]]:
    """What of the project may be stopped for others, in each world, the first few jobs by number."""
    return [
        world
        | {
            "lent": [one for one in world["jobs"] if one["borrowed"]],
            "loose": [one for one in world["jobs"] if one["preemptible"]],
            "shown": world["jobs"][:MOST_NAMED],
            "more": max(0, len(world["jobs"]) - MOST_NAMED),
        }
        for world in exposure_answers(project, user)
    ]


@dataclass(frozen=True, slots=True)
class CeilingRow:
    ceiling: DepartmentCeiling
    used: int
    renews_on: dt.datetime | None

    @property
    def over(self) -> bool:
        return self.used > self.ceiling.amount


def ceiling_rows(ceilings: Sequence[DepartmentCeiling]) -> list[CeilingRow]:
    uses = _uses(CEILING_USES, ceilings)
    now = database_now() if any(ceiling.renews for ceiling in ceilings) else None
    return [CeilingRow(one, uses[one.pk], _renews_on(one, now) if now else None) for one in ceilings]


def ceilings_over(project: Project) -> list[CeilingRow]:
    above = limits.chain(project.department_id)
    rows = DepartmentCeiling.objects.filter(department__in=above, period__contains=database_now())
    found = list(rows.select_related("department").order_by("resource", "model"))
    found.sort(key=lambda row: above.index(row.department_id))
    return ceiling_rows(found)


def limits_of_members(project: Project, viewer: User) -> list[dict[str, Any]]:
    """Everybody's for who decides on them and for who audits the project; else the viewer's own."""
    rows = (
        MemberLimit.objects.filter(project=project).select_related("user", "by").order_by("user__username", "resource")
    )
    if not (roles.manages(project.pk, viewer) or viewer.audits(project.department_id)):
        rows = rows.filter(user=viewer)
    found = list(rows)
    uses = _uses(LIMIT_USES, found)
    return [{"limit": row, "used": uses[row.pk]} for row in found]


def effects(rows: Sequence[GrantRow], project: Project) -> list[tuple[list[GrantRow], Span, Span]]:
    """Before and since each change that is observed; resources that were changed at one instant together."""
    by_moment: dict[dt.datetime, list[GrantRow]] = {}
    for row in rows:
        if row.observed_until is not None:
            by_moment.setdefault(row.changed_at, []).append(row)
    now = database_now()
    return [(some, *quota_effect.effect([project.pk], at, now)) for at, some in sorted(by_moment.items())]


def quota_part(project: Project, viewer: User) -> dict[str, Any]:
    """What templates/projects/quota_part.html shows: for any page of a project that `viewer` may see."""
    return {
        "project": project,
        "grants": standing(project),
        "ceilings": ceilings_over(project),
        "member_limits": limits_of_members(project, viewer),
        "may_set_quota": roles.governs(viewer) and project.state != ProjectState.ENDED,
        "may_set_limits": roles.manages(project.pk, viewer) and project.state != ProjectState.ENDED,
    }


def former_grants(project: Project) -> list[QuotaGrant]:
    """What was, and what will come back, the newest first."""
    rows = QuotaGrant.objects.filter(project=project).exclude(period__contains=database_now()).select_related("by")
    return list(rows.order_by("-period", "-pk")[:MOST_BEFORE])


def spent_before(project: Project, rows: Sequence[GrantRow]) -> list[tuple[QuotaGrant, list[Spent]]]:
    """What was spent in the last periods of each budget that renews, from the book; none before the project began."""
    renewing = [row.grant for row in rows if row.grant.renews]
    if not renewing:
        return []
    now, found = database_now(), []
    began = dt.datetime.combine(project.starts_on, dt.time(), dt.UTC)
    for grant in renewing:
        windows = [window for window in renewal.before(grant.renews, now, MOST_PERIODS) if window[1] > began]
        found.append((grant, quota_effect.spent(project.pk, grant.model, windows)))
    return found


def members(project: Project) -> list[User]:
    return members_of(project)


# -- a change ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be granted or, with `lift`, taken away; `shown` is the grant that stood when it was previewed."""

    terms: Terms
    lift: bool
    shown: int


def sealed(project: Project, change: Change) -> str:
    """The change as one signed text: what was previewed is what will be made."""
    terms = {name: getattr(change.terms, name) for name in Terms.__slots__}
    times = {name: at.isoformat() if (at := terms[name]) else None for name in ("until", "drain_at")}
    values = {"project": project.pk, "terms": terms | times, "lift": change.lift, "shown": change.shown}
    return signing.dumps(values, salt=SALT, compress=True)


def opened(project: Project, text: str) -> Change | None:
    """None when the text is not ours, of another project, or older than an hour."""
    try:
        values: dict[str, Any] = signing.loads(text, salt=SALT, max_age=KEPT_FOR)
    except signing.BadSignature:
        return None
    if values["project"] != project.pk:
        return None
    terms = values["terms"]
    times = {name: parse_datetime(terms[name]) if terms[name] else None for name in ("until", "drain_at")}
    known = terms | times | {"resource": Resource(terms["resource"])}
    return Change(Terms(**known), values["lift"], values["shown"])


def of_now(project: Project, resource: str, model: str) -> QuotaGrant | None:
    rows = QuotaGrant.objects.filter(project=project, resource=resource, model=model)
    return rows.filter(period__contains=database_now()).first()


def preview(project: Project, change: Change) -> dict[str, Any]:
    """Before and after, who holds what of it now, and what would be ended when."""
    terms, now = change.terms, database_now()
    old = of_now(project, terms.resource, terms.model)
    since = now if old is None or terms.anew else limits.since_of(old, now)
    period = TimestamptzRange(now, None)
    new = QuotaGrant(
        project=project,
        resource=terms.resource,
        model=terms.model,
        amount=terms.amount,
        period=period,
        counted_from=since,
    )
    holding = draining.holdings(new)
    used = limits.used([project.pk], terms.resource, terms.model, since)
    ended = [] if change.lift else draining.victims(holding, used - terms.amount)
    jobs = Job.objects.select_related("by").in_bulk([one.job_id for one in holding if one.gives])
    return {
        "old": old,
        "terms": terms,
        "lift": change.lift,
        "used": used,
        "jobs": len(jobs),
        "people": sorted({job.by.username for job in jobs.values()}),
        "ended": [(jobs[one.job_id], one) for one in ended[:MOST_NAMED]],
        "more_ended": max(0, len(ended) - MOST_NAMED),
        "observed_until": quota.observed_until(project.pk, terms.resource, now),
        "renews_on": renewal.next_start(terms.renews, now),
        "hours": settings.QUOTA_DRAIN_MIN_HOURS,
        "window": settings.QUOTA_WINDOW_HOURS,
    }
