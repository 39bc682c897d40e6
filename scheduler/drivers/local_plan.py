"""From a MemberSpec to the claim that the shim obeys: checks of the spec, environment, limits and argument lists.

Pure apart from reading the machine's facts that it is handed; starts nothing and writes nothing.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ledger.vocabulary import DENIED_ENVIRONMENT_PREFIXES
from scheduler.drivers import cgroups, podman, process_tree, sandbox
from scheduler.drivers import member_folder as files
from scheduler.drivers.base import DriverError, GrantedCard, MemberSpec

_KEY = re.compile(r"[a-z0-9-]{1,60}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")
_MIB = 1024 * 1024
LAUNCHER = (Path(__file__).parent / "local_launch.py").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Machine:
    """What this node offers to enforce with; probed once by the driver."""

    instance: str  # tells the portals of one machine apart
    hierarchy: cgroups.Hierarchy | None
    bubblewrap: sandbox.Bubblewrap | None
    podman: podman.Podman | None
    data: Path
    max_log_bytes: int
    pids_base: int
    pids_per_cpu: int

    @property
    def limits_mode(self) -> str:
        return self.hierarchy.mode if self.hierarchy is not None else cgroups.RLIMITS


def check_key(key: str) -> str:
    """The key itself, or DriverError: it becomes a folder name."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise DriverError(f"not a member key: {key!r:.80}")
    return key


def check_number(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DriverError(f"{name} must be a whole number of at least {least}")
    return value


def _check_text(what: str, texts: Sequence[str]) -> None:
    if any(not isinstance(text, str) or "\0" in text for text in texts):
        raise DriverError(f"{what} must be text without NUL characters")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise DriverError(f"{what} must be valid Unicode") from None


def _check_environment(environment: Mapping[str, str]) -> None:
    _check_text("the environment", [*environment.keys(), *environment.values()])
    for name in environment:
        if _VARIABLE.fullmatch(name) is None:
            raise DriverError(f"{name[:80]!r} is not a name for an environment variable")
        if name.startswith(DENIED_ENVIRONMENT_PREFIXES):
            raise DriverError(f"the environment variable {name[:80]} is set by the portal and can't be chosen by a job")


def checkpoint_number(name: str) -> int:
    """The number of a signal named like USR1 or SIGUSR1; 0 for none."""
    if not name:
        return 0
    full = name if name.startswith("SIG") else f"SIG{name}"
    found = signal.Signals.__members__.get(full)
    if found is None or found in (signal.SIGKILL, signal.SIGSTOP):
        raise DriverError(f"{name[:40]!r} is not a signal that a job could catch")
    return int(found)


def check_spec(spec: MemberSpec, *, hostname: str, data: Path) -> None:
    """DriverError naming the first thing that can't be run here."""
    check_key(spec.key)
    check_number("the job's number", spec.job_id, 0)
    check_number("the fence", spec.fence, 0)
    if spec.node != hostname:
        raise DriverError(f"this driver runs jobs on {hostname}, not on {spec.node}")
    if isinstance(spec.command, str) or not spec.command or not spec.command[0]:
        raise DriverError("the command is empty")
    _check_text("the command", spec.command)
    _check_environment(spec.environment)
    check_number("cpu_milli", spec.cpu_milli, 1)
    check_number("host_memory_mib", spec.host_memory_mib, 0)
    for card in spec.cards:
        check_number("a card's memory", card.memory_mib, 0)
    if memory_mib(spec) < 1:
        raise DriverError("the job has no memory: give it host memory or card memory")
    checkpoint_number(spec.checkpoint_signal)
    sandbox.checked_data_paths(spec.data_paths, data)
    if spec.image:
        _check_image(spec)


def _check_image(spec: MemberSpec) -> None:
    if _IMAGE.fullmatch(spec.image) is None:
        raise DriverError(f"{spec.image[:80]!r} is not a name for an image")
    if any("\n" in value for value in spec.environment.values()):
        raise DriverError("with an image, environment variables can't hold line breaks")
    if any(":" in path or "," in path for path in spec.data_paths):
        raise DriverError("with an image, data paths can't hold colons or commas")


def memory_mib(spec: MemberSpec) -> int:
    """The hard limit on process memory. A virtual card has no memory of its own, so its share is enforced here."""
    virtual = [card.memory_mib for card in spec.cards if card.virtual]
    return sum(virtual) if virtual else spec.host_memory_mib


def environment(spec: MemberSpec, *, home: str, path: str) -> dict[str, str]:
    """The command's whole environment: nothing of the portal's own, then the user's, then what the grant fixes."""
    cards: Sequence[GrantedCard] = sorted(spec.cards, key=lambda card: card.slot)
    uuids = ",".join(card.uuid for card in cards)
    basic = {"PATH": path, "HOME": home, "USER": "job", "LOGNAME": "job", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    fixed = {
        "CUDA_VISIBLE_DEVICES": uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
        "GPU_COMMONS_JOB_ID": str(spec.job_id),
        "GPU_COMMONS_RANK": str(spec.rank),
        "GPU_COMMONS_MEMBERS": str(spec.members),
        "GPU_COMMONS_NODES": ",".join(spec.member_nodes),
        "GPU_COMMONS_CARD_MEMORY_MIB": ",".join(str(card.memory_mib) for card in cards),
    }
    return {**basic, **spec.environment, **fixed}


def _limits(spec: MemberSpec, machine: Machine, name: str, uid: int | None) -> dict[str, Any]:
    group = machine.hierarchy.group(name) if machine.hierarchy is not None else None
    physical = any(not card.virtual for card in spec.cards)
    memory = memory_mib(spec) * _MIB
    pids = machine.pids_base + machine.pids_per_cpu * -(-spec.cpu_milli // 1000)
    # A CUDA context maps far more addresses than it uses, so with physical cards only used memory can be watched.
    address_space = memory if group is None and not physical and not spec.image else 0
    return {
        "mode": machine.limits_mode,
        "groups": group.directories if group is not None else {},
        "elsewhere": cgroups.elsewhere(name, group.directories.values()) if group is not None and spec.image else [],
        "memory_bytes": memory,
        "cpu_milli": spec.cpu_milli,
        "pids_max": pids,
        "virtual": any(card.virtual for card in spec.cards),
        "address_space_bytes": address_space,
        # The kernel counts processes per user, so this limit only fits a user id that nobody else has.
        "processes": pids if group is None and uid is not None and uid != sandbox.NOBODY else 0,
    }


def isolation(spec: MemberSpec, machine: Machine, uid: int | None) -> str:
    """In words, for people: what keeps the member away from everything else."""
    if spec.image:
        return "podman"
    parts = ["bubblewrap"] if machine.bubblewrap is not None else []
    return " and ".join([*parts, "a user id of its own"] if uid is not None else parts)


def enforcement(spec: MemberSpec, machine: Machine, uid: int | None) -> str:
    """One sentence for people on how firmly the member is held."""
    held = {
        cgroups.CGROUP2: "limits by cgroup2",
        cgroups.CGROUP1: "limits by cgroup1",
        cgroups.RLIMITS: "limits by rlimits, since cgroups can't be written here: memory only, CPU time is not limited",
    }[machine.limits_mode]
    apart = isolation(spec, machine, uid)
    words = f"{held}; {f'kept apart by {apart}' if apart else 'not kept apart: it runs as the portal itself'}"
    if any(card.virtual for card in spec.cards):
        words += "; card memory of virtual cards is enforced as process memory"
    return words


def instance_of(data: Path) -> str:
    """How the portals of one machine are told apart; the names of their members begin with it. `data`: resolved."""
    return hashlib.sha256(str(data).encode()).hexdigest()[:8]


def claim(spec: MemberSpec, machine: Machine, *, folder: Path, work: Path) -> dict[str, Any]:
    """What `spec.json` holds: the spec, and everything the shim needs to run it."""
    name = f"{machine.instance}-{spec.key}"
    uid = sandbox.member_uid(name)
    run = _podman_run if spec.image else _launch_run
    order = run(spec, machine, folder=folder, work=work, name=name, uid=uid)
    return {
        "spec": asdict(spec),
        "name": name,
        "uid": uid,
        "work": str(work),
        "run": {
            "walltime_s": spec.walltime_s,
            "checkpoint_signal": checkpoint_number(spec.checkpoint_signal),
            "outer_environment": {"PATH": sandbox.DEFAULT_PATH, process_tree.MARKER: name},
            **order,
        },
        "limits": _limits(spec, machine, name, uid),
        "enforcement": enforcement(spec, machine, uid),
        "max_log_bytes": machine.max_log_bytes,
    }


def _launch_run(
    spec: MemberSpec, machine: Machine, *, folder: Path, work: Path, name: str, uid: int | None
) -> dict[str, Any]:
    box = machine.bubblewrap
    home = sandbox.WORKSPACE if box is not None else str(work)
    outer: list[str] = []
    if box is not None:
        devices = sandbox.nvidia_devices(spec.cards)
        passwd = str(folder / files.USERS)
        outer = box.arguments(work=str(work), passwd=passwd, opened=spec.data_paths, devices=devices)
    limits = _limits(spec, machine, name, uid)
    variables = environment(spec, home=home, path=sandbox.member_path(box is not None))
    kind = "sandbox" if box is not None else "bare"
    return {
        "kind": kind,
        "outer_argv": [*outer, sandbox.interpreter(), "-I", "-S", "-c", LAUNCHER, "3", kind],
        "order": {
            "argv": list(spec.command),
            "environment": {**variables, process_tree.MARKER: name},
            "cwd": home,
            "uid": uid,
            "gid": uid,
            "address_space_bytes": limits["address_space_bytes"],
            "processes": limits["processes"],
        },
    }


def _podman_run(
    spec: MemberSpec, machine: Machine, *, folder: Path, work: Path, name: str, uid: int | None
) -> dict[str, Any]:
    if machine.podman is None:
        raise DriverError("this node has no podman, so an image cannot be used")
    limits = _limits(spec, machine, name, uid)
    arguments = machine.podman.run_arguments(
        spec, name=name, work=str(work), uid=uid, env_file=str(folder / files.ENVIRONMENT), limits=limits
    )
    return {
        "kind": "podman",
        "outer_argv": arguments,
        "outer_environment": podman.client_environment(),
        "remove_argv": machine.podman.remove_arguments(name),
    }
