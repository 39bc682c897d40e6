"""Cards as the real pynvml reads them from the fake library, in the report of the real agent."""

from __future__ import annotations

import pytest

from tests.scheduler.agent.conftest import Machine, h100

GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
GPU1 = "GPU-00000001-1111-2222-3333-444444444444"


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
        "power_mw": 312500,
        "ecc": {
            "volatile_uncorrected": 0,
            "aggregate_uncorrected": 7,
            "remapped_pending": False,
            "remapped_failure": False,
        },
        "mig": {"enabled": False, "devices": []},
        "processes": [{"pid": 77, "memory_mib": None}, {"pid": 4242, "memory_mib": 1024}],
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


def test_ecc_errors_are_one_fault_with_a_stable_id(machine: Machine) -> None:
    machine.set(h100(0, ecc_volatile=3, remap_pending=1, remap_failure=1))
    first, second = machine.print(), machine.print()
    assert first["cards"][0]["ecc"] == {
        "volatile_uncorrected": 3,
        "aggregate_uncorrected": 7,
        "remapped_pending": True,
        "remapped_failure": True,
    }
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
    assert machine.print()["cards"][0]["mig"] == {
        "enabled": True,
        "devices": [
            {"uuid": "MIG-aaaa", "memory_mib": 40448, "profile": "3g.40gb"},
            {"uuid": "MIG-bbbb", "memory_mib": 9856, "profile": "1g.10gb"},
        ],
    }


def test_processes_of_all_kinds_are_merged_by_pid(machine: Machine) -> None:
    machine.set(h100(0, processes=f"10:{1 << 20}", mps=f"11:{2 << 20}", graphics=f"10:{1 << 20},12:-"))
    assert machine.print()["cards"][0]["processes"] == [
        {"pid": 10, "memory_mib": 1},
        {"pid": 11, "memory_mib": 2},
        {"pid": 12, "memory_mib": None},
    ]


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
