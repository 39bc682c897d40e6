"""Words of the health pages: how a card stands, what each kind of bad telemetry means. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.vocabulary import QualityKind
from portal.labels import Look, Text


class Health(IntEnum):
    """How a card stands, in one word, the most urgent first."""

    SILENT = 0  # its node reports no more
    FAULT = 1  # out of the pool for a fault
    HELD = 2  # out of the pool for another reason
    WATCH = 3  # in the pool, with an open fault of its own or of its node
    UNKNOWN = 4  # it never reported
    OK = 5

    @property
    def word(self) -> str:
        return self.name.lower()


LOOKS: Final[Mapping[Health, Look]] = {
    Health.SILENT: Look(pgettext_lazy("health", "silent"), "◌", "alarm"),
    Health.FAULT: Look(pgettext_lazy("health", "fault"), "⚠", "alarm"),
    Health.HELD: Look(pgettext_lazy("health", "held"), "⚑", "warn"),
    Health.WATCH: Look(pgettext_lazy("health", "watch"), "◔", "warn"),
    Health.UNKNOWN: Look(pgettext_lazy("health", "unknown"), "?", "quiet"),
    Health.OK: Look(pgettext_lazy("health", "OK"), "●", "good"),
}
MEANINGS: Final[Mapping[Health, Text]] = {
    Health.SILENT: _("its node reports no more; what is told of it is old"),
    Health.FAULT: _("out of the pool for a fault"),
    Health.HELD: _("out of the pool for maintenance, a drill or another reason"),
    Health.WATCH: _("in the pool, with an open fault of its own or of its node"),
    Health.UNKNOWN: _("it has never reported"),
    Health.OK: _("in the pool, without an open fault"),
}


def health_of(*, silent: bool, bad: bool, held: bool, faults: int, linked: bool, heard: bool) -> Health:
    """The same in Python as portal.views.health_rows.health_case has it for the database. `bad`: held for a fault;
    `linked`: it does no work that needs its links."""
    if silent:
        return Health.SILENT
    if bad:
        return Health.FAULT
    if held:
        return Health.HELD
    if faults or linked:
        return Health.WATCH
    return Health.OK if heard else Health.UNKNOWN


def fault_name(kind: str, code: int | None) -> str:
    """XID 79, REMAP PENDING: as drivers' handbooks write them, the same in every language."""
    return f"{kind.upper().replace('_', ' ')} {'' if code is None else code}".strip()


@dataclass(frozen=True)
class Meaning:
    """A kind of bad telemetry: its name, what it means and what to do about it."""

    name: Text
    means: Text
    todo: Text


QUALITY: Final[Mapping[str, Meaning]] = {
    QualityKind.DUPLICATE: Meaning(
        pgettext_lazy("quality", "duplicate"),
        _("A report came that was here before. It is counted once."),
        _("Nothing, if few: agents repeat what was not answered in time. Many: look at the network."),
    ),
    QualityKind.REORDERED: Meaning(
        pgettext_lazy("quality", "reordered"),
        _("A report came after a newer one. It is in the history; the newest values stay."),
        _("Nothing, if few."),
    ),
    QualityKind.LATE: Meaning(
        pgettext_lazy("quality", "late"),
        _("A report was more than a minute on its way. It is in the history."),
        _("Look at the load of the node and of the portal, and at the network between them."),
    ),
    QualityKind.TOO_OLD: Meaning(
        pgettext_lazy("quality", "too old"),
        _("A sample is older than what is kept. It was dropped."),
        _("Look at the node's clock, or how long it was away."),
    ),
    QualityKind.FUTURE: Meaning(
        pgettext_lazy("quality", "from the future"),
        _("The node's clock is ahead. The sample is noted with the time of its arrival."),
        _("Set the node's clock (NTP)."),
    ),
    QualityKind.BEHIND: Meaning(
        pgettext_lazy("quality", "clock behind"),
        _("The node's clock is days behind. The sample is noted with the time of its arrival."),
        _("Set the node's clock (NTP)."),
    ),
    QualityKind.IMPOSSIBLE: Meaning(
        pgettext_lazy("quality", "impossible value"),
        _("A value that no card can have: more memory used than there is, 300 °C. That value was dropped."),
        _("Look at the driver of the card; the last one is told under Detail."),
    ),
    QualityKind.UNKNOWN_CARD: Meaning(
        pgettext_lazy("quality", "unknown card"),
        _("A sample of a card that the portal does not know."),
        _("Register the card, or wait for the next look at the inventory."),
    ),
    QualityKind.FOREIGN_CARD: Meaning(
        pgettext_lazy("quality", "card of another node"),
        _("A node told values of a card that sits in another node. They were dropped."),
        _("If the card was moved, the inventory notes that; if not, look who sends this."),
    ),
    QualityKind.WRONG_NODE: Meaning(
        pgettext_lazy("quality", "wrong node"),
        _("A report in the name of a node came with another node's token. It was refused."),
        _("Look who sends this; make a new token for the node."),
    ),
    QualityKind.UNKNOWN_TOKEN: Meaning(
        pgettext_lazy("quality", "unknown token"),
        _("A report came with a token that nobody has. It was refused."),
        _("Look who sends this; an agent with an old token needs the new one."),
    ),
    QualityKind.MALFORMED: Meaning(
        pgettext_lazy("quality", "malformed"),
        _("A report that can't be read: wrong types, NaN, half a batch. It was refused."),
        _("Bring the agent to the version of the portal."),
    ),
    QualityKind.TOO_LARGE: Meaning(
        pgettext_lazy("quality", "too large"),
        _("A report is larger than what is taken. It was refused."),
        _("Look who sends this."),
    ),
    QualityKind.FLOOD: Meaning(
        pgettext_lazy("quality", "flood"),
        _("Minutes in which more reports came than are taken. The rest was refused."),
        _("Look who sends this; give the agent its usual interval."),
    ),
    QualityKind.SCRAPE_FAILED: Meaning(
        pgettext_lazy("quality", "scrape failed"),
        _("An exporter did not answer, or not in its format."),
        _("Look at the exporter on the node."),
    ),
}


def quality(kind: str) -> Meaning:
    return QUALITY.get(kind, Meaning(kind, "", ""))


def codes() -> dict[str, Any]:
    """word → its number, as the address of the board has words and the database numbers."""
    return {health.word: int(health) for health in Health}
