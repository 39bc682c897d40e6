"""Nodes that are kept for a job because others were stopped for it: it comes first, and whoever else would stand in its
way there has to wait until the claim is over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.feasible import of_models
from scheduler.engine.fleet import Fleet
from scheduler.engine.shape import shapes_of
from scheduler.engine.types import Claim, Placement, Reservation, SharePlan, Waiting

if TYPE_CHECKING:
    from scheduler.engine.plan import Desk


def keep_claimed(desk: Desk, claim: Claim) -> None:
    """Keep the nodes for the job, which waits; from when what is being stopped there is expected to be gone. Nothing
    is kept of what can't help it: it is over its quota, can never run, or a node has left the fleet."""
    job, waits = desk.jobs[claim.job_id], desk.decided[claim.job_id]
    rows = np.array([desk.fleet.row_of.get(node_id, -1) for node_id in claim.node_ids], dtype=np.intp)
    if job.over_quota or (isinstance(waits, Waiting) and waits.never) or (rows < 0).any():
        return
    if claim.ask_index >= len(job.asks) or claim.until <= desk.at:
        return
    ask = job.asks[claim.ask_index]
    if job.no_room and (job.is_over(ask) or of_models(desk.fleet, job.shut(ask))[rows].any()):
        return
    begins = min(max(claim.begins_at, desk.at), claim.until)
    for shape in shapes_of(job, ask):
        if shape.form is claim.form:
            desk.kept.keep(rows, begins, shape, desk.ends)
            nodes = tuple(sorted(claim.node_ids))
            desk.reservations[job.id] = Reservation(job.id, claim.ask_index, begins, nodes, claim.awaits)


def milli_of(fleet: Fleet, row: int, shares: Iterable[SharePlan]) -> int:
    """What shares of a row's cards are in milli-cards, each rounded up as in the book."""
    size = {card.id: card.memory_mib for card in fleet.cards[row]}
    return sum(-(-sum(hi - lo for lo, hi in share.memory) * 1000 // size[share.card_id]) for share in shares)


def milli_in(fleet: Fleet, placement: Placement) -> int:
    """What a placement counts for in milli-cards."""
    return sum(milli_of(fleet, fleet.row_of[member.node_id], member.shares) for member in placement.members)
