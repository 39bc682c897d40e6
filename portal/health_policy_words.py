"""Words of the health policy: kinds of faults, what is done about them, rules in one line. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from ledger.health_rules import Rule
from ledger.vocabulary import FaultKind, HealthAction
from portal.labels import Look, Text
from portal.templatetags import ui

ACTIONS: Final[Mapping[str, Look]] = {
    HealthAction.LOG: Look(pgettext_lazy("health action", "log"), "·", "quiet"),
    HealthAction.WATCH: Look(pgettext_lazy("health action", "watch"), "◔", "quiet"),
    HealthAction.NO_GANG: Look(pgettext_lazy("health action", "single cards only"), "⚯", "warn"),
    HealthAction.DRAIN_SOFT: Look(pgettext_lazy("health action", "drain softly"), "⇣", "warn"),
    HealthAction.RESTART_JOB: Look(pgettext_lazy("health action", "restart the job"), "↻", "warn"),
    HealthAction.ASK: Look(pgettext_lazy("health action", "hold and ask"), "?", "warn"),
    HealthAction.DRAIN_NOW: Look(pgettext_lazy("health action", "drain now"), "⤓", "alarm"),
    HealthAction.RESET: Look(pgettext_lazy("health action", "reset"), "⟲", "alarm"),
    HealthAction.REBOOT: Look(pgettext_lazy("health action", "reboot the node"), "⟳", "alarm"),
    HealthAction.HOLD_NODE: Look(pgettext_lazy("health action", "hold the node"), "⚠", "alarm"),
    HealthAction.RMA: Look(pgettext_lazy("health action", "send back"), "✕", "alarm"),
}
MEANINGS: Final[Mapping[str, Text]] = {
    HealthAction.LOG: gettext_lazy("It is counted; nothing else."),
    HealthAction.WATCH: gettext_lazy("It is counted and shown on the board."),
    HealthAction.NO_GANG: gettext_lazy(
        "The card does no work that needs its links: single cards are still given, blocks, several cards and whole "
        "machines are not. A person releases it."
    ),
    HealthAction.DRAIN_SOFT: gettext_lazy("No new work; what runs may end; then a reset and a test."),
    HealthAction.RESTART_JOB: gettext_lazy(
        "Only the job that was hit starts anew elsewhere and is refunded; the card drains softly."
    ),
    HealthAction.ASK: gettext_lazy("No new work until a person has decided."),
    HealthAction.DRAIN_NOW: gettext_lazy(
        "No new work; its jobs end, are tried again elsewhere and refunded; then a reset and a test."
    ),
    HealthAction.RESET: gettext_lazy("As drain now, by a reset of the card."),
    HealthAction.REBOOT: gettext_lazy(
        "The whole node takes no new work; jobs on the card end and are refunded, others may go on; then a reboot."
    ),
    HealthAction.HOLD_NODE: gettext_lazy("As reboot; then a person looks at the node."),
    HealthAction.RMA: gettext_lazy("As drain now; the card is sent back and never returns by itself."),
}
KINDS: Final[Mapping[str, Text]] = {
    FaultKind.XID: pgettext_lazy("fault", "XID"),
    FaultKind.ECC: pgettext_lazy("fault", "uncorrected memory errors"),
    FaultKind.THERMAL: pgettext_lazy("fault", "slowed by heat"),
    FaultKind.LOST: pgettext_lazy("fault", "card lost"),
    FaultKind.CLOCK: pgettext_lazy("fault", "clock wrong"),
    FaultKind.ORPHAN: pgettext_lazy("fault", "process without an allocation"),
    FaultKind.OVERUSE: pgettext_lazy("fault", "more memory than promised"),
    FaultKind.CORRECTABLE: pgettext_lazy("fault", "corrected memory errors"),
    FaultKind.REMAP_PENDING: pgettext_lazy("fault", "row remap pending"),
    FaultKind.REMAP_FAILED: pgettext_lazy("fault", "row remap failed"),
    FaultKind.RESET_REQUIRED: pgettext_lazy("fault", "reset required"),
    FaultKind.NVLINK: pgettext_lazy("fault", "NVLink errors"),
    FaultKind.POWER: pgettext_lazy("fault", "slowed by power"),
    FaultKind.MISSING: pgettext_lazy("fault", "fewer cards than on the bus"),
    FaultKind.STORAGE: pgettext_lazy("fault", "storage fails"),
    FaultKind.SILENT: pgettext_lazy("fault", "silent"),
}


def name(kind: str, code: int | None) -> str:
    """XID 79; other kinds in words."""
    said = str(KINDS.get(kind, kind))
    if kind == FaultKind.XID and code is None:
        return _("any other XID")
    return said if code is None else f"{said} {code}"


def site_name(site: str) -> str:
    return site or _("every site")


def escalation(rule: Rule) -> str:
    """When it says more, in words; "" = never."""
    if rule.then is None:
        return ""
    window = ui.duration(rule.window_s)
    if rule.by_users:
        text = ngettext("%(n)d person within %(window)s", "%(n)d different people within %(window)s", rule.repeats)
    else:
        text = ngettext("%(n)d time within %(window)s", "%(n)d times within %(window)s", rule.repeats)
    return text % {"n": rule.repeats, "window": window}


def in_words(rule: Rule | None) -> str:
    """The whole rule in a line."""
    if rule is None:
        return _("no rule: hold and ask")
    text = str(ACTIONS[rule.action].label)
    if rule.then is not None:
        text += _("; %(when)s: %(then)s") % {"when": escalation(rule), "then": ACTIONS[rule.then].label}
    return text + (_("; released by hand") if rule.by_hand else "")
