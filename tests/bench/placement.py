"""How full each policy fills a real fleet: the protocol of the FGD paper on 17 traces, compared with the published runs.

    python -m tests.bench.placement [--traces default ...] [--seeds 42 ...] [--policies Prices FGD ...] [--bounds 3]

Prints one JSON object: by trace the mean allocation at 130 % of arrived demand in percent, for each policy over the
seeds; `published` the same of the paper's runs, `equal` how many runs of a baseline came out as published to 2 decimals,
`bound` (of the first so many seeds) what no policy without migration or refusal could pass. `Prices` is the score of
scheduler/engine (prices.py and priced.py) with one set of weights for all traces; the others are fgd_replica's. Progress
goes to stderr. Everything takes about half an hour; FGD alone takes most of that.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final

import numpy as np

from scheduler.engine.prices import PARTS, Prices, Stock, Workload, prices
from tests.bench import bound, fgd_replica, loss, openb
from tests.bench.fgd_replica import Outcome, Points, Policy, Requests, State
from tests.bench.openb import GPU_MILLI, Floats, Ints, Nodes, Pods

OURS: Final = "Prices"
UNIT: Final = GPU_MILLI // PARTS  # milli of a hundredth of a GPU
FINE: Final = 1_000_000  # points of a GPU: nodes that are equal but for rounding are equal
AT: Final = 130

shortage: Any = loss.shortage  # compiled before the first run
cheapest_card: Any = loss.cheapest_card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", nargs="+", choices=openb.TRACES, default=openb.TRACES, metavar="TRACE")
    parser.add_argument("--seeds", nargs="+", type=int, choices=openb.SEEDS, default=openb.SEEDS, metavar="SEED")
    parser.add_argument("--policies", nargs="+", choices=(OURS, *openb.POLICIES), default=(OURS, *openb.POLICIES))
    many = range(len(openb.SEEDS) + 1)
    parser.add_argument(
        "--bounds", type=int, default=3, choices=many, metavar="N", help="seeds of each trace that get an upper bound"
    )
    asked = parser.parse_args()
    print(json.dumps(measure(asked), indent=1))


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    found = {trace: _trace(trace, asked) for trace in asked.traces}
    names = asked.policies
    baselines = [name for name in names if name not in (OURS, "Random")]
    plain = [trace for trace in found if not trace.startswith("gpuspec")]
    return {
        "seeds": list(asked.seeds),
        "alloc_at": AT,
        "mean": {name: _mean(row["alloc"][name] for row in found.values()) for name in names},
        "published_mean": {name: _mean(row["published"][name] for row in found.values()) for name in openb.POLICIES},
        "bound_mean": _mean(row["bound"] for row in found.values()) if asked.bounds else None,
        "above_published_fgd_on": sum(row["alloc"].get(OURS, 0) > row["published"]["FGD"] for row in found.values()),
        "equal_to_published": sum(found[trace]["equal"][name] for trace in plain for name in baselines),
        "of_runs": len(plain) * len(baselines) * len(asked.seeds),
        "traces": found,
    }


def _mean(numbers: Any) -> float:
    return round(float(np.mean(list(numbers))), 3)


def _trace(trace: str, asked: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"alloc": {}, "published": {}, "equal": {}}
    nodes, pods = openb.nodes(), openb.pods(trace)
    for name in openb.POLICIES:
        row["published"][name] = _mean(openb.published(name, trace, seed)[AT] for seed in asked.seeds)
    runs: dict[str, list[Outcome]] = {}
    for name in asked.policies:
        start = time.perf_counter()
        chosen = policy(nodes, pods) if name == OURS else fgd_replica.policy(name, pods)
        runs[name] = [fgd_replica.run(chosen, trace, seed) for seed in asked.seeds]
        ends = [run.curve()[AT] for run in runs[name]]
        row["alloc"][name] = _mean(ends)
        if name != OURS:
            known = (openb.published(name, trace, seed)[AT] for seed in asked.seeds)
            same = [abs(ours - theirs) < 0.005 for ours, theirs in zip(ends, known, strict=True)]
            row["equal"][name] = int(np.count_nonzero(same))
        note = f"{trace} {name}: {row['alloc'][name]} after {time.perf_counter() - start:.1f} s"
        print(note, file=sys.stderr, flush=True)
    if asked.bounds:
        reference = runs.get(OURS) or next(iter(runs.values()))
        orders = [openb.arrivals(trace, seed) for seed in asked.seeds[: asked.bounds]]
        row["bound"] = _mean(bound.upper_bound(nodes, pods, *pair) for pair in zip(orders, reference, strict=False))
    return row


def policy(nodes: Nodes, pods: Pods) -> Policy:
    """The score of the engine, for a replica that knows the trace's own list of pods, as it knows it for FGD."""
    compile_kernels()
    found = prices_of(nodes, pods)
    return Policy(score, (found.worth[0], found.need[0], found.hinges, found.host))


def compile_kernels() -> None:
    """Put compiled functions in the place of those that `score` calls."""
    compiler = fgd_replica.compile_kernels()
    for name in ("shortage", "cheapest_card", "lost_by"):
        if not hasattr(globals()[name], "py_func"):
            globals()[name] = compiler(globals()[name], forceinline=True, error_model="numpy")


def prices_of(nodes: Nodes, pods: Pods) -> Prices:
    card, cards = np.array([GPU_MILLI]), np.array([nodes.gpus.sum()])
    return prices(workload_of(pods), Stock(card, cards, int(nodes.cpu_milli.sum()), int(nodes.memory_mib.sum())))


def workload_of(pods: Pods, form: Ints | None = None) -> Workload:
    """How often each shape stands in the trace; `form` of each pod, None = containers. A milli of a GPU stands for a
    MiB of a card that has 1000."""
    forms = np.zeros_like(pods.gpus) if form is None else form
    table = np.stack([pods.cpu_milli, pods.memory_mib, pods.gpus, pods.gpu_milli, forms])
    (cpu, memory, gpus, milli, forms), count = np.unique(table, axis=1, return_counts=True)
    return Workload(cpu.astype(float), memory.astype(float), gpus, milli, count.astype(float), forms)


def score(state: State, requests: Requests, data: tuple[Floats, ...], pod: int, node: int) -> Points:
    """Minus what the node loses, in millionths of a GPU."""
    lost, device = lost_by(state, requests, data, pod, node)
    return -np.rint(lost * FINE), device


def lost_by(state: State, requests: Requests, data: tuple[Floats, ...], pod: int, node: int) -> Points:
    """What the node loses by a container, in GPUs, and the GPU that a share takes."""
    worth, need, hinges, host = data
    cpu, memory, gpus, milli = state.cpu_left[node], state.mem_left[node], requests.gpus[pod], requests.milli[pod]
    needed = 0.0
    for each in range(openb.MOST_GPUS):
        needed += need[state.gpu_left[node, each] // UNIT]
    lost, device, after = 0.0, -1, needed
    if gpus == 1:
        lost, device = cheapest_card(state.gpu_left[node], UNIT, milli, worth)
        left = state.gpu_left[node, device]
        after += need[(left - milli) // UNIT] - need[left // UNIT]
    elif gpus > 1:
        lost = gpus * (worth[PARTS] - worth[0])
        after -= gpus * need[PARTS]
    lost += shortage(cpu - requests.cpu[pod], memory - requests.memory[pod], after, hinges, host)
    lost -= shortage(cpu, memory, needed, hinges, host)
    return lost, device


if __name__ == "__main__":
    main()
