"""Whose request is next, for a compiler: the order of fairness.Shares, many requests at once. What it hands out it
takes for placed; `undo` takes back what comes after a request that was refused.

Compiled code is kept on disk and only this file is looked at for changes: nothing of other modules is read here."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Final, NamedTuple

from scheduler.engine.arrays import Floats, Ints
from scheduler.engine.compiling import compiled, inlined

PLACED, REFUSED, OVER_QUOTA = range(3)
BAND: Final = 2.0  # above all that is within a guarantee


class Queues(NamedTuple):
    """The requests of p projects, project by project, each in its own order. `first` and `last` bound its requests,
    `next` is the one whose turn comes."""

    shapes: Ints  # (m,)
    places: Ints  # (m,) in the queue as a whole: who came first
    first: Ints  # (p,)
    last: Ints  # (p,)
    next: Ints  # (p,)
    milli: Ints  # (k,) by shape
    hopeless: Ints  # (k,) 1 = refused once, and room only shrinks


class Claims(NamedTuple):
    """Milli-cards, (p,)."""

    held: Ints
    own: Ints  # guaranteed
    deserved: Ints
    limit: Ints


class Heap(NamedTuple):
    """Projects with requests, the next in front. `size` (1,)."""

    keys: Floats
    places: Ints
    of: Ints
    size: Ints


@inlined
def key_of(queues: Queues, claims: Claims, project: int) -> float:
    held, own = claims.held[project], claims.own[project]
    if held + queues.milli[queues.shapes[queues.next[project]]] <= own:
        return held / max(own, 1)
    return BAND + held / max(claims.deserved[project], 1)


@inlined
def before(heap: Heap, a: int, b: int) -> bool:
    return heap.keys[a] < heap.keys[b] or (heap.keys[a] == heap.keys[b] and heap.places[a] < heap.places[b])


@inlined
def swap(heap: Heap, a: int, b: int) -> None:
    heap.keys[a], heap.keys[b] = heap.keys[b], heap.keys[a]
    heap.places[a], heap.places[b] = heap.places[b], heap.places[a]
    heap.of[a], heap.of[b] = heap.of[b], heap.of[a]


@inlined
def sink(heap: Heap, at: int) -> None:
    size = heap.size[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(heap, child + 1, child):
            child += 1
        if not before(heap, child, at):
            return
        swap(heap, at, child)
        at = child


@inlined
def renew(heap: Heap, queues: Queues, claims: Claims, at: int) -> None:
    project = heap.of[at]
    heap.keys[at], heap.places[at] = key_of(queues, claims, project), queues.places[queues.next[project]]


@compiled
def build(heap: Heap, queues: Queues, claims: Claims) -> None:
    """Anew, of all projects that have requests left."""
    heap.size[0] = 0
    for project in range(len(queues.next)):
        if queues.next[project] < queues.last[project]:
            heap.of[heap.size[0]] = project
            heap.size[0] += 1
            renew(heap, queues, claims, heap.size[0] - 1)
    for at in range(heap.size[0] // 2 - 1, -1, -1):
        sink(heap, at)


@compiled
def hand_out(
    heap: Heap, queues: Queues, claims: Claims, requests: Ints, verdicts: Ints, wanted: Ints
) -> tuple[int, int]:
    """The next requests in order, at most (m,): their numbers and what becomes of them, and the shapes of those to be
    placed. Returns how many there are and how many of them are to be placed."""
    count, runs = 0, 0
    while count < len(requests) and heap.size[0] > 0:
        project = heap.of[0]
        request = queues.next[project]
        shape = queues.shapes[request]
        requests[count], verdicts[count] = request, PLACED
        if claims.held[project] + queues.milli[shape] > claims.limit[project]:
            verdicts[count] = OVER_QUOTA
        elif queues.hopeless[shape]:
            verdicts[count] = REFUSED
        else:
            claims.held[project] += queues.milli[shape]
            wanted[runs] = shape
            runs += 1
        count += 1
        queues.next[project] += 1
        if queues.next[project] < queues.last[project]:
            renew(heap, queues, claims, 0)
        else:
            heap.size[0] -= 1
            swap(heap, 0, heap.size[0])
        sink(heap, 0)
    return count, runs


@compiled
def undo(queues: Queues, claims: Claims, owners: Ints, requests: Ints, verdicts: Ints, start: int, stop: int) -> None:
    """Take back these turns. `owners` (m,): the project of each request."""
    for turn in range(stop - 1, start - 1, -1):
        request = requests[turn]
        project = owners[request]
        queues.next[project] = request
        if verdicts[turn] == PLACED:
            claims.held[project] -= queues.milli[queues.shapes[request]]
