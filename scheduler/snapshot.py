"""Database → engine.Snapshot. What the nodes are and hold is kept in the process and corrected by what changed since
the last look (scheduler.changes); it is read wholly at the start and when that can't be told, and then counted. Holds
begin and end by time alone: the open ones are read at each look."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from django.db import connection

from ledger.clock import database_now
from ledger.fields import Interval
from ledger.models import HeadroomReserve, InventoryVersion, Job
from ledger.vocabulary import AskForm, Distance, Form, Interconnect, JobKind, Span
from scheduler import slices, standings, warm, workload
from scheduler.changes import Stand, between, stand
from scheduler.durations import Durations, kin
from scheduler.engine.demand import workloads
from scheduler.engine.ends import StayTable
from scheduler.engine.fleet import Fleet
from scheduler.engine.types import Ask, Claim, JobView, Likeness, NodeView, Reserve, Snapshot, Stay
from scheduler.live import Live, Share, Use
from scheduler.nodes import changed_nodes, read_nodes
from scheduler.stays import Stays
from scheduler.workload import Learnt

QUEUE_LIMIT = 10_000  # jobs looked at in one tick
NOTHING: Mapping[int, Any] = MappingProxyType({})
Marks = frozenset[tuple[int | None, bool]]  # of a node: held cards, None for itself, and whether by their links alone
Held = dict[int, Marks]
HOLDS = """
SELECT coalesce(h.node_id, s.node_id), h.card_id, h.kind = 'link' FROM ledger_hold h
LEFT JOIN ledger_cardseat s ON s.card_id = h.card_id AND upper_inf(s.period)
WHERE h.period @> clock_timestamp() AND coalesce(h.node_id, s.node_id) IS NOT NULL
"""


@dataclass
class Inventory:
    """Node views without any work on them, by node id, and what is kept with them."""

    empty: dict[int, NodeView] = field(default_factory=dict)  # another object whenever one of them is another
    version: int = -1  # moved by what carries no transaction number: zones, cards, links
    stand: Stand | None = None
    reloads: int = 0
    live: Live = field(default_factory=Live)
    held: Held = field(default_factory=dict)
    views: dict[int, NodeView] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)  # nodes whose view is to be made anew
    fleet: Fleet | None = None  # the engine's arrays of the same views, kept between ticks
    stale: set[int] = field(default_factory=set)  # nodes whose view is newer than the fleet's
    learnt: Learnt = field(default_factory=Learnt)  # the workload that the fleet is priced by
    durations: Durations = field(default_factory=Durations)
    stays: Stays = field(default_factory=Stays)
    sizes: tuple[dict[int, NodeView], dict[str, int]] | None = None  # card_sizes, and of which nodes


_kept = Inventory()


def forget() -> None:
    """Drop what is kept (tests, a new database)."""
    _kept.stand = _kept.live.stand = _kept.stays.stand = _kept.durations.read_at = None
    warm.forget()
    standings.forget()


def reloads() -> int:
    """How often this process has read something wholly."""
    return _kept.reloads + _kept.live.reloads


def inventory() -> Inventory:
    """What is kept, its nodes as they are now; their work only as of the last node_views()."""
    version = InventoryVersion.objects.values_list("version", flat=True).get(pk=1)
    now = stand("ledger_node")
    window = between(_kept.stand, now) if version == _kept.version else None
    if window is None:
        _kept.empty = read_nodes()
        _kept.views, _kept.fleet, _kept.stale, _kept.dirty = {}, None, set(), set(_kept.empty)
        _kept.reloads += 1
    else:
        _replace(changed_nodes(window))
    _kept.version, _kept.stand = version, now
    learnt = workload.newest()
    if learnt.version != _kept.learnt.version:
        _kept.learnt, _kept.fleet = learnt, None
    return _kept


def _replace(changed: set[int]) -> None:
    """Read these nodes anew; those that have left the fleet go."""
    if not changed:
        return
    found = read_nodes(changed)
    before = {node_id: _kept.empty[node_id] for node_id in changed if node_id in _kept.empty}
    gone = before.keys() - found.keys()
    if found == before:
        return
    _kept.empty = {node_id: view for node_id, view in _kept.empty.items() if node_id not in gone} | found
    _kept.dirty |= {node_id for node_id, view in found.items() if before.get(node_id) != view}
    if gone:
        _kept.views = {node_id: view for node_id, view in _kept.views.items() if node_id not in gone}
        _kept.fleet = None


def node_views() -> tuple[NodeView, ...]:
    """Every node that has not left the fleet, with what is taken and held on it now."""
    kept = inventory()
    kept.dirty |= kept.live.follow()
    held = _holds()
    kept.dirty |= {node_id for node_id in kept.held.keys() | held.keys() if kept.held.get(node_id) != held.get(node_id)}
    kept.held = held
    for node_id in kept.dirty & kept.empty.keys():
        uses, shares = kept.live.on(node_id)
        kept.views[node_id] = filled(kept.empty[node_id], uses, by_card(shares), held.get(node_id, frozenset()))
        kept.stale.add(node_id)
    kept.dirty = set()
    return tuple(kept.views[node_id] for node_id in kept.empty)


def _holds() -> Held:
    found: dict[int, set[tuple[int | None, bool]]] = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(HOLDS)
        for node_id, card_id, links in cursor.fetchall():
            found[node_id].add((card_id, links))
    return {node_id: frozenset(marks) for node_id, marks in found.items()}


def fleet_of(nodes: Sequence[NodeView]) -> Fleet:
    """The engine's fleet of the views that node_views() just gave, with only the changed nodes filled anew."""
    if _kept.fleet is None:
        _kept.fleet = Fleet(nodes, workloads(_kept.learnt.demand))
    elif _kept.stale:
        _kept.fleet.replace_nodes([_kept.views[node_id] for node_id in sorted(_kept.stale)])
    _kept.stale = set()
    return _kept.fleet


def card_sizes() -> Mapping[str, int]:
    """By model, how many MiB the largest of its cards has, as of the last node_views(); empty before the first."""
    known, empty = _kept.sizes, _kept.empty
    if known is None or known[0] is not empty:
        found: dict[str, int] = {}
        for view in empty.values():
            for card in view.cards:
                found[card.model] = max(card.memory_mib, found.get(card.model, 0))
        known = _kept.sizes = empty, found
    return known[1]


def model_on(node_ids: Iterable[int]) -> str:
    """Of the cards on these nodes; "" where they are not all of one model."""
    empty = _kept.empty
    models = {card.model for pk in node_ids if pk in empty for card in empty[pk].cards}
    return models.pop() if len(models) == 1 else ""


def live_shares() -> list[Share]:
    """Every share that node_views() last knew of."""
    return [share for shares in _kept.live.shares.values() for share in shares]


def stays_at(at: float) -> list[Stay]:
    """What is on the nodes that node_views() just gave, and when it is expected to be gone."""
    _kept.durations.follow()
    _kept.stays.read()
    return _kept.stays.all(_kept.live, _kept.durations, at)


def stays_later(fleet: Fleet, at: float) -> Callable[[], StayTable]:
    """The same for the fleet that fleet_of() just gave, to be worked out when it is asked for: what that takes of the
    database is read now."""
    _kept.durations.follow()
    _kept.stays.read()
    return partial(_kept.stays.table_of, fleet, _kept.live, _kept.durations, at)


def projects_on(nodes: Collection[int]) -> dict[int, int]:
    """By job that stays on one of these nodes: its project."""
    return {fact.job_id: fact.project_id for fact in _kept.stays.facts.values() if fact.node_id in nodes}


Taken = dict[int, tuple[list[Interval], list[Interval]]]


def by_card(shares: Iterable[Share]) -> Taken:
    taken: Taken = defaultdict(lambda: ([], []))
    for _, card_id, memory, compute in shares:
        taken[card_id][0].extend(memory)
        taken[card_id][1].extend(compute)
    return taken


def filled(
    view: NodeView,
    live: Mapping[int, Use],
    taken: Taken,
    marks: Marks,
) -> NodeView:
    cards = tuple(
        replace(
            card,
            held=(card.id, False) in marks,
            alone=(card.id, True) in marks,
            busy=tuple(sorted(taken[card.id][0])) if card.id in taken else (),
            compute_busy=tuple(sorted(taken[card.id][1])) if card.id in taken else (),
        )
        for card in view.cards
    )
    forms = [form for form, _, _ in live.values()]
    return replace(
        view,
        held=(None, False) in marks,
        cards=cards,
        used_form=Form(forms[0]) if forms else None,
        allocations=len(live),
        cpu_milli_used=sum(cpu for _, cpu, _ in live.values()),
        host_memory_mib_used=sum(memory for _, _, memory in live.values()),
    )


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits, as the engine sees it: read without its model, of which long queues would be slow."""

    pk: int
    project_id: int
    view: JobView


NoRoom = Collection[tuple[int, str]]  # asks by number and models of card, as JobView.shut tells them


def job_view(job: Job | QueuedJob, no_room: NoRoom = ()) -> JobView:
    view = job.view if isinstance(job, QueuedJob) else _view(job)
    if not no_room:
        return view
    if all((number, "") in no_room for number in range(len(view.asks))):
        return replace(view, over_quota=True)
    return replace(view, no_room=frozenset(no_room))


def _view(job: Job) -> JobView:
    first = job.asks[0] if job.asks else {}
    nodes, cards = first.get("nodes", 1), first.get("cards_per_node", 1)
    like = kin(job.simulated, job.by_id or 0, job.kind, job.name, nodes, cards)
    _kept.durations.follow()
    expected_s, surely_s = _kept.durations.expected(like, job.walltime_s)
    return JobView(
        id=job.pk,
        project_id=job.project_id,
        asks=tuple(_ask(ask) for ask in job.asks),
        cpu_milli=job.cpu_milli,
        host_memory_mib=job.host_memory_mib,
        interconnect=Interconnect(job.interconnect),
        distance=Distance(job.distance),
        labels=frozenset(job.labels),
        priority=job.priority,
        submitted_at=job.submitted_at.timestamp(),
        simulated=job.simulated,
        key_work=job.key_work,
        reproducible=job.reproducible,
        like=_like(job.like),
        warm=warm.warm_nodes([(job.data_paths, job.image)])[0],
        expected_s=expected_s,
        surely_s=surely_s,
        kind=JobKind(job.kind),
        zones=frozenset(job.zones or ()),
    )


# after what a job is like, in the order of JobView's fields
JOBS = """
SELECT j.by_id, j.kind, j.name, j.walltime_s, nullif(j.data_paths, '[]')::text, j.image, j.like::text, j.zones,
    j.id, j.project_id, j.asks::text, j.cpu_milli, j.host_memory_mib, j.interconnect, j.distance, j.labels::text,
    j.priority, extract(epoch FROM j.submitted_at)::float8, j.simulated, j.key_work, false, j.reproducible
FROM ledger_job j JOIN ledger_project p ON p.id = j.project_id
WHERE j.state = 'queued' AND j.held_at IS NULL AND p.state = 'active'
"""
# With those that cards are kept for, wherever they stand: a plan without them would give the cards away. By their keys
# before anything else is asked of them: the planner takes a queue to be as short as it once was, and would read it all.
CLAIMANTS = """claimant AS MATERIALIZED (SELECT * FROM ledger_job
    WHERE id = ANY (ARRAY(SELECT job_id FROM scheduler_preemption WHERE kept_until > clock_timestamp())))"""
EVERY = f"""({JOBS} AND j.id NOT IN (SELECT id FROM claimant) ORDER BY j.priority DESC, j.queued_at, j.id LIMIT %s)
UNION ALL {JOBS.replace("FROM ledger_job j", "FROM claimant j")}"""  # noqa: S608
QUEUED = f"WITH {CLAIMANTS} {EVERY}"
HEADS = f"""WITH {CLAIMANTS}, few AS MATERIALIZED (
    SELECT * FROM ledger_job WHERE id = ANY ((SELECT ledger_queue_heads(%s, %s))::bigint[])
) {EVERY.replace("FROM ledger_job j", "FROM few j")}"""  # noqa: S608
MOST_KINDS = 2_000


def queued_jobs(limit: int = QUEUE_LIMIT, heads: int | None = None) -> list[QueuedJob]:
    """Queued jobs that nobody holds back, of projects that take work: those that cards are kept for, and of each
    priority those that came first, or with `heads` the first so many of those that ask for the same in one project. In
    which order they are looked at is the engine's."""
    with connection.cursor() as cursor:
        cursor.execute(*((QUEUED, [limit]) if heads is None else (HEADS, [heads, MOST_KINDS, limit])))
        rows = cursor.fetchall()
    _kept.durations.follow()
    holding = warm.warm_nodes([(json.loads(paths) if paths else (), image) for _, _, _, _, paths, image, *_ in rows])
    return [_queued(row, warm_ids) for row, warm_ids in zip(rows, holding, strict=True)]


def _like(stored: Mapping[str, Any] | None) -> Likeness | None:
    return Likeness(stored["hardware"], stored["nodes"], Span(stored["span"])) if stored else None


def _queued(row: Sequence[Any], warm_ids: frozenset[int]) -> QueuedJob:
    who, kind, name, limit, _paths, _image, model, zones, *view = row
    pk, project_id, asks, cpu, memory, inside, apart, labels, priority, submitted_at, simulated, *rest = view
    wanted = _asks(asks)
    like = kin(simulated, who, kind, name, wanted[0].nodes, wanted[0].cards_per_node)
    expected = _kept.durations.expected(like, limit)
    wishes = Interconnect(inside), Distance(apart), _labels(labels)
    rest += (_like(model and json.loads(model)), warm_ids, *expected, JobKind(kind), frozenset(zones or ()))
    return QueuedJob(
        pk,
        project_id,
        JobView(pk, project_id, wanted, cpu, memory, *wishes, priority, submitted_at, simulated, *rest),
    )


def _ask(values: Mapping[str, Any]) -> Ask:
    """A slice is memory, compute and a model; what it was called is for people."""
    known = {name: value for name, value in values.items() if name != slices.FIELD}
    return Ask(**{**known, "form": AskForm(values["form"])})


@lru_cache(1_000)
def _asks(text: str) -> tuple[Ask, ...]:
    return tuple(_ask(ask) for ask in json.loads(text))


@lru_cache(1_000)
def _labels(text: str) -> frozenset[str]:
    return frozenset(json.loads(text))


def read(
    jobs: Iterable[Job | QueuedJob], no_room: Mapping[int, NoRoom] = NOTHING, claims: tuple[Claim, ...] | None = None
) -> Snapshot:
    """`no_room` by job, as quota.over_quota tells it, and `claims` if they are known already."""
    now = database_now()
    reserves = HeadroomReserve.objects.filter(period__contains=now)
    nodes = node_views()
    return Snapshot(
        at=now.timestamp(),
        seed=1,
        nodes=nodes,
        jobs=tuple(job_view(job, no_room.get(job.pk, ())) for job in jobs),
        reserves=tuple(Reserve(zone_id=r.zone_id, model=r.model, mib=r.mib) for r in reserves),
        demand=_kept.learnt.demand,
        workload=_kept.learnt.version,
        standings=standings.read(),
        claims=standings.claims() if claims is None else claims,
    )
