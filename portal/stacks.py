"""What the books stack: the used account split by zone, form, project or model, and the accounts that nobody used.

A band is one colour of the chart, one column of its table and one line of the balance; all three link to the same
ledger lines. Reads nothing from the database.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from ledger.balance import NOWHERE, OTHERS
from ledger.vocabulary import Account
from portal import labels

Balance = Mapping[str, Any]  # an answer of ledger.reports, or its part "exact"

EVERYTHING: Final[Mapping[str, str]] = {"account": ""}  # the lines of a capacity
MOST_MEMBERS: Final = 8  # the rest stands as one band
# The pattern tells a band apart without its colour; colours are --gc-account-… and --gc-member-… in the style sheets.
ACCOUNT_PATTERNS: Final[Mapping[str, str]] = {
    Account.USED: "",
    Account.CLEANING: ".",
    Account.HELD: "x",
    Account.HEADROOM: "-",
    Account.STRANDED: "/",
    Account.FREE: "",
}
MEMBER_PATTERNS: Final = ("", "", "", "", "\\", "\\", "\\", "\\")  # four colours, twice
REST_PATTERN: Final = "|"


def amount(balance: Balance, account: str) -> int:
    """The account's total in the unit of `balance`."""
    if account in (Account.FREE, Account.STRANDED):
        return int(balance["idle"][account])
    return int(balance["used"]["total"] if account == Account.USED else balance[account])


@dataclass(frozen=True)
class Band:
    """One part of the stack. `lines` is the query that finds its ledger lines, apart from window and cut."""

    account: str
    name: str
    meta: str  # of its colour: account-used, member-1, …, rest
    pattern: str
    lines: Mapping[str, str]
    split: str = ""  # used by zone, form, project or model
    members: tuple[str, ...] = field(default=())

    def amount(self, balance: Balance) -> int:
        if not self.split:
            return amount(balance, self.account)
        of = balance["used"][f"by_{self.split}"]
        return sum(of.get(name, 0) for name in self.members)


def account_bands() -> list[Band]:
    return [_account_band(account) for account in ACCOUNT_PATTERNS]


def bands(stack: str, balances: Sequence[Balance]) -> list[Band]:
    """The bands of a stack, biggest members first, so that they add up to the capacity of each balance."""
    if stack == "account":
        return account_bands()
    rest = [band for band in account_bands() if band.account != Account.USED]
    return [*members(stack, balances), *rest]


def members(split: str, balances: Sequence[Balance], also: Sequence[Balance] = ()) -> list[Band]:
    """The used account by zone, form, project or model: the biggest over all balances, and the rest as one. Members
    that only the balances in `also` know come after the others."""
    total: Counter[str] = Counter()
    for balance in balances:
        total.update(balance["used"][f"by_{split}"])
    for balance in also:
        total.update(dict.fromkeys(balance["used"][f"by_{split}"], 0))
    names = sorted(total, key=lambda name: (-total[name], name))
    shown, folded = names[:MOST_MEMBERS], tuple(names[MOST_MEMBERS:])
    found = [
        Band(
            account=Account.USED,
            name=member_name(split, name),
            meta=f"member-{place + 1}",
            pattern=MEMBER_PATTERNS[place],
            lines={"account": Account.USED, split: name},
            split=split,
            members=(name,),
        )
        for place, name in enumerate(shown)
    ]
    if folded:
        found.append(_rest(split, shown, folded))
    return found


def _rest(split: str, shown: Sequence[str], folded: tuple[str, ...]) -> Band:
    return Band(
        account=Account.USED,
        name=_("%(n)d smaller ones") % {"n": len(folded)},
        meta="rest",
        pattern=REST_PATTERN,
        lines={"account": Account.USED, "split": split, "but": json.dumps(list(shown), ensure_ascii=False)},
        split=split,
        members=folded,
    )


def _account_band(account: str) -> Band:
    return Band(
        account=account,
        name=str(labels.look("account", account).label),
        meta=f"account-{account}",
        pattern=ACCOUNT_PATTERNS[account],
        lines={"account": account},
    )


def member_name(split: str, name: str) -> str:
    if split == "form":
        return str(labels.look("form", name).label)
    known = {NOWHERE: _("in no zone")} if split == "zone" else {OTHERS: _("other projects")}
    return known.get(name, name)


def lines_url(start: dt.datetime, end: dt.datetime, cut: Mapping[str, Any], lines: Mapping[str, str]) -> str:
    """The address of the ledger lines behind a number."""
    return lines_urls(cut, lines)(start, end)


def lines_urls(cut: Mapping[str, Any], lines: Mapping[str, str]) -> Callable[[dt.datetime, dt.datetime], str]:
    """The same for the many windows of one cut."""
    chosen = {"hardware": "simulated" if cut["simulated"] else "real"}
    chosen |= {name: cut[name] for name in ("zone", "project", "model") if cut.get(name)}
    page, rest = reverse("books-lines"), urlencode(chosen | dict(lines))
    return lambda start, end: f"{page}?window=own&start={_instant(start)}&end={_instant(end)}&{rest}"


def _instant(moment: dt.datetime) -> str:
    return quote_plus(moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
