"""engine.Plan → the book, in batches: one transaction a batch, with its Decision and Command rows.

The engine may be wrong or late; the database is not. A batch is written as one; where the database refuses it, once
more without the placements that can be named, else in parts, down to those that it refuses alone. Their jobs stay
queued, are counted with the reason, and are looked at again in the next round.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from django.db import IntegrityError, connection, transaction

from ledger import opening, rows
from ledger.opening import AttemptOrder, MemberOrder, OpenedAttempt, ShareOrder
from ledger.vocabulary import CommandVerb, Form, Refusal
from scheduler import quota
from scheduler.engine.fingerprint import Fingerprint, fingerprint
from scheduler.engine.types import MemberPlan, NodeView, Placement, Plan, Snapshot, Waiting
from scheduler.models import Command, Decision
from scheduler.wake import wake_after_commit

BATCH = 500  # its locks are held for about half a second
TURN_S = 0.0002
PARTS = 8  # of a batch that is refused without a word on which: fewer or more of them cost more
CONSTRAINT_REFUSALS: Mapping[str, Refusal] = {
    "quota_never_exceeded": Refusal.QUOTA,
    "ceiling_never_exceeded": Refusal.CEILING,
    "member_limit_never_exceeded": Refusal.MEMBER_LIMIT,
    "project_takes_work": Refusal.PROJECT_ENDED,
    "card_not_held": Refusal.CARD_HELD,
    "node_not_held": Refusal.NODE_HELD,
    "node_is_up": Refusal.NODE_DOWN,
    "zone_is_open_to_job": Refusal.ZONE,
}
# fields of Decision that are written for a placement
KNOWN: Final = ("job_id", "ask_index", "reasons", "scores", "warm")
PRINT: Final = ("fingerprint", "fingerprint_parts")
COMPANY: Final = "neighbours"

NEIGHBOURS = """
SELECT DISTINCT a.node_id, p.slug FROM ledger_allocation a JOIN ledger_project p ON p.id = a.project_id
WHERE a.node_id = ANY (%s::bigint[]) AND upper_inf(a.period)
"""


@dataclass
class Committed:
    placed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_jobs: dict[int, Refusal] = field(default_factory=dict)


def commit_plan(snapshot: Snapshot, plan: Plan) -> Committed:
    """Write the placements of a plan that was made from this snapshot."""
    return commit_as_decided(snapshot, plan.placements)


def commit_as_decided(snapshot: Snapshot, decisions: Iterable[Placement | Waiting]) -> Committed:
    """Write the placements among these, which are decided on this snapshot as they are asked for: while the database
    works on one batch, a thread of its own gets the next. Nothing in it may use the database. An error in either ends
    both, after the batches before it have been written."""
    work = _Work(snapshot)
    batches = work.batches(decisions)
    with ThreadPoolExecutor(1, "decide") as ahead, quick_turns():
        following = ahead.submit(next, batches, None)
        while batch := following.result():
            following = ahead.submit(next, batches, None)
            work.commit_batch(batch)
    return work.result


def order_of(placement: Placement, project_id: int, nodes: Mapping[int, NodeView]) -> AttemptOrder:
    members = [_member(member, nodes[member.node_id]) for member in placement.members]
    return AttemptOrder(placement.job_id, project_id, members)


def over_when_committed(snapshot: Snapshot, plan: Plan) -> dict[int, Refusal]:
    """Placements of the plan that the database would refuse, by job, as what they count for there is used up."""
    work = _Work(snapshot)
    return quota.split([work.order(placement) for placement in plan.placements]) if plan.placements else {}


@contextmanager
def quick_turns() -> Iterator[None]:
    """Whoever hears from the database goes on at once: by default a thread waits 5 ms for one that is deciding, after
    each of some hundred statements."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class _Told(NamedTuple):
    """Of a placement's decision, what is known before it is written, as text of its row; its print depends on who is
    there by then."""

    values: str
    alone: str
    shared: str


class _Batch(NamedTuple):
    orders: Sequence[AttemptOrder]
    told: Mapping[int, _Told]  # by job


class _Work:
    """The commit of one plan under way."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = {node.id: node for node in snapshot.nodes}
        self.projects = {job.id: job.project_id for job in snapshot.jobs}
        self.result = Committed()
        self.prints: dict[str, str] = {}  # by code

    def batches(self, decisions: Iterable[Placement | Waiting]) -> Iterator[_Batch]:
        """The first is smaller, so that the database soon has something to do; many small ones cost it more."""
        placements = (decided for decided in decisions if isinstance(decided, Placement))
        size = max(1, BATCH // 2)
        while some := list(islice(placements, size)):
            yield _Batch([self.order(one) for one in some], {one.job_id: self.tell(one) for one in some})
            size = min(2 * size, BATCH)

    def commit_batch(self, batch: _Batch) -> None:
        node_ids = {member.node_id for order in batch.orders for member in order.members}
        with transaction.atomic(durable=True):
            now = opening.lock_for_opening((order.project_id for order in batch.orders), node_ids)
            neighbours = _neighbours(node_ids)
            opened = self.open(batch.orders, now)
            opening.record_opened(opened, now=now, via="scheduler", reason=self.snapshot.rule)
            self.explain(batch.told, opened, neighbours, now)
            _order_starts(opened, now)
            wake_after_commit("scheduler.run_commands")
        self.result.placed += len(opened)

    def open(self, orders: Sequence[AttemptOrder], now: dt.datetime) -> list[OpenedAttempt]:
        """What the database takes of these. In the order of the plan, so that the result is that of one after the
        other: a part that is refused as a whole has given way to its own parts before the next one is tried."""
        if not orders:
            return []
        try:
            with transaction.atomic():
                opened = opening.open_attempts(orders, now=now)
        except IntegrityError as error:
            reason = CONSTRAINT_REFUSALS.get(_diagnosis(error, "constraint_name"), Refusal.LOST_RACE)
            if len(orders) > 1:
                return self.open_some(orders, now, reason, _refused_jobs(error))
            self.refuse(orders[0], reason)
            return []
        if len(opened) < len(orders):  # no longer queued
            self.result.refused[Refusal.LOST_RACE] += len(orders) - len(opened)
        return opened

    def open_some(
        self, orders: Sequence[AttemptOrder], now: dt.datetime, reason: Refusal, refused: Mapping[int, Refusal]
    ) -> list[OpenedAttempt]:
        """What the database takes of these, which it does not take all together. A node that is down or a quota that
        is used up refuses many at once: the database says which, or they are counted. Else part after part is tried."""
        over = quota.split(orders) if reason in quota.REFUSALS else {}
        if over:
            within = [order for order in orders if order.job_id not in over]
            opened = self.open(within, now)
            if len(opened) < len(within):  # what gave way for another reason has left room
                return opened + self.open([order for order in orders if order.job_id in over], now)
            refused = over
        elif refused:
            opened = self.open([order for order in orders if order.job_id not in refused], now)
        else:
            return [one for part in _parts(orders) for one in self.open(part, now)]
        for order in orders:
            if order.job_id in refused:
                self.refuse(order, refused[order.job_id])
        return opened

    def refuse(self, order: AttemptOrder, reason: Refusal) -> None:
        self.result.refused[reason] += 1
        self.result.refused_jobs[order.job_id] = reason

    def order(self, placement: Placement) -> AttemptOrder:
        return order_of(placement, self.projects[placement.job_id], self.nodes)

    def tell(self, placement: Placement) -> _Told:
        members = [(self.nodes[member.node_id], member) for member in placement.members]
        values = (
            placement.job_id,
            placement.ask_index,
            [placement.refusals],
            self.scores(placement),
            self.warm(placement),
        )
        told = rows.text(dict(zip(KNOWN, values, strict=True)))
        return _Told(told, *(self.printed(fingerprint(members, shared)) for shared in (False, True)))

    def printed(self, found: Fingerprint) -> str:
        if found.code not in self.prints:
            self.prints[found.code] = rows.text(dict(zip(PRINT, (found.code, found.parts), strict=True)))
        return self.prints[found.code]

    def explain(
        self,
        told: Mapping[int, _Told],
        opened: Sequence[OpenedAttempt],
        neighbours: Mapping[int, list[str]],
        now: dt.datetime,
    ) -> None:
        """The decision of each attempt. Shared is a node on which others were, or are placed at the same moment."""
        on_node = Counter(member.node_id for one in opened for member in one.members)
        alone = rows.text({COMPANY: []})
        decisions = []
        for one in opened:
            nodes = [member.node_id for member in one.members]
            shared = any(node_id in neighbours or on_node[node_id] > 1 for node_id in nodes)
            known = told[one.job_id]
            slugs = {slug for node_id in nodes for slug in neighbours.get(node_id, ())} if shared else ()
            company = rows.text({COMPANY: sorted(slugs)}) if slugs else alone
            decisions.append(rows.joined(known.values, known.shared if shared else known.alone, company))
        snap = self.snapshot
        made_by = {"rule": snap.rule, "policy": snap.policy, "seed": snap.seed, "workload_id": snap.workload}
        attempts = {"attempt_id": [one.attempt_id for one in opened]}
        names = (*KNOWN, *PRINT, COMPANY)
        rows.insert(Decision, decisions, names=names, columns=attempts, at=now, first_at=now, **made_by)

    def warm(self, placement: Placement) -> dict[str, Any] | None:
        found = placement.warm
        if found is None:
            return None
        nodes = sorted(self.nodes[node_id].hostname for node_id in found.nodes)
        return {"policy": found.policy, "nodes": nodes, "gave_up": round(found.gave_up, 6)}

    def scores(self, placement: Placement) -> list[tuple[str, float]]:
        nodes = self.nodes
        return [(nodes[pk].hostname, round(score, 6)) for pk, score in placement.scores if pk in nodes]


def _parts(orders: Sequence[AttemptOrder]) -> Iterator[Sequence[AttemptOrder]]:
    size = -(-len(orders) // PARTS)
    return (orders[start : start + size] for start in range(0, len(orders), size))


def _diagnosis(error: IntegrityError, field: str) -> str:
    return getattr(getattr(error.__cause__, "diag", None), field, None) or ""


def _refused_jobs(error: IntegrityError) -> dict[int, Refusal]:
    """All that the database would refuse alone as well, where it says so (ledger/migrations/0009)."""
    detail = _diagnosis(error, "message_detail")
    rules: dict[str, str] = json.loads(detail) if detail.startswith("{") else {}
    return {int(job_id): CONSTRAINT_REFUSALS.get(rule, Refusal.LOST_RACE) for job_id, rule in rules.items()}


def _order_starts(opened: Iterable[OpenedAttempt], now: dt.datetime) -> None:
    members = [(one.attempt_id, member) for one in opened for member in one.members]
    rows.insert(
        Command,
        columns={
            "allocation_id": [member.allocation_id for _, member in members],
            "attempt_id": [attempt_id for attempt_id, _ in members],
            "driver": [member.driver for _, member in members],
        },
        verb=CommandVerb.START,
        due_at=now,
        created_at=now,
    )


def _member(member: MemberPlan, node: NodeView) -> MemberOrder:
    memory = {card.id: card.memory_mib for card in node.cards}
    return MemberOrder(
        node_id=member.node_id,
        form=member.form,
        driver=member.driver,
        zone_id=node.zone_id,
        cpu_milli=member.cpu_milli,
        host_memory_mib=member.host_memory_mib,
        shares=[
            ShareOrder(
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
    with connection.cursor() as cursor:
        cursor.execute(NEIGHBOURS, [list(node_ids)])
        for node_id, slug in cursor.fetchall():
            found.setdefault(node_id, []).append(slug)
    return found
