"""engine.Plan → the book, in batches: one transaction a batch, one savepoint a placement, with Decision and Command.

The engine may be wrong or late; the database is not. A placement that it refuses leaves its job queued, is counted,
and is looked at again in the next round.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import IntegrityError, transaction

from ledger import book
from ledger.errors import Conflict
from ledger.models import Allocation, Attempt, Project
from ledger.vocabulary import CommandVerb, Form, Refusal
from scheduler.engine.types import MemberPlan, NodeView, Placement, Plan, Snapshot
from scheduler.models import Command, Decision
from scheduler.wake import wake_after_commit

BATCH = 50
CONSTRAINT_REFUSALS: Mapping[str, Refusal] = {
    "quota_never_exceeded": Refusal.QUOTA,
    "project_takes_work": Refusal.PROJECT_ENDED,
    "card_not_held": Refusal.CARD_HELD,
    "node_not_held": Refusal.NODE_HELD,
    "node_is_up": Refusal.NODE_DOWN,
}


@dataclass
class Committed:
    placed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_jobs: dict[int, Refusal] = field(default_factory=dict)


@dataclass(frozen=True)
class Opened:
    placement: Placement
    attempt: Attempt
    allocations: list[Allocation]


def commit_plan(snapshot: Snapshot, plan: Plan) -> Committed:
    """Write the placements of a plan that was made from this snapshot."""
    result = Committed()
    nodes = {node.id: node for node in snapshot.nodes}
    projects = {job.id: job.project_id for job in snapshot.jobs}
    for start in range(0, len(plan.placements), BATCH):
        _commit_batch(plan.placements[start : start + BATCH], nodes, projects, snapshot, plan.rule, result)
    return result


def _commit_batch(
    placements: Sequence[Placement],
    nodes: Mapping[int, NodeView],
    projects: Mapping[int, int],
    snapshot: Snapshot,
    rule: str,
    result: Committed,
) -> None:
    opened: list[Opened] = []
    with transaction.atomic(durable=True):
        now = book.lock_for_opening(
            [projects[p.job_id] for p in placements], [m.node_id for p in placements for m in p.members]
        )
        neighbours = _neighbours({m.node_id for p in placements for m in p.members})
        for placement in placements:
            try:
                with transaction.atomic():
                    opened.append(_place(placement, nodes, projects[placement.job_id], now))
            except Conflict:
                result.refused[Refusal.LOST_RACE] += 1
            except IntegrityError as error:
                reason = CONSTRAINT_REFUSALS.get(_constraint(error), Refusal.LOST_RACE)
                result.refused[reason] += 1
                result.refused_jobs[placement.job_id] = reason
        book.record_opened([(o.attempt, o.allocations) for o in opened], now=now, via="scheduler", reason=rule)
        Decision.objects.bulk_create(_decision(o, nodes, neighbours, snapshot.seed, rule, now) for o in opened)
        Command.objects.bulk_create(_start(a, now) for o in opened for a in o.allocations)
        wake_after_commit("scheduler.run_commands")
    result.placed += len(opened)


def _constraint(error: IntegrityError) -> str:
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None) or ""


def _place(placement: Placement, nodes: Mapping[int, NodeView], project_id: int, now: dt.datetime) -> Opened:
    members = [_order(member, nodes[member.node_id]) for member in placement.members]
    attempt, allocations = book.open_attempt(job_id=placement.job_id, project_id=project_id, members=members, now=now)
    return Opened(placement, attempt, allocations)


def _decision(
    opened: Opened,
    nodes: Mapping[int, NodeView],
    neighbours: Mapping[int, list[str]],
    seed: int,
    rule: str,
    now: dt.datetime,
) -> Decision:
    placement = opened.placement
    return Decision(
        job_id=placement.job_id,
        attempt=opened.attempt,
        at=now,
        first_at=now,
        rule=rule,
        seed=seed,
        ask_index=placement.ask_index,
        reasons=[{str(reason): count for reason, count in placement.refusals.items()}],
        scores=[[nodes[node_id].hostname, round(score, 6)] for node_id, score in placement.scores if node_id in nodes],
        neighbours=sorted({slug for member in placement.members for slug in neighbours.get(member.node_id, [])}),
    )


def _start(allocation: Allocation, now: dt.datetime) -> Command:
    return Command(
        allocation=allocation,
        attempt_id=allocation.attempt_id,
        driver=allocation.driver,
        verb=CommandVerb.START,
        due_at=now,
        created_at=now,
    )


def _order(member: MemberPlan, node: NodeView) -> book.MemberOrder:
    memory = {card.id: card.memory_mib for card in node.cards}
    return book.MemberOrder(
        node_id=member.node_id,
        form=member.form,
        driver=member.driver,
        zone_id=node.zone_id,
        cpu_milli=member.cpu_milli,
        host_memory_mib=member.host_memory_mib,
        shares=[
            book.ShareOrder(
                seat_id=share.seat_id,
                card_id=share.card_id,
                card_memory_mib=memory[share.card_id],
                block_id=share.block_id if member.form == Form.BLOCK else None,
                memory=share.memory,
                compute=share.compute,
            )
            for share in member.shares
        ],
    )


def _neighbours(node_ids: Iterable[int]) -> dict[int, list[str]]:
    """Projects that are on these nodes now: the promise of who shares the machine, stored with the decision."""
    found: dict[int, list[str]] = {}
    live = Allocation.objects.filter(node_id__in=set(node_ids), period__upper_inf=True)
    slugs = dict(Project.objects.filter(pk__in=live.values("project_id")).values_list("pk", "slug"))
    for node_id, project_id in live.values_list("node_id", "project_id").distinct():
        found.setdefault(node_id, []).append(slugs[project_id])
    return found
