"""The lines of the books page: what each account and each member of a split came to, and in the period before.

Turns answers of ledger.reports into rows for the template and for files. Reads nothing from the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from portal import stacks
from portal.books_form import BooksForm
from portal.forms import choices_of
from portal.labels import Text
from portal.stacks import Balance, Band
from portal.templatetags.ui import grouped, hours

SPLIT_TITLES: Final[dict[str, Text]] = {
    "form": gettext_lazy("Used, by form"),
    "project": gettext_lazy("Used, by project"),
    "zone": gettext_lazy("Used, by zone"),
    "model": gettext_lazy("Used, by card model"),
}
KEPT: Final = ("window", "start", "end", "hardware", "zone", "project", "model", "stack", "unit")
LINKED: Final = ("zone", "project", "model")  # splits whose members are also filters of the page


@dataclass(frozen=True)
class Change:
    """How an amount stands to the one before: a glyph, a word, and percent where there is something to compare with."""

    glyph: str
    word: str
    percent: float | None = None


@dataclass(frozen=True)
class Amount:
    """A number of the page in both units, with its ledger lines."""

    card_seconds: int
    exact: int  # MiB-seconds
    url: str
    shown: str  # in the unit chosen


@dataclass(frozen=True)
class Row:
    band: Band | None  # None: the capacity
    name: str
    now: Amount
    before: Amount
    part: float  # of the capacity, in percent
    difference: str
    change: Change
    only: str = ""  # the page cut to this member

    @property
    def account(self) -> str:
        return "" if self.band is None else self.band.account


def change(now: int, before: int) -> Change:
    if now == before:
        return Change("=", pgettext("amount", "the same"))
    if not before:
        return Change("▲", pgettext("amount", "new"))
    percent = round(100 * abs(now - before) / before, 1)
    if now > before:
        return Change("▲", pgettext("amount", "more"), percent)
    return Change("▼", pgettext("amount", "less"), percent)


@dataclass(frozen=True)
class Page:
    """Two balances side by side: of the window and of the period before it."""

    form: BooksForm
    now: Balance
    before: Balance

    def _amount(self, balance: Balance, band: Band | None, window: tuple[Any, Any]) -> Amount:
        exact = balance["exact"]
        card_seconds = balance["capacity"] if band is None else band.amount(balance)
        mib_seconds = exact["capacity"] if band is None else band.amount(exact)
        url = stacks.lines_url(*window, self.form.cut, stacks.EVERYTHING if band is None else band.lines)
        return Amount(card_seconds, mib_seconds, url, self._shown(card_seconds, mib_seconds))

    def _shown(self, card_seconds: int, mib_seconds: int) -> str:
        return grouped(mib_seconds) if self.form.exact else hours(card_seconds)

    def row(self, band: Band | None) -> Row:
        now = self._amount(self.now, band, (self.form.since, self.form.until))
        before = self._amount(self.before, band, self.form.before)
        more = now.exact - before.exact
        text = self._shown(now.card_seconds - before.card_seconds, more)
        return Row(
            band=band,
            name=_("Capacity") if band is None else band.name,
            now=now,
            before=before,
            part=100 * now.exact / self.now["exact"]["capacity"] if self.now["exact"]["capacity"] else 0.0,
            difference=f"+{text}" if more > 0 else text,
            change=change(now.exact, before.exact),
            only=self._only(band),
        )

    @property
    def capacity(self) -> Row:
        return self.row(None)

    @property
    def capacity_only(self) -> list[Row]:
        return [self.capacity]

    @property
    def accounts(self) -> list[Row]:
        return [self.row(band) for band in stacks.account_bands()]

    @property
    def balanced(self) -> bool:
        """Whether the accounts come to the capacity, in both periods."""
        return all(
            balance["exact"]["capacity"] == sum(band.amount(balance["exact"]) for band in stacks.account_bands())
            for balance in (self.now, self.before)
        )

    @property
    def splits(self) -> list[tuple[Text, list[Row]]]:
        """The used account by the split that is stacked, else by form and project."""
        names: Sequence[str] = ("form", "project") if self.form.stacked == "account" else (self.form.stacked,)
        now, before = [self.now["exact"]], [self.before["exact"]]
        found = [(SPLIT_TITLES[name], stacks.members(name, now, before)) for name in names]
        return [(title, [self.row(band) for band in bands]) for title, bands in found if bands]

    def _only(self, band: Band | None) -> str:
        if band is None or band.split not in LINKED or len(band.members) != 1:
            return ""
        (member,) = band.members
        if not choices_of(self.form, band.split).valid_value(member):
            return ""
        kept = {name: self.form.data[name] for name in KEPT if self.form.data.get(name)}
        return f"{reverse('books')}?{urlencode(kept | {band.split: member})}"
