"""What people ask for: more quota, a later end, a new project, to be in one. The only writer of requests, verdicts and
comments. An approval does what was asked for in the same transaction, with the one who approved as the actor on behalf
of the one who asked.

To join is decided by the project's managers, the rest by site admins and managers; nobody decides their own. Large ones
need two people.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from ledger import audit, limits, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Project, ProjectRequest, RequestComment, RequestVerdict, User
from ledger.projects import lock_project
from ledger.reasons import check_reason
from ledger.request_kinds import KINDS
from ledger.vocabulary import RequestKind, RequestState

OPEN_FOR: Final = dt.timedelta(days=30)
MOST_OPEN: Final = 20  # of one person
LONGEST_COMMENT: Final = 2000


def ask(*, kind: RequestKind, project: Project | None, details: Mapping[str, Any], act: Act) -> ProjectRequest:
    """A new request by the actor. `details` as ledger.models.ProjectRequest says; Refused names the field in it."""
    author = act.actor
    if author is None or not author.is_active:
        raise Forbidden(_("Only people ask."), code="role")
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        User.objects.select_for_update(no_key=True).get(pk=author.pk)
        if project is not None:
            project = lock_project(project.pk)
        checked = KINDS[kind].check(project, details, author)
        check_room(author)
        now = database_now()
        try:
            with transaction.atomic():
                made = ProjectRequest.objects.create(
                    kind=kind,
                    project=project,
                    by=author,
                    details=checked,
                    reason=act.reason,
                    needs=needs(kind, project, checked),
                    made_at=now,
                    expires_at=now + OPEN_FOR,
                )
        except IntegrityError as error:
            raise Conflict(_("You have asked already and there is no answer yet."), code="asked") from error
        _record(made, "request.made", act, after={"kind": kind, "needs": made.needs, **checked})
    return made


def check_room(author: User) -> None:
    """Refused when so many of their requests are open that there may be no more."""
    if ProjectRequest.objects.filter(by=author, state=RequestState.OPEN).count() >= MOST_OPEN:
        text = _("%(n)d of your requests are open, the most there may be. Take some back first.") % {"n": MOST_OPEN}
        raise Refused(text, code="too_many")


def needs(kind: RequestKind, project: Project | None, details: Mapping[str, Any]) -> int:
    """How many people have to approve: two above the site's thresholds (settings TWO_PERSONS_CARDS and _DAYS)."""
    large = KINDS[kind].is_large(project, details, settings.TWO_PERSONS_CARDS, settings.TWO_PERSONS_DAYS)
    return 2 if large else 1


def decide(*, request: ProjectRequest, approves: bool, act: Act) -> ProjectRequest:
    """One person's verdict. A refusal ends the request; the last approval that it needs does what was asked for."""
    actor = _judge(request, act)
    if not approves:
        check_reason(act.reason)
    with transaction.atomic(durable=True):
        found = _locked(request)
        now = database_now()
        if found.expires_at <= now:
            raise Conflict(_("The time of this request is over; it has to be made anew."), code="expired")
        if RequestVerdict.objects.filter(request=found, by=actor).exists():
            text = _("You have approved it; somebody else has to do so as well.")
            raise Conflict(text, code="decided")
        RequestVerdict.objects.create(
            request=found, asked_by_id=found.by_id, by=actor, approves=approves, reason=act.reason, at=now
        )
        after = {"approves": approves}
        _record(found, "request.verdict", act, after=after)
        if not approves:
            _end(found, RequestState.REFUSED, now, act)
        else:
            _require_fresh(found)
            if missing(found, verdicts_on(found)) <= 0:
                _carry_out(found, now, act)
    return found


def may_decide(request: ProjectRequest, user: User) -> bool:
    """Whether this person's verdict would count, whatever the state of the request."""
    if request.by_id == user.pk or not user.is_active:
        return False
    if request.kind == RequestKind.JOIN:
        return request.project_id is not None and roles.manages(request.project_id, user)
    return roles.governs(user)


def verdicts_on(request: ProjectRequest) -> list[RequestVerdict]:
    return list(RequestVerdict.objects.filter(request=request).select_related("by").order_by("pk"))


def missing(request: ProjectRequest, verdicts: Iterable[RequestVerdict]) -> int:
    """How many more people have to approve. Approvals of people who may not decide it any more don't count."""
    given = [verdict.by for verdict in verdicts if verdict.approves]
    if request.kind == RequestKind.JOIN:  # one is enough, and was asked a moment ago who they are
        return request.needs - len(given)
    return request.needs - sum(map(roles.governs, given))


def may_comment(request: ProjectRequest, user: User) -> bool:
    if not user.is_active:
        return False
    managed = request.project_id is not None and roles.manages(request.project_id, user)
    return request.by_id == user.pk or managed or may_decide(request, user)


def _judge(request: ProjectRequest, act: Act) -> User:
    actor = act.actor
    if actor is not None and actor.pk == request.by_id:
        raise Forbidden(_("Nobody decides their own request."), code="self")
    if actor is None or not may_decide(request, actor):
        raise Forbidden(_("Your role does not decide this request."), code="role")
    return actor


def _require_fresh(request: ProjectRequest) -> None:
    """Conflict when an approval would take something away by now. What became a larger step since needs more people."""
    kind = RequestKind(request.kind)
    if not KINDS[kind].is_more(request.project, request.details):
        text = _("What stands now is as much or more already. Refuse the request or let its author take it back.")
        raise Conflict(text, code="stale")
    now = needs(kind, request.project, request.details)
    if now > request.needs:
        request.needs = now
        request.save(update_fields=["needs"])


def _carry_out(request: ProjectRequest, now: dt.datetime, act: Act) -> None:
    said = Act(act.actor, act.via, request.reason, act.request_id, on_behalf_of=request.by)
    request.before = KINDS[RequestKind(request.kind)].before(request.project, request.details)
    project = KINDS[RequestKind(request.kind)].carry_out(request, said)
    if request.project_id is None:
        request.project = project
    request.save(update_fields=["before", "project"])
    _end(request, RequestState.APPROVED, now, act)


def withdraw(*, request: ProjectRequest, act: Act) -> ProjectRequest:
    """Its author takes it back."""
    if act.actor is None or act.actor.pk != request.by_id:
        raise Forbidden(_("Only who asked takes a request back."), code="role")
    with transaction.atomic(durable=True):
        found = _locked(request)
        _end(found, RequestState.WITHDRAWN, database_now(), act)
    return found


def comment(*, request: ProjectRequest, text: str, act: Act) -> RequestComment:
    """Said by who asked, who may decide or manages the project, as long as the request is open."""
    if not text.strip() or len(text) > LONGEST_COMMENT:
        words = _("Write 1 to %(n)d characters.") % {"n": LONGEST_COMMENT}
        raise Refused(words, field="text", code="length")
    actor = act.actor
    if actor is None or not may_comment(request, actor):
        raise Forbidden(_("Only who asked, who decides and the project's managers comment on it."), code="role")
    with transaction.atomic(durable=True):
        found = _locked(request)
        made = RequestComment.objects.create(request=found, by=actor, text=text.strip(), at=database_now())
        _record(found, "request.comment", act, after={"comment": made.pk})
    return made


def expire_requests() -> int:
    """End the requests whose time is over; each in a transaction of its own. Returns how many."""
    count = 0
    late = ProjectRequest.objects.filter(state=RequestState.OPEN, expires_at__lte=database_now())
    for request in late.order_by("pk"):
        with transaction.atomic(durable=True):
            found = ProjectRequest.objects.select_for_update(no_key=True).get(pk=request.pk)
            if found.state == RequestState.OPEN:
                _end(found, RequestState.EXPIRED, database_now(), Act(None, "task", "nobody decided it in time"))
                count += 1
    return count


def close_inside(project: Project, reason: str) -> int:
    """The open ones about a project that ends; the caller holds its lock. Returns how many."""
    rows = ProjectRequest.objects.filter(project=project, state=RequestState.OPEN).order_by("pk")
    now = database_now()
    for found in rows.select_for_update(no_key=True):
        _end(found, RequestState.EXPIRED, now, Act(None, "task", reason))
    return len(rows)


def _locked(request: ProjectRequest) -> ProjectRequest:
    """The request under its lock, after those of its project and of the departments above it; Conflict when it is no
    longer open."""
    if request.project_id is not None:
        above = Project.objects.values_list("department", flat=True).get(pk=request.project_id)
        limits.lock_departments(limits.chain(above))
        lock_project(request.project_id)
    found = ProjectRequest.objects.select_for_update(no_key=True).get(pk=request.pk)
    if found.state != RequestState.OPEN:
        raise Conflict(_("This request is no longer open."), code="decided")
    return found


def _end(request: ProjectRequest, state: RequestState, now: dt.datetime, act: Act) -> None:
    before, request.state, request.decided_at = request.state, state, now
    request.save(update_fields=["state", "decided_at"])
    _record(request, f"request.{state}", act, before={"state": before}, after={"state": state})


def _record(request: ProjectRequest, verb: str, act: Act, **states: Any) -> None:
    audit.record(verb=verb, target=request, project=request.project_id, **states, **act.said())
