"""What is left of grants, ceilings and members' limits, and what work would take of it. Only to explain and to save
work: the database decides at commit."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from django.db import connection

from ledger import renewal
from ledger.clock import database_now
from ledger.models import Card, Job, Node
from ledger.opening import AttemptOrder
from ledger.units import NodeClass, Request, card_milli, units
from ledger.vocabulary import OF_CARDS, AskForm, Form, Refusal, Resource
from scheduler import slices, snapshot
from scheduler.engine.types import Ask, JobView
from scheduler.engine.types import Claim as Kept
from scheduler.snapshot import QueuedJob

REFUSALS: Final = (Refusal.QUOTA, Refusal.CEILING, Refusal.MEMBER_LIMIT)
LEFT: Final = """
SELECT 'quota', ARRAY[g.project_id], NULL::bigint, g.resource, g.model, g.amount, g.amount - {grant}, g.renews
FROM ledger_quotagrant g WHERE g.period @> clock_timestamp() AND g.project_id = ANY (%(projects)s::bigint[])
UNION ALL
SELECT 'ceiling', p.ids, NULL, c.resource, c.model, c.amount, c.amount - {ceiling}, c.renews
FROM ledger_departmentceiling c CROSS JOIN LATERAL (SELECT array_agg(x.id) AS ids FROM ledger_project x
    WHERE x.id = ANY (%(projects)s::bigint[]) AND c.department_id = ANY (ledger_department_chain(x.department_id))) AS p
WHERE c.period @> clock_timestamp() AND p.ids IS NOT NULL
UNION ALL
SELECT 'member_limit', ARRAY[l.project_id], l.user_id, l.resource, '', l.amount, l.amount - {limit}, ''
FROM ledger_memberlimit l WHERE l.project_id = ANY (%(projects)s::bigint[])
"""
EXACTLY: Final = {  # summed over all that is open
    "grant": "CASE WHEN g.model = '' AND g.resource <> 'card_milli_s' THEN ledger_quota_used(g.project_id, g.resource) "
    "ELSE ledger_projects_use(ARRAY[g.project_id], g.resource, g.model, "
    "ledger_counted_since(g.counted_from, g.period, g.renews)) END",
    "ceiling": "ledger_projects_use(ledger_department_projects(c.department_id), c.resource, c.model, "
    "ledger_counted_since(c.counted_from, c.period, c.renews))",
    "limit": "ledger_member_used(l.project_id, l.user_id, l.resource)",
}
SURELY: Final = {  # by the upper bound that each keeps of its use
    name: f"CASE WHEN {row}.used_at_most IS NULL {late} THEN {EXACTLY[name]} ELSE {row}.used_at_most END"
    for name, row, late in (
        ("grant", "g", "OR g.bound_until < clock_timestamp()"),
        ("ceiling", "c", "OR c.bound_until < clock_timestamp()"),
        ("limit", "l", ""),
    )
}
FACTS: Final = "SELECT id, by_id, walltime_s FROM ledger_job WHERE id = ANY (%s::bigint[])"
Needs = Mapping[tuple[str, str], int]  # by resource and card model, "" = cards of every model
Facts = tuple[int | None, int]  # whose job it is, and its walltime in seconds
NOBODY: Final[Facts] = (None, 0)
NoRoom = Mapping[tuple[int, str], Refusal]  # by ask's number and card model, "" = wherever: what is used up


@dataclass(slots=True)
class Limit:
    """One thing that is limited. `user` None: whoever works in these projects."""

    refusal: Refusal
    projects: Sequence[int]
    user: int | None
    resource: str
    model: str
    amount: int
    left: int
    renews: str = ""

    def takes(self, needs: Needs) -> int:
        return needs.get((self.resource, self.model), 0)

    def has_room(self, needs: Needs) -> bool:
        """What takes nothing of it has room, also where more is used than may be."""
        need = self.takes(needs)
        return need == 0 or need <= self.left


@dataclass(frozen=True, slots=True)
class Claim:
    """What a job takes of one limit, of which `left` is left of `amount` now. Not `exact`: at least. `renews_on`: when
    a budget starts anew."""

    refusal: Refusal
    resource: str
    model: str
    takes: int
    left: int
    amount: int
    exact: bool
    renews_on: dt.datetime | None = None


class Limits:
    """All that limits these projects now, as `used` counts it."""

    def __init__(self, project_ids: Collection[int], used: Mapping[str, str] = EXACTLY) -> None:
        with connection.cursor() as cursor:
            cursor.execute(LEFT.format(**used), {"projects": list(project_ids)})
            self.all = [Limit(Refusal(word), *row) for word, *row in cursor.fetchall()]
        self.by_project: dict[int, list[Limit]] = defaultdict(list)
        for limit in self.all:
            for project_id in limit.projects:
                self.by_project[project_id].append(limit)

    def of(self, project_id: int, user: int | None) -> list[Limit]:
        return [limit for limit in self.by_project.get(project_id, ()) if limit.user in (None, user)]

    def first_without_room(self, project_id: int, user: int | None, needs: Needs) -> Refusal | None:
        return next((one.refusal for one in self.of(project_id, user) if not one.has_room(needs)), None)

    def no_room(self, job: JobView, user: int | None, walltime_s: int) -> NoRoom:
        """Where there is none for its asks: for those that name no model of card, by model too."""
        models = {limit.model for limit in self.of(job.project_id, user) if limit.model}
        sizes = snapshot.card_sizes() if models else {}
        found: dict[tuple[int, str], Refusal] = {}
        for number, ask in enumerate(job.asks):
            for model in ("",) if ask.model else ("", *sorted(models)):
                wanted = replace(ask, model=ask.model or model)
                needs = needs_of(job, wanted, walltime_s, sizes.get(wanted.model, 0))
                why = self.first_without_room(job.project_id, user, needs)
                if why is not None:
                    found[number, model] = why
                    if not model:
                        break
        return found

    def take(self, job: JobView, ask_index: int, model: str, user: int | None, walltime_s: int) -> None:
        """What this ask takes on cards of a model, "" = of any, if there is room for it."""
        if ask_index >= len(job.asks):
            return
        ask = replace(job.asks[ask_index], model=job.asks[ask_index].model or model)
        needs = needs_of(job, ask, walltime_s, snapshot.card_sizes().get(ask.model, 0))
        if self.first_without_room(job.project_id, user, needs) is None:
            for limit in self.of(job.project_id, user):
                limit.left -= limit.takes(needs)

    def facts(self, jobs: Iterable[Any]) -> dict[int, Facts]:
        """By job, where any of this goes by them; most limits don't."""
        if not any(limit.user or limit.resource == Resource.CARD_MILLI_S for limit in self.all):
            return {}
        with connection.cursor() as cursor:
            cursor.execute(FACTS, [[pk for pk in jobs if pk is not None]])
            return {pk: (by, walltime_s) for pk, by, walltime_s in cursor.fetchall()}

    def models(self, orders: Sequence[AttemptOrder]) -> dict[int, str]:
        """By card, where a limit names a model."""
        if not any(limit.model for limit in self.all):
            return {}
        cards = {share.card_id for order in orders for member in order.members for share in member.shares}
        return dict(Card.objects.filter(pk__in=cards).values_list("pk", "model"))


def over_quota(jobs: Sequence[Job | QueuedJob], kept: Sequence[Kept] = ()) -> dict[int, NoRoom]:
    """By job, which asks can't start within what is left, and what is used up. What is `kept` for some of the jobs they
    will take: it is not left to the others. What is surely left, by the upper bounds, is enough for most: only for the
    others the use is summed."""
    by_id = {job.pk: job for job in jobs} if kept else {}
    claims = [(by_id[one.job_id], one) for one in kept if one.job_id in by_id]
    doubtful = _without_room(jobs, claims, Limits({job.project_id for job in jobs}, SURELY))
    if not doubtful:
        return {}
    jobs = [job for job in jobs if job.pk in doubtful]
    projects = {job.project_id for job in (*jobs, *(job for job, _ in claims))}
    return _without_room(jobs, claims, Limits(projects))


def _without_room(
    jobs: Sequence[Job | QueuedJob], claims: Sequence[tuple[Job | QueuedJob, Kept]], limits: Limits
) -> dict[int, NoRoom]:
    if not limits.all:
        return {}
    known: dict[tuple[Any, ...], NoRoom] = {}  # most jobs of a long queue are like many others in it
    facts = limits.facts(job.pk for job in (*jobs, *(job for job, _ in claims)))
    found = {}
    for job, claim in claims:
        view, facts_of = snapshot.job_view(job), _facts(job, facts)
        found[job.pk] = limits.no_room(view, *facts_of)
        limits.take(view, claim.ask_index, snapshot.model_on(claim.node_ids), *facts_of)
    for job in jobs if not found else [job for job in jobs if job.pk not in found]:
        view = snapshot.job_view(job)
        who, walltime_s = _facts(job, facts)
        alike = job.project_id, view.asks, view.cpu_milli, view.host_memory_mib, who, walltime_s
        if alike not in known:
            known[alike] = limits.no_room(view, who, walltime_s)
        found[job.pk] = known[alike]
    return {pk: no_room for pk, no_room in found.items() if no_room}


def named(counts: Mapping[Refusal, int], number: int, short: NoRoom) -> dict[Refusal, int]:
    """The engine's refusals of an ask, of which it knows that something is used up, and not what."""
    why = next((why for (one, _), why in short.items() if one == number), Refusal.QUOTA)
    return {why if reason is Refusal.QUOTA else reason: count for reason, count in counts.items()}


def _facts(job: Job | QueuedJob, known: Mapping[int, Facts]) -> Facts:
    return (job.by_id, job.walltime_s) if isinstance(job, Job) else known.get(job.pk, NOBODY)


def split(orders: Sequence[AttemptOrder]) -> dict[int, Refusal]:
    """The jobs of those orders that don't fit into what is left after the orders before them, and what is used up."""
    limits = Limits({order.project_id for order in orders})
    facts, models = limits.facts(order.job_id for order in orders), limits.models(orders)
    over = {}
    for order in orders:
        who, walltime_s = facts.get(order.job_id, NOBODY)
        needs = needs_of_order(order, walltime_s, models)
        why = limits.first_without_room(order.project_id, who, needs)
        if why is not None:
            over[order.job_id] = why
            continue
        for limit in limits.of(order.project_id, who):
            limit.left -= limit.takes(needs)
    return over


class Promised:
    """What is left to some projects once the jobs that cards are kept for have started."""

    def __init__(self, jobs: Collection[JobView]) -> None:
        self._limits = Limits({job.project_id for job in jobs})
        self._facts = self._limits.facts(job.id for job in jobs)
        self._known: dict[tuple[Any, ...], NoRoom] = {}

    def no_room(self, job: JobView) -> NoRoom:
        who, walltime_s = self._facts.get(job.id, NOBODY)
        alike = job.project_id, job.asks, job.cpu_milli, job.host_memory_mib, who, walltime_s
        if alike not in self._known:
            self._known[alike] = self._limits.no_room(job, who, walltime_s)
        return self._known[alike]

    def take(self, job: JobView, ask_index: int, model: str) -> None:
        """What this ask takes on cards of a model, "" = of any, if there is room for it."""
        self._limits.take(job, ask_index, model, *self._facts.get(job.id, NOBODY))
        self._known.clear()

    def place(self, order: AttemptOrder, models: Mapping[int, str]) -> None:
        """What a job takes as it is ordered. `models` by card."""
        who, walltime_s = self._facts.get(order.job_id, NOBODY)
        needs = needs_of_order(order, walltime_s, models)
        for limit in self._limits.of(order.project_id, who):
            limit.left -= limit.takes(needs)
        self._known.clear()


def at_least(job: JobView, ask: Ask, walltime_s: int = 0, card_mib: int = 0) -> dict[Resource, int]:
    """A lower bound of what an ask takes, wherever it is placed; of a part of a card, where none is larger than
    `card_mib`."""
    part = ask.memory_mib if ask.form == AskForm.CONTAINER else 0
    return units(
        Request(
            ask.form,
            nodes=ask.nodes,
            cards_per_node=ask.cards_per_node,
            memory_mib=ask.memory_mib,
            cpu_milli=job.cpu_milli,
            host_memory_mib=job.host_memory_mib,
            walltime_s=walltime_s,
        ),
        NodeClass(ask.cards_per_node, card_mib) if 0 < part <= card_mib else None,
    )


def needs_of(job: JobView, ask: Ask, walltime_s: int, card_mib: int = 0) -> Needs:
    return _named(at_least(job, ask, walltime_s, card_mib), ask.model)


def _named(found: Mapping[Resource, int], model: str) -> Needs:
    """What is of cards counts for their model too."""
    needs = {(str(resource), ""): need for resource, need in found.items()}
    if model:
        needs |= {(str(resource), model): found[resource] for resource in OF_CARDS}
    return needs


def taken_by(order: AttemptOrder, walltime_s: int = 0) -> dict[Resource, int]:
    """What a placement takes, as the database counts it."""
    needs = needs_of_order(order, walltime_s, {})
    return {Resource(resource): need for (resource, _), need in needs.items()}


def needs_of_order(order: AttemptOrder, walltime_s: int, models: Mapping[int, str]) -> Needs:
    needs: dict[tuple[str, str], int] = defaultdict(int)
    for member in order.members:
        needs[Resource.WHOLE_NODES, ""] += member.form == Form.WHOLE
        needs[Resource.CPU_MILLI, ""] += member.cpu_milli
        needs[Resource.HOST_MEMORY_MIB, ""] += member.host_memory_mib
        for share in member.shares:
            milli = card_milli(share.memory_mib, share.card_memory_mib)
            for model in {"", models.get(share.card_id, "")}:
                needs[Resource.CARD_MILLI, model] += milli
                needs[Resource.CARD_MEMORY_MIB, model] += share.memory_mib
                needs[Resource.CARD_MILLI_S, model] += milli * walltime_s
    return needs


class Spot(Protocol):
    """A node of a placement as scheduler.whatif tells it: `cards` are (slot, MiB given, MiB of the card)."""

    @property
    def node_id(self) -> int: ...
    @property
    def form(self) -> Form: ...
    @property
    def model(self) -> str: ...
    @property
    def cards(self) -> tuple[tuple[int, int, int], ...]: ...


def claims(job: Job, spots: Sequence[Spot] = ()) -> list[Claim]:
    """What a job takes of everything that limits it; exactly when it is known where."""
    limits = Limits([job.project_id])
    if not limits.all:
        return []
    needs, exact = (_needs_there(job, spots), True) if spots else _needs_before(job)
    found = limits.of(job.project_id, job.by_id)
    now = database_now() if any(one.renews for one in found) else None
    return [
        Claim(
            one.refusal,
            one.resource,
            one.model,
            one.takes(needs),
            one.left,
            one.amount,
            exact,
            renewal.next_start(one.renews, now) if now else None,
        )
        for one in found
    ]


def _needs_before(job: Job) -> tuple[Needs, bool]:
    """What the first ask takes, and whether the job takes exactly that: of a slice it is known before it is known
    where."""
    view, first = snapshot.job_view(job), _of_slice(job, job.asks[0])
    if first is None:
        return needs_of(view, view.asks[0], job.walltime_s), False
    return _named(first, job.asks[0]["model"]), len(job.asks) == 1


def _of_slice(job: Job, ask: Mapping[str, Any]) -> dict[Resource, int] | None:
    """None for what is no slice, and where the cards of its model are not all of one size."""
    if not ask.get(slices.FIELD):
        return None
    all_mib = slices.sizes(job.simulated).get(ask["model"], ())
    if len(all_mib) != 1:
        return None
    request = Request(
        AskForm(ask["form"]),
        nodes=ask["nodes"],
        cards_per_node=ask["cards_per_node"],
        profile=ask[slices.FIELD],
        cpu_milli=job.cpu_milli,
        host_memory_mib=job.host_memory_mib,
        walltime_s=job.walltime_s,
    )
    return units(request, NodeClass(ask["cards_per_node"], all_mib[0]))


def _needs_there(job: Job, spots: Sequence[Spot]) -> Needs:
    whole = Node.objects.in_bulk([spot.node_id for spot in spots if spot.form == Form.WHOLE])
    needs: dict[tuple[str, str], int] = defaultdict(int)
    for spot in spots:
        host = whole.get(spot.node_id, job)  # a whole machine gives all that it has
        needs[Resource.WHOLE_NODES, ""] += spot.form == Form.WHOLE
        needs[Resource.CPU_MILLI, ""] += host.cpu_milli
        needs[Resource.HOST_MEMORY_MIB, ""] += host.host_memory_mib
        for _slot, mib, size in spot.cards:
            for model in {"", spot.model}:
                needs[Resource.CARD_MILLI, model] += card_milli(mib, size)
                needs[Resource.CARD_MEMORY_MIB, model] += mib
                needs[Resource.CARD_MILLI_S, model] += card_milli(mib, size) * job.walltime_s
    return needs
