"""Whether any state of the fleet could ever serve a job: what stands in the way, and the nearest job that could run.

Goes by what nodes are and have, never by what is taken, held or down; reads the inventory alone.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ledger.models import Job, Zone
from ledger.vocabulary import AskForm, Distance, Form, Interconnect
from scheduler import slices, snapshot
from scheduler.engine.feasible import could_ever
from scheduler.engine.fleet import Fleet
from scheduler.engine.hardware import hardware_of
from scheduler.engine.near import REQUIRED
from scheduler.engine.plan import Desk
from scheduler.engine.shape import INTERCONNECT_RANK
from scheduler.engine.topology import place_keys
from scheduler.engine.types import DEFAULT_RULE, Ask, JobView, NodeView

AMOUNTS: Final = ("memory_mib", "cards_per_node", "cpu_milli", "host_memory_mib", "nodes")
SHARED: Final[dict[str, Any]] = {"reproducible": False, "like_job": None}  # what other forms than whole go with
fleet_lock = threading.Lock()  # what is kept of the fleet belongs to one thread at a time
_kept: tuple[Mapping[int, NodeView], Fleet] | None = None  # the inventory that it was made from, without any work


@dataclass(frozen=True, slots=True)
class Limit:
    """What the fleet has at most of something that the job wants more of. `what` names a field of the job."""

    what: str
    wanted: int | str
    nearest: int | str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Sooner:
    """A change of the first ask that would start at once: the fields that change and their values."""

    change: Mapping[str, Any]
    hostname: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """Why a job can never run here, and the smallest change of it that could; None when none was found."""

    limits: tuple[Limit, ...]
    nearest: Sooner | None


@dataclass(frozen=True, slots=True)
class Reach:
    """How many nodes could ever take a member of the job by one of its asks, and whether it could never run."""

    nodes: int
    never: bool


def reach(job: Job) -> Reach:
    """As `impossible` judges it."""
    view = replace(snapshot.job_view(job), id=job.pk or 0)
    with fleet_lock:
        fleet = _empty_fleet()
        desk = Desk(fleet, (), at=view.submitted_at, seed=1, rule=DEFAULT_RULE)
        found = [desk.answer(view, ask) for ask in view.asks]
        able = np.any([could_ever(verdict.codes) for verdict in found], axis=0)
        has_cards = any(node.cards for node in fleet.views if node.simulated == view.simulated)
    return Reach(int(able.sum()), has_cards and all(verdict.never for verdict in found))


def impossible(job: Job) -> Impossible | None:
    """None when some state of the fleet could serve one of the job's wishes, and while its world has no cards yet:
    nodes are registered first, and their agents report the cards."""
    view = replace(snapshot.job_view(job), id=job.pk or 0)
    with fleet_lock:
        fleet = _empty_fleet()
        nodes = [node for node in fleet.views if node.simulated == view.simulated]
        if not any(node.cards for node in nodes):
            return None
        desk = Desk(fleet, (), at=view.submitted_at, seed=1, rule=DEFAULT_RULE)
        if not all(desk.answer(view, ask).never for ask in view.asks):
            return None
        found = tuple(limits(nodes, view))
        nearest = _nearest(desk, view, found)
        return Impossible(found, nearest and replace(nearest, change=whole_change(job, nearest.change)))


def _empty_fleet() -> Fleet:
    global _kept
    empty = snapshot.inventory().empty  # another object for each version
    if _kept is None or _kept[0] is not empty:
        _kept = (empty, Fleet(empty.values()))
    return _kept[1]


def _nearest(desk: Desk, job: JobView, found: tuple[Limit, ...]) -> Sooner | None:
    """As much of everything as there is, if that can run; else the smallest single change that can."""
    clamped = {limit.what: limit.nearest for limit in found if limit.what in AMOUNTS}
    for change in (clamped, *variants(job)):
        changed = changed_by(job, change)
        verdict = desk.answer(changed, changed.asks[0])
        if change and not verdict.never:
            row = next((row for row, _ in verdict.members), None)
            return Sooner(change, "" if row is None else desk.fleet.views[row].hostname)
    return None


def limits(views: Iterable[NodeView], job: JobView) -> Iterator[Limit]:
    """What the fleet can't give to the first wish whatever happens on it."""
    ask = job.asks[0]
    world = [view for view in views if view.simulated == job.simulated]
    inside = [view for view in world if open_to(view, job)]
    nodes = inside or world
    if len(inside) < len(world):
        able = [view for view in world if _serves(view, job)]
        if sum(1 for view in able if open_to(view, job)) < ask.nodes <= len(able):
            yield _zones_limit(able, job)
            return
    fitting = [(card, view) for view in nodes for card in view.cards if ask.model in ("", card.model)]
    if ask.model and not fitting:
        models = sorted({card.model for view in nodes for card in view.cards})
        yield Limit("model", ask.model, ", ".join(models) or "—")
        return
    pieces: list[tuple[str, int, Iterable[tuple[int, str]]]] = [
        ("memory_mib", ask.memory_mib, ((c.memory_mib, f"{c.model} · {v.hostname}") for c, v in fitting)),
        ("cards_per_node", ask.cards_per_node, _cards_of(fitting)),
        ("cpu_milli", job.cpu_milli, ((v.cpu_milli, v.hostname) for v in nodes)),
        ("host_memory_mib", job.host_memory_mib, ((v.host_memory_mib, v.hostname) for v in nodes)),
    ]
    one_is_enough = True  # a single node could take a member
    for what, wanted, offers in pieces:
        most = max(offers, default=(0, ""))
        if wanted > most[0]:
            one_is_enough = False
            yield Limit(what, wanted, most[0], most[1])
    forms = {form for view in nodes for form in view.zone_forms}
    if ask.form != AskForm.AUTO and Form(ask.form) not in forms:
        one_is_enough = False
        yield Limit("form", str(ask.form), ", ".join(sorted(forms)) or "—")
    if one_is_enough:
        yield from _gang_limits([view for view in nodes if _serves(view, job)], job)


def open_to(view: NodeView, job: JobView) -> bool:
    """Whether no policy keeps the job out of the node's zone."""
    return not job.zones or view.zone_id in job.zones


def _zones_limit(able: Iterable[NodeView], job: JobView) -> Limit:
    """The zones that the job is kept in, and those that others stand in that could serve it."""
    others = {view.zone_id for view in able if not open_to(view, job)}
    titles = dict(Zone.objects.filter(pk__in=[*job.zones, *filter(None, others)]).values_list("pk", "title"))
    named = [", ".join(sorted(titles[pk] for pk in ids if pk in titles)) for ids in (job.zones, others)]
    return Limit("zones", named[0] or "—", named[1] or "—")


def _serves(view: NodeView, job: JobView) -> bool:
    """Whether the node is large enough for one member of the first wish."""
    ask = job.asks[0]
    cards = sum(1 for card in view.cards if ask.model in ("", card.model) and card.memory_mib >= ask.memory_mib)
    enough = cards >= ask.cards_per_node and view.cpu_milli >= job.cpu_milli
    linked = INTERCONNECT_RANK[view.interconnect] >= INTERCONNECT_RANK[job.interconnect]
    return enough and view.host_memory_mib >= job.host_memory_mib and linked and job.labels <= view.labels


def _gang_limits(able: list[NodeView], job: JobView) -> Iterator[Limit]:
    """Of a job for several nodes: too few of them, or too few in one place."""
    wanted = job.asks[0].nodes
    if not able:
        return
    if wanted > len(able):
        yield Limit("nodes", wanted, len(able))
        return
    if job.like is not None:
        most = sum(1 for view in able if hardware_of(view).code == job.like.hardware)
        yield Limit("like_job", wanted, most, str(job.like.span) if most >= wanted else "")
        return
    kinds = Counter(hardware_of(view).code for view in able) if job.reproducible else Counter({"": len(able)})
    if wanted > (most := max(kinds.values())):
        yield Limit("reproducible", wanted, most)
    elif job.distance in REQUIRED:
        places = Counter(key for view in able if (key := place_keys(view)[REQUIRED[job.distance]])[-1])
        place, most = max(places.items(), key=lambda item: (item[1], item[0]), default=(("",), 0))
        if wanted > most:
            yield Limit("distance", str(job.distance), most, place[-1])


def _cards_of(fitting: Iterable[tuple[Any, NodeView]]) -> Iterator[tuple[int, str]]:
    counts: dict[str, int] = defaultdict(int)
    for _, view in fitting:
        counts[view.hostname] += 1
    for hostname, count in counts.items():
        yield count, hostname


def variants(job: JobView) -> Iterator[dict[str, Any]]:
    """Changes worth trying, the smallest sacrifice first."""
    yield from _looser(job)
    yield from _smaller(job)


def _looser(job: JobView) -> Iterator[dict[str, Any]]:
    ask = job.asks[0]
    if job.like is not None:
        yield {"like_job": None}
    if job.interconnect is not Interconnect.ANY:
        yield {"interconnect": str(Interconnect.ANY)}
    for distance in _wider(job.distance):
        yield {"distance": str(distance)}
    if ask.model:
        yield {"model": ""}
    if job.reproducible:
        yield dict(SHARED)
    for form in (AskForm.AUTO, AskForm.CONTAINER, AskForm.BLOCK):
        if form != ask.form:
            yield {"form": str(form)} | (SHARED if job.reproducible else {})


def _wider(distance: Distance) -> Iterator[Distance]:
    """Step by step, and at last only near if possible."""
    if distance in REQUIRED:
        yield from (other for other, level in REQUIRED.items() if level > REQUIRED[distance])
        yield Distance.NEAR


def _smaller(job: JobView) -> Iterator[dict[str, Any]]:
    ask = job.asks[0]
    for what in ("cards_per_node", "nodes"):
        half = getattr(ask, what) // 2
        while half >= 1:
            yield {what: half}
            half //= 2
    if ask.memory_mib > 1:
        yield {"memory_mib": ask.memory_mib // 2}
    if ask.form != AskForm.CONTAINER and ask.cards_per_node > 1:
        yield {"form": str(AskForm.CONTAINER), "cards_per_node": 1} | (SHARED if job.reproducible else {})
    if job.cpu_milli > 1:
        yield {"cpu_milli": job.cpu_milli // 2}
    if job.host_memory_mib > 1:
        yield {"host_memory_mib": job.host_memory_mib // 2}


def whole_change(job: Job, change: Mapping[str, Any]) -> Mapping[str, Any]:
    """All that a person changes who follows a change: what asked for a slice of a card asks for its memory alone once
    it may be on other cards, in another form or smaller."""
    ask = job.asks[0]
    if not ask.get(slices.FIELD) or not slices.MADE_OF & change.keys():
        return change
    return {slices.FIELD: "", "memory_mib": ask["memory_mib"], "model": ask["model"], **change}


def changed_by(job: JobView, change: Mapping[str, Any]) -> JobView:
    ask_fields = {name: value for name, value in change.items() if name in Ask.__dataclass_fields__}
    if "form" in ask_fields:
        ask_fields["form"] = AskForm(ask_fields["form"])
    own = {name: value for name, value in change.items() if name not in ask_fields}
    if "interconnect" in own:
        own["interconnect"] = Interconnect(own["interconnect"])
    if "distance" in own:
        own["distance"] = Distance(own["distance"])
    if "like_job" in own:
        own["like"] = own.pop("like_job")
    return replace(job, asks=(replace(job.asks[0], after_s=0, **ask_fields),), no_room=frozenset(), **own)
