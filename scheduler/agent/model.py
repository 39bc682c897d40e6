"""The shapes of one report: cards, links, faults. Plain frozen data; `dataclasses.asdict` gives the JSON.

Units: MiB, milliwatts, degrees Celsius, Gbit/s. None means "this machine can't tell", which is never the same as 0.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

AGENT_VERSION: Final = "1.1"
MAX_MESSAGE: Final = 500  # characters of a fault's message or a card's error
MAX_NAME: Final = 64  # characters of a process's name; Linux keeps 15


@dataclass(frozen=True, slots=True)
class Ecc:
    volatile_uncorrected: int | None = None
    volatile_corrected: int | None = None
    aggregate_uncorrected: int | None = None
    remapped_pending: bool | None = None
    remapped_failure: bool | None = None
    remapped_correctable: int | None = None  # rows remapped for errors that could be corrected
    remapped_uncorrectable: int | None = None


@dataclass(frozen=True, slots=True)
class MigDevice:
    uuid: str
    memory_mib: int | None
    profile: str | None


@dataclass(frozen=True, slots=True)
class Mig:
    enabled: bool | None = None
    devices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """`member`: what the driver that started it calls it; None for a process that no driver started."""

    pid: int
    memory_mib: int | None
    member: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """`uuid` is the identity. `slot` is the index NVML gave it this time and is only for display."""

    uuid: str
    slot: int
    serial: str | None
    pci: str | None
    model: str
    memory_mib: int | None
    memory_used_mib: int | None = None
    temperature_c: int | None = None
    utilisation_pct: int | None = None
    tensor_pct: int | None = None  # how long its tensor cores were busy since the last look
    memory_busy_pct: int | None = None  # how long its memory was read or written
    power_mw: int | None = None
    slowdown: tuple[str, ...] | None = None  # why its clocks are held down: thermal, power, other
    nvlink_errors: int | None = None  # all error counters of all its NVLink ports together
    reset_required: bool = False
    ecc: Ecc = Ecc()
    mig: Mig = Mig()
    processes: tuple[Process, ...] | None = None
    lost: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """The nearest path between two cards. `kind`: nvlink, pcie_switch, pcie_host, numa or system."""

    a: str
    b: str
    kind: str
    gbps: int | None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happened once. `id` is stable: the same event read twice has the same id."""

    id: str
    kind: str  # xid, ecc, correctable, nvlink or lost
    code: int | None
    card_uuid: str | None
    pci: str | None
    at: str
    message: str


def now_iso() -> str:
    return dt.datetime.now(dt.UTC).isoformat()


def pci_address(bus_id: str) -> str | None:
    """`00000000:3B:00.0`, `0000:3b:00` or `PCI:0000:3b:00` as `0000:3b:00.0`, so that all sources can be joined."""
    parts = bus_id.strip().lower().removeprefix("pci:").split(":")
    try:
        domain, bus = int(parts[0], 16), int(parts[1], 16)
        device, _, function = parts[2].partition(".")
        return f"{domain:04x}:{bus:02x}:{int(device, 16):02x}.{int(function or '0', 16)}"
    except (IndexError, ValueError):
        return None


def plain(text: str) -> str:
    """One line of printable text of bounded length: messages come from drivers and from other programs."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_MESSAGE]).strip()
