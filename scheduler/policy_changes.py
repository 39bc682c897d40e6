"""New versions of policies: the only writer of them. Site admins and site managers alone.

The version before ends at the instant at which the new one begins. Lock order: the project, then the policy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _
from psycopg.types.range import TimestamptzRange

from ledger import audit, limits, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Department, Project, User, Zone
from ledger.reasons import check_reason
from ledger.vocabulary import Form, JobKind, ProjectState
from scheduler.policy import OF_AMOUNT, Scope, Terms, terms_of
from scheduler.policy_rows import LEAST_PRIORITY, LONGEST_S, MOST_PRIORITY, JobPolicy, PolicyVersion
from scheduler.wake import wake_after_commit

NONE: Final = 0  # as `shown`: nothing was in force when it was previewed
FORMS: Final = tuple(str(form) for form in Form)
RANGES: Final = {
    "fallback_wait_s": (0, LONGEST_S),
    "priority_default": (LEAST_PRIORITY, MOST_PRIORITY),
    "priority_most": (LEAST_PRIORITY, MOST_PRIORITY),
    "walltime_default_s": (1, LONGEST_S),
    "walltime_most_s": (1, LONGEST_S),
}


def put_version(*, scope: Scope, terms: Terms, act: Act, shown: int | None = None) -> PolicyVersion:
    """From now on the policy of this scope says that. `shown`: the number of the version that was in force when it was
    previewed, NONE for none; Conflict when another is now."""
    roles.require_governing(act.actor)
    check_reason(act.reason)
    check_scope(scope)
    check_terms(terms)
    with transaction.atomic(durable=True):
        policy, old = _locked(scope, shown)
        if old is not None and terms_of(old) == terms:
            raise Refused(_("This is what the policy says already."), code="no_change")
        new = _begin(policy, old, terms, act)
        wake_after_commit("scheduler.tick")
    return new


def withdraw(*, scope: Scope, act: Act, shown: int | None = None) -> PolicyVersion:
    """From now on the policy of this scope says nothing; its versions stay."""
    roles.require_governing(act.actor)
    check_reason(act.reason)
    check_scope(scope)
    with transaction.atomic(durable=True):
        policy, old = _locked(scope, shown)
        if old is None:
            raise Conflict(_("The policy says nothing now."), code="nothing_said")
        new = _begin(policy, old, Terms(), act)
        wake_after_commit("scheduler.tick")
    return new


def _locked(scope: Scope, shown: int | None) -> tuple[JobPolicy, PolicyVersion | None]:
    """The policy under its lock, and what it says now."""
    if scope.project is not None:
        limits.lock_projects([scope.project])
        if Project.objects.filter(pk=scope.project, state=ProjectState.ENDED).exists():
            text = _("The project has ended: no job of it will come.")
            raise Conflict(text, field="project", code="project_ended")
    policy, _new = JobPolicy.objects.get_or_create(
        project_id=scope.project, department_id=scope.department, kind=scope.kind
    )
    policy = JobPolicy.objects.select_for_update(no_key=True).get(pk=policy.pk)
    current = policy.versions.filter(period__upper_inf=True).first()
    old = None if current is None or current.withdrawn else current
    if shown is not None and shown != (old.number if old else NONE):
        text = _("The policy was changed by somebody else since the preview. Look at it again.")
        raise Conflict(text, code="changed")
    return policy, old


def _begin(policy: JobPolicy, old: PolicyVersion | None, terms: Terms, act: Act) -> PolicyVersion:
    last = policy.versions.order_by("-number").first()
    now = database_now()
    if last is not None:
        last.period = TimestamptzRange(last.period.lower, now)
        last.save(update_fields=["period"])
    new = PolicyVersion.objects.create(
        policy=policy,
        number=1 if last is None else last.number + 1,
        period=(now, None),
        withdrawn=not terms.says,
        by=_person(act),
        reason=act.reason,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in terms.says.items()},
    )
    audit.record(
        verb="policy.set" if terms.says else "policy.withdrawn",
        target=policy,
        project=policy.project_id,
        before=told(policy, old),
        after=told(policy, new),
        at=now,
        **act.said(),
    )
    return new


def told(policy: JobPolicy, version: PolicyVersion | None) -> dict[str, Any]:
    """As an audit row has it."""
    department = policy.department.slug if policy.department else None
    scope = {"project": policy.project.slug if policy.project else None, "department": department, "kind": policy.kind}
    if version is None:
        return {"scope": scope, "version": None}
    says = terms_of(version).says
    return {"scope": scope, "version": version.number, "says": says | zones_told(says.get("zones", ()))}


def zones_told(ids: Collection[int]) -> dict[str, Any]:
    if not ids:
        return {}
    return {"zones": sorted(Zone.objects.filter(pk__in=ids).values_list("slug", flat=True))}


def _person(act: Act) -> User:
    if act.actor is None:
        raise Refused(_("A policy is set by a person."), code="actor")
    return act.actor


# -- checks -----------------------------------------------------------------------------------------------------------


def check_scope(scope: Scope) -> None:
    if scope.project is not None and scope.department is not None:
        text = _("A policy is of a project or of a department, not of both.")
        raise Refused(text, field="department", code="two_scopes")
    if scope.kind not in ("", *JobKind):
        text = _("Known are: %(known)s.") % {"known": ", ".join(JobKind)}
        raise Refused(text, field="kind", code="unknown")
    if scope.project is not None and not Project.objects.filter(pk=scope.project).exists():
        raise Refused(_("There is no such project."), field="project", code="unknown")
    if scope.department is not None and not Department.objects.filter(pk=scope.department).exists():
        raise Refused(_("There is no such department."), field="department", code="unknown")


def check_terms(terms: Terms) -> None:
    """Refused, naming the field, unless a version may say that."""
    if not terms.says:
        text = _("A policy says at least one thing. To end one, withdraw it.")
        raise Refused(text, field="forms", code="says_nothing")
    _check_forms(terms.forms)
    _check_zones(terms.zones)
    for name, (least, most) in RANGES.items():
        value = getattr(terms, name)
        if value is not None and not least <= value <= most:
            text = _("Give a whole number from %(least)d to %(most)d.") % {"least": least, "most": most}
            raise Refused(text, field=name, code="out_of_range")
    for default, most_of in OF_AMOUNT.values():
        first, last = getattr(terms, default), getattr(terms, most_of)
        if first is not None and last is not None and first > last:
            text = _("The default (%(default)d) is above the most that may be asked for (%(most)d).")
            raise Refused(text % {"default": first, "most": last}, field=default, code="above_most")


def _check_forms(forms: Collection[str] | None) -> None:
    if forms is None:
        return
    if not forms or len(set(forms)) != len(forms) or not set(forms) <= set(FORMS):
        text = _("Name one or more of these, each once: %(known)s.") % {"known": ", ".join(FORMS)}
        raise Refused(text, field="forms", code="invalid")


def _check_zones(zones: Collection[int] | None) -> None:
    if zones is None:
        return
    known = set(Zone.objects.filter(pk__in=zones).values_list("pk", flat=True))
    if not zones or len(set(zones)) != len(zones) or set(zones) - known:
        text = _("Name one or more zones that there are, each once; leave it out for every zone.")
        raise Refused(text, field="zones", code="invalid")
