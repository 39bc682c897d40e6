"""From what a shim saw to how the member ended: a table of cases."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from scheduler.drivers.base import EndReason
from scheduler.drivers.shim_verdict import Ending, verdict

MIB = 1024 * 1024


def ending(kind: str = "sandbox", *, virtual: bool = False, address_space: int = 0, **seen: Any) -> Ending:
    limits = {"mode": "cgroup1", "memory_bytes": 64 * MIB, "virtual": virtual, "address_space_bytes": address_space}
    found = Ending(limits=limits, kind=kind)
    found.started_at = 1000.0
    for name, value in seen.items():
        setattr(found, name, value)
    return found


def code(number: int) -> int:
    return number << 8


@pytest.mark.parametrize(
    ("seen", "status", "reason", "exit_code", "words"),
    [
        (ending(), code(0), EndReason.EXIT, 0, "code 0"),
        (ending(), code(3), EndReason.EXIT, 3, "code 3"),
        (ending("bare"), int(signal.SIGTERM), EndReason.SIGNAL, 143, "SIGTERM"),
        (ending("bare"), code(143), EndReason.EXIT, 143, "code 143"),
        (ending(), code(143), EndReason.SIGNAL, 143, "SIGTERM"),
        (ending(), code(128 + 40), EndReason.SIGNAL, 168, "signal 40"),
        (ending(oom_kills=1), code(137), EndReason.OUT_OF_MEMORY, 137, "64 MiB"),
        (ending(oom_kills=1, virtual=True), code(137), EndReason.OUT_OF_MEMORY, 137, "virtual cards"),
        (ending(oom_kills=1), code(1), EndReason.OUT_OF_MEMORY, 1, "64 MiB"),
        (ending(oom_kills=1), code(0), EndReason.OUT_OF_MEMORY, 0, "still ended with code 0"),
        (ending(over_memory=True), code(137), EndReason.OUT_OF_MEMORY, 137, "64 MiB"),
        (ending(stopped=True), code(0), EndReason.STOPPED, 0, "asked to stop"),
        (ending(stopped=True, killed_hard=True), code(137), EndReason.STOPPED, 137, "grace"),
        (ending(stopped=True, killed_hard=True, oom_kills=1), code(137), EndReason.STOPPED, 137, "grace"),
        (ending(stopped=True, over_walltime=True), code(143), EndReason.STOPPED, 143, "walltime"),
        (ending(stopped=True, started_at=0.0), None, EndReason.STOPPED, None, "before it ran"),
        (ending(address_space=64 * MIB), code(1), EndReason.EXIT, 1, "each process may map 64 MiB"),
        (ending("podman"), code(125), EndReason.START_FAILED, 125, "podman"),
        (ending("podman"), code(127), EndReason.START_FAILED, 127, "no such command"),
        (ending("podman", peak_bytes=64 * MIB), code(137), EndReason.OUT_OF_MEMORY, 137, "64 MiB"),
        (ending("podman", peak_bytes=9 * MIB), code(137), EndReason.SIGNAL, 137, "SIGKILL"),
    ],
)
def test_the_end_is_named(
    seen: Ending, status: int | None, reason: EndReason, exit_code: int | None, words: str
) -> None:
    end = verdict(seen, status, "")
    assert (EndReason(end["end_reason"]), end["exit_code"]) == (reason, exit_code)
    assert words in end["message"]


def test_a_failed_start_has_no_exit_code() -> None:
    end = verdict(ending(started_at=0.0), code(127), "the command 'x' could not be started: No such file or directory")
    assert EndReason(end["end_reason"]) == EndReason.START_FAILED
    assert end["exit_code"] is None
    assert end["started_at"] is None
    assert "'x'" in end["message"]
