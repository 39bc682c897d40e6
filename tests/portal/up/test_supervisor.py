"""The supervisor alone, with small children."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.up import supervisor as module
from portal.up.process import rotate
from portal.up.supervisor import Child, Service, StartFailed, Stopped, Supervisor


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor that keeps what it says in `said`."""
    lines: list[str] = []
    one = Supervisor(tmp_path, lines.append)
    one.said = lines  # type: ignore[attr-defined]
    yield one
    one.stop()


def child(name: str, code: str, *, stage: int = 1, stop_seconds: float = 10.0) -> Service:
    """A service that runs a line of Python."""
    argv = (sys.executable, "-S", "-c", code)
    return Service(name, argv, stage, env={"PATH": os.defpath}, stop_seconds=stop_seconds)


def delays(one: Supervisor, dying: Child, count: int) -> list[str]:
    """The delays that were said for the first `count` deaths."""
    while dying.failures < count:
        one.tick()
        time.sleep(0.01)
    said: list[str] = one.said  # type: ignore[attr-defined]
    return [line.split("starting again in ")[1].split(" s")[0] for line in said if "starting again in" in line][:count]


def test_the_delay_doubles_up_to_its_limit(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_DELAY", 0.4)
    dying = supervisor.start(child("dying", "raise SystemExit(1)"))
    assert delays(supervisor, dying, 4) == ["0.2", "0.4", "0.4", "0.4"]


def test_a_child_that_lived_long_starts_again_at_once(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTHY_AFTER", 0.0)
    dying = supervisor.start(child("dying", "raise SystemExit(1)"))
    said: list[str] = supervisor.said  # type: ignore[attr-defined]
    while sum("starting again in 0.2 s" in line for line in said) < 3:
        supervisor.tick()
        time.sleep(0.01)
    assert dying.failures == 1


def test_a_program_that_is_missing_is_retried_and_said(supervisor: Supervisor) -> None:
    lost = supervisor.start(Service("lost", ("/nonexistent/program",), 1, env={}))
    assert lost.pid is None
    assert "could not start" in supervisor.said[0]  # type: ignore[attr-defined]


def test_a_service_that_keeps_dying_at_start_is_reported_with_its_log(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_DELAY", 0.01)
    dying = supervisor.start(child("dying", "raise SystemExit('the port is taken')"))
    with pytest.raises(StartFailed, match="the port is taken"):
        supervisor.wait_until(lambda: False, dying, 60)


def test_a_step_that_fails_is_reported_with_its_log(supervisor: Supervisor) -> None:
    with pytest.raises(StartFailed, match=r"(?s)step migrate failed with exit code 1.*no such table"):
        supervisor.run_step("migrate", (sys.executable, "-c", "raise SystemExit('no such table')"), {}, Path("/"))


def test_a_signal_during_a_step_ends_the_step(supervisor: Supervisor) -> None:
    supervisor.signals = 1
    with pytest.raises(Stopped):
        supervisor.run_step("seed", (sys.executable, "-c", "import time; time.sleep(600)"), {}, Path("/"))


def test_a_child_that_ignores_the_signal_is_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    deaf = supervisor.start(child("deaf", code, stop_seconds=0.1))
    pid = deaf.pid
    assert pid is not None
    while "deaf" not in (tmp_path / "deaf.log").read_text():
        time.sleep(0.01)
    supervisor.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert "did not stop in time; killed" in supervisor.said[-1]  # type: ignore[attr-defined]


def test_a_child_is_told_of_the_runners_death_by_the_kernel(supervisor: Supervisor) -> None:
    # The whole effect is tested in test_ending; here only that the signal is the one of the table.
    code = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value, flush=True)"
    one = supervisor.start(child("told", code))
    while not (supervisor.logs / "told.log").read_text():
        time.sleep(0.01)
    assert int((supervisor.logs / "told.log").read_text().split()[0]) == one.service.death_signal == signal.SIGKILL


def test_a_log_over_its_limit_keeps_one_older_part(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    with log.open("ab") as writer:
        writer.write(b"x" * 100)
        writer.flush()
        rotate(log, limit=100)
        writer.write(b"new")
    assert log.read_bytes() == b"new"
    assert (tmp_path / "web.log.1").stat().st_size == 100
