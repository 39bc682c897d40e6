"""How busy a card is, what holds its clocks down, and the errors of its links. Reads only.

Tensor activity comes from two GPM samples (Hopper and later), so it covers the time since the last look and the first
look has none. A MIG card has no utilisation of its own: NVML refuses it, and what it says of the whole is not used.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.agent.nvml_calls import Troubles, fields, optional

# Every bit that NVML documents; idling, chosen clocks, sync boost and a display are no slow-down.
THERMAL: Final = ("nvmlClocksEventReasonSwThermalSlowdown", "nvmlClocksEventReasonHwThermalSlowdown")
POWER: Final = ("nvmlClocksEventReasonSwPowerCap", "nvmlClocksEventReasonHwPowerBrakeSlowdown")
OTHER: Final = ("nvmlClocksThrottleReasonBoardLimit", "nvmlClocksThrottleReasonReliability")

# Error counters of all ports together (up to NVLink 4), and of each port (NVLink 5).
OF_ALL_PORTS: Final = (
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
)
OF_A_PORT: Final = (
    "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",
    "NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
)


class TensorActivity:
    """The last GPM sample of each card. They belong to one initialised library: `forget` them with it."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def forget(self) -> None:
        self._last.clear()

    def percent(self, lib: Any, handle: Any, uuid: str) -> int | None:
        """Of the time since the last look; None at the first one, and where the card can't tell."""
        support = optional(lib, lib.nvmlGpmQueryDeviceSupport, handle)
        if support is None or not support.isSupportedDevice:
            return None
        sample = optional(lib, lib.nvmlGpmSampleAlloc)
        if sample is None:
            return None
        if optional(lib, lib.nvmlGpmSampleGet, handle, sample) is None:
            optional(lib, lib.nvmlGpmSampleFree, sample)
            return None
        before = self._last.get(uuid)
        self._last[uuid] = sample
        if before is None:
            return None
        try:
            return _between(lib, before, sample)
        finally:
            optional(lib, lib.nvmlGpmSampleFree, before)


def _between(lib: Any, before: Any, after: Any) -> int | None:
    asked = lib.c_nvmlGpmMetricsGet_t()
    asked.version = lib.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = 1
    asked.sample1, asked.sample2 = before, after
    asked.metrics[0].metricId = lib.NVML_GPM_METRIC_ANY_TENSOR_UTIL
    if optional(lib, lib.nvmlGpmMetricsGet, asked) is None or asked.metrics[0].nvmlReturn != lib.NVML_SUCCESS:
        return None
    value = asked.metrics[0].value
    return round(value) if 0 <= value <= 100 else None  # NaN fails too


def slowdown(lib: Any, handle: Any, troubles: Troubles) -> tuple[str, ...] | None:
    """What holds the clocks down now: thermal, power, other; empty when nothing does."""
    reasons = optional(lib, lib.nvmlDeviceGetCurrentClocksEventReasons, handle, troubles=troubles)
    if reasons is None:  # drivers before 535 have only the older name
        reasons = optional(lib, lib.nvmlDeviceGetCurrentClocksThrottleReasons, handle, troubles=troubles)
    if reasons is None:
        return None
    found = [word for word, names in (("thermal", THERMAL), ("power", POWER)) if _any(lib, reasons, names)]
    # the hardware slows down for heat or power; a driver that doesn't say for which says only this
    unexplained = reasons & lib.nvmlClocksEventReasonHwSlowdown and not found
    return (*found, "other") if unexplained or _any(lib, reasons, OTHER) else tuple(found)


def _any(lib: Any, reasons: int, names: tuple[str, ...]) -> bool:
    return any(reasons & getattr(lib, name) for name in names)


def nvlink_errors(lib: Any, handle: Any) -> int | None:
    """All error counters of all ports together; None where there are no ports or they don't tell."""
    whole = [value for value in fields(lib, handle, [getattr(lib, name) for name in OF_ALL_PORTS]) if value is not None]
    if whole:
        return sum(whole)
    ports = fields(lib, handle, [lib.NVML_FI_DEV_NVLINK_LINK_COUNT])[0] or 0
    if not 0 < ports <= 64:
        return None
    wanted = [(getattr(lib, name), port) for port in range(ports) for name in OF_A_PORT]
    each = [value for value in fields(lib, handle, wanted) if value is not None]
    return sum(each) if each else None


def wants_reset(lib: Any, handle: Any) -> bool:
    """Whether the driver itself says that the card has to be reset (drivers from 565 on)."""
    action = fields(lib, handle, [lib.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    return action in (lib.NVML_GPU_RECOVERY_ACTION_GPU_RESET, lib.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET)
