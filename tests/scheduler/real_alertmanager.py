"""A real Alertmanager of Debian on loopback, for the tests that talk to one."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = "prometheus-alertmanager"
CONFIG = """
route: {receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers:
  - name: hook
    webhook_configs: [{url: 'http://127.0.0.1:%(port)d/', send_resolved: true}]
"""


class Alertmanager:
    def __init__(self, url: str) -> None:
        self.url = url

    def read(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v2/{path}", timeout=5) as answer:
            return json.load(answer)

    def await_alerts(self, states: dict[str, str]) -> list[dict[str, Any]]:
        """Alerts whose card has such a state, as soon as all have; fails after ten seconds."""
        deadline = time.monotonic() + 10
        while True:
            found = self.read("alerts")
            seen = {alert["labels"].get("card", ""): alert["status"]["state"] for alert in found}
            if seen == states:
                return list(found)
            assert time.monotonic() < deadline, (seen, states)
            time.sleep(0.1)


@contextmanager
def alertmanager(folder: Path, hook_port: int) -> Iterator[Alertmanager]:
    """It tells what it has to a webhook on `hook_port`. Skips with the reason where Debian's package is not there."""
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"there is no {PROGRAM} here; Debian's package of that name has it")
    (folder / "am.yml").write_text(CONFIG % {"port": hook_port})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PROGRAM, f"--config.file={folder}/am.yml", f"--storage.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        found = Alertmanager(f"http://127.0.0.1:{port}")
        _await_start(found, process, folder / "log")
        yield found
    finally:
        process.terminate()
        process.wait(10)


def _await_start(found: Alertmanager, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 15
    while True:
        try:
            found.read("status")
        except OSError:
            assert process.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < deadline, log.read_text()[-2_000:]
            time.sleep(0.1)
        else:
            return
