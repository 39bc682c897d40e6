"""What the values of a snapshot or plan read from a file must keep to, beyond their types: ranges, order, unique ids.

The engine itself trusts what it is given; these checks stand where data comes in from outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ledger.vocabulary import COMPUTE_UNITS, AskForm
from scheduler.engine.types import Ask, CardView, Demand, JobView, NodeView, Plan, Snapshot, Standing, Stay

LARGEST_AMOUNT: Final = 2**40  # leaves room to add up a fleet in 64 bits
AMOUNTS: Final[dict[type, tuple[str, ...]]] = {
    CardView: ("slot", "memory_mib"),
    NodeView: ("cpu_milli", "host_memory_mib", "cpu_milli_used", "host_memory_mib_used", "allocations"),
    Ask: ("cards_per_node", "memory_mib", "after_s", "compute_milli"),
    JobView: ("cpu_milli", "host_memory_mib", "expected_s"),
    Stay: ("cpu_milli", "host_memory_mib"),
    Standing: ("guaranteed", "held", "serving"),
    Demand: ("cards", "memory_mib", "cpu_milli", "host_memory_mib", "count"),
}


def check_snapshot_values(snapshot: Snapshot) -> None:
    """ValueError naming the first field that is wrong."""
    _unique("nodes", "id", (node.id for node in snapshot.nodes))
    _unique("nodes", "card id", (card.id for node in snapshot.nodes for card in node.cards))
    _unique("jobs", "id", (job.id for job in snapshot.jobs))
    for n, node in enumerate(snapshot.nodes):
        _check_node(node, f"nodes[{n}]")
    for n, job in enumerate(snapshot.jobs):
        _check_job(job, f"jobs[{n}]")
    for n, reserve in enumerate(snapshot.reserves):
        _at_least(reserve.mib, 0, f"reserves[{n}].mib")
    for n, demand in enumerate(snapshot.demand):
        _check_amounts(demand, f"demand[{n}]")
    for n, stay in enumerate(snapshot.stays):
        _check_stay(stay, f"stays[{n}]")
    for n, standing in enumerate(snapshot.standings):
        _check_standing(standing, f"standings[{n}]")


def check_plan_values(plan: Plan) -> None:
    for n, placement in enumerate(plan.placements):
        where = f"placements[{n}]"
        _at_least(placement.ask_index, 0, f"{where}.ask_index")
        for m, member in enumerate(placement.members):
            _at_least(member.cpu_milli, 0, f"{where}.members[{m}].cpu_milli")
            _at_least(member.host_memory_mib, 0, f"{where}.members[{m}].host_memory_mib")
            for s, share in enumerate(member.shares):
                inside = f"{where}.members[{m}].shares[{s}]"
                _check_intervals(share.memory, None, f"{inside}.memory")
                _check_intervals(share.compute, COMPUTE_UNITS, f"{inside}.compute")


def _check_node(node: NodeView, where: str) -> None:
    _check_amounts(node, where)
    cards = {card.id for card in node.cards}
    for n, card in enumerate(node.cards):
        inside = f"{where}.cards[{n}]"
        _check_amounts(card, inside)
        _at_least(card.memory_mib, 1, f"{inside}.memory_mib")
        _check_intervals(card.busy, card.memory_mib, f"{inside}.busy")
        _check_intervals(card.compute_busy, COMPUTE_UNITS, f"{inside}.compute_busy")
    for n, (a, b, gbps) in enumerate(node.links):
        inside = f"{where}.links[{n}]"
        if a == b or not {a, b} <= cards:
            raise ValueError(f"{inside}: must join two cards of this node, got {a} and {b}")
        _at_least(gbps, 0, f"{inside}[2]")


def _check_job(job: JobView, where: str) -> None:
    _check_amounts(job, where)
    if job.surely_s is not None:
        _at_least(job.surely_s, 0, f"{where}.surely_s")
    if not job.asks:
        raise ValueError(f"{where}.asks: must not be empty")
    if job.reproducible and any(ask.form is not AskForm.WHOLE for ask in job.asks):
        raise ValueError(f"{where}.reproducible: every ask must be for whole machines")
    if job.like is not None:
        _at_least(job.like.nodes, 1, f"{where}.like.nodes")
        if not job.reproducible:
            raise ValueError(f"{where}.like: must not be there unless the job is reproducible")
    for number, _model in job.no_room:
        if not 0 <= number < len(job.asks):
            raise ValueError(f"{where}.no_room: must name asks by their numbers, got {number}")
    for n, ask in enumerate(job.asks):
        inside = f"{where}.asks[{n}]"
        _check_amounts(ask, inside)
        _at_least(ask.nodes, 1, f"{inside}.nodes")
        if ask.compute_milli > COMPUTE_UNITS:
            raise ValueError(f"{inside}.compute_milli: must be at most {COMPUTE_UNITS}, got {ask.compute_milli}")


def _check_stay(stay: Stay, where: str) -> None:
    _check_amounts(stay, where)
    for n, (_card, memory, compute) in enumerate(stay.cards):
        _check_intervals(memory, None, f"{where}.cards[{n}][1]")
        _check_intervals(compute, COMPUTE_UNITS, f"{where}.cards[{n}][2]")


def _check_standing(standing: Standing, where: str) -> None:
    _check_amounts(standing, where)
    _at_least(standing.weight, 1, f"{where}.weight")
    _at_least(standing.usage, 0, f"{where}.usage")
    if standing.limit is not None:
        _at_least(standing.limit, standing.guaranteed, f"{where}.limit")


def _check_amounts(thing: object, where: str) -> None:
    for name in AMOUNTS[type(thing)]:
        value = getattr(thing, name)
        _at_least(value, 0, f"{where}.{name}")
        if value > LARGEST_AMOUNT:
            raise ValueError(f"{where}.{name}: must be at most {LARGEST_AMOUNT}, got {value}")


def _at_least(value: float, least: int, where: str) -> None:
    if value < least:
        raise ValueError(f"{where}: must be at least {least}, got {value}")


def _check_intervals(intervals: Iterable[tuple[int, int]], size: int | None, where: str) -> None:
    """Not empty each, sorted, disjoint and inside [0, size)."""
    at = 0
    for n, (lo, hi) in enumerate(intervals):
        if lo < at or hi <= lo or (size is not None and hi > size):
            limit = "" if size is None else f" inside 0 … {size}"
            raise ValueError(f"{where}[{n}]: intervals must be sorted, disjoint, not empty{limit}, got {lo} … {hi}")
        at = hi


def _unique(where: str, what: str, values: Iterable[int]) -> None:
    seen: set[int] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{where}: {what} {value} stands twice")
        seen.add(value)
