"""The machine itself: its names, its sizes, and virtual cards where it has no NVIDIA card.

A virtual card is a share of the host's memory under a stable name, always labelled virtual. It exists so that the
whole path can be tried anywhere. Never next to real cards: who decides that is observe.py. Reads only.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any, Final

from scheduler.agent.model import Card

DEFAULT_CARDS: Final = 4
MAX_CARDS: Final = 64
MODEL: Final = "virtual-cpu"
STEP_MIB: Final = 256
NAMESPACE: Final = uuid.UUID("6f0c5b1e-9d0e-5c59-8a55-7c2a4d1b9e10")  # ours; changing it renames every virtual card
NVIDIA_VENDOR: Final = "0x10de"
DISPLAY_CLASS: Final = "0x03"  # PCI base class of VGA and 3D controllers
GIVEN_AWAY: Final = "vfio-pci"  # the driver of a card that belongs to a virtual machine
PLAUSIBLE_C: Final = range(-50, 201)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def up_s() -> int:
    """Whole seconds since the boot, also those asleep; no change of the clock moves it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def node_facts(driver_version: str | None, nvml_version: str | None) -> dict[str, Any]:
    """`pci_cards`: NVIDIA cards on the bus that this machine itself should drive; None where the bus can't be read."""
    return {
        "cpu_milli": (os.cpu_count() or 1) * 1000,
        "host_memory_mib": host_memory_mib(),
        "kernel": os.uname().release,
        "driver_version": driver_version,
        "nvml_version": nvml_version,
        "pci_cards": nvidia_cards(),
    }


def host_memory_mib() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    raise OSError("/proc/meminfo has no MemTotal")


def machine_name(hostname: str, path: str = "/etc/machine-id") -> str:
    """The machine-id, which survives a change of the host name; the host name where there is none."""
    try:
        return Path(path).read_text(encoding="ascii").strip() or hostname
    except (OSError, UnicodeDecodeError):
        return hostname


def card_memory_mib(host_mib: int, count: int) -> int:
    """Half of the host's memory, shared out evenly in steps of 256 MiB (less than a step: in MiB)."""
    each = host_mib // 2 // count
    return each // STEP_MIB * STEP_MIB or max(each, 1)


def virtual_cards(hostname: str, count: int, memory_mib: int | None) -> tuple[Card, ...]:
    if count == 0:
        return ()
    memory = memory_mib or card_memory_mib(host_memory_mib(), count)
    machine = machine_name(hostname)
    return tuple(
        Card(
            uuid=f"VIRT-{uuid.uuid5(NAMESPACE, f'{machine}:{slot}')}",
            slot=slot,
            serial=None,
            pci=None,
            model=MODEL,
            memory_mib=memory,
        )
        for slot in range(count)
    )


def nvidia_cards(root: str = "/sys/bus/pci/devices") -> int | None:
    """NVIDIA display and 3D controllers on the PCI bus, with a driver or without, but not those that were given to a
    virtual machine. None: there is no such folder to look in."""
    try:
        devices = list(Path(root).iterdir())
    except OSError:
        return None
    return sum(_is_nvidia_card(device) for device in devices)


def _is_nvidia_card(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text(encoding="ascii").strip()
        device_class = (device / "class").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    if vendor != NVIDIA_VENDOR or not device_class.startswith(DISPLAY_CLASS):
        return False
    try:
        return (device / "driver").readlink().name != GIVEN_AWAY
    except OSError:
        return True  # no driver holds it


def host_temperature_c(root: str = "/sys/class/thermal") -> int | None:
    """The hottest sensor of the host, or None where it has none that can be read."""
    found = []
    for zone in Path(root).glob("thermal_zone*"):
        try:
            celsius = int((zone / "temp").read_text(encoding="ascii")) // 1000
        except (OSError, ValueError):
            continue
        if celsius in PLAUSIBLE_C:
            found.append(celsius)
    return max(found, default=None)
