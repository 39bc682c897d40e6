"""The end of one project as its people see it: the countdown, what will be stopped, the notices that were given, the
receipt. For templates/projects/end_part.html, which the project's page includes with `end_context`, and the banners of
the first page. Reads only.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from ledger import ends, notices, roles
from ledger.models import Delivery, Notice, Project, Receipt, User
from portal import reclaim_rows
from scheduler import reclaim_plan

SOON: Final = dt.timedelta(days=30)  # before it nobody asks what the end would stop


@dataclass(frozen=True)
class NoticeRow:
    notice: Notice
    deliveries: list[Delivery]

    @property
    def text(self) -> str:
        return notices.headline(self.notice)


@dataclass(frozen=True)
class Banner:
    """A notice on a page of its reader. `until`: when what runs will be stopped, while the grace lasts."""

    notice: Notice
    text: str
    meaning: str
    until: dt.datetime | None
    left_s: int | None
    receipt: Receipt | None


def end_context(project: Project, user: User, now: dt.datetime) -> dict[str, Any]:
    """What templates/projects/end_part.html needs, under `end`. The caller has decided that they may see the project;
    how deliveries failed is told to who manages or audits it and to the site roles."""
    facts = reclaim_plan.facts_of([project])[0]
    receipt = Receipt.objects.filter(project=project).first()
    over = ends.over_at(project)
    return {
        "end": {
            "soon": over is not None and over - now <= SOON,
            "row": reclaim_rows.row_of(facts, now),
            "held": facts.held,
            "queued": facts.queued,
            "notices": _notices(project),
            "receipt": receipt,
            "may_read_errors": user.audits(project.department_id) or roles.manages(project.pk, user),
        }
    }


def _notices(project: Project) -> list[NoticeRow]:
    found = list(Notice.objects.filter(project=project).select_related("project").order_by("-at", "-pk"))
    rows: dict[int, list[Delivery]] = {notice.pk: [] for notice in found}
    for delivery in Delivery.objects.filter(notice__in=found).select_related("to").order_by("channel", "pk"):
        rows[delivery.notice_id].append(delivery)
    return [NoticeRow(notice, rows[notice.pk]) for notice in found]


def banners(user: User, now: dt.datetime) -> list[Banner]:
    """The newest notice of each of their projects that still holds."""
    return [_banner(notice, now) for notice in notices.shown_to(user, now)]


def _banner(notice: Notice, now: dt.datetime) -> Banner:
    receipt = getattr(notice.project, "receipt", None)
    over = ends.grace_over_at(notice.project) if ends.is_over(notice.project, now) and receipt is None else None
    left = None if over is None else max(0, int((over - now).total_seconds()))
    return Banner(notice, notices.headline(notice), notices.meaning(notice), over, left, receipt)
