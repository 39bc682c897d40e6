"""What a node is as hardware, whatever stands on it: two nodes of one class are the same machine to a comparison.

Two nodes are of one class when they have the same cards (model, memory, order of slots) joined by the same links, the
same number of cores, the same host memory and the same interconnect. Names, places, zones and blocks don't count.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ledger.vocabulary import Interconnect
from scheduler.engine.topology import Link
from scheduler.engine.types import NodeView

CODE_BYTES: Final = 6
NODES_KEPT: Final = 16_384  # whose class is remembered: more than most fleets have

Seat = tuple[int, int, str, int]  # slot, card id, model, MiB


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """`cards` (model, MiB) by slot; `links` (a, b, Gbit/s) between cards numbered in that order, a < b. `code` stands
    for all the rest: the same in every process and version, and enough to compare."""

    cards: tuple[tuple[str, int], ...]
    links: tuple[Link, ...]
    cpu_milli: int
    host_memory_mib: int
    interconnect: Interconnect
    code: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hardware) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)


def hardware_of(view: NodeView) -> Hardware:
    seats = tuple([(card.slot, card.id if view.links else 0, card.model, card.memory_mib) for card in view.cards])
    return _hardware(seats, view.links, view.cpu_milli, view.host_memory_mib, view.interconnect)


@lru_cache(maxsize=NODES_KEPT)  # nodes without links share an entry by class
def _hardware(
    seats: tuple[Seat, ...], links: tuple[Link, ...], cpu_milli: int, host_memory_mib: int, interconnect: Interconnect
) -> Hardware:
    seats = tuple(sorted(seats))
    number = {card_id: n for n, (_, card_id, *_) in enumerate(seats)}
    joined: dict[tuple[int, int], int] = {}
    for one, other, gbps in links:
        if gbps and one in number and other in number:
            pair = (min(number[one], number[other]), max(number[one], number[other]))
            joined[pair] = max(joined.get(pair, 0), gbps)
    cards = tuple((model, memory) for *_, model, memory in seats)
    between = tuple(sorted((a, b, gbps) for (a, b), gbps in joined.items()))
    code = short_code([cards, between, cpu_milli, host_memory_mib, interconnect])
    return Hardware(cards, between, cpu_milli, host_memory_mib, interconnect, code)


def short_code(value: Any) -> str:
    """A short name for a value that JSON can write: equal values have equal names, others all but surely not."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=CODE_BYTES).hexdigest()
