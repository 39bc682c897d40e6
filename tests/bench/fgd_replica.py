"""Replays the protocol of the FGD paper (Weng et al., USENIX ATC'23) with its six policies, node by node, nothing cached.

Facts are those of the published simulator (tests/data/openb2023/README.md): pods arrive one by one and never leave, a
pod that fits nowhere is dropped, scores are whole numbers from 0 to 100, equal scores go to the lowest rank. Another
policy is one more score function over the same arrays; see `Policy`. Functions marked @kernel are compiled before the
first run, so that this module can be imported without numba.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tests.bench import openb
from tests.bench.openb import MOST_GPUS, Floats, Ints, Nodes, Pods

Points = tuple[float, int]  # and the GPU

MOST_CPU, MOST_GPU = 128_000.0, 8_000  # the largest node's milli-cores and GPU-milli: published scores divide by them
FULL, ANY = 1_000, 1_001
TOP: Final = 100  # the highest score
POPULAR: Final = 95.0  # typical pods are the commonest shapes that make up this part of the pods, in percent
LAST_PERCENT: Final = 130


class State(NamedTuple):
    """What is left of every node; the loop lowers it in place. int64."""

    cpu_left: Ints  # (n,) milli-cores
    mem_left: Ints  # (n,) MiB
    gpu_left: Ints  # (n, 8) milli, 0 where there is no GPU
    gpus: Ints  # (n,)
    model: Ints  # (n,) codes
    kinds: Ints  # (n,) bits: which kinds of GPU pods the node holds (1 share, 2 one GPU, then two, four, eight)


class Requests(NamedTuple):
    """What every pod asks for, (m,) int64, as in openb.Pods."""

    cpu: Ints
    memory: Ints
    gpus: Ints
    milli: Ints
    accepts: Ints  # bits of model codes
    kind: Ints  # the bit of State.kinds, 0 for a pod without GPU


class Typical(NamedTuple):
    """The shapes that fragmentation is measured with, commonest first. (t,), int64 but for the last."""

    cpu: Ints
    gpus: Ints
    milli: Ints
    accepts: Ints
    share: Floats  # part of all pods, adds up to 1


@dataclass(frozen=True, slots=True)
class Policy:
    """`score(state, requests, data, pod, node) -> (points, device)` for a node that can take the pod.

    The most points win; minus infinity refuses the node. `device` is the GPU for less than one GPU, -1 leaves it to best
    fit. `score` is Python that numba can compile, or is compiled; `data` is whatever tuple it needs. It may change the
    node's row of `state` while it looks, and must put it back.
    """

    score: Callable[..., Any]
    data: tuple[Any, ...] = ()
    kind: Ints | None = None  # (m,) of the pods, to take the place of Requests.kind


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. (k,) int64, one for each arrival."""

    node: Ints  # -1: dropped
    devices: Ints  # bits of the node's GPUs
    arrived: Ints  # GPU-milli asked for so far
    used: Ints  # GPU-milli allocated so far
    gpus: int  # of the cluster

    def curve(self) -> Floats:
        """(131,): mean allocation in percent over the arrivals whose demand rounds to 0..130 %, as it was published."""
        percent = np.round(self.arrived / self.gpus / 10)
        allocated = np.round(self.used / self.gpus / 10, 2)

        def at(whole: int) -> float:
            for within in (0, 1):  # a large pod may step over a percentage
                near = allocated[np.abs(percent - whole) <= within]
                if len(near):
                    return float(near.mean())
            return math.nan

        return np.round(np.array([at(whole) for whole in range(LAST_PERCENT + 1)]), 2)


_NAMES = ("random", "dot_product", "clustering", "packing", "best_fit", "fgd")
SCORES: Final = {name: f"{ours}_score" for name, ours in zip(openb.POLICIES, _NAMES, strict=True)}
CALLED: Final = ("place_all", "filtered", "bind")  # once a pod or less; the others are put into their callers
_KERNELS: Final[list[str]] = []


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function of this module to be compiled before the first run."""
    _KERNELS.append(function.__name__)
    return function


@functools.cache
def compile_kernels() -> Callable[..., Any]:
    """Put compiled functions in the place of those marked; hands out numba's compiler. RuntimeError without numba."""
    try:
        import numba
    except ImportError as error:
        raise RuntimeError("the replica needs numba, which is in tests/requirements.txt") from error
    for name in _KERNELS:
        globals()[name] = numba.njit(globals()[name], forceinline=name not in CALLED, error_model="numpy")
    return numba.njit


@functools.cache
def _compiled(function: Callable[..., Any]) -> Any:
    compiler = compile_kernels()
    return function if hasattr(function, "py_func") else compiler(function)


def policy(name: str, pods: Pods) -> Policy:
    """One of openb.POLICIES. FGD is given the typical pods of the trace's own list."""
    compile_kernels()
    return Policy(globals()[SCORES[name]], typical_pods(pods) if name == "FGD" else ())


def run(chosen: Policy, trace: str, seed: int) -> Outcome:
    """The published arrivals of a trace and seed, placed by a policy."""
    order, rank = openb.arrivals(trace, seed), openb.ranks(trace, seed)
    return simulate(chosen, openb.nodes(), openb.pods(trace), order, rank, seed)


def simulate(chosen: Policy, nodes: Nodes, pods: Pods, order: Ints, rank: Ints, seed: int = 0) -> Outcome:
    """Place the pods `order` (indices, (k,)) one by one on empty nodes; `rank` (n,) parts equal scores.

    `seed` is that of Random's choices; the others make none.
    """
    left = (nodes.cpu_milli.copy(), nodes.memory_mib.copy(), nodes.gpu_milli())
    state = State(*left, nodes.gpus, nodes.model, np.zeros(len(nodes.gpus), dtype=np.int64))
    asked = requests(pods, chosen.kind)
    node, devices = place_all(state, asked, order, rank, _compiled(chosen.score), chosen.data, seed)
    demand = pods.demand[order]
    used = np.cumsum(np.where(node >= 0, demand, 0))
    return Outcome(node, devices, np.cumsum(demand), used, int(nodes.gpus.sum()))


def requests(pods: Pods, kind: Ints | None = None) -> Requests:
    if kind is None:
        kind = np.where(pods.gpu_milli < FULL, 1, 2 * pods.gpus) * (pods.gpus > 0)
    return Requests(pods.cpu_milli, pods.memory_mib, pods.gpus, pods.gpu_milli, pods.accepts, kind)


def typical_pods(pods: Pods) -> Typical:
    """The commonest shapes (CPU, GPU-milli, GPUs, models) until they make up 95 % of the pods; the larger one first
    where two are equally common. Pods without GPU count too."""
    table = np.stack([pods.cpu_milli, pods.gpu_milli, pods.gpus, pods.spec])
    shapes, first, counts = np.unique(table, axis=1, return_index=True, return_counts=True)
    commonest = np.lexsort((*shapes[::-1], counts))[::-1]
    reached = np.cumsum(counts[commonest])
    kept = int(np.searchsorted(reached, POPULAR * table.shape[1] / 100)) + 1
    shown = commonest[:kept]
    share = counts[shown] / table.shape[1]
    if kept < len(commonest):
        share = share / (reached[kept - 1] / table.shape[1])
    cpu, milli, gpus, _ = shapes[:, shown]
    return Typical(cpu.copy(), gpus.copy(), milli.copy(), pods.accepts[first[shown]], share)


@kernel
def place_all(state: State, requests: Requests, order: Ints, rank: Ints, score: Any, data: Any, seed: int) -> Any:
    """The loop of the protocol: filter, score, bind. Returns the node (-1: none) and the GPUs (bits) of each arrival."""
    np.random.seed(seed)
    chosen = np.full(len(order), -1, dtype=np.int64)
    devices = np.zeros(len(order), dtype=np.int64)
    found = np.empty(len(rank), dtype=np.int64)
    for event in range(len(order)):
        pod = order[event]
        best, best_device, most = -1, -1, -np.inf
        for each in range(filtered(state, requests, pod, found)):
            node = found[each]
            points, device = score(state, requests, data, pod, node)
            if points > most or (points == most and best >= 0 and rank[node] < rank[best]):
                best, best_device, most = node, device, points
        if best >= 0:
            chosen[event] = best
            devices[event] = bind(state, requests, pod, best, best_device)
    return chosen, devices


@kernel
def filtered(state: State, requests: Requests, pod: int, found: Ints) -> int:
    """Put the nodes with the CPU, the memory, an accepted model and enough GPUs with that much left into `found`.

    Returns how many there are. One call a pod: numba counts references at a call, which would cost more than the work.
    """
    cpu, memory, gpus, milli = requests.cpu[pod], requests.memory[pod], requests.gpus[pod], requests.milli[pod]
    accepts = requests.accepts[pod]
    count = 0
    for node in range(len(state.gpus)):
        if state.cpu_left[node] < cpu or state.mem_left[node] < memory:
            continue
        if gpus > 0 and (state.gpus[node] < gpus or (accepts >> state.model[node]) & 1 == 0):
            continue
        if gpus == 0 or able(state, node, milli) >= gpus:
            found[count] = node
            count += 1
    return count


@kernel
def able(state: State, node: int, milli: int) -> int:
    """How many GPUs of the node have that much left (1 or more). Places without a GPU have nothing left, so all eight
    are looked at: a loop of fixed length compiles better."""
    count = 0
    for device in range(MOST_GPUS):
        if state.gpu_left[node, device] >= milli:
            count += 1
    return count


@kernel
def bind(state: State, requests: Requests, pod: int, node: int, device: int) -> int:
    """Take what the pod asks for: the named GPU or the tightest for a share, the first idle ones for whole GPUs."""
    state.cpu_left[node] -= requests.cpu[pod]
    state.mem_left[node] -= requests.memory[pod]
    state.kinds[node] |= requests.kind[pod]
    milli = requests.milli[pod]
    taken = 0
    for _ in range(requests.gpus[pod]):
        if device < 0:
            device = tightest(state, node, milli)
        state.gpu_left[node, device] -= milli
        taken |= 1 << device
        device = -1
    return taken


@kernel
def tightest(state: State, node: int, milli: int) -> int:
    """The GPU with the least left that is enough, the first of equals; -1 where there is none."""
    best = -1
    for device in range(MOST_GPUS):
        left = state.gpu_left[node, device]
        if left >= milli and (best < 0 or left < state.gpu_left[node, best]):
            best = device
    return best


@kernel
def left_below(state: State, node: int, milli: int) -> int:
    """GPU-milli left on those GPUs of the node that have less than `milli` left; below ANY: on all."""
    amount = 0
    for device in range(MOST_GPUS):
        if state.gpu_left[node, device] < milli:
            amount += state.gpu_left[node, device]
    return amount


@kernel
def random_score(state: State, requests: Requests, data: Any, pod: int, node: int) -> Points:
    """Any node, any GPU that has enough left."""
    device, met = -1, 0
    if 0 < requests.milli[pod] < FULL:
        for each in range(MOST_GPUS):
            if state.gpu_left[node, each] >= requests.milli[pod]:
                met += 1
                if np.random.randint(0, met) == 0:
                    device = each
    return np.random.random(), device


@kernel
def dot_product_score(state: State, requests: Requests, data: Any, pod: int, node: int) -> Points:
    """Low where what is left points the same way as what is asked for (CPU and all GPUs as two dimensions)."""
    product = (state.cpu_left[node] / MOST_CPU) * (requests.cpu[pod] / MOST_CPU)
    product += (left_below(state, node, ANY) / MOST_GPU) * (requests.gpus[pod] * requests.milli[pod] / MOST_GPU)
    return float(int(TOP * (1.0 - product / 2.0))), -1


@kernel
def clustering_score(state: State, requests: Requests, data: Any, pod: int, node: int) -> Points:
    """Pods of a kind together: nodes with this kind alone, then among others, then empty ones, then the rest."""
    kind, kinds = requests.kind[pod], state.kinds[node]
    if kinds == kind:
        quarter = 3
    elif kinds & kind:
        quarter = 2
    elif kinds == 0:
        quarter = 1
    else:
        quarter = 0
    points = TOP // 4 * (MOST_GPU - left_below(state, node, ANY)) // MOST_GPU + quarter * TOP // 4
    return float(points if kind else 0), -1


@kernel
def packing_score(state: State, requests: Requests, data: Any, pod: int, node: int) -> Points:
    """GPUs in use first (the fuller the better), then idle GPUs of nodes in use, then idle nodes (the smaller)."""
    idle, milli, points = able(state, node, FULL), requests.milli[pod], 0
    if milli > 0 and idle == state.gpus[node]:
        points = max(TOP // 3 - idle, idle)
    elif milli > 0:
        left = state.gpu_left[node, tightest(state, node, milli)]
        if left == FULL:
            points = max(TOP // 2 - requests.gpus[pod], TOP // 3)
        else:
            points = max(TOP - left * 100 // FULL // 10, TOP // 2)
    return float(points), -1


@kernel
def best_fit_score(state: State, requests: Requests, data: Any, pod: int, node: int) -> Points:
    """High where little CPU and GPU would be left, half a point each."""
    left = (state.cpu_left[node] - requests.cpu[pod]) / MOST_CPU * 0.5
    left += (left_below(state, node, ANY) - requests.gpus[pod] * requests.milli[pod]) / MOST_GPU * 0.5
    return float(int((1.0 - left) * TOP)), -1


@kernel
def fgd_score(state: State, requests: Requests, typical: Typical, pod: int, node: int) -> Points:
    """High where fragmentation falls the most; a share tries every GPU of the node."""
    before = fragmentation(state, typical, node)
    milli = requests.milli[pod]
    best, best_device = -1.0, -1
    state.cpu_left[node] -= requests.cpu[pod]
    if 0 < milli < FULL:
        for device in range(MOST_GPUS):
            if state.gpu_left[node, device] >= milli:
                state.gpu_left[node, device] -= milli
                points = gradient_points(before, fragmentation(state, typical, node))
                state.gpu_left[node, device] += milli
                if points > best:
                    best, best_device = points, device
    else:
        taken = take_idle(state, node, requests.gpus[pod])
        best = gradient_points(before, fragmentation(state, typical, node))
        for device in range(MOST_GPUS):
            if (taken >> device) & 1:
                state.gpu_left[node, device] = FULL
    state.cpu_left[node] += requests.cpu[pod]
    return best, best_device


@kernel
def take_idle(state: State, node: int, wanted: int) -> int:
    """Take the first idle GPUs; returns them as bits."""
    taken = 0
    for device in range(MOST_GPUS):
        if wanted > 0 and state.gpu_left[node, device] == FULL:
            state.gpu_left[node, device] = 0
            taken |= 1 << device
            wanted -= 1
    return taken


@kernel
def gradient_points(before: float, after: float) -> float:
    """A logistic curve over the fall in fragmentation (milli), cut to whole points."""
    return float(int(1.0 / (1.0 + math.exp(-(before - after) / 1000.0)) * TOP))


@kernel
def fragmentation(state: State, typical: Typical, node: int) -> float:
    """GPU-milli of the node that a typical pod could not use, in the mean over typical pods.

    What a pod can't use: everything where the node can't take it or it wants no GPU; otherwise the GPUs too full for
    it. The parts are added up by cause, as they were in the published runs: the last bit decides between two points.
    """
    total = left_below(state, node, ANY)
    no_gpu_no_cpu = no_gpu = no_cpu = unasked = unasked_no_cpu = other_model = 0.0
    for shape in range(len(typical.cpu)):
        has_cpu = state.cpu_left[node] >= typical.cpu[shape]
        milli, share = typical.milli[shape], typical.share[shape]
        if milli == 0 and has_cpu:
            unasked += share * total
        elif milli == 0:
            unasked_no_cpu += share * total
        elif (typical.accepts[shape] >> state.model[node]) & 1 == 0:
            other_model += share * total
        elif able(state, node, milli) < typical.gpus[shape]:
            if has_cpu:
                no_gpu += share * total
            else:
                no_gpu_no_cpu += share * total
        elif has_cpu:
            no_gpu += share * left_below(state, node, milli)
        else:
            no_cpu += share * total
    return no_gpu_no_cpu + no_gpu + no_cpu + unasked + unasked_no_cpu + other_model
