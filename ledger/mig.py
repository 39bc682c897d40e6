"""MIG profiles: which cards know them, and how much of a card each is. Pure: no database.

Facts of NVIDIA's MIG User Guide, "Supported GPUs" and "Supported MIG Profiles". Profiles name rounded gigabytes; what
is given are whole eighths of the card's memory, and sevenths (A30: quarters) of its compute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ledger.vocabulary import COMPUTE_UNITS

MIB_PER_GB: Final = 1024
EIGHTHS: Final = 8
SIZE_TOLERANCE: Final = 25  # a card's memory is that of its size within one part in so many
NAME: Final = re.compile(r"[1-7]g\.[0-9]{1,4}gb")
WORDS: Final = re.compile(r"[^A-Z0-9]+")

Part = tuple[int, int, int]  # eighths of the memory; of the compute so many of so many parts
SEVENTHS: Final[tuple[Part, ...]] = ((1, 1, 7), (2, 1, 7), (2, 2, 7), (4, 3, 7), (4, 4, 7), (8, 7, 7))
QUARTERS: Final[tuple[Part, ...]] = ((2, 1, 4), (4, 2, 4), (8, 4, 4))
SIZES: Final[Mapping[int, tuple[str, tuple[Part, ...]]]] = MappingProxyType(
    {  # gigabytes of the card: its profiles, and how much of it each is
        24: ("1g.6gb 2g.12gb 4g.24gb", QUARTERS),
        40: ("1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", SEVENTHS),
        80: ("1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", SEVENTHS),
        94: ("1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", SEVENTHS),
        96: ("1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", SEVENTHS),
        141: ("1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", SEVENTHS),
        180: ("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", SEVENTHS),
        186: ("1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb", SEVENTHS),
    }
)
MODELS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {  # a word of the card's name: the sizes that MIG divides
        "A30": (24,),
        "A100": (40, 80),
        "H100": (80, 94, 96),
        "GH200": (96,),
        "H20": (96,),
        "H200": (141,),
        "B200": (180,),
        "GB200": (186,),
    }
)
KNOWN: Final = frozenset(name for names, _ in SIZES.values() for name in names.split())


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG profile on a card: so much of its memory in MiB and of its compute in thousandths."""

    memory_mib: int
    compute_milli: int


def size_of(card_memory_mib: int) -> int | None:
    """The size in gigabytes that a card of so much memory is sold as; None when MIG divides none of that size."""
    nearest = min(SIZES, key=lambda size: (abs(size * MIB_PER_GB - card_memory_mib), size))
    off = abs(nearest * MIB_PER_GB - card_memory_mib)
    return nearest if off * SIZE_TOLERANCE <= nearest * MIB_PER_GB else None


def slices(card_memory_mib: int) -> dict[str, Slice]:
    """Every profile of a card of this size, by name, the smallest first. Thousandths of compute are rounded down, so
    that all slices that one card is divided into have room on it: seven of one seventh, or three and four."""
    size = size_of(card_memory_mib)
    if size is None:
        return {}
    names, parts = SIZES[size]
    return {
        name: Slice(card_memory_mib * eighths // EIGHTHS, COMPUTE_UNITS * some // all_)
        for name, (eighths, some, all_) in zip(names.split(), parts, strict=True)
    }


def profiles_of(model: str, card_memory_mib: int) -> dict[str, Slice]:
    """The profiles of a card by its name and size; none where MIG does not divide that model."""
    sizes = {size for word in WORDS.split(model.upper()) for size in MODELS.get(word, ())}
    return slices(card_memory_mib) if size_of(card_memory_mib) in sizes else {}


def slice_of(profile: str, card_memory_mib: int) -> Slice:
    """What a profile such as 3g.40gb is on a card of this size. ValueError when no such slice is cut from it."""
    if NAME.fullmatch(profile) is None:
        raise ValueError(f"{profile!r} is not the name of a MIG profile, such as 1g.10gb")
    found = slices(card_memory_mib).get(profile)
    if found is None:
        raise ValueError(f"no slice {profile} is cut from a card of {card_memory_mib} MiB")
    return found
