"""The last step before a member's command, run by `python -I -S -c` inside the sandbox and the cgroups.

It opens its own session, waits for the word of the shim, gives up privileges, sets rlimits and becomes the command.
It imports nothing of ours (inside the sandbox our files may be hidden), nothing at all after the change of user
(Python's own files may be out of that user's reach), and must not outlive the exec.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def _receive(descriptor: int) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        chunk = os.read(descriptor, 65_536)
        if not chunk:
            os._exit(126)  # the shim went away: the command must not run
        received += chunk
    return received


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _give_up_privileges(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _binder() -> Callable[[], None]:
    """For where no sandbox does it: no set-uid programs, and death with the shim (which a change of uid resets)."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def bind() -> None:
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")

    return bind


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """execve with a search along the command's own PATH (os.execvpe imports modules at its first use)."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, environment)
    denied: OSError | None = None
    for folder in environment.get("PATH", "").split(":"):
        try:
            os.execve(f"{folder or '.'}/{argv[0]}", argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
    raise denied or FileNotFoundError(2, "No such file or directory")


def main(descriptor: int, bare: bool) -> None:
    bind = _binder() if bare else None
    os.set_inheritable(descriptor, False)  # a successful exec closes it, which is how the shim learns of it
    os.setsid()
    os.write(descriptor, b"R")
    order = json.loads(_receive(descriptor))
    step = "its working folder"
    try:
        os.chdir(order["cwd"])
        step = "its limits"
        _limit(resource.RLIMIT_CORE, 0)
        if order["address_space_bytes"]:
            _limit(resource.RLIMIT_AS, order["address_space_bytes"])
        if order["processes"]:
            _limit(resource.RLIMIT_NPROC, order["processes"])
        step = "its user id"
        if order["uid"] is not None:
            _give_up_privileges(order["uid"], order["gid"])
        if bind is not None:
            bind()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a command expects the default
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        step = "command"
        _execute(order["argv"], order["environment"])
    except Exception as error:
        report = {"step": step, "errno": getattr(error, "errno", None), "text": getattr(error, "strerror", str(error))}
        os.write(descriptor, json.dumps(report).encode())
    os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "bare")
