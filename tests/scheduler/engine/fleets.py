"""Small nodes and jobs for engine tests: plain builders with defaults, and hypothesis strategies made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

from ledger.vocabulary import AskForm, Distance, Form, Interconnect, Span
from scheduler.engine.fleet import Fleet
from scheduler.engine.hardware import hardware_of
from scheduler.engine.plan import Desk
from scheduler.engine.score import RULES
from scheduler.engine.types import (
    DEFAULT_RULE,
    Ask,
    CardView,
    Demand,
    JobView,
    Likeness,
    NodeView,
    Plan,
    Reserve,
    Snapshot,
    Stay,
)

ALL_FORMS = frozenset(Form)
ZONES: dict[int, frozenset[Form]] = {
    1: frozenset({Form.CONTAINER}),
    2: frozenset({Form.BLOCK}),
    3: frozenset({Form.WHOLE}),
    4: ALL_FORMS,
    5: frozenset({Form.CONTAINER, Form.WHOLE}),
}
MEMORIES = (8, 16, 24)
T = TypeVar("T")


def card(id_: int, slot: int = 0, memory_mib: int = 16, **more: Any) -> CardView:
    more = {"model": "A", "block_id": None, **more}
    return CardView(id=id_, seat_id=id_ + 5000, uuid=f"GPU-{id_}", slot=slot, memory_mib=memory_mib, **more)


def cards_of(node_id: int, memories: Sequence[int], **more: Any) -> tuple[CardView, ...]:
    return tuple(card(node_id * 100 + slot, slot, memory, **more) for slot, memory in enumerate(memories))


def node(id_: int, cards: int | tuple[CardView, ...] = 4, **more: Any) -> NodeView:
    """A flexible, empty machine with drivers for all forms; `cards` as a number means that many cards of 16 MiB."""
    defaults: dict[str, Any] = {
        "hostname": f"n{id_}",
        "simulated": False,
        "up": True,
        "held": False,
        "zone_id": 4,
        "zone_forms": ALL_FORMS,
        "managers": {form.value: "local" for form in Form},
        "site": "s",
        "room": "r",
        "rack": "k",
        "leaf": "l",
        "interconnect": Interconnect.NVLINK,
        "labels": frozenset(),
        "cpu_milli": 8000,
        "host_memory_mib": 8000,
        "cpu_milli_used": 0,
        "host_memory_mib_used": 0,
        "used_form": None,
        "allocations": 0,
    }
    made = cards_of(id_, [16] * cards) if isinstance(cards, int) else cards
    return NodeView(id=id_, cards=made, **{**defaults, **more})


def blocks_node(id_: int, sizes: Sequence[int], **more: Any) -> NodeView:
    """A node cut into blocks of these sizes, cards of 16 MiB in slot order."""
    blocks = [id_ * 10 + n for n, size in enumerate(sizes) for _ in range(size)]
    made = tuple(card(id_ * 100 + slot, slot, block_id=block) for slot, block in enumerate(blocks))
    return node(id_, made, **more)


def container(cards: int = 1, memory_mib: int = 4, **more: Any) -> Ask:
    return Ask(AskForm.CONTAINER, cards_per_node=cards, memory_mib=memory_mib, **more)


def whole(cards: int = 0, nodes: int = 1, **more: Any) -> Ask:
    return Ask(AskForm.WHOLE, nodes=nodes, cards_per_node=cards, **more)


def block(cards: int = 2, **more: Any) -> Ask:
    return Ask(AskForm.BLOCK, cards_per_node=cards, **more)


def job(id_: int, *asks: Ask, **more: Any) -> JobView:
    defaults: dict[str, Any] = {
        "project_id": 1,
        "cpu_milli": 1000,
        "host_memory_mib": 1000,
        "interconnect": Interconnect.ANY,
        "distance": Distance.ANY,
        "labels": frozenset(),
        "priority": 0,
        "submitted_at": 0.0,
        "simulated": False,
    }
    return JobView(id=id_, asks=asks or (container(),), **{**defaults, **more})


def snapshot(nodes: Sequence[NodeView], *jobs: JobView, at: float = 1000.0, seed: int = 7, **more: Any) -> Snapshot:
    return Snapshot(at=at, seed=seed, nodes=tuple(nodes), jobs=jobs, **more)


def plan_fleet(
    fleet: Fleet, jobs: Iterable[JobView], reserves: Iterable[Reserve] = (), rule: str = DEFAULT_RULE, **rest: Any
) -> Plan:
    """As plan.plan, on a fleet that is kept."""
    return Desk(fleet, reserves, rule=rule, **rest).decide_all(jobs)


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    dice = Random(seed)

    def mixed(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(dice.sample(items, len(items)))

    nodes = tuple(replace(view, cards=mixed(view.cards), links=mixed(view.links)) for view in mixed(snapshot.nodes))
    return replace(
        snapshot,
        nodes=nodes,
        jobs=mixed(snapshot.jobs),
        reserves=mixed(snapshot.reserves),
        stays=mixed(snapshot.stays),
    )


# Hypothesis draws one number a node and a job, and a seeded die does the rest: drawing every field by itself is
# forty times slower, and shrinking still drops the nodes and jobs that don't matter.


def some_intervals(dice: Random, size: int) -> tuple[tuple[int, int], ...]:
    ends = sorted({dice.randint(0, size) for _ in range(dice.choice((0, 2, 2, 4, 6)))})
    return tuple((ends[n], ends[n + 1]) for n in range(0, len(ends) - 1, 2))


def some_cards(dice: Random, node_id: int, used: Form | None) -> tuple[CardView, ...]:
    size = dice.choice((0, 1, 2, 4, 4, 4))
    cut = dice.choice(((), (0, 0, 1, 1), (0, 0, 0, 0), (0, 1, 2, 2), (0, None, 1, 0)))
    alike = dice.choice((None, (dice.choice(MEMORIES), dice.choice("AB"))))
    made = []
    for slot in range(size):
        memory, model = alike or (dice.choice(MEMORIES), dice.choice("AB"))
        number = cut[slot] if cut else None
        mark = dice.random()
        made.append(
            card(
                node_id * 100 + slot,
                slot,
                memory,
                model=model,
                block_id=None if number is None else node_id * 10 + number,
                held=mark < 0.1,
                alone=0.1 <= mark < 0.2,
                busy=some_busy(dice, used, memory),
                compute_busy=some_intervals(dice, 1000) if used is Form.CONTAINER and dice.random() < 0.5 else (),
            )
        )
    return tuple(made)


def some_busy(dice: Random, used: Form | None, memory: int) -> tuple[tuple[int, int], ...]:
    if used is None:
        return ()
    if used is Form.CONTAINER:
        return some_intervals(dice, memory)
    return ((0, memory),) if used is Form.WHOLE or dice.random() < 0.5 else ()


def some_node(dice: Random, node_id: int) -> NodeView:
    used = dice.choice((None, None, None, None, Form.CONTAINER, *Form))
    cards = some_cards(dice, node_id, used)
    zone = dice.choice((4, 4, 4, 4, 4, 1, 2, 3, 5, None))
    linked = dice.random() < 0.5
    links = tuple((a.id, b.id, dice.choice((0, 64, 300))) for n, a in enumerate(cards) for b in cards[n + 1 :])
    return node(
        node_id,
        cards,
        simulated=dice.random() < 0.1,
        up=dice.random() < 0.9,
        held=dice.random() < 0.1,
        zone_id=zone,
        zone_forms=frozenset() if zone is None else ZONES[zone],
        managers={form.value: f"drv-{form}" for form in Form if dice.random() < 0.95},
        leaf=dice.choice(("l1", "l1", "l2", "")),
        rack=dice.choice(("k1", "k2", "")),
        room=dice.choice(("r", "r", "r", "r2", "")),
        site=dice.choice(("s", "s", "s", "t", "")),
        interconnect=dice.choice(tuple(Interconnect)),
        labels=frozenset(label for label in "xy" if dice.random() < 0.5),
        cpu_milli=dice.choice((2000, 8000)),
        cpu_milli_used=0 if used is None else dice.choice((0, 1500)),
        used_form=used,
        allocations=0 if used is None else dice.randint(0, 2),
        links=links if linked else (),
    )


def some_place(dice: Random, node_id: int) -> NodeView:
    """An empty machine in one of a few places, which need not be known."""
    return node(
        node_id,
        dice.choice((1, 1, 2)),
        leaf=dice.choice(("l1", "l2", "l3", "")),
        rack=dice.choice(("k1", "k2", "")),
        room=dice.choice(("r", "r2", "")),
        site=dice.choice(("s", "s", "t", "")),
    )


def some_twins(dice: Random, node_id: int) -> NodeView:
    """The same of one of two kinds of machine."""
    view = some_place(dice, node_id)
    cards = cards_of(node_id, [16, 16])
    links = ((cards[1].id, cards[0].id, dice.choice((100, 100, 200))),)
    return replace(view, cards=cards, links=links)


def some_ask(dice: Random) -> Ask:
    return Ask(
        form=dice.choice(tuple(AskForm)),
        nodes=dice.choice((1, 1, 1, 2, 3)),
        cards_per_node=dice.choice((0, 1, 1, 1, 2, 2, 3, 4)),
        memory_mib=dice.choice((0, 0, 3, 3, 8, 12, 20)),
        after_s=dice.choice((0, 0, 0, 0, 60, 5000)),
        model=dice.choice((*[""] * 6, "A", "A", "C")),
        compute_milli=dice.choice((*[0] * 5, 250, 1000)),
    )


def some_job(dice: Random, job_id: int) -> JobView:
    made = _any_zone(dice, job_id)
    zones = Random(repr(made)).choice((*[frozenset()] * 6, frozenset({4}), frozenset({1, 3}), frozenset({2, 4, 9})))
    made = replace(made, zones=zones)
    other = Random(f"no room {made!r}")
    shut = [(other.randrange(len(made.asks)), other.choice(("", "A", "C"))) for _ in range(other.choice((1, 1, 2)))]
    return replace(made, no_room=frozenset(shut)) if other.random() < 0.1 else made


def _any_zone(dice: Random, job_id: int) -> JobView:
    return job(
        job_id,
        *(some_ask(dice) for _ in range(dice.randint(1, 3))),
        cpu_milli=dice.choice((0, 500, 1000, 1000, 4000)),
        host_memory_mib=dice.choice((0, 1000, 5000)),
        interconnect=dice.choice((*[Interconnect.ANY] * 5, *Interconnect)),
        distance=dice.choice(tuple(Distance)),
        labels=dice.choice((*[frozenset()] * 8, frozenset({"x"}), frozenset({"z"}))),
        priority=dice.randint(-1, 1),
        submitted_at=float(dice.randint(900, 1000)),
        simulated=dice.random() < 0.1,
        key_work=dice.random() < 0.25,
        over_quota=dice.random() < 0.05,
        warm=frozenset(dice.sample(range(1, 8), dice.choice((0, 0, 0, 1, 3)))),
    )


def as_comparison(dice: Random, nodes: Sequence[NodeView], plain: JobView) -> JobView:
    """The job as one whose placement must be reproducible, for some as that of a job on one of these nodes."""
    asks = tuple(replace(ask, form=AskForm.WHOLE, model="", nodes=dice.choice((1, 2, 2, 3))) for ask in plain.asks[:1])
    like = None
    if nodes and dice.random() < 0.6:
        span = Span.NODE if asks[0].nodes == 1 else dice.choice(tuple(Span))
        like = Likeness(hardware_of(dice.choice(nodes)).code, asks[0].nodes, span)
    return replace(plain, asks=asks, reproducible=True, like=like, no_room=frozenset())


def some_stays(dice: Random, nodes: Sequence[NodeView], at: float = 1000.0) -> tuple[Stay, ...]:
    """What is on these nodes, one stay an allocation: its cards are dealt out to them, its cores go to the first."""
    out: list[Stay] = []
    for view in nodes:
        if view.used_form is None or not view.allocations:
            continue
        parts: list[list[Any]] = [[] for _ in range(view.allocations)]
        for card in view.cards:
            if card.busy or card.compute_busy:
                dice.choice(parts).append((card.id, card.busy, card.compute_busy))
        for n, cards in enumerate(parts):
            used = (0, 0) if n else (view.cpu_milli_used, view.host_memory_mib_used)
            ends_at = at + dice.randint(-1, 9)
            out.append(Stay(1000 + 10 * view.id + n, view.id, view.used_form, ends_at, *used, tuple(cards)))
    return tuple(out)


def some_demand(dice: Random) -> tuple[Demand, ...]:
    return tuple(
        Demand(
            simulated=dice.random() < 0.1,
            form=dice.choice(tuple(AskForm)),
            cards=dice.choice((0, 1, 1, 2, 4)),
            memory_mib=dice.choice((0, 3, 8, 20)),
            cpu_milli=dice.choice((0, 500, 4000)),
            host_memory_mib=dice.choice((0, 1000)),
            count=dice.choice((0.0, 1.0, 2.5, 1000.0)),
        )
        for _ in range(dice.choice((0, 0, 1, 4)))
    )


SEEDS = st.integers(0, 2**24)


def node_views(node_id: int) -> st.SearchStrategy[NodeView]:
    return SEEDS.map(lambda seed: some_node(Random(seed), node_id))


@st.composite
def snapshots(draw: st.DrawFn, max_nodes: int = 5, max_jobs: int = 6, reserves: bool = True) -> Snapshot:
    nodes = [some_node(Random(seed), n) for n, seed in enumerate(draw(st.lists(SEEDS, max_size=max_nodes)), start=1)]
    jobs = [some_job(Random(seed), n) for n, seed in enumerate(draw(st.lists(SEEDS, max_size=max_jobs)), start=1)]
    dice = Random(draw(SEEDS))
    jobs = [as_comparison(dice, nodes, one) if dice.random() < 0.15 else one for one in jobs]
    kept = st.builds(Reserve, zone_id=st.sampled_from((4, 1, 9)), model=st.sampled_from("ABC"), mib=st.integers(0, 90))
    reserved = draw(st.lists(kept, max_size=2)) if reserves else []
    rule = draw(st.sampled_from(sorted(RULES)))
    demand = some_demand(Random(draw(SEEDS)))
    return snapshot(nodes, *jobs, seed=draw(st.integers(0, 3)), reserves=tuple(reserved), rule=rule, demand=demand)
