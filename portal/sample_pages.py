"""An address of every page, with objects of this database where one is needed: for benchmarks, screenshots and
accessibility checks. Reads only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.urls import NoReverseMatch, URLPattern, reverse

from ledger import odd_grants
from ledger.models import (
    AuditEvent,
    Card,
    Department,
    Invitation,
    Job,
    Membership,
    Node,
    Project,
    ProjectRequest,
    Receipt,
    User,
    Zone,
)
from ledger.vocabulary import ProjectRole, ProjectState, SiteRole
from scheduler.alert_rows import Alert, AlertRule, AlertRung
from scheduler.models import ZonePlan
from scheduler.policy_rows import JobPolicy

# GET pages that are not pages of their own: parts, files, and addresses that only take POST
NOT_PAGES: Final = frozenset({"sign-out", "language", "theme", "healthz", "readyz", "metrics", "alert-file"})


def sample_addresses(user: User) -> list[str]:
    """One GET address a page that `user` may open, in the order of the URL lists."""
    from portal.urls import urlpatterns

    found = []
    for pattern in urlpatterns:
        if isinstance(pattern, URLPattern) and pattern.name and pattern.name not in NOT_PAGES:
            address = address_of(pattern, user)
            if address is not None:
                found.append(address)
    return found


def address_of(pattern: URLPattern, user: User) -> str | None:
    """The address with sample arguments; None when there is no object for it."""
    names = [name for name in pattern.pattern.converters]
    values = {}
    for name in names:
        kind = str(pattern.name).partition("-")[0]
        own = SAMPLES.get(f"{pattern.name}.{name}") or SAMPLES.get(f"{kind}.{name}")
        value = (own or SAMPLES.get(name, _none))(user)
        if value is None:
            return None
        values[name] = value
    try:
        address = reverse(str(pattern.name), kwargs=values)
    except NoReverseMatch:
        return None
    about = ABOUT.get(str(pattern.name).partition("-")[0]) if str(pattern.name).endswith(ACTS) else None
    return f"{address}?key={about(user)}" if about else address


ACTS: Final = ("-hold", "-drain", "-return")  # previews of an act say what it is about


def _none(_user: User) -> Any:
    return None


def _job(user: User) -> int | None:
    jobs = Job.objects.visible_to(user).order_by("-pk")
    live = jobs.filter(state="running").values_list("pk", flat=True).first()
    return live or jobs.values_list("pk", flat=True).first()


def _hostname(_user: User) -> str | None:
    return Node.objects.order_by("simulated", "hostname").values_list("hostname", flat=True).first()


def _uuid(_user: User) -> str | None:
    return Card.objects.order_by("-virtual", "pk").values_list("uuid", flat=True).first()


def _project(user: User) -> str | None:
    mine = Project.objects.filter(memberships__user=user).order_by("slug")
    seen = Project.objects.visible_to(user).order_by("slug")
    return mine.values_list("slug", flat=True).first() or seen.values_list("slug", flat=True).first()


def _managed(user: User) -> str | None:
    """A project that they answer for, in which alone they may ask for more."""
    roles = (ProjectRole.OWNER, ProjectRole.MANAGER)
    mine = Project.objects.filter(memberships__user=user, memberships__role__in=roles)
    return mine.exclude(state=ProjectState.ENDED).order_by("slug").values_list("slug", flat=True).first()


def _member(user: User) -> str | None:
    inside = Membership.objects.filter(project__slug=_project(user)).order_by("pk")
    return inside.values_list("user__username", flat=True).first()


def _request(user: User) -> int | None:
    return ProjectRequest.objects.visible_to(user).order_by("-pk").values_list("pk", flat=True).first()


def _invitation(user: User) -> int | None:
    return Invitation.objects.visible_to(user).order_by("-pk").values_list("pk", flat=True).first()


def _zone(_user: User) -> str | None:
    return Zone.objects.order_by("slug").values_list("slug", flat=True).first()


def _department(user: User) -> str | None:
    if not user.audits_somewhere:
        return None
    rows = Department.objects.all()
    seen = rows if user.sees_everything else rows.filter(pk__in=user.audited_departments)
    return seen.order_by("slug").values_list("slug", flat=True).first()


def _plan(_user: User) -> int | None:
    return ZonePlan.objects.order_by("-pk").values_list("pk", flat=True).first()


def _policy(user: User) -> int | None:
    return JobPolicy.objects.visible_to(user).order_by("pk").values_list("pk", flat=True).first()


def _ending(user: User) -> str | None:
    """A project that an admin may still extend or end."""
    if user.site_role != SiteRole.ADMIN:
        return None
    live = Project.objects.exclude(state=ProjectState.ENDED)
    return live.order_by("ends_on", "slug").values_list("slug", flat=True).first()


def _receipt(user: User) -> int | None:
    return Receipt.objects.visible_to(user).order_by("-pk").values_list("pk", flat=True).first()


def _right(user: User) -> int | None:
    """One that an admin may still withdraw."""
    if user.site_role != SiteRole.ADMIN:
        return None
    return odd_grants.in_force().order_by("-pk").values_list("pk", flat=True).first()


def _operated(model: type[AlertRule] | type[AlertRung]) -> Callable[[User], Any]:
    """The first row of what operators alone change."""

    def pick(user: User) -> Any:
        return model.objects.order_by("pk").values_list("pk", flat=True).first() if user.operates else None

    return pick


def _alert(user: User) -> int | None:
    if not user.sees_everything:
        return None
    return Alert.objects.order_by("-pk").values_list("pk", flat=True).first()


def _audited(field: str) -> Callable[[User], Any]:
    def pick(_user: User) -> Any:
        return AuditEvent.objects.order_by("-pk").values_list(field, flat=True).first()

    return pick


SAMPLES: Final[dict[str, Callable[[User], Any]]] = {
    "job.pk": _job,
    "queue.act": lambda _user: "hold",
    "plan.pk": _plan,
    "policy.pk": _policy,
    "reclaim.slug": _ending,
    "receipt.pk": _receipt,
    "right.pk": _right,
    "quota.slug": _project,
    "department.slug": _department,
    "hostname": _hostname,
    "uuid": _uuid,
    "slug": _zone,
    "project.slug": _project,
    "project-extension.slug": _managed,
    "project-more.slug": _managed,
    "member.slug": _project,
    "member.username": _member,
    "person.username": lambda user: user.username if user.site_role == SiteRole.ADMIN else None,
    "request.pk": _request,
    "invitation.pk": _invitation,
    "alert.pk": _alert,
    "alertrule.pk": _operated(AlertRule),
    "alertrung.pk": _operated(AlertRung),
    "topic": lambda _user: "researcher",
    "audit.kind": _audited("target_type"),
    "audit.key": _audited("target_id"),
}
ABOUT: Final[dict[str, Callable[[User], Any]]] = {"nodes": _hostname, "cards": _uuid}
