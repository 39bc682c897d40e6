"""Which card reaches which, and how: NVLink first, else the nearest PCIe ancestor. Reads only, keeps nothing.

A card on an NVSwitch sees the switch as its peer, not the other card, so ports to a switch count for every pair whose
two cards both have some. Whether peers may really talk over NVLink is NVML's own word (the P2P status).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from scheduler.agent.model import Card, Link, pci_address

# The common ancestor of two cards, as NVML counts it.
ANCESTORS: Final = {
    0: "pcie_switch",  # on one board
    10: "pcie_switch",
    20: "pcie_switch",  # several switches, no host bridge between
    30: "pcie_host",
    40: "numa",
    50: "system",
}


@dataclass(frozen=True, slots=True)
class Ports:
    """The active NVLink ports of one card: peers by PCI address, how many lead to a switch, speed of one."""

    peers: tuple[str | None, ...] = ()
    switched: int = 0
    mbytes: int | None = None  # a second, as NVML counts


def read_links(lib: Any, cards: Sequence[tuple[Card, Any]]) -> Iterator[Link]:
    """One link a pair, ordered by slot. A pair about which NVML says nothing is left out."""
    if len(cards) < 2:
        return
    ports = {card.uuid: _ports(lib, handle) for card, handle in cards}
    for (a, handle_a), (b, handle_b) in combinations(cards, 2):
        count = _lanes(ports[a.uuid], ports[b.uuid], b.pci)
        status = _quiet(lib, lib.nvmlDeviceGetP2PStatus, handle_a, handle_b, lib.NVML_P2P_CAPS_INDEX_NVLINK)
        if status == lib.NVML_P2P_STATUS_OK or (status is None and count):
            yield Link(a.uuid, b.uuid, "nvlink", _gbps(count, ports[a.uuid].mbytes, ports[b.uuid].mbytes))
            continue
        kind = ANCESTORS.get(_quiet(lib, lib.nvmlDeviceGetTopologyCommonAncestor, handle_a, handle_b))
        if kind:
            yield Link(a.uuid, b.uuid, kind, None)


def _quiet(lib: Any, call: Callable[..., Any], *args: Any) -> Any:
    """A card lost between two calls only loses its links here; the card itself was read already."""
    try:
        return call(*args)
    except lib.NVMLError:
        return None


def _lanes(a: Ports, b: Ports, pci_b: str | None) -> int:
    direct = sum(1 for peer in a.peers if peer is not None and peer == pci_b)
    return direct or min(a.switched, b.switched)


def _gbps(count: int, *mbytes: int | None) -> int | None:
    known = [speed for speed in mbytes if speed is not None]
    return count * min(known) * 8 // 1000 if count and len(known) == len(mbytes) else None


def _ports(lib: Any, handle: Any) -> Ports:
    peers: list[str | None] = []
    switched = 0
    for port in range(lib.NVML_NVLINK_MAX_LINKS):
        try:
            active = lib.nvmlDeviceGetNvLinkState(handle, port)
        except lib.NVMLError as error:
            if port == 0 or error.value == lib.NVML_ERROR_INVALID_ARGUMENT:
                break  # no NVLink at all, or past the last port
            continue
        if not active:
            continue
        if _quiet(lib, lib.nvmlDeviceGetNvLinkRemoteDeviceType, handle, port) == lib.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switched += 1
            continue
        remote = _quiet(lib, lib.nvmlDeviceGetNvLinkRemotePciInfo, handle, port)
        peers.append(_address(remote))
    return Ports(tuple(peers), switched, _port_mbytes(lib, handle) if peers or switched else None)


def _address(remote: Any) -> str | None:
    if remote is None:
        return None
    bus_id = remote.busId
    return pci_address(bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else str(bus_id))


def _port_mbytes(lib: Any, handle: Any) -> int | None:
    values = _quiet(lib, lib.nvmlDeviceGetFieldValues, handle, [lib.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
    if values is None or values[0].nvmlReturn != lib.NVML_SUCCESS or not values[0].value.uiVal:
        return None
    return int(values[0].value.uiVal)
