"""The local driver run by an ordinary user: no cgroups to write, no user ids to hand out, and still kept promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scheduler.drivers import sandbox

SOURCE = Path(__file__).resolve().parents[3]
SCRIPT = """
import json, sys, time
from pathlib import Path
from scheduler.drivers.base import DriverError, MemberSpec
from scheduler.drivers.local import LocalDriver

driver = LocalDriver(Path(sys.argv[1]) / "data", "node-1")
(driver.data / "secret").write_text("canary")
(driver.data / "secret").chmod(0o600)
commands = {
    "fails": ["sh", "-c", "echo ran; exit 3"],
    "looks": ["sh", "-c", f"cat {driver.data}/secret; id -u; pwd"],
    "greedy": ["sh", "-c", "for i in 1 2 3; do dd if=/dev/zero of=/dev/null bs=48M count=100000 & done; wait"],
    "leaves": ["sh", "-c", "(setsid sleep 600 &); exit 0"],
    "stops": ["sleep", "600"],
}
for number, (key, command) in enumerate(commands.items()):
    driver.start(MemberSpec(key=key, job_id=number, attempt_id=1, fence=1, node="node-1", form="container",
                            command=command, host_memory_mib=64))
driver.stop(key="stops", job_id=4, fence=1, grace_s=0)
deadline = time.monotonic() + 30
while driver.list_members() and time.monotonic() < deadline:
    time.sleep(0.03)
ends = driver.inspect(commands)
print(json.dumps({
    "mode": driver.limits_mode,
    "bubblewrap": driver.machine.bubblewrap is not None,
    "ends": {key: [end.phase, end.exit_code, end.end_reason, end.message] for key, end in ends.items()},
    "logs": {key: driver.logs(key).data.decode() for key in commands},
    "cleaned": [driver.clean(key=key, node="node-1", whole=False) for key in commands],
}))
"""


def as_nobody(*command: str, cwd: str = "/") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, user=65_534, group=65_534, extra_groups=[], env={"PATH": sandbox.DEFAULT_PATH},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@cache
def a_python_for_everyone() -> str | None:
    """An interpreter that an ordinary user can run here; ours may lie in root's home."""
    for program in (sandbox.interpreter(), "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            if as_nobody(program, "-c", "import sys; sys.exit(sys.version_info < (3, 11))").returncode == 0:
                return program
        except OSError:
            continue
    return None


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A copy of the driver where an ordinary user can read it (a checkout may lie where others can't enter)."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-commons-user-"))
    shutil.copytree(
        SOURCE / "scheduler" / "drivers", folder / "scheduler" / "drivers", ignore=shutil.ignore_patterns("__*__")
    )
    (folder / "ledger").mkdir()
    shutil.copy(SOURCE / "ledger" / "vocabulary.py", folder / "ledger")
    for path in (folder, folder / "scheduler", folder / "scheduler" / "drivers", folder / "ledger"):
        path.chmod(0o755)
    (folder / "home").mkdir()
    os.chown(folder / "home", 65_534, 65_534)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become an ordinary user; as one, every other test shows it"
)
@pytest.mark.skipif(
    os.geteuid() == 0 and a_python_for_everyone() is None, reason="no Python that an ordinary user can run"
)
def test_an_ordinary_user_gets_the_same_promises_with_weaker_limits(open_folder: Path) -> None:
    program = a_python_for_everyone()
    assert program is not None
    done = as_nobody(program, "-B", "-c", SCRIPT, str(open_folder / "home"), cwd=str(open_folder))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    ends = seen["ends"]
    assert ends["fails"][:3] == ["exited", 3, "exit"]
    assert seen["logs"]["fails"] == "ran\n"
    assert ends["stops"][2] == "stopped"
    assert ends["leaves"][:3] == ["exited", 0, "exit"]
    assert ends["greedy"][2] == "out_of_memory"
    assert seen["mode"] in ends["fails"][3]
    assert all(seen["cleaned"])
    if seen["bubblewrap"]:
        assert "canary" not in seen["logs"]["looks"]
        assert seen["logs"]["looks"].endswith("/workspace\n")


def test_our_own_interpreter_is_a_real_file() -> None:
    assert Path(sandbox.interpreter()).is_file()
    assert not Path(sandbox.interpreter()).is_symlink()
    assert sys.version_info >= (3, 11)
