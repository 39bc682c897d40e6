"""The folder of one member on disk: file names, durable JSON, and the lock that says whether its shim lives.

Used by the driver and by the shim, which starts in a bare interpreter: light standard library only. It decides nothing.
A file appears whole or not at all (temporary file, fsync, rename or link, fsync of the folder).
"""

from __future__ import annotations

import fcntl
import json
import os
import time

TYPE_CHECKING = False  # `typing` costs the shim several milliseconds of start time
if TYPE_CHECKING:
    from typing import Any

SPEC = "spec.json"  # the claim: what to run and how; written once
STARTED = "started.json"  # written before the command may run; its presence forbids a second run
RUNNING = "running.json"  # the command was executed
STOP = "stop.json"  # the driver's wish to the shim
EXIT = "exit.json"  # final
LOG = "output.log"
WORK = "work"
USERS = "users"  # stands in for /etc/passwd inside the sandbox
ENVIRONMENT = "environment"  # for podman, which would show variables to everyone on its command line
SHIM_LOCK = "shim.lock"  # held (flock) as long as the shim lives; a pid alone may belong to a stranger
SHIM_PID = "shim.pid"
SHIM_ERRORS = "shim.err"


def read_json(path: str) -> dict[str, Any] | None:
    """The object in the file, or None where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            loaded: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return loaded


def sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(path: str, data: dict[str, Any]) -> str:
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def write_durable(path: str, data: dict[str, Any]) -> None:
    """Replace the file."""
    temporary = _write_temporary(path, data)
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def create_durable(path: str, data: dict[str, Any]) -> bool:
    """Create the file; False (and nothing changed) if it was there: of many callers one wins."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(path))
    return True


def lock_file(path: str, *, wait_s: float | None = 0.0) -> int | None:
    """An exclusive flock as an open descriptor (close it to release), or None if others hold it past `wait_s`.

    `wait_s` None waits for ever.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + (wait_s or 0.0)
    try:
        if wait_s is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return descriptor
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.01)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def is_locked(path: str) -> bool:
    """Whether someone holds the exclusive lock. The probe itself takes a shared lock for an instant."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def boot_id() -> str:
    """Changes with every boot of the machine: after a boot nothing of an earlier member can be alive."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
