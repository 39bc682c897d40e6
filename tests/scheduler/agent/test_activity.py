"""Readings that are differences between two looks, and cards that a reset may bring back."""

from __future__ import annotations

from tests.scheduler.agent.conftest import Machine, Portal, h100, until

GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
GPU1 = "GPU-00000001-1111-2222-3333-444444444444"


def test_tensor_activity_is_what_happened_between_two_looks(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0, tensor=1000), h100(1), h100(2, tensor=0, mig=1))
    machine.start(portal.url)
    until(lambda: len(portal.accepted) >= 2, "two looks")
    machine.set(h100(0, tensor=1037), h100(1), h100(2, tensor=50, mig=1))
    seen = until(lambda: [c for c in _tensor(portal, 0) if c], "tensor activity")
    assert _tensor(portal, 0)[0] is None  # at the first look there is nothing to compare with
    assert seen[0] == 37
    until(lambda: _tensor(portal, 0)[-1] == 0, "a quiet time after it")
    assert set(_tensor(portal, 1)) == set(_tensor(portal, 2)) == {None}


def _tensor(portal: Portal, slot: int) -> list[int | None]:
    return [report["cards"][slot]["tensor_pct"] for report in list(portal.accepted)]


def test_an_impossible_tensor_activity_is_unknown(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0, tensor=0))
    machine.start(portal.url)
    until(lambda: len(portal.accepted) >= 2, "two looks")
    machine.set(h100(0, tensor=5000))
    count = len(portal.accepted)
    until(lambda: len(portal.accepted) > count + 2, "more looks")
    assert set(_tensor(portal, 0)) <= {None, 0}


def test_a_card_that_needs_a_reset_is_neither_hidden_nor_lost(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0), h100(1))
    assert machine.once(portal.url).returncode == 0
    machine.set(h100(0), h100(1, open="!16"))
    assert machine.once(portal.url).returncode == 0
    told = {card["uuid"]: card for card in portal.accepted[-1]["cards"]}
    card = told[GPU1]
    assert (card["reset_required"], card["lost"], card["temperature_c"], card["memory_mib"]) == (
        True,
        False,
        None,
        81559,
    )
    assert (told[GPU0]["reset_required"], told[GPU0]["temperature_c"]) == (False, 41)
    assert portal.faults() == {}


def test_an_unknown_card_that_needs_a_reset_is_not_called_lost(machine: Machine) -> None:
    machine.set(h100(0), h100(1, uuid="!16"))
    report = machine.print()
    assert ([card["uuid"] for card in report["cards"]], report["faults"]) == ([GPU0], [])


def test_rising_link_errors_are_one_fault_with_a_stable_id(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0, nvlink_errors=10))
    agent = machine.start(portal.url)
    until(lambda: portal.accepted, "a first look, whose counters are where it starts")
    for errors in (11, 12, 19):
        machine.set(h100(0, nvlink_errors=errors))
        count = len(portal.accepted)
        until(lambda count=count: len(portal.accepted) > count + 1, "more looks")
    machine.stop(agent)
    assert machine.once(portal.url).returncode == 0
    (fault,) = portal.faults().values()
    assert (fault["kind"], fault["card_uuid"], fault["code"]) == ("nvlink", GPU0, None)
    assert fault["id"].endswith(f":nvml:{GPU0}:nvlink:1")
