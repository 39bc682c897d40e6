"""What a placement is like, in a short name: placements of equal name are fit to be compared, and where the names
differ the parts say in what. Names of nodes and cards don't count, only what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

from ledger.vocabulary import Form, Span
from scheduler.engine.hardware import Hardware, hardware_of, short_code
from scheduler.engine.topology import span_of
from scheduler.engine.types import Likeness, MemberPlan, NodeView

Member = tuple[Hardware, tuple[int, ...]]  # the node's class, and the numbers of the cards given, by slot
Parts = Mapping[str, Any]  # as JSON: see _print
PRINTS_KEPT: Final = 4_096


class Difference(StrEnum):
    """In what two placements can differ."""

    FORM = "form"
    NODES = "nodes"
    SPAN = "span"
    HARDWARE = "hardware"
    CARDS = "cards"
    COMPANY = "company"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    code: str
    parts: Parts


def fingerprint(members: Iterable[tuple[NodeView, MemberPlan]], shared: bool) -> Fingerprint:
    """Of one placement. `shared`: other work was on one of its nodes when it was placed."""
    form, given, views = Form.CONTAINER, [], []
    for view, member in members:
        form = member.form
        given.append((hardware_of(view), _numbers(view, member)))
        views.append(view)
    if len(given) > 1:
        given.sort(key=lambda member: (member[0].code, member[1]))
    return _print(form, tuple(given), span_of(views), shared)


def _numbers(view: NodeView, member: MemberPlan) -> tuple[int, ...]:
    """Of the cards given, as they are counted in Hardware."""
    if len(member.shares) == len(view.cards):
        return tuple(range(len(view.cards)))
    cards = {share.card_id for share in member.shares}
    slots = sorted([(card.slot, card.id) for card in view.cards])
    return tuple([n for n, (_, card_id) in enumerate(slots) if card_id in cards]) if cards else ()


@lru_cache(maxsize=PRINTS_KEPT)
def _print(form: Form, members: tuple[Member, ...], span: Span, shared: bool) -> Fingerprint:
    described = Counter(_Given.of(hardware, numbers) for hardware, numbers in members)
    parts = {
        "form": str(form),
        "nodes": len(members),
        "span": str(span),
        "shared": shared,
        "members": [
            {"nodes": count, **member.told()}
            for member, count in sorted(described.items(), key=lambda item: item[0].order)
        ],
    }
    return Fingerprint(short_code(parts), parts)


@dataclass(frozen=True, slots=True)
class _Given:
    """The node of one member, and what of its cards was given: how many of which, and how they are joined."""

    hardware: Hardware
    cards: tuple[tuple[str, int, int], ...]  # model, MiB, how many
    links: tuple[tuple[int, int], ...]  # Gbit/s, between how many pairs of them

    @classmethod
    def of(cls, hardware: Hardware, numbers: tuple[int, ...]) -> _Given:
        gbps = {(a, b): speed for a, b, speed in hardware.links}
        links = Counter(gbps.get(pair, 0) for pair in combinations(numbers, 2))
        return cls(hardware, _counted(hardware.cards[n] for n in numbers), tuple(sorted(links.items())))

    @property
    def order(self) -> tuple[object, ...]:
        return self.hardware.code, self.cards, self.links

    def told(self) -> dict[str, Any]:
        node = self.hardware
        return {
            "hardware": node.code,
            "node_cards": [list(card) for card in _counted(node.cards)],
            "interconnect": str(node.interconnect),
            "cpu_milli": node.cpu_milli,
            "host_memory_mib": node.host_memory_mib,
            "cards": [list(card) for card in self.cards],
            "links": [list(link) for link in self.links],
        }


def _counted(cards: Iterable[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    return tuple((model, memory, count) for (model, memory), count in sorted(Counter(cards).items()))


def differences(one: Parts, other: Parts) -> list[Difference]:
    """In what two placements differ; nothing when they are of one class."""
    pairs = {
        Difference.FORM: "form",
        Difference.NODES: "nodes",
        Difference.SPAN: "span",
        Difference.COMPANY: "shared",
    }
    found = {difference for difference, name in pairs.items() if one[name] != other[name]}
    alike = {Difference.HARDWARE: ("hardware",), Difference.CARDS: ("cards", "links")}
    found |= {difference for difference, names in alike.items() if _kinds(one, names) != _kinds(other, names)}
    return [difference for difference in Difference if difference in found]


def _kinds(parts: Parts, names: Sequence[str]) -> dict[str, float]:
    """Which kinds of members there are, and each kind's part of them."""
    kinds: Counter[str] = Counter()
    for member in parts["members"]:
        kinds[repr([member[name] for name in names])] += member["nodes"]
    return {kind: count / parts["nodes"] for kind, count in kinds.items()}


def likeness(parts: Parts) -> Likeness | None:
    """What another placement must have to be like this one; None where its nodes are of several classes."""
    codes = {member["hardware"] for member in parts["members"]}
    return Likeness(codes.pop(), parts["nodes"], Span(parts["span"])) if len(codes) == 1 else None
