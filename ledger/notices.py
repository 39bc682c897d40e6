"""Notices of a project's end and the outbox of their deliveries: what is told, to whom, and by which channels.

A notice is a row that is there once for each end; the portal's pages show it to the project's members, and its
deliveries bring it to owner and managers by mail and to the site's webhook (scheduler.telling sends them). A channel
that the site has not configured, and a person without an address, are told so in the row, never as sent.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext as _

from ledger import audit
from ledger.models import Delivery, Membership, Notice, Project, User
from ledger.roles import MANAGING
from ledger.vocabulary import Channel, DeliveryState, NoticeKind, ProjectState

NO_ADDRESS: Final = "this person has no e-mail address"
RECEIPT_SHOWN: Final = dt.timedelta(days=30)


def configured(channel: Channel) -> bool:
    """Whether this site sends by it."""
    return bool(settings.EMAIL_HOST if channel == Channel.MAIL else settings.PROJECT_WEBHOOK_URL)


def tell_inside(project: Project, kind: NoticeKind, now: dt.datetime) -> bool:
    """One notice of this end, with a delivery for each channel and person; the caller holds the project's lock in a
    durable transaction. False when it was told before."""
    if project.ends_on is None:
        return False
    if Notice.objects.filter(project=project, kind=kind, ends_on=project.ends_on).exists():
        return False
    notice = Notice.objects.create(project=project, kind=kind, ends_on=project.ends_on, at=now)
    deliveries = [_delivery(notice, Channel.MAIL, person, now) for person in _told_by_mail(project)]
    Delivery.objects.bulk_create([*deliveries, _delivery(notice, Channel.WEBHOOK, None, now)])
    after = {"kind": kind, "ends_on": str(notice.ends_on), "deliveries": len(deliveries) + 1}
    audit.record(actor=None, via="task", verb="project.notice", target=notice, project=project, after=after)
    return True


def _told_by_mail(project: Project) -> list[User]:
    managing = Membership.objects.filter(project=project, role__in=MANAGING).values("user")
    return list(User.objects.filter(pk__in=managing, is_active=True).order_by("pk"))


def state_of(channel: Channel, to: User | None) -> tuple[DeliveryState, str]:
    """How a delivery begins, and what is wrong with it."""
    if not configured(channel):
        return DeliveryState.NOT_CONFIGURED, ""
    if to is not None and not to.email:
        return DeliveryState.FAILED, NO_ADDRESS
    return DeliveryState.PENDING, ""


def _delivery(notice: Notice, channel: Channel, to: User | None, now: dt.datetime) -> Delivery:
    state, error = state_of(channel, to)
    return Delivery(notice=notice, channel=channel, to=to, state=state, due_at=now, last_error=error)


def shown_to(user: User, now: dt.datetime) -> list[Notice]:
    """The newest notice of each project of theirs that still holds: of the end that the project has now, and a receipt
    for RECEIPT_SHOWN."""
    mine = Membership.objects.filter(user=user).values("project")
    rows = Notice.objects.filter(project__in=mine).select_related("project", "project__receipt")
    newest: dict[int, Notice] = {}
    for notice in _holding(rows, now).order_by("pk"):
        newest[notice.project_id] = notice
    return sorted(newest.values(), key=lambda notice: (notice.ends_on, notice.project.slug))


def _holding(rows: QuerySet[Notice], now: dt.datetime) -> QuerySet[Notice]:
    ahead = Q(project__state=ProjectState.ACTIVE) & ~Q(kind__in=[NoticeKind.OVER, NoticeKind.RECEIPT])
    over = Q(project__state=ProjectState.ENDING, kind=NoticeKind.OVER)
    ended = Q(project__state=ProjectState.ENDED, kind=NoticeKind.RECEIPT, at__gt=now - RECEIPT_SHOWN)
    return rows.filter(ahead | over | ended, ends_on=F("project__ends_on"))


def headline(notice: Notice) -> str:
    """What it says, in one sentence: the subject of a mail, the line of a banner."""
    values = {"project": notice.project.title or notice.project.slug, "end": notice.ends_on}
    if notice.kind == NoticeKind.OVER:
        return _("Project %(project)s is over since its last day, %(end)s.") % values
    if notice.kind == NoticeKind.RECEIPT:
        return _("Project %(project)s has ended; its receipt says what was reclaimed.") % values
    return _("Project %(project)s ends after %(end)s.") % values


def meaning(notice: Notice) -> str:
    """What follows from it and what its people can do."""
    if notice.kind == NoticeKind.OVER:
        return _(
            "It takes no new work. What runs is stopped when its grace is over, and its people only read then. Its "
            "owner and managers ask for a later end on the project's page if the work has to go on."
        )
    if notice.kind == NoticeKind.RECEIPT:
        return _("Nothing of it holds anything any more. Its members still read its jobs, its use and its receipt.")
    return _(
        "It works through that day. Then it takes no new work, jobs that still wait are cancelled, and what runs has "
        "the project's grace. Its owner and managers ask for a later end on the project's page if it has to go on."
    )
