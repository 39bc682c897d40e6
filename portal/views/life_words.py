"""How the life story of a node or a card words the rows of the audit trail about it. Reads nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext

from ledger.models import AuditEvent
from ledger.vocabulary import CaseState, Need
from portal.labels import Text
from portal.templatetags.ui import cores, listed, mib

ACTS: Final[Mapping[str, Text]] = {
    "node.registered": gettext_lazy("joins the fleet"),
    "node.updated": gettext_lazy("its entry changes"),
    "node.resized": gettext_lazy("its size changes"),
    "node.blocks.cut": gettext_lazy("cut into blocks"),
    "node.token.created": gettext_lazy("a token for its agent"),
    "node.up": gettext_lazy("reports again"),
    "node.offline": gettext_lazy("reports no more"),
    "node.retired": gettext_lazy("leaves the fleet"),
    "card.replaced": gettext_lazy("another card takes its place"),
}
AMOUNTS: Final[Mapping[str, tuple[Text, Callable[[Any], str]]]] = {
    "cpu_milli": (gettext_lazy("CPU cores"), cores),
    "host_memory_mib": (gettext_lazy("Host memory"), mib),
}
NEEDS: Final[Mapping[str, Text]] = {
    Need.NOTHING: gettext_lazy("it needs a test"),
    Need.RESET: gettext_lazy("it needs a reset and a test"),
    Need.REBOOT: gettext_lazy("it needs a reboot and a test"),
    Need.INSPECTION: gettext_lazy("a person has to look at it"),
    Need.REPLACEMENT: gettext_lazy("it has to be replaced"),
}
DONE: Final[Mapping[str, Text]] = {
    Need.RESET: gettext_lazy("reset"),
    Need.REBOOT: gettext_lazy("rebooted"),
    Need.INSPECTION: gettext_lazy("inspected"),
    Need.REPLACEMENT: gettext_lazy("replaced"),
}
CASE_ENDS: Final[Mapping[str, Text]] = {
    CaseState.RETURNED: gettext_lazy("the case ends: back in the pool"),
    CaseState.SCRAPPED: gettext_lazy("the case ends: it leaves the fleet"),
    CaseState.ABORTED: gettext_lazy("the case ends: broken off"),
}
SAID: Final = ("node.up", "node.offline", "node.retired")  # the act is all that there is to tell
BOOT_SHOWN: Final = 8  # characters of the identity of a boot


def act(event: AuditEvent) -> Text:
    return ACTS.get(event.verb, event.verb)


def detail(event: AuditEvent) -> str:
    if event.verb in SAID:
        return ""
    after = event.after or {}
    if event.verb == "node.blocks.cut" and {"blocks", "size"} <= after.keys():
        return blocks(int(after["blocks"]), int(after["size"]))
    if event.verb == "card.replaced":
        return str(after.get("by", ""))
    if event.verb == "node.registered":  # its host name is that of the page; its zone has a line of its own
        return " · ".join(_registered(after))
    return " → ".join(side for side in (_side(event.before), _side(event.after)) if side)


def blocks(count: int, size: int) -> str:
    parts = {
        "blocks": ngettext("%(n)d block", "%(n)d blocks", count) % {"n": count},
        "cards": ngettext("%(n)d card", "%(n)d cards", size) % {"n": size},
    }
    return pgettext("size of blocks", "%(blocks)s of %(cards)s") % parts


def need(word: str) -> str:
    return str(NEEDS.get(word, word))


def done(word: str) -> Text:
    return DONE.get(word, gettext_lazy("ready for its test"))


def case_end(state: str) -> Text:
    return CASE_ENDS.get(state, state)


def boot(boot_id: str) -> str:
    shown = boot_id if len(boot_id) <= BOOT_SHOWN else f"{boot_id[:BOOT_SHOWN]}…"
    return _("boot %(id)s") % {"id": shown}


def _registered(after: Mapping[str, Any]) -> list[str]:
    cards = after.get("cards")
    told = [] if cards is None else [ngettext("%(n)d card", "%(n)d cards", int(cards)) % {"n": int(cards)}]
    return told + ([str(after["model"])] if after.get("model") else [])


def _side(side: Mapping[str, Any] | None) -> str:
    """The fields of one side; amounts with their unit, everything else as it was written."""
    told = []
    for name, value in (side or {}).items():
        label, shown = AMOUNTS.get(name, (name, str))
        told.append(f"{label}{pgettext('separator', ': ')}{shown(value)}")
    return listed(told)
