"""Who is stopped so that a waiting job gets its cards: as few attempts as possible, of these the least lost work.

Pure. A job that its project's guarantee covers may have borrowed cards taken back, if what it gets counts for no more
than is left of the guarantee; a job of a higher tier may have lower work stopped that says it may be. Nobody is taken
below its own guarantee, nothing is stopped before it has run its minimum time, and what is being stopped already is
waited for. A gang is one victim and goes whole. Whether it helps is asked of the engine itself (room.py).

Borrowed is borrowed, as in Kueue and Run:ai: inference on borrowed cards goes too, or a guarantee would be worth
nothing while others serve on it. But it goes last: only where no set of other work would do. Inference is never
over-sold: it stands on its project's guarantee first, and within that it is never stopped for anybody.

Small pools are searched wholly. In large ones nodes are tried in the order of what they would cost, what turns out to
be superfluous is left alone, and the neighbourhood is searched wholly; `Terms.checks` bounds the questions asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import Final

from ledger.vocabulary import Form, JobKind
from scheduler.engine.claims import milli_in
from scheduler.engine.costs import Cost, costs
from scheduler.engine.fairness import UNLIMITED, Key, Shares, tier
from scheduler.engine.intervals import length
from scheduler.engine.least import TooDear
from scheduler.engine.room import Room, Scene
from scheduler.engine.types import JobView, Placement, Stay, Tenant

RULE: Final = "fewest-victims/2"
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
    smaller set would do. `takes`: milli-cards that the job will count for."""

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
    takes: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    tenant: Tenant
    milli: int
    lost: int
    stays: tuple[Stay, ...] = field(repr=False)

    @property
    def key(self) -> Key:
        return self.tenant.project_id, self.tenant.simulated

    @property
    def serves(self) -> bool:
        return tier(self.tenant.kind) > 0


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
    if tenant.project_id == job.project_id or shares is None:
        return False
    return shares.may_lose((tenant.project_id, tenant.simulated), tenant.kind) > 0


def propose(
    scene: Scene,
    job: JobView,
    cause: Cause,
    *,
    tenants: Iterable[Tenant],
    stays: Sequence[Stay],
    shares: Shares | None,
    terms: Terms,
    promised: int = 0,
) -> Proposal | None:
    """None: nobody has to be stopped for it, or it would not help. `promised`: milli-cards of the guarantee that are
    kept for other jobs of the project."""
    known = list(tenants)
    leaving = frozenset(one.job_id for one in known if one.closing)
    able = [one for one in known if may_go(one, job, cause, shares, scene.at)]
    within = UNLIMITED
    if cause is Cause.GUARANTEE and shares is not None:
        within = -shares.spare((job.project_id, job.simulated)) - promised
    too_dear = scene.fleet.makes.too_dear(scene.fleet, job, scene.at, within) if within < UNLIMITED else {}
    with Room(scene, stays) as room:
        room.empty(leaving)
        table = costs(scene.fleet, scene.rule, job, scene.at, too_dear)
        candidates = _candidates(able, room, table.rows, scene.at)
        search = _Search(partial(_place, room, job, leaving, (within, too_dear)), job, leaving, terms)
        search.allowed = _allowances(candidates, job, shares)
        found = search.serving_last(candidates, table)
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
            checks=search.asked,
            takes=milli_in(scene.fleet, placement),
        )


def _place(
    room: Room, job: JobView, leaving: frozenset[int], most: tuple[int, TooDear], gone: frozenset[int]
) -> Placement | None:
    """Where it would find room by itself is no question of its guarantee."""
    return room.place(job, gone) if gone == leaving else room.place(job, gone, *most)


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


def _allowances(candidates: Iterable[Candidate], job: JobView, shares: Shares | None) -> dict[tuple[Key, bool], int]:
    """How many milli-cards each project may lose, in all (False) and of its inference (True): what it holds above its
    guarantee. What the job's own project loses it gets itself."""
    own = job.project_id, job.simulated
    kinds = {False: JobKind.OTHER, True: JobKind.INFERENCE}
    return {
        (key, serves): UNLIMITED if shares is None or key == own else shares.may_lose(key, kind)
        for key in {one.key for one in candidates}
        for serves, kind in kinds.items()
    }


class _Spent(Exception):
    """No more questions."""


class _Search:
    """The search for one job. `whole`: nothing smaller was left untried."""

    def __init__(
        self, ask: Callable[[frozenset[int]], Placement | None], job: JobView, leaving: frozenset[int], terms: Terms
    ) -> None:
        self.ask, self.job, self.leaving, self.terms = ask, job, leaving, terms
        self.allowed: dict[tuple[Key, bool], int] = {}
        self.left = self.asked = 0
        self.whole = False
        self.known: dict[frozenset[int], Placement | None] = {}

    def serving_last(self, candidates: Sequence[Candidate], table: Cost) -> tuple[Placement, list[Candidate]] | None:
        """Among the others first, with half of the questions; with inference only where they would not do."""
        others = [one for one in candidates if not one.serves]
        turns = [others, candidates] if 0 < len(others) < len(candidates) else [candidates]
        for number, some in enumerate(turns, start=1):
            self.left, self.whole = self.terms.checks * number // len(turns) - self.asked, False
            found = self.run(some, table)
            if found is not None:
                return found
        return None

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
            self.left, self.asked = self.left - 1, self.asked + 1
            self.known[gone] = self.ask(gone)
        return self.known[gone]

    def permitted(self, chosen: Sequence[Candidate]) -> bool:
        if len(chosen) > self.terms.victims:
            return False
        lost: dict[tuple[Key, bool], int] = {}
        for one in chosen:
            for counted in {False, one.serves}:
                lost[one.key, counted] = lost.get((one.key, counted), 0) + one.milli
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
