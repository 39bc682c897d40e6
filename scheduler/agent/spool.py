"""The agent's durable folder: fault events until the portal has them, the memory behind them, the sequence, and what
became of the portal's orders.

One journal, one JSON line a change: `{"faults": […], "memory": {…}}`, `{"acked": [ids]}`, or one of order_book.py. A
fault and the memory that would make it again are written in one line, so a crash loses neither and makes none twice.
Samples never come here. One agent a folder, guarded by a lock that dies with the process.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from scheduler.agent.memory import Memory
from scheduler.agent.model import Fault
from scheduler.agent.order_book import OrderBook, Result

logger = logging.getLogger(__name__)

COMPACT_AFTER: Final = 5000  # acknowledged faults that may stay in the journal while others wait
RESERVE: Final = 100  # sequence numbers taken by one write


class SpoolBusy(Exception):
    """Another agent works on this folder."""


class Spool:
    """`pending`, `memory` and `orders` are what the journal says. What writes raises OSError if it can't."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _lock(folder / "lock")
        self._folder = folder
        self._journal = folder / "journal"
        self._acked = 0
        self.memory = Memory(boot_id=boot_id)
        self.orders = OrderBook()
        self._pending: dict[str, Fault] = {}
        if not self._load():
            self._compact()
        self.orders.end_unfinished()
        self._next, self._limit = self._stored_sequence(), 0

    def close(self) -> None:
        os.close(self._lock)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def head(self, count: int) -> tuple[Fault, ...]:
        """The oldest faults that the portal has not confirmed."""
        return tuple(fault for fault, _ in zip(self._pending.values(), range(count), strict=False))

    def record(self, faults: Iterable[Fault], memory: Memory) -> None:
        """Make new faults durable. One that is already here keeps its first content."""
        new = {fault.id: fault for fault in faults if fault.id not in self._pending}
        if new or self.memory.needs_saving(memory):
            self._append({"faults": [asdict(fault) for fault in new.values()], "memory": memory.as_json()})
        self._pending.update(new)
        self.memory = memory

    def acknowledge(self, faults: Sequence[Fault]) -> None:
        """The portal has them: forget them."""
        if not faults:
            return
        for fault in faults:
            self._pending.pop(fault.id, None)
        self._acked += len(faults)
        if not self._pending or self._acked >= COMPACT_AFTER:
            self._compact()
        else:
            self._append({"acked": [fault.id for fault in faults]})

    def defer(self, fault: Fault) -> None:
        """To the back of the queue: the portal refuses it, and others must not wait behind it."""
        self._pending[fault.id] = self._pending.pop(fault.id)

    def begin_order(self, order: int) -> None:
        """Before it is run: an order that can't be noted must not begin."""
        self._append({"began": [order]})
        self.orders.begin(order)

    def end_order(self, result: Result) -> None:
        self._append({"ended": [asdict(result)]})
        self.orders.end(result)

    def confirm(self, results: Sequence[Result]) -> None:
        """The portal has them."""
        if results:
            self._append({"told": [result.order for result in results]})
            self.orders.confirm(results)

    def take_sequence(self) -> int:
        """Higher than any before, also after a crash: numbers are reserved ahead, and what was reserved is skipped."""
        if self._next >= self._limit:
            limit = self._next + RESERVE
            self._replace(self._folder / "sequence", str(limit))
            self._limit = limit
        self._next += 1
        return self._next - 1

    def _stored_sequence(self) -> int:
        """A folder that was lost starts from the clock, which is ahead of one report a second since any start."""
        try:
            return int((self._folder / "sequence").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return int(time.time())

    def _load(self) -> bool:
        """Read the journal. False if it needs writing anew: a line was torn by a crash, or damaged."""
        try:
            raw = self._journal.read_bytes()
        except FileNotFoundError:
            return True
        *lines, torn = raw.split(b"\n")
        damaged = [line for line in lines if not self._take(line)]
        if torn and not self._take(torn):
            logger.warning("spool: the last line was torn by a crash and is dropped; its events are read again")
        if damaged:
            logger.error("spool: %d damaged lines; the journal as it was is kept as journal.damaged", len(damaged))
            (self._folder / "journal.damaged").write_bytes(raw)
        return not torn and not damaged

    def _take(self, line: bytes) -> bool:
        try:
            entry: dict[str, Any] = json.loads(line)
            acked = entry.get("acked", ())
            faults = [Fault(**fault) for fault in entry.get("faults", ())]
            memory = Memory.from_json(entry["memory"]) if "memory" in entry else self.memory
            self.orders.take(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        for name in acked:
            self._acked += self._pending.pop(name, None) is not None
        self._pending.update((fault.id, fault) for fault in faults)
        self.memory = memory
        return True

    def _append(self, entry: dict[str, Any]) -> None:
        """All of the line or nothing of it: half a line would swallow the next one."""
        data = _line(entry)
        with open(self._journal, "ab", buffering=0, opener=_private) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                _write(file.fileno(), data)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
        if size == 0:
            _sync_folder(self._folder)

    def _compact(self) -> None:
        faults = [asdict(fault) for fault in self._pending.values()]
        entry = {"faults": faults, "memory": self.memory.as_json(), **self.orders.as_json()}
        self._replace(self._journal, _line(entry).decode())
        self._acked = 0

    def _replace(self, path: Path, text: str) -> None:
        """The old file or the new one, never half of either."""
        temporary = path.with_name(path.name + ".new")
        with open(temporary, "wb", buffering=0, opener=_private) as file:
            _write(file.fileno(), text.encode())
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(self._folder)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise SpoolBusy(f"another agent is using {path.parent}") from None
    return fd
