"""kill -9 of every service, one after another, while jobs run: the same jobs finish, none twice, the books balance."""

from __future__ import annotations

import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import redis

from tests.process.portal_run import Portal

pytestmark = pytest.mark.timeout(400)
SECONDS = 30
SERVICES = ("web", "placement", "drivers", "inventory", "books", "health", "beat", "agent")


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    """One for both tests, each of which leaves it running: its first start takes longer than either. In a folder that
    PostgreSQL's own account may enter, unlike pytest's."""
    home = Path(tempfile.mkdtemp(prefix="gpu-commons-process-"))
    home.chmod(0o711)
    made = Portal(home / "data")
    try:
        made.start("--no-fleet")
        yield made
    finally:
        made.stop()
        shutil.rmtree(home, ignore_errors=True)


def sleeper(seconds: int) -> list[str]:
    return ["sh", "-c", f"echo begun $$; sleep {seconds}; echo over"]


def log_of(portal: Portal, pk: int) -> str:
    status, chunk = portal.get(f"/api/v1/jobs/{pk}/log/")
    assert status == 200, chunk
    return str(chunk["text"])


def assert_ran_once(portal: Portal, jobs: list[dict]) -> None:
    for job in jobs:
        assert job["state"] == "succeeded", job
        assert len(job["attempts"]) == 1, job["attempts"]
        text = log_of(portal, job["id"])
        assert (text.count("begun"), text.count("over")) == (1, 1), text


def assert_books_agree(portal: Portal) -> None:
    """About every job that was ever submitted there."""
    jobs = [portal.job(pk) for pk in portal.submitted]
    status, balance = portal.get("/api/v1/books/balance/")
    assert status == 200, balance
    exact = balance["exact"]
    parts = exact["used"]["total"] + exact["cleaning"] + exact["held"] + exact["headroom"] + exact["idle"]["total"]
    assert exact["capacity"] == parts
    expected = sum(used(member) for job in jobs for member in job["placement"])
    assert exact["used"]["by_project"]["vision"] == expected == sum(job["usage"]["used"] for job in jobs)
    proof = portal.manage("check_books")
    assert proof.returncode == 0, proof.stderr


def used(member: dict) -> int:
    start, end = (datetime.fromisoformat(member[name]).timestamp() for name in ("from", "used_until"))
    return sum(card["memory_mib"] for card in member["cards"]) * (math.ceil(end) - math.ceil(start))


def test_every_service_may_be_killed_while_jobs_run(portal: Portal) -> None:
    ids = [portal.submit(command=sleeper(SECONDS), cpu_milli=100, host_memory_mib=64) for _ in range(4)]
    portal.until(lambda: all(portal.job(pk)["state"] == "running" for pk in ids), 60, "all jobs run")
    for name in SERVICES:
        portal.kill(name)
    ids.append(portal.submit(command=sleeper(1), cpu_milli=100, host_memory_mib=64))
    redis.Redis.from_url(portal.services()["environment"]["REDIS_URL"]).flushall()
    portal.kill("valkey")
    portal.kill("postgres")
    last_kill = time.monotonic()
    ids.append(portal.submit(command=sleeper(1), cpu_milli=100, host_memory_mib=64))
    jobs = portal.ended(ids, 60)
    assert time.monotonic() - last_kill < 60
    assert_ran_once(portal, jobs)
    assert_books_agree(portal)


def test_a_killed_runner_leaves_no_service_and_the_next_up_adopts_the_job(portal: Portal) -> None:
    pk = portal.submit(command=sleeper(15), cpu_milli=100, host_memory_mib=64)
    portal.until(lambda: portal.job(pk)["state"] == "running", 60, "the job runs")
    pids = portal.pids()
    assert portal.runner is not None
    portal.runner.kill()
    portal.runner.wait()
    portal.runner = None
    portal.until(lambda: not [pid for pid in pids.values() if alive(pid)], 20, "no service is left")
    portal.start("--no-fleet")
    jobs = portal.ended([pk], 60)
    assert_ran_once(portal, jobs)
    assert_books_agree(portal)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
