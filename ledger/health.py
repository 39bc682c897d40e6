"""What is to be done about a fault, by the site's health policy, in the transaction that counts it."""

from __future__ import annotations

import datetime as dt

from ledger.models import Card, Fault, Node


def respond(*, node: Node, card: Card | None, fault: Fault, now: dt.datetime) -> None:
    """`fault` was just counted on this card, or on the node itself. The caller holds the node's lock."""
