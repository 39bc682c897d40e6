"""What a member of the local driver may see: bubblewrap arguments, its user id, device files, data paths.

Builds argument lists and probes the machine; starts no member. Nothing here goes through a shell.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scheduler.drivers.base import DriverError, GrantedCard

WORKSPACE = "/workspace"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A uid of its own for every member keeps members from signalling or reading each other where nothing else does.
# The range lies above what distributions, systemd and subuid ranges hand out and below 2**31.
FIRST_UID = 1_610_612_736
UID_COUNT = 2**28
NOBODY = 65_534

_REPLACED = ("proc", "dev", "tmp", "run")  # top-level folders that get a fresh mount instead of the host's
_NAME_SERVICE = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")  # where /etc/resolv.conf may point
_SCRATCH = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108  fresh for every member, never shared
_OPEN_FOLDER = ("--perms", "1777", "--tmpfs")


def interpreter() -> str:
    """The real file of the running Python: the shim and the launcher start with it, without site packages."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _interpreter_home() -> Path:
    return Path(os.path.realpath(sys.base_prefix))


def _uid_is_mapped(uid: int, uid_map: str) -> bool:
    for line in uid_map.splitlines():
        first, _, count = (int(field) for field in line.split())
        if first <= uid < first + count:
            return True
    return False


def member_uid(name: str, *, privileged: bool | None = None, uid_map: str | None = None) -> int | None:
    """The uid a member runs under, or None: as the driver's own user, because only root may choose."""
    privileged = os.geteuid() == 0 if privileged is None else privileged
    if not privileged:
        return None
    if uid_map is None:
        uid_map = Path("/proc/self/uid_map").read_text(encoding="ascii")
    own = FIRST_UID + zlib.crc32(name.encode()) % UID_COUNT
    return next((uid for uid in (own, NOBODY) if _uid_is_mapped(uid, uid_map)), None)


def passwd_text(uid: int | None) -> str:
    """The host's passwd file and a line for the member, since many programs look their own user up."""
    text = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace")
    if uid is None or any(line.split(":")[2:3] == [str(uid)] for line in text.splitlines()):
        return text
    return f"{text.rstrip()}\njob:x:{uid}:{uid}:job:{WORKSPACE}:/bin/sh\n"


def hidden_folders(data: Path) -> list[Path]:
    """Folders that a member sees empty: homes, for their keys and tokens, and the portal's data."""
    homes = {Path("/root"), Path(pwd.getpwuid(os.geteuid()).pw_dir)} if _known_user() else {Path("/root")}
    real = (Path(os.path.realpath(home)) for home in homes if home.is_dir())
    return [*sorted(home for home in real if home != Path("/")), data]


def _known_user() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def checked_data_paths(paths: Sequence[str], data: Path) -> list[str]:
    """The member's data paths, or DriverError: absolute, plain, existing, and neither around nor inside our data."""
    for text in paths:
        path = Path(text)
        real = Path(os.path.realpath(text)) if "\0" not in text else path
        plain = path.is_absolute() and ".." not in path.parts and "\0" not in text
        if not plain or len(real.parts) < 3 or real.is_relative_to(data) or data.is_relative_to(real):
            raise DriverError(f"the data path {text!r} can't be given to a job")
        if not real.exists():
            raise DriverError(f"the data path {text!r} does not exist on this node")
        shut = next((parent for parent in real.parents if not parent.stat().st_mode & stat.S_IXOTH), None)
        if shut is not None:  # a mount would lead round the folder that keeps others out
            raise DriverError(f"the data path {text!r} can't be given to a job: {shut} is not open to everybody")
    return list(paths)


def nvidia_devices(
    cards: Sequence[GrantedCard], *, cards_folder: Path = Path("/proc/driver/nvidia/gpus"), devices: Path = Path("/dev")
) -> list[str]:
    """Device files of the granted physical cards. A UUID that the kernel doesn't list (a MIG slice) opens all cards."""
    wanted = {card.uuid for card in cards if not card.virtual}
    if not wanted:
        return []
    minors: dict[str, str] = {}
    for information in sorted(cards_folder.glob("*/information")):
        fields = dict(line.split(":", 1) for line in information.read_text().splitlines() if ":" in line)
        minors[fields.get("GPU UUID", "").strip()] = fields.get("Device Minor", "").strip()
    listed = [minor for uuid, minor in minors.items() if uuid in wanted] if wanted <= set(minors) else minors.values()
    shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
    paths = [devices / name for name in (*(f"nvidia{minor}" for minor in sorted(listed)), *shared)]
    return [str(path) for path in paths if path.exists()]


def _parents(path: Path, hidden: Sequence[Path]) -> list[str]:
    """Make the folders above `path` passable where they lie inside a hidden one (bubblewrap's own are 0700)."""
    missing = [parent for parent in reversed(path.parents) if _is_below(parent, hidden) and parent not in hidden]
    return [argument for parent in missing for argument in ("--perms", "0755", "--dir", str(parent))]


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The sandbox: the host read-only without homes, runtime sockets, temporary files and the portal's data."""

    program: str
    data: Path

    def _root(self) -> list[str]:
        arguments: list[str] = []
        for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
            if entry.is_symlink():
                arguments += ["--symlink", os.readlink(entry.path), entry.path]
            elif entry.is_dir() and entry.name not in _REPLACED and entry.path != WORKSPACE:
                arguments += ["--ro-bind", entry.path, entry.path]
        return arguments

    def arguments(
        self, *, work: str = "", passwd: str = "", opened: Sequence[str] = (), devices: Sequence[str] = ()
    ) -> list[str]:
        """The argument list up to and with `--`; `work` becomes the writable /workspace, `opened` stay writable."""
        arguments = [self.program, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        arguments += ["--die-with-parent", *self._root(), "--proc", "/proc", "--dev", "/dev"]
        for device in devices:
            arguments += ["--dev-bind", device, device]
        for folder in _SCRATCH:
            arguments += [*_OPEN_FOLDER, folder]
        arguments += ["--tmpfs", "/run"]
        for folder in _NAME_SERVICE:
            arguments += ["--ro-bind-try", folder, folder]
        for path in hidden_folders(self.data):
            arguments += ["--tmpfs", str(path)]
        hidden = [*hidden_folders(self.data), *map(Path, _SCRATCH), Path("/run")]
        home = _interpreter_home()
        if _is_below(home, hidden):
            arguments += [*_parents(home, hidden), "--ro-bind", str(home), str(home)]
        for folder in opened:
            arguments += [*_parents(Path(folder), hidden), "--bind", folder, folder]
        if passwd:
            arguments += ["--ro-bind", passwd, "/etc/passwd"]
        arguments += ["--bind", work, WORKSPACE] if work else ["--dir", WORKSPACE]
        return [*arguments, "--remount-ro", "/", "--chdir", WORKSPACE, "--"]


def find_bubblewrap(data: Path, program: str = "bwrap") -> Bubblewrap | None:
    """Bubblewrap if it is installed and truly makes our sandbox here (a container may forbid it)."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{DEFAULT_PATH}")
    if found is None:
        return None
    sandbox = Bubblewrap(found, data)
    try:
        done = subprocess.run([*sandbox.arguments(), "/bin/true"], env={}, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return sandbox if done.returncode == 0 else None


def member_path(sandboxed: bool) -> str:
    """PATH of a member: the system's, and last the portal's own interpreter where the sandbox shows it."""
    folder = str(_interpreter_home() / "bin")
    return f"{DEFAULT_PATH}:{folder}" if sandboxed and folder not in DEFAULT_PATH.split(":") else DEFAULT_PATH
