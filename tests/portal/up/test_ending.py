"""How `up` ends: in reverse order on a signal, without leaving a service when it is killed, and never ending a job."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from portal.up import ports
from portal.up.bootstrap import CHECKOUT
from portal.up.folder import SERVICES
from portal.up.run import answers
from tests.portal.up.conftest import Runner, is_alive, wait_for
from tests.portal.up.stand_in import NOTES


def in_folder(folder: Path) -> list[int]:
    """Processes that work in a folder: PostgreSQL's own children are on no list of ours."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_signal_stops_services_in_reverse_order_and_leaves_jobs(own: Runner) -> None:
    wait_for(lambda: own.started() == {"drivers", "books", "beat", "agent"}, "all take signals")
    pids, job = own.services()["pids"], own.job()
    own.process.send_signal(signal.SIGTERM)
    assert own.process.wait(60) == 0

    stopped = [line.split()[0] for line in own.said().splitlines() if line.endswith(" stopped")]
    assert stopped[:2] == ["agent", "beat"]
    assert sorted(stopped[2:4]) == ["books", "drivers"]
    assert stopped[4:] == ["web", "valkey", "postgres"]
    notes = (own.data / NOTES).read_text().split()
    assert notes[:2] == ["agent", "beat"]
    assert sorted(notes[2:]) == ["books", "drivers"]
    assert not [pid for pid in pids.values() if is_alive(pid)]
    assert is_alive(job)
    assert not (own.data / SERVICES).exists()
    assert "database system is shut down" in (own.data / "logs" / "postgres.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tell a child that its parent died")
def test_no_service_is_left_after_kill_9_of_the_runner_and_jobs_go_on(own: Runner) -> None:
    pids, job, url = list(own.services()["pids"].values()), own.job(), own.url("DATABASE_URL")
    assert all(map(is_alive, pids))
    own.process.kill()
    own.process.wait()
    wait_for(lambda: not any(map(is_alive, pids)), "all services are gone")
    wait_for(lambda: not in_folder(own.data / "postgres"), "PostgreSQL's children are gone")
    assert is_alive(job)

    # The next start on the same folder finds everything as it was.
    os.kill(job, signal.SIGKILL)
    again = Runner(own.data)
    try:
        again.wait_until_ready()
        assert "new cluster" not in again.said()
        assert again.url("DATABASE_URL") == url
        assert "secret-word" not in again.said()
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(60) == 0
    finally:
        again.clean()


APPLICATION = """
def application(environ, start):
    start("200 OK", [])
    return [b""]
"""


def children_of(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tell a child that its parent died")
def test_web_processes_end_with_their_master_and_free_the_port(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(APPLICATION)
    port = ports.choose()
    argv = [sys.executable, "-m", "gunicorn", "tiny:application", "--config", "python:portal.up.webserver"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([*argv, "--bind", f"127.0.0.1:{port}"], cwd=CHECKOUT, env=env) as master:
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/"), "the web server answers")
            wait_for(lambda: len(children_of(master.pid)) == 2, "both of its processes run")
            workers = children_of(master.pid)
        finally:
            master.kill()
    wait_for(lambda: not any(map(is_alive, workers)), "its processes are gone")
    wait_for(lambda: ports.is_free(port), "its port is free")
