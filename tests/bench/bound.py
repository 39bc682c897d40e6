"""An upper bound on the allocation that any placement without migration and without refusal could reach on a trace.

A linear programme over node types and pod shapes, relaxed to fractions. What a GPU can hold of shares is exact: columns
are multisets of share sizes of at most one GPU, made as they are needed (Gilmore & Gomory, 1961). CPU, host memory,
accepted models and whole GPUs are counted by node type. "Without refusal": whatever a reference run had placed up to a
point before the nodes were full must be placed here too; free to refuse, a planner would reach nearly 100 % by taking
no pod that leaves a rest. Hence the bound holds for every policy that had placed at least as much by that point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog

from tests.bench.fgd_replica import Outcome
from tests.bench.openb import GPU_MILLI, MOST_GPUS, Floats, Ints, Nodes, Pods

BEFORE: Final = 1.0  # the point is so many percent of the cluster before the allocation that the reference reached
TOO_LITTLE: Final = 1e-6  # GPU-milli that a new column must promise for each GPU
MOST_ROUNDS: Final = 500


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Pods that ask for the same, and nodes that have the same."""

    cpu: Ints  # (c,)
    memory: Ints
    gpus: Ints
    milli: Ints
    at_most: Ints  # (c,) pods of the shape that arrive
    at_least: Ints  # (c,) of them, those that must be placed
    pairs: tuple[Ints, Ints]  # (p,) shape and node type, where a node of that type can take such a pod
    room: Ints  # (3, t): milli-cores, MiB and GPUs of all nodes of a type
    sizes: Ints  # (s,) of shares, in milli


@dataclass(slots=True)
class _Columns:
    """The multisets in use: GPUs of one type that hold so many shares of each size."""

    type: Ints  # (k,)
    counts: Ints  # (k, s)
    seen: set[bytes] = field(default_factory=set)

    def add(self, type_: Ints, counts: Ints) -> int:
        """Add those that are new; returns how many were."""
        rows = np.column_stack([type_, counts])
        first = {row.tobytes(): i for i, row in reversed(list(enumerate(rows)))}
        new = sorted(i for key, i in first.items() if key not in self.seen)
        self.seen.update(first)
        self.type = np.concatenate([self.type, type_[new]])
        self.counts = np.concatenate([self.counts, counts[new]])
        return len(new)


def upper_bound(nodes: Nodes, pods: Pods, order: Ints, reference: Outcome, before: float = BEFORE) -> float:
    """In percent of the cluster's GPUs, for the arrivals `order`; `reference` is a run over the same arrivals.

    RuntimeError when the solver gives up.
    """
    reached = reference.used[-1] / reference.gpus / 10
    early = (reference.arrived / reference.gpus / 10 <= reached - before) & (reference.node >= 0)
    types, type_of = np.unique(
        np.stack([nodes.cpu_milli, nodes.memory_mib, nodes.gpus, nodes.model]), axis=1, return_inverse=True
    )
    shapes = _shapes(types, np.bincount(type_of), pods, order, early)
    columns = _first_columns(shapes, type_of, pods, order, early, reference)
    for _ in range(MOST_ROUNDS):
        solved, worth, price = _solve(shapes, columns)
        counts, gain = _best_columns(shapes.sizes, worth, price)
        useful = np.flatnonzero(gain > TOO_LITTLE)
        if not len(useful) or not columns.add(useful, counts[useful]):
            break
    else:
        raise RuntimeError(f"no end after {MOST_ROUNDS} rounds")
    # Farley's bound: what columns that were not worth adding could still bring.
    rest = float(np.maximum(gain, 0.0) @ shapes.room[2])
    return (rest - float(solved.fun)) / reference.gpus / 10


def _shapes(types: Ints, how_many: Ints, pods: Pods, order: Ints, early: npt.NDArray[np.bool_]) -> _Shapes:
    table = np.stack([pods.cpu_milli, pods.memory_mib, pods.gpus, pods.gpu_milli, pods.accepts])
    unique, shape_of = np.unique(table, axis=1, return_inverse=True)
    cpu, memory, gpus, milli, accepts = unique
    can = (cpu[:, None] <= types[0]) & (memory[:, None] <= types[1]) & (gpus[:, None] <= types[2])
    can &= ((accepts[:, None] >> types[3]) & 1 == 1) | (gpus[:, None] == 0)
    many = len(cpu)
    shape, type_ = np.nonzero(can)
    return _Shapes(
        *(cpu, memory, gpus, milli),
        at_most=np.bincount(shape_of[order], minlength=many),
        at_least=np.bincount(shape_of[order[early]], minlength=many),
        pairs=(shape, type_),
        room=types[:3] * how_many,
        sizes=np.unique(milli[(milli > 0) & (milli < GPU_MILLI)]),
    )


def _first_columns(
    shapes: _Shapes, type_of: Ints, pods: Pods, order: Ints, early: npt.NDArray[np.bool_], reference: Outcome
) -> _Columns:
    """One size alone on a GPU, and every mix of the reference run up to the point: with those the start is feasible."""
    sizes, types = shapes.sizes, shapes.room.shape[1]
    milli = pods.gpu_milli[order]
    shares = np.flatnonzero(early & (milli > 0) & (milli < GPU_MILLI))
    device = np.log2(reference.devices[shares]).astype(np.int64)
    held = np.zeros((len(type_of) * MOST_GPUS, len(sizes)), dtype=np.int64)
    np.add.at(held, (reference.node[shares] * MOST_GPUS + device, np.searchsorted(sizes, milli[shares])), 1)
    columns = _Columns(np.empty(0, dtype=np.int64), np.empty((0, len(sizes)), dtype=np.int64))
    columns.add(np.repeat(type_of, MOST_GPUS)[held.any(axis=1)], held[held.any(axis=1)])
    columns.add(np.repeat(np.arange(types), len(sizes)), np.tile(np.diag(GPU_MILLI // sizes), (types, 1)))
    return columns


def _solve(shapes: _Shapes, columns: _Columns) -> tuple[OptimizeResult, Floats, Floats]:
    """Unknowns: pods placed of each shape (c,), of each pair (p,), GPUs of each column (k,).

    Returns the solution, what one more share of a size is worth on a type (t, s) and what a GPU of it costs (t,).
    """
    many, types, sizes = len(shapes.cpu), shapes.room.shape[1], len(shapes.sizes)
    pairs, others = len(shapes.pairs[0]), len(shapes.pairs[0]) + len(columns.type)
    sums = np.repeat([1.0, -1.0], [pairs, many])  # pairs of a shape add up to the shape
    places = (np.r_[shapes.pairs[0], :many], np.r_[many : many + pairs, :many])
    solved = linprog(
        np.r_[-(shapes.gpus * shapes.milli), np.zeros(others)],
        A_ub=_taken(shapes, columns),
        b_ub=np.concatenate([shapes.room.ravel(), np.zeros(types * sizes)]),
        A_eq=sparse.csr_array((sums, places), (many, many + others)),
        b_eq=np.zeros(many),
        bounds=np.column_stack([np.r_[shapes.at_least, np.zeros(others)], np.r_[shapes.at_most, [np.inf] * others]]),
        method="highs",
    )
    if not solved.success:
        raise RuntimeError(f"the solver gave up: {solved.message}")
    duals = -solved.ineqlin.marginals
    return solved, duals[3 * types :].reshape(types, sizes), duals[2 * types : 3 * types]


def _taken(shapes: _Shapes, columns: _Columns) -> sparse.csr_array:
    """By type: the CPU, the memory and the GPUs that the unknowns take, then the shares of each size that are placed,
    less those that columns hold."""
    shape, type_ = shapes.pairs
    types, sizes = shapes.room.shape[1], len(shapes.sizes)
    pair = len(shapes.cpu) + np.arange(len(shape))
    column = len(shapes.cpu) + len(shape) + np.arange(len(columns.type))
    whole = np.where(shapes.milli == GPU_MILLI, shapes.gpus, 0)
    share = np.flatnonzero((shapes.milli[shape] > 0) & (shapes.milli[shape] < GPU_MILLI))
    row_of_share = type_[share] * sizes + np.searchsorted(shapes.sizes, shapes.milli[shape[share]])
    which, size = np.nonzero(columns.counts)
    entries = [  # row, unknown, factor
        (type_, pair, shapes.cpu[shape]),
        (types + type_, pair, shapes.memory[shape]),
        (2 * types + type_, pair, whole[shape]),
        (2 * types + columns.type, column, np.ones(len(column))),
        (3 * types + row_of_share, pair[share], np.ones(len(share))),
        (3 * types + columns.type[which] * sizes + size, column[which], -columns.counts[which, size]),
    ]
    rows, at, factors = (np.concatenate([entry[i] for entry in entries]) for i in range(3))
    shown = (3 * types + types * sizes, len(shapes.cpu) + len(shape) + len(column))
    return sparse.csr_array((factors, (rows, at)), shown)


def _best_columns(sizes: Ints, worth: Floats, price: Floats) -> tuple[Ints, Floats]:
    """For each type the multiset that is worth the most (t, s), and by how much more than a GPU costs (t,): a knapsack
    with as many of each size as one likes, for all types at once."""
    step = int(np.gcd.reduce(np.append(sizes, GPU_MILLI)))
    steps, types = GPU_MILLI // step, np.arange(len(worth))
    best = np.zeros((steps + 1, len(worth)))
    chosen = np.full((steps + 1, len(worth)), -1)
    for full in range(1, steps + 1):
        best[full] = best[full - 1]
        fit = np.flatnonzero(sizes <= full * step)
        if len(fit):
            value = best[full - sizes[fit] // step] + worth[:, fit].T
            top = value.argmax(axis=0)
            better = value[top, types] > best[full]
            best[full][better] = value[top, types][better]
            chosen[full][better] = fit[top[better]]
    counts = np.zeros(worth.shape, dtype=np.int64)
    for each in types:
        full = steps
        while full > 0:
            size = chosen[full, each]
            if size < 0:
                full -= 1
            else:
                counts[each, size] += 1
                full -= sizes[size] // step
    return counts, best[steps] - price
