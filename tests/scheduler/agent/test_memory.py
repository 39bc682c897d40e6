"""Events from states: what counts as a new fault."""

from __future__ import annotations

import pytest

from scheduler.agent.memory import TREND_EVERY_S, Level, Memory, card_faults
from scheduler.agent.model import Card, Ecc, pci_address, plain

AT = "2026-01-01T00:00:00+00:00"


def card(*, errors: int | None = 0, lost: bool = False, corrected: int | None = None, links: int | None = None) -> Card:
    ecc = Ecc(volatile_uncorrected=errors, volatile_corrected=corrected)
    return Card("GPU-a", 0, None, None, "H100", 81559, ecc=ecc, lost=lost, nvlink_errors=links)


def test_each_rise_of_a_counter_is_one_fault_and_a_reset_is_none() -> None:
    memory = Memory("boot-1")
    numbers = []
    for errors in (0, 2, 2, None, 5, 0, 0, 5):
        memory, faults = card_faults(memory, [card(errors=errors)], AT)
        numbers.append([fault.id.rsplit(":", 1)[1] for fault in faults])
    assert numbers == [[], ["1"], [], [], ["2"], [], [], ["3"]]


@pytest.mark.parametrize("kind", ["correctable", "nvlink"])
def test_a_counter_that_goes_on_rising_is_one_fault_an_hour(kind: str) -> None:
    memory, found = Memory("boot-1"), []
    name = {"correctable": "corrected", "nvlink": "links"}[kind]
    half = TREND_EVERY_S // 2
    for number, value in enumerate((7, 7, 8, 9, 10, 11, None, 0, 0, 2)):
        memory, faults = card_faults(memory, [card(**{name: value})], AT, up_s=100 + half * number)
        found.append([fault.id.split(":nvml:")[1] for fault in faults])
    first, second, third = (f"GPU-a:{kind}:{n}" for n in (1, 2, 3))
    #        7   7   8        9   10        11  None 0   0   2: after a reset it counts from there
    assert found == [[], [], [first], [], [second], [], [], [], [], [third]]


def test_a_slow_rise_makes_the_agent_write_only_when_it_is_a_fault() -> None:
    memory, _ = card_faults(Memory("boot-1"), [card(corrected=0)], AT, up_s=0)
    memory, _ = card_faults(memory, [card(corrected=1)], AT, up_s=10)
    later, faults = card_faults(memory, [card(corrected=900)], AT, up_s=20)
    assert (faults, memory.needs_saving(later)) == ([], False)


def test_the_memory_of_an_older_agent_is_read() -> None:
    stored = Memory("boot-1", 5, {"GPU-a:ecc": Level(3, 1)}).as_json()
    del stored["levels"]["GPU-a:ecc"]["up_s"]
    assert Memory.from_json(stored).levels == {"GPU-a:ecc": Level(3, 1)}


def test_a_reboot_starts_counting_anew_and_keeps_the_cards() -> None:
    memory, _ = card_faults(Memory("boot-1", 40).with_cards([card()]), [card(errors=4, lost=True)], AT)
    assert memory.cards_of_this_boot
    after = memory.in_boot("boot-2")
    assert (after.log_sequence, after.levels, after.cards_of_this_boot) == (-1, {}, ())
    assert after.cards == memory.cards
    _, faults = card_faults(after, [card(errors=4)], AT)
    assert [fault.id for fault in faults] == ["boot-2:nvml:GPU-a:ecc:1"]


def test_only_reading_on_in_the_log_needs_no_saving() -> None:
    memory = Memory("boot-1", 5)
    assert not memory.needs_saving(Memory("boot-1", 90))
    assert memory.needs_saving(Memory("boot-1", 5, {"GPU-a:lost": Level(1, 1)}))
    assert memory.needs_saving(memory.with_cards([card()]))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("10000:AF:1f.3", "10000:af:1f.3"),
        ("3b:00", None),
        ("", None),
        ("x:y:z", None),
    ],
)
def test_pci_addresses_of_all_sources_are_written_one_way(text: str, address: str | None) -> None:
    assert pci_address(text) == address


def test_messages_become_one_short_printable_line() -> None:
    assert plain("a\nb\x1b[31m\0" + "x" * 1000) == "a b [31m " + "x" * 491
