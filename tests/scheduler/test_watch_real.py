"""Over-use and strays with real processes of this machine, as the real agent sees them on a virtual card."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ledger import telemetry
from ledger.clock import database_now
from ledger.models import Card, Fault, Hold, Job, Node
from ledger.vocabulary import FaultKind, JobState, Outcome
from scheduler import watch
from scheduler.agent.machine import virtual_cards
from scheduler.agent.virtual import VirtualUse
from scheduler.drivers.local_plan import instance_of
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
HOLD = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); print('held', flush=True); time.sleep(60)"
Sample = Callable[[], None]


@pytest.fixture
def sample(tmp_path: Path, settings: Any) -> Sample:
    """One look of the agent at the card of n1, its report, and a pass."""
    settings.DATA_DIR, settings.OVERUSE_TOLERANCE_MIB, settings.OVERUSE_TOLERANCE_PERCENT = tmp_path, 16, 0
    flow.world(cards=1, memory_mib=1024)
    (seen,) = virtual_cards("n1", 1, 1024)
    Card.objects.update(uuid=seen.uuid, virtual=True)
    use, numbers = VirtualUse(tmp_path / "jobs"), itertools.count(1)

    def take() -> None:
        (card,) = use.read([seen])
        report = {
            "hostname": "n1", "boot_id": "b", "sequence": next(numbers), "sent_at": database_now(), "virtual": True,
            "node": {}, "links": [], "faults": [], "cards": [asdict(card)],
        }  # fmt: skip
        assert telemetry.ingest(Node.objects.get(), report).accepted
        watch.look()

    return take


@contextmanager
def process(mib: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that holds so much memory and says that it is on the card."""
    named = {"CUDA_VISIBLE_DEVICES": Card.objects.get().uuid, "PATH": os.environ["PATH"], **environment}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(mib)], env=named, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"held\n"
        try:
            yield started
        finally:
            started.kill()


def test_what_a_process_really_holds_is_measured_against_its_promise(sample: Sample, tmp_path: Path) -> None:
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": 128}]) for _ in range(2)]
    flow.start(*jobs)
    name = f"{instance_of(Path(os.path.realpath(tmp_path)))}-{{}}"
    greedy, modest = (name.format(flow.open_allocations(job)[0].key) for job in jobs)
    with process(200, GPU_COMMONS_MEMBER=greedy), process(64, GPU_COMMONS_MEMBER=modest):
        for _ in range(3):
            sample()
    offender, neighbour = (Job.objects.get(pk=job.pk) for job in jobs)
    attempt = flow.attempt_of(offender)
    assert (offender.state, attempt.outcome) == (JobState.STOPPING, Outcome.OUT_OF_MEMORY)
    assert 200 <= int(attempt.message.split()[2]) < 260
    assert neighbour.state == JobState.RUNNING
    assert not Fault.objects.filter(kind=FaultKind.ORPHAN).exists()


def test_a_process_that_outlived_its_allocation_keeps_the_card_out_until_it_is_gone(
    sample: Sample, tmp_path: Path
) -> None:
    left = f"{instance_of(Path(os.path.realpath(tmp_path)))}-a999999"
    with process(8, GPU_COMMONS_MEMBER=left) as stranger:
        sample()
        hold = Hold.objects.get(period__upper_inf=True)
        assert (hold.rule, f"{stranger.pid} python" in hold.reason) == ("orphan/1", True)
        sample()
        assert Hold.objects.filter(period__upper_inf=True).exists()
    sample()
    assert Hold.objects.filter(period__upper_inf=True).exists()
    sample()
    assert not Hold.objects.filter(period__upper_inf=True).exists()
    assert Fault.objects.get(kind=FaultKind.ORPHAN).cleared_at is not None


def test_a_process_of_another_portal_is_none_of_ours(sample: Sample) -> None:
    with process(8, GPU_COMMONS_MEMBER="1e1e1e1e-a1"):
        sample()
        sample()
    assert not Hold.objects.exists()
