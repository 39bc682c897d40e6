"""How a member ended, from what its shim saw: a pure function from evidence to the record in `exit.json`.

The words of `end_reason` are those of base.EndReason (a test compares); this module is imported by the shim and stays
light.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MIB = 1024 * 1024
_SIGNAL_CODES = range(129, 129 + 64)  # how a sandbox or shell passes on "ended by signal n"
_PODMAN_FAILED = {125: "podman could not start it", 126: "the command can't be executed", 127: "no such command"}


class Ending:
    """Evidence collected while the member ran."""

    def __init__(self, *, limits: dict[str, Any], kind: str) -> None:
        self.limits = limits
        self.kind = kind
        self.started_at = 0.0
        self.stopped = False  # a stop was asked for while it ran
        self.killed_hard = False  # the grace ran out
        self.over_walltime = False
        self.over_memory = False  # noticed by the shim, which then ended the member
        self.oom_kills = 0
        self.peak_bytes: int | None = None


def _code_and_signal(status: int | None, kind: str) -> tuple[int | None, int | None]:
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    if code in _SIGNAL_CODES and kind != "bare":
        return code, code - 128
    return code, None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def memory_words(limits: dict[str, Any]) -> str:
    words = f"{limits['memory_bytes'] // _MIB} MiB"
    return f"{words} (card memory of virtual cards is enforced as process memory)" if limits["virtual"] else words


def _was_out_of_memory(ending: Ending, code: int | None) -> bool:
    if ending.killed_hard:
        return False
    # Whatever the code: a shell's `wait` ends with 0 after its children were killed, and cgroups of version 2 end the
    # member as a whole. Which of the two the shim saw first must not decide.
    if ending.over_memory or ending.oom_kills:
        return True
    # A container's own count may be gone with its group; a SIGKILL at the limit that nobody asked for is evidence too.
    full = (ending.peak_bytes or 0) >= ending.limits["memory_bytes"] - _MIB
    return ending.kind == "podman" and code == 137 and full and not ending.stopped


def _reason(ending: Ending, code: int | None, number: int | None) -> tuple[str, str]:
    if _was_out_of_memory(ending, code):
        words = f"killed: used more than its {memory_words(ending.limits)}"
        return "out_of_memory", words if code else f"{words}; its first process still ended with code {code}"
    if ending.over_walltime:
        return "stopped", "stopped: it ran past its walltime"
    if ending.stopped:
        if not ending.started_at:
            return "stopped", "stopped before it ran"
        return "stopped", "killed when its grace had run out" if ending.killed_hard else "ended when asked to stop"
    if ending.kind == "podman" and code in _PODMAN_FAILED:
        return "start_failed", f"{_PODMAN_FAILED[code]}; see the log"
    if number is not None:
        return "signal", f"ended by {_signal_name(number)}"
    words = f"ended with code {code}"
    if code and ending.limits["address_space_bytes"]:
        words += f"; if it ran out of memory: each process may map {memory_words(ending.limits)}"
    return "exit", words


def verdict(ending: Ending, status: int | None, failure: str) -> dict[str, Any]:
    """The record of the end. `failure` says why the command never ran; `status` is the raw wait status."""
    code, number = _code_and_signal(status, ending.kind)
    if failure:
        code, number = None, None
        reason, message = "start_failed", failure
    else:
        reason, message = _reason(ending, code, number)
    return {
        "end_reason": reason,
        "message": message,
        "exit_code": code,
        "signal": number,
        "started_at": ending.started_at or None,
        "ended_at": time.time(),
        "peak_memory_bytes": ending.peak_bytes,
        "oom_kills": ending.oom_kills,
        "limits_mode": ending.limits["mode"],
    }
