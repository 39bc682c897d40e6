"""Members of the local driver outlive whoever started them, run at most once, and leave nothing running behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.drivers import member_folder as files
from scheduler.drivers.base import EndReason, MemberSpec, Phase, StartRefused
from scheduler.drivers.local import LocalDriver
from scheduler.drivers.local_shim import Shim
from tests.scheduler.drivers import local_machine
from tests.scheduler.drivers.local_machine import LocalCase

PLAIN = {"use_bubblewrap": False, "use_cgroups": False}
MODES = [pytest.param({}, id="as-found"), pytest.param(PLAIN, id="plain")]


class Dies(BaseException):
    """The worker is killed: nothing after this point happens."""


class LifeCase(LocalCase):
    def die_before_spawning(self, monkeypatch: pytest.MonkeyPatch, driver: LocalDriver, spec: MemberSpec) -> None:
        def die(folder: Path) -> None:
            raise Dies

        with monkeypatch.context() as patch:
            patch.setattr(driver, "_spawn", die)
            with pytest.raises(Dies):
                driver.start(spec)

    def file(self, spec: MemberSpec, name: str) -> Path:
        return self.box.data / "jobs" / spec.key / name


class TestWhoStartedIt(LifeCase):
    def test_two_processes_that_start_at_once_run_it_once(self, driver: LocalDriver) -> None:
        spec = self.spec()
        command = self.command(seconds=0.2)
        both = [local_machine.start_elsewhere(self.box, spec.key, spec.job_id, command) for _ in range(2)]
        for process in both:
            local_machine.let_it_start(process)
        assert {local_machine.phase_it_saw(process) for process in both} <= {"starting", "running"}
        for process in both:
            local_machine.kill_hard(process)
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.runs(driver, spec.key) == 1

    def test_a_member_outlives_the_kill_of_its_starter_and_is_adopted(self, driver: LocalDriver) -> None:
        spec = self.spec()
        go_on = "until [ -e go ]; do sleep 0.05; done"
        worker = local_machine.start_elsewhere(
            self.box, spec.key, spec.job_id, ["sh", "-c", f"echo before; {go_on}; echo after; exit 5"]
        )
        local_machine.let_it_start(worker)
        assert local_machine.phase_it_saw(worker) in ("starting", "running")
        self.wait_for_output(driver, spec.key, b"before\n")
        local_machine.kill_hard(worker)
        assert [member.key for member in driver.list_members()] == [spec.key]
        work = Path(self.box.record(spec.key, files.SPEC)["work"])
        (work / "go").touch()
        assert self.wait_for(driver, spec.key, Phase.EXITED).exit_code == 5
        assert self.whole_log(driver, spec.key) == b"before\nafter\n"

    def test_the_shim_belongs_to_no_worker_and_ignores_signals_to_services(self, driver: LocalDriver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.RUNNING)
        shim = int(self.file(spec, files.SHIM_PID).read_text())
        assert os.getsid(shim) not in (os.getsid(0), 0)
        parent = int(Path(f"/proc/{shim}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent != os.getpid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(shim, number)
        self.pass_time()
        assert self.see(driver, spec.key).phase == Phase.RUNNING


class TestInterruptedStarts(LifeCase):
    def test_a_second_start_finishes_what_a_dead_worker_began(
        self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = self.spec()
        self.die_before_spawning(monkeypatch, driver, spec)
        self.make_driver().start(spec)
        assert self.wait_for(driver, spec.key, Phase.EXITED).exit_code == 0
        assert self.runs(driver, spec.key) == 1

    def test_a_look_finishes_it_too(self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = self.spec()
        self.die_before_spawning(monkeypatch, driver, spec)
        assert self.see(driver, spec.key).phase == Phase.STARTING
        assert self.wait_for(driver, spec.key, Phase.EXITED).exit_code == 0
        assert self.runs(driver, spec.key) == 1

    def test_a_stop_in_between_ends_it_unrun(self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = self.spec()
        self.die_before_spawning(monkeypatch, driver, spec)
        end = self.stop(driver, spec)
        assert (end.phase, end.end_reason) == (Phase.EXITED, EndReason.STOPPED)
        with pytest.raises(StartRefused):
            driver.start(spec)
        assert self.runs(driver, spec.key) == 0

    def test_a_shim_that_comes_late_finds_the_stop(self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = self.spec()
        self.die_before_spawning(monkeypatch, driver, spec)
        self.stop(driver, spec)
        driver._spawn(self.box.data / "jobs" / spec.key)  # the one that the dead worker had forked
        end = self.see(driver, spec.key)
        assert end.end_reason == EndReason.STOPPED
        assert self.runs(driver, spec.key) == 0

    def test_a_command_that_may_have_run_is_never_run_again(
        self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = self.spec()
        self.die_before_spawning(monkeypatch, driver, spec)
        files.create_durable(str(self.file(spec, files.STARTED)), {"boot_id": files.boot_id()})
        end = driver.start(spec)
        assert (end.phase, end.end_reason) == (Phase.EXITED, EndReason.LOST)
        driver._spawn(self.box.data / "jobs" / spec.key)
        assert self.runs(driver, spec.key) == 0

    def test_a_claim_without_its_spec_is_nobodys(self, driver: LocalDriver) -> None:
        spec = self.spec()
        (self.box.data / "jobs" / spec.key).mkdir()
        assert self.see(driver, spec.key).phase == Phase.ABSENT
        driver.start(spec)
        assert self.wait_for(driver, spec.key, Phase.EXITED).exit_code == 0

    def test_a_shim_that_cannot_start_is_a_failed_start(
        self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduler.drivers.local._REPOSITORY", self.box.data)  # its code is not there
        spec = self.spec()
        end = driver.start(spec)
        assert (end.phase, end.end_reason) == (Phase.EXITED, EndReason.START_FAILED)
        assert "scheduler" in end.message


@pytest.mark.parametrize("options", MODES)
class TestKilledShim(LifeCase):
    @pytest.fixture
    def driver(self, options: dict[str, bool]) -> LocalDriver:
        self.box.options = dict(options)
        return self.make_driver()

    def test_the_member_is_lost_and_nothing_of_it_goes_on(self, driver: LocalDriver) -> None:
        spec = self.spec(["sh", "-c", "echo ran; sleep 600 & setsid sleep 600 & wait"])
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ran")
        self.wait_until("its processes are there", lambda: len(self.box.processes(spec.key)) >= 3)
        self.box.kill_shim(spec.key)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.LOST
        assert "shim died" in end.message
        assert self.box.processes(spec.key) == []
        assert driver.start(spec) == end
        assert self.runs(driver, spec.key) == 1

    def test_processes_that_left_the_session_end_with_a_stop(self, driver: LocalDriver) -> None:
        leave = "(setsid sh -c 'trap \"\" TERM; echo away; while :; do sleep 0.05; done' &)"
        spec = self.spec(["sh", "-c", f"{leave}; trap '' TERM; while :; do sleep 0.05; done"])
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"away")
        self.stop(driver, spec, grace_s=0)
        assert self.wait_for(driver, spec.key, Phase.EXITED).end_reason == EndReason.STOPPED
        assert self.box.processes(spec.key) == []

    def test_processes_left_behind_end_with_the_command(self, driver: LocalDriver) -> None:
        spec = self.spec(["sh", "-c", "(setsid sleep 600 &); sleep 600 & echo ran"])
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.exit_code, end.end_reason) == (0, EndReason.EXIT)
        assert self.box.processes(spec.key) == []

    def test_a_checkpoint_signal_comes_before_the_end(self, driver: LocalDriver) -> None:
        saves = "trap 'echo saved' USR1; trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        spec = dataclasses.replace(self.spec(["sh", "-c", saves]), checkpoint_signal="USR1")
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ready")
        self.stop(driver, spec, grace_s=2)
        assert self.wait_for(driver, spec.key, Phase.EXITED).end_reason == EndReason.STOPPED
        ours = [line for line in self.whole_log(driver, spec.key).split() if line != b"Terminated"]  # the shell's word
        assert ours == [b"ready", b"saved", b"bye"]


class TestWalltimeBackstop(LifeCase):
    def shim(self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, *, overdue_s: float) -> Shim:
        """A shim that believes its command, a sleeping process, started long ago."""
        spec = dataclasses.replace(self.spec(), walltime_s=10)
        self.die_before_spawning(monkeypatch, driver, spec)
        folder = self.box.data / "jobs" / spec.key
        shim = Shim(str(folder), self.box.record(spec.key, files.SPEC))
        shim.ending.started_at = time.time() - 10 - overdue_s
        self.stop(driver, spec)
        return shim

    @pytest.mark.parametrize(("overdue_s", "ended"), [(30.0, False), (90.0, True)])
    def test_the_shim_ends_a_job_long_after_its_walltime(
        self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, overdue_s: float, ended: bool
    ) -> None:
        shim = self.shim(driver, monkeypatch, overdue_s=overdue_s)
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as command:
            shim.command_group = command.pid
            shim._look_at_clock()
            assert shim.ending.over_walltime == ended
            if not ended:
                command.kill()
            assert command.wait() == (-signal.SIGTERM if ended else -signal.SIGKILL)


class TestAfterAReboot(LifeCase):
    def test_what_ran_before_the_boot_is_lost(self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = self.spec()
        self.die_before_spawning(monkeypatch, driver, spec)
        files.create_durable(str(self.file(spec, files.STARTED)), {"boot_id": "an earlier one"})
        end = self.see(driver, spec.key)
        assert end.end_reason == EndReason.LOST
        assert "restarted" in end.message


class TestLogs(LifeCase):
    def test_both_streams_come_in_order(self, driver: LocalDriver) -> None:
        spec = self.spec(["sh", "-c", "echo one; echo two >&2; echo three"])
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.whole_log(driver, spec.key) == b"one\ntwo\nthree\n"

    def test_a_flood_is_cut_off_but_the_job_goes_on(self) -> None:
        driver = self.box.driver(max_log_bytes=10_000)
        spec = self.spec(["sh", "-c", "head -c 3000000 /dev/zero; exit 4"])
        driver.start(spec)
        assert self.wait_for(driver, spec.key, Phase.EXITED).exit_code == 4
        log = self.whole_log(driver, spec.key)
        assert log == b"\0" * 10_000 + b"\nlog truncated at 10000 bytes\n"

    def test_a_command_that_closes_its_output_goes_on(self, driver: LocalDriver) -> None:
        spec = self.spec(["sh", "-c", "echo ran; exec >/dev/null 2>&1; sleep 0.3; exit 6"])
        driver.start(spec)
        assert self.wait_for(driver, spec.key, Phase.EXITED).exit_code == 6
        assert self.whole_log(driver, spec.key) == b"ran\n"

    def test_a_member_without_a_folder_has_an_empty_log(self, driver: LocalDriver) -> None:
        chunk = driver.logs("nobody", 7)
        assert (chunk.data, chunk.cursor, chunk.end) == (b"", 7, False)


@pytest.fixture(autouse=True)
def _no_stray_descriptors() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 1
