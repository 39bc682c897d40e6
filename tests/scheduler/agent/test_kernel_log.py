"""XIDs from kernel log records."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path

import pytest

from scheduler.agent.kernel_log import KernelLog, parse
from tests.scheduler.agent.conftest import Machine, h100

GPU1 = "GPU-00000001-1111-2222-3333-444444444444"


def test_an_xid_is_a_fault_of_the_card_at_that_address(machine: Machine) -> None:
    machine.set(h100(0), h100(1))
    machine.xid(9, 79, "0000:3c:00")
    report = machine.print()
    (fault,) = report["faults"]
    assert fault["id"] == f"{report['boot_id']}:kmsg:9"
    assert (fault["kind"], fault["code"], fault["card_uuid"], fault["pci"]) == ("xid", 79, GPU1, "0000:3c:00.0")
    assert "pid='<unknown>'" in fault["message"]
    assert dt.datetime.fromisoformat(fault["at"]) <= dt.datetime.now(dt.UTC)


def test_an_xid_of_an_unknown_card_keeps_its_address(machine: Machine) -> None:
    machine.set(h100(0))
    machine.xid(9, 62, "0000:ff:00")
    (fault,) = machine.print()["faults"]
    assert (fault["card_uuid"], fault["pci"]) == (None, "0000:ff:00.0")


def test_the_log_itself_may_name_a_card_that_nvml_does_not(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("3,7,1,-;NVRM: GPU at PCI:0000:5e:00: GPU-b850f46d-d5ea-c752-ddf3-c6453ae44d3f\n")
    assert KernelLog(str(log)).read(-1).uuids == {"0000:5e:00.0": "GPU-b850f46d-d5ea-c752-ddf3-c6453ae44d3f"}


@pytest.mark.parametrize(
    ("text", "code", "pci"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", 79, "0000:3b:00.0"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 13, Graphics Exception", 13, "0000:01:00.0"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00.0"),
        ("NVRM: Xid (PCI:00010000:AF:1F): 48, Double Bit ECC Error", 48, "10000:af:1f.0"),
    ],
)
def test_all_spellings_of_an_xid_are_read(tmp_path: Path, text: str, code: int, pci: str) -> None:
    log = tmp_path / "kmsg"
    log.write_text(f"3,1,5,-;{text}\n")
    assert [(xid.code, xid.pci) for xid in KernelLog(str(log)).read(-1).xids] == [(code, pci)]


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal",
        "NVRM: Xid (PCI:0000:3b:00): none",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        "",
    ],
)
def test_other_messages_are_no_xids(tmp_path: Path, text: str) -> None:
    log = tmp_path / "kmsg"
    log.write_text(f"3,1,5,-;{text}\n")
    reading = KernelLog(str(log)).read(-1)
    assert (reading.xids, reading.last) == ((), 1)


@pytest.mark.parametrize(
    ("raw", "record"),
    [
        (b"6,339,5140900,-;hello\n SUBSYSTEM=pci\n", (339, 5140900, "hello")),
        (b"6,340,1,-,caller=T1;a;b", (340, 1, "a;b")),
        (b" DEVICE=+pci:0000:00:01.0", None),
        (b"6,x,1,-;text", None),
        (b"6,1;text", None),
        (b"", None),
    ],
)
def test_a_record_is_sequence_time_and_first_line(raw: bytes, record: tuple[int, int, str] | None) -> None:
    assert parse(raw) == record


def test_only_what_is_new_is_given_and_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("3,1,5,-;NVRM: Xid (PCI:0000:3b:00): 31, a\n3,2,6,-;NVRM: Xid (PCI:0000:3b:00): 32, b\n")
    log = KernelLog(str(path))
    first = log.read(1)
    assert [xid.code for xid in first.xids] == [32]
    with path.open("a") as more:
        more.write("3,3,7,-;NVRM: Xid (PCI:0000:3b:00): 43, c\n3,4,8,-;NVRM: Xid (PCI:0000:3b")
    second = log.read(first.last)
    assert [xid.code for xid in second.xids] == [43]
    with path.open("a") as more:
        more.write(":00): 45, d\n")
    third = log.read(second.last)
    assert [(xid.sequence, xid.code) for xid in third.xids] == [(4, 45)]


def test_after_a_rewind_the_same_records_come_again(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("3,1,5,-;NVRM: Xid (PCI:0000:3b:00): 31, a\n")
    log = KernelLog(str(path))
    assert log.read(-1).xids
    log.rewind()
    assert [xid.code for xid in log.read(-1).xids] == [31]


def test_a_log_that_cannot_be_read_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = KernelLog(str(tmp_path / "missing"))
    with caplog.at_level(logging.WARNING):
        assert [log.read(5).last, log.read(5).last] == [5, 5]
    assert [record.getMessage().count("can't be read") for record in caplog.records] == [1]


def test_the_kernels_own_log_can_be_read() -> None:
    try:
        with open("/dev/kmsg", "rb", buffering=0):
            log = KernelLog()
    except OSError as error:
        pytest.skip(f"/dev/kmsg can't be opened here: {error.strerror}")
    first = log.read(-1)
    assert first.last >= 0
    assert log.read(first.last).last >= first.last
