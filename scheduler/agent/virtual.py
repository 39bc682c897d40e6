"""What virtual cards are used for, read from the processes that hold them. Real readings of the host, never made up:

memory: what these processes hold, shared out over their cards as they were given; utilisation: the CPU time of the
members on the card since the last look, of the CPU time that they were given; temperature: of the host, if it tells.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scheduler.agent.machine import host_temperature_c
from scheduler.agent.model import Card, Process
from scheduler.agent.processes import TICKS_A_SECOND, Census, Member, memory_bytes, take_census

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Look:
    at: float  # monotonic seconds
    census: Census


class VirtualUse:
    """Remembers the last look, since CPU use is a difference."""

    def __init__(self, jobs: Path | None) -> None:
        self._jobs = jobs
        self._before: _Look | None = None

    def read(self, cards: Sequence[Card]) -> tuple[Card, ...]:
        look = _Look(time.monotonic(), take_census(self._jobs))
        holders = _holders(look.census, [card.uuid for card in cards])
        held = {pid: memory_bytes(pid) for pid in holders}
        temperature = host_temperature_c()
        filled = tuple(
            replace(
                _with_processes(card, look.census, holders, held),
                temperature_c=temperature,
                utilisation_pct=self._busy_pct(card.uuid, look),
            )
            for card in cards
        )
        self._before = look
        return filled

    def _busy_pct(self, uuid: str, look: _Look) -> int | None:
        """0 where no member is; None at the first look and where the processes say nothing of what they were given."""
        here = {
            pid: m for pid, m in look.census.members.items() if m.cards.get(uuid) and not look.census.is_foreign(pid)
        }
        if not here:
            return 0
        if self._before is None or look.at <= self._before.at:
            return None
        used = sum(_ticks(look.census, self._before.census, pid) * _part(m, uuid) for pid, m in here.items())
        given = sum(m.cpu_milli * _part(m, uuid) for m in {m.name: m for m in here.values()}.values())
        seconds = used / TICKS_A_SECOND
        return min(100, round(100 * seconds * 1000 / (given * (look.at - self._before.at)))) if given else None


def _part(member: Member, uuid: str) -> float:
    """The share of what a member does that counts for this one of its cards."""
    return member.cards[uuid] / sum(member.cards.values())


def _ticks(now: Census, before: Census, pid: int) -> int:
    """CPU time since the look before; all of it for a process that began since."""
    seen, earlier = now.processes[pid], before.processes.get(pid)
    same = earlier is not None and earlier.started == seen.started
    return seen.cpu_ticks - (earlier.cpu_ticks if same and earlier is not None else 0)


def _holders(census: Census, uuids: Iterable[str]) -> dict[int, Mapping[str, int]]:
    """By process: the cards that it holds, each with its weight."""
    known = set(uuids)
    found: dict[int, Mapping[str, int]] = {}
    for pid in census.processes:
        member = census.members.get(pid)
        if member is not None:
            cards = {uuid: mib for uuid, mib in member.cards.items() if uuid in known and mib}
        else:
            named = census.said(pid).get("CUDA_VISIBLE_DEVICES", "").split(",")
            cards = dict.fromkeys((uuid for uuid in named if uuid in known), 1)
        if cards and not census.is_foreign(pid):
            found[pid] = cards
    return found


def _with_processes(
    card: Card, census: Census, holders: Mapping[int, Mapping[str, int]], held: Mapping[int, int | None]
) -> Card:
    processes = []
    for pid, cards in sorted(holders.items()):
        total = held[pid]
        if card.uuid in cards and total is not None:
            part = total * cards[card.uuid] // sum(cards.values())
            processes.append(census.named(Process(pid, round(part / MIB))))
    used = sum(process.memory_mib or 0 for process in processes)
    # no card is fuller than full: what its processes hold beyond that stands in their list
    full = used if card.memory_mib is None else min(used, card.memory_mib)
    return replace(card, memory_used_mib=full, processes=tuple(processes))
