"""Letters as the first page shows them: what each says, what follows, and where to go. Reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.urls import reverse

from ledger import letters
from ledger.models import Letter, User


@dataclass(frozen=True)
class LetterRow:
    letter: Letter
    text: str
    meaning: str
    url: str


def rows(user: User, now: dt.datetime) -> list[LetterRow]:
    found = letters.shown_to(user, now)
    return [LetterRow(one, letters.headline(one), letters.meaning(one), _url(one)) for one in found]


def _url(letter: Letter) -> str:
    if letter.grant_id is not None:
        return reverse("account")
    return reverse("request", args=[letters.request_of(letter).pk])
