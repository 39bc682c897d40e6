"""What the agent must remember to tell an event from a state: how far it read, what it counted, which cards it saw.

Immutable: a reading takes one memory and gives the next, and only the spool makes it durable. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scheduler.agent.model import Card, Fault


@dataclass(frozen=True, slots=True)
class KnownCard:
    """Enough of a card to name it when NVML can't any more."""

    uuid: str
    slot: int
    serial: str | None
    pci: str | None
    model: str
    memory_mib: int | None

    def as_card(self, *, lost: bool, error: str) -> Card:
        return Card(self.uuid, self.slot, self.serial, self.pci, self.model, self.memory_mib, lost=lost, error=error)


@dataclass(frozen=True, slots=True)
class Level:
    """A counter or flag as last seen, and how often it has risen in this boot: the rises number the faults."""

    value: int = 0
    rises: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one boot. `cards` may be of an earlier one (`cards_boot_id`): it says that the machine has real cards."""

    boot_id: str
    log_sequence: int = -1
    levels: Mapping[str, Level] = field(default_factory=dict)
    cards: tuple[KnownCard, ...] = ()
    cards_boot_id: str = ""

    def in_boot(self, boot_id: str) -> Memory:
        """Itself, or after a reboot a fresh one that only remembers the cards."""
        if boot_id == self.boot_id:
            return self
        return Memory(boot_id=boot_id, cards=self.cards, cards_boot_id=self.cards_boot_id)

    @property
    def cards_of_this_boot(self) -> tuple[KnownCard, ...]:
        return self.cards if self.cards_boot_id == self.boot_id else ()

    def with_cards(self, cards: Iterable[Card]) -> Memory:
        known = tuple(KnownCard(c.uuid, c.slot, c.serial, c.pci, c.model, c.memory_mib) for c in cards)
        return replace(self, cards=known, cards_boot_id=self.boot_id)

    def rise(self, key: str, value: int | None) -> tuple[Memory, int | None]:
        """Take a new value in. Gives the number of the rise if it rose; a fall is a reset and counts from there."""
        level = self.levels.get(key, Level())
        if value is None or value == level.value:
            return self, None
        rises = level.rises + (value > level.value)
        memory = replace(self, levels={**self.levels, key: Level(value, rises)})
        return memory, rises if value > level.value else None

    def needs_saving(self, newer: Memory) -> bool:
        """Reading on in a log that holds no XID loses nothing when forgotten: it is read once more."""
        return replace(self, log_sequence=newer.log_sequence) != newer

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Memory:
        """Raises KeyError, TypeError or ValueError for anything `as_json` did not write."""
        return cls(
            boot_id=str(data["boot_id"]),
            log_sequence=int(data["log_sequence"]),
            levels={str(key): Level(**level) for key, level in data["levels"].items()},
            cards=tuple(KnownCard(**card) for card in data["cards"]),
            cards_boot_id=str(data["cards_boot_id"]),
        )


def card_faults(memory: Memory, cards: Iterable[Card], at: str) -> tuple[Memory, list[Fault]]:
    """One fault each time a card gets lost or its uncorrected ECC errors rise.

    Row-remap flags are no faults: they stay up until they are dealt with, so the samples carry them safely.
    """
    faults: list[Fault] = []
    for card in cards:
        errors = card.ecc.volatile_uncorrected
        memory, number = memory.rise(f"{card.uuid}:lost", int(card.lost))
        if number is not None:
            name = f"{memory.boot_id}:nvml:{card.uuid}:lost:{number}"
            faults.append(Fault(name, "lost", None, card.uuid, card.pci, at, card.error or "GPU is lost"))
        memory, number = memory.rise(f"{card.uuid}:ecc", errors)
        if number is not None:
            name = f"{memory.boot_id}:nvml:{card.uuid}:ecc:{number}"
            message = f"volatile uncorrected ECC errors: {errors}"
            faults.append(Fault(name, "ecc", None, card.uuid, card.pci, at, message))
    return memory, faults
