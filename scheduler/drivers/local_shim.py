"""The shim: one small process per member of the local driver, between the portal and the command.

It outlives the worker that started it, runs the command at most once inside its limits, copies the output to the log,
obeys the stop file and leaves `exit.json`. Only a file in the member's folder tells it anything; it knows no database
and no portal. Run: python -E -s -S -m scheduler.drivers.local_shim FOLDER. Light standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time

from scheduler.drivers import cgroups, process_tree
from scheduler.drivers import member_folder as files
from scheduler.drivers.shim_log import Log
from scheduler.drivers.shim_verdict import Ending, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

LOCKED_BY_OTHER = 75  # exit code: another shim has the member (EX_TEMPFAIL)
_STATUS_FD = 3
_TICK_S = 0.2
_SANDBOX_PATIENCE_S = 60.0
_WALLTIME_SLACK_S = 60.0  # the scheduler ends a job at its walltime; this is the backstop if nobody does
_BACKSTOP_GRACE_S = 10.0
_MEMORY_LOOK_S = 0.4
_DRAIN_S = 3.0
_RECORD_TRIES = 600
_PR_SET_CHILD_SUBREAPER = 36


class StartFailed(Exception):
    """The command could not be executed; the text is for people."""


class Shim:
    def __init__(self, folder: str, claim: dict[str, Any]) -> None:
        self.folder = folder
        self.run_order: dict[str, Any] = claim["run"]
        self.limits: dict[str, Any] = claim["limits"]
        self.name: str = claim["name"]
        self.group = cgroups.group_of(self.limits)
        self.child = 0
        self.status: int | None = None
        self.command_group = 0  # process group of the command, where the polite signals go
        self.output = -1
        self.log = Log(f"{folder}/{files.LOG}", claim["max_log_bytes"])
        self.ending = Ending(limits=self.limits, kind=self.run_order["kind"])
        self.hard_at: float | None = None  # monotonic; when the grace ends
        self.soft_at: float | None = None  # monotonic; when SIGTERM follows a checkpoint signal
        self.stop_mark: tuple[int, int] | None = None
        self.next_look = 0.0
        self.wakeup = -1

    # -- start ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Limits, marker, process, exec. StartFailed with the reason if the command doesn't run."""
        if self.group is not None:
            try:
                self.group.create(
                    memory_bytes=self.limits["memory_bytes"],
                    cpu_milli=self.limits["cpu_milli"],
                    pids_max=self.limits["pids_max"],
                )
            except OSError as error:
                raise StartFailed(f"the limits could not be set: {error}") from error
        marker = {"boot_id": files.boot_id(), "shim": os.getpid()}
        if not files.create_durable(f"{self.folder}/{files.STARTED}", marker):
            raise AssertionError("the started marker was there although we hold the lock")
        self.output, write_end = os.pipe()
        ours, theirs = socket.socketpair()
        self.child = os.fork()
        if self.child == 0:
            self._become_child(write_end, theirs)
        os.close(write_end)
        theirs.close()
        os.set_blocking(self.output, False)
        with ours:
            if self.run_order["kind"] != "podman":
                self._hand_over(ours)
            else:
                self.command_group = self.child
        self.ending.started_at = time.time()
        running = {"pid": self.child, "command_group": self.command_group, "started_at": self.ending.started_at}
        files.write_durable(f"{self.folder}/{files.RUNNING}", running)

    def _become_child(self, write_end: int, theirs: socket.socket) -> NoReturn:
        try:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            null = os.open("/dev/null", os.O_RDONLY)
            status = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 10)
            output = fcntl.fcntl(write_end, fcntl.F_DUPFD, 10)
            for source, target in ((null, 0), (output, 1), (output, 2), (status, _STATUS_FD)):
                os.dup2(source, target)
            os.closerange(_STATUS_FD + 1, 256)
            if self.run_order["kind"] == "podman":  # the container enters the group, not podman itself
                os.close(_STATUS_FD)
                os.setsid()
            elif self.group is not None:
                self.group.enter()
            os.chdir("/")
            argv = self.run_order["outer_argv"]
            os.execve(argv[0], argv, self.run_order["outer_environment"])
        except BaseException as error:
            os.write(2, f"{self.run_order['outer_argv'][0]}: {error}\n".encode())
        os._exit(127)

    def _hand_over(self, ours: socket.socket) -> None:
        """Meet the launcher inside the sandbox, send it the order, and learn whether the exec succeeded."""
        ours.settimeout(_SANDBOX_PATIENCE_S)
        try:
            ready = ours.recv(1)
            if ready != b"R":
                raise StartFailed(f"the sandbox could not be made: {self._last_words()}")
            self.command_group = (process_tree.descendants(self.child) or [self.child])[-1]
            ours.sendall(json.dumps(self.run_order["order"]).encode() + b"\n")
            report = b""
            while chunk := ours.recv(4096):
                report += chunk
        except OSError as error:
            raise StartFailed(f"the sandbox could not be made: {error}") from error
        if report:
            raise StartFailed(_explain(json.loads(report), self.run_order["order"]["argv"][0]))

    def _last_words(self) -> str:
        time.sleep(0.05)
        self.log.copy(self.output)
        return self.log.last_line() or "no reason was given"

    # -- while it runs ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Copy output and look for a stop until the command ends."""
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        while self.status is None:
            for descriptor, _ in poll.poll(_TICK_S * 1000):
                if descriptor == self.output and not self.log.copy(self.output):
                    poll.unregister(self.output)  # closed by the command, which may go on without output
                elif descriptor == self.wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wakeup, 4096)
            self._reap()
            self._look_for_stop()
            self._look_at_clock()
            self._look_at_memory()

    def _reap(self) -> None:
        """Collect the child, and orphans that came to us because we are their subreaper."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def _look_for_stop(self) -> None:
        path = f"{self.folder}/{files.STOP}"
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return
        mark = (found.st_ino, found.st_mtime_ns)
        if mark != self.stop_mark and self.status is None:
            self.stop_mark = mark
            wish = files.read_json(path) or {}
            self._begin_stop(float(wish.get("grace_s", 0)))

    def _begin_stop(self, grace_s: float) -> None:
        """The polite signal now, the hard one after the grace; a later wish may only shorten the grace."""
        now = time.monotonic()
        first = self.hard_at is None
        self.hard_at = now + grace_s if self.hard_at is None else min(self.hard_at, now + grace_s)
        self.ending.stopped = True
        if not first or grace_s <= 0:
            return
        checkpoint = self.run_order["checkpoint_signal"]
        if not checkpoint:
            self._ask_to_end()
            return
        # To the command alone: most processes that it may have started would die of a signal they don't expect.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.command_group, checkpoint)
        self.soft_at = now + grace_s / 2  # half of the grace to write the checkpoint, half to end

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        walltime = self.run_order["walltime_s"]
        latest = self.ending.started_at + walltime + _WALLTIME_SLACK_S if walltime else None
        if latest is not None and self.hard_at is None and time.time() > latest:
            self.ending.over_walltime = True
            self._begin_stop(_BACKSTOP_GRACE_S)
        if self.soft_at is not None and now >= self.soft_at:
            self.soft_at = None
            self._ask_to_end()
        if self.hard_at is not None and now >= self.hard_at and self.status is None:
            self.ending.killed_hard = True
            self._kill_everything()

    def _look_at_memory(self) -> None:
        """A member over its limit ends as a whole, not as a torso that holds its cards and waits for a dead process.

        With cgroups the kernel kills one process and counts it; without, all its processes together are measured here.
        """
        if self.group is not None:
            self.ending.oom_kills = max(self.ending.oom_kills, self.group.oom_kills())
            if self.status is None and self.ending.oom_kills:
                self.ending.over_memory = True
                self._kill_everything()
            return
        now = time.monotonic()
        limit = self.limits["memory_bytes"]
        if now < self.next_look:
            return
        self.next_look = now + _MEMORY_LOOK_S
        pids = process_tree.descendants(os.getpid())
        used = process_tree.memory_bytes(pids)
        if used > limit:
            used = process_tree.proportional_bytes(pids) or used
        self.ending.peak_bytes = max(self.ending.peak_bytes or 0, used)
        if used > limit and self.status is None:
            self.ending.over_memory = True
            self._kill_everything()

    def _ask_to_end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.command_group, signal.SIGTERM)

    def _kill_everything(self) -> bool:
        remove = self.run_order.get("remove_argv")
        if remove:
            _run_quietly(remove, self.run_order["outer_environment"])
        if self.group is not None:
            return self.group.kill()
        gone = process_tree.kill_all(self._below_us)
        return gone and process_tree.kill_all(lambda: process_tree.marked(self.name))

    def _below_us(self) -> list[int]:
        self._reap()
        return process_tree.descendants(os.getpid())

    # -- end --------------------------------------------------------------------------------------------------------

    def finish(self, failure: str = "") -> None:
        """End what is left of the member, complete the log, and record the end. Retries while the disk is full."""
        while not self._kill_everything():  # a process in an uninterruptible wait still holds the card
            time.sleep(_TICK_S)
        deadline = time.monotonic() + _DRAIN_S
        self._reap()
        while self.child and self.status is None and time.monotonic() < deadline:
            time.sleep(0.01)
            self._reap()
        while self.output >= 0 and self.log.copy(self.output) and time.monotonic() < deadline:
            select.select([self.output], [], [], 0.05)
        self.log.close()
        if self.group is not None:
            self.ending.oom_kills = max(self.ending.oom_kills, self.group.oom_kills())
            self.ending.peak_bytes = self.group.peak_bytes()
            self.group.remove()
        record(self.folder, verdict(self.ending, self.status, failure))


def _run_quietly(argv: list[str], environment: dict[str, str]) -> None:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            null = os.open("/dev/null", os.O_RDWR)
            for target in (0, 1, 2):
                os.dup2(null, target)
            os.execve(argv[0], argv, environment)
        os._exit(127)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _explain(report: dict[str, Any], program: str) -> str:
    if report["step"] != "command":
        return f"the job could not be given {report['step']}: {report['text']}"
    return f"the command {program[:200]!r} could not be started: {report['text']}"


def record(folder: str, end: dict[str, Any]) -> None:
    for attempt in range(_RECORD_TRIES):
        try:
            files.write_durable(f"{folder}/{files.EXIT}", end)
            return
        except OSError:
            if attempt == _RECORD_TRIES - 1:
                raise
            time.sleep(1.0)


def _become_subreaper() -> None:
    """Orphans of the command come to us instead of to process 1, so that they can be found and ended."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _serve(folder: str) -> None:
    claim = files.read_json(f"{folder}/{files.SPEC}")
    if claim is None or os.path.exists(f"{folder}/{files.EXIT}") or os.path.exists(f"{folder}/{files.STARTED}"):
        return  # nothing claimed, or run before: never a second time
    shim = Shim(folder, claim)
    if os.path.exists(f"{folder}/{files.STOP}"):
        shim.ending.stopped = True
        record(folder, verdict(shim.ending, None, ""))
        return
    if shim.group is None:
        _become_subreaper()
    shim.wakeup, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    try:
        shim.start()
    except StartFailed as error:
        shim.finish(str(error))
        return
    shim.watch()
    shim.finish()


def main(folder: str) -> int:
    """Take the member's lock, leave the caller's session and family, and serve. Returns only in the first process."""
    os.umask(0o077)
    lock = files.lock_file(f"{folder}/{files.SHIM_LOCK}", wait_s=1.0)
    if lock is None:
        return LOCKED_BY_OTHER
    if os.fork():
        return 0  # the lock belongs to the open file, which the child keeps
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # meant for services; a member ends by its stop file
    with open(f"{folder}/{files.SHIM_PID}", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.chdir("/")
    _serve(folder)
    return 0


if __name__ == "__main__":
    code = main(os.path.abspath(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)
