"""Words of the health policy: kinds of faults, what is done about them, rules in one line. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext, pgettext_lazy

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


# what the table that comes with the portal says of each fault (ledger.health_defaults)
NOTES: Final = frozenset(
    {
        gettext_noop("engine exception, MMU fault or bad push buffer of a program"),
        gettext_noop("copy, video, JPEG or OFA engine, idle timeout"),
        gettext_noop("stopped channel or driver firmware; gpud reboots 38, 44"),
        gettext_noop("preemptive clean-up after another XID"),
        gettext_noop("row remap recorded; takes effect at the next reset; gpud reboots"),
        gettext_noop("row remap failed"),
        gettext_noop("double-bit ECC error (171 DRAM, 172 SRAM)"),
        gettext_noop("contained uncorrectable ECC error: only the job that was hit"),
        gettext_noop("uncontained uncorrectable ECC error: the whole card with all its slices"),
        gettext_noop("unrecovered ECC, time-out, halt, GSP or initialisation; NVIDIA's device plugin ignores 109"),
        gettext_noop("fell off the bus (on NVSwitch nodes often with SXID 20034)"),
        gettext_noop("NVLink; its peer is suspect too; 149 depends on its sub-code"),
        gettext_noop("high rate of corrected single-bit errors"),
        gettext_noop("auxiliary power is missing"),
        gettext_noop("vGPU start, key rotation or CHI: software of the node"),
        gettext_noop("C2C, InfoROM wear, retirement, tests; gpud reboots 121"),
        gettext_noop("recovery action changed: what its message asks for is done, this if it names none"),
        gettext_noop("listed without an action"),
        gettext_noop("fatal PCIe time-out, as 79"),
        gettext_noop("volatile uncorrected errors rose"),
        gettext_noop("rows are remapped at the next reset"),
        gettext_noop("no spare rows are left: sent back after the maker's field diagnosis"),
        gettext_noop("the driver asks for a reset"),
        gettext_noop("the driver has lost the card"),
        gettext_noop("fewer cards are listed than sit on the bus; EKS calls it fatal"),
        gettext_noop("corrected errors or remapped rows"),
        gettext_noop("error counters of links rose"),
        gettext_noop("clocks held down by heat"),
        gettext_noop("clocks held down by power"),
        gettext_noop("its storage does not answer; one blip of a shared server would drain the whole fleet"),
        gettext_noop("the node's clock is wrong"),
        gettext_noop("the inventory holds a silent node by itself"),
        gettext_noop("a process without an allocation; it is held by a rule of its own"),
        gettext_noop("more memory than promised; the offender is stopped, not the card"),
    }
)


def note(text: str) -> str:
    """The note of a rule: the portal's own in the reader's language, what a person wrote as it is."""
    return _(text) if text in NOTES else text
