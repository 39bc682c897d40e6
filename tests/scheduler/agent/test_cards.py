"""Cards as the real pynvml reads them from the fake library, in the report of the real agent."""

from __future__ import annotations

import subprocess

import pytest

from scheduler.agent.machine import nvidia_cards
from tests.scheduler.agent.conftest import Machine, h100

NOBODY = 4_194_400  # past the highest number that Linux gives
GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
GPU1 = "GPU-00000001-1111-2222-3333-444444444444"


def process(pid: int, memory_mib: int | None) -> dict[str, object]:
    return {"pid": pid, "memory_mib": memory_mib, "member": None, "name": None}


def test_a_card_is_reported_with_everything_nvml_tells(machine: Machine) -> None:
    machine.set(h100(0), h100(1))
    report = machine.print()
    assert report["cards"][0] == {
        "uuid": GPU0,
        "slot": 0,
        "serial": "1650000",
        "pci": "0000:3b:00.0",
        "model": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81559,
        "memory_used_mib": 1024,
        "temperature_c": 41,
        "utilisation_pct": 73,
        "tensor_pct": None,
        "memory_busy_pct": 31,
        "power_mw": 312500,
        "slowdown": [],
        "nvlink_errors": None,
        "reset_required": False,
        "ecc": {
            "volatile_uncorrected": 0,
            "volatile_corrected": 5,
            "aggregate_uncorrected": 7,
            "remapped_pending": False,
            "remapped_failure": False,
            "remapped_correctable": 2,
            "remapped_uncorrectable": 1,
        },
        "mig": {"enabled": False, "devices": []},
        "processes": [process(NOBODY, None), process(NOBODY + 1, 1024)],
        "lost": False,
        "error": None,
    }
    assert [card["uuid"] for card in report["cards"]] == [GPU0, GPU1]


def test_the_head_of_a_report_names_the_machine(machine: Machine) -> None:
    machine.set(h100(0))
    report = machine.print()
    assert (report["hostname"], report["virtual"], report["sequence"]) == ("n001", False, 0)
    assert len(report["boot_id"]) == 36
    assert (report["node"]["driver_version"], report["node"]["nvml_version"]) == ("570.86.15", "12.570.86.15")
    assert report["node"]["cpu_milli"] >= 1000
    assert report["node"]["host_memory_mib"] > 0
    assert (report["links"], report["faults"]) == ([], [])


def test_what_a_card_does_not_support_is_null_and_not_zero(machine: Machine) -> None:
    machine.set({"0.uuid": GPU0, "0.total": 1 << 30, "0.used": 0})
    card = machine.print()["cards"][0]
    nothing = ("serial", "pci", "temperature_c", "utilisation_pct", "power_mw", "processes", "error")
    nothing += ("tensor_pct", "memory_busy_pct", "slowdown", "nvlink_errors")
    assert {key: card[key] for key in nothing} == dict.fromkeys(nothing)
    assert set(card["ecc"].values()) == {None}
    assert card["mig"] == {"enabled": None, "devices": []}
    assert (card["memory_mib"], card["memory_used_mib"], card["lost"]) == (1024, 0, False)


def test_memory_that_is_not_supported_is_null(machine: Machine) -> None:
    machine.set(h100(0, total=None))
    assert machine.print()["cards"][0]["memory_mib"] is None


def test_trouble_with_one_value_is_named_and_leaves_the_others(machine: Machine) -> None:
    machine.set(h100(0, temperature="!16"))
    card = machine.print()["cards"][0]
    assert "GPU requires restart" in card["error"]
    assert (card["temperature_c"], card["power_mw"], card["lost"]) == (None, 312500, False)
    assert card["reset_required"] is True  # 16 is that very error
    machine.set(h100(0, temperature="!999"))
    card = machine.print()["cards"][0]
    assert (card["reset_required"], bool(card["error"])) == (False, True)


def test_ecc_errors_are_one_fault_with_a_stable_id(machine: Machine) -> None:
    machine.set(h100(0, ecc_volatile=3, remap_pending=1, remap_failure=1))
    first, second = machine.print(), machine.print()
    ecc = first["cards"][0]["ecc"]
    assert (ecc["volatile_uncorrected"], ecc["remapped_pending"], ecc["remapped_failure"]) == (3, True, True)
    (fault,) = first["faults"]
    assert (fault["kind"], fault["code"], fault["card_uuid"], fault["pci"]) == ("ecc", None, GPU0, "0000:3b:00.0")
    assert fault["id"] == second["faults"][0]["id"] == f"{first['boot_id']}:nvml:{GPU0}:ecc:1"


def test_mig_devices_are_listed_with_memory_and_profile(machine: Machine) -> None:
    layout = {
        "0.mig0.uuid": "MIG-aaaa",
        "0.mig0.name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "0.mig0.total": 40448 << 20,
        "0.mig0.used": 0,
        "0.mig2.uuid": "MIG-bbbb",
        "0.mig2.name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "0.mig2.total": 9856 << 20,
        "0.mig2.used": 0,
    }
    machine.set(h100(0, mig=1), count=1, **layout)
    card = machine.print()["cards"][0]
    activity = ("utilisation_pct", "memory_busy_pct", "tensor_pct")
    assert {name: card[name] for name in activity} == dict.fromkeys(activity)  # NVML tells it for the whole card only
    assert card["mig"] == {
        "enabled": True,
        "devices": [
            {"uuid": "MIG-aaaa", "memory_mib": 40448, "profile": "3g.40gb"},
            {"uuid": "MIG-bbbb", "memory_mib": 9856, "profile": "1g.10gb"},
        ],
    }


def test_processes_of_all_kinds_are_merged_by_pid(machine: Machine) -> None:
    a, b, c = NOBODY, NOBODY + 1, NOBODY + 2
    machine.set(h100(0, processes=f"{a}:{1 << 20}", mps=f"{b}:{2 << 20}", graphics=f"{a}:{1 << 20},{c}:-"))
    assert machine.print()["cards"][0]["processes"] == [process(a, 1), process(b, 2), process(c, None)]


def test_a_card_without_processes_has_an_empty_list(machine: Machine) -> None:
    machine.set(h100(0, processes=""))
    assert machine.print()["cards"][0]["processes"] == []


def test_links_name_the_nearest_path(machine: Machine) -> None:
    nvlink = {"ports": 3, "port0": "00000000:3C:00.0", "port1": "00000000:3C:00.0", "port_mbytes": 26562}
    back = {"ports": 3, "port0": "00000000:3B:00.0", "port2": "00000000:3B:00.0", "port_mbytes": 26562}
    levels = {(0, 2): 10, (0, 3): 20, (0, 4): 30, (1, 2): 40, (1, 3): 50, (1, 4): 50, (2, 3): 0, (2, 4): 30}
    machine.set(
        h100(0, **nvlink),
        h100(1, **back),
        *(h100(slot) for slot in (2, 3, 4)),
        **{f"topology.{a}.{b}": level for (a, b), level in levels.items()},
    )
    report = machine.print()
    slots = {card["uuid"]: card["slot"] for card in report["cards"]}
    found = {(slots[link["a"]], slots[link["b"]]): (link["kind"], link["gbps"]) for link in report["links"]}
    assert found == {
        (0, 1): ("nvlink", 424),  # two ports of 26,562 MB/s
        (0, 2): ("pcie_switch", None),
        (0, 3): ("pcie_switch", None),
        (0, 4): ("pcie_host", None),
        (1, 2): ("numa", None),
        (1, 3): ("system", None),
        (1, 4): ("system", None),
        (2, 3): ("pcie_switch", None),
        (2, 4): ("pcie_host", None),
    }  # nothing is known about 3 and 4, so nothing is said


@pytest.mark.parametrize(("status", "link"), [(0, ("nvlink", 637)), (5, ("numa", None))])
def test_cards_on_a_switch_are_linked_only_when_peers_may_talk(
    machine: Machine, status: int, link: tuple[str, int | None]
) -> None:
    ports: dict[str, object] = {"ports": 4, "port0": "switch", "port1": "switch", "port3": "switch"}
    ports["port_mbytes"] = 26562
    machine.set(h100(0, **ports), h100(1, **ports), **{"p2p.0.1": status, "topology.0.1": 40})
    assert [(found["kind"], found["gbps"]) for found in machine.print()["links"]] == [link]


def test_a_card_lost_while_it_is_read_leaves_the_others(machine: Machine) -> None:
    machine.set(h100(0), h100(1, temperature="!15"))
    report = machine.print()
    assert [(card["uuid"], card["lost"]) for card in report["cards"]] == [(GPU0, False), (GPU1, True)]
    (fault,) = report["faults"]
    assert (fault["kind"], fault["card_uuid"], fault["pci"]) == ("lost", GPU1, "0000:3c:00.0")


def test_a_card_nobody_ever_named_is_a_fault_without_a_uuid(machine: Machine) -> None:
    machine.set(h100(0), h100(1, open="!15"))
    report = machine.print()
    assert [card["uuid"] for card in report["cards"]] == [GPU0]
    (fault,) = report["faults"]
    assert (fault["kind"], fault["card_uuid"]) == ("lost", None)
    assert fault["message"] == "NVML index 1: GPU is lost"


def test_a_driver_that_hangs_does_not_stop_the_report(machine: Machine) -> None:
    machine.set(h100(0), hang=60)
    machine.xid(5, 119)
    report = machine.print("--nvml-timeout", "0.2")
    assert (report["virtual"], report["cards"]) == (False, [])
    assert [fault["code"] for fault in report["faults"]] == [119]


IDLE, CLOCKS, POWER_CAP, HW, SYNC, SW_HOT, HW_HOT, BRAKE, DISPLAY, BOARD = (1 << n for n in range(10))


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0, []),
        (IDLE | CLOCKS | SYNC | DISPLAY, []),
        (POWER_CAP, ["power"]),
        (HW | BRAKE, ["power"]),
        (SW_HOT, ["thermal"]),
        (HW | HW_HOT, ["thermal"]),
        (SW_HOT | POWER_CAP | IDLE, ["thermal", "power"]),
        (HW, ["other"]),
        (BOARD, ["other"]),
    ],
)
def test_what_holds_the_clocks_down_is_told_in_words(machine: Machine, mask: int, reasons: list[str]) -> None:
    machine.set(h100(0, slowdown=mask), h100(1, slowdown=None, slowdown_old=mask))  # an older driver has another name
    assert [card["slowdown"] for card in machine.print()["cards"]] == [reasons, reasons]


def test_errors_of_links_are_added_up_over_the_ports(machine: Machine) -> None:
    ports = {"ports": 2, "port0": "switch", "port1": "switch"}
    machine.set(
        h100(0, nvlink_errors=12, **ports),
        h100(1, port0_errors=3, port1_errors=4, **ports),  # NVLink 5 tells it by port
        h100(2, **ports),
        h100(3),
    )
    assert [card["nvlink_errors"] for card in machine.print()["cards"]] == [12, 7, None, None]


@pytest.mark.parametrize(("action", "wanted"), [(0, False), (1, True), (2, False), (4, True)])
def test_a_driver_that_asks_for_a_reset_is_heard(machine: Machine, action: int, wanted: bool) -> None:
    machine.set(h100(0, recovery=action))
    assert machine.print()["cards"][0]["reset_required"] is wanted


def test_cards_on_the_bus_are_told_beside_those_that_nvml_lists(machine: Machine) -> None:
    machine.set(h100(0))
    assert machine.print()["node"]["pci_cards"] == nvidia_cards()


def test_a_process_on_a_card_has_its_name_and_its_member(machine: Machine) -> None:
    with subprocess.Popen(["sleep", "60"], env={"GPU_COMMONS_MEMBER": "0a1b2c3d-a7"}) as sleeper:
        machine.set(h100(0, processes=f"{sleeper.pid}:{1 << 20}"))
        (found,) = machine.print()["cards"][0]["processes"]
        sleeper.kill()
    assert found == {"pid": sleeper.pid, "memory_mib": 1, "member": "0a1b2c3d-a7", "name": "sleep"}
