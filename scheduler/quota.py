"""What is left of the projects' grants, and what work would take of it. Only to explain and to save work: the database
decides at commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import connection

from ledger.models import Job
from ledger.opening import AttemptOrder
from ledger.vocabulary import AskForm, Form, Resource
from scheduler import snapshot
from scheduler.engine.types import Ask, JobView
from scheduler.snapshot import QueuedJob

QUOTA_LEFT = """
SELECT project_id, resource, amount - {used} FROM ledger_quotagrant
WHERE period @> clock_timestamp() AND project_id = ANY (%s::bigint[])
"""
USED = "ledger_quota_used(project_id, resource)"  # summed over all open shares
Left = dict[tuple[int, str], int]  # by project and resource; what nothing limits is not in it


def quota_left(project_ids: Collection[int]) -> Left:
    return _left(project_ids, USED)


def _left(project_ids: Collection[int], used: str) -> Left:
    with connection.cursor() as cursor:
        cursor.execute(QUOTA_LEFT.format(used=used), [list(project_ids)])
        return {(project_id, resource): amount for project_id, resource, amount in cursor.fetchall()}


def over_quota(jobs: Sequence[Job | QueuedJob]) -> frozenset[int]:
    """Jobs that no ask of theirs can start within what is left. What is surely left, by the upper bound that a grant
    keeps of its use, is enough for most: only for the others the use is summed."""
    surely = _left({job.project_id for job in jobs}, f"coalesce(used_at_most, {USED})")
    doubtful = _without_room(jobs, surely)
    if not doubtful:
        return frozenset()
    return frozenset(job.pk for job in _without_room(doubtful, quota_left({job.project_id for job in doubtful})))


def _without_room(jobs: Sequence[Job | QueuedJob], left: Left) -> list[Job | QueuedJob]:
    if not left:
        return []
    known: dict[tuple[Any, ...], bool] = {}  # most jobs of a long queue are like many others in it

    def has_room(job: Job | QueuedJob) -> bool:
        view = snapshot.job_view(job)
        alike = job.project_id, view.asks, view.cpu_milli, view.host_memory_mib
        if alike not in known:
            known[alike] = any(fits(job.project_id, at_least(view, ask), left) for ask in view.asks)
        return known[alike]

    return [job for job in jobs if not has_room(job)]


def split(orders: Sequence[AttemptOrder]) -> tuple[list[AttemptOrder], list[AttemptOrder]]:
    """The orders that fit into what is left, each after those before it, and the others."""
    left = quota_left({order.project_id for order in orders})
    within, over = [], []
    for order in orders:
        needs = taken_by(order)
        if not fits(order.project_id, needs, left):
            over.append(order)
            continue
        within.append(order)
        for resource, need in needs.items():
            if (order.project_id, resource) in left:
                left[order.project_id, resource] -= need
    return within, over


def fits(project_id: int, needs: Mapping[Resource, int], left: Left) -> bool:
    return all(left.get((project_id, resource), need) >= need for resource, need in needs.items())


def at_least(job: JobView, ask: Ask) -> dict[Resource, int]:
    """A lower bound of what an ask takes, wherever it is placed."""
    whole = ask.form == AskForm.WHOLE
    cards = ask.nodes * max(ask.cards_per_node, int(whole))  # a machine has at least one
    return {
        Resource.WHOLE_NODES: ask.nodes if whole else 0,
        Resource.CARD_MEMORY_MIB: cards * ask.memory_mib,
        Resource.CARD_MILLI: cards * (1000 if whole or ask.form == AskForm.BLOCK or not ask.memory_mib else 1),
        Resource.CPU_MILLI: ask.nodes * job.cpu_milli,
        Resource.HOST_MEMORY_MIB: ask.nodes * job.host_memory_mib,
    }


def taken_by(order: AttemptOrder) -> dict[Resource, int]:
    """What a placement takes, as ledger_quota_used counts it."""
    needs = {
        Resource.WHOLE_NODES: sum(member.form == Form.WHOLE for member in order.members),
        Resource.CPU_MILLI: sum(member.cpu_milli for member in order.members),
        Resource.HOST_MEMORY_MIB: sum(member.host_memory_mib for member in order.members),
    }
    shares = [(share.memory_mib, share.card_memory_mib) for member in order.members for share in member.shares]
    if shares:  # the grants of cards are looked at where there are any
        needs[Resource.CARD_MEMORY_MIB] = sum(mib for mib, _ in shares)
        needs[Resource.CARD_MILLI] = sum(-(-mib * 1000 // of) for mib, of in shares)
    return needs
