"""The driver protocol: what makes an allocation real, behind one small interface.

A driver runs one *member* (one allocation: one attempt's part on one node) under a `key` that never changes, so that
every call may be repeated: start twice starts once, stop twice stops once. It owns no truth about who may hold what;
it must not write the ledger.

Conformance notes (tests/scheduler/drivers/conformance.py runs every driver through them):
* `start` is idempotent by key and returns what is there. It is refused (`StartRefused`) when the job's tombstone is
  at or above the fence: a start that arrives after the stop must not run.
* `stop` sends the polite signal, then after `grace_s` the hard one, and never blocks for the grace: it returns at
  once with what is there, and is called again until `inspect` says EXITED or ABSENT. Before it acts it leaves the
  tombstone (job, fence), so a late start is refused even for a key never seen.
* A lost reply (`ReplyLost`) says nothing about what happened: the caller asks `inspect`.
* After a restart of the driver's own process `inspect` still knows every member (adoption) and its exit status.
* `logs` returns bytes from a byte cursor and never loses what the member wrote before its end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class DriverError(Exception):
    """The driver refused or failed for sure: nothing runs because of this call. `message` is shown to people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class StartRefused(DriverError):
    """The fence is at or below the job's tombstone: this attempt was already closed."""


class ReplyLost(Exception):
    """No answer came: the call may or may not have taken effect. Unknown is not failed."""


class Phase(StrEnum):
    ABSENT = "absent"  # the driver never heard of the key, or it was cleaned away
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"  # no process of the member is left


class EndReason(StrEnum):
    EXIT = "exit"  # by itself; see exit_code
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    STOPPED = "stopped"  # because stop() asked for it
    START_FAILED = "start_failed"
    LOST = "lost"  # the machine went away under it


@dataclass(frozen=True, slots=True)
class GrantedCard:
    uuid: str
    slot: int
    memory_mib: int  # what is granted of this card
    compute_milli: int  # 0 = best effort
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """Everything a driver needs to run one member. Plain data; JSON-safe through dataclasses.asdict."""

    key: str  # unique per allocation, [a-z0-9-]{1,60}
    job_id: int
    attempt_id: int
    fence: int
    node: str  # hostname
    form: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    cards: Sequence[GrantedCard] = ()
    cpu_milli: int = 1000
    host_memory_mib: int = 1024
    walltime_s: int | None = None
    rank: int = 0  # 0 … members-1 inside a gang
    members: int = 1
    member_nodes: Sequence[str] = ()
    data_paths: Sequence[str] = ()
    checkpoint_signal: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the driver sees of one member now. Times are UTC and only for people; the book uses its own clock."""

    key: str
    phase: Phase
    job_id: int = 0
    fence: int = 0
    exit_code: int | None = None
    end_reason: EndReason | None = None
    message: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class LogChunk:
    data: bytes
    cursor: int  # pass it to the next call
    end: bool  # True: the member has exited and nothing follows


@dataclass(frozen=True, slots=True)
class CardFacts:
    uuid: str
    slot: int
    model: str
    memory_mib: int
    virtual: bool = False
    memory_assumed: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    hostname: str
    cpu_milli: int
    host_memory_mib: int
    cards: Sequence[CardFacts]
    online: bool = True


class Driver(Protocol):
    """See the module docstring. Methods raise DriverError (sure failure) or ReplyLost (unknown)."""

    name: str
    simulated: bool

    def prepare(self, spec: MemberSpec) -> None:
        """Get ready (image, data). May be repeated; may do nothing."""

    def start(self, spec: MemberSpec) -> Observation: ...

    def inspect(self, keys: Iterable[str]) -> dict[str, Observation]:
        """One observation for each key asked for, ABSENT included."""

    def list_members(self) -> list[Observation]:
        """Every member that is not yet EXITED, whoever started it: reconcile compares it with the book."""

    def stop(self, *, key: str, job_id: int, fence: int, grace_s: int) -> Observation: ...

    def logs(self, key: str, cursor: int = 0, limit: int = 65_536) -> LogChunk: ...

    def clean(self, *, key: str, node: str, whole: bool) -> bool:
        """Scrub what the member left; True once done, False while under way. May be repeated."""

    def inventory(self) -> list[NodeFacts]: ...
