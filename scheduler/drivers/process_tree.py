"""Find and end the processes of a member through /proc, for machines where no cgroup may be made.

Light standard library only (the shim imports it). It looks at processes by descent or by a marker in their
environment, never by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MARKER = "GPU_COMMONS_MEMBER"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent_and_state(pid: int) -> tuple[int, str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0]


def descendants(ancestor: int) -> list[int]:
    """All living processes below `ancestor`, parents before children; zombies are left out."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for pid in _pids():
        found = _parent_and_state(pid)
        if found is None:
            continue
        children.setdefault(found[0], []).append(pid)
        if found[1] in "ZX":
            dead.add(pid)
    below: list[int] = []
    todo = [ancestor]
    while todo:
        for child in children.get(todo.pop(0), ()):
            todo.append(child)
            below.append(child)
    return [pid for pid in below if pid not in dead]


def marked(name: str) -> list[int]:
    """Living processes whose environment carries the member's marker. Readable for our own uid, or as root."""
    wanted = f"{MARKER}={name}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def memory_bytes(pids: list[int]) -> int:
    """Resident memory of the processes together; pages that they share count once for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def proportional_bytes(pids: list[int]) -> int:
    """Resident memory where shared pages count once in all; slower, so only asked in doubt."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
                    break
    return total


def kill_all(find: Callable[[], list[int]], *, within_s: float = 2.0) -> bool:
    """SIGKILL what `find()` returns until it returns nothing; False if something is still there after `within_s`."""
    deadline = time.monotonic() + within_s
    while pids := find():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True
