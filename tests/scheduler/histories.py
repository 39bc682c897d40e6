"""Random histories of a small pool with quotas, through the real writers: submit, place, start, finish, crash, resize, cut,
drain, limits, member changes, ends of projects. After every step what is used is worked out anew from the open
allocations and held against what the database says and against every grant, ceiling and limit.

`tell(number)` runs one history in the transaction of its caller, who rolls it back. Used by test_histories.py and, for
thousands, by `manage.py bench histories`.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import departments, ends, limits, member_limits, projects, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import (
    Allocation,
    Attempt,
    CardShare,
    Department,
    DepartmentCeiling,
    Job,
    MemberLimit,
    Project,
    QuotaGrant,
    User,
)
from ledger.vocabulary import END_JOB_STATES, Form, JobState, Outcome, ProjectRole, ProjectState, Resource
from scheduler import draining, ending, queue, reclaim, snapshot
from tests import factories
from tests.scheduler import flow

NODES, CARDS, MIB = 3, 2, 16_000
STEPS: Final = 14
TEAMS: Final = ("red", "green", "blue")
DAY: Final = dt.timedelta(days=1)
ASKS: Final[tuple[dict[str, Any], ...]] = (
    {"form": "container", "memory_mib": 4_000},
    {"form": "container", "memory_mib": 0},
    {"form": "container", "cards_per_node": 2, "memory_mib": 5_000},
    {"form": "container", "cards_per_node": 0},
    {"form": "container", "nodes": 2, "memory_mib": 0},
    {"form": "whole"},
    {"form": "auto", "memory_mib": 0},
)
# how much is granted: from less than one job takes to more than there is
AMOUNTS: Final[Mapping[Resource, tuple[int, ...]]] = {
    Resource.CARD_MILLI: (0, 500, 1_000, 2_000, 4_000, 9_000),
    Resource.CARD_MEMORY_MIB: (0, 4_000, 16_000, 40_000, 200_000),
    Resource.WHOLE_NODES: (0, 1, 2, 5),
    Resource.CPU_MILLI: (0, 1_000, 3_000, 20_000),
    Resource.HOST_MEMORY_MIB: (0, 1_024, 4_096, 65_536),
}
Use = dict[tuple[int, int, str], int]  # by project, person and resource


class Broken(AssertionError):
    """A history in which something was so that must never be."""


class Told(NamedTuple):
    steps: list[str]
    placed: int
    ended: int


def lay_out() -> None:
    """The pool, three teams in two departments, and who governs."""
    factories.cast()
    root = Department.objects.create(slug="root", title="Root")
    below = Department.objects.create(slug="below", title="Below", parent=root)
    for name in TEAMS:
        made = factories.project(name, researcher=ProjectRole.MEMBER, member=ProjectRole.MEMBER)
        Project.objects.filter(pk=made.pk).update(department=root if name == "red" else below, grace_days=1)
    for number in range(NODES):
        factories.node(f"n{number}", cards=CARDS, memory_mib=MIB)


def used_now() -> Use:
    """What the open allocations hold, row by row, by other code than the product's."""
    found: Use = defaultdict(int)
    rows = Allocation.objects.filter(period__upper_inf=True).select_related("attempt__job")
    whose = {}
    for row in rows:
        key = whose[row.pk] = row.project_id, row.attempt.job.by_id
        found[*key, Resource.CPU_MILLI] += row.cpu_milli
        found[*key, Resource.HOST_MEMORY_MIB] += row.host_memory_mib
        found[*key, Resource.WHOLE_NODES] += row.form == Form.WHOLE
    for share in CardShare.objects.filter(allocation__in=whose):
        key = whose[share.allocation_id]
        found[*key, Resource.CARD_MEMORY_MIB] += share.memory_mib
        found[*key, Resource.CARD_MILLI] += -(-share.memory_mib * 1000 // share.card_memory_mib)
    return found


class History:
    """One history. `choices` is where its draws come from."""

    def __init__(self, choices: random.Random) -> None:
        self.draw = choices
        self.steps: list[str] = []
        self.before: Use = {}
        self.admin = User.objects.get(username="admin")
        self.people = list(User.objects.filter(username__in=["owner", "researcher", "member"]).order_by("pk"))

    def run(self) -> Told:
        acts: list[tuple[int, Callable[[], object]]] = [
            (6, self.submit), (6, self.turn), (3, self.finish), (2, self.crash), (4, self.resize), (2, self.cut),
            (2, self.drain), (2, self.ceiling), (2, self.limit), (2, self.member), (1, self.cancel), (1, self.end),
        ]  # fmt: skip
        names, weights = [act for _, act in acts], [weight for weight, _ in acts]
        for _ in range(STEPS):
            act = self.draw.choices(names, weights)[0]
            self.steps.append(act.__name__)
            try:
                act()
            except Refused:
                self.steps[-1] += " (refused)"
            self.check()
        return Told(self.steps, Attempt.objects.count(), self.run_out())

    # -- steps --------------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            flow.long_job(
                actor=self.draw.choice(self.people),
                project=self.draw.choice(TEAMS),
                asks=[self.draw.choice(ASKS)],
                cpu_milli=self.draw.choice([500, 2_000]),
                host_memory_mib=self.draw.choice([512, 4_096]),
                priority=self.draw.choice([0, 0, 10]),
                kind=self.draw.choice(["training", "inference", "other"]),
                preemptible=self.draw.random() < 0.5,
                walltime_s=self.draw.choice([60, 86_400]),
            )

    def turn(self) -> None:
        flow.turn()

    def finish(self) -> None:
        if attempt := self._attempt():
            ending.end_attempt(attempt_id=attempt.pk, outcome=Outcome.SUCCEEDED)

    def crash(self) -> None:
        attempt = self._attempt()
        if attempt is None:
            return
        if self.draw.random() < 0.3:
            allocation = Allocation.objects.filter(attempt=attempt, period__upper_inf=True).first()
            if allocation is not None:
                ending.note_unknown(allocation_id=allocation.pk, message="no answer")
            return
        outcome = self.draw.choice([Outcome.HARDWARE, Outcome.LOST, Outcome.PREEMPTED, Outcome.FAILED])
        ending.end_attempt(attempt_id=attempt.pk, outcome=outcome)

    def _attempt(self) -> Attempt | None:
        live = list(Attempt.objects.exclude(state__in=["ended", "stopping"]).order_by("pk"))
        return self.draw.choice(live) if live else None

    def resize(self) -> None:
        self._grant(None)

    def cut(self) -> None:
        self._grant(database_now() + 8 * DAY)

    def _grant(self, drain_at: dt.datetime | None) -> None:
        resource = self.draw.choice(list(AMOUNTS))
        amount = self.draw.choice(AMOUNTS[resource])
        terms = quota.Terms(
            resource,
            amount,
            guaranteed=self.draw.choice([0, amount // 2]),
            weight=self.draw.choice([1, 5]),
            model=self.draw.choice(["", "", "A100"]) if resource == Resource.CARD_MILLI else "",
            drain_at=drain_at,
        )
        project = Project.objects.get(slug=self.draw.choice(TEAMS))
        quota.set_grant(project=project, terms=terms, act=self._act(), override="again")

    def drain(self) -> None:
        """The day of every cut has come."""
        for model in (QuotaGrant, DepartmentCeiling):
            model.objects.filter(drain_at__isnull=False).update(drain_at=database_now())
        draining.drain_all()

    def ceiling(self) -> None:
        resource = self.draw.choice(list(AMOUNTS))
        department = Department.objects.get(slug=self.draw.choice(["root", "below"]))
        amount, drain_at = 2 * self.draw.choice(AMOUNTS[resource]), self.draw.choice([None, database_now() + 8 * DAY])
        departments.set_ceiling(
            department=department, resource=resource, amount=amount, drain_at=drain_at, act=self._act()
        )

    def limit(self) -> None:
        resource = self.draw.choice(list(AMOUNTS))
        project, user = Project.objects.get(slug=self.draw.choice(TEAMS)), self.draw.choice(self.people)
        amount = self.draw.choice(AMOUNTS[resource])
        member_limits.set_limit(project=project, user=user, resource=resource, amount=amount, act=self._act())

    def member(self) -> None:
        project, user = Project.objects.get(slug=self.draw.choice(TEAMS)), self.draw.choice(self.people)
        match self.draw.randrange(3):
            case 0:
                projects.remove_member(project=project, user=user, act=self._act())
            case 1:
                role = self.draw.choice([ProjectRole.MEMBER, ProjectRole.VIEWER, ProjectRole.MANAGER])
                projects.set_role(project=project, user=user, role=role, act=self._act())
            case _:
                projects.hand_over(project=project, to=user, act=self._act())

    def cancel(self) -> None:
        live = list(Job.objects.exclude(state__in=END_JOB_STATES).order_by("pk"))
        if live:
            queue.cancel(job_id=self.draw.choice(live).pk, actor=self.admin, reason="", via="test")

    def end(self) -> None:
        """The last day of a project has come and, now and then, its grace is over too."""
        slug, days = self.draw.choice(TEAMS), self.draw.choice([1, 1, 5])
        today = database_now().date()
        live = Project.objects.filter(slug=slug).exclude(state=ProjectState.ENDED)
        live.update(starts_on=today - 30 * DAY, ends_on=today - days * DAY)
        reclaim.reclaim_all()

    def _act(self) -> Act:
        return Act(self.admin, "test", "a draw")

    # -- checks -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        use = used_now()
        self._same_as_the_database(use)
        for project_id, resource, model, amount, most in self._grants():
            now = self._of_model(project_id, model) if model else _sum(use, {project_id}, resource)
            was = _sum(self.before, {project_id}, resource)
            self._within(
                f"grant of project {project_id}, {resource} {model}", now, amount, None if model else was, most
            )
        for ceiling in DepartmentCeiling.objects.filter(period__contains=database_now()):
            below = set(limits.projects_below(ceiling.department_id))
            now, was = (_sum(found, below, ceiling.resource) for found in (use, self.before))
            self._within(
                f"ceiling {ceiling.department_id}, {ceiling.resource}", now, ceiling.amount, was, ceiling.used_at_most
            )
        for limit in MemberLimit.objects.all():
            key = limit.project_id, limit.user_id, limit.resource
            now, was = use.get(key, 0), self.before.get(key, 0)
            self._within(f"limit {key}", now, limit.amount, was, limit.used_at_most)
        held = {project_id for (project_id, _user, _resource), amount in use.items() if amount}
        ended = set(Project.objects.filter(state=ProjectState.ENDED).values_list("pk", flat=True))
        self._must(not held & ended, f"ended projects hold something: {held & ended}")
        self.before = use

    def _grants(self) -> list[tuple[int, str, str, int, int | None]]:
        rows = QuotaGrant.objects.filter(period__contains=database_now())
        return list(rows.values_list("project_id", "resource", "model", "amount", "used_at_most"))

    def _of_model(self, project_id: int, model: str) -> int:
        shares = CardShare.objects.filter(allocation__project=project_id, period__upper_inf=True, card__model=model)
        sizes = shares.values_list("memory_mib", "card_memory_mib")
        return sum(-(-mib * 1000 // of) for mib, of in sizes)

    def _same_as_the_database(self, use: Use) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT p.id, r.name, ledger_quota_used(p.id, r.name) FROM ledger_project p, unnest(%s::text[]) r (name)",
                [list(map(str, AMOUNTS))],
            )
            for project_id, resource, said in cursor.fetchall():
                now = _sum(use, {project_id}, resource)
                self._must(said == now, f"project {project_id} uses {now} {resource}, and the database says {said}")

    def _within(self, name: str, now: int, amount: int, was: int | None, most: int | None) -> None:
        """Within what may be used; after a cut it may be above, and then it does not grow."""
        fine = now <= amount or was is None or now <= was
        self._must(fine, f"{name}: {now} of {amount} is used, before it was {was}")
        self._must(most is None or most >= now, f"{name}: the bound is {most}, and {now} is used")

    def _must(self, fine: bool, text: str) -> None:
        if not fine:
            raise Broken(f"{text}\nafter: {', '.join(self.steps)}")

    def run_out(self) -> int:
        """Time goes by: what ends has ended, and no project holds anything after its grace."""
        later = database_now() + 10 * DAY
        over = list(Project.objects.filter(slug__in=TEAMS, ends_on__lt=database_now().date()))
        for _ in range(6):
            reclaim.reclaim_all(later)
            flow.turn()
            self.check()
        for project in over:
            project.refresh_from_db()
            self._must(ends.grace_is_over(project, later), f"project {project.slug} has grace left")
            self._must(
                project.state == ProjectState.ENDED, f"project {project.slug} is {project.state} after its grace"
            )
            open_now = Allocation.objects.filter(project=project, period__upper_inf=True).count()
            self._must(open_now == 0, f"project {project.slug} holds {open_now} allocations after its grace")
            queued = Job.objects.filter(project=project, state=JobState.QUEUED).count()
            self._must(queued == 0, f"project {project.slug} has {queued} jobs in the queue after its grace")
        return len(over)


def _sum(use: Use, project_ids: set[int], resource: str) -> int:
    return sum(amount for (project, _user, of), amount in use.items() if project in project_ids and of == resource)


def tell(number: int, seed: str = "quota") -> Told:
    """One history by its number; the caller rolls it back."""
    snapshot.forget()
    try:
        return History(random.Random(f"{seed} {number}")).run()
    finally:
        snapshot.forget()


def tally(told: list[Told]) -> dict[str, int]:
    """How often each step was taken, over several histories."""
    counts = Counter(step for one in told for step in one.steps)
    return dict(sorted(counts.items())) | {"placed": sum(t.placed for t in told), "ended": sum(t.ended for t in told)}
