"""The slow way to the same answers: try every set of cards on every node and ask the checker. Shares no code with
the engine's search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from ledger.vocabulary import AskForm, Distance, Form, Span
from scheduler.engine.check import check_plan, machine
from scheduler.engine.hardware import hardware_of
from scheduler.engine.types import (
    Ask,
    CardView,
    JobView,
    MemberPlan,
    NodeView,
    Placement,
    Plan,
    SharePlan,
    Snapshot,
)

Pieces = tuple[tuple[int, int], ...]
PLACES: dict[Distance, Callable[[NodeView], tuple[str, ...]]] = {
    Distance.SAME_LEAF: lambda view: (view.site, view.room, view.leaf),
    Distance.SAME_RACK: lambda view: (view.site, view.room, view.rack),
    Distance.SAME_ROOM: lambda view: (view.site, view.room),
    Distance.SAME_SITE: lambda view: (view.site,),
}


def after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot as the book would show it once the plan is carried out, without jobs."""
    nodes = {view.id: view for view in snapshot.nodes}
    for placement in plan.placements:
        for member in placement.members:
            nodes[member.node_id] = _with_member(nodes[member.node_id], member)
    return replace(snapshot, nodes=tuple(nodes.values()), jobs=())


def _with_member(view: NodeView, member: MemberPlan) -> NodeView:
    shares = {share.card_id: share for share in member.shares}
    cards = tuple(_with_share(card, shares.get(card.id)) for card in view.cards)
    return replace(
        view,
        used_form=member.form,
        allocations=view.allocations + 1,
        cpu_milli_used=view.cpu_milli_used + member.cpu_milli,
        host_memory_mib_used=view.host_memory_mib_used + member.host_memory_mib,
        cards=cards,
    )


def _with_share(card: CardView, share: SharePlan | None) -> CardView:
    if share is None:
        return card
    busy = tuple(sorted(card.busy + share.memory))
    return replace(card, busy=busy, compute_busy=tuple(sorted(card.compute_busy + share.compute)))


def emptied(snapshot: Snapshot) -> Snapshot:
    """The best state this fleet could ever be in: nothing used, held or down, every zone open to every form.
    Which zone a node is in stays."""
    nodes = tuple(
        replace(
            view,
            up=True,
            held=False,
            zone_forms=frozenset(Form),
            used_form=None,
            allocations=0,
            cpu_milli_used=0,
            host_memory_mib_used=0,
            cards=tuple(replace(card, held=False, alone=False, busy=(), compute_busy=()) for card in view.cards),
        )
        for view in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes, reserves=(), jobs=())


def placeable(snapshot: Snapshot, job: JobView, number: int) -> bool:
    """Whether this ask of the job could be placed now, counting neither its waiting time nor the quota.

    Gangs only without reserves: their members are then independent of each other.
    """
    ask = replace(job.asks[number], after_s=0)
    plain = {"over_quota": False, "no_room": frozenset(), "submitted_at": snapshot.at, "like": None}
    alone = replace(job, asks=(replace(ask, nodes=1),), **plain)
    if ask.nodes > len(snapshot.nodes):
        return False
    forms = list(Form) if ask.form is AskForm.AUTO else [Form(ask.form.value)]
    if ask.nodes > 1 and snapshot.reserves:
        raise ValueError("gangs are only tried without reserves")
    for form in forms:
        views = [_for_gangs(view) if ask.nodes > 1 else view for view in snapshot.nodes]
        able = [view for view in views if _fits(snapshot, alone, view, form)]
        if any(_allowed(chosen, job) for chosen in combinations(able, ask.nodes)):
            return True
    return False


def _for_gangs(view: NodeView) -> NodeView:
    return replace(view, cards=tuple(replace(card, held=card.held or card.alone) for card in view.cards))


def together(views: Sequence[NodeView]) -> Distance | None:
    """The nearest level that all of them share."""
    return next((distance for distance in PLACES if _one_place(views, distance)), None)


def nearest(snapshot: Snapshot, job: JobView) -> Distance | None:
    """How near to each other the members of the job's first ask, in its one form, could stand at best."""
    ask = job.asks[0]
    alone = replace(job, asks=(replace(ask, nodes=1),))
    able = [view for view in snapshot.nodes if _fits(snapshot, alone, view, Form(ask.form.value))]
    found = [together(chosen) for chosen in combinations(able, ask.nodes) if _allowed(chosen, job)]
    return next((distance for distance in PLACES if distance in found), None)


def _one_place(views: Sequence[NodeView], distance: Distance) -> bool:
    places = {PLACES[distance](view) for view in views}
    return len(places) == 1 and all(name for *_, name in places)


def _allowed(views: Sequence[NodeView], job: JobView) -> bool:
    """Whether the members may stand on these nodes, each of which may take one."""
    if job.like is not None:
        near = together(views)
        span = Span.NODE if len(views) == 1 else Span.APART if near is None else Span(near.removeprefix("same_"))
        as_wanted = (len(views), span) == (job.like.nodes, job.like.span)
        return as_wanted and {hardware_of(view).code for view in views} == {job.like.hardware}
    if job.reproducible and len({machine(view) for view in views}) > 1:
        return False
    return len(views) == 1 or job.distance not in PLACES or _one_place(views, job.distance)


def _fits(snapshot: Snapshot, job: JobView, view: NodeView, form: Form) -> bool:
    around = snapshot.nodes if snapshot.reserves else (view,)  # other nodes matter to reserves alone
    trial = replace(snapshot, jobs=(job,), nodes=around)
    for member in _members(job.asks[0], job, view, form):
        plan = Plan(snapshot.rule, (Placement(job.id, 0, (member,)),), ())
        if not check_plan(trial, plan):
            return True
    return False


def _members(ask: Ask, job: JobView, view: NodeView, form: Form) -> Iterator[MemberPlan]:
    size = len(view.cards) if form is Form.WHOLE else ask.cards_per_node
    for cards in combinations(view.cards, size):
        shares = [_share(ask, card, form) for card in cards]
        if all(share is not None for share in shares):
            is_whole = form is Form.WHOLE
            yield MemberPlan(
                view.id,
                form,
                view.managers.get(form.value, ""),
                view.cpu_milli if is_whole else job.cpu_milli,
                view.host_memory_mib if is_whole else job.host_memory_mib,
                tuple(share for share in shares if share is not None),
            )


def _share(ask: Ask, card: CardView, form: Form) -> SharePlan | None:
    if form is Form.CONTAINER:
        memory = _units(card.busy, card.memory_mib, ask.memory_mib or card.memory_mib)
        compute = _units(card.compute_busy, 1000, ask.compute_milli)
    else:
        memory, compute = ((0, card.memory_mib),), ((0, 1000),)
    if memory is None or compute is None:
        return None
    return SharePlan(card.id, card.seat_id, card.block_id, memory, compute)


def _units(busy: Pieces, size: int, wanted: int) -> Pieces | None:
    """The lowest free units, one by one."""
    if not busy:
        return None if wanted > size else ((0, wanted),) if wanted else ()
    taken = {n for lo, hi in busy for n in range(lo, hi)}
    free = [n for n in range(size) if n not in taken][:wanted]
    if len(free) < wanted:
        return None
    given = set(free)
    starts = [n for n in free if n - 1 not in given]
    ends = [n + 1 for n in free if n + 1 not in given]
    return tuple(zip(starts, ends, strict=True))
