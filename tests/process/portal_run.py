"""A real `manage.py up` in a folder of its own, and a small client of its API. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
FOREIGN = (
    "DATABASE_URL",
    "REDIS_URL",
    "DATABASE_ROLE",
    "SECRET_KEY",
    "GPU_COMMONS_DATA",
    "PORTAL_URL",
    "ALLOWED_HOSTS",
)
ENDED = ("succeeded", "failed", "cancelled", "preempted")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Portal:
    """One installation: `start`, talk, `kill`, `stop`."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.runner: subprocess.Popen[bytes] | None = None
        self.token = ""
        self.submitted: list[int] = []

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        return kept | {"GPU_COMMONS_PYTHON_OK": "1", "GPU_COMMONS_DATA": str(self.data)}

    def start(self, *options: str, wait_s: float = 120) -> None:
        command = [
            sys.executable,
            str(CHECKOUT / "manage.py"),
            "up",
            "--port",
            str(self.port),
            "--data",
            str(self.data),
        ]
        log = (self.data.parent / "up.log").open("ab")
        self.runner = subprocess.Popen([*command, *options], env=self.environment(), stdout=log, stderr=log)
        self.until(lambda: self.get("/readyz")[0] == 200, wait_s, "the portal is ready")
        self.until(lambda: "agent" in self.pids(), wait_s, "all services run")
        if not self.token:
            self.token = self.manage("token", "researcher").stdout.strip()

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(CHECKOUT / "manage.py"), *arguments]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120, check=False)

    def services(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.data / "services.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def pids(self) -> dict[str, int]:
        return dict(self.services().get("pids", {}))

    def kill(self, name: str) -> int:
        """SIGKILL to one service; waits until the supervisor has put another in its place."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.pids().get(name, pid) != pid, 60, f"{name} is started again")
        return pid

    def stop(self) -> None:
        if self.runner is not None and self.runner.poll() is None:
            self.runner.send_signal(signal.SIGTERM)
            self.runner.wait(60)

    def get(self, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, parsed body); status 0 when nobody answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (OSError, ValueError):
            return 0, None

    def submit(self, **values: Any) -> int:
        """Submit as a careful client does: the same Idempotency-Key until there is an answer."""
        spec = {"project": "vision", "name": "process test", "asks": [{"form": "container", "memory_mib": 64}]} | values
        key = f"test-{time.monotonic_ns()}"
        end = time.monotonic() + 60
        while time.monotonic() < end:
            status, job = self._post_with_key("/api/v1/jobs/", spec, key)
            if status == 201:
                self.submitted.append(int(job["id"]))
                return self.submitted[-1]
            assert status in (0, 500, 502, 503), (status, job)
            time.sleep(0.5)
        raise AssertionError("the job was not accepted within 60 s")

    def _post_with_key(self, path: str, body: Any, key: str) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "Idempotency-Key": key,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (OSError, ValueError):
            return 0, None

    def job(self, pk: int) -> dict[str, Any]:
        status, job = self.get(f"/api/v1/jobs/{pk}/")
        return job if status == 200 else {"state": "?"}

    def ended(self, ids: list[int], wait_s: float) -> list[dict[str, Any]]:
        self.until(lambda: all(self.job(pk)["state"] in ENDED for pk in ids), wait_s, f"jobs {ids} end")
        return [self.job(pk) for pk in ids]

    def until(self, condition: Any, wait_s: float, what: str) -> None:
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            if condition():
                return
            assert self.runner is None or self.runner.poll() is None, f"`up` ended; see {self.data.parent / 'up.log'}"
            time.sleep(0.2)
        log = (self.data.parent / "up.log").read_text()[-3000:]
        raise AssertionError(f"not within {wait_s} s: {what}\n{log}")
