"""What a request takes of every Resource, as the book will count it. Pure: no database, no clock.

One function for all of it: cards, a part of a card in MiB, a MIG profile, a block, whole machines of a class of node.
Where it is not known yet which card it will be, the least that it can take is told (`on` is None).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.mig import slice_of
from ledger.vocabulary import AskForm, Resource

CARD: Final = 1000  # milli-cards


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that are alike: how many cards each has, and of what size."""

    cards: int
    card_memory_mib: int


@dataclass(frozen=True, slots=True)
class Request:
    """Of each of `nodes` nodes. memory_mib 0 = whole cards; a whole machine takes all cards whatever is asked for."""

    form: AskForm
    nodes: int = 1
    cards_per_node: int = 1
    memory_mib: int = 0
    profile: str = ""  # of MIG, instead of memory_mib
    cpu_milli: int = 0
    host_memory_mib: int = 0
    walltime_s: int = 0


def card_milli(memory_mib: int, card_memory_mib: int) -> int:
    """A share in thousandths of its card, rounded up, as the database counts it."""
    return -(-memory_mib * CARD // card_memory_mib)


def units(request: Request, on: NodeClass | None = None) -> dict[Resource, int]:
    """What a request takes, exactly on nodes of class `on`, else at least. Every Resource is named, also with 0."""
    cards, memory_mib, milli = _cards(request, on)
    cards *= request.nodes
    return {
        Resource.CARD_MILLI: cards * milli,
        Resource.CARD_MEMORY_MIB: cards * memory_mib,
        Resource.WHOLE_NODES: request.nodes if request.form == AskForm.WHOLE else 0,
        Resource.CPU_MILLI: request.nodes * request.cpu_milli,
        Resource.HOST_MEMORY_MIB: request.nodes * request.host_memory_mib,
        Resource.CARD_MILLI_S: cards * milli * request.walltime_s,
    }


def _cards(request: Request, on: NodeClass | None) -> tuple[int, int, int]:
    """Cards of one node, and of each its MiB and thousandths."""
    whole = request.form == AskForm.WHOLE
    if on is None:
        full = whole or request.form == AskForm.BLOCK or not (request.memory_mib or request.profile)
        least = 0 if request.profile else request.memory_mib
        return max(request.cards_per_node, int(whole)), least, CARD if full else 1
    if whole or request.form == AskForm.BLOCK:
        return on.cards if whole else request.cards_per_node, on.card_memory_mib, CARD
    memory_mib = request.memory_mib or on.card_memory_mib
    if request.profile:
        memory_mib = slice_of(request.profile, on.card_memory_mib).memory_mib
    return request.cards_per_node, memory_mib, card_milli(memory_mib, on.card_memory_mib)
