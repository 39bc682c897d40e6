"""The pytest plugin tests/services.py, run as pytest inside this run."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.up.bootstrap import CHECKOUT
from tests.portal.up.conftest import wait_for

BASE = [sys.executable, "-m", "pytest", "-q", "-p", "tests.services"]
PURE = """
import os
from pathlib import Path

def test_pure():
    assert not (Path(os.environ["GPU_COMMONS_DATA"]) / "valkey").exists()
"""
WAITING = """
import os, time

def test_waits(services):
    print(os.environ["GPU_COMMONS_DATA"], services.running[0][0].pid, flush=True)
    time.sleep(120)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the inner run puts its own folder, so that what it leaves is seen."""
    with tempfile.TemporaryDirectory(prefix="gpu-commons-plugin-") as path:
        Path(path).chmod(0o711)
        yield Path(path)


def start(temporary: Path, code: str, *more: str, **env: str) -> "subprocess.Popen[str]":
    """Run one test file with this plugin alone, in an environment as in a new terminal."""
    (temporary / "test_inner.py").write_text(code)
    (temporary / "pytest.ini").write_text("[pytest]\n")
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    argv = [*BASE, "-c", str(temporary / "pytest.ini"), *more]
    return subprocess.Popen(
        [*argv, str(temporary / "test_inner.py")],
        cwd=CHECKOUT,
        env={**kept, "TMPDIR": str(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_pure_tests_start_no_server_and_leave_nothing(temporary: Path) -> None:
    inner = start(temporary, PURE)
    output, _ = inner.communicate(timeout=120)
    assert inner.returncode == 0, output
    assert not list(temporary.glob("gpu-commons-test-*"))


def test_an_interrupted_run_stops_its_servers_and_leaves_nothing(temporary: Path) -> None:
    inner = start(temporary, WAITING, "-s")
    assert inner.stdout is not None
    data, pid = next(line for line in inner.stdout if "gpu-commons-test-" in line).split()
    assert Path(f"/proc/{pid}").exists()
    assert Path(data).is_relative_to(temporary)
    inner.send_signal(signal.SIGTERM)  # takes the way of Ctrl-C from here on
    output, _ = inner.communicate(timeout=120)
    assert inner.returncode == 2, output
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "PostgreSQL has ended")
    assert not list(temporary.glob("gpu-commons-test-*"))


def test_a_system_without_postgresql_is_said(temporary: Path) -> None:
    # An empty PATH and no /usr/lib/postgresql would need another root; so the finder is replaced in the inner run.
    (temporary / "without_postgres.py").write_text(
        "from portal.up import binaries\n"
        "def missing():\n"
        "    raise binaries.BinariesError('This system has no PostgreSQL server programs')\n"
        "binaries.system_postgres = missing\n"
    )
    inner = start(temporary, PURE, "-p", "without_postgres", TEST_WITH_SYSTEM_POSTGRES="1", PYTHONPATH=str(temporary))
    output, _ = inner.communicate(timeout=120)
    assert inner.returncode == 4
    assert "This system has no PostgreSQL server programs" in output
