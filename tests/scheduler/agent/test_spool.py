"""The journal of faults through crashes, damage and a full disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.agent import spool as module
from scheduler.agent.memory import KnownCard, Level, Memory
from scheduler.agent.model import Fault
from scheduler.agent.spool import Spool, SpoolBusy

MEMORY = Memory(
    "boot-1", 7, {"GPU-a:ecc": Level(3, 1)}, (KnownCard("GPU-a", 0, None, "0000:3b:00.0", "H100", 81559),), "boot-1"
)


def fault(number: int, message: str = "fell off the bus") -> Fault:
    return Fault(f"boot-1:kmsg:{number}", "xid", 79, "GPU-a", "0000:3b:00.0", "2026-01-01T00:00:00+00:00", message)


def reopened(spool: Spool, folder: Path) -> Spool:
    spool.close()
    return Spool(folder, "boot-1")


def names(spool: Spool) -> list[int]:
    return [int(found.id.rsplit(":", 1)[1]) for found in spool.head(10_000)]


def test_faults_and_memory_come_back_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1), fault(2)], MEMORY)
    spool = reopened(spool, tmp_path)
    assert spool.head(10) == (fault(1), fault(2))
    assert spool.memory == MEMORY


def test_only_what_was_confirmed_is_forgotten(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(n) for n in range(5)], MEMORY)
    spool.acknowledge(spool.head(2))
    spool = reopened(spool, tmp_path)
    assert names(spool) == [2, 3, 4]
    spool.acknowledge(spool.head(10))
    spool = reopened(spool, tmp_path)
    assert (spool.pending, spool.memory) == (0, MEMORY)


def test_the_same_fault_keeps_its_first_content(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1, "first")], MEMORY)
    spool.record([fault(1, "second")], MEMORY)
    assert [found.message for found in reopened(spool, tmp_path).head(5)] == ["first"]


def test_every_tear_of_the_last_line_leaves_what_was_before(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1)], MEMORY)
    whole = (tmp_path / "journal").read_bytes()
    spool.record([fault(2)], MEMORY)
    spool.close()
    longer = (tmp_path / "journal").read_bytes()
    for end in range(len(whole), len(longer) - 1, 7):  # with all but its end of line, a line is whole
        (tmp_path / "journal").write_bytes(longer[:end])
        torn = Spool(tmp_path, "boot-1")
        assert names(torn) == [1]
        torn.record([fault(3)], MEMORY)
        torn = reopened(torn, tmp_path)
        assert names(torn) == [1, 3]
        torn.close()


@pytest.mark.parametrize("damage", [b"\0\0\0\0", b"[]", b'{"faults": [{"id": 1}]}', b'{"memory": {}}', b"\xff\xfe"])
def test_a_damaged_line_costs_only_itself_and_is_kept_aside(tmp_path: Path, damage: bytes) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1)], MEMORY)
    spool.record([fault(2)], MEMORY)
    spool.close()
    first, second, _ = (tmp_path / "journal").read_bytes().split(b"\n")
    (tmp_path / "journal").write_bytes(b"\n".join((first, damage, second, b"")))
    spool = Spool(tmp_path, "boot-1")
    assert names(spool) == [1, 2]
    assert damage in (tmp_path / "journal.damaged").read_bytes()
    assert damage not in (tmp_path / "journal").read_bytes()


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Files may not grow past `size`: the kernel answers as it does for a full disk, in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_no_half_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1)], MEMORY)
    size = (tmp_path / "journal").stat().st_size
    with no_room_beyond(size + 40), pytest.raises(OSError, match="File too large"):
        spool.record([fault(2)], Memory("boot-1", 8))
    assert (tmp_path / "journal").stat().st_size == size
    assert (names(spool), spool.memory) == ([1], MEMORY)
    spool.record([fault(2)], MEMORY)
    assert names(reopened(spool, tmp_path)) == [1, 2]


def test_the_journal_does_not_grow_with_what_was_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_AFTER", 50)
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(0)], MEMORY)
    spool.defer(fault(0))
    size = (tmp_path / "journal").stat().st_size
    for number in range(1, 400):
        spool.record([fault(number)], MEMORY)
        spool.acknowledge([fault(number)])
    assert (tmp_path / "journal").stat().st_size < 100 * size
    assert names(reopened(spool, tmp_path)) == [0]


def test_a_quiet_machine_writes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1)], MEMORY)
    before = (tmp_path / "journal").read_bytes()
    for sequence in range(100):
        spool.record([], Memory("boot-1", sequence, MEMORY.levels, MEMORY.cards, "boot-1"))
    assert (tmp_path / "journal").read_bytes() == before


def test_a_deferred_fault_waits_behind_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1), fault(2), fault(3)], MEMORY)
    spool.defer(fault(1))
    assert names(spool) == [2, 3, 1]


def test_the_sequence_never_repeats_even_if_the_last_agent_crashed(tmp_path: Path) -> None:
    taken: list[int] = []
    spool = Spool(tmp_path, "boot-1")
    for _ in range(4):
        taken += [spool.take_sequence() for _ in range(120)]
        spool = reopened(spool, tmp_path)
    assert taken == sorted(set(taken))


def test_a_sequence_file_that_is_damaged_or_lost_starts_ahead_of_the_old_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    before = spool.take_sequence()
    (tmp_path / "sequence").write_text("")
    assert reopened(spool, tmp_path).take_sequence() >= before


def test_one_spool_has_one_agent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    with pytest.raises(SpoolBusy):
        Spool(tmp_path, "boot-1")
    spool.close()
    Spool(tmp_path, "boot-1").close()


def test_the_spool_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "spool"
    spool = Spool(folder, "boot-1")
    spool.record([fault(1)], MEMORY)
    spool.take_sequence()
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
