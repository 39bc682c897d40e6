"""The local driver: members are real processes of this machine, each under a shim that outlives whoever started it.

Owns `<data>/jobs/`: a folder a member, a tombstone and a lock file a job. All truth is in these files and in kernel
locks, so any process may build a LocalDriver on the same folder at any time. Must not touch the ledger.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from scheduler.drivers import cgroup_probe, cgroups, local_plan, podman, process_tree, sandbox
from scheduler.drivers import member_folder as files
from scheduler.drivers.base import (
    DriverError,
    EndReason,
    LogChunk,
    MemberSpec,
    NodeFacts,
    Observation,
    Phase,
    ReplyLost,
    StartRefused,
)

_REPOSITORY = Path(__file__).resolve().parents[2]
_LOCKED_BY_OTHER = 75
_BARE_WORK = Path("/var/lib/gpu-commons")


class LocalDriver:
    """See base.Driver. Safe to use from several threads and processes at once."""

    name = "local"
    simulated = False

    def __init__(
        self,
        data_dir: Path,
        hostname: str,
        *,
        use_bubblewrap: bool = True,
        use_cgroups: bool = True,
        max_log_bytes: int = 64 * 1024 * 1024,
        pids_base: int = 512,
        pids_per_cpu: int = 64,
        handshake_s: float = 15.0,
    ) -> None:
        self.data = Path(os.path.realpath(data_dir))
        self.hostname = hostname
        self.jobs = self.data / "jobs"
        self.handshake_s = handshake_s
        self._use_bubblewrap = use_bubblewrap
        self._use_cgroups = use_cgroups
        self._max_log_bytes = max_log_bytes
        self._pids = (pids_base, pids_per_cpu)
        for folder in (self.jobs, self.jobs / ".tombstones", self.jobs / ".locks"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    # -- what this machine can do -----------------------------------------------------------------------------------

    @cached_property
    def machine(self) -> local_plan.Machine:
        return local_plan.Machine(
            instance=local_plan.instance_of(self.data),
            hierarchy=cgroup_probe.usable() if self._use_cgroups else None,
            bubblewrap=sandbox.find_bubblewrap(self.data) if self._use_bubblewrap else None,
            podman=podman.find_podman(),
            data=self.data,
            max_log_bytes=self._max_log_bytes,
            pids_base=self._pids[0],
            pids_per_cpu=self._pids[1],
        )

    @property
    def limits_mode(self) -> str:
        """cgroup2, cgroup1 or rlimits."""
        return self.machine.limits_mode

    def inventory(self) -> list[NodeFacts]:
        """This machine's CPUs and memory. Its cards are reported by the node agent."""
        cpus = len(os.sched_getaffinity(0))
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1024 * 1024)
        return [NodeFacts(hostname=self.hostname, cpu_milli=cpus * 1000, host_memory_mib=memory, cards=())]

    # -- start ------------------------------------------------------------------------------------------------------

    def prepare(self, spec: MemberSpec) -> None:
        self._check(spec)
        if spec.image and self.machine.podman is not None:
            self.machine.podman.ensure_image(spec.image)

    def start(self, spec: MemberSpec) -> Observation:
        self._check(spec)
        folder = self.jobs / spec.key
        with self._job_lock(spec.job_id):
            if spec.fence <= self._tombstone(spec.job_id):
                raise StartRefused(f"attempt {spec.fence} of job {spec.job_id} was already closed")
            claim = files.read_json(str(folder / files.SPEC)) or self._claim(spec, folder)
            self._same_member(claim, spec.key, spec.job_id, spec.fence)
            if self._never_ran(folder):
                self._spawn(folder)
        return self._observe(spec.key)

    def _check(self, spec: MemberSpec) -> None:
        local_plan.check_spec(spec, hostname=self.hostname, data=self.data)
        if spec.image and self.machine.podman is None:
            raise DriverError("this node has no podman, so an image cannot be used")

    def _claim(self, spec: MemberSpec, folder: Path) -> dict[str, Any]:
        """Lay the folder out and claim the key by creating its spec; of several callers one wins."""
        work = self._work_folder(spec.key, folder)
        claim = local_plan.claim(spec, self.machine, folder=folder, work=work)
        folder.mkdir(mode=0o700, exist_ok=True)
        files.sync_folder(str(self.jobs))
        work.mkdir(mode=0o700, exist_ok=True)
        if claim["uid"] is not None:
            os.chown(work, claim["uid"], claim["uid"])
        (folder / files.USERS).write_text(sandbox.passwd_text(claim["uid"]), encoding="utf-8")
        (folder / files.USERS).chmod(0o644)
        if spec.image:
            variables = local_plan.environment(spec, home=sandbox.WORKSPACE, path=sandbox.DEFAULT_PATH)
            text = "".join(f"{name}={value}\n" for name, value in variables.items() if name != "PATH")
            with open(folder / files.ENVIRONMENT, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
        files.create_durable(str(folder / files.SPEC), claim)
        return files.read_json(str(folder / files.SPEC)) or claim

    def _work_folder(self, key: str, folder: Path) -> Path:
        """Inside the member's folder, or, where a foreign uid must reach it by path, outside our closed folders."""
        if self.machine.bubblewrap is not None or os.geteuid() != 0:
            return folder / files.WORK
        base = _BARE_WORK
        for part in (base, base / self.machine.instance):
            part.mkdir(mode=0o711, exist_ok=True)
            found = part.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0:
                raise DriverError(f"{part} must be a folder of root's")
        return base / self.machine.instance / key

    @staticmethod
    def _same_member(claim: dict[str, Any], key: str, job_id: int, fence: int) -> None:
        if (claim["spec"]["job_id"], claim["spec"]["fence"]) != (job_id, fence):
            raise DriverError(f"the key {key} belongs to another attempt")

    @staticmethod
    def _shim_lives(folder: Path) -> bool:
        return files.is_locked(str(folder / files.SHIM_LOCK))

    def _never_ran(self, folder: Path) -> bool:
        """A claim that was not spawned: whoever claimed it died in between, or is us. Asked under the job's lock."""
        ran = any((folder / name).exists() for name in (files.EXIT, files.STARTED))
        return not ran and not self._shim_lives(folder)

    def _spawn(self, folder: Path) -> None:
        """Start the shim; it leaves our session and family at once, with none of our environment or descriptors."""
        with open(folder / files.SHIM_ERRORS, "ab", opener=_private) as errors:
            process = subprocess.Popen(
                [sandbox.interpreter(), "-E", "-s", "-S", "-m", "scheduler.drivers.local_shim", str(folder)],
                cwd=_REPOSITORY,
                env={"PATH": sandbox.DEFAULT_PATH, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        try:
            code = process.wait(timeout=self.handshake_s)
        except subprocess.TimeoutExpired as error:
            raise ReplyLost(f"the shim of {folder.name} did not answer in time") from error
        if code not in (0, _LOCKED_BY_OTHER):
            self._end_unstarted(folder, EndReason.START_FAILED, f"the shim could not be started: {_tail(folder)}")

    # -- what is there ----------------------------------------------------------------------------------------------

    def inspect(self, keys: Iterable[str]) -> dict[str, Observation]:
        return {key: self._observe(local_plan.check_key(key)) for key in keys}

    def list_members(self) -> list[Observation]:
        found = []
        for entry in os.scandir(self.jobs):
            if not entry.name.startswith(".") and not os.path.exists(f"{entry.path}/{files.EXIT}"):
                observation = self._observe(entry.name)
                if observation.phase not in (Phase.EXITED, Phase.ABSENT):
                    found.append(observation)
        return sorted(found, key=lambda observation: observation.key)

    def _observe(self, key: str) -> Observation:
        folder = self.jobs / key
        claim = files.read_json(str(folder / files.SPEC))
        if claim is None:
            return Observation(key=key, phase=Phase.ABSENT)
        if not (folder / files.EXIT).exists() and not self._shim_lives(folder):
            self._settle(folder, claim)
        end = files.read_json(str(folder / files.EXIT))
        if end is not None:
            return _ended(key, claim, end)
        running = files.read_json(str(folder / files.RUNNING))
        return Observation(
            key=key,
            phase=Phase.STARTING if running is None else Phase.RUNNING,
            job_id=claim["spec"]["job_id"],
            fence=claim["spec"]["fence"],
            message=claim["enforcement"],
            started_at=_time(running["started_at"] if running else None),
        )

    def _settle(self, folder: Path, claim: dict[str, Any]) -> None:
        """A member without shim and without end: record its loss, or finish the start that a dying caller began."""
        if (folder / files.STARTED).exists():
            self._bury(folder, claim)
            return
        job_id, fence = claim["spec"]["job_id"], claim["spec"]["fence"]
        with self._job_lock(job_id, wait_s=0.0) as locked:
            if not locked or not self._never_ran(folder):
                return  # a start or stop is at work on it right now
            if fence <= self._tombstone(job_id):
                self._end_unstarted(folder, EndReason.STOPPED, "stopped before it ran")
            else:
                with contextlib.suppress(ReplyLost):  # it stays STARTING, and the next look sees more
                    self._spawn(folder)

    def _bury(self, folder: Path, claim: dict[str, Any]) -> None:
        """The shim was killed. End what it left behind; only then is the member gone."""
        lock = files.lock_file(str(folder / files.SHIM_LOCK))
        if lock is None:
            return
        try:
            if (folder / files.EXIT).exists():
                return
            marker = files.read_json(str(folder / files.STARTED)) or {}
            rebooted = marker.get("boot_id") != files.boot_id()
            if not rebooted and not self._end_leftovers(claim):
                return  # still RUNNING: something of it is left
            running = files.read_json(str(folder / files.RUNNING)) or {}
            message = "the machine was restarted under it" if rebooted else "the shim died; its processes were ended"
            self._record_end(folder, EndReason.LOST, message, started_at=running.get("started_at"))
        finally:
            os.close(lock)

    @staticmethod
    def _end_leftovers(claim: dict[str, Any]) -> bool:
        remove = claim["run"].get("remove_argv")
        if remove:
            subprocess.run(remove, env=claim["run"]["outer_environment"], capture_output=True, timeout=60, check=False)
        group = cgroups.group_of(claim["limits"])
        if group is not None:
            return group.kill() and group.remove()
        return process_tree.kill_all(lambda: process_tree.marked(claim["name"]))

    def _end_unstarted(self, folder: Path, reason: EndReason, message: str) -> None:
        """Record the end of a claim that never ran, unless a shim has it after all."""
        lock = files.lock_file(str(folder / files.SHIM_LOCK))
        if lock is None:
            return
        try:
            if not any((folder / name).exists() for name in (files.EXIT, files.STARTED)):
                self._record_end(folder, reason, message)
        finally:
            os.close(lock)

    @staticmethod
    def _record_end(folder: Path, reason: EndReason, message: str, *, started_at: float | None = None) -> None:
        now = dt.datetime.now(dt.UTC).timestamp()
        end = {"end_reason": str(reason), "message": message, "started_at": started_at, "ended_at": now}
        files.create_durable(str(folder / files.EXIT), {"exit_code": None, **end})

    # -- stop, logs, clean ------------------------------------------------------------------------------------------

    def stop(self, *, key: str, job_id: int, fence: int, grace_s: int) -> Observation:
        folder = self.jobs / local_plan.check_key(key)
        local_plan.check_number("the job's number", job_id, 0)
        local_plan.check_number("the fence", fence, 0)
        local_plan.check_number("the grace", grace_s, 0)
        with self._job_lock(job_id):
            claim = files.read_json(str(folder / files.SPEC))
            if claim is not None:
                self._same_member(claim, key, job_id, fence)
            if fence > self._tombstone(job_id):
                files.write_durable(str(self._tombstone_path(job_id)), {"fence": fence})
            if claim is not None and not (folder / files.EXIT).exists():
                files.write_durable(str(folder / files.STOP), {"grace_s": grace_s})
        return self._observe(key)

    def logs(self, key: str, cursor: int = 0, limit: int = 65_536) -> LogChunk:
        folder = self.jobs / local_plan.check_key(key)
        exited = (folder / files.EXIT).exists()  # looked at before the log: what follows it is complete
        try:
            with open(folder / files.LOG, "rb") as file:
                file.seek(max(0, cursor))
                data = file.read(max(0, limit))
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return LogChunk(b"", cursor, exited)
        following = max(0, cursor) + len(data)
        return LogChunk(data, following, exited and following >= size)

    def clean(self, *, key: str, node: str, whole: bool) -> bool:
        """Remove what the member wrote, keep its end and its log. False while anything of it runs."""
        if node != self.hostname:
            raise DriverError(f"this driver cleans {self.hostname}, not {node}")
        phase = self._observe(local_plan.check_key(key)).phase
        if phase not in (Phase.EXITED, Phase.ABSENT):
            return False
        folder = self.jobs / key
        claim = files.read_json(str(folder / files.SPEC))
        if claim is None:
            return True
        for name in (files.USERS, files.ENVIRONMENT):
            (folder / name).unlink(missing_ok=True)
        group = cgroups.group_of(claim["limits"])
        gone = group is None or group.remove()
        return _remove_tree(Path(claim["work"])) and gone

    # -- tombstones and locks ---------------------------------------------------------------------------------------

    def _tombstone_path(self, job_id: int) -> Path:
        return self.jobs / ".tombstones" / str(job_id)

    def _tombstone(self, job_id: int) -> int:
        """The highest closed fence of the job, -1 if none was closed."""
        found = files.read_json(str(self._tombstone_path(job_id)))
        return -1 if found is None else int(found["fence"])

    @contextlib.contextmanager
    def _job_lock(self, job_id: int, *, wait_s: float | None = None) -> Iterator[bool]:
        lock = files.lock_file(str(self.jobs / ".locks" / str(job_id)), wait_s=wait_s)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                os.close(lock)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _time(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


def _ended(key: str, claim: dict[str, Any], end: dict[str, Any]) -> Observation:
    return Observation(
        key=key,
        phase=Phase.EXITED,
        job_id=claim["spec"]["job_id"],
        fence=claim["spec"]["fence"],
        exit_code=end["exit_code"],
        end_reason=EndReason(end["end_reason"]),
        message=f"{end['message']} (limits by {claim['limits']['mode']})",
        started_at=_time(end["started_at"]),
        ended_at=_time(end["ended_at"]),
    )


def _tail(folder: Path) -> str:
    text = (folder / files.SHIM_ERRORS).read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1][:300] if text else "it said nothing"


def _remove_tree(path: Path) -> bool:
    """Remove a folder that a job filled, also where it took permissions from itself. True once it is gone."""
    if path.is_dir():
        for folder, names, _ in os.walk(path):
            for name in [".", *names]:
                inner = os.path.join(folder, name)
                if not os.path.islink(inner):
                    with contextlib.suppress(OSError):
                        os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    return not path.exists()
