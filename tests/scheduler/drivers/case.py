"""The features and hooks of one driver under test, and the tools that its tests share."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from scheduler.drivers.base import (
    Driver,
    LogChunk,
    MemberSpec,
    Observation,
    Phase,
)


class DriverCase:
    """Features and hooks to fill in, and tools for tests of one driver."""

    # -- features: a driver without one skips the tests that need it, which pytest reports with the reason
    ends_by_signal: ClassVar[bool] = True  # a member can die by a signal of its own
    keeps_output: ClassVar[bool] = True  # the log is the command's own output
    hears_stops: ClassVar[bool] = True  # a command can react to the polite signal
    bounds_memory: ClassVar[bool] = True
    reports_start_failures: ClassVar[bool] = True
    checks_environment: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True  # may be called from several threads in a test
    node: ClassVar[str] = "node-1"
    patience_s: ClassVar[float] = 60.0

    # -- hooks ------------------------------------------------------------------------------------------------------

    @pytest.fixture
    def driver(self) -> Driver:
        return self.make_driver()

    def make_driver(self) -> Driver:
        """A driver on a state of its own for this test (a second call in the same test: another object, same state)."""
        raise NotImplementedError

    def restart_driver(self, driver: Driver) -> Driver:
        """As after a restart of the process that held `driver`: nothing in memory survives."""
        return self.make_driver()

    def command(self, *, seconds: float = 0.0, exit_code: int = 0) -> Sequence[str]:
        """A command that runs `seconds` and ends with `exit_code`; it counts its runs where `runs` can see them."""
        raise NotImplementedError

    def runs(self, driver: Driver, key: str) -> int:
        """How often the command of the member truly ran."""
        raise NotImplementedError

    def printing_command(self, lines: int) -> Sequence[str]:
        """Prints `line 0` … `line N-1`, one a line, and ends with 0. Needs keeps_output."""
        raise NotImplementedError

    def signalled_command(self) -> Sequence[str]:
        """Ends by SIGTERM sent to itself. Needs ends_by_signal."""
        raise NotImplementedError

    def polite_command(self) -> Sequence[str]:
        """Prints `ready`, runs for long; when asked to stop prints `last words` and ends. Needs hears_stops."""
        raise NotImplementedError

    def stubborn_command(self) -> Sequence[str]:
        """Prints `ready`, runs for long, and ignores the polite signal. Needs hears_stops."""
        raise NotImplementedError

    def greedy_command(self) -> Sequence[str]:
        """Uses far more than 64 MiB of memory. Needs bounds_memory."""
        raise NotImplementedError

    def lose_next_reply(self, driver: Driver) -> None:
        """The next `start` takes effect, and its reply gets lost (ReplyLost)."""
        raise NotImplementedError

    def pass_time(self) -> None:
        time.sleep(0.03)

    # -- tools ------------------------------------------------------------------------------------------------------

    _numbers = itertools.count(1)

    def spec(self, command: Sequence[str] | None = None, **changes: object) -> MemberSpec:
        number = next(self._numbers)
        plain = MemberSpec(
            key=f"member-{number}",
            job_id=number,
            attempt_id=number,
            fence=1,
            node=self.node,
            form="container",
            command=self.command() if command is None else command,
        )
        return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]

    def see(self, driver: Driver, key: str) -> Observation:
        return driver.inspect([key])[key]

    def wait_until(self, what: str, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.patience_s
        while not happened():
            assert time.monotonic() < deadline, f"did not happen: {what}"
            self.pass_time()

    def wait_for(self, driver: Driver, key: str, phase: Phase) -> Observation:
        self.wait_until(f"{key} {phase}", lambda: self.see(driver, key).phase == phase)
        return self.see(driver, key)

    def wait_for_output(self, driver: Driver, key: str, text: bytes) -> None:
        self.wait_until(f"{text!r} in the log", lambda: text in driver.logs(key).data)

    def whole_log(self, driver: Driver, key: str, limit: int = 65_536) -> bytes:
        data, chunk = b"", LogChunk(b"", 0, False)
        while not chunk.end:
            chunk = driver.logs(key, chunk.cursor, limit)
            data += chunk.data
        return data

    def stop(self, driver: Driver, spec: MemberSpec, grace_s: int = 0) -> Observation:
        return driver.stop(key=spec.key, job_id=spec.job_id, fence=spec.fence, grace_s=grace_s)

    def need(self, feature: str) -> None:
        if not getattr(self, feature):
            pytest.skip(f"this driver does not promise it: {feature}")
