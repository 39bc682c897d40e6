"""What jobs ask for, learnt from the ledger's own newest jobs, by version: the engine's prices go by it.

A new version is written when the newest jobs ask for something else than the last version says. The made-up requests
of a first guess are part of a version, so that a decision can be worked out again from its version and its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from django.db import connection

from ledger.clock import database_now
from ledger.vocabulary import AskForm
from scheduler.engine.demand import guessed
from scheduler.engine.fleet import Fleet
from scheduler.engine.types import Demand
from scheduler.models import Workload

LOOKED_AT: Final = 5_000  # newest jobs, of real and of simulated ones
AMONG: Final = 50_000  # newest jobs of both kinds: so far back they are looked for
SHAPES: Final = 1_000  # different requests that a version holds, the most frequent ones
CHANGED: Final = 0.05  # of the requests ask for something else than the last version says
RECENT: Final = """
SELECT form, cards, memory_mib, cpu_milli, host_memory_mib, sum(nodes), sum(count(*)) OVER () FROM (
    SELECT asks->0->>'form' AS form, coalesce((asks->0->>'cards_per_node')::bigint, 1) AS cards,
           coalesce((asks->0->>'memory_mib')::bigint, 0) AS memory_mib,
           coalesce((asks->0->>'nodes')::bigint, 1) AS nodes,  -- as engine Ask where a job leaves them out
           cpu_milli, host_memory_mib
    FROM ledger_job WHERE simulated = %(simulated)s AND id > (SELECT max(id) FROM ledger_job) - %(among)s
    ORDER BY id DESC LIMIT %(looked_at)s
) recent GROUP BY 1, 2, 3, 4, 5 ORDER BY 6 DESC, 1, 2, 3, 4, 5 LIMIT %(shapes)s
"""


@dataclass(frozen=True, slots=True)
class Learnt:
    """A version and what it says; no version while nothing was learnt."""

    version: int | None = None
    demand: tuple[Demand, ...] = ()


_newest = Learnt()


def newest() -> Learnt:
    """The last version. Kept in the process: a version never changes."""
    global _newest
    version = Workload.objects.order_by("pk").values_list("pk", flat=True).last()
    if version != _newest.version:
        _newest = Learnt() if version is None else _load(Workload.objects.get(pk=version))
    return _newest


def _load(row: Workload) -> Learnt:
    shapes = ({**shape, "form": AskForm(shape["form"])} for shape in row.demand)
    return Learnt(row.pk, tuple(Demand(**shape) for shape in shapes))


def learn(fleet: Fleet) -> dict[str, Any]:
    """Look at the newest jobs; write a new version when they have changed. What is guessed is guessed for this fleet.
    Returns counts for the task's record."""
    jobs, demand = 0, list[Demand]()
    for simulated in (False, True):
        count, shapes = _recent(simulated)
        jobs += count
        if shapes:
            demand += [*shapes, *guessed(fleet.stock(simulated), simulated)]
    known = newest()
    if not jobs or (known.version is not None and difference(known.demand, demand) <= CHANGED):
        return {"version": known.version, "jobs": jobs}
    row = Workload.objects.create(learnt_at=database_now(), jobs=jobs, demand=[asdict(shape) for shape in demand])
    return {"version": row.pk, "jobs": jobs, "learnt": True}


def _recent(simulated: bool) -> tuple[int, list[Demand]]:
    """How many of the newest jobs were looked at, and what they asked for first. A gang counts once a node."""
    limits = {"simulated": simulated, "among": AMONG, "looked_at": LOOKED_AT, "shapes": SHAPES}
    with connection.cursor() as cursor:
        cursor.execute(RECENT, limits)
        rows = cursor.fetchall()
    shapes = [
        Demand(simulated, AskForm(form), cards, memory, cpu, host_memory, float(nodes))
        for form, cards, memory, cpu, host_memory, nodes, _ in rows
    ]
    return (int(rows[0][-1]) if rows else 0), shapes


def difference(old: Iterable[Demand], new: Iterable[Demand]) -> float:
    """The part of the requests, 0 … 1, that would have to ask for something else to turn one into the other; of the
    two worlds the one that changed more. A world that only one of them knows has changed wholly."""
    before, after = _parts(old), _parts(new)
    return max((_apart(before.get(w, {}), after.get(w, {})) for w in {*before, *after}), default=0.0)


def _apart(one: dict[Demand, float], other: dict[Demand, float]) -> float:
    """Half the sum of the differences; 1 when one of them is empty."""
    gap = sum(abs(one.get(shape, 0.0) - other.get(shape, 0.0)) for shape in {**one, **other})
    return gap / 2 if one and other else gap


def _parts(demand: Iterable[Demand]) -> dict[bool, dict[Demand, float]]:
    """By world: each shape's part of the requests."""
    counts: dict[bool, dict[Demand, float]] = {}
    for shape in demand:
        of_world, same = counts.setdefault(shape.simulated, {}), replace(shape, count=0.0)
        of_world[same] = of_world.get(same, 0.0) + shape.count
    return {world: {s: n / sum(of.values()) for s, n in of.items()} for world, of in counts.items()}
