"""Calls to NVML whose answer may be missing: what counts as "can't tell", as trouble, and as a lost card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.agent.model import plain


class CardLost(Exception):
    """The card fell off the bus while it was being read."""


@dataclass(slots=True)
class Troubles:
    """What went wrong with one card, and whether its driver asks for a reset."""

    texts: list[str] = field(default_factory=list)
    reset_required: bool = False

    @property
    def error(self) -> str | None:
        return plain("; ".join(dict.fromkeys(self.texts))) or None


def _absent_codes(lib: Any) -> frozenset[int]:
    """Answers that mean "this card, driver or user can't have that value" and are no sign of trouble."""
    return frozenset(
        (
            lib.NVML_ERROR_NOT_SUPPORTED,
            lib.NVML_ERROR_FUNCTION_NOT_FOUND,
            lib.NVML_ERROR_NO_PERMISSION,
            lib.NVML_ERROR_NO_DATA,
            lib.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            lib.NVML_ERROR_DEPRECATED,
        )
    )


def optional(lib: Any, call: Callable[..., Any], *args: Any, troubles: Troubles | None = None) -> Any:
    """The value, or None where there is none. Trouble is collected; a lost card raises CardLost."""
    try:
        return call(*args)
    except lib.NVMLError as error:
        if error.value == lib.NVML_ERROR_GPU_IS_LOST:
            raise CardLost from error
        if error.value not in _absent_codes(lib) and troubles is not None:
            troubles.reset_required |= error.value == lib.NVML_ERROR_RESET_REQUIRED
            troubles.texts.append(f"{getattr(call, '__name__', 'NVML')}: {plain(str(error))}")
        return None


def text(value: Any) -> str | None:
    """pynvml gives str, older ones bytes."""
    if value is None:
        return None
    return plain(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))


def fields(lib: Any, handle: Any, wanted: list[Any]) -> list[int | None]:
    """Whole-numbered field values, each None where the card has none. `wanted`: ids, or (id, link)."""
    values = optional(lib, lib.nvmlDeviceGetFieldValues, handle, wanted)
    if values is None:
        return [None] * len(wanted)
    wide = (lib.NVML_VALUE_TYPE_UNSIGNED_LONG, lib.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
    return [
        None
        if found.nvmlReturn != lib.NVML_SUCCESS
        else int(found.value.ullVal if found.valueType in wide else found.value.uiVal)
        for found in values
    ]
