"""Small fleets with a history, and what must hold of every plan made for them.

A story is a fleet that the engine keeps from tick to tick. Each tick brings a queue and a plan, and every few ticks some
of the nodes change: a plan is carried out, work ends, cards and zones are others, machines come. A tick is one example.
All of it follows from one number. A new property is a function in PROPERTIES, a new kind of case a line in `kinds`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, TypeVar
from unittest import mock

from ledger.vocabulary import AskForm, Distance, Form, Interconnect, Refusal
from scheduler.engine import compiling
from scheduler.engine.check import check_plan
from scheduler.engine.demand import workloads
from scheduler.engine.ends import StayTable
from scheduler.engine.fleet import Answer, Fleet
from scheduler.engine.queueing import POLICIES
from scheduler.engine.score import LEAST_LOSS, RULES
from scheduler.engine.serialise import to_json
from scheduler.engine.types import DEFAULT_POLICY, Ask, JobView, NodeView, Plan, Reserve, Snapshot
from tests.scheduler.engine import bruteforce
from tests.scheduler.engine.fleets import ALL_FORMS, plan_fleet, shuffled, some_demand, some_job, some_node, some_stays
from tests.scheduler.engine.fleets import snapshot as snapshot_of

T = TypeVar("T")
POLICY = POLICIES[DEFAULT_POLICY]
STATES, QUEUES = 4, 10  # of a story: states of its fleet, and queues that each is asked to place
TICKS = STATES * QUEUES
ODDS_OF_ENDS = 0.4  # that it is known when work ends, so that nodes can be kept
ODDS_OF_PLAIN = 0.75  # of a node or job without odd wishes and states: where all is odd, little is ever placed


@dataclass(frozen=True)
class Example:
    """A snapshot with the plan of the kept fleet, by compiled loops, and that of a fleet that remembers nothing, given
    in another order, by NumPy. `given` is a copy of the snapshot from before anything was planned."""

    snapshot: Snapshot
    given: Snapshot
    plan: Plan
    afresh: Plan


# ---- Properties: what is wrong, in words ----


def breaks_a_rule(example: Example) -> Iterator[str]:
    """One form a node, no card above its memory, gangs whole, nothing held, draining or cleaning, and all the rest."""
    yield from check_plan(example.snapshot, example.plan)


def differs_afresh(example: Example) -> Iterator[str]:
    """Neither order nor history nor the compiler makes a difference, to the last refusal and score."""
    if example.plan != example.afresh:
        yield f"kept, compiled: {example.plan}\n   afresh, NumPy, another order: {example.afresh}"


def changes_its_input(example: Example) -> Iterator[str]:
    if example.snapshot != example.given:
        yield "the snapshot is not what it was"


def waits_while_there_is_room(example: Example) -> Iterator[str]:
    """Found by trying every set of cards on every node. Members of a gang share reserves, so those are not tried; nor is
    what is kept for another job."""
    snapshot = example.snapshot
    left = bruteforce.after(snapshot, example.plan)
    for job, number, ask, refused in _waiting_asks(example):
        counts = not job.over_quota and not job.shut(ask) and snapshot.at >= job.submitted_at + ask.after_s
        counts &= Refusal.RESERVED not in refused
        tried = ask.nodes == 1 or not snapshot.reserves
        if counts and tried and bruteforce.placeable(left, job, number):
            yield f"job {job.id} waits, and yet there is room for its ask {number}"


def keeps_nodes_for_nothing(example: Example) -> Iterator[str]:
    """Nodes are kept for jobs that wait, each node for one of them, and for later."""
    waiting = {one.job_id for one in example.plan.waiting}
    kept: set[int] = set()
    for one in example.plan.reservations:
        if one.job_id not in waiting or one.begins_at <= example.snapshot.at or kept & {*one.node_ids}:
            yield f"{one}"
        kept |= {*one.node_ids}


def gives_up_too_early_or_never(example: Example) -> Iterator[str]:
    """Never is what not even the empty fleet would do."""
    if not example.plan.waiting:
        return
    best = bruteforce.emptied(example.snapshot)
    jobs = {job.id: job for job in example.snapshot.jobs}
    for waiting in example.plan.waiting:
        job = jobs[waiting.job_id]
        could = any(bruteforce.placeable(best, job, number) for number in range(len(job.asks)))
        if waiting.never is could:
            yield f"job {job.id} waits {'for ever' if waiting.never else 'in vain'}"


def _waiting_asks(example: Example) -> Iterator[tuple[JobView, int, Ask, Mapping[Refusal, int]]]:
    jobs = {job.id: job for job in example.snapshot.jobs}
    for waiting in example.plan.waiting:
        for number, ask in enumerate(jobs[waiting.job_id].asks):
            yield jobs[waiting.job_id], number, ask, waiting.by_ask[number]


PROPERTIES: tuple[Callable[[Example], Iterator[str]], ...] = (
    breaks_a_rule,
    differs_afresh,
    changes_its_input,
    waits_while_there_is_room,
    keeps_nodes_for_nothing,
    gives_up_too_early_or_never,
)


def problems(example: Example) -> list[str]:
    return [f"{each.__name__}: {text}" for each in PROPERTIES for text in each(example)]


def kinds(example: Example) -> Iterator[str]:
    """What an example is an example of: counted, so that the generator can't drift to cases that try nothing."""
    nodes, waiting = example.snapshot.nodes, example.plan.waiting
    found = {
        "an empty pool": nodes and not any(view.used_form for view in nodes),
        "a node being cleaned": any(view.used_form and not view.allocations for view in nodes),
        "a node held or down": any(view.held or not view.up for view in nodes),
        "a card held": any(card.held for view in nodes for card in view.cards),
        "a card only for work on itself": any(card.alone for view in nodes for card in view.cards),
        "reserves": example.snapshot.reserves,
        "a job that waits": any(not one.never for one in waiting),
        "a job without hope": any(one.never for one in waiting),
        "kept nodes": example.plan.reservations,
        "kept out of a zone": any(Refusal.ZONE in counts for one in waiting for counts in one.by_ask),
        "kept out": any(Refusal.RESERVED in counts for one in waiting for counts in one.by_ask),
    }
    yield from (kind for kind, is_one in found.items() if is_one)
    for placement in example.plan.placements:
        yield f"a {placement.members[0].form}"
        if len(placement.members) > 1:
            yield "a gang"
        if placement.ask_index:
            yield "a second choice"


# ---- Telling a story ----


class Kept:
    """A fleet as the scheduler keeps it, corrected by what has changed, and beside it one that is made anew of each
    state, in another order, and remembers nothing."""

    def __init__(self, first: Snapshot) -> None:
        self.given, self.nodes = first.nodes, _copied(first.nodes)
        self.fleet = Fleet(self.nodes, workloads(first.demand))
        self.afresh = _forgetful(first)

    def example(self, given: Snapshot) -> Example:
        if given.nodes != self.given:
            before = {view.id: view for view in self.given}
            self.given, self.nodes = given.nodes, _copied(given.nodes)
            self.fleet.replace_nodes([view for view in self.nodes if before.get(view.id) != view])
            self.afresh = _forgetful(given)
        snapshot = replace(given, nodes=self.nodes, jobs=_copied(given.jobs))
        plan = _plan(self.fleet, snapshot)
        with mock.patch.object(compiling, "COMPILED", False):
            afresh = _plan(self.afresh, _backwards(snapshot))
        return Example(snapshot, given, plan, afresh)


def _backwards(snapshot: Snapshot) -> Snapshot:
    """But for its nodes, which the fleet has in an order of its own."""
    return replace(snapshot, jobs=snapshot.jobs[::-1], reserves=snapshot.reserves[::-1], stays=snapshot.stays[::-1])


def _copied(items: tuple[T, ...]) -> tuple[T, ...]:
    copy: tuple[T, ...] = pickle.loads(pickle.dumps(items))  # noqa: S301 - the quickest copy
    return copy


def _forgetful(snapshot: Snapshot) -> Fleet:
    return Forgetful(shuffled(snapshot, snapshot.seed).nodes, workloads(snapshot.demand))


def _plan(fleet: Fleet, snapshot: Snapshot) -> Plan:
    rest = {"at": snapshot.at, "seed": snapshot.seed, "rule": snapshot.rule}
    stays = partial(StayTable, fleet, snapshot.stays)
    return plan_fleet(fleet, snapshot.jobs, snapshot.reserves, **rest, stays=stays)


class Forgetful(Fleet):
    """Every answer is worked out for all nodes, each time."""

    @property
    def answers(self) -> dict[Any, Answer]:
        return {}

    @answers.setter
    def answers(self, value: dict[Any, Answer]) -> None:
        pass

    def fork(self, *args: Any, **kwargs: Any) -> Fleet:
        twin = super().fork(*args, **kwargs)
        twin.base = None  # whose answers would be the first of the fork's
        return twin


def tell(seed: int) -> Iterator[Example]:
    """The examples of one story."""
    dice = Random(seed)
    now = _beginning(dice)
    kept = Kept(now)
    for _state in range(STATES):
        for _queue in range(QUEUES):
            now = replace(now, seed=dice.randint(0, 3), rule=_some_rule(dice), jobs=_some_queue(dice), stays=())
            if dice.random() < ODDS_OF_ENDS:
                now = replace(now, jobs=_with_estimates(dice, now.jobs), stays=some_stays(dice, now.nodes))
            example = kept.example(now)
            yield example
        nodes = bruteforce.after(now, example.plan).nodes if dice.random() < 0.7 else now.nodes
        now = replace(now, nodes=_after_a_while(dice, nodes))


def _beginning(dice: Random) -> Snapshot:
    nodes = tuple(_some_node(dice, number) for number in range(1, dice.choice((1, 3, 4, 5, 6))))
    reserves = [
        Reserve(dice.choice((4, 1, 9)), dice.choice("ABC"), dice.randint(0, 90))
        for _ in range(dice.choice((0, 0, 0, 0, 1, 2)))
    ]
    first = snapshot_of(nodes, reserves=tuple(reserves), demand=some_demand(dice))
    if dice.random() < 0.5:
        return first
    return replace(bruteforce.emptied(first), reserves=first.reserves)


def _some_rule(dice: Random) -> str:
    return LEAST_LOSS if dice.random() < 0.6 else dice.choice(sorted(RULES))


def _some_node(dice: Random, number: int) -> NodeView:
    view = some_node(dice, number)
    if dice.random() > ODDS_OF_PLAIN:
        return view
    forms = ALL_FORMS if dice.random() < 0.7 else view.zone_forms
    return replace(view, up=True, held=False, simulated=False, zone_forms=forms, cpu_milli=8000)


def _some_queue(dice: Random) -> tuple[JobView, ...]:
    jobs: list[JobView] = []
    for number in range(1, dice.choice((1, 1, 1, 1, 1, 3)) + 1):
        again = jobs and dice.random() < 0.25  # equal jobs are looked at once
        jobs.append(replace(dice.choice(jobs), id=number) if again else _some_job(dice, number))
    return tuple(jobs)


def _with_estimates(dice: Random, jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
    """The jobs have waited for very different times, and something is known of how long they run."""
    waits = (10.0, POLICY.keep_whole_after_s, POLICY.bound_s)
    return tuple(
        replace(
            one,
            submitted_at=1000.0 - dice.choice(waits),
            expected_s=dice.choice((0.0, 5.0, 500.0)),
            surely_s=dice.choice((None, 4.0, 700.0)),
        )
        for one in jobs
    )


def _some_job(dice: Random, number: int) -> JobView:
    job = some_job(dice, number)
    asks = tuple(_one_form(dice, ask) for ask in job.asks[: dice.choice((1, 1, 1, 1, 2))])
    job = replace(job, asks=asks, no_room=frozenset(one for one in job.no_room if one[0] < len(asks)))
    if dice.random() > ODDS_OF_PLAIN:
        return job
    distance = Distance.SAME_LEAF if dice.random() < 0.2 else Distance.ANY
    plain = {
        "interconnect": Interconnect.ANY,
        "distance": distance,
        "labels": frozenset(),
        "zones": frozenset(),
        "simulated": False,
    }
    asks = tuple(map(_plain_ask, job.asks))
    return replace(job, asks=asks, cpu_milli=min(job.cpu_milli, 1000), host_memory_mib=500, over_quota=False, **plain)


def _one_form(dice: Random, ask: Ask) -> Ask:
    """Mostly: an ask for any form takes as long as three."""
    return replace(ask, form=AskForm.CONTAINER) if ask.form is AskForm.AUTO and dice.random() < 0.7 else ask


def _plain_ask(ask: Ask) -> Ask:
    cards = min(ask.cards_per_node, 2) if ask.form is AskForm.CONTAINER else ask.cards_per_node
    return replace(
        ask, model="", after_s=0, nodes=min(ask.nodes, 2), cards_per_node=cards, memory_mib=ask.memory_mib % 9
    )


def _after_a_while(dice: Random, nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """Some nodes change; now and then one is new."""
    later = [_changed(dice, view) if dice.random() < 0.3 else view for view in nodes]
    if dice.random() < 0.1:
        later.append(_some_node(dice, len(nodes) + 1))
    return tuple(later)


def _changed(dice: Random, view: NodeView) -> NodeView:
    freed = tuple(replace(card, busy=(), compute_busy=()) for card in view.cards)
    nothing = {"cpu_milli_used": 0, "host_memory_mib_used": 0}
    changes: tuple[Callable[[], NodeView], ...] = (
        lambda: replace(view, cards=freed, used_form=None, allocations=0, **nothing),
        lambda: replace(view, cards=freed, used_form=None, allocations=0, **nothing),
        lambda: replace(view, allocations=0),  # all work has ended, its cards are being cleaned
        lambda: replace(view, held=not view.held),
        lambda: replace(view, up=not view.up),
        lambda: replace(view, zone_forms=frozenset(dice.sample(tuple(Form), dice.randint(1, 3)))),
        lambda: _some_node(dice, view.id),
    )
    return dice.choice(changes)()


# ---- Saying what went wrong ----


def report(seed: int, snapshots: Sequence[Snapshot]) -> str:
    """The smallest story found that ends as badly, ready to be read back with engine/serialise."""
    story = smallest(snapshots)
    lines = [f"story {seed}, tick {len(snapshots)}", *_end_of(story)]
    lines.append("Snapshots, one after another on one fleet (tests.scheduler.engine.stories.retell):")
    return "\n".join([*lines, *(json.dumps(to_json(snapshot), sort_keys=True) for snapshot in story)])


def retell(snapshots: Sequence[Snapshot]) -> Iterator[Example]:
    """These ticks on one kept fleet."""
    kept = Kept(snapshots[0])
    return (kept.example(snapshot) for snapshot in snapshots)


def smallest(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Leave out what the last tick's problems don't need, piece by piece."""
    story, tried = list(snapshots), True
    while tried:
        tried = False
        for smaller in _smaller(story):
            if _end_of(smaller):
                story, tried = smaller, True
                break
    return story


def _end_of(story: Sequence[Snapshot]) -> list[str]:
    return problems(list(retell(story))[-1])


def _smaller(story: list[Snapshot]) -> Iterator[list[Snapshot]]:
    for number in range(len(story) - 1):
        yield story[:number] + story[number + 1 :]
    for id_ in sorted({view.id for snapshot in story for view in snapshot.nodes}):
        yield [replace(one, nodes=tuple(view for view in one.nodes if view.id != id_)) for one in story]
    for name in ("reserves", "demand"):
        if any(getattr(one, name) for one in story):
            yield [replace(one, **{name: ()}) for one in story]
    for number, one in enumerate(story):
        for other in _smaller_snapshots(one):
            yield [*story[:number], other, *story[number + 1 :]]


def _smaller_snapshots(one: Snapshot) -> Iterator[Snapshot]:
    for queue in _without_each(one.jobs):
        yield replace(one, jobs=queue)
    for number, job in enumerate(one.jobs):
        for asks in _without_each(job.asks):
            if asks:
                yield replace(one, jobs=(*one.jobs[:number], replace(job, asks=asks), *one.jobs[number + 1 :]))
    for number, view in enumerate(one.nodes):
        for cards in _without_each(view.cards):
            left = {card.id for card in cards}
            links = tuple(link for link in view.links if {*link[:2]} <= left)
            smaller = replace(view, cards=cards, links=links)
            yield replace(one, nodes=(*one.nodes[:number], smaller, *one.nodes[number + 1 :]))


def _without_each(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for number in range(len(items)):
        yield items[:number] + items[number + 1 :]
