"""Any request in quota units, as a table; and that the database counts the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger import mig
from ledger.units import NodeClass, Request, units
from ledger.vocabulary import AskForm, Resource

CONTAINER, BLOCK, WHOLE, AUTO = AskForm.CONTAINER, AskForm.BLOCK, AskForm.WHOLE, AskForm.AUTO
H100, H200, A100, L4, A30 = 81_920, 143_360, 40_960, 23_034, 24_576
BIG = NodeClass(8, H100)
HOUR = 3_600
# request, class of node, and then milli-cards, MiB of cards, whole nodes, milli-cores, MiB of host, milli-card-seconds
TABLE: list[tuple[dict[str, Any], NodeClass | None, tuple[int, ...]]] = [
    ({"form": CONTAINER}, BIG, (1000, H100, 0, 0, 0, 0)),
    ({"form": CONTAINER, "cards_per_node": 4, "nodes": 2}, BIG, (8000, 8 * H100, 0, 0, 0, 0)),
    ({"form": CONTAINER, "memory_mib": H100 // 2}, BIG, (500, H100 // 2, 0, 0, 0, 0)),
    ({"form": CONTAINER, "memory_mib": 1}, BIG, (1, 1, 0, 0, 0, 0)),
    ({"form": CONTAINER, "memory_mib": H100 // 2 + 1}, BIG, (501, H100 // 2 + 1, 0, 0, 0, 0)),
    ({"form": CONTAINER, "memory_mib": 16_384, "cards_per_node": 2}, BIG, (400, 32_768, 0, 0, 0, 0)),
    ({"form": CONTAINER, "memory_mib": 16_384}, NodeClass(1, L4), (712, 16_384, 0, 0, 0, 0)),
    ({"form": CONTAINER, "memory_mib": 16_384}, None, (1, 16_384, 0, 0, 0, 0)),
    ({"form": CONTAINER}, None, (1000, 0, 0, 0, 0, 0)),
    ({"form": AUTO, "cards_per_node": 3}, None, (3000, 0, 0, 0, 0, 0)),
    ({"form": AUTO, "memory_mib": 4096}, BIG, (50, 4096, 0, 0, 0, 0)),
    ({"form": CONTAINER, "cards_per_node": 0, "cpu_milli": 500, "nodes": 3}, BIG, (0, 0, 0, 1500, 0, 0)),
    ({"form": BLOCK, "cards_per_node": 4}, BIG, (4000, 4 * H100, 0, 0, 0, 0)),
    ({"form": BLOCK, "cards_per_node": 2, "memory_mib": 1}, BIG, (2000, 2 * H100, 0, 0, 0, 0)),
    ({"form": BLOCK, "cards_per_node": 2}, None, (2000, 0, 0, 0, 0, 0)),
    ({"form": WHOLE, "cards_per_node": 0, "nodes": 2}, BIG, (16_000, 16 * H100, 2, 0, 0, 0)),
    ({"form": WHOLE, "cards_per_node": 1, "cpu_milli": 8}, NodeClass(4, H200), (4000, 4 * H200, 1, 8, 0, 0)),
    ({"form": WHOLE, "cards_per_node": 0, "nodes": 2}, None, (2000, 0, 2, 0, 0, 0)),
    ({"form": WHOLE, "cards_per_node": 8}, None, (8000, 0, 1, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.10gb"}, BIG, (125, H100 // 8, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "3g.40gb", "cards_per_node": 2}, BIG, (1000, H100, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "7g.80gb"}, BIG, (1000, H100, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.5gb"}, NodeClass(8, A100), (125, A100 // 8, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "2g.35gb"}, NodeClass(8, H200), (250, H200 // 4, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.10gb"}, NodeClass(8, A100), (250, A100 // 4, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "2g.10gb"}, NodeClass(8, A100), (250, A100 // 4, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "3g.20gb", "nodes": 2}, NodeClass(8, A100), (1000, A100, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "7g.40gb"}, NodeClass(8, A100), (1000, A100, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "4g.40gb"}, NodeClass(8, 81_559), (500, 40_779, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.10gb"}, NodeClass(8, 81_559), (125, 10_194, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.18gb", "cards_per_node": 3}, NodeClass(8, H200), (375, 3 * H200 // 8, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "4g.71gb"}, NodeClass(8, 143_771), (500, 71_885, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "7g.141gb"}, NodeClass(8, 143_771), (1000, 143_771, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "2g.12gb"}, NodeClass(2, A30), (500, A30 // 2, 0, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.20gb", "walltime_s": HOUR}, BIG, (250, H100 // 4, 0, 0, 0, 250 * HOUR)),
    ({"form": BLOCK, "profile": "1g.10gb", "cards_per_node": 2}, BIG, (2000, 2 * H100, 0, 0, 0, 0)),
    ({"form": WHOLE, "profile": "1g.10gb"}, NodeClass(4, H200), (4000, 4 * H200, 1, 0, 0, 0)),
    ({"form": CONTAINER, "profile": "1g.10gb"}, None, (1, 0, 0, 0, 0, 0)),
    ({"form": CONTAINER, "walltime_s": HOUR}, BIG, (1000, H100, 0, 0, 0, 1000 * HOUR)),
    ({"form": CONTAINER, "memory_mib": H100 // 4, "walltime_s": 10}, BIG, (250, H100 // 4, 0, 0, 0, 2500)),
    ({"form": WHOLE, "nodes": 2, "walltime_s": HOUR, "host_memory_mib": 5}, BIG, (16_000, 16 * H100, 2, 0, 10, 57_600_000)),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "on", "wanted"), TABLE)
def test_what_a_request_takes(request_: dict[str, Any], on: NodeClass | None, wanted: tuple[int, ...]) -> None:
    order = (
        Resource.CARD_MILLI,
        Resource.CARD_MEMORY_MIB,
        Resource.WHOLE_NODES,
        Resource.CPU_MILLI,
        Resource.HOST_MEMORY_MIB,
        Resource.CARD_MILLI_S,
    )
    assert units(Request(**request_), on) == dict(zip(order, wanted, strict=True))


@pytest.mark.parametrize("card", [A100, H100, 81_559, H200, 143_771, A30])
def test_a_profile_takes_what_a_share_of_its_memory_takes(card: int) -> None:
    on = NodeClass(8, card)
    for profile, part in mig.slices(card).items():
        by_name = Request(CONTAINER, nodes=2, cards_per_node=3, profile=profile, cpu_milli=7, walltime_s=11)
        assert units(by_name, on) == units(replace(by_name, profile="", memory_mib=part.memory_mib), on)


def test_a_profile_that_no_such_card_knows_has_no_units() -> None:
    with pytest.raises(ValueError, match="no slice 1g.5gb"):
        units(Request(CONTAINER, profile="1g.5gb"), BIG)


@pytest.mark.parametrize("form", list(AskForm))
@pytest.mark.parametrize("memory_mib", [0, 1, 5_000, 20_000])
@pytest.mark.parametrize("on", [BIG, NodeClass(4, L4), NodeClass(8, H200)])
def test_the_least_is_never_more_than_what_it_is_anywhere(form: AskForm, memory_mib: int, on: NodeClass) -> None:
    request = Request(form, nodes=2, cards_per_node=2, memory_mib=memory_mib, cpu_milli=3, walltime_s=7)
    least, there = units(request), units(request, on)
    assert all(least[resource] <= there[resource] for resource in Resource)
