"""Keeps children running: starts them in order, restarts one that dies with back-off, stops all in reverse order.

It knows nothing of what they do. It signals the children it started and nobody else: a running job that a worker
started has left the worker's session and goes on.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from portal.up.process import Account, how_it_ended, rotate, spawn, tail

FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
HEALTHY_AFTER = 30.0
FAILURES_AT_START = 5
POLL = 0.05
ROTATE_EVERY = 60.0


class Stopped(Exception):
    """A signal asked for the end while something was awaited."""


class StartFailed(Exception):
    """A service or a step did not come up; the message has the end of its log."""


@dataclass(frozen=True)
class Service:
    """One row of the process table. Services of one stage stop together."""

    name: str
    argv: tuple[str, ...]
    stage: int
    env: Mapping[str, str] = field(repr=False)
    cwd: Path = Path("/")
    account: Account | None = None
    stop_signal: int = signal.SIGTERM
    stop_seconds: float = 10.0
    death_signal: int = signal.SIGKILL
    before_start: Callable[[], None] | None = None


@dataclass
class Child:
    """A service and its present process, or the time of its next start."""

    service: Service
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    delay: float = FIRST_DELAY
    due_at: float | None = None
    failures: int = 0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self.process.pid if self.process is not None else None


class Supervisor:
    """Owns the children of one `up`. Single-threaded: everything happens in `tick`, called from the main thread."""

    def __init__(self, logs: Path, say: Callable[[str], None], changed: Callable[[], None] = lambda: None) -> None:
        self.logs = logs
        self.say = say
        self.changed = changed
        self.children: list[Child] = []
        self.signals = 0
        self._rotate_at = time.monotonic() + ROTATE_EVERY

    def listen(self) -> None:
        """Take the signals that end us. A second one during the end kills what is left."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started under nohup
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.signals += 1

    def start(self, service: Service) -> Child:
        """Start a service and keep it running from now on."""
        child = Child(service, self.logs / f"{service.name}.log")
        self.children.append(child)
        self._launch(child)
        if child.pid is not None:
            self.say(f"{service.name:<10} pid {child.pid:<7} log {child.log}")
        return child

    def _launch(self, child: Child) -> None:
        service, child.due_at = child.service, None
        child.started_at = time.monotonic()
        try:
            if service.before_start is not None:
                service.before_start()
            child.process = spawn(
                service.argv,
                env=service.env,
                log=child.log,
                cwd=service.cwd,
                account=service.account,
                death_signal=service.death_signal,
            )
        except Exception as error:  # whatever the hook or exec raises: the other services go on, this one is retried
            child.process = None
            self._schedule(child, f"could not start: {error}")
        self.changed()

    def _schedule(self, child: Child, why: str) -> None:
        now = time.monotonic()
        if now - child.started_at >= HEALTHY_AFTER:
            child.delay, child.failures = FIRST_DELAY, 0
        child.failures += 1
        child.due_at = now + child.delay
        self.say(f"{child.service.name:<10} {why}; starting again in {child.delay:g} s, log {child.log}")
        child.delay = min(child.delay * 2, LONGEST_DELAY)

    def tick(self) -> None:
        """Notice children that ended and start those that are due."""
        for child in self.children:
            if child.process is not None:
                code = child.process.poll()
                if code is not None:
                    child.process = None
                    self._schedule(child, f"ended with {how_it_ended(code)}")
            elif child.due_at is not None and time.monotonic() >= child.due_at:
                self._launch(child)
                if child.pid is not None:
                    self.say(f"{child.service.name:<10} pid {child.pid:<7} started again")
        if time.monotonic() >= self._rotate_at:
            self._rotate_at = time.monotonic() + ROTATE_EVERY
            for child in self.children:
                rotate(child.log)

    def wait_until(self, ready: Callable[[], bool], child: Child, seconds: float) -> None:
        """Supervise until a service answers; StartFailed when it keeps dying or takes too long."""
        deadline = time.monotonic() + seconds
        while True:
            self._stop_if_asked()
            if child.pid is not None and ready():
                return
            self.tick()
            if child.failures >= FAILURES_AT_START or time.monotonic() > deadline:
                raise StartFailed(f"{child.service.name} does not come up. The end of {child.log}:\n{tail(child.log)}")
            time.sleep(POLL)

    def run_step(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Run one command to its end while the services are supervised; StartFailed when it fails."""
        log = self.logs / f"{name}.log"
        process = spawn(argv, env=env, log=log, cwd=cwd)
        try:
            while process.poll() is None:
                self._stop_if_asked()
                self.tick()
                time.sleep(POLL)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            end = how_it_ended(process.returncode)
            raise StartFailed(f"The step {name} failed with {end}. The end of {log}:\n{tail(log, 30)}")

    def _stop_if_asked(self) -> None:
        if self.signals:
            raise Stopped

    def run(self) -> None:
        """Supervise until a signal comes."""
        while not self.signals:
            self.tick()
            time.sleep(POLL)

    def stop(self) -> None:
        """Stop all services, the last started stage first; what outstays its time is killed."""
        seen = self.signals
        ordered = sorted(reversed(self.children), key=lambda child: -child.service.stage)
        for _, group in groupby(ordered, key=lambda child: child.service.stage):
            self._stop_stage([child for child in group if child.process is not None], seen)
        self.children.clear()

    def _stop_stage(self, stage: list[Child], seen: int) -> None:
        for child in stage:
            assert child.process is not None
            child.process.send_signal(child.service.stop_signal)
        began = time.monotonic()
        for child in stage:
            assert child.process is not None
            while child.process.poll() is None:
                if time.monotonic() - began > child.service.stop_seconds or self.signals > seen:
                    self.say(f"{child.service.name:<10} did not stop in time; killed")
                    child.process.kill()
                    child.process.wait()
                    break
                time.sleep(POLL / 5)
            else:
                self.say(f"{child.service.name:<10} stopped")
            child.process = None
