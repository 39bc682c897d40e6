"""What the tests of a project's end share: a project that is about to end, a clock that moves, and how a run looks in
the end."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Allocation, Job, Notice, Project, QuotaGrant, Receipt
from ledger.vocabulary import ProjectRole
from scheduler import commands, observing, reclaim, reclaim_plan
from scheduler.reclaim_plan import Step, plan_of
from tests import factories
from tests.scheduler import flow

DAY = dt.timedelta(days=1)
BY_ADMIN = "because the work is done"
PATHS = ["/data/a", "/data/b"]


def ends_in(days: int, **values: Any) -> Project:
    """The project `vision`, whose last day is so many days ahead; its owner has an address."""
    project = factories.project("vision", researcher=ProjectRole.MEMBER, deputy=ProjectRole.MANAGER)
    project.owner.email = "owner@lab.example"
    project.owner.save(update_fields=["email"])
    today = database_now().date()
    changes = {"starts_on": today - 90 * DAY, "ends_on": today + days * DAY, "grace_days": 7} | values
    for name, value in changes.items():
        setattr(project, name, value)
    project.save(update_fields=list(changes))
    return project


def after(days: float) -> dt.datetime:
    """The clock so many days from now."""
    return database_now() + days * DAY


def passes(now: dt.datetime, turns: int = 3) -> dict[str, Any]:
    """So many passes at this moment, with the outbox and the drivers between them. The last result."""
    result: dict[str, Any] = {}
    for _ in range(turns):
        result = reclaim.reclaim_all(now)
        flow.make_due()
        commands.run_due()
        observing.observe_all()
    return result


def by(name: str, reason: str = BY_ADMIN) -> Act:
    return Act(factories.user(name), "test", reason)


def state_of(project: Project) -> dict[str, Any]:
    """What must be equal however often and wherever a run was killed."""
    project.refresh_from_db()
    receipts = list(Receipt.objects.filter(project=project))
    return {
        "state": project.state,
        "jobs": {job.name: (job.state, job.message) for job in Job.objects.filter(project=project)},
        "attempts": sorted(Job.objects.filter(project=project).values_list("name", "attempts__outcome")),
        "open": Allocation.objects.filter(project=project, period__upper_inf=True).count(),
        "grants": QuotaGrant.objects.filter(project=project, period__upper_inf=True).count(),
        "notices": sorted(Notice.objects.filter(project=project).values_list("kind", flat=True)),
        "rights": sorted(project.projectuserpermission_set.values_list("user__username", "permission__codename")),
        "receipts": [
            (r.jobs_stopped, r.jobs_cancelled, r.grants_ended, r.not_enforced, names(r, "stopped")) for r in receipts
        ],
    }


def names(receipt: Receipt, part: str) -> list[str]:
    return sorted(line["name"] for line in receipt.content[part])


def notices(project: Project) -> list[tuple[str, dt.date]]:
    return list(Notice.objects.filter(project=project).order_by("pk").values_list("kind", "ends_on"))


def waiting(count: int = 1, **values: Any) -> list[Job]:
    """Jobs that no node has room for now."""
    wide = {"asks": [{"form": "container", "cards_per_node": 4, "memory_mib": 0}]} | values
    return [flow.long_job(name=f"waits {n}", **wide) for n in range(count)]


def planned(project: Project, now: dt.datetime) -> list[Step]:
    project.refresh_from_db()
    return [act.step for act in plan_of(reclaim_plan.facts_of([project])[0], now).acts]


def pass_result(**counts: int) -> dict[str, Any]:
    return {"tell": 0, "begin": 0, "cancel": 0, "stop": 0, "close": 0, "over_walltime": 0, "odd": {}} | counts
