"""What the engine would do with a place: a made-up ask that the place is offered to just before a drill, given again to
the engine on the real snapshot while the place is out. Reads only; nothing is ever placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ledger.models import Allocation, CardShare, Job
from ledger.vocabulary import AskForm, Distance, Interconnect, Refusal
from scheduler import snapshot
from scheduler.drill_rows import Drill
from scheduler.engine.fleet import Fleet
from scheduler.engine.plan import Desk
from scheduler.engine.types import DEFAULT_RULE, Ask, CardView, JobView, NodeView, Placement, Waiting
from scheduler.possible import fleet_lock

SEED: Final = 1
HELD: Final = (Refusal.NODE_HELD, Refusal.CARD_HELD)
MOST_JOBS: Final = 50  # that were placed since the hold and are looked at


@dataclass(frozen=True, slots=True)
class Found:
    """What the probe gets now. `avoids`: the place is refused because it is held, and nothing of it is given."""

    avoids: bool
    told: str


def offer(drill: Drill) -> dict[str, Any] | None:
    """An ask that the place is given for now, as data; None when nothing can be placed there anyway."""
    view = _view(drill)
    if view is None:
        return None
    for ask in _asks(view, drill.card_id):
        if isinstance(_decide(_narrowed(view, drill.card_id, ask), _job(drill, ask)), Placement):
            return {
                "form": str(ask.form),
                "cards": ask.cards_per_node,
                "memory_mib": ask.memory_mib,
                "model": ask.model,
            }
    return None


def look(drill: Drill) -> Found | None:
    """The same ask again: of the place alone, and of the whole fleet. None when the place is not in the fleet."""
    ask = _ask(drill.probe or {})
    job = _job(drill, ask)
    with fleet_lock:
        views = snapshot.node_views()
        view = next((one for one in views if one.id == drill.node_id), None)
        if view is None:
            return None
        there = _decide(_narrowed(view, drill.card_id, ask), job)
        desk = Desk(snapshot.fleet_of(views), (), at=job.submitted_at, seed=SEED, rule=DEFAULT_RULE)
        anywhere = desk.decide(job)
    refused = isinstance(there, Waiting) and any(why in HELD for counts in there.by_ask for why in counts)
    return Found(refused and not _takes(anywhere, drill), _told(anywhere, views))


def real_elsewhere(drill: Drill) -> Allocation | None:
    """The first real placement since the hold, of a job that the place could have taken, on other hardware."""
    view = _view(drill)
    if view is None or drill.held_at is None:
        return None
    free = _freed(view, drill.card_id)
    placed = Allocation.objects.filter(period__startswith__gt=drill.held_at, node__simulated=drill.simulated)
    for allocation in placed.select_related("attempt__job", "node").order_by("pk")[:MOST_JOBS]:
        if not _on_place(allocation, drill) and _could(free, allocation.attempt.job):
            return allocation
    return None


def broken(drill: Drill) -> int:
    """Placements on the place since its hold: there can be none."""
    if drill.held_at is None:
        return 0
    since = {"period__startswith__gt": drill.held_at}
    if drill.returned_at is not None:
        since["period__startswith__lt"] = drill.returned_at
    if drill.card_id is not None:
        return CardShare.objects.filter(card=drill.card_id, **since).count()
    return Allocation.objects.filter(node=drill.node_id, **since).count()


# -- inside ------------------------------------------------------------------------------------------------------------


def _view(drill: Drill) -> NodeView | None:
    with fleet_lock:
        return next((view for view in snapshot.node_views() if view.id == drill.node_id), None)


def _asks(view: NodeView, card_id: int | None) -> Iterator[Ask]:
    """From the smallest that the place can be offered to."""
    cards = [card for card in view.cards if card_id in (None, card.id)]
    for card in sorted(cards, key=lambda one: (sum(hi - lo for lo, hi in one.busy), one.slot))[:1]:
        free = card.memory_mib - sum(hi - lo for lo, hi in card.busy)
        if free > 0:
            yield Ask(AskForm.CONTAINER, memory_mib=min(free, card.memory_mib), model=card.model)
        if card.block_id is not None:
            size = sum(one.block_id == card.block_id for one in view.cards)
            yield Ask(AskForm.BLOCK, cards_per_node=size, model=card.model)
    yield Ask(AskForm.WHOLE, cards_per_node=0)


def _ask(stored: Mapping[str, Any]) -> Ask:
    return Ask(
        AskForm(stored["form"]),
        cards_per_node=stored["cards"],
        memory_mib=stored["memory_mib"],
        model=stored["model"],
    )


def _job(drill: Drill, ask: Ask) -> JobView:
    return JobView(
        id=0,
        project_id=0,
        asks=(ask,),
        cpu_milli=0,
        host_memory_mib=0,
        interconnect=Interconnect.ANY,
        distance=Distance.ANY,
        labels=frozenset(),
        priority=0,
        submitted_at=drill.planned_at.timestamp(),
        simulated=drill.simulated,
        key_work=True,
    )


def _narrowed(view: NodeView, card_id: int | None, ask: Ask) -> NodeView:
    """The node with nothing but what the drill is about."""
    if card_id is None or ask.form is AskForm.WHOLE:
        return view
    block = next((card.block_id for card in view.cards if card.id == card_id), None)
    of_block = ask.form is AskForm.BLOCK and block is not None
    cards = tuple(card for card in view.cards if card.id == card_id or (of_block and card.block_id == block))
    kept = {card.id for card in cards}
    return replace(view, cards=cards, links=tuple(link for link in view.links if {link[0], link[1]} <= kept))


def _decide(view: NodeView, job: JobView) -> Placement | Waiting:
    return Desk(Fleet([view]), (), at=job.submitted_at, seed=SEED, rule=DEFAULT_RULE).decide(job)


def _takes(decided: Placement | Waiting, drill: Drill) -> bool:
    members = decided.members if isinstance(decided, Placement) else ()
    here = [member for member in members if member.node_id == drill.node_id]
    return any(drill.card_id in (None, share.card_id) for member in here for share in member.shares)


def _told(decided: Placement | Waiting, views: tuple[NodeView, ...]) -> str:
    if isinstance(decided, Placement):
        names = {view.id: view.hostname for view in views}
        return ", ".join(names[member.node_id] for member in decided.members)
    counts = decided.by_ask[0] if decided.by_ask else {}
    return ", ".join(f"{why}: {n}" for why, n in sorted(counts.items(), key=lambda item: -item[1])[:3])


def _freed(view: NodeView, card_id: int | None) -> NodeView:
    """As the place would be if the drill did not hold it."""

    def free(card: CardView) -> CardView:
        return replace(card, held=False) if card.id == card_id else card

    return replace(view, held=view.held and card_id is not None, cards=tuple(free(card) for card in view.cards))


def _could(view: NodeView, job: Job) -> bool:
    asked = replace(snapshot.job_view(job), id=job.pk)
    return isinstance(_decide(view, replace(asked, no_room=frozenset(), over_quota=False)), Placement)


def _on_place(allocation: Allocation, drill: Drill) -> bool:
    if allocation.node_id != drill.node_id:
        return False
    return drill.card_id is None or allocation.shares.filter(card=drill.card_id).exists()
