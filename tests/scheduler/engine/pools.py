"""Small pools with tenants on them, for tests of who is stopped for whom: built anew for each set of tenants that is
left, so that nothing is shared with how the engine takes them away."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from ledger.vocabulary import Distance, Form, JobKind
from scheduler.engine.fairness import Shares
from scheduler.engine.fleet import Fleet
from scheduler.engine.preempt import Cause, Proposal, Terms, propose
from scheduler.engine.room import Scene
from scheduler.engine.types import DEFAULT_RULE, Ask, JobView, NodeView, Standing, Stay, Tenant
from tests.scheduler.engine import fleets
from tests.scheduler.engine.bruteforce import placeable

AT = 10_000.0
MIN_RUN = 300.0


@dataclass
class Pool:
    empty: list[NodeView]
    tenants: list[Tenant]
    stays: list[Stay]
    standings: list[Standing]
    job: JobView
    cause: Cause

    def nodes(self, gone: Collection[int] = ()) -> list[NodeView]:
        """The nodes with all tenants but those of these jobs."""
        return [
            _with(view, [s for s in self.stays if s.node_id == view.id and s.job_id not in gone]) for view in self.empty
        ]

    def propose(self, checks: int = 100_000, victims: int = 64, promised: int = 0) -> Proposal | None:
        fleet = Fleet(self.nodes())
        shares = Shares(self.standings, fleet.capacity())
        before = list(fleet.views)
        found = propose(
            Scene(fleet, (), AT, 1, DEFAULT_RULE),
            self.job,
            self.cause,
            tenants=self.tenants,
            stays=self.stays,
            shares=shares,
            terms=Terms(victims, checks),
            promised=promised,
        )
        assert fleet.views == before
        return found

    def fits(self, gone: Collection[int], within: int | None = None) -> bool:
        """Whether the job finds its nodes; such as count for so many milli-cards together, where that is said."""
        views = self.nodes(gone)
        for number, ask in enumerate(self.job.asks):
            for chosen in combinations(views, ask.nodes) if within is not None else [tuple(views)]:
                if placeable(fleets.snapshot(chosen, self.job, at=AT), self.job, number) and (
                    within is None or self.counts(ask, chosen) <= within
                ):
                    return True
        return False

    def helps(self, gone: Collection[int]) -> bool:
        return self.fits(gone, self.left() if self.cause is Cause.GUARANTEE else None)

    def counts(self, ask: Ask, views: Sequence[NodeView]) -> int:
        """Milli-cards of the ask on nodes that have cards of one size each."""
        if ask.form is fleets.AskForm.WHOLE:
            return sum(1000 * len(view.cards) for view in views)
        sizes = [view.cards[0].memory_mib for view in views]
        each = [-(-1000 * (ask.memory_mib or size) // size) for size in sizes]
        return sum(ask.cards_per_node * milli for milli in each)

    def milli(self, tenant: Tenant) -> int:
        size = {card.id: card.memory_mib for view in self.empty for card in view.cards}
        return sum(
            -(-1000 * (hi - lo) // size[card])
            for s in self.stays
            if s.job_id == tenant.job_id
            for card, m, _ in s.cards
            for lo, hi in m
        )

    def serving(self, project: int) -> int:
        """Milli-cards of its inference."""
        return sum(
            self.milli(one)
            for one in self.tenants
            if one.project_id == project and one.kind is JobKind.INFERENCE and not one.closing
        )

    def left(self) -> int:
        """What is left of the guarantee of the job's project."""
        own = {one.project_id: one for one in self.standings}[self.job.project_id]
        return own.guaranteed - own.held

    def lawful(self, chosen: Sequence[Tenant]) -> bool:
        """Written from the rules, not from the engine."""
        own = {one.project_id: one for one in self.standings}
        for project, standing in own.items():
            taken = sum(self.milli(one) for one in chosen if one.project_id == project)
            serving = [one for one in chosen if one.project_id == project and one.kind is JobKind.INFERENCE]
            stopped = sum(map(self.milli, serving))
            if taken and project != self.job.project_id and standing.held - taken < standing.guaranteed:
                return False
            if stopped and project != self.job.project_id and self.serving(project) - stopped < standing.guaranteed:
                return False
        return all(self.eligible(one) for one in chosen)

    def eligible(self, one: Tenant) -> bool:
        if one.since + MIN_RUN > AT or one.closing:
            return False
        serving = one.kind is JobKind.INFERENCE
        if self.cause is Cause.TIER:
            return one.preemptible and not serving and one.priority <= self.job.priority
        return one.project_id != self.job.project_id

    def fewest(self) -> tuple[int, int] | None:
        """By trying every set: how many go and what they lose. None: nobody must go, or it would not help. Inference
        goes only where the others would not do."""
        leaving = {one.job_id for one in self.tenants if one.closing}
        if self.fits(leaving):
            return None
        able = [one for one in self.tenants if self.eligible(one)]
        others = [one for one in able if one.kind is not JobKind.INFERENCE]
        return self._fewest(others, leaving) or self._fewest(able, leaving)

    def _fewest(self, able: Sequence[Tenant], leaving: Collection[int]) -> tuple[int, int] | None:
        for number in range(1, len(able) + 1):
            lost = [
                sum(self.milli(one) * int(AT - one.since) for one in chosen)
                for chosen in combinations(able, number)
                if self.lawful(chosen) and self.helps({*leaving, *(one.job_id for one in chosen)})
            ]
            if lost:
                return number, min(lost)
        return None


def _with(view: NodeView, here: Sequence[Stay]) -> NodeView:
    busy = {card: memory for stay in here for card, memory, _ in stay.cards}
    taken: dict[int, list[tuple[int, int]]] = {}
    for stay in here:
        for card, memory, _ in stay.cards:
            taken.setdefault(card, []).extend(memory)
    cards = tuple(replace(card, busy=tuple(sorted(taken[card.id]))) if card.id in busy else card for card in view.cards)
    return replace(
        view,
        cards=cards,
        used_form=here[0].form if here else None,
        allocations=len(here),
        cpu_milli_used=sum(stay.cpu_milli for stay in here),
        host_memory_mib_used=sum(stay.host_memory_mib for stay in here),
    )


def some_pool(seed: int) -> Pool:
    dice = Random(seed)
    mixed = dice.random() < 0.5
    empty = [
        fleets.node(
            number,
            fleets.cards_of(number, [dice.choice((16, 16, 32)) if mixed else 16] * dice.choice((2, 3, 4, 4))),
            leaf=dice.choice(("l1", "l2")),
        )
        for number in range(1, dice.choice((2, 3, 4)) + 1)
    ]
    free = {view.id: [card.id for card in view.cards] for view in empty}
    tenants: list[Tenant] = []
    stays: list[Stay] = []
    for number in range(1, dice.randint(6, 14)):
        made = _some_stays(dice, number + 100, empty, free, stays)
        if made:
            stays += made
            tenants.append(_some_tenant(dice, number + 100))
    pool = Pool(
        empty, tenants, stays, [], _some_claimant(dice), dice.choice((Cause.GUARANTEE, Cause.GUARANTEE, Cause.TIER))
    )
    if pool.cause is Cause.TIER:
        pool.job = replace(pool.job, kind=JobKind.INFERENCE)
    pool.standings = [_some_standing(dice, pool, project) for project in (1, 2, 3)]
    return pool


def _some_stays(
    dice: Random, job: int, empty: Sequence[NodeView], free: dict[int, list[int]], stays: Sequence[Stay]
) -> list[Stay]:
    """On one node or two, of whole cards or half ones."""
    half = dice.random() < 0.3
    made = []
    for view in dice.sample(list(empty), min(dice.choice((1, 1, 1, 2)), len(empty))):
        want = dice.choice((1, 1, 1, 2))
        if len(free[view.id]) < want:
            continue
        cards = [free[view.id].pop() for _ in range(want)]
        part = ((0, 8),) if half else ((0, 16),)
        made.append(
            Stay(job, view.id, Form.CONTAINER, AT + 50, dice.choice((0, 3000)), 0, tuple((c, part, ()) for c in cards))
        )
    used = {view.id: sum(s.cpu_milli for s in (*stays, *made) if s.node_id == view.id) for view in empty}
    return [replace(s, cpu_milli=0) if used[s.node_id] > 8000 else s for s in made]


def _some_tenant(dice: Random, job: int) -> Tenant:
    since = AT - dice.choice((100, 400, 1000, 5000, 5000))
    kind = dice.choice((JobKind.TRAINING, JobKind.TRAINING, JobKind.INFERENCE))
    closing = dice.random() < 0.1
    return Tenant(
        job + 1000, job, dice.choice((1, 2, 2, 3)), False, kind, dice.choice((0, 0, 1)), dice.random() < 0.6, since,
        since + MIN_RUN, closing,
    )  # fmt: skip


def _some_claimant(dice: Random) -> JobView:
    cards = dice.randint(1, 4)
    ask = dice.choice(
        (
            fleets.container(cards, 0),
            fleets.container(cards, 8),
            fleets.container(1, 0, nodes=2),
            fleets.container(2, 0, nodes=2),
            fleets.whole(),
            fleets.whole(nodes=2),
            Ask(fleets.AskForm.AUTO, cards_per_node=2, memory_mib=12),
        )
    )
    return fleets.job(
        1,
        ask,
        cpu_milli=dice.choice((0, 4000)),
        priority=dice.choice((0, 1)),
        distance=dice.choice((Distance.ANY, Distance.ANY, Distance.SAME_LEAF)),
        kind=dice.choice((JobKind.TRAINING, JobKind.INFERENCE)),
    )


def _some_standing(dice: Random, pool: Pool, project: int) -> Standing:
    held = sum(pool.milli(one) for one in pool.tenants if one.project_id == project and not one.closing)
    guaranteed = dice.choice((0, 0, 0, held // 2, 2000))
    if project == pool.job.project_id:
        guaranteed = held + dice.choice((250, 1000, 2000, 4000, 8000, 8000))
    return Standing(project, False, guaranteed, None, 1, held, 0, pool.serving(project))
