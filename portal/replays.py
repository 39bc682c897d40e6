"""Rows of real traces as jobs for the simulated fleet. Card memory that the trace hides is the assumed figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ledger.fleet import ASSUMED_MEMORY

TRACES: Final[Mapping[str, Path]] = {
    "openb-default": Path(__file__).parent / "fleets" / "openb2023" / "openb_pod_list_default.csv"
}
SHORTEST_S, LONGEST_S = 1.0, 120.0
REFERENCE_MIB = ASSUMED_MEMORY["T4"]  # a pod's gpu_milli is a part of some card; the commonest small one is the T4


def job_of_row(row: Mapping[str, str], project: str, speed: float, index: int) -> dict[str, Any]:
    """A pod of the openb 2023 pod list as a JobInput: shares become MiB of a T4, 8 cards a whole machine or a
    container, the lifetime is divided by `speed` and kept between 1 s and 2 min."""
    cards, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    lifetime = float(row["deletion_time"]) - float(row["scheduled_time"] or row["creation_time"])
    if not math.isfinite(lifetime):
        raise ValueError(f"{lifetime} is no lifetime")
    seconds = min(LONGEST_S, max(SHORTEST_S, lifetime / speed))
    memory = REFERENCE_MIB * milli // 1000 if cards == 1 and milli < 1000 else 0
    asks: list[dict[str, Any]] = [{"form": "container", "nodes": 1, "cards_per_node": cards, "memory_mib": memory}]
    if cards == 8:
        asks = [
            {"form": "whole", "nodes": 1, "cards_per_node": 8},
            {"form": "container", "nodes": 1, "cards_per_node": 8, "after_s": 5},
        ]
    return {
        "project": project,
        "name": f"{row['name']} ({index})",
        "kind": "inference" if row["qos"] == "LS" else "training",
        "asks": asks,
        "cpu_milli": int(row["cpu_milli"]),
        "host_memory_mib": int(row["memory_mib"]),
        "command": ["simulate", "--seconds", f"{seconds:.3f}"],
        "walltime_s": 3600,
        "simulated": True,
    }
