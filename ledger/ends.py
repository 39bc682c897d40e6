"""When a project is over and when its grace is, and the steps of its end: begin, order, close. The only writer of
`ending_since`, `end_ordered_at`, receipts and the state ENDED; ledger.projects takes a project back to work.

A project works through its last day `ends_on` (UTC). From the midnight after it the project takes no new work, and what
runs may go on for `grace_days`; an admin who orders the end leaves it no grace. Then everything of it is stopped, and
when nothing is open any more it has ended: its people only read, and one receipt says what was reclaimed.

`now` is the clock of who decides; what is written down as a fact has the database's own time. Each `…_inside` is a step
inside a durable transaction of its caller (scheduler.reclaim).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

from django.db import connection
from django.utils.translation import gettext as _

from ledger import audit, notices, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Allocation, Job, Project, QuotaGrant, Receipt, User
from ledger.projects import lock_project
from ledger.reasons import check_reason
from ledger.vocabulary import LIVE_JOB_STATES, NoticeKind, ProjectState, SiteRole

NOTICE_DAYS: Final[tuple[tuple[NoticeKind, int], ...]] = (  # the most days that are left, the nearest first
    (NoticeKind.DAYS_1, 1),
    (NoticeKind.DAYS_3, 3),
    (NoticeKind.DAYS_14, 14),
)
FIRST_NOTICE: Final = dt.timedelta(days=14)
NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
SYSTEM: Final = Act(None, "task")
END_GRANTS: Final = """
UPDATE ledger_quotagrant SET period = tstzrange(lower(period),
    greatest(lower(period) + interval '1 microsecond', clock_timestamp()))
WHERE project_id = %s AND (upper_inf(period) OR upper(period) > clock_timestamp())
RETURNING id
"""


# -- when --------------------------------------------------------------------------------------------------------------


def over_at(project: Project) -> dt.datetime | None:
    """From then on it takes no new work. None: it has no end."""
    if project.end_ordered_at is not None:
        return project.end_ordered_at
    return None if project.ends_on is None else _midnight_after(project.ends_on, 0)


def grace_over_at(project: Project) -> dt.datetime | None:
    """From then on whatever is left of it is stopped. None: it has no end."""
    if project.end_ordered_at is not None:
        return project.end_ordered_at
    return None if project.ends_on is None else _midnight_after(project.ends_on, project.grace_days)


def _midnight_after(day: dt.date, days: int) -> dt.datetime:
    try:
        return dt.datetime.combine(day + dt.timedelta(days=days + 1), dt.time(), dt.UTC)
    except OverflowError:
        return NEVER


def is_over(project: Project, now: dt.datetime) -> bool:
    over = over_at(project)
    return over is not None and over <= now


def grace_is_over(project: Project, now: dt.datetime) -> bool:
    over = grace_over_at(project)
    return over is not None and over <= now


def due_notice(project: Project, now: dt.datetime) -> NoticeKind | None:
    """What its people should have been told by now of an end that is still ahead: the nearest notice alone."""
    if project.ends_on is None or project.state != ProjectState.ACTIVE or is_over(project, now):
        return None
    left = (project.ends_on - now.date()).days
    return next((kind for kind, days in NOTICE_DAYS if left <= days), None)


# -- steps -------------------------------------------------------------------------------------------------------------


def lock(project_id: int) -> Project:
    """The project under its lock, whatever its state."""
    return Project.objects.select_for_update(no_key=True).get(pk=project_id)


def begin_inside(project_id: int, now: dt.datetime) -> bool:
    """Its last day is over: no new work from now on. False when it was extended meanwhile, or has begun to end."""
    project = lock(project_id)
    if project.state == ProjectState.ENDED or project.ending_since is not None:
        return False
    if project.state == ProjectState.ACTIVE and not is_over(project, now):
        return False
    before = {"state": project.state}
    _set_ending(project, database_now())
    _record(project, "project.ending", SYSTEM, before, {"state": project.state, "ends_on": str(project.ends_on)})
    notices.tell_inside(project, NoticeKind.OVER, now)
    return True


def order_inside(project_id: int, act: Act) -> Project:
    """An admin ends it now: no new work, no grace. Its last day is today; an extension takes it back to work as long
    as it has not ended."""
    _require_admin(act.actor)
    check_reason(act.reason)
    project = lock_project(project_id)
    if project.end_ordered_at is not None:
        raise Conflict(_("The end of this project has been ordered already."), field="project", code="ordered")
    now = database_now()
    before = {"state": project.state, "ends_on": str(project.ends_on)}
    last = max(project.starts_on, now.date())
    project.ends_on = last if project.ends_on is None else min(project.ends_on, last)
    project.end_ordered_at = now
    _set_ending(project, project.ending_since or now, "ends_on", "end_ordered_at")
    _record(project, "project.end_ordered", act, before, {"state": project.state, "ends_on": str(project.ends_on)})
    notices.tell_inside(project, NoticeKind.OVER, now)
    return project


def _set_ending(project: Project, since: dt.datetime, *changed: str) -> None:
    project.state, project.ending_since = ProjectState.ENDING, since
    project.save(update_fields=["state", "ending_since", *changed])


def _require_admin(user: User | None) -> None:
    if user is not None and not (user.is_active and user.site_role == SiteRole.ADMIN):
        raise Forbidden(_("Only site admins end a project before its time."), code="role")


def check_extension(project: Project, ends_on: dt.date) -> None:
    """Refused unless the new last day is a later one, or the project is about to be reclaimed."""
    if project.state == ProjectState.ACTIVE and project.ends_on is not None and ends_on <= project.ends_on:
        text = _("An extension ends later than %(end)s.") % {"end": project.ends_on}
        raise Refused(text, field="ends_on", code="not_later")
    if project.state != ProjectState.ACTIVE and ends_on == project.ends_on:
        text = _("Choose another day: %(end)s is the end that is being carried out.") % {"end": project.ends_on}
        raise Refused(text, field="ends_on", code="not_later")


def lock_ending(project_id: int) -> Project | None:
    """The project under its lock while it ends; None when it was extended meanwhile or has ended."""
    project = lock(project_id)
    return project if project.state == ProjectState.ENDING else None


def holds_anything(project: Project) -> bool:
    """Whether an allocation, an attempt or a queued job of it is open."""
    open_ones = Allocation.objects.filter(project=project, period__upper_inf=True)
    return open_ones.exists() or Job.objects.filter(project=project, state__in=sorted(LIVE_JOB_STATES)).exists()


def end_grants_inside(project: Project) -> list[QuotaGrant]:
    """Its grants end now; one that has not begun ends as it begins. Returns those that this call ended."""
    with connection.cursor() as cursor:
        cursor.execute(END_GRANTS, [project.pk])
        ended = [row[0] for row in cursor.fetchall()]
    return list(QuotaGrant.objects.filter(pk__in=ended).order_by("resource", "pk"))


def close_inside(project: Project, receipt: Receipt, now: dt.datetime, grants: Sequence[QuotaGrant]) -> None:
    """Nothing of the project, locked by the caller, is open any more: it has ended, its people read, and this receipt
    is the one."""
    receipt.save(force_insert=True)
    project.state = ProjectState.ENDED
    project.save(update_fields=["state"])
    roles.derive(project)
    after = {"state": project.state, "receipt": receipt.pk, "grants": [grant.pk for grant in grants]}
    _record(project, "project.ended", SYSTEM, {"state": ProjectState.ENDING}, after)
    notices.tell_inside(project, NoticeKind.RECEIPT, now)


def _record(project: Project, verb: str, act: Act, before: dict[str, Any], after: dict[str, Any]) -> None:
    audit.record(verb=verb, target=project, project=project, before=before, after=after, **act.said())
