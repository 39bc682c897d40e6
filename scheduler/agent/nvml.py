"""NVIDIA cards through NVML (`pynvml`). Owns the library's life and one reading of every card.

What a card does not support is None, never 0. One broken card must not hide the others, and a driver that stops
answering must not stop the agent, so every reading runs in a thread with a time limit. Writes nothing.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scheduler.agent.model import Card, Ecc, Link, Mig, MigDevice, Process, pci_address, plain
from scheduler.agent.nvml_activity import TensorActivity, nvlink_errors, slowdown, wants_reset
from scheduler.agent.nvml_calls import CardLost, Troubles, optional, text
from scheduler.agent.nvml_links import read_links

MIB: Final = 1 << 20
ASK_AGAIN_S: Final = 1.0  # a reading that is already late holds up the next look only this long
MAX_MODEL: Final = 64  # characters of a model name; NVML allows 95
MIG_PROFILE_MARK: Final = " MIG "  # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"


class NvmlAbsent(Exception):
    """No library, no driver or no card: NVML has nothing to say about this machine."""


class NvmlSilent(Exception):
    """NVML was asked and has not answered in time: nothing is known, which is not the same as lost."""


@dataclass(frozen=True, slots=True)
class LostSlot:
    """An index whose card can't even be opened: its UUID has to come from memory."""

    slot: int
    error: str
    reset_required: bool = False  # it is there, and a reset may bring it back


@dataclass(frozen=True, slots=True)
class Sample:
    driver_version: str | None
    nvml_version: str | None
    cards: tuple[Card, ...]
    links: tuple[Link, ...]
    lost_slots: tuple[LostSlot, ...]


@dataclass(slots=True)
class _Reading:
    """One attempt in its own thread. A call that hangs in the kernel keeps its thread; nobody waits for it."""

    done: threading.Event = field(default_factory=threading.Event)
    result: Sample | Exception | None = None


class Nvml:
    """Stays initialised between readings: on machines without persistence mode every init costs seconds."""

    def __init__(self) -> None:
        self._lib: Any = None
        self._reading: _Reading | None = None
        self._tensor = TensorActivity()

    def read(self, timeout_s: float) -> Sample:
        """All cards now. Raises NvmlAbsent or NvmlSilent."""
        reading = self._reading
        if reading is None or reading.done.is_set():
            wait_s = timeout_s
            reading = self._reading = _Reading()
            threading.Thread(target=self._run, args=(reading,), daemon=True, name="nvml").start()
        else:
            wait_s = min(timeout_s, ASK_AGAIN_S)
        if not reading.done.wait(wait_s):
            raise NvmlSilent(f"NVML did not answer within {timeout_s:g} s")
        if isinstance(reading.result, Sample):
            return reading.result
        raise reading.result or NvmlSilent("NVML gave no result")

    def _run(self, reading: _Reading) -> None:
        try:
            reading.result = self._read()
        except Exception as error:  # handed to the caller, whichever it is
            reading.result = error
        reading.done.set()

    def _read(self) -> Sample:
        lib, count = self._open()
        if count == 0:
            raise NvmlAbsent("NVML lists no card")
        opened: list[tuple[Card, Any]] = []
        lost: list[LostSlot] = []
        for slot in range(count):
            try:
                handle = lib.nvmlDeviceGetHandleByIndex(slot)
                opened.append((read_card(lib, handle, slot, self._tensor), handle))
            except CardLost:
                lost.append(LostSlot(slot, "GPU is lost"))
            except lib.NVMLError as error:
                lost.append(LostSlot(slot, plain(str(error)), error.value == lib.NVML_ERROR_RESET_REQUIRED))
        alive = [(card, handle) for card, handle in opened if not card.lost]
        return Sample(
            driver_version=text(optional(lib, lib.nvmlSystemGetDriverVersion)),
            nvml_version=text(optional(lib, lib.nvmlSystemGetNVMLVersion)),
            cards=tuple(card for card, _ in opened),
            links=tuple(read_links(lib, alive)),
            lost_slots=tuple(lost),
        )

    def _open(self) -> tuple[Any, int]:
        """The initialised library and its number of cards. A driver reloaded under us needs one fresh init."""
        if self._lib is not None:
            try:
                return self._lib, int(self._lib.nvmlDeviceGetCount())
            except self._lib.NVMLError:
                self._close()
        try:
            lib: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlAbsent("the module pynvml (nvidia-ml-py) is not installed") from error
        try:
            lib.nvmlInit()
            count = int(lib.nvmlDeviceGetCount())
        except lib.NVMLError as error:
            raise NvmlAbsent(f"NVML: {plain(str(error))}") from error
        self._lib = lib
        return lib, count

    def _close(self) -> None:
        lib, self._lib = self._lib, None
        self._tensor.forget()
        try:
            lib.nvmlShutdown()
        except lib.NVMLError:
            return  # it was not initialised any more, which is what we wanted


def read_card(lib: Any, handle: Any, slot: int, tensor: TensorActivity) -> Card:
    """Raises CardLost (or NVMLError) while the card can't be named; once named, a lost card is a Card with `lost`."""
    uuid = text(lib.nvmlDeviceGetUUID(handle)) if handle else None
    if not uuid:
        raise CardLost
    card = Card(uuid=uuid, slot=slot, serial=None, pci=None, model="unknown", memory_mib=None)
    troubles = Troubles()
    try:
        card = _identity(lib, handle, card, troubles)
        card = _measures(lib, handle, card, troubles)
        card = replace(card, mig=_mig(lib, handle, troubles))
        card = card if card.mig.enabled else _activity(lib, handle, card, tensor, troubles)
        card = replace(card, ecc=_ecc(lib, handle, troubles), processes=_processes(lib, handle, troubles))
        reset = wants_reset(lib, handle)
    except CardLost:
        return replace(card, lost=True, error="GPU is lost")
    return replace(card, reset_required=reset or troubles.reset_required, error=troubles.error)


def _identity(lib: Any, handle: Any, card: Card, troubles: Troubles) -> Card:
    """What stays the same is read first, so that a card lost half-way is still recognised."""
    info = optional(lib, lib.nvmlDeviceGetPciInfo, handle, troubles=troubles)
    card = replace(card, pci=pci_address(text(info.busId) or "") if info else None)
    name = text(optional(lib, lib.nvmlDeviceGetName, handle, troubles=troubles)) or "unknown"
    card = replace(card, model=name[:MAX_MODEL])
    card = replace(card, serial=text(optional(lib, lib.nvmlDeviceGetSerial, handle, troubles=troubles)) or None)
    memory = _memory(lib, handle, troubles)
    if memory is None:
        return card
    return replace(card, memory_mib=memory.total // MIB, memory_used_mib=memory.used // MIB)


def _memory(lib: Any, handle: Any, troubles: Troubles) -> Any:
    """Version 2 keeps what the driver reserves out of `used`; old drivers have only version 1."""
    memory = optional(lib, lib.nvmlDeviceGetMemoryInfo, handle, lib.nvmlMemory_v2, troubles=troubles)
    return memory or optional(lib, lib.nvmlDeviceGetMemoryInfo, handle, troubles=troubles)


def _measures(lib: Any, handle: Any, card: Card, troubles: Troubles) -> Card:
    sensor = lib.NVML_TEMPERATURE_GPU
    temperature = optional(lib, lib.nvmlDeviceGetTemperatureV, handle, sensor, troubles=troubles)
    if temperature is None:  # drivers before 570 have only the older call
        temperature = optional(lib, lib.nvmlDeviceGetTemperature, handle, sensor, troubles=troubles)
    return replace(
        card,
        temperature_c=temperature,
        power_mw=optional(lib, lib.nvmlDeviceGetPowerUsage, handle, troubles=troubles),
        slowdown=slowdown(lib, handle, troubles),
        nvlink_errors=nvlink_errors(lib, handle),
    )


def _activity(lib: Any, handle: Any, card: Card, tensor: TensorActivity, troubles: Troubles) -> Card:
    rates = optional(lib, lib.nvmlDeviceGetUtilizationRates, handle, troubles=troubles)
    return replace(
        card,
        utilisation_pct=None if rates is None else rates.gpu,
        memory_busy_pct=None if rates is None else rates.memory,
        tensor_pct=tensor.percent(lib, handle, card.uuid),
    )


def _ecc(lib: Any, handle: Any, troubles: Troubles) -> Ecc:
    def total(kind: int, counter: int) -> Any:
        return optional(lib, lib.nvmlDeviceGetTotalEccErrors, handle, kind, counter, troubles=troubles)

    rows = optional(lib, lib.nvmlDeviceGetRemappedRows, handle, troubles=troubles) or (None, None, None, None)
    return Ecc(
        volatile_uncorrected=total(lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, lib.NVML_VOLATILE_ECC),
        volatile_corrected=total(lib.NVML_MEMORY_ERROR_TYPE_CORRECTED, lib.NVML_VOLATILE_ECC),
        aggregate_uncorrected=total(lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, lib.NVML_AGGREGATE_ECC),
        remapped_pending=None if rows[2] is None else bool(rows[2]),
        remapped_failure=None if rows[3] is None else bool(rows[3]),
        remapped_correctable=rows[0],
        remapped_uncorrectable=rows[1],
    )


def _mig(lib: Any, handle: Any, troubles: Troubles) -> Mig:
    mode = optional(lib, lib.nvmlDeviceGetMigMode, handle, troubles=troubles)
    if mode is None:
        return Mig()
    if mode[0] != lib.NVML_DEVICE_MIG_ENABLE:
        return Mig(enabled=False)
    count = optional(lib, lib.nvmlDeviceGetMaxMigDeviceCount, handle, troubles=troubles) or 0
    devices = []
    for index in range(count):
        mig_handle = optional(lib, lib.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        uuid = text(optional(lib, lib.nvmlDeviceGetUUID, mig_handle, troubles=troubles)) if mig_handle else None
        if uuid:
            devices.append(_mig_device(lib, mig_handle, uuid, troubles))
    return Mig(enabled=True, devices=tuple(devices))


def _mig_device(lib: Any, handle: Any, uuid: str, troubles: Troubles) -> MigDevice:
    memory = _memory(lib, handle, troubles)
    name = text(optional(lib, lib.nvmlDeviceGetName, handle, troubles=troubles)) or ""
    return MigDevice(
        uuid=uuid,
        memory_mib=None if memory is None else memory.total // MIB,
        profile=name.partition(MIG_PROFILE_MARK)[2] or None,
    )


def _processes(lib: Any, handle: Any, troubles: Troubles) -> tuple[Process, ...] | None:
    """Every process that holds the card, by pid: compute, MPS clients and graphics. None if none can be listed."""
    found: dict[int, Process] = {}
    known = False
    for call in (
        lib.nvmlDeviceGetComputeRunningProcesses,
        lib.nvmlDeviceGetMPSComputeRunningProcesses,
        lib.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        listed = optional(lib, call, handle, troubles=troubles)
        known = known or listed is not None
        for process in listed or ():
            used = process.usedGpuMemory
            found.setdefault(process.pid, Process(process.pid, None if used is None else used // MIB))
    return tuple(found[pid] for pid in sorted(found)) if known else None
