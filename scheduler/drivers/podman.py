"""Podman argument lists for members that ask for an image. Nothing goes through a shell; starts no member itself.

runc, since crun refuses the hybrid cgroup layout; explicit ulimits, since raising them may be forbidden.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.drivers import cgroups, sandbox
from scheduler.drivers.base import DriverError, MemberSpec

_ULIMITS = ("nofile=1024:1024", "nproc=1024:1024")
_ASK_S = 60
_PULL_S = 1800


@dataclass(frozen=True, slots=True)
class Podman:
    program: str

    def _base(self) -> list[str]:
        return [self.program, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]

    def run_arguments(
        self, spec: MemberSpec, *, name: str, work: str, uid: int | None, env_file: str, limits: Mapping[str, Any]
    ) -> list[str]:
        """`podman run` for the member. The image must be there (see `ensure_image`)."""
        held = ["--pids-limit", str(limits["pids_max"]), "--cpus", f"{spec.cpu_milli / 1000:.3f}"]
        held += [part for limit in _ULIMITS for part in ("--ulimit", limit)]
        if limits["groups"]:  # the memory limit stands in the member's own group, whose evidence outlives the container
            held += ["--cgroup-parent", cgroups.path_in_mount(limits["groups"], name)]
        else:
            memory = f"{limits['memory_bytes']}b"
            held += ["--memory", memory, "--memory-swap", memory]
        user = ["--user", f"{uid}:{uid}"] if uid is not None else []
        devices = [part for device in sandbox.nvidia_devices(spec.cards) for part in ("--device", device)]
        mounts = [part for path in spec.data_paths for part in ("--volume", f"{path}:{path}")]
        return [
            *self._base(), "run", "--rm", "--pull", "never", "--name", f"gpu-commons-{name}", "--network", "host",
            "--security-opt", "no-new-privileges", "--cap-drop", "ALL", *user, *held, *devices, *mounts,
            "--volume", f"{work}:{sandbox.WORKSPACE}", "--workdir", sandbox.WORKSPACE, "--env-file", env_file,
            spec.image, *spec.command,
        ]  # fmt: skip

    def remove_arguments(self, name: str) -> list[str]:
        return [*self._base(), "rm", "--force", "--time", "0", "--ignore", f"gpu-commons-{name}"]

    def ensure_image(self, image: str) -> None:
        """Pull the image unless it is there. DriverError with podman's own last words."""
        if self._ask("image", "exists", image, patience_s=_ASK_S).returncode == 0:
            return
        pulled = self._ask("pull", "--quiet", image, patience_s=_PULL_S)
        if pulled.returncode:
            words = pulled.stderr.decode(errors="replace").strip().splitlines() or ["podman said nothing"]
            raise DriverError(f"the image {image} could not be fetched: {words[-1][:300]}")

    def _ask(self, *arguments: str, patience_s: float) -> subprocess.CompletedProcess[bytes]:
        command = [*self._base(), *arguments]
        try:
            return subprocess.run(command, capture_output=True, timeout=patience_s, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DriverError(f"podman did not answer: {error}") from error


def client_environment() -> dict[str, str]:
    """What podman itself needs of our environment: where an ordinary user's images and sockets lie, and no more."""
    kept = {name: os.environ[name] for name in ("HOME", "XDG_RUNTIME_DIR") if name in os.environ}
    return {"PATH": sandbox.DEFAULT_PATH, **kept}


def find_podman(program: str = "podman") -> Podman | None:
    """Podman, if it and runc are installed. Whether it works shows when an image is prepared or started."""
    path = f"{os.environ.get('PATH', '')}:{sandbox.DEFAULT_PATH}"
    found = shutil.which(program, path=path)
    return Podman(found) if found is not None and shutil.which("runc", path=path) is not None else None
