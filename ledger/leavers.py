"""What still stands in the name of people who have left the site (`is_active` False): the projects that they own, their
jobs, their tokens, their odd grants. Reads only: deactivating a person ends their access at the next request and
nothing else, so that no work is lost; what is listed here is for somebody to hand over or to end.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from ledger.clock import database_now
from ledger.models import ApiToken, Job, OddGrant, Project, User
from ledger.vocabulary import LIVE_JOB_STATES, JobState, ProjectState


@dataclass
class Standing:
    """Of one person, each list in the order of its keys."""

    user: User
    projects: list[Project] = field(default_factory=list)  # that they own and that have not ended
    running: list[Job] = field(default_factory=list)  # that start, run or stop: they hold something
    queued: list[Job] = field(default_factory=list)
    tokens: list[ApiToken] = field(default_factory=list)  # live ones; refused as long as their owner has left
    odd_grants: list[OddGrant] = field(default_factory=list)  # in force; they give nothing as long as they have left

    @property
    def anything(self) -> bool:
        return bool(self.projects or self.running or self.queued or self.tokens or self.odd_grants)


def standing_in_name_of(user: User) -> Standing:
    """What still stands in this person's name, whether they have left or not."""
    return _standing([user], database_now())[0]


def leavers() -> list[Standing]:
    """Everybody who has left and in whose name anything stands, by name."""
    gone = list(User.objects.filter(is_active=False).order_by("username"))
    return [standing for standing in _standing(gone, database_now()) if standing.anything]


def _standing(users: Collection[User], now: dt.datetime) -> list[Standing]:
    """With a fixed number of queries whatever the number of people."""
    ids = [user.pk for user in users]
    owned = _by_owner(Project.objects.filter(owner__in=ids).exclude(state=ProjectState.ENDED), "owner_id")
    live = Job.objects.filter(by__in=ids, state__in=sorted(LIVE_JOB_STATES)).select_related("project")
    jobs = _by_owner(live, "by_id")
    tokens = _by_owner(_live_tokens(ids, now), "user_id")
    odd = OddGrant.objects.filter(user__in=ids, period__contains=now).select_related("zone", "department")
    odd_grants = _by_owner(odd, "user_id")
    found = []
    for user in users:
        waiting = [job for job in jobs[user.pk] if job.state == JobState.QUEUED]
        holding = [job for job in jobs[user.pk] if job.state != JobState.QUEUED]
        found.append(Standing(user, owned[user.pk], holding, waiting, tokens[user.pk], odd_grants[user.pk]))
    return found


def _live_tokens(user_ids: Collection[int], now: dt.datetime) -> Any:
    live = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)
    return live.filter(user__in=user_ids)


def _by_owner(rows: Any, key: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    ordered: Iterable[Any] = rows.order_by("pk")
    for row in ordered:
        found[getattr(row, key)].append(row)
    return found
