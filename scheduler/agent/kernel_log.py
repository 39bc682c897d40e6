"""XIDs from the kernel log: `/dev/kmsg`, or a file of the same records for tests. Reads only.

A record is `priority,sequence,microseconds,flags;text`. The sequence never repeats within one boot, so boot id and
sequence name an XID for good, however often it is read.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.agent.model import pci_address, plain

logger = logging.getLogger(__name__)

RECORD_BYTES: Final = 16384  # the kernel refuses a read with less room than one record
MAX_RECORDS: Final = 100_000  # a reading, so that a flooded log can't hold the agent; the next one goes on
XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d{1,6})\b")
# Printed once before a card's first XID; the only source of the UUID for a card that NVML never listed.
NAMED: Final = re.compile(r"NVRM: GPU at PCI:([0-9a-fA-F:]+): (GPU-[0-9a-f-]+)")


@dataclass(frozen=True, slots=True)
class Xid:
    sequence: int
    code: int
    pci: str | None
    at: str
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """`last` is the highest sequence seen; `uuids` are the cards the log itself named, by PCI address."""

    xids: tuple[Xid, ...]
    last: int
    uuids: dict[str, str]


class KernelLog:
    """Keeps its place in the log between readings; `rewind` makes the next one start at the beginning again."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._path = path
        self._fd: int | None = None
        self._rest = b""  # of a file: a line that is not complete yet
        self._complained = False
        self._uuids: dict[str, str] = {}

    def read(self, after: int) -> Reading:
        """XIDs with a sequence above `after`. Where the log can't be read: none, said once in our own log."""
        xids: list[Xid] = []
        last = after
        for sequence, microseconds, text in self._records():
            named = NAMED.search(text)
            if named:
                self._uuids[pci_address(named[1]) or ""] = named[2]
            if sequence <= after:
                continue
            last = max(last, sequence)
            match = XID.search(text)
            if match:
                when = _wall_clock(microseconds)
                xids.append(Xid(sequence, int(match[2]), pci_address(match[1]), when, plain(text)))
        return Reading(tuple(xids), last, dict(self._uuids))

    def rewind(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._rest = b""

    def _records(self) -> Iterator[tuple[int, int, str]]:
        for raw in self._raw():
            record = parse(raw)
            if record is not None:
                yield record

    def _raw(self) -> Iterator[bytes]:
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if stat.S_ISCHR(os.fstat(self._fd).st_mode):
                yield from self._from_device(self._fd)
            else:
                yield from self._from_file(self._fd)
        except OSError as error:
            self.rewind()
            if not self._complained:
                self._complained = True
                logger.warning("kernel log %s can't be read (%s): XIDs will not be seen", self._path, error.strerror)

    def _from_device(self, fd: int) -> Iterator[bytes]:
        for _ in range(MAX_RECORDS):
            try:
                raw = os.read(fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                logger.warning("kernel log overran: records were overwritten before they could be read")
                continue
            if not raw:
                return
            yield raw

    def _from_file(self, fd: int) -> Iterator[bytes]:
        while chunk := os.read(fd, 1 << 16):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from lines


def parse(raw: bytes) -> tuple[int, int, str] | None:
    """(sequence, microseconds since boot, first line of the text); None for continuation lines and noise."""
    head, separator, text = raw.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3:
        return None
    try:
        return int(fields[1]), int(fields[2]), text.split(b"\n")[0].decode("utf-8", "replace")
    except ValueError:
        return None


def _wall_clock(microseconds: int) -> str:
    """The kernel stamps time since boot. Never later than now, whatever the log says."""
    age = max(time.clock_gettime(time.CLOCK_MONOTONIC) - microseconds / 1e6, 0.0)
    return dt.datetime.fromtimestamp(time.time() - age, dt.UTC).isoformat()
