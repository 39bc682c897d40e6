"""What the agent must remember to tell an event from a state: how far it read, what it counted, which cards it saw.

Immutable: a reading takes one memory and gives the next, and only the spool makes it durable. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from scheduler.agent.model import Card, Fault

TREND_EVERY_S: Final = 3600  # a counter that goes on rising slowly is one fault an hour, not one a look


@dataclass(frozen=True, slots=True)
class KnownCard:
    """Enough of a card to name it when NVML can't any more."""

    uuid: str
    slot: int
    serial: str | None
    pci: str | None
    model: str
    memory_mib: int | None

    def as_card(self, *, lost: bool, error: str, reset_required: bool = False) -> Card:
        return Card(
            uuid=self.uuid,
            slot=self.slot,
            serial=self.serial,
            pci=self.pci,
            model=self.model,
            memory_mib=self.memory_mib,
            reset_required=reset_required,
            lost=lost,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class Level:
    """A counter or flag as last seen, and how often it has risen in this boot: the rises number the faults."""

    value: int = 0
    rises: int = 0
    up_s: int = 0  # of a trend: seconds since the boot when it last was a fault


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

    def rise_seldom(self, key: str, value: int | None, up_s: int) -> tuple[Memory, int | None]:
        """Like `rise` for a counter that may rise at every look: at most one rise in `TREND_EVERY_S`, and what stood
        there at the first look is none. `up_s`: seconds since the boot, so that no change of the clock matters."""
        if value is None:
            return self, None
        level = self.levels.get(key)
        if level is not None and value >= level.value:
            if value == level.value or (level.rises and up_s - level.up_s < TREND_EVERY_S):
                return self, None
            risen = Level(value, level.rises + 1, up_s)
            return replace(self, levels={**self.levels, key: risen}), risen.rises
        known = Level(value) if level is None else replace(level, value=value)
        return replace(self, levels={**self.levels, key: known}), None

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


def card_faults(memory: Memory, cards: Iterable[Card], at: str, up_s: int = 0) -> tuple[Memory, list[Fault]]:
    """One fault each time a card gets lost or its uncorrected ECC errors rise; seldom one when its corrected ECC errors
    or the errors of its links do.

    Row-remap flags and slow-downs are no faults: they stay up until they are dealt with, so the samples carry them.
    """
    faults: list[Fault] = []

    def note(card: Card, kind: str, number: int | None, message: str) -> None:
        if number is not None:
            name = f"{memory.boot_id}:nvml:{card.uuid}:{kind}:{number}"
            faults.append(Fault(name, kind, None, card.uuid, card.pci, at, message))

    for card in cards:
        memory, number = memory.rise(f"{card.uuid}:lost", int(card.lost))
        note(card, "lost", number, card.error or "GPU is lost")
        hard, soft = card.ecc.volatile_uncorrected, card.ecc.volatile_corrected
        memory, number = memory.rise(f"{card.uuid}:ecc", hard)
        note(card, "ecc", number, f"volatile uncorrected ECC errors: {hard}")
        memory, number = memory.rise_seldom(f"{card.uuid}:correctable", soft, up_s)
        note(card, "correctable", number, f"volatile corrected ECC errors: {soft}")
        memory, number = memory.rise_seldom(f"{card.uuid}:nvlink", card.nvlink_errors, up_s)
        note(card, "nvlink", number, f"NVLink errors: {card.nvlink_errors}")
    return memory, faults
