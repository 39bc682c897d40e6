"""The fleet as it is expected to be: what ends goes, what the queue starts comes, step by step.

Pure; an estimate, told as one. Ends that lie close together, measured by how far away they are, make one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ledger.vocabulary import COMPUTE_UNITS
from scheduler.engine.demand import workloads
from scheduler.engine.ends import StayTable
from scheduler.engine.fleet import Fleet
from scheduler.engine.intervals import merged, minus
from scheduler.engine.plan import Desk
from scheduler.engine.types import CardView, NodeView, Snapshot, Stay

CLOSE_S: Final = 30.0  # ends that are no further apart make one step,
CLOSE: Final = 0.15  # nor those that are this part of their distance from now


@dataclass
class World:
    """A fleet of its own that goes on in time. `snapshot` is what it starts from; its jobs don't matter."""

    snapshot: Snapshot

    def __post_init__(self) -> None:
        self.views: dict[int, NodeView] = {view.id: view for view in self.snapshot.nodes}
        self.fleet = Fleet(self.snapshot.nodes, workloads(self.snapshot.demand))
        self.stays = [stay for stay in self.snapshot.stays if stay.node_id in self.views]

    def go_on(self, at: float, started: Sequence[Stay]) -> tuple[float, dict[int, int]] | None:
        """To the next step after `at`, when these have started: its time, and by row the job whose end freed it last.
        None when nothing is left that ends."""
        self._change(started, come=True)
        self.stays += started
        if not self.stays:
            return None
        first = max(min(stay.ends_at for stay in self.stays), at)
        until = first + max(CLOSE_S, CLOSE * (first - self.snapshot.at))
        gone = sorted((s for s in self.stays if s.ends_at <= until), key=lambda s: (s.ends_at, s.job_id))
        self.leave(gone)
        then = max(first, gone[-1].ends_at)
        return then, {self.fleet.row_of[stay.node_id]: stay.job_id for stay in gone}

    def leave(self, gone: Sequence[Stay]) -> None:
        """These have ended."""
        left = set(map(id, gone))
        self.stays = [stay for stay in self.stays if id(stay) not in left]
        self._change(gone, come=False)

    def come(self, back: Sequence[Stay]) -> None:
        """These are there."""
        self.stays += back
        self._change(back, come=True)

    def _change(self, stays: Iterable[Stay], *, come: bool) -> None:
        by_node: dict[int, list[Stay]] = defaultdict(list)
        for stay in stays:
            by_node[stay.node_id].append(stay)
        for node_id, here in by_node.items():
            self.views[node_id] = with_stays(self.views[node_id], here) if come else without(self.views[node_id], here)
        self.fleet.replace_nodes([self.views[node_id] for node_id in sorted(by_node)])


class Future(Desk):
    """A Desk that goes on in time. What became of each job is `decided`, over all steps."""

    def __init__(self, world: World, at: float, before: Future | None = None) -> None:
        taken = world.snapshot
        super().__init__(
            world.fleet,
            taken.reserves,
            at=at,
            seed=taken.seed,
            rule=taken.rule,
            policy=taken.policy,
            stays=lambda: StayTable(world.fleet, world.stays),
        )
        self.world = world
        if before is not None:
            self.jobs, self.decided = before.jobs, before.decided

    def later(self) -> tuple[Future, Mapping[int, int]] | None:
        step = self.world.go_on(self.at, self.placed)
        return None if step is None else (Future(self.world, step[0], self), step[1])


def without(view: NodeView, gone: Sequence[Stay]) -> NodeView:
    """The node after these have gone from it."""
    left = view.allocations - len(gone)
    return replace(
        view,
        cards=_cards(view, gone, come=False),
        used_form=view.used_form if left > 0 else None,
        allocations=max(left, 0),
        cpu_milli_used=view.cpu_milli_used - sum(stay.cpu_milli for stay in gone),
        host_memory_mib_used=view.host_memory_mib_used - sum(stay.host_memory_mib for stay in gone),
    )


def with_stays(view: NodeView, come: Sequence[Stay]) -> NodeView:
    """The node after these have come to it."""
    return replace(
        view,
        cards=_cards(view, come, come=True),
        used_form=come[0].form,
        allocations=view.allocations + len(come),
        cpu_milli_used=view.cpu_milli_used + sum(stay.cpu_milli for stay in come),
        host_memory_mib_used=view.host_memory_mib_used + sum(stay.host_memory_mib for stay in come),
    )


def _cards(view: NodeView, stays: Sequence[Stay], *, come: bool) -> tuple[CardView, ...]:
    changed = {card.id: card for card in view.cards}
    for stay in stays:
        for card_id, memory, compute in stay.cards:
            card = changed.get(card_id)
            if card is None:  # it was taken out of the node meanwhile
                continue
            if come:
                busy, compute_busy = merged(card.busy + memory), merged(card.compute_busy + compute)
            else:
                busy = minus(card.busy, memory, card.memory_mib)
                compute_busy = minus(card.compute_busy, compute, COMPUTE_UNITS)
            changed[card_id] = replace(card, busy=busy, compute_busy=compute_busy)
    return tuple(changed.values())
