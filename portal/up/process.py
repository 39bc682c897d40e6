"""Starting one child: its user, its log, and the signal that the kernel sends it when the runner dies.

PR_SET_PDEATHSIG belongs to the thread that forks, so children are started from the main thread only. The signal is
set after the change of user, because that change clears it. Children get sessions of their own: Ctrl-C reaches the
runner alone, and nothing here ever signals a group, since running jobs may be in one.
"""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
LOG_LIMIT = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Account:
    """The user that a child runs as."""

    name: str
    uid: int
    gid: int


def account_for_postgres() -> Account | None:
    """`nobody` when this process is root, since PostgreSQL refuses to run as root; otherwise None: stay who we are."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def as_account(account: Account | None) -> dict[str, Any]:
    """The arguments of subprocess that change the user; none for None."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(death_signal: int) -> Callable[[], None] | None:
    """What the child does between fork and exec; None where the kernel has no such thing (macOS)."""
    if _libc is None:
        return None
    prctl, parent = _libc.prctl, os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # the runner died before the line above
            os._exit(0)

    return prepare


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    cwd: Path,
    account: Account | None = None,
    death_signal: int = signal.SIGKILL,
) -> "subprocess.Popen[bytes]":
    """Start a child with its output appended to `log` (mode 0600, opened here, so that any user can write to it)."""
    rotate(log)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(death_signal),
            **as_account(account),
        )
    finally:
        os.close(handle)


def rotate(log: Path, limit: int = LOG_LIMIT) -> None:
    """Keep one older part of a log: copied and truncated in place, because its writer holds it open for appending."""
    try:
        if log.stat().st_size < limit:
            return
    except FileNotFoundError:
        return
    older = log.with_name(f"{log.name}.1")
    shutil.copyfile(log, older)
    older.chmod(0o600)
    os.truncate(log, 0)


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for a message about a service that does not start."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (empty log)"


def how_it_ended(returncode: int) -> str:
    """A return code in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:
        return f"signal {-returncode}"
