"""Classes of hardware and fingerprints of placements: what counts, what does not, and in what two placements differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.vocabulary import Form, Interconnect, Span
from scheduler.engine.fingerprint import Difference, Fingerprint, differences, fingerprint, likeness
from scheduler.engine.hardware import hardware_of
from scheduler.engine.types import Likeness, MemberPlan, NodeView, SharePlan
from tests.scheduler.engine.fleets import cards_of, node


def machine(id_: int, links: tuple[tuple[int, int, int], ...] = ((0, 1, 300), (2, 3, 300)), **more: Any) -> NodeView:
    """Four cards, joined in two pairs; links by slot."""
    cards = cards_of(id_, [16] * 4)
    return node(id_, cards, links=tuple((cards[a].id, cards[b].id, gbps) for a, b, gbps in links), **more)


def given(view: NodeView, *slots: int, form: Form = Form.CONTAINER) -> tuple[NodeView, MemberPlan]:
    shares = tuple(SharePlan(view.cards[n].id, view.cards[n].seat_id, None, ((0, 16),)) for n in slots)
    return view, MemberPlan(view.id, form, "local", 1000, 1000, shares)


def printed(*members: tuple[NodeView, MemberPlan], shared: bool = False) -> Fingerprint:
    return fingerprint(members, shared)


def test_a_class_of_hardware_does_not_depend_on_names_places_work_or_the_order_of_what_is_told() -> None:
    one = machine(1)
    other = machine(2, links=((3, 2, 300), (1, 0, 300), (0, 1, 100), (1, 2, 0)), rack="x", leaf="y", zone_id=1)
    other = replace(other, cards=other.cards[::-1], cpu_milli_used=500, used_form=Form.CONTAINER)
    assert hardware_of(one).code == hardware_of(other).code
    assert hardware_of(other).links == ((0, 1, 300), (2, 3, 300))


@pytest.mark.parametrize(
    "change",
    [
        {"links": ((0, 2, 300), (1, 3, 300))}, {"links": ()}, {"cpu_milli": 9000}, {"host_memory_mib": 9000},
        {"interconnect": Interconnect.PCIE}, {"cards": cards_of(2, [16, 16, 16])}, {"cards": cards_of(2, [16, 16, 16, 24])},
        {"cards": cards_of(2, [16] * 4, model="B")},
    ],
)  # fmt: skip
def test_every_part_of_a_class_counts(change: dict[str, Any]) -> None:
    links = {"links": change.pop("links")} if "links" in change else {}
    other = replace(machine(2, **links), **change)
    assert hardware_of(machine(1)).code != hardware_of(other).code


def test_equal_placements_have_equal_fingerprints_whatever_the_nodes_are_called() -> None:
    here = printed(given(machine(1), 0, 1), given(machine(2), 0, 1))
    there = printed(given(machine(8, site="t"), 2, 3), given(machine(9, site="t"), 0, 1))
    assert here == there
    assert (here.code, here.parts["span"]) == (there.code, "leaf")
    assert differences(here.parts, there.parts) == []


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (printed(given(machine(1), 0, 1), shared=True), [Difference.COMPANY]),
        (printed(given(machine(1), 0, 2)), [Difference.CARDS]),
        (printed(given(machine(1), 0)), [Difference.CARDS]),
        (printed(given(machine(1, cpu_milli=9000), 0, 1)), [Difference.HARDWARE]),
        (printed(given(machine(1), 0, 1, form=Form.BLOCK)), [Difference.FORM]),
        (printed(given(machine(1), 0, 1), given(machine(2), 0, 1)), [Difference.NODES, Difference.SPAN]),
    ],
)
def test_the_difference_is_named(other: Fingerprint, found: list[Difference]) -> None:
    mine = printed(given(machine(1), 0, 1))
    assert mine.code != other.code
    assert differences(mine.parts, other.parts) == found


def test_how_many_members_are_of_which_kind_counts() -> None:
    small, large = (lambda id_: given(machine(id_), 0)), (lambda id_: given(machine(id_, cpu_milli=9000), 0))
    one, other = printed(small(1), small(2), large(3)), printed(small(1), large(2), large(3))
    assert differences(one.parts, other.parts) == [Difference.HARDWARE]
    assert likeness(one.parts) is None


def test_what_has_no_cards_has_a_fingerprint_too() -> None:
    parts = printed(given(machine(1))).parts
    assert parts["members"][0]["cards"] == []
    assert likeness(parts) == Likeness(hardware_of(machine(1)).code, 1, Span.NODE)
