"""What is near what: cards inside a node by their links, nodes of a gang by leaf, rack, room and site.

Knows distances only; what is free and what it is worth is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from ledger.vocabulary import Span
from scheduler.engine.types import CardView, NodeView

Link = tuple[int, int, int]  # card id, card id, Gbit/s
Group = frozenset[int]
GROUPINGS_TRIED: Final = 5_000
LEVELS: Final = ("leaf", "rack", "room", "site")  # nearest first


class CardTopology:
    """Cards are named by their column (0 … in slot order). `groups` are the sets that belong together: the blocks of
    a node that is cut, else the cards that its strongest links join. `best` is the strongest link, at least 1."""

    def __init__(self, cards: Sequence[CardView], links: Sequence[Link]) -> None:
        column_of = {card.id: n for n, card in enumerate(cards)}
        size = len(cards)
        self.gbps: list[list[int]] = [[0] * size for _ in range(size)]
        for a, b, gbps in links:
            if a in column_of and b in column_of and a != b:
                i, j = column_of[a], column_of[b]
                self.gbps[i][j] = self.gbps[j][i] = max(self.gbps[i][j], gbps)
        self.best = max((max(row) for row in self.gbps), default=0) or 1
        self.blocks: dict[int, Group] = {
            block: frozenset(n for n, card in enumerate(cards) if card.block_id == block)
            for block in sorted({card.block_id for card in cards if card.block_id is not None})
        }
        self.groups = self._groups()
        self.group_of = {column: group for group in self.groups for column in group}

    def _groups(self) -> tuple[Group, ...]:
        if self.blocks:
            return tuple(self.blocks.values())
        left = set(range(len(self.gbps)))
        out: list[Group] = []
        while left:
            edge = [min(left)]
            seen = set(edge)
            while edge:
                at = edge.pop()
                near = {n for n in left - seen if self.gbps[at][n] == self.best}
                seen |= near
                edge.extend(near)
            left -= seen
            out.append(frozenset(seen))
        return tuple(out)

    def closeness(self, columns: Sequence[int]) -> float:
        """Mean bandwidth between the cards, 1 = every pair has the node's strongest link."""
        pairs = len(columns) * (len(columns) - 1) // 2
        if pairs == 0:
            return 1.0
        return sum(self.gbps[a][b] for a, b in combinations(columns, 2)) / (pairs * self.best)


def aligned_blocks(cards: Sequence[CardView], links: Sequence[Link], size: int) -> tuple[tuple[int, ...], ...]:
    """Cut a node's cards into blocks of `size` so that strong links stay inside blocks; card ids, block by block.

    For whoever cuts a node (the engine itself only places onto blocks that exist). Card by card in slot order, each
    block takes the best-connected partners that are left. Empty when the number of cards isn't a multiple of `size`.
    """
    if size < 1 or not cards or len(cards) % size:
        return ()
    ordered = sorted(cards, key=lambda card: (card.slot, card.id))
    topology = CardTopology(ordered, links)
    left = list(range(len(ordered)))
    out: list[tuple[int, ...]] = []
    while left:
        block = _best_connected(topology, left[0], left[1:], size)
        left = [n for n in left if n not in block]
        out.append(tuple(ordered[n].id for n in block))
    return tuple(out)


def _best_connected(topology: CardTopology, first: int, others: list[int], size: int) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    best_closeness = -1.0
    for tried, partners in enumerate(combinations(others, size - 1)):
        block = (first, *partners)
        closeness = topology.closeness(block)
        if closeness > best_closeness:
            best, best_closeness = block, closeness
        if tried >= GROUPINGS_TRIED:
            break
    return best


def place_keys(node: NodeView) -> tuple[tuple[str, ...], ...]:
    """By LEVELS; a name counts within its room, because racks and leaves are numbered anew in every room."""
    return (
        ("leaf", node.site, node.room, node.leaf),
        ("rack", node.site, node.room, node.rack),
        ("room", node.site, node.room),
        ("site", node.site),
    )


def span_of(views: Sequence[NodeView]) -> Span:
    """The nearest level that all these nodes share; a place that isn't known is shared by nobody."""
    if len(views) == 1:
        return Span.NODE
    for level, *keys in zip(LEVELS, *(place_keys(view) for view in views), strict=True):
        if keys[0][-1] and all(key == keys[0] for key in keys):
            return Span(level)
    return Span.APART
