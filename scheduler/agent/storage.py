"""Whether storage can be written: a small file written, synced, read and deleted, again at every look.

Each path has its own thread with a time limit. A mount that hangs keeps its thread in the kernel; nobody waits for it,
no second one is started there, and the path counts as failing until it answers.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from scheduler.agent.model import plain

LIMIT_S: Final = 10.0
WAIT_S: Final = 0.5  # a look waits this long for all paths together; what answers later is told at the next look
BYTES: Final = 4096
MAX_PATHS: Final = 16


def probe(path: str) -> None:
    """Raises OSError saying what does not work. The file has a name of this process's own."""
    name = os.path.join(path, f".gpu-commons-probe-{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}")
    data = os.urandom(BYTES)
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
        os.fsync(fd)
        os.lseek(fd, 0, os.SEEK_SET)
        found = os.read(fd, BYTES + 1)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
        os.unlink(name)
    if found != data:
        raise OSError(f"{len(found)} bytes came back, and not those that were written")


class Probe:
    """One path. `answer` is about the last attempt that ended, or the one that is overdue."""

    def __init__(self, path: str, limit_s: float = LIMIT_S, run: Callable[[str], None] = probe) -> None:
        self._path = path
        self._limit_s = limit_s
        self._run = run
        self._begun = 0.0
        self._done = threading.Event()
        self._done.set()
        self._last: dict[str, Any] | None = None

    def begin(self) -> None:
        """Try once more, unless the last attempt still waits."""
        if not self._done.is_set():
            return
        self._done = threading.Event()
        self._begun = time.monotonic()
        threading.Thread(target=self._attempt, args=(self._done,), daemon=True, name=f"probe {self._path}").start()

    def wait(self, until: float) -> None:
        self._done.wait(max(0.0, until - time.monotonic()))

    def answer(self) -> dict[str, Any] | None:
        """None while nothing is known yet."""
        late = time.monotonic() - self._begun
        if not self._done.is_set() and late >= self._limit_s:
            return self._told(False, late, f"no answer within {self._limit_s:g} s")
        return self._last

    def _attempt(self, done: threading.Event) -> None:
        begun = time.monotonic()
        try:
            self._run(self._path)
            self._last = self._told(True, time.monotonic() - begun, None)
        except Exception as error:  # whatever it is, the storage does not work
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._last = self._told(False, time.monotonic() - begun, plain(reason) or type(error).__name__)
        finally:
            done.set()

    def _told(self, ok: bool, seconds: float, error: str | None) -> dict[str, Any]:
        return {"path": self._path, "ok": ok, "ms": round(seconds * 1000), "error": error}


class Storage:
    def __init__(self, paths: Sequence[str]) -> None:
        self._probes = [Probe(path) for path in paths]

    def look(self) -> list[dict[str, Any]] | None:
        """What each path answered; None where no path is to be tried."""
        if not self._probes:
            return None
        for each in self._probes:
            each.begin()
        until = time.monotonic() + WAIT_S
        for each in self._probes:
            each.wait(until)
        return [answer for each in self._probes if (answer := each.answer()) is not None]
