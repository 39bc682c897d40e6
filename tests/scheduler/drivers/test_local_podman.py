"""Members of the local driver in podman, where it is installed; and the plain refusal where it is not."""

from __future__ import annotations

import dataclasses
import io
import itertools
import shutil
import subprocess
import tarfile
from collections.abc import Iterator

import pytest

from scheduler.drivers.base import DriverError, EndReason, MemberSpec, Phase
from scheduler.drivers.local import LocalDriver
from scheduler.drivers.podman import Podman
from tests.scheduler.drivers.local_machine import WHY_NOT, LocalCase

IMAGE = "localhost/gpu-commons-test:1"
SHELL = shutil.which("busybox")


class TestWithoutPodman(LocalCase):
    def test_an_image_is_refused(self, driver: LocalDriver) -> None:
        driver.__dict__["machine"] = dataclasses.replace(driver.machine, podman=None)
        spec = self.spec(image=IMAGE)
        for call in (driver.prepare, driver.start):
            with pytest.raises(DriverError, match="this node has no podman, so an image cannot be used"):
                call(spec)
        assert self.see(driver, spec.key).phase == Phase.ABSENT


class TestArguments:
    def test_everything_is_one_argument_and_nothing_is_privileged(self) -> None:
        spec = MemberSpec(
            key="a",
            job_id=1,
            attempt_id=1,
            fence=1,
            node="n",
            form="container",
            image=IMAGE,
            command=["sh", "-c", "a; b $(c)"],
        )
        limits = {"memory_bytes": 1024, "pids_max": 5, "groups": {"memory": "/x"}}
        found = Podman("/usr/bin/podman").run_arguments(
            spec, name="i-a", work="/w", uid=1234, env_file="/e", limits=limits
        )
        assert found[-4:] == [IMAGE, "sh", "-c", "a; b $(c)"]
        assert "--privileged" not in found
        pairs = set(itertools.pairwise(found))
        assert {
            ("--user", "1234:1234"),
            ("--pids-limit", "5"),
            ("--cap-drop", "ALL"),
            ("--cgroup-parent", "/gpu-commons/i-a"),
        } <= pairs


@pytest.mark.skipif("podman" in WHY_NOT, reason=WHY_NOT.get("podman", ""))
@pytest.mark.skipif(SHELL is None, reason="no static busybox to build a small image from")
class TestPodman(LocalCase):
    patience_s = 60.0

    @pytest.fixture(autouse=True)
    def _image(self, driver: LocalDriver) -> Iterator[None]:
        assert SHELL is not None
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            archive.add(SHELL, "bin/busybox")
            for name in ("sh", "sleep", "dd", "cat", "id", "env"):
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        podman = driver.machine.podman
        assert podman is not None
        subprocess.run(
            [*podman._base(), "import", "-", IMAGE], input=content.getvalue(), capture_output=True, check=True
        )
        yield
        subprocess.run([*podman._base(), "rmi", "--force", IMAGE], capture_output=True, check=True)

    def test_a_member_runs_inside_the_image(self, driver: LocalDriver) -> None:
        spec = self.spec(
            ["sh", "-c", "echo ran; id -u; pwd; echo $MINE $CUDA_VISIBLE_DEVICES-; cat /etc/passwd; exit 3"],
            image=IMAGE,
            environment={"MINE": "a b"},
        )
        driver.prepare(spec)
        driver.start(spec)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        lines = self.whole_log(driver, spec.key).decode().splitlines()
        assert (end.exit_code, end.end_reason) == (3, EndReason.EXIT), lines
        _, uid, folder, variables, *_ = lines[lines.index("ran") :]  # podman may have its say first
        assert (folder, variables) == ("/workspace", "a b -")
        assert driver.machine.hierarchy is None or uid != "0"
        assert self.box.groups() == []

    def test_stop_ends_the_container(self, driver: LocalDriver) -> None:
        spec = self.spec(
            ["sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done"], image=IMAGE
        )
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ready")
        self.stop(driver, spec, grace_s=60)
        end = self.wait_for(driver, spec.key, Phase.EXITED)
        assert end.end_reason == EndReason.STOPPED
        assert b"bye\n" in self.whole_log(driver, spec.key)

    def test_a_killed_shim_leaves_no_container(self, driver: LocalDriver) -> None:
        spec = self.spec(["sh", "-c", "echo ready; sleep 600"], image=IMAGE)
        driver.start(spec)
        self.wait_for_output(driver, spec.key, b"ready")
        self.box.kill_shim(spec.key)
        assert self.wait_for(driver, spec.key, Phase.EXITED).end_reason == EndReason.LOST
        podman = driver.machine.podman
        assert podman is not None
        listed = subprocess.run([*podman._base(), "ps", "-aq"], capture_output=True, check=True)
        assert listed.stdout == b""

    def test_too_much_memory_says_so(self, driver: LocalDriver) -> None:
        hog = "while :; do dd if=/dev/zero of=/dev/null bs=300M count=9; done"
        spec = self.spec(["sh", "-c", hog], image=IMAGE, host_memory_mib=128)
        driver.start(spec)
        assert self.wait_for(driver, spec.key, Phase.EXITED).end_reason == EndReason.OUT_OF_MEMORY

    def test_an_image_that_is_not_there_is_a_failed_start(self, driver: LocalDriver) -> None:
        spec = self.spec(image="localhost/no-such-image:1")
        driver.start(spec)
        assert self.wait_for(driver, spec.key, Phase.EXITED).end_reason == EndReason.START_FAILED
