"""A small world for tests that write past the book: a project, two nodes, and ids of what to take on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.models import CardSeat, Node, Project
from tests import factories
from tests.ledger.raw import allocation, attempt, job, one, share


@dataclass
class World:
    """n1: four cards of 16,000 MiB in two blocks, every form; n2 the same without blocks."""

    project: Project
    n1: Node
    n2: Node
    cards: list[int]

    def job(self, **values: Any) -> int:
        return job(self.project.pk, self.project.owner_id, **values)

    def attempt(self, **values: Any) -> int:
        return attempt(self.job(**values))

    def allocation(self, node: Node | None = None, **values: Any) -> int:
        given = values.pop("attempt", None)
        return allocation(given or self.attempt(), (node or self.n1).pk, **values)

    def container(self, card: int = 0, **values: Any) -> int:
        """A container allocation with one share."""
        return share(self.allocation(), self.cards[card], **values)

    def seat(self, card: int) -> int:
        return int(one("SELECT id FROM ledger_cardseat WHERE card_id = %s AND upper_inf(period)", self.cards[card]))

    def block(self, card: int) -> int:
        return int(one("SELECT block_id FROM ledger_cardseat WHERE id = %s", self.seat(card)))


def small_world() -> World:
    project = factories.project("vision")
    n1, n2 = factories.node("n1", block=2), factories.node("n2")
    cards = list(CardSeat.objects.filter(node=n1).order_by("slot").values_list("card_id", flat=True))
    return World(project, n1, n2, cards)
