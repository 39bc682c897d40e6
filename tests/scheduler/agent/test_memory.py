"""Events from states: what counts as a new fault."""

from __future__ import annotations

import pytest

from scheduler.agent.memory import Level, Memory, card_faults
from scheduler.agent.model import Card, Ecc, pci_address, plain

AT = "2026-01-01T00:00:00+00:00"


def card(*, errors: int | None = 0, lost: bool = False) -> Card:
    return Card("GPU-a", 0, None, None, "H100", 81559, ecc=Ecc(volatile_uncorrected=errors), lost=lost)


def test_each_rise_of_a_counter_is_one_fault_and_a_reset_is_none() -> None:
    memory = Memory("boot-1")
    numbers = []
    for errors in (0, 2, 2, None, 5, 0, 0, 5):
        memory, faults = card_faults(memory, [card(errors=errors)], AT)
        numbers.append([fault.id.rsplit(":", 1)[1] for fault in faults])
    assert numbers == [[], ["1"], [], [], ["2"], [], [], ["3"]]


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
