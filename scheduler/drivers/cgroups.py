"""Hard limits through cgroups, version 2 or version 1 (also the hybrid layout): find, make, read, kill, remove.

Light standard library only (the shim imports it). It knows directories and numbers, not jobs. All groups stand under
one directory `gpu-commons`, so that whatever is left behind is easy to see.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

PARENT = "gpu-commons"
CGROUP1 = "cgroup1"
CGROUP2 = "cgroup2"
RLIMITS = "rlimits"
V1_CONTROLLERS = ("memory", "cpu", "pids")
V2_CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD_US = 100_000
# Jobs together weigh as much as this many ordinary neighbours a CPU: they are what the machine is for, yet whatever
# else runs on it (in version 1 each process at the top counts for itself) still gets its turn.
_PARENT_FACTOR = 4


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, value: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(value)


def _counter(path: str, key: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in _read(path).splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return 0


class Group:
    """The cgroups of one member: {"": directory} in version 2, {controller: directory} in version 1.

    `elsewhere` are directories of the same name under other controllers: a container engine makes them all, and they
    are ours to remove.
    """

    def __init__(self, mode: str, directories: Mapping[str, str], elsewhere: Iterable[str] = ()) -> None:
        self.mode = mode
        self.directories = dict(directories)
        self.elsewhere = list(elsewhere)

    def _directory(self, controller: str) -> str | None:
        return self.directories.get("" if self.mode == CGROUP2 else controller)

    def create(self, *, memory_bytes: int, cpu_milli: int, pids_max: int) -> None:
        """Make the groups and set the limits; may be repeated. OSError if one of them can't be set."""
        for directory in self.directories.values():
            os.makedirs(directory, exist_ok=True)
        quota = max(1000, cpu_milli * _PERIOD_US // 1000)  # the kernel takes no quota below 1 ms
        if self.mode == CGROUP2:
            root = self.directories[""]
            _write(f"{root}/memory.max", str(memory_bytes))
            if os.path.exists(f"{root}/memory.swap.max"):
                _write(f"{root}/memory.swap.max", "0")
            _write(f"{root}/memory.oom.group", "1")
            _write(f"{root}/cpu.max", f"{quota} {_PERIOD_US}")
            _write(f"{root}/cpu.weight", str(min(10_000, max(1, cpu_milli // 10))))
            _write(f"{root}/pids.max", str(pids_max))
            return
        memory, cpu, pids = (self.directories[name] for name in ("memory", "cpu", "pids"))
        with contextlib.suppress(OSError):  # swap is shut off below where the kernel counts it
            _write(f"{memory}/memory.swappiness", "0")
        _write(f"{memory}/memory.limit_in_bytes", str(memory_bytes))
        with contextlib.suppress(OSError):  # absent without swap accounting; EINVAL on a repeat with another limit
            _write(f"{memory}/memory.memsw.limit_in_bytes", str(memory_bytes))
        _write(f"{cpu}/cpu.shares", str(min(262_144, max(2, cpu_milli))))
        _write(f"{cpu}/cpu.cfs_period_us", str(_PERIOD_US))
        _write(f"{cpu}/cpu.cfs_quota_us", str(quota))
        _write(f"{pids}/pids.max", str(pids_max))

    def join(self, pid: int) -> None:
        for directory in self.directories.values():
            _write(f"{directory}/cgroup.procs", str(pid))

    def enter(self) -> None:
        """Move the calling process in; it must have one thread.

        Version 1 has a file for single threads that spares the kernel a machine-wide lock: with thirty starts at once
        the difference is seconds.
        """
        file = "cgroup.procs" if self.mode == CGROUP2 else "tasks"
        for directory in self.directories.values():
            _write(f"{directory}/{file}", "0")

    def exists(self) -> bool:
        return any(os.path.isdir(directory) for directory in self._all())

    def _all(self) -> list[str]:
        return [*self.directories.values(), *self.elsewhere]

    def _trees(self) -> Iterator[str]:
        """All directories, the deepest first (a container engine makes its own groups below ours)."""
        for directory in self._all():
            for folder, _, _ in os.walk(directory, topdown=False):
                yield folder

    def pids(self) -> list[int]:
        found: set[int] = set()
        for folder in self._trees():
            with contextlib.suppress(OSError):
                found.update(int(line) for line in _read(f"{folder}/cgroup.procs").split())
        return sorted(found - {0})

    def kill(self, *, within_s: float = 2.0) -> bool:
        """SIGKILL every process inside, whatever session it is in; False if some are left after `within_s`."""
        if (folder := self._directory("pids")) is not None:
            with contextlib.suppress(OSError):  # version 2 kills in one step; absent before Linux 5.14
                if self.mode == CGROUP2:
                    _write(f"{folder}/cgroup.kill", "1")
            with contextlib.suppress(OSError):  # nothing may fork while we walk the list
                _write(f"{folder}/pids.max", "0")
        deadline = time.monotonic() + within_s
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def oom_kills(self) -> int:
        """How many processes the kernel killed in the group because it was over its memory limit.

        Version 2 counts for the whole tree; version 1 for each directory by itself, so those of a container engine
        count only as long as they stand.
        """
        top = self._directory("memory")
        if top is None:
            return 0
        if self.mode == CGROUP2:
            return _counter(f"{top}/memory.events", "oom_kill")
        return sum(_counter(f"{folder}/memory.oom_control", "oom_kill") for folder, _, _ in os.walk(top))

    def peak_bytes(self) -> int | None:
        folder = self._directory("memory")
        file = "memory.peak" if self.mode == CGROUP2 else "memory.max_usage_in_bytes"
        try:
            return int(_read(f"{folder}/{file}"))
        except (OSError, ValueError):
            return None

    def remove(self, *, within_s: float = 2.0) -> bool:
        """Remove the empty groups; False if one stays (a process in it has not finished dying)."""
        deadline = time.monotonic() + within_s
        while self.exists():
            for folder in self._trees():
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            if self.exists():
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
        return True


class Hierarchy:
    """Where groups can be made: {"": directory} in version 2, {controller: mount point} in version 1."""

    def __init__(self, mode: str, roots: Mapping[str, str]) -> None:
        self.mode = mode
        self.roots = dict(roots)

    def group(self, name: str) -> Group:
        return Group(self.mode, {controller: f"{root}/{PARENT}/{name}" for controller, root in self.roots.items()})

    def prepare(self) -> None:
        """Make our parent directory; in version 2 also hand the controllers down to it. OSError if refused."""
        for root in self.roots.values():
            os.makedirs(f"{root}/{PARENT}", exist_ok=True)
        if self.mode == CGROUP1:
            shares = min(262_144, 1024 * _PARENT_FACTOR * (os.cpu_count() or 1))
            _write(f"{self.roots['cpu']}/{PARENT}/cpu.shares", str(shares))
        if self.mode == CGROUP2:
            for folder in (self.roots[""], f"{self.roots['']}/{PARENT}"):
                missing = set(V2_CONTROLLERS) - set(_read(f"{folder}/cgroup.subtree_control").split())
                if missing:
                    _write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))
            _write(f"{self.roots['']}/{PARENT}/cpu.weight", str(100 * _PARENT_FACTOR))


def group_of(limits: Mapping[str, Any]) -> Group | None:
    """The member's cgroups as its claim describes them, or None under rlimits."""
    if not limits["groups"]:
        return None
    return Group(limits["mode"], limits["groups"], limits["elsewhere"])


def path_in_mount(groups: Mapping[str, str], name: str, *, root: str = "/sys/fs/cgroup") -> str:
    """The group's path as a container engine wants it: below the mount, the same under every controller."""
    return groups[""].removeprefix(root) if "" in groups else f"/{PARENT}/{name}"


def elsewhere(name: str, used: Iterable[str], *, mounts: str | None = None) -> list[str]:
    """Directories that a container engine makes for a group of this name beyond those in `used`."""
    text = _read("/proc/self/mounts") if mounts is None else mounts
    points = [line.split()[1] for line in text.splitlines() if line.split()[2] in ("cgroup", "cgroup2")]
    return sorted({f"{point}/{PARENT}/{name}" for point in points} - set(used))


def _v1_mounts(mounts: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] == "cgroup":
            for controller in set(fields[3].split(",")) & set(V1_CONTROLLERS):
                found.setdefault(controller, fields[1])
    return found


def _v2_places(root: str, own: str, *, privileged: bool) -> list[str]:
    """Directories under which we might make groups: the top for root, else every ancestor of our own, top first."""
    if privileged:
        return [root]
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), "/").strip("/")
    places = [root]
    for part in path.split("/") if path else []:
        places.append(f"{places[-1]}/{part}")
    return places


def candidates(
    *, root: str = "/sys/fs/cgroup", mounts: str | None = None, own: str | None = None, privileged: bool | None = None
) -> list[Hierarchy]:
    """Hierarchies worth trying on this machine, best first. Nothing is written."""
    if os.path.exists(f"{root}/cgroup.controllers"):
        if not set(V2_CONTROLLERS) <= set(_read(f"{root}/cgroup.controllers").split()):
            return []
        own = _read("/proc/self/cgroup") if own is None else own
        privileged = os.geteuid() == 0 if privileged is None else privileged
        return [Hierarchy(CGROUP2, {"": place}) for place in _v2_places(root, own, privileged=privileged)]
    found = _v1_mounts(_read("/proc/self/mounts") if mounts is None else mounts)
    return [Hierarchy(CGROUP1, found)] if len(found) == len(V1_CONTROLLERS) else []
