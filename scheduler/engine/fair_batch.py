"""A batch whose requests come from projects with guarantees, limits and weights: decided one after the other in the
order that fairness.Shares gives them, and refused where the project's limit is reached. The same as a Desk with Shares
decides (plan.py), for containers of one node without headroom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine import kernel, turns
from scheduler.engine.arrays import Ints
from scheduler.engine.batch import Batch
from scheduler.engine.fairness import UNLIMITED, deserved
from scheduler.engine.types import Standing

RUN: Final = 1_024  # requests handed out at once


class FairlyDecided(NamedTuple):
    """In the order in which they were decided: the request, its row (-1 = refused) and the cards' columns as bits."""

    requests: Ints
    rows: Ints
    columns: Ints
    over_quota: int


def decide_fairly(
    batch: Batch, wanted: Ints, owners: Ints, standings: Sequence[Standing], milli: Ints, capacity: int
) -> FairlyDecided:
    """Requests (m,) for shapes of the batch, each of a project: its number among the standings. `milli` (k,): of each
    shape its milli-cards. ValueError for a batch that the compiled loops don't know."""
    if not batch.fast:
        raise ValueError("only for what the compiled loops know")
    queues, order = _queues(wanted, owners, len(standings), milli)
    claims = _claims(standings, wanted, owners, milli, capacity)
    places, of = np.zeros((2, len(standings)), dtype=np.int64)
    heap = turns.Heap(np.zeros(len(standings)), places, of, np.zeros(1, dtype=np.int64))
    turns.build(heap, queues, claims)
    out = FairlyDecided(np.full(len(wanted), -1), np.full(len(wanted), -1), np.zeros(len(wanted), dtype=np.int64), 0)
    requests, verdicts, shapes = np.zeros((3, RUN), dtype=np.int64)
    rows, columns, points = np.zeros((3, RUN), dtype=np.int64)
    done = refused = 0
    while done < len(wanted):
        room = min(RUN, len(wanted) - done)
        count, runs = turns.hand_out(heap, queues, claims, requests[:room], verdicts[:room], shapes[:room])
        placed = _place(batch, shapes[:runs], rows, columns, points)
        to_place = np.flatnonzero(verdicts[:count] == turns.PLACED)
        if placed < runs:  # one found no room: what was handed out after it has its turn again
            stop = int(to_place[placed])
            turns.undo(queues, claims, owners[order], requests, verdicts, stop, count)
            queues.hopeless[shapes[placed]] = 1
            turns.build(heap, queues, claims)
            count, to_place = stop, to_place[:placed]
        out.requests[done : done + count] = order[requests[:count]]
        out.rows[done + to_place], out.columns[done + to_place] = rows[:placed], columns[:placed]
        refused += int((verdicts[:count] == turns.OVER_QUOTA).sum())
        done += count
    return out._replace(over_quota=refused)


def _place(batch: Batch, shapes: Ints, *found: Ints) -> int:
    """How many of these are placed until one is refused."""
    batch.fleet.log.make_room(len(shapes))
    asked = (batch.slate, batch.fleet.now, batch.fleet.log.log, batch.board, shapes, True)
    number = 0
    while (number := kernel.place(*asked, number, *found)) < len(shapes):
        if found[0][number] < 0:
            return number
        found[1][number] = batch.choose(int(shapes[number]), int(found[0][number]))
        number += 1
    return number


def _queues(wanted: Ints, owners: Ints, projects: int, milli: Ints) -> tuple[turns.Queues, Ints]:
    """And the number of each request of the queues among those that were given."""
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(projects + 1))
    first, last = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    places = order.astype(np.int64)
    shapes = np.ascontiguousarray(wanted[order], dtype=np.int64)
    hopeless = np.zeros(len(milli), dtype=np.int64)
    return turns.Queues(shapes, places, first, last, first.copy(), milli, hopeless), places


def _claims(standings: Sequence[Standing], wanted: Ints, owners: Ints, milli: Ints, capacity: int) -> turns.Claims:
    held = np.array([one.held for one in standings], dtype=np.int64)
    demand = held + np.bincount(owners, weights=milli[wanted], minlength=len(standings)).astype(np.int64)
    share = deserved(standings, demand.tolist(), capacity)
    limit = [UNLIMITED if one.limit is None else one.limit for one in standings]
    own = [one.guaranteed for one in standings]
    return turns.Claims(held, *(np.array(column, dtype=np.int64) for column in (own, share, limit)))
