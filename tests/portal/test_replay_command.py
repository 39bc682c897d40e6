"""Real traces on simulated machines."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError

from ledger.models import Job, Node, User
from portal.management.commands import replay
from scheduler import commands, observing, placing, snapshot
from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from tests import factories
from tests.portal.commands import run


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small simulated fleet whose scheduler turns whenever the command waits."""
    snapshot.forget()
    factories.cast()
    for i in range(3):
        factories.node(f"n{i}", cards=8, memory_mib=16_384, cpu_milli=10**6, host_memory_mib=2 * 10**6)
    monkeypatch.setattr(driver("simulated"), "world", World(start_delay_s=(0.0, 0.0)))

    def turn(seconds: float) -> None:
        placing.place_queued()
        commands.run_due()
        observing.observe_all()
        time.sleep(min(seconds, 0.2))

    monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=time.monotonic, sleep=turn))


@pytest.mark.django_db
def test_replay_submits_real_jobs_to_simulated_machines_and_reports(world: None) -> None:
    said = run("replay", "openb-default", "--jobs", "4", "--rate", "50", "--speed", "1e12")
    assert "all 4 jobs have ended: 4 succeeded" in said
    assert "submit to placed: median" in said
    assert set(Job.objects.values_list("simulated", "project__slug")) == {(True, "vision")}
    assert not Job.objects.filter(attempts__allocations__node__simulated=False).exists()


@pytest.mark.django_db
def test_what_no_node_could_run_is_counted_and_told(world: None) -> None:
    Node.objects.update(cpu_milli=1)
    said = run("replay", "openb-default", "--jobs", "4", "--rate", "50", "--speed", "1e12")
    assert "refused 4, because no state of this fleet could run them; job 0: No node has" in said
    assert "no job was submitted" in said
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["openb-default", "--jobs", "0"], "--jobs"),
        (["openb-default", "--jobs", "-5"], "--jobs"),
        (["openb-default", "--jobs", "1000000000000"], "--jobs"),
        (["openb-default", "--rate", "0"], "--rate"),
        (["openb-default", "--rate", "nan"], "--rate"),
        (["openb-default", "--rate", "inf"], "--rate"),
        (["openb-default", "--speed", "-1"], "--speed"),
        (["openb-default", "--speed", "nan"], "--speed"),
        (["openb-default", "--rate", "fast"], "invalid float value"),
        (["openb-default", "--project", "nope"], "there is no project 'nope'"),
        (["no-such-trace"], "bundled are openb-default"),
    ],
)
def test_replay_refuses_wrong_arguments(words: list[str], says: str) -> None:
    factories.cast()
    with pytest.raises(CommandError, match=re.escape(says)):
        run("replay", *words)
    assert not Job.objects.exists()


HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        HEADER.encode(),
        f"{HEADER}\nx,1\n".encode(),
        f"{HEADER}\nx,a,1,1,1000,,LS,Running,0,1,0\n".encode(),
        f"{HEADER}\nx,1,1,1,1000,,LS,Running,0,,0\n".encode(),
        f"{HEADER}\nx,1,1,1,1000,,LS,Running,0,nan,0\n".encode(),
        f"{HEADER}\nx,1,1,-1,1000,,LS,Running,0,1,0\n".encode(),
        f"{HEADER}\nx,1,1,{'9' * 5000},1000,,LS,Running,0,1,0\n".encode(),
        b"\xff\xfe\x00",
        b'"' + b"x" * 200_000,
    ],
)
def test_replay_refuses_a_broken_trace(tmp_path: Path, content: bytes) -> None:
    factories.cast()
    file = tmp_path / "t.csv"
    file.write_bytes(content)
    with pytest.raises(CommandError):
        run("replay", str(file), "--jobs", "1", "--rate", "100")
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_replay_needs_somebody_who_may_submit() -> None:
    factories.cast()
    User.objects.update(is_active=False)
    with pytest.raises(CommandError, match="no member who submits"):
        run("replay", "openb-default", "--jobs", "1")
