"""Both cgroup versions: files written and read on a make-believe tree, and real groups where the kernel has them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.drivers import cgroup_probe, cgroups
from tests.scheduler.drivers.local_machine import WHY_NOT

MIB = 1024 * 1024


def tree2(root: Path, *, controllers: str = "cpu io memory pids") -> Path:
    """A folder that looks like a version 2 mount (writes just land in files)."""
    root.mkdir(parents=True)
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.subtree_control").write_text("")
    (root / cgroups.PARENT).mkdir()
    (root / cgroups.PARENT / "cgroup.subtree_control").write_text("memory")
    return root


class TestVersion2:
    def test_it_is_found_by_its_file_and_handed_down(self, tmp_path: Path) -> None:
        root = tree2(tmp_path / "fs")
        (found,) = cgroups.candidates(root=str(root), own="0::/\n", privileged=True)
        assert (found.mode, found.roots) == (cgroups.CGROUP2, {"": str(root)})
        found.prepare()
        assert (root / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
        assert (root / cgroups.PARENT / "cgroup.subtree_control").read_text() == "+cpu +pids"

    def test_an_ordinary_user_tries_every_ancestor_of_its_own(self, tmp_path: Path) -> None:
        root = str(tree2(tmp_path / "fs"))
        found = cgroups.candidates(root=root, own="0::/user.slice/user@7.service\n", privileged=False)
        assert [h.roots[""] for h in found] == [root, f"{root}/user.slice", f"{root}/user.slice/user@7.service"]

    def test_it_is_no_use_without_the_memory_controller(self, tmp_path: Path) -> None:
        root = tree2(tmp_path / "fs", controllers="cpu pids hugetlb")
        assert cgroups.candidates(root=str(root), own="0::/\n", privileged=True) == []

    def test_limits_are_written(self, tmp_path: Path) -> None:
        group = cgroups.Hierarchy(cgroups.CGROUP2, {"": str(tmp_path)}).group("m")
        folder = tmp_path / cgroups.PARENT / "m"
        folder.mkdir(parents=True)
        (folder / "memory.swap.max").write_text("max")
        group.create(memory_bytes=64 * MIB, cpu_milli=250, pids_max=9)
        names = ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max")
        assert [(folder / name).read_text() for name in names] == [str(64 * MIB), "0", "1", "25000 100000", "9"]

    def test_evidence_is_read(self, tmp_path: Path) -> None:
        group = cgroups.Group(cgroups.CGROUP2, {"": str(tmp_path)})
        assert (group.oom_kills(), group.peak_bytes()) == (0, None)
        (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n")
        (tmp_path / "memory.peak").write_text("4096\n")
        assert (group.oom_kills(), group.peak_bytes()) == (2, 4096)

    def test_the_kernels_kill_file_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "cgroup.procs").write_text("")
        assert cgroups.Group(cgroups.CGROUP2, {"": str(tmp_path)}).kill()
        assert (tmp_path / "cgroup.kill").read_text() == "1"

    def test_a_container_engine_is_told_the_path_below_the_mount(self) -> None:
        assert cgroups.path_in_mount({"": "/cg/user/gpu-commons/m"}, "m", root="/cg") == "/user/gpu-commons/m"
        assert cgroups.path_in_mount({"cpu": "/cg/cpu/gpu-commons/m"}, "m", root="/cg") == "/gpu-commons/m"
        mounts = "cgroup2 /cg/unified cgroup2 rw 0 0\ncgroup /cg/cpu cgroup rw,cpu 0 0\nproc /proc proc rw 0 0\n"
        assert cgroups.elsewhere("m", ["/cg/cpu/gpu-commons/m"], mounts=mounts) == ["/cg/unified/gpu-commons/m"]


class TestVersion1:
    MOUNTS = "cgroup /cg/memory cgroup rw,memory 0 0\ncgroup /cg/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n"

    def test_the_hybrid_layout_is_found_by_its_mounts(self, tmp_path: Path) -> None:
        mounts = f"{self.MOUNTS}cgroup /cg/pids cgroup rw,pids 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n"
        (found,) = cgroups.candidates(root=str(tmp_path), mounts=mounts)
        assert found.mode == cgroups.CGROUP1
        assert found.roots == {"memory": "/cg/memory", "cpu": "/cg/cpu,cpuacct", "pids": "/cg/pids"}
        assert found.group("m").directories["pids"] == "/cg/pids/gpu-commons/m"

    def test_it_is_no_use_without_the_pids_controller(self, tmp_path: Path) -> None:
        assert cgroups.candidates(root=str(tmp_path), mounts=self.MOUNTS) == []

    def test_evidence_is_read(self, tmp_path: Path) -> None:
        group = cgroups.Group(cgroups.CGROUP1, {"memory": str(tmp_path)})
        (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
        (tmp_path / "engine").mkdir()
        (tmp_path / "engine" / "memory.oom_control").write_text("oom_kill 1\n")
        (tmp_path / "memory.max_usage_in_bytes").write_text("4096\n")
        assert (group.oom_kills(), group.peak_bytes()) == (4, 4096)


class TestProbe:
    def test_files_that_are_no_cgroups_are_not_believed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroup_probe, "_PATIENCE_S", 0.1)
        root = tree2(tmp_path / "fs")
        assert cgroup_probe.first_working([cgroups.Hierarchy(cgroups.CGROUP2, {"": str(root)})]) is None

    def test_a_place_that_cannot_be_written_is_skipped(self) -> None:
        assert cgroup_probe.first_working([cgroups.Hierarchy(cgroups.CGROUP2, {"": "/proc"})]) is None

    @pytest.mark.skipif("cgroups" in WHY_NOT, reason=WHY_NOT.get("cgroups", ""))
    def test_it_leaves_nothing_behind(self) -> None:
        found = cgroup_probe.first_working(cgroups.candidates())
        assert found is not None
        ours = f"probe-{os.getpid()}-"
        for root in found.roots.values():
            assert [name for name in os.listdir(f"{root}/{cgroups.PARENT}") if name.startswith(ours)] == []


def real_version2() -> str | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and os.access(fields[1], os.W_OK):
            return fields[1]
    return None


@pytest.mark.skipif(real_version2() is None, reason="no cgroup2 mount can be written here")
class TestRealVersion2Group:
    """Kill and removal need no controller, so they can be tried for real where only the hybrid layout is."""

    @pytest.fixture
    def group(self) -> Iterator[cgroups.Group]:
        group = cgroups.Group(cgroups.CGROUP2, {"": f"{real_version2()}/gpu-commons-test-{os.getpid()}"})
        os.mkdir(group.directories[""])
        yield group
        group.kill()
        assert group.remove()

    def test_a_whole_tree_dies_whatever_session_it_is_in(self, group: cgroups.Group) -> None:
        tree = subprocess.Popen(
            ["/bin/sh", "-c", "read line; setsid sleep 600 & sleep 600 & echo ran; wait"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        group.join(tree.pid)
        assert tree.stdin is not None
        assert tree.stdout is not None
        tree.stdin.write(b"\n")
        tree.stdin.flush()
        assert tree.stdout.readline() == b"ran\n"
        assert len(group.pids()) == 3
        assert group.kill()
        tree.communicate()
        assert tree.returncode == -9
        assert group.remove()
        assert not group.exists()
