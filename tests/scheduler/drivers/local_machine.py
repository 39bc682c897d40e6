"""What the tests of the local driver share: a data folder that ends its members, and what this machine lacks."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from scheduler.drivers import cgroup_probe, cgroups, process_tree, sandbox
from scheduler.drivers import member_folder as files
from scheduler.drivers.base import Driver
from scheduler.drivers.local import LocalDriver
from scheduler.drivers.podman import find_podman
from tests.scheduler.drivers.case import DriverCase

NODE = "node-1"


@cache
def why_not() -> dict[str, str]:
    """What can't be used here, with the reason that a skipped test prints."""
    missing = {}
    if sandbox.find_bubblewrap(Path("/nonexistent-data")) is None:
        missing["bubblewrap"] = "bubblewrap is not installed or may not make namespaces here"
    if cgroup_probe.usable() is None:
        missing["cgroups"] = "no cgroup with memory, cpu and pids can be written here"
    podman = find_podman()
    if podman is None:
        missing["podman"] = "podman with runc is not installed here"
    elif subprocess.run([*podman._base(), "info"], capture_output=True, check=False).returncode:
        missing["podman"] = "podman is installed but does not work for this user"
    if os.geteuid() != 0:
        missing["root"] = "only root can give members a user id of their own"
    return missing


WHY_NOT = why_not()


class Box:
    """One data folder for one test. `close` ends whatever the test left running and removes the traces."""

    def __init__(self, data: Path, options: Mapping[str, object]) -> None:
        data.mkdir(mode=0o755)
        self.data = data
        self.options = dict(options)
        self.instance = hashlib.sha256(os.path.realpath(data).encode()).hexdigest()[:8]

    def driver(self, **changes: object) -> LocalDriver:
        return LocalDriver(self.data, NODE, **{**self.options, **changes})  # type: ignore[arg-type]

    def close(self) -> None:
        driver = self.driver()
        for member in driver.list_members():
            driver.stop(key=member.key, job_id=member.job_id, fence=member.fence, grace_s=0)
        deadline = time.monotonic() + 20
        while driver.list_members():
            assert time.monotonic() < deadline, "members of the test did not end"
            time.sleep(0.03)
        assert self.groups() == [], "a cgroup was left behind"
        shutil.rmtree(Path("/var/lib/gpu-commons") / self.instance, ignore_errors=True)

    def groups(self) -> list[str]:
        """Cgroup directories of this box that exist now."""
        found: list[str] = []
        for folder in cgroups.elsewhere("", ()):  # every mounted hierarchy
            with suppress(FileNotFoundError):
                found += [entry.path for entry in os.scandir(folder) if entry.name.startswith(self.instance)]
        return found

    def record(self, key: str, name: str) -> dict[str, Any]:
        """A JSON file of the member."""
        found = files.read_json(str(self.data / "jobs" / key / name))
        assert found is not None, f"{key} has no {name}"
        return found

    def processes(self, key: str) -> list[int]:
        """Living processes of one member, as the host sees them."""
        return process_tree.marked(f"{self.instance}-{key}")

    def kill_shim(self, key: str) -> None:
        os.kill(int((self.data / "jobs" / key / files.SHIM_PID).read_text()), signal.SIGKILL)


def other_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process of the portal that runs `code` with `arguments` in sys.argv[1:]."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(__file__).resolve().parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


START_CODE = """
import sys, time
from pathlib import Path
from scheduler.drivers.base import MemberSpec
from scheduler.drivers.base import Driver
from scheduler.drivers.local import LocalDriver
data, node, key, job = sys.argv[1:5]
driver = LocalDriver(Path(data), node)
driver.machine
print("prepared", flush=True)
sys.stdin.readline()
spec = MemberSpec(key=key, job_id=int(job), attempt_id=1, fence=1, node=node, form="container", command=sys.argv[5:])
print(driver.start(spec).phase, flush=True)
time.sleep(600)
"""


def start_elsewhere(box: Box, key: str, job: int, command: Sequence[str]) -> subprocess.Popen[str]:
    """A process that is about to call `start`: send it a line, read the phase, and end it."""
    process = other_python(START_CODE, str(box.data), NODE, key, str(job), *command)
    assert process.stdout is not None
    assert process.stdout.readline() == "prepared\n"
    return process


def let_it_start(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def phase_it_saw(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill_hard(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


class LocalCase(DriverCase):
    """Hooks of the conformance suite for real processes. Members print `ran` once each time they run."""

    node = NODE
    options: ClassVar[dict[str, bool]] = {}

    @pytest.fixture(autouse=True)
    def _box(self, tmp_path: Path) -> Iterator[None]:
        self.box = Box(tmp_path / "data", self.options)
        yield
        self.box.close()

    def make_driver(self) -> LocalDriver:
        return self.box.driver()

    def command(self, *, seconds: float = 0.0, exit_code: int = 0) -> Sequence[str]:
        return ["sh", "-c", f"echo ran; sleep {seconds}; exit {exit_code}"]

    def runs(self, driver: Driver, key: str) -> int:
        return self.whole_log(driver, key).count(b"ran\n")

    def printing_command(self, lines: int) -> Sequence[str]:
        return ["sh", "-c", f"i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); done"]

    def signalled_command(self) -> Sequence[str]:
        return ["sh", "-c", "kill -TERM $$; sleep 60"]

    def polite_command(self) -> Sequence[str]:
        return ["sh", "-c", "trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]

    def stubborn_command(self) -> Sequence[str]:
        return ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]

    def greedy_command(self) -> Sequence[str]:
        # Several processes, each below 64 MiB alone: what counts is the member as a whole.
        hog = "dd if=/dev/zero of=/dev/null bs=48M count=100000 2>/dev/null"
        return ["sh", "-c", f"{hog} & {hog} & {hog} & wait"]

    def lose_next_reply(self, driver: Driver) -> None:
        assert isinstance(driver, LocalDriver)
        driver.handshake_s = 0.0
