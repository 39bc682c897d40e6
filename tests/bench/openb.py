"""Reads the bundled openb-2023 data (tests/data/openb2023): nodes, pods, arrival orders, tie ranks, published curves.

The data and their licence are described in the README.md beside them. Everything is handed out as fresh arrays of
int64 or float64, so that a caller may change them and a compiled function meets one type only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FOLDER: Final = Path(__file__).resolve().parents[1] / "data" / "openb2023"
TRACES: Final = (
    *("default", "cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)
SEEDS: Final = tuple(range(42, 52))
POLICIES: Final = ("Random", "DotProd", "Clustering", "Packing", "BestFit", "FGD")
MOST_GPUS: Final = 8  # of a node, in every list
GPU_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Nodes:
    """The GPU nodes in the order of the published list. All arrays (n,) int64."""

    cpu_milli: Ints  # 1/1000 core
    memory_mib: Ints  # host memory
    gpus: Ints  # 1..8
    model: Ints  # index into `models`
    models: tuple[str, ...]

    def gpu_milli(self) -> Ints:
        """(n, 8): 1000 for each GPU that is there, 0 beyond."""
        return np.where(np.arange(MOST_GPUS) < self.gpus[:, None], GPU_MILLI, 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of one trace in the order of the published list (by name). All arrays (m,) int64."""

    cpu_milli: Ints
    memory_mib: Ints  # host memory
    gpus: Ints  # 0, 1, 2, 4 or 8
    gpu_milli: Ints  # for each GPU; below 1000 only where gpus == 1; 0 where there is no GPU
    spec: Ints  # index into `specs`
    accepts: Ints  # bit i is set: a node of models[i] will do; all bits where any will do
    specs: tuple[str, ...]  # such as "P100|T4", sorted; the first is "" for any

    @property
    def demand(self) -> Ints:
        """GPU-milli that each pod asks for in all."""
        return self.gpus * self.gpu_milli


def nodes() -> Nodes:
    with np.load(FOLDER / "nodes.npz") as file:
        columns = {name: file[name].astype(np.int64) for name in ("cpu_milli", "memory_mib", "gpus", "model")}
        return Nodes(**columns, models=tuple(file["models"].tolist()))


def pods(trace: str) -> Pods:
    _known(trace, TRACES)
    with np.load(FOLDER / "pods.npz") as file:
        table = file[trace].astype(np.int64)
        specs: tuple[str, ...] = tuple(file["specs"].tolist())
    with np.load(FOLDER / "nodes.npz") as file:
        models: list[str] = file["models"].tolist()
    bits = np.array([_bits(spec, models) for spec in specs], dtype=np.int64)
    cpu_milli, memory_mib, gpus, gpu_milli, spec = np.ascontiguousarray(table)
    return Pods(cpu_milli, memory_mib, gpus, gpu_milli, spec, bits[spec], specs)


def arrivals(trace: str, seed: int) -> Ints:
    """Indices into `pods(trace)` in the order of arrival, until demand is 130 % of the GPUs.

    The order depends on the number of pods and the seed alone; traces of equal length share it and stop at their own.
    """
    _known(trace, TRACES)
    with np.load(FOLDER / "pods.npz") as file:
        rows = file[trace].shape[1]
    with np.load(FOLDER / "arrivals.npz") as file:
        length = int(file[f"length_{trace}"][_seed(seed)])
        order: Ints = file[f"order_{rows}_{seed}"][:length].astype(np.int64)
    return order


def ranks(trace: str, seed: int) -> Ints:
    """(n,): of nodes with equal scores the one with the lowest rank is taken. gpuspec traces have those of default."""
    _known(trace, TRACES)
    name = "default" if trace.startswith("gpuspec") else trace
    with np.load(FOLDER / "arrivals.npz") as file:
        rank: Ints = file[f"ranks_{name}"][_seed(seed)].astype(np.int64)
    return rank


def published(policy: str, trace: str, seed: int) -> Floats:
    """(131,): GPU allocation in percent, to 2 decimals, at 0, 1, ... 130 % of arrived demand."""
    _known(trace, TRACES)
    _known(policy, POLICIES)
    curve: Floats = _curves()[TRACES.index(trace), POLICIES.index(policy), _seed(seed)] / 100
    return curve


@functools.cache
def _curves() -> npt.NDArray[np.uint16]:
    """(trace, policy, seed, 131) in hundredths of a percent."""
    with np.load(FOLDER / "published.npz") as file:
        curves: npt.NDArray[np.uint16] = file["alloc_centi"]
    return curves


def _bits(spec: str, models: list[str]) -> int:
    if not spec:
        return (1 << len(models)) - 1
    return sum(1 << models.index(model) for model in set(spec.split("|")))


def _seed(seed: int) -> int:
    if seed not in SEEDS:
        raise ValueError(f"there is no seed {seed}; there are {SEEDS[0]} to {SEEDS[-1]}")
    return SEEDS.index(seed)


def _known(name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ValueError(f"there is no {name!r}; there are: {', '.join(names)}")
