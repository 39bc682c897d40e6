"""What each kind of request must say, when it is a large one, and what its approval does."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from django.utils.translation import gettext as _

from ledger import projects, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Department, Membership, Project, ProjectRequest, QuotaGrant, User
from ledger.roles import role_in
from ledger.vocabulary import ProjectRole, RequestKind, Resource

Details = Mapping[str, Any]


class Kind(ABC):
    """`project` is under its lock, or None where the kind has none."""

    @abstractmethod
    def check(self, project: Project | None, details: Details, author: User) -> dict[str, Any]:
        """The details as they are kept; Refused names the field that is not right."""

    @abstractmethod
    def is_large(self, project: Project | None, details: Details, cards: int, days: int) -> bool:
        """Whether two people have to approve: more than so many cards or days more than now."""

    def is_more(self, project: Project | None, details: Details) -> bool:
        """Whether it would still give something: what stands may have changed since it was asked for."""
        return True

    @abstractmethod
    def before(self, project: Project | None, details: Details) -> dict[str, Any]:
        """What stands there now, under the names of the details."""

    @abstractmethod
    def carry_out(self, request: ProjectRequest, act: Act) -> Project:
        """Do it, inside the transaction of the last verdict. Returns the project that it is about."""


class Extension(Kind):
    def check(self, project: Project | None, details: Details, author: User) -> dict[str, Any]:
        here = _of_members(project, author)
        ends_on = _day(details, "ends_on")
        if ends_on is None or (here.ends_on is not None and ends_on <= here.ends_on):
            text = _("Choose a day after the present end, %(end)s.") % {"end": here.ends_on}
            raise Refused(text, field="ends_on", code="not_later")
        projects.check_change(here, {"ends_on": ends_on})
        return {"ends_on": str(ends_on)}

    def is_large(self, project: Project | None, details: Details, cards: int, days: int) -> bool:
        now = project.ends_on if project and project.ends_on else database_now().date()
        return (dt.date.fromisoformat(details["ends_on"]) - now).days > days

    def is_more(self, project: Project | None, details: Details) -> bool:
        here = _known(project)
        return here.ends_on is None or dt.date.fromisoformat(details["ends_on"]) > here.ends_on

    def before(self, project: Project | None, details: Details) -> dict[str, Any]:
        return {"ends_on": str(project.ends_on) if project and project.ends_on else None}

    def carry_out(self, request: ProjectRequest, act: Act) -> Project:
        ends_on = dt.date.fromisoformat(request.details["ends_on"])
        return projects.change_inside(_project(request).pk, {"ends_on": ends_on}, act)


class Join(Kind):
    def check(self, project: Project | None, details: Details, author: User) -> dict[str, Any]:
        here, role = _known(project), join_role(details)
        if Membership.objects.filter(project=here, user=author).exists():
            raise Conflict(_("You are in this project already."), field="project", code="member")
        return {"role": role}

    def is_large(self, project: Project | None, details: Details, cards: int, days: int) -> bool:
        return False

    def before(self, project: Project | None, details: Details) -> dict[str, Any]:
        return {"role": None}

    def carry_out(self, request: ProjectRequest, act: Act) -> Project:
        here = _project(request)
        if role_in(here.pk, request.by) is None:
            projects.put_inside(here.pk, request.by, ProjectRole(request.details["role"]), act)
        return here


class NewProject(Kind):
    """Who asked becomes the owner."""

    TEXTS: Final = ("title", "purpose", "cost_centre")

    def check(self, project: Project | None, details: Details, author: User) -> dict[str, Any]:
        slug, given = _text(details, "slug"), self._details(details)
        checked = projects.check_new(slug, given)
        kept = {name: str(value) for name, value in checked.items() if name in (*self.TEXTS, "starts_on", "ends_on")}
        return {"slug": slug, **kept, "department": given.department.slug if given.department else None}

    def _details(self, details: Details) -> projects.Details:
        slug = _text(details, "department")
        department = Department.objects.filter(slug=slug).first() if slug else None
        if slug and department is None:
            raise Refused(_("There is no such department."), field="department", code="unknown")
        texts: dict[str, Any] = {name: _text(details, name) for name in self.TEXTS}
        starts_on, ends_on = _day(details, "starts_on"), _day(details, "ends_on")
        return projects.Details(**texts, department=department, starts_on=starts_on, ends_on=ends_on)

    def is_large(self, project: Project | None, details: Details, cards: int, days: int) -> bool:
        start, end = (dt.date.fromisoformat(details[name]) for name in ("starts_on", "ends_on"))
        return (end - start).days > days

    def before(self, project: Project | None, details: Details) -> dict[str, Any]:
        return dict.fromkeys(details)

    def carry_out(self, request: ProjectRequest, act: Act) -> Project:
        given = self._details(request.details)
        return projects.open_inside(request.details["slug"], request.by, given, act)


class Quota(Kind):
    """More of a resource that a grant limits; what is guaranteed and the weight stay as they are."""

    def check(self, project: Project | None, details: Details, author: User) -> dict[str, Any]:
        here = _of_members(project, author)
        terms = self._terms(details)
        quota.check_terms(terms)
        now = self._now(here, terms)
        if now is None:
            text = _("Nothing limits this resource of the project, so there is nothing to ask for.")
            raise Refused(text, field="resource", code="not_limited")
        if terms.amount <= now.amount:
            text = _("Ask for more than the project has: %(n)d.") % {"n": now.amount}
            raise Refused(text, field="amount", code="not_more")
        return {"resource": str(terms.resource), "model": terms.model, "amount": terms.amount}

    def _terms(self, details: Details) -> quota.Terms:
        resource, amount = _text(details, "resource"), details.get("amount")
        if resource not in list(Resource):
            known = ", ".join(Resource)
            raise Refused(_("Known are: %(known)s.") % {"known": known}, field="resource", code="unknown")
        if not isinstance(amount, int) or isinstance(amount, bool):
            raise Refused(_("Give a whole number."), field="amount", code="invalid")
        return quota.Terms(Resource(resource), amount, model=_text(details, "model"))

    def _now(self, project: Project, terms: quota.Terms) -> QuotaGrant | None:
        rows = QuotaGrant.objects.filter(project=project, resource=terms.resource, model=terms.model)
        return rows.filter(period__contains=database_now()).first()

    def is_large(self, project: Project | None, details: Details, cards: int, days: int) -> bool:
        in_a_card = IN_A_CARD.get(Resource(details["resource"]))
        before = self._now(_known(project), self._terms(details))
        more = details["amount"] - (before.amount if before else 0)
        return in_a_card is not None and more > cards * in_a_card

    def is_more(self, project: Project | None, details: Details) -> bool:
        now = self._now(_known(project), self._terms(details))
        return now is not None and details["amount"] > now.amount

    def before(self, project: Project | None, details: Details) -> dict[str, Any]:
        terms = self._terms(details)
        now = self._now(_known(project), terms)
        return {"resource": str(terms.resource), "model": terms.model, "amount": now.amount if now else None}

    def carry_out(self, request: ProjectRequest, act: Act) -> Project:
        here, terms = _project(request), self._terms(request.details)
        if (now := self._now(here, terms)) is not None:
            kept: dict[str, Any] = {"guaranteed": now.guaranteed, "weight": now.weight, "renews": now.renews}
            terms = replace(terms, until=now.period.upper, **kept)
        quota.set_inside(here, terms, act, override=act.reason)
        return here


# how much of a resource counts as a card, for the question how many people have to approve
IN_A_CARD: Final[Mapping[Resource, float]] = {
    Resource.CARD_MILLI: 1000,
    Resource.CARD_MEMORY_MIB: 80 * 1024,
    Resource.WHOLE_NODES: 1 / 8,
    Resource.CARD_MILLI_S: 1000 * 30 * 86_400,  # for a month
}
KINDS: Final[Mapping[RequestKind, Kind]] = {
    RequestKind.QUOTA: Quota(),
    RequestKind.EXTENSION: Extension(),
    RequestKind.JOIN: Join(),
    RequestKind.NEW_PROJECT: NewProject(),
}


def join_role(details: Details) -> str:
    """As what somebody asks to join; the same answer whether there is such a project or not."""
    role = _text(details, "role") or str(ProjectRole.MEMBER)
    if role not in (ProjectRole.MEMBER, ProjectRole.VIEWER):
        raise Refused(_("Ask to be a member or a viewer."), field="role", code="invalid")
    return role


def changes(request: ProjectRequest) -> list[tuple[str, Any, Any]]:
    """(field, before, after) of what an approval changes, or has changed."""
    kind = KINDS[RequestKind(request.kind)]
    before = request.before if request.before is not None else kind.before(request.project, request.details)
    return [(name, before.get(name), after) for name, after in request.details.items() if before.get(name) != after]


def _project(request: ProjectRequest) -> Project:
    return _known(request.project)


def _known(project: Project | None) -> Project:
    if project is None:
        raise Refused(_("Say which project it is about."), field="project", code="required")
    return project


def _of_members(project: Project | None, author: User) -> Project:
    """A project whose owner or manager asks."""
    here = _known(project)
    if role_in(here.pk, author) not in (ProjectRole.OWNER, ProjectRole.MANAGER):
        raise Forbidden(_("The project's owner and its managers ask for it."), field="project", code="role")
    return here


def _text(details: Details, name: str) -> str:
    value = details.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(_("Write text here."), field=name, code="invalid")
    return value or ""


def _day(details: Details, name: str) -> dt.date | None:
    value = details.get(name)
    if value in (None, ""):
        return None
    if isinstance(value, dt.date):
        return value
    try:
        return dt.date.fromisoformat(str(value))
    except ValueError:
        raise Refused(_("Write a day as year-month-day."), field=name, code="invalid") from None
