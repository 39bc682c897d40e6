"""The test of CPUs and memory: that it runs for real, and that it finds what is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scheduler.agent import burn_in
from scheduler.agent.burn_in import MIB, Wrong, arguments, check_cpu, check_memory, main
from tests.scheduler.agent.conftest import ROOT, until


def test_a_sound_machine_passes_and_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    assert main(["--seconds", "0.5", "--memory-mib", "8", "--processes", "2"]) == 0
    assert time.monotonic() - begun >= 0.5
    (line,) = capsys.readouterr().out.splitlines()
    found = re.fullmatch(r"passed: [\d.]+ s, 2 processes, (\d+) rounds, (\d+) MiB of memory .*", line)
    assert found is not None
    rounds, mib = int(found[1]), int(found[2])
    assert rounds >= 2
    assert mib == rounds * 4 * 5  # each round: 4 MiB, four patterns and one of its own


class Broken(bytearray):
    """Memory with one bit that stays as it was."""

    def __init__(self, size: int, at: int) -> None:
        super().__init__(size)
        self.at = at

    def __setitem__(self, key: slice, value: bytes) -> None:  # type: ignore[override]
        old = self[self.at]
        super().__setitem__(key, value)
        super().__setitem__(self.at, (self[self.at] & 0xFE) | (old & 1))


def test_one_bit_that_sticks_is_found_and_named() -> None:
    memory = Broken(4 * MIB, at=2 * MIB + 77)
    with pytest.raises(Wrong, match="memory: MiB 2 does not hold pattern ff"):
        check_memory(memory)  # type: ignore[arg-type]


class Folded(bytearray):
    """Memory in which the third MiB is the first one."""

    def __setitem__(self, key: slice, value: bytes) -> None:  # type: ignore[override]
        super().__setitem__(slice(0, MIB) if key.start == 2 * MIB else key, value)

    def __getitem__(self, key: slice) -> bytearray:  # type: ignore[override]
        return super().__getitem__(slice(0, MIB) if key.start == 2 * MIB else key)


def test_two_addresses_that_are_one_are_found() -> None:
    with pytest.raises(Wrong, match="MiB 0 does not hold its own number"):
        check_memory(Folded(4 * MIB))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("KNOWN_HASH", (b"x", b"y", 1, "00"), "PBKDF2"), ("math", None, "sum")],
)
def test_a_wrong_answer_of_the_cpu_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, said: str
) -> None:
    if value is None:
        monkeypatch.setattr(burn_in.math, "fsum", lambda values: 1.6449340668)
    else:
        monkeypatch.setattr(burn_in, name, value)
    with pytest.raises(Wrong, match=said):
        check_cpu()


def test_a_wrong_answer_in_one_process_fails_the_test(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(burn_in, "KNOWN_HASH", (b"x", b"y", 1, "00"))  # the forked processes have it too
    assert main(["--seconds", "0.1", "--memory-mib", "2", "--processes", "2"]) == 1
    assert re.fullmatch(r"FAILED after [\d.]+ s: process 0: CPU: PBKDF2 .*\n", capsys.readouterr().out)


def test_a_process_that_is_killed_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burn_in, "check_cpu", lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Wrong, match="process 0: ended without an answer"):
        burn_in.run(0.1, 2, 1)


def test_a_process_that_hangs_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burn_in, "check_cpu", lambda: time.sleep(20))
    monkeypatch.setattr(burn_in, "LATE_S", 0.3)
    with pytest.raises(Wrong, match="process 0: hangs"):
        burn_in.run(0.1, 2, 1)


def test_a_drill_can_make_it_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--seconds", "0", "--memory-mib", "1", "--processes", "1", "--fail-if", str(tmp_path / "fail")]
    assert main(quick) == 0
    (tmp_path / "fail").touch()
    assert main(quick) == 1
    assert "was told to fail" in capsys.readouterr().out


def test_it_ends_when_whoever_started_it_is_gone() -> None:
    words = [sys.executable, "-m", "scheduler.agent.burn_in", "--seconds", "600", "--memory-mib", "1"]
    test = subprocess.Popen([*words, "--processes", "1"], cwd=ROOT)
    children = Path(f"/proc/{test.pid}/task/{test.pid}/children")
    (child,) = until(lambda: children.read_text().split(), "its process")
    test.kill()
    test.wait()
    until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child), "the end of its process")


def _is_zombie(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("words", ["--seconds nan", "--seconds -1", "--processes 65", "--memory-mib 0"])
def test_wrong_arguments_are_explained(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(words.split())
    assert "must be between" in capsys.readouterr().err
