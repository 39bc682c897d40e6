"""What grants, ceilings and limits have in common: what is used of them, their locks, their periods and their checks.

Nothing here is called from outside ledger.quota, departments and member_limits but `used` and `chain`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, connection
from django.utils import timezone
from django.utils.translation import gettext as _
from psycopg.types.range import TimestamptzRange

from ledger import renewal
from ledger.acts import Act
from ledger.errors import Conflict, Refused
from ledger.models import DepartmentCeiling, Project, QuotaGrant, User
from ledger.vocabulary import OF_CARDS, Renewal, Resource

BIGGEST: Final = 2**53  # whole numbers up to here mean the same in every program that reads JSON
LATEST: Final = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
LOCK = """
SELECT FROM ledger_department d WHERE d.id = ANY (%s) ORDER BY cardinality(ledger_department_chain(d.id)), d.id
FOR NO KEY UPDATE OF d
"""
GUARANTEED = """
SELECT coalesce(sum(own), 0)::bigint FROM (
  SELECT CASE WHEN %(model)s <> '' THEN sum(guaranteed) FILTER (WHERE model = %(model)s)
    ELSE greatest(sum(guaranteed) FILTER (WHERE model = ''), sum(guaranteed) FILTER (WHERE model <> '')) END AS own
  FROM ledger_quotagrant WHERE resource = %(resource)s AND period @> %(at)s::timestamptz
    AND project_id = ANY (ledger_department_projects(%(department)s)) GROUP BY project_id) AS each
"""
LONGEST_MODEL: Final = 64
ANY, NONE, TRIED = -1, 0, "tried"  # whichever row was shown; none was; the reason of a change that is tried out
Timed = QuotaGrant | DepartmentCeiling


def used(projects: Sequence[int], resource: str, model: str = "", since: dt.datetime | None = None) -> int:
    """What these projects use of a resource now, by one query over the book; of a budget, since that instant."""
    return int(_one("SELECT ledger_projects_use(%s, %s, %s, %s)", [list(projects), resource, model, since]))


def used_by_each(
    projects: Sequence[int], resource: str, model: str = "", since: dt.datetime | None = None
) -> dict[int, int]:
    """The same of each of them by itself."""
    query = "SELECT p, ledger_projects_use(ARRAY[p], %s, %s, %s) FROM unnest(%s::bigint[]) AS p"
    with connection.cursor() as cursor:
        cursor.execute(query, [resource, model, since, list(projects)])
        return dict(cursor.fetchall())


def chain(department_id: int | None) -> list[int]:
    """The department and those above it, the root first."""
    return list(_one("SELECT ledger_department_chain(%s)", [department_id]))


def projects_below(department_id: int) -> list[int]:
    """Projects of the department and of those below it."""
    return list(_one("SELECT ledger_department_projects(%s)", [department_id]))


def guaranteed_below(department_id: int, resource: str, at: dt.datetime, model: str = "") -> int:
    """What all projects of a department and those below it are guaranteed of a resource at that instant; with a model,
    of cards of that model alone."""
    values = {"resource": resource, "at": at, "department": department_id, "model": model}
    return int(_one(GUARANTEED, values))


def _one(query: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchone()[0]


def lock_departments(ids: Iterable[int]) -> None:
    """From the root down, before any project."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK, [list(ids)])


def lock_projects(ids: Iterable[int]) -> None:
    list(Project.objects.filter(pk__in=list(ids)).order_by("pk").select_for_update(no_key=True).values_list("pk"))


def since_of(row: Timed, now: dt.datetime) -> dt.datetime:
    """From when a budget counts at this moment, as the database has it (ledger_counted_since)."""
    since: dt.datetime = row.counted_from or row.period.lower
    began = renewal.began(row.renews, now)
    return max(since, began) if began else since


def constraint_of(error: IntegrityError) -> str:
    """The name of the constraint that refused."""
    return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) or ""


def person(act: Act) -> User:
    """Who stands behind a limit; the system sets none by itself."""
    if act.actor is None:
        raise Refused(_("A limit is set by a person."), code="actor")
    return act.actor


# -- periods ----------------------------------------------------------------------------------------------------------


def clear(rows: Iterable[Timed], now: dt.datetime, until: dt.datetime | None) -> list[Timed]:
    """Make room from now to `until`: what stands then ends now, and what would have gone on after it comes back.
    Returns what comes back. Rows that never began go."""
    back = []
    for row in rows:
        lower, upper, since = row.period.lower, row.period.upper, since_of(row, now)
        returns = until is not None and (upper is None or upper > until)
        if lower < now:
            _move(row, lower, now)
            if returns:
                row.pk, row.used_at_most, row.bound_until = None, None, None
                row.period = TimestamptzRange(until, upper)
                row.counted_from = since if row.resource == Resource.CARD_MILLI_S else None
                row.save(force_insert=True)
                back.append(row)
        elif returns:
            _move(row, max(lower, until or lower), upper)
            back.append(row)
        else:
            row.delete()
    return back


def _move(row: Timed, lower: dt.datetime, upper: dt.datetime | None) -> None:
    row.period = TimestamptzRange(lower, upper)
    row.save(update_fields=["period"])


def check_shown(old: Timed | None, shown: int) -> None:
    """Conflict when the row that stands is another than the one that the maker of a change was shown."""
    if shown not in (ANY, old.pk if old else NONE):
        text = _("This quota was changed by somebody else since the preview. Look at a new preview.")
        raise Conflict(text, code="changed_since_preview")


# -- checks -----------------------------------------------------------------------------------------------------------


def check_amount(amount: int, field: str = "amount") -> None:
    if not 0 <= amount <= BIGGEST:
        text = _("Give a whole number from 0 to %(n)d.") % {"n": BIGGEST}
        raise Refused(text, field=field, code="out_of_range")


def check_resource(resource: str, known: Iterable[Resource] = Resource) -> None:
    if resource not in list(known):
        text = _("Known are: %(known)s.") % {"known": ", ".join(sorted(known))}
        raise Refused(text, field="resource", code="unknown")


def check_model(model: str, resource: str) -> None:
    if model and resource not in OF_CARDS:
        raise Refused(_("Only cards have a model; leave it empty."), field="model", code="not_of_cards")
    if len(model) > LONGEST_MODEL:
        raise Refused(_("At most %(n)d characters.") % {"n": LONGEST_MODEL}, field="model", code="too_long")


def check_renewal(renews: str, resource: str) -> None:
    if renews and renews not in list(Renewal):
        text = _("Known are: %(known)s.") % {"known": ", ".join(Renewal)}
        raise Refused(text, field="renews", code="unknown")
    if renews and resource != Resource.CARD_MILLI_S:
        raise Refused(_("Only card-hours start anew; leave it empty."), field="renews", code="not_a_budget")


def check_moment(moment: dt.datetime | None, field: str) -> None:
    if moment is not None and moment >= LATEST:
        raise Refused(_("This time lies after 2199."), field=field, code="out_of_range")


def check_later(until: dt.datetime | None, now: dt.datetime) -> None:
    if until is not None and until <= now:
        text = _("The end lies in the past; it is %(now)s now.") % {"now": told(now)}
        raise Refused(text, field="until", code="past")


def drain_date(amount: int, taken: int, drain_at: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
    """When what runs above `amount` is ended; None when it fits. Refused without a date, or with one too near."""
    if taken <= amount:
        return None
    if drain_at is None:
        text = _(
            "%(used)d are in use now. Give a date from which jobs are ended until what runs fits, or at least as much."
        )
        raise Refused(text % {"used": taken}, field="amount", code="below_use")
    if drain_at < (first := earliest_drain(now)):
        text = _("Running work has at least %(n)g hours to finish: choose %(first)s or later.")
        hours = {"n": settings.QUOTA_DRAIN_MIN_HOURS, "first": told(first)}
        raise Refused(text % hours, field="drain_at", code="too_soon")
    return drain_at


def earliest_drain(now: dt.datetime) -> dt.datetime:
    return now + dt.timedelta(hours=settings.QUOTA_DRAIN_MIN_HOURS)


def told(moment: dt.datetime) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M %Z")
