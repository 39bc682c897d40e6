"""What operators do to jobs that wait: hold, release, bump and cancel, one job or many in one transaction.

A held job stays queued (its state machine knows nothing of it); placing skips it and the database refuses to place it.
Jobs that are being placed at this moment, or wait no more, are left alone and named in the answer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from ledger import audit
from ledger.clock import database_now
from ledger.errors import Forbidden, Refused
from ledger.models import Job, User
from ledger.reasons import check_reason
from ledger.vocabulary import JobState, Refusal
from scheduler.models import Decision
from scheduler.queue import cancel_queued_inside
from scheduler.wake import wake_after_commit

MOST: Final = 200  # jobs in one act
LOWEST, HIGHEST = -100, 100  # priorities, the same bounds as for submitting
RULE: Final = "queue-control/1"


@dataclass
class Acted:
    """Which jobs changed, and why the others did not."""

    done: list[int] = field(default_factory=list)
    left: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """Who acts, why and by which way."""

    actor: User
    reason: str
    via: str
    request_id: str = ""


Step = Callable[[Job, Order, dt.datetime], str]  # acts on one locked job; a sentence when it is left as it is


def hold_jobs(*, job_ids: Sequence[int], order: Order) -> Acted:
    """Keep queued jobs from being placed until they are released."""
    return _act(job_ids, order, _hold)


def release_jobs(*, job_ids: Sequence[int], order: Order) -> Acted:
    """Let held jobs be placed again; they keep their place in the queue."""
    return _act(job_ids, order, _release)


def bump_jobs(*, job_ids: Sequence[int], priority: int, order: Order) -> Acted:
    """Give queued jobs another priority."""
    if not LOWEST <= priority <= HIGHEST:
        raise Refused(
            _("The priority must lie between %(lowest)d and %(highest)d.") % {"lowest": LOWEST, "highest": HIGHEST},
            field="priority",
            code="out_of_bounds",
        )

    def bump(job: Job, order: Order, now: dt.datetime) -> str:
        return _bump(job, order, now, priority)

    return _act(job_ids, order, bump)


def cancel_jobs(*, job_ids: Sequence[int], order: Order) -> Acted:
    """Cancel jobs that still wait; one that has started meanwhile goes on."""
    return _act(job_ids, order, _cancel)


def _act(job_ids: Sequence[int], order: Order, step: Step) -> Acted:
    wanted = sorted(set(job_ids))
    _check(wanted, order)
    acted = Acted()
    with transaction.atomic(durable=True):
        # no waiting for locks: who holds one is placing the job. In the order in which rounds write decisions
        queue = Job.objects.filter(pk__in=wanted).order_by("pk")
        jobs = list(queue.select_for_update(no_key=True, skip_locked=True))
        now = database_now()
        for job in jobs:
            why = step(job, order, now) if job.state == JobState.QUEUED else _("it waits no more")
            if why:
                acted.left[job.pk] = why
            else:
                acted.done.append(job.pk)
        acted.left |= _absent(set(wanted) - {job.pk for job in jobs})
        if acted.done:
            wake_after_commit("scheduler.tick")
    return acted


def _absent(job_ids: Collection[int]) -> dict[int, str]:
    """Why jobs could not be locked."""
    known = set(Job.objects.filter(pk__in=job_ids).values_list("pk", flat=True)) if job_ids else set()
    busy, nowhere = _("it is being placed at this moment"), _("there is no such job")
    return {pk: busy if pk in known else nowhere for pk in sorted(job_ids)}


def _check(job_ids: Sequence[int], order: Order) -> None:
    if not order.actor.operates:
        raise Forbidden(_("Only operators and administrators act on the queue."), code="role")
    check_reason(order.reason)
    if not job_ids:
        raise Refused(_("Choose at least one job."), field="key", code="required")
    if len(job_ids) > MOST:
        raise Refused(_("Choose at most %(n)d jobs at once.") % {"n": MOST}, field="key", code="too_many")


def _record(job: Job, order: Order, now: dt.datetime, verb: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    audit.record(
        actor=order.actor,
        via=order.via,
        verb=verb,
        target=job,
        project=job.project_id,
        before=before,
        after=after,
        reason=order.reason,
        request_id=order.request_id,
        at=now,
    )


def _hold(job: Job, order: Order, now: dt.datetime) -> str:
    if job.held_at is not None:
        return _("it is held already")
    job.held_at, job.held_by, job.held_reason = now, order.actor, order.reason
    job.save(update_fields=["held_at", "held_by", "held_reason"])
    _explain(job, [{str(Refusal.HELD_BY_OPERATOR): 1}], now)
    _record(job, order, now, "job.held", {"held": False}, {"held": True})
    return ""


def _release(job: Job, order: Order, now: dt.datetime) -> str:
    if job.held_at is None:
        return _("it is not held")
    since = job.held_at
    job.held_at, job.held_by, job.held_reason = None, None, ""
    job.save(update_fields=["held_at", "held_by", "held_reason"])
    _explain(job, [], now)  # the next round says why it waits, if it still does
    _record(job, order, now, "job.released", {"held": True, "since": since.isoformat()}, {"held": False})
    return ""


def _bump(job: Job, order: Order, now: dt.datetime, priority: int) -> str:
    if job.priority == priority:
        return _("it has this priority already")
    before, job.priority = job.priority, priority
    job.save(update_fields=["priority"])
    _record(job, order, now, "job.bumped", {"priority": before}, {"priority": priority})
    return ""


def _cancel(job: Job, order: Order, now: dt.datetime) -> str:
    cancel_queued_inside(job, order.actor, order.reason, order.via, order.request_id)
    return ""


def _explain(job: Job, reasons: list[dict[str, int]], now: dt.datetime) -> None:
    """The job's waiting decision says this from now on, whatever the last round found."""
    values = {
        "at": now,
        "first_at": now,
        "rule": RULE,
        "seed": 1,
        "reasons": reasons,
        "never": False,
        "position": None,
        "kept": None,
        "begins_at": None,
    }
    Decision.objects.update_or_create(job=job, attempt=None, defaults=values)
