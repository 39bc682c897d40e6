"""Two nodes that differ in one thing only, and the one that must be chosen: by the rule of terms, each of its terms by
itself; by prices the same, except that a piece of a large card may cost others less than one of a small card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.vocabulary import Form, Interconnect
from scheduler.engine.plan import plan
from scheduler.engine.score import LEAST_LOSS, RULES
from scheduler.engine.types import JobView, NodeView
from tests.scheduler.engine.fleets import blocks_node, card, container, job, node, snapshot, whole


def zone(*forms: Form) -> dict[str, Any]:
    return {"zone_forms": frozenset(forms)}


PACK = "pack-keep-whole/2"
C, B, W = Form.CONTAINER, Form.BLOCK, Form.WHOLE
IN_USE: dict[str, Any] = {"used_form": C, "allocations": 1, **zone(C)}
FULL, HALF = ((0, 16),), ((0, 8),)

CASES: dict[str, tuple[JobView, NodeView, NodeView]] = {
    "keep_whole": (job(1), node(1, **zone(C, B)), node(2, **zone(C, W))),
    "spare_cards": (job(1, container(0)), node(1, 1, **zone(C)), node(2, 4, **zone(C))),
    "right_zone": (job(1, whole()), node(1, **zone(W)), node(2, **zone(C, W))),
    "keep_blocks": (job(1), node(1, **zone(C, B)), blocks_node(2, (2, 2), **zone(C, B))),
    # CPU left over is half-way between what is left of the cards of the two, so that balance says the same of both
    "pack": (
        job(1, cpu_milli=3000),
        node(1, (card(100, busy=FULL), card(101, 1)), **IN_USE),
        node(2, (card(200), card(201, 1)), **IN_USE),
    ),
    "fill_cards": (
        job(1),
        node(1, (card(100, busy=HALF),), **IN_USE),
        node(2, (card(200, 0, 8), card(201, 1, 8, busy=((0, 8),))), **IN_USE),
    ),
    "least_left": (job(1), node(1, (card(100, 0, 8),), **zone(C)), node(2, (card(200, 0, 24),), **zone(C))),
    "balance": (job(1), node(1, cpu_milli=16000, **zone(C)), node(2, cpu_milli=2000, **zone(C))),
    "links": (
        job(1),
        node(1, interconnect=Interconnect.PCIE, **zone(C)),
        node(2, interconnect=Interconnect.NVLINK, **zone(C)),
    ),
    "links of several cards": (
        job(1, container(2)),
        node(1, interconnect=Interconnect.NVLINK, **zone(C)),
        node(2, interconnect=Interconnect.PCIE, **zone(C)),
    ),
}


BY_PRICES = [name for name in CASES if name != "least_left"]


@pytest.mark.parametrize(
    ("rule", "name"), [(PACK, name) for name in CASES] + [(LEAST_LOSS, name) for name in BY_PRICES]
)
def test_the_better_node_is_chosen(rule: str, name: str) -> None:
    wanted, better, worse = CASES[name]
    for seed in range(6):
        placement = plan(snapshot([better, worse], wanted, seed=seed, rule=rule)).placements[0]
        assert placement.members[0].node_id == better.id
        assert placement.scores[0][1] > placement.scores[1][1]


def test_every_term_has_a_case() -> None:
    assert {term.__name__ for _, term in RULES[PACK]} <= set(CASES)


def test_terms_stay_between_nought_and_one() -> None:
    most = sum(weight for weight, _ in RULES[PACK])
    for wanted, better, worse in CASES.values():
        made = plan(snapshot([better, replace(worse, id=3)], wanted, rule=PACK))
        assert all(0 <= score <= most for _, score in made.placements[0].scores)
