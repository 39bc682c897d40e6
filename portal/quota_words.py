"""Amounts of quota in the units that people use: the book counts thousandths, MiB and seconds. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from django.utils.translation import pgettext_lazy

from ledger.vocabulary import Refusal, Renewal, Resource
from portal.labels import Text

FACTORS: Final[Mapping[str, int]] = {  # of the book's unit in one of the people's
    Resource.CARD_MILLI: 1000,
    Resource.CARD_MEMORY_MIB: 1,
    Resource.WHOLE_NODES: 1,
    Resource.CPU_MILLI: 1000,
    Resource.HOST_MEMORY_MIB: 1,
    Resource.CARD_MILLI_S: 3_600_000,
}
UNITS: Final[Mapping[str, Text]] = {
    Resource.CARD_MILLI: pgettext_lazy("unit", "cards"),
    Resource.CARD_MEMORY_MIB: pgettext_lazy("unit", "MiB"),
    Resource.WHOLE_NODES: pgettext_lazy("unit", "machines"),
    Resource.CPU_MILLI: pgettext_lazy("unit", "cores"),
    Resource.HOST_MEMORY_MIB: pgettext_lazy("unit", "MiB"),
    Resource.CARD_MILLI_S: pgettext_lazy("unit", "card-hours"),
}
ONE: Final[Mapping[str, Text]] = {  # of exactly 1
    Resource.CARD_MILLI: pgettext_lazy("unit", "card"),
    Resource.WHOLE_NODES: pgettext_lazy("unit", "machine"),
    Resource.CPU_MILLI: pgettext_lazy("unit", "core"),
    Resource.CARD_MILLI_S: pgettext_lazy("unit", "card-hour"),
}
WHOSE: Final[Mapping[str, Text]] = {  # whose limit it is
    Refusal.QUOTA: pgettext_lazy("limit", "the project's quota"),
    Refusal.CEILING: pgettext_lazy("limit", "the department's ceiling"),
    Refusal.MEMBER_LIMIT: pgettext_lazy("limit", "your own limit"),
}
RENEWALS: Final[Mapping[str, Text]] = {  # how often a budget starts anew
    Renewal.MONTH: pgettext_lazy("starts anew", "each calendar month"),
    Renewal.QUARTER: pgettext_lazy("starts anew", "each quarter of the calendar"),
    Renewal.YEAR: pgettext_lazy("starts anew", "each calendar year"),
}
DECIMALS: Final = 3
MOST_DIGITS: Final = 18


def number(resource: str, amount: int | None) -> str:
    """In people's units without naming them: 1.5; card-hours to the third decimal, rounded."""
    if amount is None:
        return "—"
    factor = FACTORS.get(resource, 1)
    value = round(Decimal(amount) / factor, DECIMALS)
    text = f"{value:,f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def told(resource: str, amount: int | None) -> str:
    shown = number(resource, amount)
    unit = ONE.get(resource, UNITS.get(resource, "")) if shown == "1" else UNITS.get(resource, "")
    return f"{shown} {unit}".strip()


def people_units(resource: str, amount: int) -> Decimal:
    """For the field of a form."""
    return Decimal(number(resource, amount).replace("\u202f", ""))


def book_units(resource: str, value: Decimal) -> int | None:
    """What a person typed, as the book counts it; None when it can't be told in whole units."""
    amount = value * FACTORS[resource]
    return int(amount) if amount == amount.to_integral_value() else None
