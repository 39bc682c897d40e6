"""Runs `up` with stand-in children in a folder of its own, and cleans up whatever a test killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.up import ports
from portal.up.bootstrap import CHECKOUT
from portal.up.folder import SERVICES
from tests.portal.up.stand_in import JOB, STARTED

PATIENCE = 60.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition is true; the limit only ends a test that would hang."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs; a zombie that nobody has reaped yet does not.

    All threads, since the first may have ended while another still holds the process's files and sockets.
    """
    try:
        return any(runs(task / "stat") for task in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def runs(stat: Path) -> bool:
    """Whether one thread has not ended, by its file of /proc."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class Runner:
    """One `up` as a process of its own."""

    def __init__(self, data: Path, *more: str) -> None:
        self.data = data
        self.port = ports.choose()
        self.output = data.with_name(f"{data.name}.out")
        env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.portal.up.stand_in",
                    "--data",
                    str(data),
                    "--port",
                    str(self.port),
                    *more,
                ],
                cwd=CHECKOUT,
                env=env,
                stdout=output,
                stderr=output,
            )

    def said(self) -> str:
        """What it printed so far."""
        return self.output.read_text()

    def services(self) -> dict[str, Any]:
        """services.json, or {} while it is not there."""
        try:
            return dict(json.loads((self.data / SERVICES).read_text()))
        except (OSError, ValueError):
            return {}

    def pid(self, name: str) -> int:
        """The process id of a service that runs."""
        return int(self.services()["pids"][name])

    def url(self, name: str) -> str:
        """An address that it published."""
        return str(self.services()["environment"][name])

    def wait_until_ready(self) -> "Runner":
        """Return when the final block is printed."""
        wait_for(lambda: "is ready" in self.said() or self.process.poll() is not None, "it is ready")
        assert "is ready" in self.said(), self.said()
        return self

    def started(self) -> set[str]:
        """The stand-ins that take signals by now."""
        path = self.data / STARTED
        return set(path.read_text().split()) if path.exists() else set()

    def jobs(self) -> list[int]:
        """The process ids of the stand-ins for running jobs: one each time `drivers` started."""
        path = self.data / JOB
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def job(self) -> int:
        """The one job of a runner whose `drivers` started once."""
        return int(wait_for(self.jobs, "the job has started")[0])

    def clean(self) -> None:
        """Stop what still runs."""
        pids = [pid for pid in (self.services().get("pids") or {}).values() if pid]
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        for pid in [*pids, *self.jobs()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that other users may pass through, as a data folder's parents are on most machines."""
    path = Path(tempfile.mkdtemp(prefix="gpu-commons-up-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def running(open_folder: Path) -> Iterator[Runner]:
    """An `up` that several tests share; each leaves it running."""
    runner = Runner(open_folder / "shared")
    try:
        yield runner.wait_until_ready()
    finally:
        runner.clean()


@pytest.fixture
def own(open_folder: Path, request: pytest.FixtureRequest) -> Iterator[Runner]:
    """An `up` that the test ends in its own way."""
    runner = Runner(open_folder / request.node.name)
    try:
        yield runner.wait_until_ready()
    finally:
        runner.clean()
