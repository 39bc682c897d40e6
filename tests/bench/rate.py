"""How many decisions a second the engine makes on one core, by its rule of prices with all filters on.

    python -m tests.bench.rate [--copies 1 8 82] [--trace default] [--seed 42] [--calls 100000] [--desk 2000] [--no-fgd]

The fleet is that of openb-2023, so many times; its arrivals of one seed are replayed as often, up to 130 % of the cards.
A refused request is a decision too. Prints one JSON object; for each size of fleet:

* `batch`: all requests in one call, by the clock and by the time of the processor, which tells more on a busy machine;
  `with_boards` counts in that every node is first judged for every shape, which the portal does once and keeps in step
* `calls`: the first --calls of them, one call from Python each, with percentiles in microseconds
* `fair`: all of them in one call again, each of one of --projects projects with a guarantee, a limit and a weight, in the
  order of their fair share (fair_batch.py), and then the search for who would be stopped for one that is owed its cards
* `desk`: the first --desk of them as jobs, each to a placement with its cards' intervals, as the portal decides

and once the direct replica of FGD (fgd_replica.py, one copy, nothing cached) in the same process; `times_fgd` is how much
faster the batch of the first size is. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from ledger.vocabulary import Form, JobKind
from scheduler.engine.batch import Batch, Decided, warm
from scheduler.engine.compiling import COMPILED
from scheduler.engine.fair_batch import FairlyDecided, decide_fairly
from scheduler.engine.fairness import Shares
from scheduler.engine.fleet import Fleet
from scheduler.engine.future import with_stays
from scheduler.engine.plan import Desk
from scheduler.engine.preempt import Cause, Terms, propose
from scheduler.engine.room import Scene
from scheduler.engine.score import LEAST_LOSS
from scheduler.engine.shape import Shape, shapes_of
from scheduler.engine.ties import node_ranks
from scheduler.engine.types import JobView, NodeView, Standing, Stay, Tenant
from tests.bench import fgd_replica, openb
from tests.bench.fgd_replica import Outcome
from tests.bench.openb import GPU_MILLI, Floats, Ints, Nodes, Pods
from tests.bench.placement import workload_of
from tests.scheduler.engine.fleets import card, container, job, node

COPIES: Final = (1, 8, 82)  # 1,213, 9,704 and 99,466 nodes
TRACES: Final = tuple(trace for trace in openb.TRACES if not trace.startswith("gpuspec"))  # one model or any
PERCENTILES: Final = (50, 99, 99.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", nargs="+", type=partial(at_least, 1), default=COPIES, metavar="N")
    parser.add_argument("--trace", choices=TRACES, default="default", metavar="TRACE")
    parser.add_argument("--seed", type=int, choices=openb.SEEDS, default=openb.SEEDS[0], metavar="SEED")
    parser.add_argument("--calls", type=partial(at_least, 0), default=100_000, metavar="N")
    parser.add_argument("--desk", type=partial(at_least, 0), default=2_000, metavar="N")
    parser.add_argument("--projects", type=partial(at_least, 2), default=100, metavar="N")
    parser.add_argument("--no-fgd", dest="fgd", action="store_false")
    print(json.dumps(measure(parser.parse_args()), indent=1))


def at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    say("compiling")
    warmed = timed(warm)[1]
    sizes = [_size(copies, asked) for copies in asked.copies]
    found: dict[str, Any] = {
        "trace": asked.trace,
        "seed": asked.seed,
        "compiled": COMPILED,
        "compile_s": round(warmed, 2),
        "sizes": sizes,
    }
    if asked.fgd:
        found["fgd"] = _fgd(asked.trace, asked.seed)
        found["times_fgd"] = round(sizes[0]["batch"]["per_cpu_s"] / found["fgd"]["per_cpu_s"], 1)
    return found


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def timed(what: Callable[[], Any]) -> tuple[Any, float, float]:
    """What comes out, seconds, and seconds of the processor."""
    start, busy = time.perf_counter(), time.process_time()
    found = what()
    return found, time.perf_counter() - start, time.process_time() - busy


def _fgd(trace: str, seed: int) -> dict[str, int]:
    """The whole run; a few requests first, so that it is compiled."""
    say("direct replica of FGD")
    nodes, pods, order, rank = openb.nodes(), openb.pods(trace), openb.arrivals(trace, seed), openb.ranks(trace, seed)
    policy = fgd_replica.policy("FGD", pods)
    fgd_replica.simulate(policy, nodes, pods, order[:10], rank)
    _, took, busy = timed(lambda: fgd_replica.simulate(policy, nodes, pods, order, rank))
    return {"per_s": round(len(order) / took), "per_cpu_s": round(len(order) / busy)}


class Replay:
    """One fleet and what comes to it. `shapes` are all that the trace asks for, `wanted` the arrivals by number."""

    def __init__(self, trace: str, seed: int, copies: int) -> None:
        self.nodes, self.pods = openb.nodes(), openb.pods(trace)
        table = np.stack([self.pods.cpu_milli, self.pods.memory_mib, self.pods.gpus, self.pods.gpu_milli])
        _, first, of_pod = np.unique(table, axis=1, return_index=True, return_inverse=True)
        self.shapes: list[Shape] = [shape_of(job_of(self.pods, pod, 0)) for pod in first.tolist()]
        self.order = np.tile(openb.arrivals(trace, seed), copies)
        self.wanted: Ints = of_pod.reshape(-1)[self.order]
        self.fleet = fleet_of(self.nodes, self.pods, copies)
        self.ranks = node_ranks(seed, self.fleet.fixed.ids)

    def batch(self) -> Batch:
        return Batch(self.fleet.fork(LEAST_LOSS, self.ranks), self.shapes)

    def alloc(self, found: Decided) -> float:
        """At the end, in percent: alloc@130 of the protocol."""
        demand = self.pods.demand[self.order[: len(found.rows)]]
        used = np.cumsum(np.where(found.rows >= 0, demand, 0))
        gpus = int(self.fleet.fixed.cards.sum())
        return float(Outcome(found.rows, found.columns, np.cumsum(demand), used, gpus).curve()[-1])


def fleet_of(nodes: Nodes, pods: Pods, copies: int = 1) -> Fleet:
    """Containers alone; a GPU is a card of 1000 MiB, because the trace hides how much memory it has."""
    columns = (nodes.gpus, nodes.model, nodes.cpu_milli, nodes.memory_mib)
    views = [
        node(
            n,
            tuple(card(n * openb.MOST_GPUS + s, s, GPU_MILLI, model=nodes.models[model]) for s in range(gpus)),
            **{"zone_forms": frozenset({Form.CONTAINER}), "cpu_milli": cpu, "host_memory_mib": memory},
        )
        for n, (gpus, model, cpu, memory) in enumerate(
            zip(*(np.tile(column, copies).tolist() for column in columns), strict=True)
        )
    ]
    return Fleet(views, {False: workload_of(pods)})


def job_of(pods: Pods, pod: int, number: int) -> JobView:
    ask = container(int(pods.gpus[pod]), int(pods.gpu_milli[pod]))
    return job(number, ask, cpu_milli=int(pods.cpu_milli[pod]), host_memory_mib=int(pods.memory_mib[pod]))


def shape_of(wanted: JobView) -> Shape:
    return shapes_of(wanted, wanted.asks[0])[0]


def _size(copies: int, asked: argparse.Namespace) -> dict[str, Any]:
    say(f"{copies} x openb-2023: the fleet")
    replay = Replay(asked.trace, asked.seed, copies)
    say(f"{copies} x openb-2023: {len(replay.wanted)} decisions")
    row = {
        "nodes": len(replay.fleet),
        "gpus": int(replay.fleet.fixed.cards.sum()),
        "shapes": len(replay.shapes),
        **_batch(replay),
        "fair": fair(replay, asked.projects),
        "calls": summary(_calls(replay, asked.calls)),
        "desk": summary(_desk(replay, asked.desk)),
    }
    say(f"{copies} x openb-2023: {row['batch']['per_s']} decisions a second")
    return row


def _batch(replay: Replay) -> dict[str, Any]:
    batch, boards, _ = timed(replay.batch)
    found, took, busy = timed(lambda: batch.decide(replay.wanted))
    count = len(replay.wanted)
    return {
        "decisions": count,
        "placed": int((found.rows >= 0).sum()),
        "alloc": replay.alloc(found),
        "batch": {
            "per_s": round(count / took),
            "per_cpu_s": round(count / busy),
            "with_boards_per_s": round(count / (took + boards)),
            "boards_s": round(boards, 3),
        },
    }


def standings_of(replay: Replay, projects: int) -> list[Standing]:
    """Half of the cards are guaranteed in all, unevenly; each may hold 0.75 to 1.75 times its part; weights of 1 to 3."""
    part = capacity_of(replay.fleet) // projects
    return [
        Standing(n, False, part * (n % 3) // 2, part * (3 + 2 * (n % 3)) // 4, 1 + n % 3, usage=part * (n % 5))
        for n in range(projects)
    ]


def fair(replay: Replay, projects: int) -> dict[str, Any]:
    """All arrivals dealt out to the projects in turn, decided as one queue."""
    batch, count = replay.batch(), len(replay.wanted)
    milli = np.array([shape.cards * shape.memory_mib for shape in replay.shapes], dtype=np.int64)
    owners = np.arange(count) * 37 % projects
    standings, capacity = standings_of(replay, projects), capacity_of(replay.fleet)
    decide_fairly(replay.batch(), replay.wanted[:10], owners[:10], standings, milli, capacity)  # so that it is compiled
    found, took, busy = timed(lambda: decide_fairly(batch, replay.wanted, owners, standings, milli, capacity))
    placed = found.rows >= 0
    used = int(milli[replay.wanted[found.requests[placed]]].sum())
    return {
        "projects": projects,
        "placed": int(placed.sum()),
        "over_quota": found.over_quota,
        "alloc": round(100 * used / capacity, 2),
        "per_s": round(count / took),
        "per_cpu_s": round(count / busy),
        **stopping(replay, batch, found, owners, standings),
    }


def stopping(
    replay: Replay, batch: Batch, found: FairlyDecided, owners: Ints, standings: list[Standing]
) -> dict[str, Any]:
    """Milliseconds until it is known who is stopped for a job of 4 whole cards, on the fleet full of what was placed;
    all of it is borrowed."""
    views, stays = filled(replay, found)
    fleet = Fleet(views, replay.fleet.workloads)
    tenants = [
        Tenant(n, n, int(owners[n]), False, JobKind.TRAINING, 0, True, float(n % 1000), 0.0) for n in range(len(stays))
    ]
    lent = [replace(one, guaranteed=0, held=capacity_of(fleet)) for one in standings]
    shares = Shares([*lent, Standing(-1, False, 4 * GPU_MILLI)], fleet.capacity())
    wanted = job(10**9, container(4, GPU_MILLI), project_id=-1, kind=JobKind.TRAINING)
    scene = Scene(fleet, (), 10_000.0, 1, LEAST_LOSS)
    checks = min(600, 400_000 // (len(fleet) + 500))
    proposal, took, _ = timed(
        lambda: propose(
            scene, wanted, Cause.GUARANTEE, tenants=tenants, stays=stays, shares=shares, terms=Terms(64, checks)
        )
    )
    return {
        "stop_ms": round(1000 * took, 1),
        "stopped": len(proposal.victims) if proposal else None,
        "questions": proposal.checks if proposal else None,
    }


def capacity_of(fleet: Fleet) -> int:
    return 1000 * int(fleet.fixed.cards.sum())


def filled(replay: Replay, found: FairlyDecided) -> tuple[list[NodeView], list[Stay]]:
    """The fleet with all that was placed, as the book would show it."""
    views, stays = {view.id: view for view in replay.fleet.views}, []
    taken: dict[int, int] = defaultdict(int)
    by_node: dict[int, list[Stay]] = defaultdict(list)
    for number in np.flatnonzero(found.rows >= 0).tolist():
        shape = replay.shapes[replay.wanted[found.requests[number]]]
        view = replay.fleet.views[found.rows[number]]
        cards = []
        for card_id in (one.id for n, one in enumerate(view.cards) if found.columns[number] >> n & 1):
            cards.append((card_id, ((taken[card_id], taken[card_id] + shape.memory_mib),), ()))
            taken[card_id] += shape.memory_mib
        stay = Stay(len(stays), view.id, Form.CONTAINER, 20_000.0, shape.cpu_milli, shape.host_memory_mib, tuple(cards))
        stays.append(stay)
        by_node[view.id].append(stay)
    return [with_stays(view, by_node[view.id]) if by_node[view.id] else view for view in views.values()], stays


def _calls(replay: Replay, most: int) -> Floats:
    """Seconds of each call."""
    batch, wanted = replay.batch(), replay.wanted[:most]
    return each_timed(lambda n: batch.decide(wanted[n : n + 1]), len(wanted))


def _desk(replay: Replay, most: int) -> Floats:
    jobs = [job_of(replay.pods, pod, number) for number, pod in enumerate(replay.order[:most].tolist())]
    desk = Desk(replay.fleet, (), at=0.0, seed=1, rule=LEAST_LOSS)
    return each_timed(lambda n: desk.decide(jobs[n]), len(jobs))


def each_timed(what: Callable[[int], Any], times: int) -> Floats:
    took = np.empty(times + 1, dtype=np.int64)
    took[0] = time.perf_counter_ns()
    for n in range(times):
        what(n)
        took[n + 1] = time.perf_counter_ns()
    return np.diff(took) / 1e9


def summary(seconds: Floats) -> dict[str, Any]:
    if not len(seconds):
        return {"decisions": 0}
    at = dict(zip(PERCENTILES, np.percentile(seconds * 1e6, PERCENTILES).round(1).tolist(), strict=True))
    return {
        "decisions": len(seconds),
        "per_s": round(len(seconds) / float(seconds.sum())),
        **{f"p{percent:g}_us": value for percent, value in at.items()},
    }


if __name__ == "__main__":
    main()
