"""MIG profiles as NVIDIA's MIG User Guide tables them, and that what a card is divided into has room on it."""

from __future__ import annotations

import pytest

from ledger.mig import KNOWN, SIZES, Slice, profiles_of, size_of, slice_of, slices

A30, A100, A100_80, H100, H100_REPORTED, H200, H200_REPORTED = 24_576, 40_960, 81_920, 81_920, 81_559, 143_360, 143_771
# "Fraction of memory" in eighths of the card, "fraction of SMs" in sevenths (A30: quarters, rounded down thousandths)
GUIDE: list[tuple[str, int, dict[str, tuple[int, int]]]] = [
    ("NVIDIA A30", A30, {"1g.6gb": (2, 250), "2g.12gb": (4, 500), "4g.24gb": (8, 1000)}),
    (
        "NVIDIA A100-SXM4-40GB",
        A100,
        {
            "1g.5gb": (1, 142), "1g.10gb": (2, 142), "2g.10gb": (2, 285), "3g.20gb": (4, 428), "4g.20gb": (4, 571),
            "7g.40gb": (8, 1000),
        },
    ),
    (
        "NVIDIA A100 80GB PCIe",
        A100_80,
        {
            "1g.10gb": (1, 142), "1g.20gb": (2, 142), "2g.20gb": (2, 285), "3g.40gb": (4, 428), "4g.40gb": (4, 571),
            "7g.80gb": (8, 1000),
        },
    ),
    (
        "NVIDIA H100 80GB HBM3",
        H100_REPORTED,
        {
            "1g.10gb": (1, 142), "1g.20gb": (2, 142), "2g.20gb": (2, 285), "3g.40gb": (4, 428), "4g.40gb": (4, 571),
            "7g.80gb": (8, 1000),
        },
    ),
    (
        "NVIDIA H200",
        H200_REPORTED,
        {
            "1g.18gb": (1, 142), "1g.35gb": (2, 142), "2g.35gb": (2, 285), "3g.71gb": (4, 428), "4g.71gb": (4, 571),
            "7g.141gb": (8, 1000),
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "card", "wanted"), GUIDE)
def test_profiles_of_a_card(model: str, card: int, wanted: dict[str, tuple[int, int]]) -> None:
    found = profiles_of(model, card)
    assert list(found) == list(wanted)
    assert found == {name: Slice(card * eighths // 8, milli) for name, (eighths, milli) in wanted.items()}


@pytest.mark.parametrize(
    ("model", "card"),
    [
        ("L4", 23_034), ("NVIDIA A10", 24_576), ("T4", 16_384), ("NVIDIA L40S", 46_068), ("A100", 16_000),
        ("H100", 40_960), ("virtual", 81_920), ("NVIDIA A100X", 81_920), ("", 81_920),
    ],
)  # fmt: skip
def test_cards_that_mig_does_not_divide(model: str, card: int) -> None:
    assert profiles_of(model, card) == {}


@pytest.mark.parametrize(
    ("mib", "size"),
    [
        (24_258, 24), (40_536, 40), (81_559, 80), (95_830, 94), (97_871, 96), (143_771, 141), (183_359, 180),
        (189_471, 186), (32_768, None), (65_536, None), (1, None),
    ],
)  # fmt: skip
def test_the_size_that_a_card_is_sold_as(mib: int, size: int | None) -> None:
    assert size_of(mib) == size


@pytest.mark.parametrize(
    ("card", "layout"),
    [
        (A100, ["1g.5gb"] * 7),
        (A100, ["3g.20gb", "4g.20gb"]),
        (A100, ["2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"]),
        (H100, ["1g.20gb"] * 4),
        (H100, ["3g.40gb", "3g.40gb"]),
        (H200, ["4g.71gb", "2g.35gb", "1g.18gb"]),
        (H200, ["7g.141gb"]),
        (A30, ["1g.6gb"] * 4),
        (A30, ["2g.12gb", "1g.6gb", "1g.6gb"]),
    ],
)
def test_what_a_card_is_divided_into_has_room_on_it(card: int, layout: list[str]) -> None:
    parts = [slice_of(profile, card) for profile in layout]
    assert sum(part.memory_mib for part in parts) <= card
    assert sum(part.compute_milli for part in parts) <= 1000


@pytest.mark.parametrize("layout", [["1g.5gb"] * 8, ["4g.20gb", "4g.20gb"], ["3g.20gb", "3g.20gb", "1g.5gb"]])
def test_what_no_card_is_divided_into_has_no_room(layout: list[str]) -> None:
    parts = [slice_of(profile, A100) for profile in layout]
    assert sum(part.memory_mib for part in parts) > A100 or sum(part.compute_milli for part in parts) > 1000


@pytest.mark.parametrize("card", [40_536, 40_960, 81_559, 143_771])
def test_a_reported_size_gives_whole_eighths_rounded_down(card: int) -> None:
    assert sum(8 * part.memory_mib > card * 8 for part in slices(card).values()) == 0
    assert list(slices(card).values())[-1] == Slice(card, 1000)


@pytest.mark.parametrize("profile", ["", "8g.80gb", "1g.10", "3g.40gb+me", "1g.0gb", "7g.160gb", "7g.10gb", "1g.5gb"])
def test_what_is_no_slice_is_refused(profile: str) -> None:
    with pytest.raises(ValueError, match="MIG|slice"):
        slice_of(profile, H100)


def test_every_name_that_is_known_is_of_some_size() -> None:
    assert {name for size in SIZES for name in slices(size * 1024)} == KNOWN
