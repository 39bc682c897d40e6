"""Who is stopped so that a waiting job gets its cards: as few attempts as possible, of these the least lost work.

Pure. A job that its project's guarantee covers may have borrowed cards taken back; a job of a higher tier may have
lower work stopped that says it may be. Nobody is taken below its own guarantee, nothing is stopped before it has run
its minimum time, and what is being stopped already is waited for. A gang is one victim and goes whole. Whether it helps
is asked of the engine itself (room.py).

Small pools are searched wholly. In large ones nodes are tried in the order of what they would cost, what turns out to
be superfluous is left alone, and the neighbourhood is searched wholly; `Terms.checks` bounds the questions asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from typing import Final

from ledger.vocabulary import Form
from scheduler.engine.costs import Cost, costs
from scheduler.engine.fairness import UNLIMITED, Key, Shares, tier
from scheduler.engine.intervals import length
from scheduler.engine.room import Room, Scene
from scheduler.engine.types import JobView, Placement, Stay, Tenant

RULE: Final = "fewest-victims/1"
SEARCHED_WHOLLY: Final = 12  # candidates; there are 2 to the power of that many sets of them
WORTH_ASKING: Final = 100  # candidates: whether it would help at all if all of them went
GROUPS: Final = 8  # of nodes that stand together as the job wants it, the cheapest first
BEYOND: Final = 8  # nodes tried besides those that the job needs


class Cause(StrEnum):
    """By what right others are stopped."""

    GUARANTEE = "guarantee"
    TIER = "tier"


@dataclass(frozen=True, slots=True)
class Terms:
    """`victims`: at most so many attempts for one job. `checks`: at most so many questions to the engine for it."""

    victims: int = 64
    checks: int = 600


@dataclass(frozen=True, slots=True)
class Proposal:
    """Attempts to be stopped and where the job will go then. `lost`: milli-card-seconds of their work. `whole`: no
    smaller set would do."""

    job_id: int
    cause: Cause
    ask_index: int
    form: Form
    node_ids: tuple[int, ...]
    victims: tuple[int, ...]  # attempts, by number,
    milli: tuple[int, ...]  # and the milli-cards of each
    lost: int
    whole: bool
    candidates: int
    checks: int


@dataclass(frozen=True, slots=True)
class Candidate:
    tenant: Tenant
    milli: int
    lost: int
    stays: tuple[Stay, ...] = field(repr=False)

    @property
    def key(self) -> Key:
        return self.tenant.project_id, self.tenant.simulated


def cause_of(job: JobView, covered: bool) -> Cause | None:
    """By what right a waiting job may have others stopped; None for by none."""
    if job.over_quota:
        return None
    return Cause.GUARANTEE if covered else Cause.TIER if tier(job.kind) > 0 else None


def may_go(tenant: Tenant, job: JobView, cause: Cause, shares: Shares | None, at: float) -> bool:
    """Whether the tenant might be stopped for the job at all; how many of its project is told by `_allowances`."""
    if tenant.simulated != job.simulated or tenant.closing or at < tenant.safe_until:
        return False
    if cause is Cause.TIER:
        lower = tier(tenant.kind) < tier(job.kind) and tenant.priority <= job.priority
        return tenant.preemptible and lower
    if tenant.project_id == job.project_id or tier(tenant.kind) > tier(job.kind):
        return False
    return shares is not None and shares.spare((tenant.project_id, tenant.simulated)) > 0


def propose(
    scene: Scene,
    job: JobView,
    cause: Cause,
    *,
    tenants: Iterable[Tenant],
    stays: Sequence[Stay],
    shares: Shares | None,
    terms: Terms,
) -> Proposal | None:
    """None: nobody has to be stopped for it, or it would not help."""
    known = list(tenants)
    leaving = frozenset(one.job_id for one in known if one.closing)
    able = [one for one in known if may_go(one, job, cause, shares, scene.at)]
    with Room(scene, stays) as room:
        table = costs(scene.fleet, scene.rule, job, scene.at)
        candidates = _candidates(able, room, table.rows, scene.at)
        search = _Search(room, job, leaving, _allowances(candidates, job, shares), terms)
        found = search.run(candidates, table)
    if found is None:
        return None
    placement, chosen = found
    chosen.sort(key=lambda one: one.tenant.attempt_id)
    return Proposal(
        job_id=job.id,
        cause=cause,
        ask_index=placement.ask_index,
        form=placement.members[0].form,
        node_ids=tuple(sorted(member.node_id for member in placement.members)),
        victims=tuple(one.tenant.attempt_id for one in chosen),
        milli=tuple(one.milli for one in chosen),
        lost=sum(one.lost for one in chosen),
        whole=search.whole,
        candidates=len(candidates),
        checks=terms.checks - search.left,
    )


def _candidates(able: Iterable[Tenant], room: Room, rows: frozenset[int], at: float) -> list[Candidate]:
    """Those that stand on rows where the job could be, the cheapest first."""
    fleet = room.scene.fleet
    sizes: dict[int, dict[int, int]] = {}  # by row and card
    found = []
    for tenant in able:
        here = tuple(room.stays.get(tenant.job_id, ()))
        if not any(fleet.row_of[stay.node_id] in rows for stay in here):
            continue
        milli = 0
        for stay in here:
            row = fleet.row_of[stay.node_id]
            if row not in sizes:
                sizes[row] = {card.id: card.memory_mib for card in fleet.cards[row]}
            milli += sum(-(-length(memory) * 1000 // sizes[row].get(card, UNLIMITED)) for card, memory, _ in stay.cards)
        found.append(Candidate(tenant, milli, milli * max(int(at - tenant.since), 0), here))
    return sorted(found, key=lambda one: (one.lost, one.tenant.attempt_id))


def _allowances(candidates: Iterable[Candidate], job: JobView, shares: Shares | None) -> dict[Key, int]:
    """How many milli-cards each project may lose: what it holds above its guarantee. What the job's own project loses
    it gets itself."""
    own = job.project_id, job.simulated
    keys = {one.key for one in candidates}
    return {key: UNLIMITED if shares is None or key == own else max(shares.spare(key), 0) for key in keys}


class _Spent(Exception):
    """No more questions."""


class _Search:
    """The search for one job. `whole`: nothing smaller was left untried."""

    def __init__(
        self, room: Room, job: JobView, leaving: frozenset[int], allowed: dict[Key, int], terms: Terms
    ) -> None:
        self.room, self.job, self.leaving, self.allowed, self.terms = room, job, leaving, allowed, terms
        self.left, self.whole = terms.checks, False
        self.known: dict[frozenset[int], Placement | None] = {}

    def run(self, candidates: Sequence[Candidate], table: Cost) -> tuple[Placement, list[Candidate]] | None:
        try:
            if not candidates or self.place(()) is not None:
                return None
            if len(candidates) <= WORTH_ASKING and self.place(candidates) is None:
                return None
        except _Spent:
            return None
        best: list[Candidate] | None = None
        try:
            best = self.first(candidates, table)
            wholly = len(candidates) <= SEARCHED_WHOLLY
            near = candidates if wholly else self.near(candidates, table, best)
            best = self.better(near, best)
            self.whole = wholly
        except _Spent:
            pass
        placement = self.known.get(self.gone(best)) if best else None
        return (placement, best) if best and placement else None

    def gone(self, chosen: Iterable[Candidate]) -> frozenset[int]:
        return self.leaving | {one.tenant.job_id for one in chosen}

    def place(self, chosen: Iterable[Candidate]) -> Placement | None:
        gone = self.gone(chosen)
        if gone not in self.known:
            if not self.left:
                raise _Spent
            self.left -= 1
            self.known[gone] = self.room.place(self.job, gone)
        return self.known[gone]

    def permitted(self, chosen: Sequence[Candidate]) -> bool:
        if len(chosen) > self.terms.victims:
            return False
        lost: dict[Key, int] = {}
        for one in chosen:
            lost[one.key] = lost.get(one.key, 0) + one.milli
        return all(milli <= self.allowed[key] for key, milli in lost.items())

    def first(self, candidates: Sequence[Candidate], table: Cost) -> list[Candidate] | None:
        """A set that will do, found node by node, without what is superfluous in it."""
        found = [self.trimmed(some) for rows in table.orders(candidates, GROUPS) if (some := self.cleared(table, rows))]
        return min(found, key=_cost, default=None)

    def cleared(self, table: Cost, rows: Sequence[int]) -> list[Candidate] | None:
        """The candidates of one row after the other, until the job finds room; for a job of one node, of one row."""
        wanted = self.job.asks[0].nodes
        chosen: list[Candidate] = []
        for tried, row in enumerate(rows[: wanted + BEYOND], start=1):
            chosen = chosen if wanted > 1 else []
            for one in table.on(row):
                if one not in chosen and self.permitted([*chosen, one]):
                    chosen.append(one)
            if tried >= wanted and self.place(chosen) is not None:
                return chosen
        return None

    def trimmed(self, chosen: list[Candidate]) -> list[Candidate]:
        """Who need not go stays, those with the most to lose first."""
        for one in sorted(chosen, key=lambda one: (-one.lost, one.tenant.attempt_id)):
            fewer = [other for other in chosen if other is not one]
            if self.place(fewer) is not None:
                chosen = fewer
        return chosen

    def near(self, candidates: Sequence[Candidate], table: Cost, best: list[Candidate] | None) -> Sequence[Candidate]:
        """So many as can be searched wholly: those found, and those of the cheapest rows."""
        some = {one.tenant.attempt_id: one for one in best or ()}
        for one in table.cheapest(candidates):
            if len(some) >= SEARCHED_WHOLLY:
                break
            some.setdefault(one.tenant.attempt_id, one)
        return sorted(some.values(), key=lambda one: (one.lost, one.tenant.attempt_id))

    def better(self, candidates: Sequence[Candidate], best: list[Candidate] | None) -> list[Candidate] | None:
        """The least set of these that will do, and of those the one that loses least; `best` if there is none such."""
        most = len(best) if best else min(len(candidates), self.terms.victims)
        for number in range(1, most + 1):
            found = best if best is not None and len(best) == number else None
            for chosen in _sets(candidates, number):
                if found is not None and _cost(chosen) >= _cost(found):
                    continue
                if self.permitted(chosen) and self.place(chosen) is not None:
                    found = chosen
            if found is not None:
                return found
        return best


def _sets(candidates: Sequence[Candidate], number: int) -> Iterator[list[Candidate]]:
    return (list(chosen) for chosen in combinations(candidates, number))


def _cost(chosen: Sequence[Candidate]) -> tuple[int, int, list[int]]:
    return len(chosen), sum(one.lost for one in chosen), sorted(one.tenant.attempt_id for one in chosen)
