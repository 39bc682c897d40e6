"""The processes of this machine: which member of the local driver each belongs to, and what it uses. Reads /proc only.

A member's processes are those below its shim, whose claim (written by the driver, out of the member's reach) says which
cards and how much CPU it was given. Other processes say themselves what they hold: a marker of a member whose shim is
gone, and the virtual cards that they name in CUDA_VISIBLE_DEVICES. What may not be read is another user's: left out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.agent.model import MAX_NAME, Process, plain

SHIM: Final = b"scheduler.drivers.local_shim"  # `python … -m scheduler.drivers.local_shim FOLDER`
CLAIM: Final = "spec.json"
MARKER: Final = "GPU_COMMONS_MEMBER"
MOST_CLAIM_BYTES: Final = 4 << 20
MAX_MEMBER: Final = 100
TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Member:
    """What the driver started and what it was given. `cards`: uuid → MiB of it."""

    name: str
    cards: Mapping[str, int]
    cpu_milli: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One living process. `started` tells it from a later one of the same number."""

    pid: int
    parent: int
    name: str
    cpu_ticks: int
    started: int


@dataclass(frozen=True)
class Census:
    """All processes of one moment. `jobs`: the folder of the local driver whose members are ours; None: all are."""

    processes: Mapping[int, Seen]
    members: Mapping[int, Member]  # by process: those below a shim
    jobs: Path | None = None
    _said: dict[int, Mapping[str, str]] = field(default_factory=dict)

    def member_of(self, pid: int) -> str | None:
        if pid in self.members:
            return self.members[pid].name
        return plain(self.said(pid).get(MARKER, ""))[:MAX_MEMBER] or None

    def named(self, process: Process) -> Process:
        """The same with its member and its name, where this machine knows it."""
        seen = self.processes.get(process.pid)
        if seen is None:
            return process
        return Process(process.pid, process.memory_mib, self.member_of(process.pid), seen.name or None)

    def said(self, pid: int) -> Mapping[str, str]:
        """Its environment as it was started; empty where that may not be read."""
        if pid not in self._said:
            self._said[pid] = _environment(pid)
        return self._said[pid]

    def is_foreign(self, pid: int) -> bool:
        """Of a member of another portal on this machine."""
        member = self.member_of(pid)
        return self.jobs is not None and member is not None and not member.startswith(f"{_instance(self.jobs)}-")


def take_census(jobs: Path | None = None) -> Census:
    seen = {process.pid: process for name in os.listdir("/proc") if name.isdigit() and (process := _look(int(name)))}
    members: dict[int, Member] = {}
    below: dict[int, list[int]] = {}
    for process in seen.values():
        below.setdefault(process.parent, []).append(process.pid)
    for pid in seen:
        member = _member(pid)
        if member is not None:
            members.update(dict.fromkeys(_descendants(pid, below), member))
    return Census(seen, members, jobs)


def _descendants(pid: int, below: Mapping[int, Iterable[int]]) -> set[int]:
    found: set[int] = set()
    todo = [pid]
    while todo:
        children = set(below.get(todo.pop(), ())) - found
        found |= children
        todo += children
    return found


def _look(pid: int) -> Seen | None:
    """None for one that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        head, _, tail = stat.rpartition(")")
        parts = tail.split()
        if parts[0] in "ZX":
            return None
        name = plain(head.partition("(")[2])[:MAX_NAME]
        return Seen(pid, int(parts[1]), name, int(parts[11]) + int(parts[12]), int(parts[19]))
    except (OSError, IndexError, ValueError):
        return None


def _member(pid: int) -> Member | None:
    """The member whose shim this process is. Only root's and our own processes are believed to be shims."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if SHIM not in words[:-2]:
            return None
        folder = os.fsdecode(words[words.index(SHIM) + 1])
        if _user(pid) not in (0, os.geteuid()):
            return None
        with open(f"{folder}/{CLAIM}", "rb") as file:
            if os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                return None
            claim = json.loads(file.read(MOST_CLAIM_BYTES))
        spec = claim["spec"]
        cards = {str(card["uuid"]): int(card["memory_mib"]) for card in spec["cards"]}
        return Member(plain(str(claim["name"]))[:MAX_MEMBER], cards, int(spec["cpu_milli"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _user(pid: int) -> int:
    """Who it runs as; the owner of /proc/PID can be made root's by anyone."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    raise OSError(f"/proc/{pid}/status has no Uid")


def _environment(pid: int) -> Mapping[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.decode("utf-8", "replace").partition("=") for part in raw.split(b"\0") if part)
    return {name: value for name, _, value in pairs}


def _instance(jobs: Path) -> str:
    """How the local driver tells the portals of one machine apart: the names of its members begin with this."""
    return hashlib.sha256(os.path.realpath(jobs.parent).encode()).hexdigest()[:8]


def memory_bytes(pid: int) -> int | None:
    """Resident memory in which what several processes share counts once in all; else what is resident. None: ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # another user's: how much is resident stands open to all
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return None
