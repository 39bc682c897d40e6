"""A machine to run the real agent on: the fake NVML library, a kernel log file, and a portal that may misbehave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "tests" / "data" / "fake_nvml" / "fake_nvml.c"
TOKEN = "node-token-that-must-stay-secret"
PATIENCE_S = 15.0  # how long a test waits for something that must happen; nothing is asserted about the time itself


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`; fails the test when there is none for a long time."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"never happened: {what}")


def h100(slot: int, **changes: object) -> dict[str, object]:
    """State lines of a healthy card; None leaves a line out, which makes the value "not supported"."""
    values: dict[str, object] = {
        "uuid": f"GPU-{slot:08d}-1111-2222-3333-444444444444",
        "name": "NVIDIA H100 80GB HBM3",
        "serial": f"165{slot:04d}",
        "pci": f"00000000:{0x3B + slot:02X}:00.0",
        "total": 81559 << 20,
        "reserved": 500 << 20,
        "used": 1024 << 20,
        "temperature": 41 + slot,
        "utilisation": 73,
        "memory_busy": 31,
        "power": 312500,
        "slowdown": 0,
        "ecc_volatile": 0,
        "ecc_corrected": 5,
        "ecc_aggregate": 7,
        "remap_pending": 0,
        "remap_failure": 0,
        "remap_correctable": 2,
        "remap_uncorrectable": 1,
        "mig": 0,
        "processes": "4194401:1073741824,4194400:-",  # numbers that Linux gives to no process
    }
    values.update(changes)
    return {f"{slot}.{key}": value for key, value in values.items() if value is not None}


class Machine:
    """State of the fake driver and of the kernel log, and the agent's own folders."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.spool = folder / "spool"
        self.jobs = folder / "data" / "jobs"  # so that members of other runs on this machine are not seen
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.token_file.chmod(0o600)
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("6,1,1000,-;Linux version 6.1\n SUBSYSTEM=cpu\n")
        self._state = folder / "nvml"
        self._library = library
        self._running: list[subprocess.Popen[str]] = []
        self.set(init=9)

    def set(self, *cards: dict[str, object], **values: object) -> None:
        """Replace the whole state in one step, so that no call sees half of it."""
        lines: dict[str, object] = {"driver": "570.86.15", "nvml": "12.570.86.15", "count": len(cards)}
        for card in cards:
            lines.update(card)
        lines.update(values)
        fresh = self._state.with_suffix(".new")
        fresh.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        self._state.with_suffix(".looks").unlink(missing_ok=True)
        fresh.replace(self._state)

    def xid(self, sequence: int, code: int, pci: str = "0000:3b:00") -> None:
        text = f"NVRM: Xid (PCI:{pci}): {code}, pid='<unknown>', name=<unknown>, event {sequence}"
        with self.kmsg.open("a") as log:
            log.write(f"3,{sequence},{sequence * 1000},-;{text}\n")

    def command(self, *arguments: str) -> list[str]:
        own = ["--kmsg", str(self.kmsg), "--jobs", str(self.jobs), "--hostname", "n001"]
        return [sys.executable, "-m", "scheduler.agent", *own, *arguments]

    def environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", "")
        return {"PATH": path, "LD_LIBRARY_PATH": str(self._library), "FAKE_NVML_STATE": str(self._state)}

    def print(self, *arguments: str) -> dict[str, Any]:
        """One report of the real agent, and the shape every report must have."""
        done = self.run("--print", *arguments)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def to(self, url: str) -> list[str]:
        return ["--url", url, "--token-file", str(self.token_file), "--spool", str(self.spool)]

    def once(self, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(*self.to(url), "--once", *arguments)

    def start(self, url: str, *arguments: str) -> subprocess.Popen[str]:
        agent = subprocess.Popen(
            self.command(*self.to(url), "--interval", "0.1", *arguments),
            cwd=ROOT,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(agent)
        return agent

    def looks(self) -> int:
        """How often the driver was asked for its cards since its state was last set."""
        try:
            return self._state.with_suffix(".looks").stat().st_size
        except FileNotFoundError:
            return 0

    def stop(self, agent: subprocess.Popen[str], how: signal.Signals = signal.SIGTERM) -> str:
        """End it and give everything it logged."""
        agent.send_signal(how)
        output, _ = agent.communicate(timeout=PATIENCE_S)
        self._running.remove(agent)
        return output

    def stop_all(self) -> None:
        for agent in list(self._running):
            self.stop(agent, signal.SIGKILL)


class Portal:
    """Takes reports and remembers them. `answer` gives (status, body) for a report; None drops the connection."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.accepted: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str | None]] = []
        self.answer: Callable[[dict[str, Any]], tuple[int, str] | None] = lambda report: (202, "")
        self.location = ""
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> Portal:
        """Listen; after `close`, on the same port again."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None

    def faults(self) -> dict[str, dict[str, Any]]:
        """All faults in accepted reports. The same id must always come with the same content."""
        found: dict[str, dict[str, Any]] = {}
        for report in list(self.accepted):
            for fault in report["faults"]:
                assert found.setdefault(fault["id"], fault) == fault
        return found

    def codes(self) -> list[int]:
        return sorted(fault["code"] for fault in self.faults().values() if fault["kind"] == "xid")


def _handler(portal: Portal) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            portal.requests.append((self.path, self.headers["Authorization"]))
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            portal.reports.append(report)
            answer = portal.answer(report)
            if answer is None:
                self.close_connection = True
                return
            if 200 <= answer[0] < 300:
                portal.accepted.append(report)
            self.send_response(answer[0])
            if portal.location:
                self.send_header("Location", portal.location)
            self.end_headers()
            self.wfile.write(answer[1].encode())

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    return Handler


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the compiled fake libnvidia-ml.so.1."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang) on this machine: the fake NVML library can't be built")
    folder = tmp_path_factory.mktemp("fake_nvml")
    options: Sequence[str] = ("-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
    subprocess.run([compiler, *options, "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)], check=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, library)
    yield machine
    machine.stop_all()


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal().open()
    yield portal
    portal.close()
