"""All forms on one pool: how full it gets, and how much of each form finds room, on a trace of the FGD protocol.

    python -m tests.bench.mixed [--trace multigpu50] [--seeds 42 ...] [--readings blocks_on_4_and_8 ...] [--no-zones]

Pods of 8 GPUs are whole machines (an untouched node of 8 GPUs), pods of 4 are aligned blocks of 4, the rest are
containers; a node carries one form until it is empty. Arrivals are those of tests.bench.placement: one pod at a time, no
retry, no migration, no refusal. Two readings of "aligned": a node of 4 GPUs is a block too (`blocks_on_4_and_8`), or
blocks are halves of nodes of 8 alone (`blocks_on_8`); both by the rule of scheduler/engine. `zones_best_fit` divides the
nodes among the forms and takes the best fit in each. Prints one JSON object: by reading the mean and the least
allocation in percent at some percentages of arrived demand, and what came and was missed of each form until 95 % of the
pool was asked for. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final, NamedTuple

import numpy as np

from scheduler.engine import opening, priced
from scheduler.engine.fleet import FORM_CODE, Fleet
from scheduler.engine.prices import PARTS
from scheduler.engine.shape import FORMS
from scheduler.engine.types import NodeView
from tests.bench import fgd_replica, loss, openb, placement
from tests.bench.fgd_replica import Points, Policy, Requests, State
from tests.bench.openb import GPU_MILLI, Floats, Ints, Nodes, Pods
from tests.scheduler.engine.fleets import card, node

ZONES: Final = "zones_best_fit"
UNTOUCHED: Final = 0
CONTAINER, BLOCK, WHOLE = (FORM_CODE[form] for form in FORMS)
IN_BLOCK: Final = 4  # GPUs
READINGS: Final = {"blocks_on_4_and_8": (4, 8), "blocks_on_8": (8,)}  # nodes that are cut, by their GPUs
EARLY: Final = 0.95  # until so much of the pool is asked for, everything should find room
AT: Final = (95, 100, 130)


class Known(NamedTuple):
    """What the score goes by. n nodes, m pods, w shapes of blocks that are told apart."""

    container: tuple[Floats, ...]  # as for placement.lost_by
    price: Floats  # (3, n) of taking an untouched node
    in_blocks: Ints  # (n,) GPUs
    kind: Ints  # (n,)
    who: Ints  # (m,) first index into `kept`
    asked: Floats  # (w, 3), and
    unused: Floats  # (w,) as for loss.block_loss
    kept: Floats  # (s, kinds, w): what places for each shape are worth to others, by who is placed


lost_by: Any = placement.lost_by  # compiled before the first run
idle_cards: Any = loss.idle_cards
block_loss: Any = loss.block_loss
best_fit: Any = fgd_replica.best_fit_score


def forms_of(pods: Pods) -> Ints:
    """(m,) FORM_CODE."""
    return np.select([pods.gpus == openb.MOST_GPUS, pods.gpus == IN_BLOCK], [WHOLE, BLOCK], CONTAINER).astype(np.int64)


def fleet_of(nodes: Nodes, pods: Pods, cut: tuple[int, ...]) -> Fleet:
    """The fleet as the engine sees it, with all drivers and one zone for all forms. A GPU is a card of 1000 MiB, because
    the trace hides how much memory it has."""
    columns = (nodes.gpus, nodes.model, nodes.cpu_milli, nodes.memory_mib)
    views = [
        _node(n, gpus, nodes.models[model], cut, cpu_milli=cpu, host_memory_mib=memory)
        for n, (gpus, model, cpu, memory) in enumerate(zip(*(each.tolist() for each in columns), strict=True))
    ]
    return Fleet(views, {False: placement.workload_of(pods, forms_of(pods) - CONTAINER)})


def _node(id_: int, gpus: int, model: str, cut: tuple[int, ...], **more: int) -> NodeView:
    first = id_ * openb.MOST_GPUS
    blocks = [(first + slot) // IN_BLOCK if gpus in cut else None for slot in range(gpus)]
    cards = (card(first + slot, slot, GPU_MILLI, model=model, block_id=block) for slot, block in enumerate(blocks))
    return node(id_, tuple(cards), **more)


def policy(nodes: Nodes, pods: Pods, cut: tuple[int, ...]) -> Policy:
    """The engine's score on the engine's own prices, for a fleet cut in this way."""
    compile_kernels()
    fleet = fleet_of(nodes, pods, cut)
    prices, found = fleet.prices(False), fleet.openings(False)
    kinds, work = found.kinds, found.blocks
    price = np.stack([found.paid(form, IN_BLOCK, slice(None)) for form in range(len(FORMS))])
    price[WHOLE - CONTAINER] -= priced.shortage(
        prices, nodes.cpu_milli, nodes.memory_mib, nodes.gpus * prices.need[0, PARTS]
    )
    shapes = zip(*(each.tolist() for each in (pods.gpus, pods.cpu_milli, pods.memory_mib)), strict=True)
    spared, who = np.unique([found.spared(*shape) for shape in shapes], axis=0, return_inverse=True)
    known = Known(
        container=(prices.worth[0], prices.need[0], prices.hinges, prices.host),
        price=price,
        in_blocks=kinds.in_blocks[kinds.of_row],
        kind=kinds.of_row,
        who=who.reshape(-1),
        asked=np.stack([work.shapes.cards, work.shapes.cpu_milli, work.shapes.host_memory_mib], axis=1).astype(float),
        unused=opening.IDLE_BLOCK * work.share,
        kept=np.where(spared[:, None], 0.0, work.kept.T),
    )
    return Policy(score, known, forms_of(pods))


def compile_kernels() -> None:
    """Put compiled functions in the place of those that `score` and `zone_score` call."""
    placement.compile_kernels()
    compiler = fgd_replica.compile_kernels()
    globals()["lost_by"] = placement.lost_by
    globals()["best_fit"] = fgd_replica.best_fit_score
    for name in ("idle_cards", "block_loss", "admits", "blocks_lost"):
        if not hasattr(globals()[name], "py_func"):
            globals()[name] = compiler(globals()[name], forceinline=True, error_model="numpy")


def admits(held: int, form: int) -> bool:
    """One form a node; a whole machine takes an untouched one."""
    return held == UNTOUCHED or (held == form and form != WHOLE)


def score(state: State, requests: Requests, known: Known, pod: int, node: int) -> Points:
    """Minus what is lost, in millionths of a GPU; minus infinity where the form has no place."""
    form, held = requests.kind[pod], state.kinds[node]
    if not admits(held, form):
        return -np.inf, -1
    lost, device = 0.0, -1
    if form == CONTAINER:
        lost, device = lost_by(state, requests, known.container, pod, node)
    if form == BLOCK:
        lost = blocks_lost(state, requests, known, pod, node)
    if held == UNTOUCHED:
        lost += known.price[form - CONTAINER, node]
    return -np.rint(lost * placement.FINE), device


def blocks_lost(state: State, requests: Requests, known: Known, pod: int, node: int) -> float:
    """What blocks that may come lose by this one; infinity where there is no idle block."""
    cards = min(idle_cards(state.gpu_left[node], GPU_MILLI), known.in_blocks[node])
    if cards < IN_BLOCK:
        return np.inf
    cpu, memory = state.cpu_left[node], state.mem_left[node]
    kept = known.kept[known.who[pod], known.kind[node]]
    before: float = block_loss(cards, cpu, memory, known.asked, known.unused, kept)
    cpu, memory = cpu - requests.cpu[pod], memory - requests.memory[pod]
    after: float = block_loss(cards - IN_BLOCK, cpu, memory, known.asked, known.unused, kept)
    return after - before


def zones(nodes: Nodes, pods: Pods) -> Policy:
    """Nodes for one form each, with as many GPUs as the trace asks for in it: for whole machines those with the most
    CPU, for blocks of the others those with the most memory for each GPU."""
    compile_kernels()
    form = forms_of(pods)
    wanted = np.bincount(form, pods.demand, WHOLE + 1) / pods.demand.sum() * nodes.gpus.sum()
    zone = np.full(len(nodes.gpus), CONTAINER)
    for each, best, least in (
        (WHOLE, (nodes.memory_mib, -nodes.cpu_milli), openb.MOST_GPUS),
        (BLOCK, (-nodes.memory_mib / nodes.gpus,), IN_BLOCK),
    ):
        order = np.lexsort(best)
        able = order[(nodes.gpus[order] >= least) & (zone[order] == CONTAINER)]
        zone[able[np.cumsum(nodes.gpus[able]) <= wanted[each]]] = each
    return Policy(zone_score, (zone,), form)


def zone_score(state: State, requests: Requests, data: Any, pod: int, node: int) -> Points:
    form = requests.kind[pod]
    if data[0][node] != form or not admits(state.kinds[node], form):
        return -np.inf, -1
    found: Points = best_fit(state, requests, data, pod, node)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", choices=openb.TRACES, default="multigpu50")
    parser.add_argument("--seeds", nargs="+", type=int, choices=openb.SEEDS, default=openb.SEEDS, metavar="SEED")
    parser.add_argument("--readings", nargs="+", choices=READINGS, default=tuple(READINGS))
    parser.add_argument("--zones", action=argparse.BooleanOptionalAction, default=True, help="static zones too")
    print(json.dumps(measure(parser.parse_args()), indent=1))


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    nodes, pods = openb.nodes(), openb.pods(asked.trace)
    found = {name: _measured(policy(nodes, pods, READINGS[name]), asked, name) for name in asked.readings}
    if asked.zones:
        found[ZONES] = _measured(zones(nodes, pods), asked, ZONES)
    return {"trace": asked.trace, "seeds": list(asked.seeds), "early": EARLY, **found}


def _measured(chosen: Policy, asked: argparse.Namespace, name: str) -> dict[str, Any]:
    start = time.perf_counter()
    pods = openb.pods(asked.trace)
    form = forms_of(pods)
    curves, came, found_room = [], np.zeros(WHOLE + 1, dtype=np.int64), np.zeros(WHOLE + 1, dtype=np.int64)
    for seed in asked.seeds:
        ran = fgd_replica.run(chosen, asked.trace, seed)
        curves.append(ran.curve()[list(AT)])
        early = form[openb.arrivals(asked.trace, seed)] * (ran.arrived <= EARLY * ran.gpus * GPU_MILLI)
        came += np.bincount(early, minlength=WHOLE + 1)
        found_room += np.bincount(early[ran.node >= 0], minlength=WHOLE + 1)
    print(f"{name} after {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    row: dict[str, Any] = {
        "alloc": {at: round(float(mean), 2) for at, mean in zip(AT, np.mean(curves, axis=0), strict=True)},
        "least_alloc": {at: round(float(least), 2) for at, least in zip(AT, np.min(curves, axis=0), strict=True)},
    }
    for each in FORMS:
        code = FORM_CODE[each]
        row[each.value] = {
            "came": int(came[code]),
            "missed": int(came[code] - found_room[code]),
            "accepted": round(100 * float(found_room[code]) / max(int(came[code]), 1), 3),
        }
    return row


if __name__ == "__main__":
    main()
