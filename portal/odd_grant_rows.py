"""Odd grants as pages, files and the API show them, in the words of the reader; people see them as "extra rights".
Reads only, cut by visible_to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.clock import database_now
from ledger.models import OddGrant, User
from ledger.vocabulary import OddGrantKind
from portal.labels import Text

KINDS: Final[Mapping[str, Text]] = {
    OddGrantKind.ZONE_OPERATOR: _("operator of a zone"),
    OddGrantKind.AUDITOR: _("auditor of a department"),
}


class Standing(StrEnum):
    """Whether a grant gives anything, and if not, why."""

    IN_FORCE = "in_force"
    LEFT = "left"  # who has it has left the site
    OVER = "over"
    WITHDRAWN = "withdrawn"


STANDINGS: Final[Mapping[str, Text]] = {
    Standing.IN_FORCE: pgettext_lazy("right", "in force"),
    Standing.LEFT: pgettext_lazy("right", "gives nothing: the person has left"),
    Standing.OVER: pgettext_lazy("right", "over"),
    Standing.WITHDRAWN: pgettext_lazy("right", "withdrawn"),
}


@dataclass(frozen=True)
class Row:
    grant: OddGrant
    standing: Standing

    @property
    def kind(self) -> Text:
        return KINDS[self.grant.kind]

    @property
    def said(self) -> Text:
        return STANDINGS[self.standing]

    @property
    def lasts(self) -> bool:
        """Whether it may still be withdrawn."""
        return self.standing in (Standing.IN_FORCE, Standing.LEFT)

    @property
    def place(self) -> Any:
        return self.grant.zone or self.grant.department


SHOWN: Final = ("user", "zone", "department", "by", "withdrawn_by")


def row_of(grant: OddGrant, now: dt.datetime) -> Row:
    if grant.withdrawn_at is not None:
        return Row(grant, Standing.WITHDRAWN)
    if grant.period.upper <= now:
        return Row(grant, Standing.OVER)
    return Row(grant, Standing.IN_FORCE if grant.user.is_active else Standing.LEFT)


def seen_by(user: User) -> Any:
    return OddGrant.objects.visible_to(user).select_related(*SHOWN)


def standing(viewer: User, **cut: Any) -> list[Row]:
    """Those that stand now, of a zone or a department, of what the viewer may see; the next to end first."""
    return _standing(seen_by(viewer).filter(**cut))


def own(user: User) -> list[Row]:
    """Those that this person has now."""
    return _standing(OddGrant.objects.filter(user=user).select_related(*SHOWN))


def _standing(rows: Any) -> list[Row]:
    found = rows.filter(period__contains=Now()).order_by("period__endswith", "pk")
    return [Row(grant, Standing.IN_FORCE if grant.user.is_active else Standing.LEFT) for grant in found]


def of_person(viewer: User, person: User) -> list[Row]:
    """All that a person has or had, the newest first."""
    now = database_now()
    return [row_of(grant, now) for grant in seen_by(viewer).filter(user=person).order_by("-pk")]
