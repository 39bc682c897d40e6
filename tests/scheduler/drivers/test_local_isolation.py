"""What a member of the local driver can see, reach and use; and which specs are refused before anything happens."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from scheduler.drivers import cgroups, sandbox
from scheduler.drivers import member_folder as files
from scheduler.drivers.base import Driver, DriverError, EndReason, GrantedCard, Phase
from scheduler.drivers.local import LocalDriver
from tests.scheduler.drivers.local_machine import WHY_NOT, LocalCase

needs_bubblewrap = pytest.mark.skipif("bubblewrap" in WHY_NOT, reason=WHY_NOT.get("bubblewrap", ""))
needs_cgroups = pytest.mark.skipif("cgroups" in WHY_NOT, reason=WHY_NOT.get("cgroups", ""))
needs_root = pytest.mark.skipif("root" in WHY_NOT, reason=WHY_NOT.get("root", ""))

WALLS = [
    pytest.param({"use_bubblewrap": True}, id="bubblewrap", marks=needs_bubblewrap),
    pytest.param({"use_bubblewrap": False}, id="own-uid", marks=needs_root),
]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="gpu-commons-open-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


class IsolationCase(LocalCase):
    def outcome(self, driver: Driver, command: Sequence[str], **changes: object) -> str:
        """The output of a command that runs to its end."""
        spec = self.spec(command, **changes)
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        return self.whole_log(driver, spec.key).decode(errors="replace")


@pytest.mark.parametrize("walls", WALLS)
class TestWalls(IsolationCase):
    @pytest.fixture
    def driver(self, walls: dict[str, bool]) -> LocalDriver:
        self.box.options = dict(walls)
        return self.make_driver()

    def test_secrets_of_the_portal_reach_neither_shim_nor_command(
        self, driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "canary-7e1f")
        spec = self.spec(["sh", "-c", "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>&1; echo ran; sleep 60"])
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ran")
        assert b"canary-7e1f" not in self.whole_log_so_far(driver, spec.key)
        for pid in [
            int((self.box.data / "jobs" / spec.key / files.SHIM_PID).read_text()),
            *self.box.processes(spec.key),
        ]:
            assert b"canary-7e1f" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert b"canary-7e1f" not in Path(f"/proc/{pid}/cmdline").read_bytes()

    def whole_log_so_far(self, driver: LocalDriver, key: str) -> bytes:
        return driver.logs(key, 0, 10_000_000).data

    def test_the_data_folder_cannot_be_read(self, driver: LocalDriver) -> None:
        secret = self.box.data / "secret-key"
        secret.write_text("canary-7e1f")
        secret.chmod(0o600)
        other = self.spec(["sh", "-c", "echo canary-7e1f > mine; echo canary-7e1f; sleep 60"])
        driver.start(other)
        self.wait_for_output(driver, other.key, b"canary")
        work = self.box.record(other.key, files.SPEC)["work"]
        look = f"cat {secret} {work}/mine {self.box.data}/jobs/*/* /root/.*; ls {self.box.data}/jobs"
        assert self.outcome(driver, ["sh", "-c", f"exec 2>/dev/null; {look}; echo ran"]) == "ran\n"

    def test_it_is_nobody_and_stays_so(self, driver: LocalDriver) -> None:
        seen = self.outcome(driver, ["sh", "-c", "id -u; id -G; grep -E 'NoNewPrivs|CapEff|CapPrm' /proc/self/status"])
        uid, groups, *status = seen.splitlines()
        assert int(uid) != 0
        assert "0" not in groups.split()
        assert [line.split()[1] for line in status] == ["0" * 16, "0" * 16, "1"]

    def test_it_has_a_writable_home_and_nothing_else(self, driver: LocalDriver) -> None:
        seen = self.outcome(
            driver, ["sh", "-c", 'pwd; cd && pwd && touch here && ls; touch /x /etc/x /usr/x; echo "$HOME $USER"']
        )
        first, second, *others = seen.splitlines()
        assert first == second
        assert others[0] == "here"
        assert others[-1] == f"{first} job"
        assert not any(Path(path).exists() for path in ("/x", "/etc/x", "/usr/x"))

    def test_the_environment_is_ours_then_the_users_then_the_grants(self, driver: LocalDriver) -> None:
        cards = [GrantedCard("GPU-b", 1, 2048, 0, True), GrantedCard("GPU-a", 0, 1024, 0, True)]
        seen = self.outcome(
            driver,
            ["env"],
            cards=cards,
            environment={"LANG": "de_DE.UTF-8", "MINE": "a b\nc"},
            rank=1,
            members=2,
            member_nodes=["node-0", "node-1"],
        )
        assert "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b\n" in seen
        assert "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b\n" in seen
        assert "GPU_COMMONS_CARD_MEMORY_MIB=1024,2048\n" in seen
        assert "GPU_COMMONS_RANK=1\n" in seen
        assert "GPU_COMMONS_NODES=node-0,node-1\n" in seen
        assert "LANG=de_DE.UTF-8\n" in seen
        assert "MINE=a b\nc\n" in seen

    def test_without_cards_none_are_visible(self, driver: LocalDriver) -> None:
        seen = self.outcome(driver, ["env"]).splitlines()
        assert "CUDA_VISIBLE_DEVICES=" in seen
        assert "NVIDIA_VISIBLE_DEVICES=void" in seen


@needs_bubblewrap
class TestSandbox(IsolationCase):
    def test_processes_of_others_are_invisible(self, driver: LocalDriver) -> None:
        seen = self.outcome(driver, ["sh", "-c", "ls -d /proc/[0-9]* | wc -l"])
        assert int(seen) < 10

    def test_data_paths_are_there_and_writable(self, driver: LocalDriver, open_folder: Path) -> None:
        shared = open_folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "input").write_text("42\n")
        seen = self.outcome(driver, ["sh", "-c", f"cd {shared} && cat input && touch output"], data_paths=[str(shared)])
        assert seen == "42\n"
        assert (shared / "output").exists()

    def test_a_data_path_does_not_lead_round_a_closed_folder(self, driver: LocalDriver, open_folder: Path) -> None:
        private = open_folder / "private"
        (private / "data").mkdir(parents=True)
        private.chmod(0o700)
        with pytest.raises(DriverError, match="private is not open to everybody"):
            driver.start(self.spec(data_paths=[str(private / "data")]))

    def test_the_portals_own_python_can_be_used(self, driver: LocalDriver) -> None:
        seen = self.outcome(driver, [sandbox.interpreter(), "-c", "import json, getpass; print(getpass.getuser())"])
        assert seen == "job\n"

    def test_scratch_folders_are_private_and_open(self, driver: LocalDriver) -> None:
        name = f"mine-{uuid4().hex}"
        touch = " ".join(f"{folder}/{name}" for folder in ("/tmp", "/var/tmp", "/dev/shm"))
        seen = self.outcome(driver, ["sh", "-c", f"touch {touch} && ls /tmp /run /dev/shm"])
        assert seen.count(name) == 2
        assert not Path("/tmp", name).exists()

    def test_a_sandbox_that_fails_is_a_failed_start(self, driver: LocalDriver, tmp_path: Path) -> None:
        liar = tmp_path / "bwrap"
        liar.write_text("#!/bin/sh\necho 'bwrap: no namespaces today' >&2\nexit 1\n")
        liar.chmod(0o755)
        machine = driver.machine
        bubblewrap = dataclasses.replace(machine.bubblewrap, program=str(liar))  # type: ignore[type-var]
        driver.__dict__["machine"] = dataclasses.replace(machine, bubblewrap=bubblewrap)
        spec = self.spec()
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.START_FAILED
        assert "no namespaces today" in end.message


class TestBubblewrapIsProbed:
    def test_a_bubblewrap_that_does_not_work_is_not_used(self, tmp_path: Path) -> None:
        broken = tmp_path / "broken-bwrap"
        broken.write_text("#!/bin/sh\nexit 1\n")
        broken.chmod(0o755)
        assert sandbox.find_bubblewrap(tmp_path, program=str(broken)) is None
        assert sandbox.find_bubblewrap(tmp_path, program="no-such-bwrap") is None


class TestLimits(IsolationCase):
    @needs_cgroups
    def test_cpu_and_processes_are_limited(self) -> None:
        driver = self.box.driver(pids_base=24, pids_per_cpu=0)
        # a shell that can't fork ends there and then, so the filling is left to a second one
        fill = "(i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done) 2>/dev/null"
        busy = f"{fill}; echo ran; while :; do :; done"
        spec = self.spec(["sh", "-c", busy], cpu_milli=250)  # it fills its processes first, then burns its CPU
        driver.start(spec)
        self.wait_until("its groups are there", lambda: len(self.box.groups()) > 0)
        group = cgroups.group_of(self.box.record(spec.key, files.SPEC)["limits"])
        assert group is not None
        self.wait_until("its cores are limited", lambda: quota(group) == (25_000, 100_000))
        self.wait_until("it fills its processes", lambda: len(group.pids()) > 15)
        self.wait_until("held back", lambda: throttled(group) > 0)
        assert len(group.pids()) <= 24
        self.stop(driver, spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert not group.exists()

    @needs_cgroups
    @pytest.mark.parametrize("use_bubblewrap", [False, pytest.param(True, marks=needs_bubblewrap)])
    def test_memory_of_virtual_cards_is_process_memory(self, use_bubblewrap: bool) -> None:
        driver = self.box.driver(use_bubblewrap=use_bubblewrap)
        cards = [GrantedCard("V-0", 0, 48, 0, True), GrantedCard("V-1", 1, 48, 0, True)]
        spec = self.spec(
            ["dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"], cards=cards, host_memory_mib=4096
        )
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.OUT_OF_MEMORY
        assert "96 MiB" in end.message
        assert "virtual cards is enforced as process memory" in end.message
        fits = self.spec(["dd", "if=/dev/zero", "of=/dev/null", "bs=40M", "count=1"], cards=cards, host_memory_mib=1)
        driver.start(fits)
        assert self.wait_for(driver, fits.key, Phase.EXITED).exit_code == 0

    @needs_cgroups
    def test_the_record_keeps_mode_and_peak(self, driver: LocalDriver) -> None:
        spec = self.spec(["dd", "if=/dev/zero", "of=/dev/null", "bs=40M", "count=1"])
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        end = self.box.record(spec.key, files.EXIT)
        assert end["limits_mode"] == driver.limits_mode
        assert end["peak_memory_bytes"] >= 40 * 1024 * 1024

    def test_without_cgroups_a_single_process_cannot_allocate_more(self) -> None:
        driver = self.box.driver(use_cgroups=False)
        spec = self.spec(["dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"], host_memory_mib=64)
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert (end.exit_code, end.end_reason) == (1, EndReason.EXIT)
        assert "each process may map 64 MiB" in end.message


def throttled(group: cgroups.Group) -> int:
    folder = group.directories.get("cpu") or group.directories[""]
    return next(
        int(line.split()[1]) for line in Path(folder, "cpu.stat").read_text().splitlines() if "nr_throttled" in line
    )


def quota(group: cgroups.Group) -> tuple[int, int]:
    if "" in group.directories:
        first, second = Path(group.directories[""], "cpu.max").read_text().split()
        return int(first), int(second)
    folder = Path(group.directories["cpu"])
    return int((folder / "cpu.cfs_quota_us").read_text()), int((folder / "cpu.cfs_period_us").read_text())


class TestRefusedSpecs(IsolationCase):
    @pytest.mark.parametrize(
        ("changes", "names"),
        [
            ({"key": "../../etc"}, "key"),
            ({"key": ""}, "key"),
            ({"key": "A"}, "key"),
            ({"key": ".tombstones"}, "key"),
            ({"key": "a" * 61}, "key"),
            ({"key": "a\n"}, "key"),
            ({"job_id": -1}, "job"),
            ({"job_id": True}, "job"),
            ({"fence": "1"}, "fence"),
            ({"node": "another"}, "another"),
            ({"command": []}, "command"),
            ({"command": [""]}, "command"),
            ({"command": "rm -rf /"}, "command"),
            ({"command": ["echo", "a\0b"]}, "NUL"),
            ({"command": ["echo", "\ud800"]}, "Unicode"),
            ({"environment": {"A=B": "x"}}, "A=B"),
            ({"environment": {"A": "x\0"}}, "NUL"),
            ({"environment": {"Ä": "x"}}, "Ä"),
            ({"environment": {"SLURM_JOB_ID": "1"}}, "SLURM_JOB_ID"),
            ({"cpu_milli": 0}, "cpu_milli"),
            ({"host_memory_mib": -5}, "host_memory_mib"),
            ({"host_memory_mib": 0}, "memory"),
            ({"checkpoint_signal": "KILL"}, "KILL"),
            ({"checkpoint_signal": "9"}, "9"),
            ({"data_paths": ["/"]}, "'/'"),
            ({"data_paths": ["/etc"]}, "/etc"),
            ({"data_paths": ["/srv/../etc/x"]}, "/srv"),
            ({"data_paths": ["relative/path"]}, "relative"),
            ({"data_paths": ["/no/such/folder"]}, "exist"),
            ({"image": "--privileged"}, "image"),
        ],
    )
    def test_a_spec_that_makes_no_sense_is_refused_by_name(
        self, driver: LocalDriver, changes: dict[str, object], names: str
    ) -> None:
        spec = self.spec(**changes)  # type: ignore[arg-type]
        for call in (driver.prepare, driver.start):
            with pytest.raises(DriverError, match=names):
                call(spec)
        assert [name for name in os.listdir(driver.jobs) if not name.startswith(".")] == []

    def test_the_data_folder_cannot_be_a_data_path(self, driver: LocalDriver, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(driver.jobs)
        for path in (driver.data, driver.jobs, driver.data.parent, tmp_path / "link"):
            with pytest.raises(DriverError, match="can't be given"):
                driver.start(self.spec(data_paths=[str(path)]))

    @pytest.mark.parametrize("key", ["..", "a/b", ".locks", "", "É"])
    def test_no_call_follows_a_strange_key(self, driver: LocalDriver, key: str) -> None:
        calls = (
            lambda: driver.inspect([key]),
            lambda: driver.logs(key),
            lambda: driver.stop(key=key, job_id=1, fence=1, grace_s=0),
            lambda: driver.clean(key=key, node=self.node, whole=False),
        )
        for call in calls:
            with pytest.raises(DriverError, match="key"):
                call()

    def test_a_stop_for_another_attempts_key_is_refused(self, driver: LocalDriver) -> None:
        spec = self.spec(self.command(seconds=60))
        driver.start(spec)
        with pytest.raises(DriverError, match="another attempt"):
            driver.stop(key=spec.key, job_id=spec.job_id + 1, fence=1, grace_s=0)
        self.wait_for(driver, spec.key, Phase.RUNNING)


class TestClean(IsolationCase):
    def test_what_a_job_wrote_goes_and_its_end_and_log_stay(self, driver: LocalDriver) -> None:
        hide = "mkdir -p deep/er; echo x > deep/er/file; ln -s /etc outside; chmod 0 deep/er; chmod 0 deep; echo ran"
        spec = self.spec(["sh", "-c", hide])
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert driver.clean(key=spec.key, node=self.node, whole=False)
        assert sorted(os.listdir(driver.jobs / spec.key)) == sorted(
            [
                files.SPEC,
                files.STARTED,
                files.RUNNING,
                files.EXIT,
                files.LOG,
                files.SHIM_LOCK,
                files.SHIM_PID,
                files.SHIM_ERRORS,
            ]
        )
        assert Path("/etc/passwd").exists()
        assert self.see(driver, spec.key) == end
        assert self.whole_log(driver, spec.key) == b"ran\n"

    def test_an_unknown_member_is_clean(self, driver: LocalDriver) -> None:
        assert driver.clean(key="never-heard-of", node=self.node, whole=True)


class TestDevices:
    CARD = "Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"

    def machine(self, tmp_path: Path) -> tuple[Path, Path]:
        cards, devices = tmp_path / "gpus", tmp_path / "dev"
        devices.mkdir()
        for minor, uuid in enumerate(("GPU-a", "GPU-b", "GPU-c")):
            (cards / f"0000:0{minor}:00.0").mkdir(parents=True)
            (cards / f"0000:0{minor}:00.0" / "information").write_text(self.CARD.format(uuid=uuid, minor=minor))
            (devices / f"nvidia{minor}").touch()
        (devices / "nvidiactl").touch()
        return cards, devices

    @pytest.mark.parametrize(
        ("granted", "opened"),
        [
            ([GrantedCard("GPU-b", 1, 1, 0)], ["nvidia1", "nvidiactl"]),
            ([GrantedCard("GPU-c", 2, 1, 0), GrantedCard("GPU-a", 0, 1, 0)], ["nvidia0", "nvidia2", "nvidiactl"]),
            ([GrantedCard("MIG-x", 0, 1, 0)], ["nvidia0", "nvidia1", "nvidia2", "nvidiactl"]),
            ([GrantedCard("GPU-b", 0, 1, 0, virtual=True)], []),
            ([], []),
        ],
    )
    def test_only_granted_cards_are_opened(self, tmp_path: Path, granted: list[GrantedCard], opened: list[str]) -> None:
        cards, devices = self.machine(tmp_path)
        found = sandbox.nvidia_devices(granted, cards_folder=cards, devices=devices)
        assert [Path(path).name for path in found] == opened


class TestUserIds:
    def test_two_members_never_share_one_by_name(self) -> None:
        uids = {sandbox.member_uid(f"x-{number}", privileged=True, uid_map="0 0 4294967295") for number in range(200)}
        assert len(uids) == 200
        assert all(sandbox.FIRST_UID <= uid < 2**31 for uid in uids if uid is not None)

    def test_a_machine_with_few_ids_falls_back(self) -> None:
        assert sandbox.member_uid("x", privileged=True, uid_map="0 100000 65536\n") == sandbox.NOBODY
        assert sandbox.member_uid("x", privileged=True, uid_map="0 1000 1\n") is None
        assert sandbox.member_uid("x", privileged=False) is None
