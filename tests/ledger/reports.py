"""Reports as the API hands them to ledger.telemetry: one card of node n1, with changes."""

from __future__ import annotations

from typing import Any

from ledger.clock import database_now

TOP = ("boot_id", "sent_at", "faults", "earlier", "results", "links", "virtual", "node")


def report(sequence: int, **values: Any) -> dict[str, Any]:
    """`values` of the report itself, or else of its card, whose temperature is its sequence."""
    top = {name: values.pop(name) for name in TOP if name in values}
    card = {"uuid": "n1-card-0", "slot": 0, "model": "A100", "memory_mib": 16_000, "temperature_c": sequence}
    return {
        "hostname": "n1",
        "boot_id": "boot-1",
        "sequence": sequence,
        "sent_at": database_now(),
        "virtual": False,
        "links": [],
        "faults": [],
        "node": {"cpu_milli": 1, "host_memory_mib": 1},
        "cards": [card | values],
    } | top
