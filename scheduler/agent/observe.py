"""One look at the machine: cards or virtual cards, links, and the faults since the last look.

Decides what a missing answer means (lost, unknown, or no NVIDIA card here at all). Writes nothing and sends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scheduler.agent.kernel_log import KernelLog
from scheduler.agent.machine import DEFAULT_CARDS, boot_id, node_facts, nvidia_cards, up_s, virtual_cards
from scheduler.agent.memory import KnownCard, Memory, card_faults
from scheduler.agent.model import AGENT_VERSION, Card, Fault, Link, now_iso
from scheduler.agent.nvml import LostSlot, Nvml, NvmlAbsent, NvmlSilent, Sample
from scheduler.agent.outbox import Parcel
from scheduler.agent.processes import take_census
from scheduler.agent.storage import Storage
from scheduler.agent.virtual import VirtualUse

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """`virtual_cards` None: the default number, and none at all where NVIDIA hardware sits on the bus."""

    hostname: str
    virtual_cards: int | None = None
    virtual_memory_mib: int | None = None
    kernel_log: str = "/dev/kmsg"
    nvml_timeout_s: float = 20.0
    jobs: Path | None = None  # the local driver's members that are ours; None: those of every portal on this machine
    storage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The cards of one look, wherever they came from."""

    memory: Memory
    cards: tuple[Card, ...]
    links: tuple[Link, ...] = ()
    virtual: bool = False
    driver_version: str | None = None
    nvml_version: str | None = None
    unnamed: tuple[LostSlot, ...] = ()  # lost before anyone learned which cards they are


@dataclass(frozen=True, slots=True)
class Observation:
    """`body` is the report without sequence, time and faults. `memory` holds once the faults are durable."""

    body: dict[str, Any]
    faults: tuple[Fault, ...]
    memory: Memory


class Observer:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._nvml = Nvml()
        self._kernel_log = KernelLog(settings.kernel_log)
        self._virtual_use = VirtualUse(settings.jobs)
        self._storage = Storage(settings.storage)
        self._said = ""

    def observe(self, memory: Memory) -> Observation:
        memory = memory.in_boot(boot_id())
        at = now_iso()
        seen = self._cards(memory)
        memory, faults = card_faults(seen.memory, seen.cards, at, up_s())
        memory, unnamed = _unnamed_faults(memory, seen.unnamed, at)
        memory, xids = self._xids(memory, seen)
        return Observation(self._body(memory, seen), (*faults, *unnamed, *xids), memory)

    def forget(self) -> None:
        """The faults of the last look could not be kept: read the kernel log from the beginning again."""
        self._kernel_log.rewind()

    def _body(self, memory: Memory, seen: Seen) -> dict[str, Any]:
        return {
            "hostname": self._settings.hostname,
            "boot_id": memory.boot_id,
            "agent_version": AGENT_VERSION,
            "virtual": seen.virtual,
            "node": {**node_facts(seen.driver_version, seen.nvml_version), "storage": self._storage.look()},
            "cards": [asdict(card) for card in seen.cards],
            "links": [asdict(link) for link in seen.links],
        }

    def _cards(self, memory: Memory) -> Seen:
        try:
            sample = self._nvml.read(self._settings.nvml_timeout_s)
        except NvmlSilent as silent:
            self._say_once(str(silent))
            return Seen(memory, _remembered(memory, lost=False, error=str(silent)))
        except NvmlAbsent as absent:
            return self._without_nvml(memory, str(absent))
        self._said = ""
        return _with_missing(memory, replace(sample, cards=self._with_names(sample.cards)))

    def _with_names(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """NVML gives numbers; whose they are says /proc."""
        if not any(card.processes for card in cards):
            return cards
        census = take_census()
        return tuple(
            card if card.processes is None else replace(card, processes=tuple(map(census.named, card.processes)))
            for card in cards
        )

    def _without_nvml(self, memory: Memory, reason: str) -> Seen:
        """Where real cards were ever seen or sit on the bus, none may be replaced by virtual ones."""
        settings = self._settings
        if memory.cards:
            self._say_once(f"{reason}; the spool remembers NVIDIA cards here, so no virtual ones are reported")
            return Seen(memory, _remembered(memory, lost=True, error=reason))
        if settings.virtual_cards is None and nvidia_cards():
            self._say_once(f"{reason}; NVIDIA hardware is on the bus: load its driver, or give --virtual-cards")
            return Seen(memory, ())
        count = DEFAULT_CARDS if settings.virtual_cards is None else settings.virtual_cards
        self._say_once(f"{reason}; reporting {count} virtual cards")
        cards = virtual_cards(settings.hostname, count, settings.virtual_memory_mib)
        return Seen(memory, self._virtual_use.read(cards), virtual=bool(cards))

    def _xids(self, memory: Memory, seen: Seen) -> tuple[Memory, list[Fault]]:
        reading = self._kernel_log.read(memory.log_sequence)
        names = {**reading.uuids, **{card.pci: card.uuid for card in seen.cards if card.pci}}
        faults = [
            Fault(
                id=f"{memory.boot_id}:kmsg:{xid.sequence}",
                kind="xid",
                code=xid.code,
                card_uuid=names.get(xid.pci or ""),
                pci=xid.pci,
                at=xid.at,
                message=xid.message,
            )
            for xid in reading.xids
        ]
        return replace(memory, log_sequence=reading.last), faults

    def _say_once(self, message: str) -> None:
        if message != self._said:
            self._said = message
            logger.warning("%s", message)


def _remembered(memory: Memory, *, lost: bool, error: str) -> tuple[Card, ...]:
    """Cards seen in an earlier boot may have been moved since, so only those of this one are claimed."""
    return tuple(card.as_card(lost=lost, error=error) for card in memory.cards_of_this_boot)


def _with_missing(memory: Memory, sample: Sample) -> Seen:
    """Cards seen earlier in this boot and not named now are lost, whether or not NVML still lists their index; but one
    whose index says that it needs a reset is there."""
    named = {card.uuid for card in sample.cards}
    slots = {lost.slot: lost for lost in sample.lost_slots}
    known = {card.uuid: card for card in memory.cards_of_this_boot}
    missing = [card for card in known.values() if card.uuid not in named]
    read = (_filled(card, known[card.uuid]) if card.uuid in known else card for card in sample.cards)
    gone = tuple(_gone(card, slots.get(card.slot)) for card in missing)
    cards = tuple(sorted((*read, *gone), key=lambda card: (card.slot, card.uuid)))
    return Seen(
        memory=memory.with_cards(cards) if cards else memory,
        cards=cards,
        links=sample.links,
        driver_version=sample.driver_version,
        nvml_version=sample.nvml_version,
        unnamed=sample.lost_slots[len(missing) :],
    )


def _gone(card: KnownCard, slot: LostSlot | None) -> Card:
    if slot is None:
        return card.as_card(lost=True, error="no longer listed by NVML")
    return card.as_card(lost=not slot.reset_required, error=slot.error, reset_required=slot.reset_required)


def _filled(card: Card, known: KnownCard) -> Card:
    """What a card is does not change within a boot: a failing one that can't say it any more keeps it."""
    return replace(
        card,
        serial=card.serial or known.serial,
        pci=card.pci or known.pci,
        model=known.model if card.lost else card.model,
        memory_mib=known.memory_mib if card.memory_mib is None else card.memory_mib,
    )


def _unnamed_faults(memory: Memory, slots: tuple[LostSlot, ...], at: str) -> tuple[Memory, list[Fault]]:
    """One that needs a reset is not lost: it is missing among the cards on the bus."""
    faults = []
    for lost in slots:
        if lost.reset_required:
            continue
        memory, number = memory.rise(f"slot-{lost.slot}:lost", 1)
        if number is not None:
            name = f"{memory.boot_id}:nvml:slot-{lost.slot}:lost:{number}"
            faults.append(Fault(name, "lost", None, None, None, at, f"NVML index {lost.slot}: {lost.error}"))
    return memory, faults


def collect(settings: Settings) -> dict[str, Any]:
    """One whole report of this machine, remembered and sent nowhere: its sequence is 0."""
    observation = Observer(settings).observe(Memory(boot_id=boot_id()))
    return complete(observation.body, sequence=0, sent_at=now_iso(), parcel=Parcel(faults=observation.faults))


def complete(body: Mapping[str, Any], *, sequence: int, sent_at: str, parcel: Parcel) -> dict[str, Any]:
    return {
        **body,
        "sequence": sequence,
        "sent_at": sent_at,
        "faults": [asdict(fault) for fault in parcel.faults],
        "results": [asdict(result) for result in parcel.results],
        "earlier": list(parcel.earlier),
    }
