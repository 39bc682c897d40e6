"""The data folder of one `up`: its marker, its lock, its secrets and services.json.

Every file with a secret in it is written with mode 0600 and replaced whole. It must start no process.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MARKER = "gpu-commons-data"
LOCK = "up.lock"
SERVICES = "services.json"
SECRETS = "secrets.json"
SIGN_INS = "sign-ins.txt"


class FolderError(Exception):
    """The data folder cannot be used; the message says why and what to do."""


class AlreadyRunning(FolderError):
    """Another `up` holds the lock of this folder."""


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class DataFolder:
    """One data folder. `open()` makes it, `lock()` must follow before anything is started in it."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.logs = self.path / "logs"
        self._lock: int | None = None

    def open(self) -> None:
        """Create the folder, or accept one of ours; a folder with other things in it is refused."""
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"{self.path} is not a folder.")
        created = not self.path.exists()
        try:
            # As root PostgreSQL runs as another user that must pass through, not read: x for others, no r.
            self.path.mkdir(parents=True, exist_ok=True)
            if created:
                self.path.chmod(0o711 if os.geteuid() == 0 else 0o700)
            if not self.is_ours():
                self._claim()
            self.logs.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise FolderError(f"The data folder {self.path} cannot be used: {error.strerror}.") from error

    def _claim(self) -> None:
        if any(self.path.iterdir()):
            raise FolderError(
                f"{self.path} holds other files and is not a data folder of GPU Commons "
                f"(no {MARKER} in it); name an empty or a new folder with --data."
            )
        (self.path / MARKER).write_text("A data folder of GPU Commons. `manage.py up --fresh` deletes it.\n")

    def is_ours(self) -> bool:
        """Whether the marker is there; only such a folder is ever deleted."""
        return (self.path / MARKER).is_file()

    def lock(self) -> None:
        """Take the folder for this process until it ends, or raise AlreadyRunning with the holder's pid."""
        handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        for attempt in range(4):  # a `manage.py` command that looks whether we run holds it for an instant
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == 3:
                    pid = os.read(handle, 32).decode().strip() or "unknown"
                    os.close(handle)
                    raise AlreadyRunning(
                        f"GPU Commons is already running on {self.path} (pid {pid}); stop it first, "
                        "or give this one its own folder with --data and its own --port."
                    ) from None
                time.sleep(0.05)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._lock = handle

    def unlock(self) -> None:
        """Release the lock; the kernel does the same when the process dies."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_locked(self) -> bool:
        """Whether some `up` runs on this folder now."""
        try:
            handle = os.open(self.path / LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def empty(self) -> None:
        """Delete what is in the folder, except the marker and the lock that the caller holds."""
        if not self.is_ours() or self._lock is None:
            raise FolderError(f"{self.path} is not a data folder of GPU Commons, or is in use; nothing was deleted.")
        for entry in self.path.iterdir():
            if entry.name in (MARKER, LOCK):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self.logs.mkdir(mode=0o700, exist_ok=True)

    def read(self, name: str) -> dict[str, Any]:
        """A JSON object kept in the folder; {} when there is none or it can't be parsed."""
        try:
            value = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def secret(self, name: str) -> str:
        """A generated secret, the same one at every later start."""
        kept = self.read(SECRETS)
        if not isinstance(kept.get(name), str):
            kept[name] = secrets.token_urlsafe(48)
            write_private(self.path / SECRETS, json.dumps(kept, indent=1))
        return str(kept[name])

    def remember(self, name: str, value: int) -> int:
        """Keep a number, such as a port, beside the secrets."""
        kept = self.read(SECRETS)
        if kept.get(name) != value:
            kept[name] = value
            write_private(self.path / SECRETS, json.dumps(kept, indent=1))
        return value

    def recall(self, name: str) -> int | None:
        """A number kept by `remember`."""
        value = self.read(SECRETS).get(name)
        return value if isinstance(value, int) else None

    def publish(self, services: Mapping[str, Any]) -> None:
        """Write services.json: how a command outside `up` reaches what runs here."""
        write_private(self.path / SERVICES, json.dumps(services, indent=1))

    def withdraw(self) -> None:
        """Remove services.json: nothing runs here any more."""
        with contextlib.suppress(OSError):
            (self.path / SERVICES).unlink()
