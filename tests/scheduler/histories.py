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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import departments, ends, member_limits, projects, quota
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import (
    Allocation,
    Attempt,
    Department,
    DepartmentCeiling,
    Job,
    Project,
    QuotaGrant,
    User,
)
from ledger.vocabulary import END_JOB_STATES, JobState, Outcome, ProjectRole, ProjectState, Resource
from scheduler import draining, ending, queue, reclaim, snapshot
from tests import factories
from tests.scheduler import flow

NODES, CARDS, MIB = 3, 2, 16_000
STEPS: Final = 14
TURNS: Final = 8  # until what ends has ended
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


# By other words than the product's: what the open allocations hold, and by which rows that is limited.
USED: Final = """
SELECT a.project_id, j.by_id, sum(a.cpu_milli)::bigint, sum(a.host_memory_mib)::bigint,
  count(*) FILTER (WHERE a.form = 'whole'), sum(s.mib)::bigint, sum(s.milli)::bigint
FROM ledger_allocation a JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id
CROSS JOIN LATERAL (SELECT coalesce(sum(x.memory_mib), 0) AS mib,
  coalesce(sum(ceil(x.memory_mib * 1000.0 / x.card_memory_mib)), 0) AS milli
  FROM ledger_cardshare x WHERE x.allocation_id = a.id) s
WHERE upper_inf(a.period) GROUP BY 1, 2
"""
COLUMNS: Final = (
    Resource.CPU_MILLI,
    Resource.HOST_MEMORY_MIB,
    Resource.WHOLE_NODES,
    Resource.CARD_MEMORY_MIB,
    Resource.CARD_MILLI,
)
SAID: Final = "SELECT p.id, r.n, ledger_quota_used(p.id, r.n) FROM ledger_project p, unnest(%s::text[]) AS r (n)"
LIMITS: Final = """
SELECT 'grant', ARRAY[project_id], NULL::bigint, resource, amount, used_at_most FROM ledger_quotagrant
  WHERE period @> clock_timestamp() AND model = ''
UNION ALL SELECT 'ceiling', ledger_department_projects(department_id), NULL, resource, amount, used_at_most
  FROM ledger_departmentceiling WHERE period @> clock_timestamp() AND model = ''
UNION ALL SELECT 'limit', ARRAY[project_id], user_id, resource, amount, used_at_most FROM ledger_memberlimit
"""
OF_MODELS: Final = """
SELECT g.name, g.amount, g.used_at_most, coalesce(sum(ceil(x.memory_mib * 1000.0 / x.card_memory_mib)), 0)
FROM (SELECT 'grant of ' || project_id AS name, ARRAY[project_id] AS projects, model, amount, used_at_most
    FROM ledger_quotagrant WHERE period @> clock_timestamp() AND model <> ''
  UNION ALL SELECT 'ceiling of ' || department_id, ledger_department_projects(department_id), model, amount, used_at_most
    FROM ledger_departmentceiling WHERE period @> clock_timestamp() AND model <> '') AS g
LEFT JOIN ledger_allocation a ON a.project_id = ANY (g.projects) AND upper_inf(a.period)
LEFT JOIN ledger_cardshare x ON x.allocation_id = a.id
  AND EXISTS (SELECT FROM ledger_card c WHERE c.id = x.card_id AND c.model = g.model)
GROUP BY g.name, g.amount, g.used_at_most
"""
ENDED: Final = """
SELECT p.slug FROM ledger_project p WHERE p.state = 'ended'
  AND EXISTS (SELECT FROM ledger_allocation a WHERE a.project_id = p.id AND upper_inf(a.period))
"""


def _rows(query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())


def used_now() -> Use:
    found: Use = defaultdict(int)
    for project_id, user_id, *amounts in _rows(USED):
        for resource, amount in zip(COLUMNS, amounts, strict=True):
            found[project_id, user_id, resource] += int(amount)
    return found


class History:
    """One history. `choices` is where its draws come from."""

    def __init__(self, choices: random.Random) -> None:
        self.draw = choices
        self.steps: list[str] = []
        self.before: Use = {}
        self.of_models: dict[tuple[int, str], int] = {}
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
        model = self.draw.choice(["", "", "A100"]) if resource == Resource.CARD_MILLI else ""
        cap = departments.Cap(resource, amount, drain_at, model=model)
        departments.set_ceiling(department=department, cap=cap, act=self._act(), override="again")

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
        for project_id, resource, said in _rows(SAID, [list(map(str, AMOUNTS))]):
            now = _sum(use, {project_id}, None, resource)
            self._must(said == now, f"project {project_id} uses {now} {resource}, and the database says {said}")
        for kind, project_ids, user_id, resource, amount, most in _rows(LIMITS):
            now, was = (_sum(found, set(project_ids), user_id, resource) for found in (use, self.before))
            self._within(f"{kind} of {project_ids} {user_id or ''}, {resource}", now, amount, was, most)
        models = {}
        for name, amount, most, now in _rows(OF_MODELS):
            was = self.of_models.get(name, now)
            self._within(f"{name}, one model", int(now), amount, int(was), most)
            models[name] = now
        self._must(not (holding := _rows(ENDED)), f"ended projects hold something: {holding}")
        self.before, self.of_models = use, models

    def _within(self, name: str, now: int, amount: int, was: int, most: int | None) -> None:
        """Within what may be used; after a cut it may be above, and then it does not grow."""
        self._must(now <= max(amount, was), f"{name}: {now} of {amount} is used, before it was {was}")
        self._must(most is None or most >= now, f"{name}: the bound is {most}, and {now} is used")

    def _must(self, fine: bool, text: str) -> None:
        if not fine:
            raise Broken(f"{text}\nafter: {', '.join(self.steps)}")

    def _states(self, some: list[Project]) -> list[str]:
        return list(Project.objects.filter(pk__in=[one.pk for one in some]).values_list("state", flat=True))

    def run_out(self) -> int:
        """Time goes by: what ends has ended, and no project holds anything after its grace."""
        later = database_now() + 10 * DAY
        over = list(Project.objects.filter(slug__in=TEAMS, ends_on__lt=database_now().date()))
        for _ in range(TURNS if over else 1):
            reclaim.reclaim_all(later)
            flow.turn()
            self.check()
            if all(state == ProjectState.ENDED for state in self._states(over)):
                break
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


def _sum(use: Use, project_ids: set[int], user_id: int | None, resource: str) -> int:
    return sum(
        amount
        for (project, user, of), amount in use.items()
        if project in project_ids and of == resource and user_id in (None, user)
    )


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
