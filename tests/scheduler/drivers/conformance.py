"""What every driver must do, as tests to inherit: `class TestMine(MyCase, DriverConformance)`, MyCase a DriverCase.

Nothing here knows a database, a process or a clock of its own; a driver's own test module adds what only it promises.
"""

from __future__ import annotations

import dataclasses
import threading

import pytest

from scheduler.drivers.base import (
    Driver,
    DriverError,
    EndReason,
    Phase,
    ReplyLost,
    StartRefused,
)
from tests.scheduler.drivers.case import DriverCase


class DriverConformance(DriverCase):
    """The tests. Inherit them together with a DriverCase whose hooks are written."""

    # -- start ------------------------------------------------------------------------------------------------------

    def test_start_returns_at_once_and_the_member_ends_by_itself(self, driver: Driver) -> None:
        spec = self.spec()
        assert driver.start(spec).phase in (Phase.STARTING, Phase.RUNNING, Phase.EXITED)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.exit_code, end.end_reason) == (0, EndReason.EXIT)
        assert (end.job_id, end.fence) == (spec.job_id, spec.fence)
        assert end.started_at is not None
        assert end.ended_at is not None
        assert end.started_at <= end.ended_at

    def test_an_exit_code_is_passed_on(self, driver: Driver) -> None:
        spec = self.spec(self.command(exit_code=3))
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.exit_code, end.end_reason) == (3, EndReason.EXIT)

    def test_an_end_by_signal_is_told_from_an_exit(self, driver: Driver) -> None:
        self.need("ends_by_signal")
        spec = self.spec(self.signalled_command())
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.exit_code, end.end_reason) == (143, EndReason.SIGNAL)

    def test_start_twice_runs_once(self, driver: Driver) -> None:
        spec = self.spec(self.command(seconds=0.3))
        driver.start(spec)
        again = driver.start(spec)
        assert again.phase in (Phase.STARTING, Phase.RUNNING)
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert driver.start(spec).phase == Phase.EXITED
        assert self.runs(driver, spec.key) == 1

    def test_starts_at_the_same_time_run_once(self, driver: Driver) -> None:
        self.need("concurrent")
        spec = self.spec(self.command(seconds=0.2))
        barrier = threading.Barrier(4)
        failures: list[Exception] = []

        def start() -> None:
            barrier.wait()
            try:
                self.restart_driver(driver).start(spec)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.runs(driver, spec.key) == 1

    def test_a_key_belongs_to_one_attempt(self, driver: Driver) -> None:
        spec = self.spec()
        driver.start(spec)
        with pytest.raises(DriverError):
            driver.start(dataclasses.replace(spec, job_id=spec.job_id + 1_000_000))
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.runs(driver, spec.key) == 1

    def test_a_start_that_cannot_succeed_ends_as_start_failed(self, driver: Driver) -> None:
        self.need("reports_start_failures")
        spec = self.spec(["no-such-program-here"])
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.START_FAILED
        assert "no-such-program-here" in end.message

    @pytest.mark.parametrize(
        "name", ["LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_COMMONS_RANK"]
    )
    def test_a_job_cannot_set_what_the_grant_decides(self, driver: Driver, name: str) -> None:
        self.need("checks_environment")
        spec = self.spec(environment={name: "all"})
        with pytest.raises(DriverError, match=name):
            driver.start(spec)
        assert self.see(driver, spec.key).phase == Phase.ABSENT

    # -- lost replies and restarts ----------------------------------------------------------------------------------

    def test_after_a_lost_reply_inspect_finds_the_member(self, driver: Driver) -> None:
        spec = self.spec(self.command(seconds=0.2))
        self.lose_next_reply(driver)
        with pytest.raises(ReplyLost):
            driver.start(spec)
        assert self.see(driver, spec.key).phase != Phase.ABSENT
        driver = self.restart_driver(driver)
        driver.start(spec)  # the caller tries again
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.runs(driver, spec.key) == 1

    def test_a_restarted_driver_knows_its_members_and_their_ends(self, driver: Driver) -> None:
        short, long = self.spec(self.command(exit_code=3)), self.spec(self.command(seconds=60))
        driver.start(short)
        driver.start(long)
        self.wait_for(driver, short.key, Phase.EXITED)
        driver = self.restart_driver(driver)
        assert self.see(driver, short.key).exit_code == 3
        self.wait_for(driver, long.key, Phase.RUNNING)
        assert [member.key for member in driver.list_members()] == [long.key]
        self.stop(driver, long)
        assert self.wait_for(driver, long.key, Phase.EXITED).end_reason == EndReason.STOPPED

    def test_an_unknown_key_is_absent(self, driver: Driver) -> None:
        assert self.see(driver, "never-heard-of").phase == Phase.ABSENT
        assert driver.list_members() == []

    # -- stop and fences --------------------------------------------------------------------------------------------

    def test_stop_ends_the_member_and_may_be_repeated(self, driver: Driver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.RUNNING)
        self.stop(driver, spec)
        self.stop(driver, spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.STOPPED
        assert self.stop(driver, spec) == end
        assert driver.list_members() == []

    def test_stop_after_the_end_changes_nothing_about_it(self, driver: Driver) -> None:
        spec = self.spec(self.command(exit_code=3))
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.stop(driver, spec) == end

    def test_a_start_that_arrives_after_the_stop_is_refused(self, driver: Driver) -> None:
        spec = self.spec()
        assert self.stop(driver, spec).phase == Phase.ABSENT
        assert self.stop(driver, spec).phase == Phase.ABSENT
        driver = self.restart_driver(driver)
        with pytest.raises(StartRefused):
            driver.start(spec)
        with pytest.raises(StartRefused):  # an older attempt under another key
            driver.start(dataclasses.replace(spec, key=f"{spec.key}-older", fence=0))
        assert self.see(driver, spec.key).phase == Phase.ABSENT

    def test_a_repeated_start_after_the_stop_is_refused(self, driver: Driver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        self.stop(driver, spec)
        with pytest.raises(StartRefused):
            driver.start(spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert self.runs(driver, spec.key) <= 1

    def test_the_next_attempt_runs_after_a_stop(self, driver: Driver) -> None:
        spec = self.spec()
        self.stop(driver, spec)
        later = dataclasses.replace(spec, key=f"{spec.key}-2", fence=spec.fence + 1)
        driver.start(later)
        assert self.wait_for(driver, later.key, Phase.EXITED).exit_code == 0

    def test_a_late_stop_of_an_old_attempt_leaves_the_new_one_alone(self, driver: Driver) -> None:
        old = self.spec()
        new = dataclasses.replace(old, key=f"{old.key}-2", fence=old.fence + 1, command=self.command(seconds=0.3))
        driver.start(new)
        self.stop(driver, old)
        assert self.wait_for(driver, new.key, Phase.EXITED).end_reason == EndReason.EXIT

    def test_a_polite_command_has_its_last_words_within_the_grace(self, driver: Driver) -> None:
        self.need("hears_stops")
        spec = self.spec(self.polite_command())
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ready")
        assert self.stop(driver, spec, grace_s=60).phase == Phase.RUNNING
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.end_reason, end.exit_code) == (EndReason.STOPPED, 0)
        assert self.whole_log(driver, spec.key).endswith(b"last words\n")

    def test_a_stubborn_command_is_killed_after_the_grace(self, driver: Driver) -> None:
        self.need("hears_stops")
        spec = self.spec(self.stubborn_command())
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ready")
        self.stop(driver, spec, grace_s=1)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.end_reason, end.exit_code) == (EndReason.STOPPED, 137)

    def test_a_second_stop_may_shorten_the_grace(self, driver: Driver) -> None:
        self.need("hears_stops")
        spec = self.spec(self.stubborn_command())
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ready")
        self.stop(driver, spec, grace_s=3600)
        assert self.see(driver, spec.key).phase == Phase.RUNNING
        self.stop(driver, spec, grace_s=0)
        assert self.wait_for(driver, spec.key, Phase.EXITED).end_reason == EndReason.STOPPED

    # -- limits -----------------------------------------------------------------------------------------------------

    def test_a_member_over_its_memory_is_killed_and_says_so(self, driver: Driver) -> None:
        self.need("bounds_memory")
        spec = self.spec(self.greedy_command(), host_memory_mib=64)
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.OUT_OF_MEMORY
        assert "64 MiB" in end.message

    # -- logs -------------------------------------------------------------------------------------------------------

    def test_the_log_is_whole_in_any_portions_and_after_a_restart(self, driver: Driver) -> None:
        self.need("keeps_output")
        spec = self.spec(self.printing_command(2000))
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        wanted = b"".join(b"line %d\n" % number for number in range(2000))
        assert self.whole_log(driver, spec.key) == wanted
        assert self.whole_log(self.restart_driver(driver), spec.key, limit=777) == wanted

    def test_the_log_does_not_end_before_the_member(self, driver: Driver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.RUNNING)
        chunk = driver.logs(spec.key)
        assert not chunk.end
        assert not driver.logs(spec.key, chunk.cursor).end
        self.stop(driver, spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        self.wait_until("the log ends", lambda: driver.logs(spec.key, 0, 10_000_000).end)

    # -- clean and inventory ----------------------------------------------------------------------------------------

    def test_clean_waits_for_the_end_and_may_be_repeated(self, driver: Driver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.RUNNING)
        assert not driver.clean(key=spec.key, node=self.node, whole=False)
        assert self.see(driver, spec.key).phase == Phase.RUNNING
        self.stop(driver, spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        self.wait_until("cleaned", lambda: driver.clean(key=spec.key, node=self.node, whole=False))
        assert driver.clean(key=spec.key, node=self.node, whole=False)
        assert self.see(driver, spec.key).phase in (Phase.EXITED, Phase.ABSENT)

    def test_the_inventory_names_every_node_once(self, driver: Driver) -> None:
        nodes = driver.inventory()
        names = [node.hostname for node in nodes]
        assert self.node in names
        assert len(names) == len(set(names))
        assert all(node.cpu_milli > 0 and node.host_memory_mib > 0 for node in nodes)

    # -- many -------------------------------------------------------------------------------------------------------

    def test_thirty_starts_at_once_all_run_once(self, driver: Driver) -> None:
        specs = [self.spec(self.command(exit_code=number % 4)) for number in range(30)]
        if self.concurrent:
            threads = [threading.Thread(target=driver.start, args=(spec,)) for spec in specs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for spec in specs:
                driver.start(spec)
        ends = [self.wait_for(driver, spec.key, Phase.EXITED) for spec in specs]
        assert [end.exit_code for end in ends] == [number % 4 for number in range(30)]
        assert [self.runs(driver, spec.key) for spec in specs] == [1] * 30
