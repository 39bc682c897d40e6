"""The whole life of a project on both drivers with a clock that moves, and with the reclaim killed at each of its steps:
before it, after it, and at every statement that it writes. Every run ends as the one that nobody killed, with one
receipt. A step without a kill here fails.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import Delivery, Job, Project
from ledger.vocabulary import DriverName, JobState, Outcome, ProjectState, Resource
from scheduler import commands, observing, placing, reclaim
from scheduler.drivers import registry
from scheduler.reclaim_plan import Step
from tests import factories
from tests.scheduler import ending, flow
from tests.scheduler.drivers.local_machine import NODE, Box

STAGES = (0, 11, 13, 14, 15, 16, 22, 22, 22)  # days from the beginning at which a pass looks
WRITES = ("INSERT", "UPDATE", "DELETE")
LONGEST_WAIT_S = 20
DATA = {"runs": "/usr/lib", "waits": "/usr/share"}  # there on any machine


class Killed(BaseException):
    """Not an Exception: nothing on the way may take it for an odd row and go on."""


# -- one life ----------------------------------------------------------------------------------------------------------


class Life:
    """A project of 14 days with a job that runs, one that waits, a grant and data paths, on simulated nodes or, as real
    processes, on this machine."""

    def __init__(self, *, simulated: bool) -> None:
        self.simulated, self.begun = simulated, database_now()
        self.project = ending.ends_in(14)
        factories.grant(self.project, Resource.CARD_MILLI, 100_000)
        place = {} if simulated else {"simulated": False, "driver": "local"}
        factories.node("n1" if simulated else NODE, cards=2, **place)
        asks = [{"form": "container", "cards_per_node": 2, "memory_mib": 0}]
        self.runs = self._job("runs", asks=asks, checkpoint="SIGUSR1")
        self._until(lambda: self._state(self.runs) == JobState.RUNNING)
        self.waits = self._job("waits", asks=asks)

    def _job(self, name: str, **values: Any) -> Job:
        command = ["simulate", "--seconds", "90000"] if self.simulated else ["sh", "-c", "echo begun; sleep 600"]
        facts = {"name": name, "command": command, "simulated": self.simulated, "data_paths": [DATA[name]]}
        return factories.job(**facts, cpu_milli=100, host_memory_mib=64, walltime_s=30_000_000, **values)

    def at(self, days: int) -> dt.datetime:
        return self.begun + days * ending.DAY

    def _until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LONGEST_WAIT_S
        while not condition():
            assert time.monotonic() < end, [(job.name, job.state, job.message) for job in Job.objects.all()]
            self.turn()

    @staticmethod
    def turn() -> None:
        """What beat does besides the reclaim."""
        placing.place_queued()
        flow.make_due()
        commands.run_due()
        observing.observe_all()

    @staticmethod
    def _state(job: Job) -> str:
        return Job.objects.get(pk=job.pk).state

    def walk(self, reclaim_at: Callable[[dt.datetime], Any]) -> None:
        """Through all stages; `reclaim_at` is a pass, killed or not."""
        for days in STAGES:
            reclaim_at(self.at(days))
            self.turn()
        self._until(lambda: not flow.open_allocations(self.runs))
        reclaim_at(self.at(STAGES[-1]))
        reclaim.reclaim_all(self.at(STAGES[-1] + 1))
        reclaim.reclaim_all(self.at(STAGES[-1] + 1))

    def end(self) -> dict[str, Any]:
        return ending.state_of(self.project)


EXPECTED_NOTICES = ["days_1", "days_14", "days_3", "over", "receipt"]


def assert_good(life: Life) -> None:
    found, last = life.end(), life.project.ends_on
    assert found == {
        "state": ProjectState.ENDED,
        "jobs": {
            "runs": (JobState.CANCELLED, f"stopped with its project vision, which ended on {last}"),
            "waits": (JobState.CANCELLED, f"project vision takes no work since its last day, {last}"),
        },
        "attempts": [("runs", Outcome.PROJECT_ENDED), ("waits", None)],
        "open": 0,
        "grants": 0,
        "notices": EXPECTED_NOTICES,
        "rights": [(name, "view_project") for name in ("deputy", "owner", "researcher")],
        "receipts": [(1, 1, 1, 2, ["runs"])],
    }
    assert Delivery.objects.count() == len(EXPECTED_NOTICES) * 3  # owner, deputy, webhook


@pytest.fixture(params=[DriverName.SIMULATED, DriverName.LOCAL])
def simulated(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Iterator[bool]:
    """Whether the life is on simulated nodes. Real processes end within seconds here."""
    settings.PROJECT_STOP_GRACE_S = 2
    if request.param == DriverName.SIMULATED:
        yield True
        return
    with local_by(tmp_path / "data"):
        yield False


@contextmanager
def local_by(data: Path) -> Iterator[None]:
    """Real work goes to a local driver of its own, which leaves nothing behind."""
    box = Box(data, {})
    driver, before = box.driver(), registry.FACTORIES[DriverName.LOCAL]
    registry.FACTORIES[DriverName.LOCAL] = lambda: driver
    registry.driver.cache_clear()
    try:
        yield
    finally:
        registry.FACTORIES[DriverName.LOCAL] = before
        registry.driver.cache_clear()
        box.close()


@pytest.mark.django_db
def test_lifecycle(simulated: bool) -> None:
    life = Life(simulated=simulated)
    life.walk(reclaim.reclaim_all)
    assert_good(life)


@pytest.mark.django_db
def test_lifecycle_stage_by_stage() -> None:
    """What holds at each moment, not only at the end."""
    life = Life(simulated=True)
    seen = []
    for days in (0, 11, 14, 15, 21, 22):
        reclaim.reclaim_all(life.at(days))
        project = Project.objects.get()
        seen.append((days, project.state, life._state(life.runs), life._state(life.waits)))
        life.turn()
    assert seen == [
        (0, "active", "running", "queued"),
        (11, "active", "running", "queued"),
        (14, "active", "running", "queued"),
        (15, "ending", "running", "cancelled"),
        (21, "ending", "running", "cancelled"),
        (22, "ending", "stopping", "cancelled"),
    ]
    with pytest.raises(Refused, match="takes no new work"):
        factories.job()
    reclaim.reclaim_all(life.at(22))
    with pytest.raises(Refused, match="takes no new work"):
        factories.job()
    assert_good(life)


# -- killed by an exception --------------------------------------------------------------------------------------------


def kill_before(step: Step, patch: pytest.MonkeyPatch) -> None:
    def dies(*_given: Any) -> int:
        raise Killed

    patch.setitem(reclaim.STEPS, step, dies)  # type: ignore[arg-type]


def kill_after(step: Step, patch: pytest.MonkeyPatch) -> None:
    does = reclaim.STEPS[step]

    def dies(*given: Any) -> int:
        does(*given)
        raise Killed

    patch.setitem(reclaim.STEPS, step, dies)  # type: ignore[arg-type]


@pytest.mark.django_db
@pytest.mark.parametrize("kill", [kill_before, kill_after])
@pytest.mark.parametrize("step", Step)
def test_lifecycle_with_the_reclaim_killed_around_each_step(
    simulated: bool, step: Step, kill: Callable[[Step, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it comes to that step for the first time it dies; the next pass goes on."""
    deaths = 0

    def pass_at(now: dt.datetime) -> None:
        nonlocal deaths
        if deaths == 0:
            with monkeypatch.context() as patch:
                kill(step, patch)
                try:
                    reclaim.reclaim_all(now)
                except Killed:
                    deaths += 1
        reclaim.reclaim_all(now)

    life = Life(simulated=simulated)
    life.walk(pass_at)
    assert deaths == 1
    assert_good(life)


class Writes:
    """Counts the statements that write, and dies before the one with this number."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.died = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().upper().startswith(WRITES):
            self.left -= 1
            if self.left < 0 and not self.died:
                self.died = True
                raise Killed
        return execute(sql, params, many, context)


@pytest.mark.django_db
@pytest.mark.parametrize("step", Step)
def test_lifecycle_with_the_reclaim_killed_at_each_statement_of_a_step(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass after another dies at the next statement of the step, until one gets through: what a killed one wrote is
    gone, and it is as if it had never been."""
    does, number = reclaim.STEPS[step], 0

    def dies(*given: Any) -> int:
        nonlocal number
        writes = Writes(number)
        number += 1
        with connection.execute_wrapper(writes):
            return does(*given)

    monkeypatch.setitem(reclaim.STEPS, step, dies)  # type: ignore[arg-type]

    def pass_at(now: dt.datetime) -> None:
        nonlocal number
        while True:
            try:
                reclaim.reclaim_all(now)
                return
            except Killed:
                continue

    life = Life(simulated=True)
    life.walk(pass_at)
    assert number > 2, "no statement of this step was ever written"
    assert_good(life)


# -- killed by the kernel ----------------------------------------------------------------------------------------------


def in_a_process(act: Callable[[], Any]) -> int:
    """Run it in a child with a connection of its own; returns its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            connection.connection = None  # the parent's, which this process must not touch
            act()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_for_good(step: Step, at: str) -> None:
    """In this process, from now on."""
    does = reclaim.STEPS[step]

    def die(*_given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    class AtTheLastMoment(Writes):
        def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            answer = execute(sql, params, many, context)
            if sql.lstrip().upper().startswith(WRITES):
                die()
            return answer

    def inside(*given: Any) -> int:
        with connection.execute_wrapper(AtTheLastMoment(0)):
            return does(*given)

    def afterwards(*given: Any) -> int:
        does(*given)
        return int(die())

    reclaim.STEPS[step] = {"before": die, "inside": inside, "after": afterwards}[at]  # type: ignore[index]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("at", ["before", "inside", "after"])
@pytest.mark.parametrize("step", Step)
def test_lifecycle_with_the_process_of_the_reclaim_killed_at_each_step(step: Step, at: str) -> None:
    """SIGKILL to a process of its own, before the step, within its transaction, and after it."""
    assert_survives(Life(simulated=True), step, at)


def assert_survives(life: Life, step: Step, at: str) -> None:
    deaths = 0

    def killed_pass(now: dt.datetime) -> None:
        kill_for_good(step, at)
        reclaim.reclaim_all(now)

    def pass_at(now: dt.datetime) -> None:
        nonlocal deaths
        if deaths == 0:
            status = in_a_process(lambda: killed_pass(now))
            assert status in (0, -signal.SIGKILL)
            deaths += status != 0
        reclaim.reclaim_all(now)

    life.walk(pass_at)
    assert deaths == 1
    assert_good(life)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("at", ["before", "inside", "after"])
def test_lifecycle_of_real_processes_with_the_process_that_stops_them_killed(
    at: str, tmp_path: Path, settings: Any
) -> None:
    settings.PROJECT_STOP_GRACE_S = 2
    with local_by(tmp_path / "data"):
        assert_survives(Life(simulated=False), Step.STOP, at)


def test_each_step_is_carried_out_by_something() -> None:
    assert set(reclaim.STEPS) == set(Step)
