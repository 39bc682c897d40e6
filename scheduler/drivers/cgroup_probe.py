"""Ask the machine once whether cgroups can truly be used: make a group, limit it, move a process in, kill, remove.

Driver side only. Existing files prove little: a container often shows cgroups that refuse every write.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from functools import cache

from scheduler.drivers import cgroups

_PATIENCE_S = 1.0


def works(hierarchy: cgroups.Hierarchy) -> bool:
    """Whether a process can be limited and killed under this hierarchy. Leaves nothing behind."""
    group = hierarchy.group(f"probe-{os.getpid()}-{os.urandom(3).hex()}")
    process = None
    try:
        hierarchy.prepare()
        group.create(memory_bytes=64 * 1024 * 1024, cpu_milli=1000, pids_max=16)
        process = subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, env={}, close_fds=True)
        group.join(process.pid)
        moved = process.pid in group.pids()
        return moved and group.kill(within_s=_PATIENCE_S)
    except (OSError, KeyError):
        return False
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        with contextlib.suppress(OSError):
            group.remove(within_s=_PATIENCE_S)


def first_working(hierarchies: Sequence[cgroups.Hierarchy]) -> cgroups.Hierarchy | None:
    return next((hierarchy for hierarchy in hierarchies if works(hierarchy)), None)


@cache
def usable() -> cgroups.Hierarchy | None:
    """The best hierarchy that works on this machine, or None: then rlimits are all there is. Tried once a process."""
    return first_working(cgroups.candidates())
