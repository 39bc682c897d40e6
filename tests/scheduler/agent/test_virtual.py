"""Machines without NVIDIA cards, and the rule that virtual cards never stand next to real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.agent import observe
from scheduler.agent.machine import (
    boot_id,
    card_memory_mib,
    host_temperature_c,
    machine_name,
    nvidia_cards,
    virtual_cards,
)
from scheduler.agent.memory import KnownCard, Memory
from scheduler.agent.observe import Settings, collect
from scheduler.agent.spool import Spool
from tests.scheduler.agent.conftest import Machine, Portal, h100

KNOWN = KnownCard("GPU-old", 0, None, "0000:3b:00.0", "NVIDIA H100 80GB HBM3", 81559)


@pytest.mark.parametrize("state", [{"init": 9}, {"init": 12}, {}], ids=["no driver", "no library", "no card"])
def test_without_nvidia_cards_virtual_ones_are_reported_and_labelled(
    machine: Machine, state: dict[str, object]
) -> None:
    machine.set(**state)
    report = machine.print("--virtual-cards", "2", "--virtual-memory-mib", "512")
    assert report["virtual"] is True
    assert [(card["slot"], card["model"], card["memory_mib"]) for card in report["cards"]] == [
        (0, "virtual-cpu", 512),
        (1, "virtual-cpu", 512),
    ]
    assert {card["power_mw"] for card in report["cards"]} == {None}


def test_virtual_cards_keep_their_names(machine: Machine) -> None:
    names = [[card["uuid"] for card in machine.print("--virtual-cards", "3")["cards"]] for _ in range(2)]
    assert names[0] == names[1]
    assert len(set(names[0])) == 3
    assert all(name.startswith("VIRT-") for name in names[0])


def test_no_virtual_cards_may_be_asked_for(machine: Machine) -> None:
    report = machine.print("--virtual-cards", "0")
    assert (report["cards"], report["virtual"]) == ([], False)


def test_real_cards_are_never_joined_by_virtual_ones(machine: Machine) -> None:
    machine.set(h100(0))
    report = machine.print("--virtual-cards", "4")
    assert (report["virtual"], len(report["cards"])) == (False, 1)


def test_real_cards_whose_driver_goes_away_are_lost_not_replaced(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0))
    assert machine.once(portal.url, "--virtual-cards", "4").returncode == 0
    machine.set(init=9)
    assert machine.once(portal.url, "--virtual-cards", "4").returncode == 0
    report = portal.accepted[-1]
    assert report["virtual"] is False
    assert [(card["lost"], card["error"]) for card in report["cards"]] == [(True, "NVML: Driver Not Loaded")]
    assert [fault["kind"] for fault in report["faults"]] == ["lost"]


def test_cards_of_an_earlier_boot_are_not_claimed_and_not_replaced(machine: Machine, portal: Portal) -> None:
    spool = Spool(machine.spool, "boot-before")
    spool.record((), Memory("boot-before", cards=(KNOWN,), cards_boot_id="boot-before"))
    spool.close()
    assert machine.once(portal.url, "--virtual-cards", "4").returncode == 0
    report = portal.accepted[-1]
    assert (report["cards"], report["virtual"], report["faults"]) == ([], False, [])


def test_by_default_hardware_without_a_driver_gets_no_virtual_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe.Nvml, "read", _absent)
    for hardware, count in ((2, 0), (0, 4), (None, 4)):
        monkeypatch.setattr(observe, "nvidia_cards", lambda hardware=hardware: hardware)
        assert len(collect(Settings("n001", kernel_log="/dev/null"))["cards"]) == count


def _absent(*_: object) -> observe.Sample:
    raise observe.NvmlAbsent("no driver")


def test_nvidia_cards_are_counted_by_vendor_and_class_unless_given_away(tmp_path: Path) -> None:
    devices = {
        "0000:00:01.0": ("0x8086", "0x030000", None),  # another maker's display
        "0000:3b:00.1": ("0x10de", "0x040300", None),  # only the sound of an NVIDIA card
        "0000:3b:00.0": ("0x10de", "0x030200", "nvidia"),
        "0000:3c:00.0": ("0x10de", "0x030000", None),  # without a driver
        "0000:3d:00.0": ("0x10de", "0x030200", "vfio-pci"),  # a virtual machine has it
    }
    for name, (vendor, device_class, driver) in devices.items():
        folder = tmp_path / "devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(device_class + "\n")
        if driver:
            (folder / "driver").symlink_to(tmp_path / "drivers" / driver)
    assert nvidia_cards(str(tmp_path / "devices")) == 2
    assert nvidia_cards(str(tmp_path / "nowhere")) is None


def test_a_virtual_card_is_as_hot_as_the_hottest_sensor_of_its_host(tmp_path: Path) -> None:
    assert host_temperature_c(str(tmp_path)) is None
    for number, text in enumerate(("41900", "67000", "-300000", "hot", "999999")):
        zone = tmp_path / f"thermal_zone{number}"
        zone.mkdir()
        (zone / "temp").write_text(text + "\n")
    assert host_temperature_c(str(tmp_path)) == 67


@pytest.mark.parametrize(
    ("host", "count", "each"), [(24105, 4, 2816), (24105, 1, 12032), (1000, 1, 256), (1000, 4, 125), (10, 64, 1)]
)
def test_virtual_memory_is_half_the_host_shared_out(host: int, count: int, each: int) -> None:
    assert card_memory_mib(host, count) == each


def test_the_default_size_comes_from_this_host() -> None:
    cards = virtual_cards("n001", 4, None)
    assert len({card.memory_mib for card in cards}) == 1
    assert all(card.memory_mib for card in cards)


def test_the_host_name_names_a_machine_without_a_machine_id(tmp_path: Path) -> None:
    assert machine_name("n001", str(tmp_path / "missing")) == "n001"
    (tmp_path / "empty").write_text("\n")
    assert machine_name("n001", str(tmp_path / "empty")) == "n001"
    (tmp_path / "id").write_text("0123456789abcdef\n")
    assert machine_name("n001", str(tmp_path / "id")) == "0123456789abcdef"


def test_the_boot_id_is_the_kernels() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
