"""Who shares the machines of a job: what was promised at submit, who was there at placement, who came later.

Other projects are named only to those who may see them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ledger.models import Allocation, Job, Project, User
from scheduler import promises
from scheduler.models import Decision, Promise
from scheduler.promises import Guest

HIDDEN: Final = "(another project)"
MOST_TOLD: Final = 50  # projects that came later, the newest


def company_answer(job: Job, members: Sequence[Allocation], viewer: User) -> dict[str, Any]:
    """The parts `neighbours` and `promise` of a job; `members` are the allocations of its newest attempt."""
    visible = frozenset(Project.objects.visible_to(viewer).values_list("slug", flat=True))
    guests = promises.guests(members[0].attempt_id if members else None)
    promise = Promise.objects.filter(job=job).first()
    decision = Decision.objects.filter(job=job, attempt__isnull=False).order_by("-pk").first()
    return {
        "neighbours": {
            "at_placement": named(decision.neighbours if decision else [], visible),
            "now": named([g.project for g in guests if g.until is None], visible) if _live(members) else [],
            "since": [_guest(guest, visible) for guest in guests if not guest.at_placement][-MOST_TOLD:],
        },
        "promise": _promise(promise, members, guests, visible) if promise else None,
    }


def _live(members: Iterable[Allocation]) -> bool:
    return any(member.period.upper_inf for member in members)


def named(slugs: Iterable[str], visible: Collection[str]) -> list[str]:
    found = set(slugs)
    known = sorted(slug for slug in found if slug in visible)
    return known + [HIDDEN] * (len(found) - len(known))


def _guest(guest: Guest, visible: Collection[str]) -> dict[str, Any]:
    return {
        "project": guest.project if guest.project in visible else HIDDEN,
        "node": guest.node,
        "from": guest.since.isoformat(),
        "until": guest.until.isoformat() if guest.until else None,
    }


def _promise(
    promise: Promise, members: Sequence[Allocation], guests: Sequence[Guest], visible: Collection[str]
) -> dict[str, Any]:
    broken = promises.breaches(promise, members, guests)
    return {
        "made": promise.made_at.isoformat(),
        "verdict": promise.verdict,
        "places": promise.spots,
        "neighbours": named(promise.neighbours, visible),
        "expected": promise.expected_at.isoformat() if promise.expected_at else None,
        "kept": not broken if promise.verdict == promises.NOW and members else None,
        "breaches": [str(breach) for breach in broken],
        "not_promised": named(promises.strangers(promise, guests), visible) if broken else [],
    }
