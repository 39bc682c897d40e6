"""An independent reading of all rules: replays a plan on plain dictionaries and lists what it breaks.

Slow and straightforward on purpose. Shares no code with the engine, so that the two can be compared, but for the names
of classes of hardware; used by tests and when a plan is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ledger.vocabulary import AskForm, Form, Interconnect, Span
from scheduler.engine.hardware import hardware_of
from scheduler.engine.queueing import POLICIES
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

ORDER: Final = (Interconnect.ANY, Interconnect.PCIE, Interconnect.NVLINK)


@dataclass(slots=True)
class _Node:
    view: NodeView
    form: Form | None
    allocations: int
    cpu: int
    host_memory: int
    memory: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    compute: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    cards: dict[int, CardView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Case:
    job: JobView
    ask: Ask
    member: MemberPlan
    node: _Node

    @property
    def view(self) -> NodeView:
        return self.node.view


def check_plan(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Everything in the plan that breaks a rule, in words; empty when it is right."""
    nodes = {view.id: _open(view) for view in snapshot.nodes}
    jobs = {job.id: job for job in snapshot.jobs}
    problems = list(_check_jobs(snapshot, plan))
    for placement in plan.placements:
        job = jobs.get(placement.job_id)
        if job is None:
            continue
        for problem in _check_placement(snapshot, nodes, job, placement):
            problems.append(f"job {job.id}: {problem}")
    return problems


def _open(view: NodeView) -> _Node:
    return _Node(
        view=view,
        form=view.used_form,
        allocations=view.allocations,
        cpu=view.cpu_milli_used,
        host_memory=view.host_memory_mib_used,
        memory={card.id: list(card.busy) for card in view.cards},
        compute={card.id: list(card.compute_busy) for card in view.cards},
        cards={card.id: card for card in view.cards},
    )


def _queue(snapshot: Snapshot) -> list[int]:
    """The jobs in the order of the policy (queueing.py), worked out by its words: priority; those that have waited too
    long, by submission; the others by submission and work."""
    policy = POLICIES[snapshot.policy]
    card = max((card.memory_mib for node in snapshot.nodes for card in node.cards), default=1)
    width = max((len(node.cards) for node in snapshot.nodes), default=0)

    def turn(job: JobView) -> tuple[int, int, float, float, int]:
        if snapshot.at - job.submitted_at >= policy.bound_s:
            return -job.priority, 0, job.submitted_at, job.submitted_at, job.id
        ask = job.asks[0]
        cards: float = ask.nodes * ask.cards_per_node
        if ask.form is AskForm.WHOLE:
            cards = ask.nodes * max(ask.cards_per_node, width, 1)
        elif ask.form is AskForm.CONTAINER and ask.memory_mib:
            cards *= min(ask.memory_mib / card, 1.0)
        at = job.submitted_at + policy.patience * (cards * job.expected_s)
        return -job.priority, 1, at, job.submitted_at, job.id

    return [job.id for job in sorted(snapshot.jobs, key=turn)]


def _check_jobs(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    decided = [p.job_id for p in plan.placements] + [w.job_id for w in plan.waiting]
    if sorted(decided) != sorted(job.id for job in snapshot.jobs):
        yield "not every job is decided exactly once"
    queue = _queue(snapshot)
    placed = {p.job_id for p in plan.placements}
    if [job_id for job_id in queue if job_id in placed] != [p.job_id for p in plan.placements]:
        yield "placements are not in queue order"
    if plan.order and list(plan.order) != queue:
        yield "the jobs are not in queue order"
    asks = {job.id: len(job.asks) for job in snapshot.jobs}
    for waiting in plan.waiting:
        if len(waiting.by_ask) != asks.get(waiting.job_id):
            yield f"job {waiting.job_id}: refusals not for every ask"
        for counts in waiting.by_ask:
            if sum(counts.values()) != len(snapshot.nodes):
                yield f"job {waiting.job_id}: refusals don't add up to the number of nodes"


def _check_placement(snapshot: Snapshot, nodes: dict[int, _Node], job: JobView, placement: Placement) -> Iterator[str]:
    if not 0 <= placement.ask_index < len(job.asks):
        yield "no such ask"
        return
    ask = job.asks[placement.ask_index]
    yield from _check_gang(snapshot, nodes, job, ask, placement)
    for member in placement.members:
        node = nodes.get(member.node_id)
        if node is None:
            yield f"node {member.node_id} is not in the snapshot"
            continue
        case = _Case(job, ask, member, node)
        for rule in RULES:
            for problem in rule(case):
                yield f"node {member.node_id}: {problem}"
        _book(case)
    if not job.key_work:
        yield from _check_headroom(snapshot, nodes, placement)


def _check_gang(
    snapshot: Snapshot, nodes: dict[int, _Node], job: JobView, ask: Ask, placement: Placement
) -> Iterator[str]:
    shut = {model for number, model in job.no_room if number == placement.ask_index}
    if job.over_quota or "" in shut:
        yield "over quota"
    cards = (card for one in placement.members if one.node_id in nodes for card in nodes[one.node_id].cards.values())
    if shut & {card.model for card in cards}:
        yield "over quota for cards of that model"
    if snapshot.at < job.submitted_at + ask.after_s:
        yield "this ask does not count yet"
    if len(placement.members) != ask.nodes:
        yield f"{len(placement.members)} members instead of {ask.nodes}"
    if len({member.node_id for member in placement.members}) != len(placement.members):
        yield "two members on one node"
    if len({member.form for member in placement.members}) > 1:
        yield "members in different forms"
    views = [nodes[m.node_id].view for m in placement.members if m.node_id in nodes]
    if ask.nodes > 1 and job.like is None:
        yield from _check_distance(job, views)
    if job.reproducible:
        yield from _check_alike(job, views, placement)


def _check_distance(job: JobView, views: list[NodeView]) -> Iterator[str]:
    level, _, required = job.distance.partition("same_")
    if level:
        return
    names = {getattr(view, required) for view in views}
    rooms, sites = {(view.site, view.room) for view in views}, {view.site for view in views}
    apart = len(sites) > 1 if required == "site" else len(rooms) > 1  # a rack's or leaf's name counts within its room
    if apart or len(names) > 1 or "" in names:
        yield f"members are not on one {required}"


def _check_alike(job: JobView, views: list[NodeView], placement: Placement) -> Iterator[str]:
    if any(member.form is not Form.WHOLE for member in placement.members):
        yield "reproducible, but not on whole machines"
    if len({machine(view) for view in views}) > 1:
        yield "reproducible, but on machines of several kinds"
    like = job.like
    if like is None:
        return
    if {hardware_of(view).code for view in views} != {like.hardware} or len(views) != like.nodes:
        yield "not the machines of the job that it is to be like"
    levels: dict[Span, list[tuple[str, ...]]] = {
        Span.LEAF: [(view.site, view.room, view.leaf) for view in views],
        Span.RACK: [(view.site, view.room, view.rack) for view in views],
        Span.ROOM: [(view.site, view.room) for view in views],
        Span.SITE: [(view.site,) for view in views],
    }
    shared = [span for span, places in levels.items() if len(set(places)) == 1 and places[0][-1]]
    if [Span.NODE, *shared, Span.APART][0 if len(views) == 1 else 1] is not like.span:
        yield "not as near to each other as those of the job that it is to be like"


def machine(view: NodeView) -> tuple[object, ...]:
    """What must be equal on machines of one kind."""
    seats = sorted(view.cards, key=lambda card: (card.slot, card.id))
    slots = {card.id: n for n, card in enumerate(seats)}
    speeds: dict[frozenset[int], int] = {}
    for a, b, gbps in view.links:
        pair = frozenset({slots[a], slots[b]})
        speeds[pair] = max(gbps, speeds.get(pair, 0))
    links = frozenset((pair, gbps) for pair, gbps in speeds.items() if gbps)
    cards = tuple((card.model, card.memory_mib) for card in seats)
    return cards, links, view.cpu_milli, view.host_memory_mib, view.interconnect


def _rule_node(case: _Case) -> Iterator[str]:
    view, job = case.view, case.job
    if view.simulated != job.simulated:
        yield "real and simulated mixed"
    if not view.up:
        yield "the node is down"
    if view.held:
        yield "the node is held"
    if ORDER.index(view.interconnect) < ORDER.index(job.interconnect):
        yield "the interconnect is too weak"
    if not job.labels <= view.labels:
        yield "labels are missing"
    if job.zones and view.zone_id not in job.zones:
        yield "the zone is not open to it"


def _rule_form(case: _Case) -> Iterator[str]:
    form = case.member.form
    if case.ask.form is not AskForm.AUTO and case.ask.form.value != form.value:
        yield f"form {form} was not asked for"
    if form not in case.view.zone_forms:
        yield f"the zone does not take {form}"
    if not case.member.driver or case.view.managers.get(form) != case.member.driver:
        yield "not the driver of this form"
    if case.node.form is not None and case.node.form is not form:
        yield f"the node is in use as {case.node.form}"
    if form is Form.WHOLE and (case.node.form is not None or case.node.allocations):
        yield "a whole machine on a node in use"


def _rule_host(case: _Case) -> Iterator[str]:
    member, job, view = case.member, case.job, case.view
    wanted = (job.cpu_milli, job.host_memory_mib)
    if member.form is Form.WHOLE:
        if wanted[0] > view.cpu_milli or wanted[1] > view.host_memory_mib:
            yield "the machine is smaller than asked for"
        wanted = (view.cpu_milli, view.host_memory_mib)
    if (member.cpu_milli, member.host_memory_mib) != wanted:
        yield "CPU or host memory is not what was asked for"
    if case.node.cpu + member.cpu_milli > view.cpu_milli:
        yield "CPU is overbooked"
    if case.node.host_memory + member.host_memory_mib > view.host_memory_mib:
        yield "host memory is overbooked"


def _rule_shares(case: _Case) -> Iterator[str]:
    ids = [share.card_id for share in case.member.shares]
    if len(set(ids)) != len(ids):
        yield "a card is given twice"
    for share in case.member.shares:
        card = case.node.cards.get(share.card_id)
        if card is None:
            yield f"card {share.card_id} is not in this node"
            continue
        if (share.seat_id, share.block_id) != (card.seat_id, card.block_id):
            yield f"card {card.id}: wrong seat or block"
        if card.held:
            yield f"card {card.id} is held"
        if card.alone and (len(ids) > 1 or case.ask.nodes > 1 or case.member.form is not Form.CONTAINER):
            yield f"card {card.id} is only for work on itself"
        if case.ask.model and card.model != case.ask.model:
            yield f"card {card.id} is of another model"
        if not share.memory or not _lawful(share.memory, card.memory_mib, case.node.memory[card.id]):
            yield f"card {card.id}: memory is empty, outside the card or double-booked"
        if not _lawful(share.compute, 1000, case.node.compute[card.id]):
            yield f"card {card.id}: compute is outside the card or double-booked"


def _lawful(pieces: tuple[tuple[int, int], ...], size: int, busy: list[tuple[int, int]]) -> bool:
    ends = [end for piece in pieces for end in piece]
    if ends != sorted(ends) or any(lo >= hi for lo, hi in pieces) or (ends and (ends[0] < 0 or ends[-1] > size)):
        return False
    return all(hi <= lo2 or hi2 <= lo for lo, hi in pieces for lo2, hi2 in busy)


def _rule_amounts(case: _Case) -> Iterator[str]:
    ask, form, shares = case.ask, case.member.form, case.member.shares
    cards = [case.node.cards[s.card_id] for s in shares if s.card_id in case.node.cards]
    if form is Form.CONTAINER:
        yield from _check_container(ask, shares, case.node)
        return
    for share in shares:
        card = case.node.cards.get(share.card_id)
        if card and (share.memory != ((0, card.memory_mib),) or share.compute != ((0, 1000),)):
            yield f"card {card.id} is not given in full"
    large = sum(1 for card in cards if card.memory_mib >= ask.memory_mib)
    if form is Form.WHOLE:
        if {card.id for card in cards} != set(case.node.cards):
            yield "not every card of the machine"
        if large < max(ask.cards_per_node, 1 if ask.memory_mib else 0):
            yield "the machine has too few cards of that size"
        if ask.model and not cards:
            yield "the machine has no card of that model"
        return
    if len(shares) != ask.cards_per_node or large != len(shares) or not shares:
        yield "not the cards that were asked for"
    given = {card.id for card in cards}
    blocks = {card.block_id for card in cards}
    if None in blocks or given != {card.id for card in case.node.cards.values() if card.block_id in blocks}:
        yield "not whole blocks"


def _check_container(ask: Ask, shares: tuple[SharePlan, ...], node: _Node) -> Iterator[str]:
    if len(shares) != ask.cards_per_node:
        yield "not the number of cards that was asked for"
    for share in shares:
        card = node.cards.get(share.card_id)
        if card is None:
            continue
        if sum(hi - lo for lo, hi in share.memory) != (ask.memory_mib or card.memory_mib):
            yield f"card {card.id}: not the memory that was asked for"
        if sum(hi - lo for lo, hi in share.compute) != ask.compute_milli:
            yield f"card {card.id}: not the compute that was asked for"
        if not ask.memory_mib and (node.memory[card.id] or node.compute[card.id]):
            yield f"card {card.id}: a full card must have no other tenant"


RULES: Final[tuple[Callable[[_Case], Iterator[str]], ...]] = (
    _rule_node,
    _rule_form,
    _rule_host,
    _rule_shares,
    _rule_amounts,
)


def _book(case: _Case) -> None:
    node, member = case.node, case.member
    node.form = member.form
    node.allocations += 1
    node.cpu += member.cpu_milli
    node.host_memory += member.host_memory_mib
    for share in member.shares:
        if share.card_id in node.cards:
            node.memory[share.card_id].extend(share.memory)
            node.compute[share.card_id].extend(share.compute)


def _check_headroom(snapshot: Snapshot, nodes: dict[int, _Node], placement: Placement) -> Iterator[str]:
    taken = {
        (nodes[m.node_id].view.zone_id, nodes[m.node_id].cards[s.card_id].model, nodes[m.node_id].view.simulated)
        for m in placement.members
        for s in m.shares
        if m.node_id in nodes and s.card_id in nodes[m.node_id].cards
    }
    for reserve in snapshot.reserves:
        for zone, model, simulated in taken:
            if (zone, model) == (reserve.zone_id, reserve.model):
                free = _free(nodes, reserve.zone_id, reserve.model, simulated)
                if free < reserve.mib:
                    yield f"only {free} MiB of {reserve.model} left in zone {zone}, {reserve.mib} are reserved"


def _free(nodes: dict[int, _Node], zone: int, model: str, simulated: bool) -> int:
    return sum(
        card.memory_mib - sum(hi - lo for lo, hi in node.memory[card.id])
        for node in nodes.values()
        if node.view.zone_id == zone and node.view.simulated == simulated and node.view.up and not node.view.held
        for card in node.cards.values()
        if card.model == model and not card.held
    )
